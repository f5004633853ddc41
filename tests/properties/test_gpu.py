"""On a GPU: values and gradients in every dtype, no waits, compiled code, and a decoding step as a CUDA graph.

The mechanisms and modules are those of the tables, so a new one is tested without further code. The same bodies run on
the CPU, where they test little that others do not, so that they are known to run: a GPU is seldom at hand.
"""

import copy
import functools
import itertools
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
import torch

import attn_core.cache
from attn_core import GatedDeltaNet, LatentAttention, MultiHeadAttention, masks
from attn_core.cache import BlockPool, BlockTables, Cache, KVCache, PackedKVCache, QuantisedBlockPool
from attn_core.decode import generate
from attn_core.positions import Rotary
from attn_core.serving import Engine, Request
from tests.mechanisms.launches import Launches
from tests.properties.draws import HALVES, Call
from tests.properties.mechanisms import MECHANISMS, run
from tests.properties.modules import MODULES, Inputs, outputs

WITH_CUDA = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")]
DTYPES = [torch.float32, *HALVES]


def on_both(names, once, *axes, also=()):
    """A test with these arguments, then ``device``: with few of them on the CPU, with all combinations on CUDA."""
    few = [(*chosen, "cpu") for chosen in itertools.product(*once)]
    combined = [*itertools.product(*axes), *(itertools.product(*also) if also else ())]
    many = [pytest.param(*chosen, "cuda", marks=WITH_CUDA) for chosen in combined]
    return pytest.mark.parametrize([*names, "device"], few + many)


SIZES = {  # T, S, D, and how many entries apart the entries of a row lie in memory
    "few": (8, 8, 16, 1),
    "many": (300, 300, 16, 1),
    "1000": (1000, 1000, 96, 1),
    "4097": (4097, 4097, 64, 1),
    "heads of 80": (70, 70, 80, 1),
    "heads of 256": (70, 70, 256, 1),
    "fewer queries": (37, 70, 16, 1),
    "more queries": (70, 37, 16, 1),
    "apart": (70, 70, 16, 2),
}
KINDS = {"full": (), "causal": ("causal",), "padding": ("mask",), "causal padding": ("causal", "mask")}


@contextmanager
def never_waiting(device):
    """An error where Python waits for the GPU; on the CPU, nothing."""
    if device == "cpu":
        yield
        return
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def a_call(name, kind, dtype, *, sizes="few"):
    """A call on the CPU: grouped heads, and padding at the end of one row."""
    mechanism, shared = MECHANISMS[name], MECHANISMS[name].draws.get("shared")
    queries, tokens, size, step = SIZES[sizes]
    torch.manual_seed(0)
    shapes = (4, queries), *[(4 if shared else 2, tokens)] * 2
    q, k, v = (torch.randn(2, *shape, step * size).to(dtype)[..., ::step] for shape in shapes)
    options = {"causal": "causal" in KINDS[kind]} if mechanism.draws.get("causal", True) else {}
    if "mask" in KINDS[kind]:
        options["mask"] = masks.padding(torch.tensor([tokens, tokens - 3]), tokens)
    return Call(q, q if shared else k, v, options, 1.0)


def moved(call, device):
    options = {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in call.options.items()}
    # A copy to a device keeps the strides of dense tensors alone, so each goes there within what it is a part of.
    tensors = (x if x._base is None else x._base for x in call.tensors)
    return call.on(
        *(x.to(device).as_strided(y.shape, y.stride()) for x, y in zip(tensors, call.tensors, strict=True)), **options
    )


def both_ways(made, call, toward):
    """The output, and the gradients of what the call was given."""
    inputs = [x.detach().requires_grad_() for x in (call.tensors[1:] if call.k is call.q else call.tensors)]
    out = run(made, call.on(inputs[0], *inputs[-2:]))
    return [out.detach(), *torch.autograd.grad(out, inputs, toward.to(out))]


def made_on(device, name, call):
    torch.manual_seed(0)  # random features
    made = MECHANISMS[name].make(call)
    return made.to(device) if isinstance(made, torch.nn.Module) else made


MOST_KEYS = {"Linformer": 8, "FlashAttention": 8, "AdditiveAttention": 1000}
"""In the table, the first is made for so many, and the second has tiny tiles; hidden layers would fill the memory."""


