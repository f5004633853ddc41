"""Linear attention and its family: chunks beside loops, states, decays, delta rule; values: ``tests/properties``."""

import pytest
import torch
from torch.nn import functional

from attn_core import linear_attention
from attn_core.mechanisms import linear
from tests import reference

FAMILY = {
    "linear attention": (None, False),
    "a decay a head": ("head", False),
    "a decay an entry": ("entry", False),
    "the delta rule": (None, True),
    "a decay and the delta rule": ("head", True),
    "a decay an entry and the delta rule": ("entry", True),
}
family = pytest.mark.parametrize(("decay", "delta"), FAMILY.values(), ids=FAMILY)


def token_by_token(q, k, v, *, log_decay=None, beta=None, state=None, scale=None):
    """What ``linear_attention`` computes, one step after the other."""
    outs, scale = [], q.shape[-1] ** -0.5 if scale is None else scale
    state = k.new_zeros(*k.shape[:2], k.shape[3], v.shape[3]) if state is None else state
    for t in range(k.shape[2]):
        key, value = k[:, :, t], v[:, :, t]
        if log_decay is not None:
            state = state * log_decay[:, :, t].view(*k.shape[:2], -1, 1).exp()
        if beta is not None:  # the delta rule writes what the state lacks of the value
            value = beta[:, :, t, None] * (value - (key[..., None, :] @ state)[..., 0, :])
        state = state + key[..., :, None] * value[..., None, :]
        outs.append((q[:, :, t].unflatten(1, (k.shape[1], -1)) @ state).flatten(1, 2) * scale)
    return torch.stack(outs, 2), state


def draw(tokens, decay, delta, *, dtype=torch.float64, most=3.0):
    """Tensors for 4 query heads on 2 key-value heads, and options."""
    torch.manual_seed(tokens)
    q, k, v = (torch.randn(2, n, tokens, d, dtype=dtype) for n, d in ((4, 8), (2, 8), (2, 6)))
    options = {"state": torch.randn(2, 2, 8, 6, dtype=dtype)}
    if decay:
        shape = (2, 2, tokens) if decay == "head" else (2, 2, tokens, 8)
        options["log_decay"] = -most * torch.rand(shape, dtype=dtype)
    if delta:
        options["beta"] = torch.rand(2, 2, tokens, dtype=dtype)
    return [q, functional.normalize(k, dim=-1), v], options


def with_gradients(function, tensors, options):
    """The output, the last state, and the gradients of all inputs."""
    tensors = [x.clone().requires_grad_() for x in tensors]
    options = {name: x.clone().requires_grad_() for name, x in options.items()}
    out, state = function(*tensors, **options)
    torch.manual_seed(0)
    loss = (out * torch.randn_like(out)).sum() + (state * torch.randn_like(state)).sum()
    return out, state, *torch.autograd.grad(loss, [*tensors, *options.values()])


@family
@pytest.mark.parametrize("tokens", [1, 15, 16, 64, 65, 200])
def test_chunks_give_what_tokens_one_by_one_give(tokens, decay, delta):
    tensors, options = draw(tokens, decay, delta)
    for one, other in zip(
        *(with_gradients(f, tensors, options) for f in (linear_attention, token_by_token)), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("reset", [-1e4, -1e30, -float("inf")])
@pytest.mark.parametrize(("decay", "delta"), [one for one in FAMILY.values() if one[0]])
def test_a_decay_that_erases_everything_leaves_the_decays_beside_it(decay, delta, reset):
    tensors, options = draw(100, decay, delta, dtype=torch.float32, most=0.5)
    options["log_decay"][:, :, [10, 70]] = reset
    for one, other in zip(linear_attention(*tensors, **options), token_by_token(*tensors, **options), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@family
def test_the_states_are_those_of_the_matrices_of_the_papers(decay, delta):
    (q, k, v), options = draw(9, decay, delta)
    states = reference.linear_states(k, v, **options)
    wanted = [x[:, :, t].unflatten(1, (2, 2)) @ states[t] / 8**0.5 for x in (q,) for t in range(9)]
    out, last = token_by_token(q, k, v, **options)
    torch.testing.assert_close(out, torch.stack([x.flatten(1, 2) for x in wanted], 2))
    torch.testing.assert_close(last, states[-1])


@family
@pytest.mark.parametrize("cut", [0, 1, 64, 70, 100])
def test_a_text_may_be_read_in_parts(cut, decay, delta):
    tensors, options = draw(100, decay, delta)
    whole, last = linear_attention(*tensors, **options)
    state, outs = options.pop("state"), []
    for part in (slice(cut), slice(cut, None)):
        tensors_, options_ = [x[:, :, part] for x in tensors], {name: x[:, :, part] for name, x in options.items()}
        out, state = linear_attention(*tensors_, state=state, **options_)
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs, 2), whole)
    torch.testing.assert_close(state, last)


