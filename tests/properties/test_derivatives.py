"""What mechanisms and layers do beyond a first gradient: the right value, or an error in words, never a wrong value."""

import functools

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint

from attn_core import LongformerAttention, attention, masks
from attn_core.ring import ring_attention
from tests.properties.draws import Call
from tests.properties.mechanisms import MECHANISMS
from tests.properties.modules import MODULES, Inputs

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # of torch.func.jvp itself
each = pytest.mark.parametrize("name", [*MECHANISMS, "ring_attention"])


def refuses(name):
    return name == "ring_attention" or MECHANISMS[name].derivatives == "first"


def prepared(name, **options):
    """A function of independent tensors, and tensors for it, in float64."""
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 5, 4, generator=draw, dtype=torch.float64) for _ in range(3))
    if name == "ring_attention":
        return functools.partial(ring_attention, **options), [q, k, v]
    made = MECHANISMS[name].make(Call(q, k, v, {}, 1.0))
    if MECHANISMS[name].draws.get("shared"):
        return lambda q, v: made(q, q, v, **options), [q, v]
    return functools.partial(made, **options), [q, k, v]


@each
@pytest.mark.parametrize("loss", [torch.sum, lambda out: out.square().sum()], ids=["linear", "square"])
def test_a_second_derivative_is_right_or_refused(name, loss):
    """Also where the incoming gradient of the output is a constant, as for a linear loss, or below frozen layers."""
    function, inputs = prepared(name)
    inputs = [x.requires_grad_() for x in inputs]

    def gradients(*tensors):
        return torch.autograd.grad(loss(function(*tensors)), tensors, create_graph=True)

    if refuses(name) or MECHANISMS[name].derivatives == "fused":
        words = "expected no second derivative" if refuses(name) else "not implemented"
        for x in inputs:
            with pytest.raises(RuntimeError, match=words):  # asked of each input alone
                torch.autograd.grad(sum(g.square().sum() for g in gradients(*inputs)), x)
    else:
        assert torch.autograd.gradcheck(gradients, inputs, fast_mode=True)


@each
def test_a_first_gradient_may_keep_its_graph(name):
    function, inputs = prepared(name)
    inputs = [x.requires_grad_() for x in inputs]
    kept = torch.autograd.grad(function(*inputs).sum(), inputs, create_graph=True)
    wanted = torch.autograd.grad(checkpoint(function, *inputs, use_reentrant=False).sum(), inputs)
    checked = torch.autograd.grad(checkpoint(function, *inputs, use_reentrant=False).sum(), inputs, create_graph=True)
    for one, other, third in zip(kept, wanted, checked, strict=True):
        assert torch.equal(one, other) and torch.equal(third, other) and not other.requires_grad


def transforms(function, inputs):
    """By name: a derivative or a batch under ``torch.func`` or in forward mode, and what it must be."""
    tangents = [x.roll(1, -1) for x in inputs]
    plain = [x.clone().requires_grad_() for x in inputs]
    out = function(*plain)
    found = torch.autograd.grad(out.square().sum(), plain)
    step = 1e-5
    ahead, behind = (function(*(x + s * t for x, t in zip(inputs, tangents, strict=True))) for s in (step, -step))
    slope = (ahead - behind) / (2 * step)

    def squares(*tensors):
        return function(*tensors).square().sum()

    def dual():
        with forward_ad.dual_level():
            duals = (forward_ad.make_dual(x, t) for x, t in zip(inputs, tangents, strict=True))
            return forward_ad.unpack_dual(function(*duals)).tangent

    numbers, twice = tuple(range(len(inputs))), [torch.stack([x, x]) for x in inputs]
    yield "grad", lambda: grad(squares, numbers)(*inputs), found
    yield "vjp", lambda: vjp(function, *inputs)[1](2 * out.detach()), found
    yield "jacrev", lambda: jacrev(squares, numbers)(*inputs), found
    yield "per sample", lambda: [x[1] for x in vmap(grad(squares, numbers))(*twice)], found
    yield "jvp", lambda: jvp(function, tuple(inputs), tuple(tangents))[1], slope
    yield "forward mode", dual, slope
    for number in numbers:  # one argument of several rows, the others the same for all
        where = tuple(0 if n == number else None for n in numbers)
        mixed = [y if n == number else x for n, (x, y) in enumerate(zip(inputs, twice, strict=True))]
        yield f"vmap {number}", lambda m=mixed, w=where: vmap(function, w)(*m)[1], out