@on_both(
    ["sizes", "kind", "dtype"],
    (["few", "apart"], ["causal padding"], DTYPES),
    ["few", "many"],
    KINDS,
    DTYPES,
    also=(list(SIZES)[2:], ["causal padding"], [torch.float32, torch.bfloat16]),
)
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_mechanism_is_right_both_ways(name, sizes, kind, dtype, device):
    """The outputs are those of the table's loops, or for long rows, as the gradients, in float64."""
    queries, keys, *_ = SIZES[sizes]
    if keys > MOST_KEYS.get(name, keys) or (queries != keys and name == "LSHAttention"):
        pytest.skip("it is not made for these lengths")
    mechanism, call = MECHANISMS[name], a_call(name, kind, dtype, sizes=sizes)
    made = made_on("cpu", name, call)
    wide = copy.deepcopy(made).double() if isinstance(made, torch.nn.Module) else made
    toward = torch.randn(2, 4, queries, call.v.shape[3]).to(dtype)
    long = queries > 300
    where = device if long and name != "flash_attention" else "cpu"  # whose kernels have no float64
    wide = wide.to(where) if isinstance(wide, torch.nn.Module) else wide
    expected, *gradients = (x.cpu() for x in both_ways(wide, moved(call.to(torch.float64), where), toward.to(where)))
    if not long:
        expected = mechanism.expected(made, call)
    out, *found = both_ways(made_on(device, name, call), moved(call, device), toward)
    assert out.dtype == dtype and out.device.type == device
    # Among thousands of keys, another rounding may choose another bucket or block for a query.
    rare = 1e-3 if long and name.startswith(("LSH", "BlockSelection")) else 0.0
    assert ((out.cpu() - expected).abs() > 6 * mechanism.tolerance(call)).double().mean() <= rare
    for one, wanted in zip(found, gradients, strict=True):
        allowed = 10 * mechanism.tolerance(call) * wanted.abs().max().clamp(min=1.0)
        assert one.dtype == dtype and one.isfinite().all()
        assert ((one.cpu() - wanted).abs() > allowed).double().mean() <= rare


@on_both(["kind"], [["causal padding"]], KINDS)
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_mechanism_never_waits_and_gives_the_same_again(name, kind, device):
    call = moved(a_call(name, kind, torch.float32), device)
    made, toward = made_on(device, name, call), torch.ones(2, 4, 8, 16, device=device)
    wanted = both_ways(made, call, toward)  # kernels are compiled in the first call
    with never_waiting(device):
        found = both_ways(made, call, toward)
    exact = len(found) if name == "flash_attention" else 1  # PyTorch adds some gradients up in any order
    assert all(map(torch.equal, found[:exact], wanted[:exact]))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


# Modules. What they draw at random differs between devices; nothing is drawn outside of training.


def made_module(name, dtype, device):
    torch.manual_seed(0)
    return MODULES[name].make().eval().to(device, dtype)


def with_gradients(module, inputs, name, device):
    """The outputs, and the gradients of all parameters that have a part in them, as float64 on the CPU."""
    with torch.device(device):
        found = outputs(MODULES[name].call(module, inputs))
    # Other than a sum of squares, which layer normalisation keeps as it is, this depends on all parameters.
    if wanted := [x.masked_fill(x.isinf(), 0.0).flatten() for x in found if x.requires_grad]:
        together = torch.cat(wanted)
        (together * torch.arange(1, len(together) + 1, device=device).sin().to(together)).sum().backward()
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    return [x.detach().cpu().double() for x in (*found, *gradients)]


@on_both(["dtype"], [[torch.bfloat16]], DTYPES)
@pytest.mark.parametrize("name", [name for name in MODULES if name not in MECHANISMS])
def test_a_module_gives_what_it_gives_in_float64(name, dtype, device):
    inputs = Inputs(batch=2, length=5, seed=1, dtype=dtype)
    module = made_module(name, dtype, device)
    wide = copy.deepcopy(module).to("cpu", torch.float64)
    found = with_gradients(module, inputs, name, device)
    wanted = with_gradients(wide, replace(inputs, dtype=torch.float64), name, "cpu")
    found, wanted = (torch.cat([x.flatten() for x in both]) for both in (found, wanted))
    finite = wanted.isfinite()
    assert torch.equal(found.isfinite(), finite)
    # Most are right to 6 units of rounding. A unit of a ReLU that falls on the other side of its bend costs more.
    assert (found - wanted)[finite].norm() <= 64 * torch.finfo(dtype).eps * wanted[finite].norm()


NEED_NUMBERS = {  # they ask for lengths or marks, or choose the words that count
    *("LongformerAttention", "Encoder", "Seq2Seq", "AttentionPooling", "HierarchicalContext", "DynamicContext"),
    *("ContextEncoder", "MaskedLanguageModel", "NextSentenceModel", "ImageEncoder", "ContrastivePair"),
}