def test_a_decay_a_head_is_a_masked_product():
    """The duality of state-space models: the mask holds the products of the decays between two tokens."""
    (q, k, v), options = draw(70, "head", delta=False)
    out, _ = linear_attention(q, k, v, log_decay=options["log_decay"])
    grown = options["log_decay"].cumsum(-1)
    mask = (grown[..., :, None] - grown[..., None, :]).exp().tril().repeat_interleave(2, 1)
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    torch.testing.assert_close(out, ((q @ k.mT) * mask / 8**0.5) @ v)


@family
def test_what_decays_at_once_leaves_finite_numbers(decay, delta):
    tensors, options = draw(130, decay, delta, dtype=torch.float32, most=2000.0)
    for x in with_gradients(linear_attention, tensors, options):
        assert x.isfinite().all()


def test_the_delta_rule_replaces_what_a_key_held():
    k = functional.normalize(torch.tensor([[[[1.0, 2.0], [1.0, 2.0]]]]), dim=-1)
    v = torch.tensor([[[[3.0], [7.0]]]])
    ones = torch.ones(1, 1, 2)
    torch.testing.assert_close(linear_attention(k, k, v, beta=ones, scale=1.0)[0], v)
    added = linear_attention(k, k, v, scale=1.0)[0]
    torch.testing.assert_close(added[0, 0, 1], torch.tensor([10.0]))


@family
def test_half_precision_keeps_its_sums_in_float32(decay, delta):
    tensors, options = draw(100, decay, delta, dtype=torch.float32)
    wide, last = linear_attention(*tensors, **options)
    half = [x.bfloat16() for x in tensors]
    out, state = linear_attention(*half, **options)
    assert out.dtype == torch.bfloat16 and state.dtype == torch.float32
    torch.testing.assert_close(out.float(), wide, rtol=0.05, atol=0.1)
    torch.testing.assert_close(state, last, rtol=0.05, atol=0.1)


def test_no_token_leaves_the_state():
    (q, k, v), options = draw(3, "head", delta=True)
    out, state = linear_attention(q[:, :, :0], k[:, :, :0], v[:, :, :0], state=options["state"])
    assert out.shape == (2, 4, 0, 6) and torch.equal(state, options["state"])


@pytest.mark.parametrize(
    ("name", "shape"),
    [("log_decay", (2, 2, 4)), ("log_decay", (2, 4, 3)), ("beta", (2, 2, 3, 8)), ("state", (2, 2, 8, 8))],
)
def test_what_does_not_fit_is_named(name, shape):
    (q, k, v), _ = draw(3, None, delta=False)
    with pytest.raises(ValueError, match=f"^{name}: expected a floating tensor "):
        linear_attention(q, k, v, **{name: torch.zeros(shape, dtype=torch.float64)})


def test_queries_and_keys_are_as_many():
    (q, k, v), _ = draw(3, None, delta=False)
    with pytest.raises(ValueError, match="^q: expected 3 tokens, as k has"):
        linear_attention(q[:, :, :2], k, v)


def test_features_are_positive():
    x = torch.tensor([-60.0, -1.0, 0.0, 1.0])
    assert (linear.features(x) > 0).all()
    torch.testing.assert_close(linear.features(x), functional.elu(x) + 1)
