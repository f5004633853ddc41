import math

import pytest
import torch
from torch import nn

from attn_core import AdditiveAttention, Dense, MultiHeadAttention, capture_attention, masks
from attn_core.mechanisms.dense import attention_with_weights
from attn_core.positions import ALiBi, Rotary
from tests import reference

LENGTHS = torch.tensor([7, 3, 5])


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def make(*args, seed=0, **options):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layer = MultiHeadAttention(*args, **options)
        for projection in (layer.query, layer.key, layer.value, layer.out):
            if projection.bias is not None:
                nn.init.normal_(projection.bias, std=0.3)
    return layer


def by_loops(layer, queries, keys, values, *, causal=False, mask=None):
    """Head by head in float64: slice each projection's weight, attend, and add up each head's share of the output."""
    layer = {
        name: (p.weight.detach().double(), p.bias.detach().double())
        for name, p in layer.named_children()
        if isinstance(p, nn.Linear)
    } | {"sizes": (layer.num_heads, layer.num_kv_heads, layer.head_dim)}
    heads, kv_heads, size = layer["sizes"]
    total = layer["out"][1].expand(*queries.shape[:2], -1).clone()
    for head in range(heads):
        own, shared = slice(head * size, (head + 1) * size), head // (heads // kv_heads)
        shared = slice(shared * size, (shared + 1) * size)
        parts = []
        for name, x, rows in (("query", queries, own), ("key", keys, shared), ("value", values, shared)):
            weight, bias = layer[name]
            parts.append((x.double() @ weight[rows].T + bias[rows])[:, None])
        one_mask = None if mask is None else mask.expand(-1, heads, -1, -1)[:, head : head + 1]
        out, _ = reference.attention(*parts, causal=causal, mask=one_mask)
        total += out[:, 0] @ layer["out"][0][:, own].T
    return total


@pytest.mark.parametrize("kv_heads", [6, 3, 2, 1])
@pytest.mark.parametrize("causal", [False, True])
def test_it_equals_heads_computed_one_by_one(kv_heads, causal):
    layer = make(12, 6, num_kv_heads=kv_heads)
    x = draw(3, 7, 12)
    mask = masks.padding(LENGTHS, 7)
    wanted = by_loops(layer, x, x, x, causal=causal, mask=mask)
    torch.testing.assert_close(layer(x, mask=mask, causal=causal).double(), wanted, atol=3e-6, rtol=0)


def test_cross_attention_takes_keys_and_values_of_other_sizes_and_lengths():
    layer = make(12, 3, key_dim=5, value_dim=4, head_dim=7)
    queries, keys, values = draw(2, 3, 12), draw(2, 6, 5, seed=1), draw(2, 6, 4, seed=2)
    wanted = by_loops(layer, queries, keys, values)
    torch.testing.assert_close(layer(queries, keys, values).double(), wanted, atol=3e-6, rtol=0)


def gradients(out, inputs, toward):
    return torch.autograd.grad(out, inputs, toward)


@pytest.mark.parametrize("mechanism", [Dense(dropout=0.5), AdditiveAttention(4, 5)])
def test_captured_weights_give_the_outputs(mechanism):
    layer = make(12, 3, num_kv_heads=1, mechanism=mechanism).eval()
    x = draw(2, 6, 12)
    with capture_attention(layer) as maps:
        out = layer(x, causal=True)
    ((name, (weights,)),) = maps.items()
    assert name == "" and weights.shape == (2, 3, 6, 6)
    assert not weights.triu(1).any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 6))
    mixed = weights @ layer.value(x)[:, None]
    torch.testing.assert_close(layer.out(mixed.transpose(1, 2).flatten(2)), out, atol=2e-6, rtol=0)
    torch.testing.assert_close(layer(x, causal=True), out, atol=2e-6, rtol=0)


def test_a_mechanism_without_weights_cannot_be_captured_and_says_so():
    layer = make(12, 3, mechanism=lambda q, k, v, **options: attention_with_weights(q, k, v, **options)[0])
    layer(draw(1, 2, 12))
    with capture_attention(layer), pytest.raises(ValueError, match="^mechanism: expected one that has weights"):
        layer(draw(1, 2, 12))


def test_autocast_runs_with_a_cache():
    layer = make(16, 4)
    x = draw(2, 6, 16)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        whole, cache = layer(x, causal=True), layer.new_cache(2, 6)
        parts = [layer(part, causal=True, cache=cache) for part in x.split(2, dim=1)]
    assert cache.keys.dtype == torch.bfloat16
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=2e-2, rtol=0)


# Positions and the cache


def relative(layer):
    return {"none": None, "rotary": Rotary(4), "alibi": ALiBi(6)}[layer]


def test_positions_add_to_a_given_bias():
    layer, x, bias = make(24, 6, positions=ALiBi(6)), draw(1, 5, 24), draw(5, 5, seed=2)
    plain = make(24, 6)
    place = torch.arange(5)
    slopes = torch.tensor([2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3])
    by_hand = bias - slopes[:, None, None] * (place[:, None] - place).abs()
    torch.testing.assert_close(layer(x, bias=bias), plain(x, bias=by_hand), atol=2e-6, rtol=0)