@pytest.mark.parametrize("name", [name for name in MODULES if name not in NEED_NUMBERS])
def test_a_module_makes_nothing_on_another_device(name, monkeypatch):
    """On the meta device, which refuses to meet a tensor of the CPU, and has no numbers to wait for."""
    monkeypatch.setattr(masks, "length_mask", lambda lengths, size: torch.arange(size) < lengths[..., None])
    module = made_module(name, torch.float32, "meta")
    inputs = Inputs(batch=2, length=5, seed=1)
    with torch.device("meta"):
        found = outputs(MODULES[name].call(module, inputs))
    assert found and all(x.is_meta for x in found)


# What a reader would compile: every mechanism that is a module, what stands around it, and whole models.
COMPILED = [
    *(name for name in MECHANISMS if name in MODULES),
    *("MultiHeadAttention, causal", "GatedDeltaNet", "LatentAttention, causal", "LatentAttention, absorbed, causal"),
    *("LongformerAttention", "ContextAttention", "EncoderStack, causal", "Transformer", "LanguageModel", "Seq2Seq"),
    "VisionTransformer",
]


# On the CPU, test_traced.py compiles every mechanism and model; here, one of each kind is also differentiated.
@on_both(["name"], [["SlidingWindow", "Transformer"]], COMPILED)
@pytest.mark.filterwarnings("ignore")  # of PyTorch's tracer, about its own ways
def test_compiled_it_gives_the_same_both_ways(name, device):
    """On the CPU without code generation, which needs a compiler of C++."""
    torch._dynamo.reset()
    inputs, module = Inputs(batch=2, length=5, seed=1), made_module(name, torch.float32, device)
    wanted = with_gradients(module, inputs, name, device)
    module.zero_grad()
    compiled = torch.compile(module, backend="aot_eager" if device == "cpu" else "inductor")
    found = with_gradients(compiled, inputs, name, device)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


# Caches: a layer's step, eager and as a graph.


class Packed:
    """What the engine does, for two sequences of equally many tokens: a cache for each call."""

    def __init__(self, kind, layer, options):
        self.tables, self.pool = BlockTables(8, 3), kind(8, 3, layer.num_kv_heads, layer.head_dim, **options)
        self.sequences = [self.tables.add_sequence() for _ in range(2)]

    def __call__(self, layer, x):
        count = x.shape[1]
        self.tables.append_all(dict.fromkeys(self.sequences, count))
        tokens = {s: range(self.tables.length(s) - count, self.tables.length(s)) for s in self.sequences}
        (cache,) = PackedKVCache.for_layers(self.tables, [self.pool], tokens)
        return layer(x.flatten(0, 1)[:, None], causal=True, cache=cache).view(x.shape)


LAYERS = {
    "LatentAttention": lambda: LatentAttention(16, 4, latent_dim=8, rotary_dim=2),
    "GatedDeltaNet": lambda: GatedDeltaNet(16, 4, conv_size=3),
}
CACHES = {
    "KVCache": lambda layer, options: KVCache(2, 2, 8, 4, **options),
    "LatentAttention": lambda layer, options: KVCache(2, 1, 8, 8 + 2, value_dim=0, **options),
    "GatedDeltaNet": lambda layer, options: layer.new_cache(2, 8),
    "PackedKVCache": functools.partial(Packed, BlockPool),
    "PackedKVCache in 8 bits": functools.partial(Packed, QuantisedBlockPool),
}
WAIT = {"PackedKVCache", "PackedKVCache in 8 bits"}
"""Their block tables are decided in Python, and copied to the device in each step."""


def layer_and_cache(kind, dtype, device):
    """A layer, and a cache of this kind with room for 8 tokens in each of 2 rows."""
    torch.manual_seed(0)
    layer = LAYERS.get(kind, lambda: MultiHeadAttention(16, 4, num_kv_heads=2, positions=Rotary(4)))()
    layer = layer.eval().to(device, dtype)
    return layer, CACHES[kind](layer, {"dtype": dtype, "device": device})


def step(layer, cache, x):
    return cache(layer, x) if isinstance(cache, Packed) else layer(x, causal=True, cache=cache)


def test_the_table_has_every_cache():
    named = {name for name, one in vars(attn_core.cache).items() if isinstance(one, type) and issubclass(one, Cache)}
    assert named - {"Cache", "RecurrentState"} <= CACHES.keys()  # the second is GatedDeltaNet's


