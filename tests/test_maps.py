import numpy as np
import pytest
import torch
from torch import nn

from attn_book.maps import fit_source, read_maps

T, S, H, L = 3, 5, 2, 4
W = torch.rand(L, H, T, S).softmax(-1)

ACCEPTED = {
    "one map": (W[0, 0], W[:1, :1]),
    "heads": (W[0], W[:1]),
    "layers and heads": (W, W),
    "d2l's one map": (W[:1, :1], W[:1, :1]),
    "list of heads per layer": (list(W), W),
    "list of maps per layer": (list(W[:, 0]), W[:, :1]),
    "Hugging Face": (tuple(w[None] for w in W), W),
    "numpy": (W.numpy(), W),
    "numbers": (W[0].tolist(), W[:1]),
    "bfloat16 that requires gradients": (W.bfloat16().requires_grad_(), W.bfloat16()),
    "half": (W.half(), W.half()),
    "not contiguous": (W.transpose(2, 3), W.transpose(2, 3)),
    "captured": ({"a": [W[0][None]], "b": [W[1][None]]}, W[:2]),
    "captured steps": ({"decoder": [W[:1, :, t : t + 1] for t in range(T)]}, W[:1]),
    "d2l's steps": ([[W[0, :1, t : t + 1]] for t in range(T)], W[:1, :1]),
    "d2l's layers at each step": ([[w[:, t : t + 1] for w in W] for t in range(T)], W),
    "d2l's Transformer decoder": (
        [[[torch.rand(H, 1, t + 1) for _ in W], [w[:, t : t + 1] for w in W]] for t in range(T)],
        W,
    ),
}


@pytest.mark.parametrize("given", ACCEPTED)
def test_reads_what_libraries_hold_and_leaves_it_alone(given):
    weights, expected = ACCEPTED[given]
    maps = read_maps(weights)
    before = maps.weights.copy()
    assert maps.weights.dtype == np.float32
    np.testing.assert_array_equal(maps.weights, expected.float().numpy())
    maps.weights[:] = 2  # what was read is no view of what was given
    np.testing.assert_array_equal(read_maps(weights).weights, before)


@pytest.mark.parametrize("average", [True, False])
def test_reads_multi_head_attention_of_torch(average):
    torch.manual_seed(1)
    layer = nn.MultiheadAttention(8, H, batch_first=True)
    x, y = torch.randn(1, T, 8), torch.randn(1, S, 8)
    _, weights = layer(x, y, y, average_attn_weights=average)
    assert read_maps(weights).weights.shape == (1, 1 if average else H, T, S)
    _, weights = layer(x[0], y[0], y[0])
    assert read_maps(weights).weights.shape == (1, 1, T, S)


def test_reads_steps_of_d2l(d2l):
    attention = d2l.AdditiveAttention(4, 4, 4, 0.0).eval()
    steps = []
    for _ in range(T):
        keys = torch.randn(1, S, 4)
        attention(torch.randn(1, 1, 4), keys, keys, torch.tensor([3]))
        steps.append([attention.attention_weights])
    maps = read_maps(steps)
    assert maps.weights.shape == (1, 1, T, S)
    assert fit_source(maps, "a b c".split()).weights.shape == (1, 1, T, 3)
    assert fit_source(maps, "a b".split()).weights.shape == (1, 1, T, S)  # a weight would be lost