@torch.no_grad()
def test_a_mask_counts_the_cached_keys():
    layer, x = make(24, 6), draw(1, 5, 24)
    hidden = torch.tensor([True, False, True, True, True])
    cache = layer.new_cache(1, 5)
    layer(x[:, :3], causal=True, cache=cache)
    out = layer(x[:, 3:], causal=True, cache=cache, mask=hidden)
    torch.testing.assert_close(out, layer(x, causal=True, mask=hidden)[:, 3:], atol=1e-5, rtol=0)


# One projection for queries and keys


@pytest.mark.parametrize("positions", ["none", "rotary", "alibi"])
def test_shared_queries_and_keys_are_one_tensor_and_give_what_two_equal_projections_do(positions):
    seen = []

    def mechanism(q, k, v, **options):
        seen.append(q is k)
        return attention_with_weights(q, k, v, **options)[0]

    shared = make(24, 6, share_query_key=True, positions=relative(positions), mechanism=mechanism)
    apart = make(24, 6, positions=relative(positions))
    apart.load_state_dict(shared.state_dict())
    assert apart.key is not apart.query and torch.equal(apart.key.weight, shared.query.weight)
    assert sum(p.numel() for p in shared.parameters()) == 3 * (24 * 24 + 24)
    x, other, toward = (draw(3, 5, 24, seed=n).requires_grad_() for n in (0, 1, 2))
    for inputs in ((x,), (x, None, other), (x, other)):
        seen.clear()
        options = {"mask": masks.padding(torch.tensor([5, 3, 4]), 5), "causal": True}
        found, wanted = shared(*inputs, **options), apart(*inputs, **options)
        torch.testing.assert_close(found, wanted, atol=2e-6, rtol=0)
        assert seen == [inputs[1:] != (other,)]
        mine = gradients(found, [x, shared.query.weight, shared.out.weight], toward)
        theirs = gradients(wanted, [x, apart.query.weight, apart.key.weight, apart.out.weight], toward)
        torch.testing.assert_close(mine[1], theirs[1] + theirs[2], atol=2e-5, rtol=0)
        torch.testing.assert_close([mine[0], mine[2]], [theirs[0], theirs[3]], atol=2e-5, rtol=0)


@pytest.mark.parametrize("positions", ["none", "rotary", "alibi"])
@torch.no_grad()
def test_shared_queries_and_keys_are_projected_once_with_a_cache_and_captured(positions):
    layer, x, calls = make(24, 6, share_query_key=True, positions=relative(positions)), draw(3, 9, 24), []
    hook = layer.query.register_forward_hook(lambda *_: calls.append(1))
    cache = layer.new_cache(3, 9)
    parts = [layer(part, causal=True, cache=cache) for part in x.split([4, 1, 3, 1], dim=1)]
    assert len(calls) == 4
    hook.remove()
    with capture_attention(layer) as maps:
        whole = layer(x, causal=True)
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=0)
    weights = layer.attend_with_weights(x, *layer.project_kv(x), causal=True)[1]
    torch.testing.assert_close(maps[""][0], weights, atol=1e-6, rtol=0)


def test_weights_start_by_glorot_and_print_shows_the_heads():
    layer = MultiHeadAttention(64, 4, num_kv_heads=2)
    bound = math.sqrt(6 / (64 + 32))
    assert bound * 0.9 < layer.key.weight.abs().max() <= bound and not layer.key.bias.any()
    assert "num_heads=4, num_kv_heads=2, head_dim=16" in repr(layer)


def test_norms_of_queries_and_keys_and_a_gate_are_what_their_equations_say():
    layer = make(16, 4, num_kv_heads=2, query_key_norm=nn.RMSNorm, gate=True, positions=Rotary(4)).double()
    with torch.no_grad():
        layer.query_norm.weight.copy_(draw(4).double())
    x = draw(2, 5, 16, seed=3).double()
    found = layer(x, causal=True)
    rms = lambda h: h / (h.square().mean(-1, keepdim=True) + torch.finfo(h.dtype).eps).sqrt()  # noqa: E731
    heads = lambda projection: projection(x).unflatten(-1, (-1, 4)).transpose(1, 2)  # noqa: E731
    places = torch.arange(5)
    q = Rotary(4).rotate(rms(heads(layer.query)) * layer.query_norm.weight, places)
    k = Rotary(4).rotate(rms(heads(layer.key)), places)
    out, _ = reference.attention(q, k, heads(layer.value), causal=True)
    expected = layer.out(out.transpose(1, 2).flatten(2) * torch.sigmoid(layer.gate(x)))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("shared", [False, True])
def test_with_norms_and_a_gate_a_cache_gives_the_outputs_of_one_pass(shared):
    keys = {"share_query_key": True} if shared else {"num_kv_heads": 2}
    layer = make(16, 4, **keys, query_key_norm=nn.LayerNorm, gate=True, positions=Rotary(4)).requires_grad_(False)
    x, cache = draw(2, 7, 16), layer.new_cache(2, 8)
    parts = [layer(part, causal=True, cache=cache) for part in x.split([3, 1, 3], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), layer(x, causal=True))


class Float32Norm(torch.nn.RMSNorm):
    """What autocast makes of a norm on CUDA."""

    def forward(self, x):
        return super().forward(x.float())


def test_norms_of_queries_and_keys_may_return_float32_under_autocast():
    layer, x = MultiHeadAttention(8, 2, query_key_norm=Float32Norm), torch.randn(2, 3, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
