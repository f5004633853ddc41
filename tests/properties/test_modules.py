"""What holds for every public module: it can be copied, saved, moved, compiled, and used in every mode of PyTorch."""

import copy
import importlib
import inspect
import pickle
import pkgutil
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import attn_book
import attn_core
from tests.properties.draws import examples
from tests.properties.modules import INPUTS, MODULES, Inputs, outputs, reachable

each = pytest.mark.parametrize("name", MODULES)
SOME = Inputs(batch=2, length=5, seed=1)


def made(name, seed=0):
    torch.manual_seed(seed)
    return MODULES[name].make().eval()


def run(name, module, inputs=SOME, seed=0):
    """The floating outputs; what a module draws, it draws from this seed."""
    torch.manual_seed(seed)
    return outputs(MODULES[name].call(module, inputs))


def same(found, wanted, tolerance=0.0):
    assert len(found) == len(wanted) > 0
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        # Infinities, of a bias for instance, must be the same; NaN is never right.
        torch.testing.assert_close(one.double(), other.double(), rtol=tolerance, atol=tolerance)


def test_the_table_has_every_public_module():
    public = set()
    for package in (attn_core, attn_book):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "attn_book.check" in module.name or "_triton" in module.name:
                continue  # wrong answers to exercises, and what needs the package triton
            for name, one in vars(importlib.import_module(module.name)).items():
                own = inspect.isclass(one) and one.__module__ == module.name and not name.startswith("_")
                if own and issubclass(one, nn.Module):
                    public.add(name)
    # These are bases: of the recurrent decoders, of mechanisms, and of positions.
    public -= {"Decoder", "Mechanism", "RelativePositions"}
    listed = {name.partition(",")[0] for name in MODULES}
    assert not public - listed, (
        f"{public - listed}: expected an entry in MODULES (tests/properties/modules.py), or, for a mechanism, one in "
        "MECHANISMS (mechanisms.py) and its name in __all__ of attn_core/__init__.py"
    )
    assert listed == public, f"{listed - public}: in MODULES, but not a public module"


@each
def test_a_deep_copy_is_the_same_and_apart(name):
    module = made(name)
    wanted = run(name, module)
    twin = copy.deepcopy(module)
    same(run(name, twin), wanted)
    mine = {tensor.data_ptr() for tensor in module.state_dict().values() if tensor.numel()}
    assert mine.isdisjoint({tensor.data_ptr() for tensor in twin.state_dict().values()})
    same(run(name, pickle.loads(pickle.dumps(module))), wanted)


@each
def test_a_state_dict_goes_round(name):
    module, other = made(name), made(name, seed=1)
    state = {key: value.clone() for key, value in module.state_dict().items()}
    assert list(other.load_state_dict(state, strict=True)) == [[], []]
    same(run(name, other), run(name, module))
    assert all(torch.equal(value, module.state_dict()[key]) for key, value in state.items())


@each
def test_dtype_and_device_move_all_that_it_holds(name):
    """No tensor stays behind: not in a plain attribute, a list or a dictionary."""
    module = made(name)
    narrow = run(name, module)
    module.double()
    assert {x.dtype for x in reachable(module) if x.dtype.is_floating_point} <= {torch.float64}
    wide = run(name, module, replace(SOME, dtype=torch.float64))
    if name != "ALiBi":  # takes no floating input that would say which dtype is wanted
        assert all(x.dtype == torch.float64 for x in wide if x.dtype.is_floating_point)
    same(narrow, wide, 1e-4)
    module.to("meta")
    assert {x.device.type for x in reachable(module)} <= {"meta"}


@pytest.mark.parametrize("name", [name for name in MODULES if name != "ALiBi"])  # which is given places alone
def test_inputs_are_never_changed(name, monkeypatch):
    module, given_to_it = made(name), []

    def kept(make):
        def method(*args, **named):
            tensor = make(*args, **named)
            given_to_it.append((tensor, tensor.clone()))
            return tensor

        return method

    for method in ("floats", "integers", "states", "tokens", "target", "sequence"):
        monkeypatch.setattr(Inputs, method, kept(getattr(Inputs, method)))
    run(name, module)
    assert given_to_it and all(torch.equal(one, other) for one, other in given_to_it)


@each
def test_what_inference_mode_made_does_not_stop_training(name):
    """A table that was made in inference mode and kept could not be used where gradients are."""
    module = made(name)
    with torch.inference_mode():
        inferred = run(name, module)
    assert not any(x.requires_grad for x in inferred)
    found = run(name, module)
    same([x.detach() for x in found], inferred, 1e-6)
    wanted = [x for x in found if x.requires_grad]
    assert bool(wanted) == any(p.requires_grad for p in module.parameters()) or not list(module.parameters())
    if wanted:
        sum(x.sum() for x in wanted).backward()


