"""Gated DeltaNet as a layer: against a loop, in pieces, in rows of any length, and in turn with full attention."""

from itertools import cycle

import pytest
import torch
from torch.nn import functional

from attn_core import GatedDeltaNet, MultiHeadAttention
from attn_core.cache import KVCache, rollback_on_error
from attn_core.decode import generate
from attn_core.transformer import LanguageModel, TransformerConfig


def made(**options):
    torch.manual_seed(0)
    return GatedDeltaNet(16, 4, **options).double()


def vectors(tokens=12, batch=2):
    torch.manual_seed(1)
    return torch.randn(batch, tokens, 16, dtype=torch.float64)


def by_loop(layer, x):
    """Head by head and token by token, as the paper writes it."""
    inputs = layer.query_key_value(x)
    size, rows = layer.head_dim, []
    for sequence, vector in zip(inputs, x, strict=True):
        state, outs = torch.zeros(layer.num_heads, size, size).double(), []
        for t in range(len(sequence)):
            past = [sequence[s] if s >= 0 else 0 * sequence[0] for s in range(t - layer.conv_size + 1, t + 1)]
            mixed = functional.silu((torch.stack(past, 1) * layer.conv.weight[:, 0]).sum(1))
            q, k, v = mixed.view(3, layer.num_heads, size)
            q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
            decay = (-layer.log_speed.exp() * functional.softplus(layer.step(vector[t]))).exp()
            rate = layer.rate(vector[t]).sigmoid()[:, None, None]
            erase = torch.eye(size) - rate * k[:, :, None] * k[:, None]
            state = decay[:, None, None] * (erase @ state) + rate * k[:, :, None] * v[:, None]
            read = (q[:, None] @ state)[:, 0] / size**0.5
            read = read / (read.square().mean(-1, keepdim=True) + 1e-6).sqrt() * layer.norm.weight
            outs.append(layer.out((read * functional.silu(layer.gate(vector[t])).view_as(read)).flatten()))
        rows.append(torch.stack(outs))
    return torch.stack(rows)


@pytest.mark.parametrize("options", [{}, {"conv_size": 1}])
def test_it_computes_what_a_loop_does(options):
    layer, x = made(**options), vectors().requires_grad_()
    ours, wanted = layer(x, causal=True), by_loop(layer, x)
    torch.testing.assert_close(ours, wanted)
    inputs = [x, *layer.parameters()]
    for one, other in zip(*(torch.autograd.grad(y.square().sum(), inputs) for y in (ours, wanted)), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("sizes", [[1] * 12, [5, 1, 6], [2, 10], [12]])
def test_pieces_give_what_the_whole_gives(sizes):
    layer, x = made(), vectors()
    cache = layer.new_cache(2, 0)
    outs = [layer(piece, causal=True, cache=cache) for piece in x.split(sizes, 1)]
    torch.testing.assert_close(torch.cat(outs, 1), layer(x, causal=True))
    assert cache.lengths.tolist() == [12, 12]


def test_rows_have_lengths_of_their_own():
    layer, x = made(), vectors()
    cache, lengths = layer.new_cache(2, 0), torch.tensor([7, 2])
    layer(x[:, :9], causal=True, cache=cache, lengths=lengths)
    follow = torch.stack([x[0, 7:10], x[1, 2:5]])
    out = layer(follow, causal=True, cache=cache)
    whole = layer(x, causal=True)
    torch.testing.assert_close(out, torch.stack([whole[0, 7:10], whole[1, 2:5]]))
    assert cache.lengths.tolist() == [10, 5]


def test_a_call_that_fails_leaves_the_state():
    layer, x = made(), vectors()
    cache = layer.new_cache(2, 0)
    layer(x[:, :5], causal=True, cache=cache)
    with pytest.raises(RuntimeError, match="stop"), rollback_on_error([cache]):
        layer(x[:, 5:8], causal=True, cache=cache)
        raise RuntimeError("stop")
    torch.testing.assert_close(layer(x[:, 5:], causal=True, cache=cache), layer(x, causal=True)[:, 5:])


def hybrid(layers=4):
    """Three layers of Gated DeltaNet, then one of full attention."""
    turn = cycle([GatedDeltaNet, GatedDeltaNet, GatedDeltaNet, MultiHeadAttention])

    def attention(model_dim, num_heads, **given):
        kind = next(turn)
        return kind(model_dim, num_heads, **given) if kind is MultiHeadAttention else kind(model_dim, num_heads)

    torch.manual_seed(0)
    return LanguageModel(
        TransformerConfig(30, model_dim=16, num_heads=4, num_layers=layers, attention=attention)
    ).eval()


def test_a_hybrid_stack_is_a_configuration_and_decodes_as_it_reads():
    model, prompts = hybrid(), [[3, 7, 9, 11, 4], [5, 2]]
    assert [type(layer.attention).__name__ for layer in model.stack.layers].count("GatedDeltaNet") == 3
    for prompt, found in zip(prompts, generate(model, prompts, max_new_tokens=12), strict=True):
        logits = model(torch.tensor([[*prompt, *found.ids]]))[0, len(prompt) - 1 :]
        assert logits.argmax(-1).tolist()[: len(found.ids)] == found.ids


def test_the_future_is_not_read():
    model, tokens = hybrid(), torch.randint(30, (1, 20), generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[:, 12:] = (other[:, 12:] + 1) % 30
    torch.testing.assert_close(model(tokens)[:, :12], model(other)[:, :12])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "causal: expected True"),
        ({"causal": True, "mask": torch.ones(1, 1, 1, 12) > 0}, "mask: expected None"),
        ({"causal": True, "lengths": torch.tensor([3, 4])}, "lengths: expected a cache with them"),
        ({"causal": True, "cache": KVCache(2, 4, 9, 4)}, "cache: expected one that this layer's new_cache made"),
        ({"causal": True, "cache": made().new_cache(2, 0)}, "cache: expected one that this layer's new_cache made"),
    ],
)
def test_what_it_cannot_do_is_refused(options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        made()(vectors(), **options)
    with pytest.raises(ValueError, match="^num_heads: expected a number that divides model_dim 16, got 3"):
        GatedDeltaNet(16, 3)


def test_normalisation_may_return_float32_under_autocast(monkeypatch):
    normalize = functional.normalize  # as autocast has it on CUDA
    monkeypatch.setattr(functional, "normalize", lambda x, dim: normalize(x.float(), dim=dim))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert GatedDeltaNet(8, 2)(torch.randn(1, 5, 8), causal=True).shape == (1, 5, 8)


def test_no_tokens_give_no_outputs():
    layer = GatedDeltaNet(8, 2)
    cache = layer.new_cache(2, 4)
    with torch.no_grad():
        layer(torch.randn(2, 3, 8), causal=True, cache=cache)
        before = [x.clone() for x in cache.state]
        assert layer(torch.randn(2, 0, 8), causal=True, cache=cache).shape == (2, 0, 8)
    assert all(torch.equal(a, b) for a, b in zip(before, cache.state, strict=True))