@torch.no_grad()
@on_both(["dtype"], [[torch.bfloat16]], DTYPES)
@pytest.mark.parametrize("kind", CACHES)
def test_steps_give_what_the_whole_gives_and_never_wait(kind, dtype, device):
    layer, cache = layer_and_cache(kind, dtype, device)
    x = torch.randn(2, 6, 16).to(device, dtype)
    prompt, *steps = x.split([3, 1, 1, 1], dim=1)
    outs = [step(layer, cache, prompt), step(layer, cache, steps[0])]  # kernels are compiled in the first calls
    with nullcontext() if kind in WAIT else never_waiting(device):
        outs += [step(layer, cache, one) for one in steps[1:]]
    wanted = layer(x, causal=True)
    error = 0.05 if "8 bits" in kind else 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(torch.cat(outs, 1), wanted, rtol=error, atol=error)


@torch.no_grad()
@pytest.mark.parametrize("kind", [kind for kind in CACHES if kind not in WAIT])
def test_a_step_asks_for_no_numbers(kind):
    layer, cache = layer_and_cache(kind, torch.float32, "meta")
    step(layer, cache, torch.randn(2, 3, 16, device="meta"))
    with Launches("meta") as found:
        step(layer, cache, torch.randn(2, 1, 16, device="meta"))
    assert found.operators and not found.waits


def captured(work, back, device):
    """``work`` as a CUDA graph, called to replay it; ``back`` undoes what it has done. On the CPU, itself."""
    if device == "cuda":
        torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()) if device == "cuda" else nullcontext():
        work()  # what is compiled or made once, is so now
        back()
    if device == "cpu":
        return work
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = work()

    def replay():
        graph.replay()
        return out

    return replay


@torch.no_grad()
@on_both(["dtype"], [[torch.bfloat16]], DTYPES)
def test_a_captured_step_is_replayed_on_other_tokens(dtype, device):
    """A graph belongs to one length of the cache, whose slot and view are fixed in it."""
    layer, cache = layer_and_cache("KVCache", dtype, device)
    other = copy.deepcopy(cache)
    prompt, first, second = torch.randn(2, 5, 16).to(device, dtype).split([3, 1, 1], dim=1)
    for one in (cache, other):
        layer(prompt, causal=True, cache=one)
    held, x = cache.lengths.clone(), first.clone()
    replay = captured(lambda: layer(x, causal=True, cache=cache), lambda: cache.truncate(held), device)
    x.copy_(second)
    out = replay()
    torch.testing.assert_close(out, layer(second, causal=True, cache=other))
    assert torch.equal(cache.keys, other.keys) and torch.equal(cache.values, other.values)
    assert not torch.allclose(out, layer(first, causal=True, cache=layer_and_cache("KVCache", dtype, device)[1]))


# Whole models.


MODELS = "LanguageModel", "LanguageModel, of the Llama family", "Transformer", "Seq2Seq"


@on_both(["name", "precision"], (MODELS[1:2], ["autocast"]), MODELS, ["autocast", "parameters"])
def test_training_in_bfloat16_learns_one_batch(name, precision, device):
    """With bfloat16 in the products alone, or in all parameters."""
    whole = precision == "parameters"
    module, inputs = made_module(name, torch.bfloat16 if whole else torch.float32, device).train(), Inputs(4, 5, seed=1)
    optimiser, losses = torch.optim.Adam(module.parameters(), lr=0.02), []
    for _ in range(40):
        with torch.device(device), torch.autocast(device, torch.bfloat16, enabled=not whole):
            (logits,), wanted = outputs(MODULES[name].call(module, inputs)), inputs.target().roll(-1, 1)
            losses.append(torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), wanted.flatten()))
        optimiser.zero_grad()
        losses[-1].backward()
        optimiser.step()
    assert all(p.grad.isfinite().all() for p in module.parameters() if p.grad is not None)
    assert losses[-1] < 0.6 * losses[0]


@torch.no_grad()
@on_both(["pool"], [[BlockPool]], [BlockPool, QuantisedBlockPool])
def test_the_engine_gives_what_generate_gives(pool, device):
    """In float32. In 8 bits another token may be chosen, so there only their number is."""
    model = made_module("LanguageModel, of the Llama family", torch.float32, device)
    prompts = [[5, 6, 7], [8], [3, 4, 5, 6, 7, 8, 9, 10, 3, 4]]
    engine = Engine(model, num_blocks=12, block_size=4, pool=pool)
    served = [engine.add(Request(prompt, 6)) for prompt in prompts]
    engine.run()
    for completion, wanted in zip(served, generate(model, prompts, max_new_tokens=6), strict=True):
        assert completion.error is None and 1 <= len(completion.ids) <= 6
        if pool is BlockPool:
            assert completion.ids == wanted.ids