@each
def test_gradients_are_finite_at_every_size(name):
    module = made(name).train()

    @examples(10)
    @given(INPUTS)
    def check(inputs):
        module.zero_grad()
        found = run(name, module, inputs)
        assert not any(x.isnan().any() for x in found)
        wanted = [x.masked_fill(x.isinf(), 0.0).square().sum() for x in found if x.requires_grad]
        assert bool(wanted) == bool(list(module.parameters()))
        if wanted:
            sum(wanted).backward()
        assert all(p.grad is None or torch.isfinite(p.grad).all() for p in module.parameters())

    check()


@pytest.mark.parametrize("name", [name for name in MODULES if list(made(name).parameters())])
def test_gradients_are_what_differences_say(name):
    """In float64, along a random direction in the space of all parameters."""
    module = made(name).double()

    @examples(5)
    @given(INPUTS)
    def check(inputs):
        inputs = replace(inputs, dtype=torch.float64)
        random = torch.Generator().manual_seed(0)
        ways = [torch.randn(p.shape, generator=random, dtype=p.dtype) for p in module.parameters()]

        def loss():
            found = [x for x in run(name, module, inputs) if x.dtype.is_floating_point]
            return sum((x * torch.arange(1, x.numel() + 1).view(x.shape).sin()).sum() for x in found)

        module.zero_grad()
        loss().backward()
        slope = sum(
            (p.grad * way).sum() for p, way in zip(module.parameters(), ways, strict=True) if p.grad is not None
        )
        sides = []
        with torch.no_grad():
            for step in (1e-6, -1e-6):
                for p, way in zip(module.parameters(), ways, strict=True):
                    p += step * way
                sides.append(loss())
                for p, way in zip(module.parameters(), ways, strict=True):
                    p -= step * way
        torch.testing.assert_close(slope, (sides[0] - sides[1]) / 2e-6, rtol=1e-4, atol=1e-5)

    check()


@each
def test_autocast_changes_little(name):
    module = made(name)
    with torch.no_grad():
        wanted = run(name, module)
        with torch.autocast("cpu", torch.bfloat16):
            found = run(name, module)
    same(found, wanted, 0.1)


# One compares the rows of a batch, one has none; the others' outputs have other axes: hidden words, sentences.
NO_ROWS = {"ContrastivePair", "ALiBi", "MaskedLanguageModel", "NextSentenceModel", "AttentionPooling"}


@pytest.mark.parametrize("name", [name for name in MODULES if name not in NO_ROWS])
def test_rows_of_a_batch_do_not_meet(name):
    module = made(name)

    @examples(8)
    @given(INPUTS)
    def check(inputs):
        with torch.no_grad():
            whole = run(name, module, inputs)
            for row in range(inputs.batch):
                alone = run(name, module, replace(inputs, row=row))
                same(alone, [x[row : row + 1] for x in whole], 1e-4)

    check()


READS_THE_SOURCE = [
    *("Transformer", "Seq2Seq", "DecoderLayer", "DecoderStack", "MultiHeadAttention, of others"),
    *(name for name in MODULES if name.endswith("Decoder")),
]
PADDED = [
    *("MultiHeadAttention, masked", "LatentAttention, masked", "EncoderLayer, masked", "EncoderStack"),
    *("LongformerAttention", "TransformerEncoder", "SegmentEncoder", "Encoder", "ContextEncoder", "ContextLayer"),
    *("GlobalContext", "HierarchicalContext", "DynamicContext", "AttentionPooling", "Classifier"),
]


@pytest.mark.parametrize("name", [*PADDED, *READS_THE_SOURCE])
def test_what_lies_in_the_padding_never_matters(name):
    module = made(name)

    @examples(10)
    @given(INPUTS)
    def check(inputs):
        with torch.no_grad():
            one, other = run(name, module, inputs), run(name, module, replace(inputs, filler=1))
        for found, wanted in zip(other, one, strict=True):
            if name in PADDED and found.shape[:2] == inputs.words.shape:
                found, wanted = found[inputs.words], wanted[inputs.words]
            same([found], [wanted], 1e-5)

    check()


READS_ON = ["Transformer", "Seq2Seq", "LanguageModel", "AttentionOnly", "DecoderLayer", "DecoderStack"]
READS_ON += [name for name in MODULES if name.endswith(("Decoder", ", causal"))]


@pytest.mark.parametrize("name", READS_ON)
def test_later_words_never_move_earlier_outputs(name):
    module = made(name)

    @examples(10)
    @given(INPUTS, st.data())
    def check(inputs, data):
        late = data.draw(st.integers(0, inputs.length - 1))
        with torch.no_grad():
            (one,), (other,) = run(name, module, inputs), run(name, module, replace(inputs, late=late))
        same([other[:, :late]], [one[:, :late]], 1e-5)
        assert not torch.equal(other[:, late:], one[:, late:])

    check()
