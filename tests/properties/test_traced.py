"""What PyTorch traces: ``torch.compile`` in one graph and ``torch.export``, with sizes fixed and free."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch._dynamo.exc import Unsupported, UserError
from torch.export import Dim
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from attn_core import LatentAttention, MultiHeadAttention, capture_attention, transformer
from attn_core.positions import ALiBi, Learned, Rotary
from tests.properties.mechanisms import MECHANISMS
from tests.properties.modules import CONFIG, DIM, HEADS, LLAMA, MODULES, VOCAB, Inputs, outputs

pytestmark = pytest.mark.filterwarnings("ignore")  # of PyTorch's tracer, about its own ways

SOME = Inputs(batch=2, length=5, seed=1)
RECURRENT = "PyTorch traces no GRU"
BREAKS = {
    "LongformerAttention": "how many global tokens a row has is read from them",
    "HierarchicalContext": "how many sentences there are is read from their numbers",
    "DynamicContext": "as HierarchicalContext",
    "ContextEncoder": "as HierarchicalContext",
    "Encoder": RECURRENT,
    "FixedContextDecoder": RECURRENT,
    "LuongDecoder": RECURRENT,
    "MultiHeadDecoder": RECURRENT,
    "Seq2Seq": RECURRENT,
}
"""The modules that need more than one graph, and why."""


@pytest.fixture(autouse=True)
def _nothing_compiled():
    torch._dynamo.reset()


class Called(nn.Module):
    """A mechanism with its options, called on tensors alone."""

    def __init__(self, mechanism, shared=False, **options):
        super().__init__()
        self.mechanism, self.shared, self.options = mechanism, shared, options

    def forward(self, q, *rest):
        return self.mechanism(q, *((q, *rest) if self.shared else rest), **self.options)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_mechanism_is_one_graph_compiled_or_exported(name, masked):
    entry, (q, k, v) = MECHANISMS[name], SOME.heads
    shared, causal = entry.draws.get("shared", False), entry.draws.get("causal", True)
    made = Called(entry.made_for(q, k, v), shared, causal=causal, mask=SOME.hidden if masked else None).eval()
    call = (q, v) if shared else (q, k, v)
    wanted = made(*call)  # for LSHAttention, whose axes a generator draws, this comes before export
    torch.testing.assert_close(torch.compile(made, fullgraph=True, backend="eager")(*call), wanted)
    torch.testing.assert_close(torch.export.export(made, call).module()(*call), wanted)


@pytest.mark.parametrize("name", [name for name in MODULES if name not in MECHANISMS])
def test_a_module_is_one_graph(name):
    module = MODULES[name].make().eval()
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    if name in BREAKS:
        with pytest.raises((Unsupported, UserError, GuardOnDataDependentSymNode)):
            MODULES[name].call(compiled, SOME)
        return
    torch.manual_seed(0)
    wanted = outputs(MODULES[name].call(module, SOME))
    torch.manual_seed(0)
    torch.testing.assert_close(outputs(MODULES[name].call(compiled, SOME)), wanted)


def words(batch, length):
    return torch.randint(VOCAB, (batch, length))


def vectors(batch, length):
    return torch.randn(batch, length, DIM)


def lengths(batch, length):
    return torch.arange(batch) % length + 1


ONE_LAYER = replace(CONFIG, num_layers=1)
B, T, S = (Dim(name, min=low, max=32) for name, low in (("B", 1), ("T", 2), ("S", 2)))
FREE = {
    "MultiHeadAttention": (lambda: MultiHeadAttention(DIM, HEADS), lambda b, t: (vectors(b, t),), ({0: B, 1: T},)),
    "MultiHeadAttention, of others": (
        lambda: MultiHeadAttention(DIM, HEADS, positions=ALiBi(HEADS)),
        lambda b, t: (vectors(b, t), vectors(b, t + 2)),
        ({0: B, 1: T}, {0: B, 1: S}),
    ),
    "LatentAttention, absorbed": (
        lambda: Absorbed(DIM, HEADS, latent_dim=6, rotary_dim=2),
        lambda b, t: (vectors(b, t),),
        ({0: B, 1: T},),
    ),
    "LanguageModel": (lambda: transformer.LanguageModel(ONE_LAYER), lambda b, t: (words(b, t),), ({0: B, 1: T},)),
    "LanguageModel, learned positions": (
        lambda: transformer.LanguageModel(ONE_LAYER, positions=lambda: Learned(32, DIM)),
        lambda b, t: (words(b, t),),
        ({0: B, 1: T},),
    ),
    "LanguageModel, of the Llama family": (
        lambda: transformer.LanguageModel(replace(LLAMA, num_layers=1), positions=lambda: Rotary(DIM // HEADS)),
        lambda b, t: (words(b, t),),
        ({0: B, 1: T},),
    ),
    "Transformer": (
        lambda: transformer.Transformer(ONE_LAYER),
        lambda b, t: (words(b, t + 2), lengths(b, t + 2), words(b, t)),
        ({0: B, 1: S}, {0: B}, {0: B, 1: T}),
    ),
}
"""How to make a model, its inputs of a batch and a length, and which of their sizes are free."""


class Absorbed(LatentAttention):
    def forward(self, x):
        return self.attend_absorbed(*self.project(x), causal=True)


@pytest.mark.parametrize("how", ["exported", "exported by tracing", "compiled"])
@pytest.mark.parametrize("name", FREE)
def test_a_traced_model_takes_other_batches_and_lengths(name, how):
    make, inputs, free = FREE[name]
    model = make().eval()
    if how == "compiled":
        traced = torch.compile(model, fullgraph=True, dynamic=True, backend="eager")
    else:
        traced = torch.export.export(model, inputs(2, 5), dynamic_shapes=free, strict=how != "exported").module()
    for batch, length in ((3, 9), (1, 2)):
        call = inputs(batch, length)
        torch.testing.assert_close(traced(*call), model(*call))


@pytest.mark.parametrize("filled", [[4, 4], [4, 2]])
def test_a_step_with_a_cache_is_one_graph(filled):
    model = transformer.LanguageModel(LLAMA, positions=lambda: Rotary(DIM // HEADS)).eval()
    found = []
    for step in (model.step, torch.compile(model.step, fullgraph=True, backend="eager")):
        logits, state = model.prefill(SOME.target()[:, :4], torch.tensor(filled))
        for _ in range(3):
            logits, state = step(logits.argmax(-1), state)
        found.append(logits)
    torch.testing.assert_close(found[1], found[0])


def test_a_compiled_model_is_captured_and_compiled_again():
    model, x = MultiHeadAttention(DIM, HEADS).eval(), SOME.states()
    compiled = torch.compile(model, backend="eager")
    compiled(x)
    with capture_attention(model) as broken:
        compiled(x)
    with capture_attention(model) as whole:
        model(x)
    torch.testing.assert_close(broken[""], whole[""])
    compiled(x)
    assert len(broken[""]) == 1
