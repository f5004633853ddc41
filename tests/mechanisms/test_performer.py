import math

import pytest
import torch

from attn_core import attention, device, masks
from attn_core.mechanisms import performer
from attn_core.mechanisms.performer import Performer, orthogonal_normal
from tests import reference
from tests.mechanisms.test_window import Largest

SHAPES = {  # B, H, G, T, S, D, Dv
    "plain": (2, 4, 4, 5, 5, 8, 8),
    "grouped": (2, 6, 2, 9, 9, 8, 8),
    "multi-query": (2, 4, 1, 3, 13, 8, 3),
    "more queries than keys": (2, 2, 2, 8, 5, 8, 8),
}
KINDS = ["nothing", "causal", "padding", "causal padding", "scale", "negative scale", "a mask of one axis"]


def inputs(name, dtype=torch.float32, scale=1.0):
    batch, heads, groups, queries, keys, size, value_size = SHAPES[name]
    torch.manual_seed(7)
    q = scale * torch.randn(batch, heads, queries, size)
    k = scale * torch.randn(batch, groups, keys, size)
    v = torch.randn(batch, groups, keys, value_size)
    return [x.to(dtype).requires_grad_() for x in (q, k, v)]


def options(name, kind):
    batch, keys = SHAPES[name][0], SHAPES[name][4]
    scattered = torch.rand(keys, generator=torch.Generator().manual_seed(1)) > 0.4
    padding = masks.padding(torch.tensor([max(keys - 2, 1), 0][:batch]), keys)
    return {
        "nothing": {},
        "causal": {"causal": True},
        "padding": {"mask": padding},
        "causal padding": {"mask": padding.flip(-1), "causal": True},
        "scale": {"scale": 1.5, "causal": True},
        "negative scale": {"scale": -0.2},
        "a mask of one axis": {"mask": scattered, "causal": True},
    }[kind]


@pytest.fixture(params=[("cpu",), ()])
def small_chunks(request, monkeypatch):
    """Small chunks as on a CPU, and keys and queries all at once."""
    monkeypatch.setattr(device, "TILED", request.param)
    monkeypatch.setattr(performer, "CHUNK", 3)
    monkeypatch.setattr(performer, "CAUSAL_CHUNK", 4)
    monkeypatch.setattr(performer, "PAIRED", 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SHAPES)
def test_both_paths_equal_the_loop_over_features(name, kind, small_chunks):
    q, k, v = inputs(name)
    mechanism = Performer(q.shape[3], 12)
    expected = reference.performer(mechanism.projection, q, k, v, **options(name, kind))
    explicit, weights = mechanism.with_weights(q, k, v, **options(name, kind))
    for out in (explicit, mechanism(q, k, v, **options(name, kind))):
        assert out.shape == expected.shape
        assert (out - expected).abs().max() < 2 * reference.tolerance(torch.float32)
    sums = weights.sum(-1)
    assert ((sums - 1).abs().minimum(sums.abs()) < 1e-5).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["grouped", "multi-query", "more queries than keys"])
def test_gradients_equal_those_of_the_explicit_path(name, kind, small_chunks):
    fast_inputs, plain_inputs = inputs(name), inputs(name, torch.float64)
    mechanism = Performer(8, 12)
    fast = mechanism(*fast_inputs, **options(name, kind))
    plain, _ = mechanism.with_weights(*plain_inputs, **options(name, kind))
    direction = torch.randn_like(fast)
    fast.backward(direction)
    plain.backward(direction.double())
    for ours, theirs in zip(fast_inputs, plain_inputs, strict=True):
        assert torch.isfinite(ours.grad).all()
        assert (ours.grad - theirs.grad).abs().max() < 10 * reference.tolerance(torch.float32)


# The estimator.


@pytest.mark.parametrize("orthogonal", [True, False])
def test_the_estimate_of_the_exponential_is_right_on_average(orthogonal):
    torch.manual_seed(0)
    q = torch.tensor([0.6, 0.2, -0.3, 0.0])
    k = torch.tensor([0.4, 0.4, 0.2, -0.1])
    # Of exp(q·(−q)) every feature says exactly exp(−|q|²): beside this key, the other one's weight tells its estimate.
    keys = torch.stack([k, -q])[None, None].double()
    mechanism = Performer(4, 32, orthogonal=orthogonal)
    found = []
    for _ in range(2000):
        mechanism.redraw()
        _, weights = mechanism.with_weights(q[None, None, None].double(), keys, keys, scale=1.0)
        found.append(weights[0, 0, 0, 0] / weights[0, 0, 0, 1] * torch.exp(-q @ q))
    found = torch.stack(found)
    error = (found.mean() - torch.exp(q @ k)).abs()
    assert found.std() / math.sqrt(len(found)) < 0.01
    assert error < 4 * found.std() / math.sqrt(len(found))


def relative_errors(scale, features, *, orthogonal=True, draws=4):
    """Of the output, against softmax attention; and that of uniform weights."""
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 4, 128, 64, generator=draw) for _ in range(3))
    q, k = scale * q, scale * k
    exact = attention(q, k, v)
    mechanism, found = Performer(64, features, orthogonal=orthogonal), []
    for _ in range(draws):
        mechanism.redraw(draw)
        found.append((mechanism(q, k, v) - exact).norm() / exact.norm())
    return torch.stack(found).mean(), (v.mean(2, keepdim=True) - exact).norm() / exact.norm()