@each
@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "bias"])
def test_transforms_are_right_or_refused(name, kind):
    draws = {} if name == "ring_attention" else MECHANISMS[name].draws
    if kind in ("mask", "bias") and name == "ring_attention" or draws.get(kind) is False:
        return
    options = {
        "plain": {},
        "causal": {"causal": True},
        "mask": {"mask": masks.padding(torch.tensor([3, 0]), 5)},
        "bias": {"bias": torch.linspace(-1, 1, 5, dtype=torch.float64)},
    }[kind]
    function, inputs = prepared(name, **options)
    for transform, run, wanted in transforms(function, inputs):
        if refuses(name):
            with pytest.raises(ValueError, match=r"^\w+: expected a plain call, got one under torch.func"):
                run()
        else:
            torch.testing.assert_close(run(), wanted, rtol=1e-6, atol=1e-7, msg=lambda m, t=transform: f"{t}: {m}")


def test_a_batch_of_incoming_gradients_is_refused():
    function, inputs = prepared("flash_attention")
    inputs = [x.requires_grad_() for x in inputs]
    out = function(*inputs)
    with pytest.raises(ValueError, match="^flash_attention: .* torch.func"):
        vmap(lambda toward: torch.autograd.grad(out, inputs, toward))(torch.stack([out.detach()] * 2))


def test_a_tangent_elsewhere_is_no_matter():
    function, inputs = prepared("flash_attention")
    with forward_ad.dual_level():
        assert torch.allclose(function(*inputs), attention(*inputs))


LAYERS = ["MultiHeadAttention", "MultiHeadAttention, masked", "MultiHeadAttention, causal", "GatedDeltaNet"]
LAYERS += ["LatentAttention, masked", "LatentAttention, causal", "LatentAttention, absorbed, causal", "LanguageModel"]


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_has_derivatives_by_its_parameters(name):
    module, x = MODULES[name].make().double(), Inputs(2, 4, 3, dtype=torch.float64)
    parameters = dict(module.named_parameters())
    holder = torch.nn.Module()
    holder.inner, holder.forward = module, lambda: MODULES[name].call(module, x).square().sum()

    def loss(given):
        return functional_call(holder, {f"inner.{n}": p for n, p in given.items()}, ())

    wanted = dict(zip(parameters, torch.autograd.grad(holder(), parameters.values()), strict=True))
    plain = {n: p.detach() for n, p in parameters.items()}
    torch.testing.assert_close(grad(loss)(plain), wanted)
    along = jvp(loss, (plain,), ({n: torch.ones_like(p) for n, p in plain.items()},))[1]
    torch.testing.assert_close(along, sum(g.sum() for g in wanted.values()))
    twice = vmap(loss, randomness="same")({n: torch.stack([p, p]) for n, p in plain.items()})
    torch.testing.assert_close(twice[1], holder())


def test_longformer_refuses_both_in_words():
    layer, x = LongformerAttention(4, 2, 1), torch.randn(2, 3, 5, 4)
    marked = torch.zeros(2, 3, 5, dtype=torch.bool)
    with pytest.raises(ValueError, match="^LongformerAttention: .* torch.func"):
        vmap(layer)(x, marked)
    row = x[0].requires_grad_()
    (first,) = torch.autograd.grad(layer(row).sum(), row, create_graph=True)
    with pytest.raises(RuntimeError, match="expected no second derivative"):
        first.square().sum().backward()