def test_more_features_err_less_and_less_than_uniform_weights():
    errors, uniform = zip(*(relative_errors(0.5, features) for features in (64, 256, 1024, 4096)), strict=True)
    # Four times the features, half the error.
    assert all(0.35 < more / fewer < 0.7 for fewer, more in zip(errors, errors[1:], strict=False))
    assert errors[-1] < 0.5 * uniform[-1]


def test_at_unit_variance_it_is_no_better_than_uniform_weights():
    # What the docstring admits, and what a small number added to the features would hide.
    error, uniform = relative_errors(1.0, 256)
    assert error > uniform


def test_orthogonal_features_err_less():
    orthogonal, independent = (relative_errors(0.25, 64, orthogonal=x, draws=12)[0] for x in (True, False))
    assert orthogonal < 0.95 * independent


# Its features.


def test_blocks_are_orthogonal_and_their_rows_standard_normal():
    draw = torch.Generator().manual_seed(0)
    rows = orthogonal_normal(20, 8, generator=draw)
    directions = rows / rows.norm(dim=1, keepdim=True)
    for block in directions.split(8):
        assert (block @ block.T - torch.eye(len(block))).abs().max() < 1e-5
    assert (directions[:8] @ directions[8:16].T).abs().max() > 0.1
    many = orthogonal_normal(40_000, 4, generator=draw)
    for row in range(4):  # each row of a block, not only all together
        assert (many[row::4].mean(0).abs() < 5 / math.sqrt(10_000)).all()
        assert (many[row::4].T.cov() - torch.eye(4)).abs().max() < 0.08
        assert many[row::4].pow(4).mean().item() == pytest.approx(3, rel=0.08)


def test_features_are_a_buffer_that_is_saved_and_redrawn():
    mechanism = Performer(8, 20)
    products = mechanism.projection[:8] @ mechanism.projection[:8].T
    assert (products - products.diagonal().diag()).abs().max() < 1e-4  # orthogonal, if nothing else is asked for
    assert not list(mechanism.parameters())
    other = Performer(8, 20)
    assert not torch.equal(mechanism.projection, other.projection)
    other.load_state_dict(mechanism.state_dict())
    assert torch.equal(mechanism.projection, other.projection)
    mechanism.redraw(torch.Generator().manual_seed(3))
    assert not torch.equal(mechanism.projection, other.projection)
    other.redraw(torch.Generator().manual_seed(3))
    assert torch.equal(mechanism.projection, other.projection)
    assert "features=20" in repr(mechanism)


# The future, and stabilisers.


@pytest.mark.parametrize("size", [1, 8, 40])
@pytest.mark.parametrize("later", ["zeros", "along a feature", "huge"])
def test_later_keys_change_nothing_before_them(later, size):
    # Large keys have features near 0, and the largest possible feature is that of a key equal to a row: beside it
    # all that came before vanishes. A stabiliser that knows of it leaves 0/0, or an average, to earlier queries.
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 150, 16) for _ in range(3))
    q, k = size * q, size * k
    mechanism = Performer(16, 64)
    for start in (5, 140):
        changed_k, changed_v = k.clone(), v.clone()
        changed_k[:, :, start:] = {
            "zeros": torch.zeros(16),
            "along a feature": 2 * mechanism.projection[3],
            "huge": 1e4 * torch.ones(16),
        }[later]
        changed_v[:, :, start:] = 1e6
        out, other = mechanism(q, k, v, causal=True), mechanism(q, changed_k, changed_v, causal=True)
        exact, _ = mechanism.with_weights(*(x.double() for x in (q, k, v)), causal=True)
        assert (out - other)[:, :, :start].abs().max() < 5e-6 * size**2
        assert (other - exact)[:, :, :start].abs().max() < 5e-6 * size**2
        assert later == "huge" or (out - other)[:, :, start:].abs().max() > 1e3
        alone = mechanism(q[:, :, :start], k[:, :, :start], v[:, :, :start], causal=True)
        assert (alone - out[:, :, :start]).abs().max() < 5e-6 * size**2


def test_a_query_at_a_hidden_key_keeps_what_it_saw_before_much_larger_features():
    # Query 10 sees nothing of its chunk, 10 to 19, whose features dwarf all that came before it.
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 20, 8) for _ in range(3))
    k[:, :, :11] *= 30
    k[:, :, 11:] *= 0.01
    mask = masks.padding(torch.tensor([20, 20]), 20)
    mask[..., 8:11] = False
    mechanism = Performer(8, 16)
    out = mechanism(q, k, v, mask=mask, causal=True)
    exact, _ = mechanism.with_weights(*(x.double() for x in (q, k, v)), mask=mask, causal=True)
    assert (out - exact).abs().max() < reference.tolerance(torch.float32, scale=30)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [4.0, 30.0])
def test_large_inputs_are_neither_averaged_nor_lost(size, causal, small_chunks):
    q, k, v = inputs("grouped", scale=size)
    mechanism = Performer(8, 32)
    out = mechanism(q, k, v, causal=causal)
    exact, weights = mechanism.with_weights(*(x.detach().double() for x in (q, k, v)), causal=causal)
    assert weights[:, :, -1].amax(-1).mean() > 0.8
    assert (out - exact).abs().max() < 2 * reference.tolerance(torch.float32, scale=size)
    out.square().sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in (q, k, v))


@pytest.mark.parametrize("causal", [False, True])
def test_no_tensor_is_larger_than_the_inputs_or_a_chunk(causal):
    q = torch.randn(1, 1, 6000, 16)
    with Largest() as largest:
        Performer(16, 64)(q, q, q, causal=causal)
    assert largest.most < 1.2 * q.numel()
