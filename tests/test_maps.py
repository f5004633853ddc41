import numpy as np
import pytest
import torch
from torch import nn

from attn_book.maps import fit_source, read_links, read_maps, read_tokens
from attn_core.capture import capture_attention, record

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


def test_names_layers_as_captured():
    class Layer(nn.Module):
        def forward(self):
            record(self, W[:1])

    model = nn.Sequential(Layer(), Layer())
    with capture_attention(model) as maps:
        for layer in model:
            layer()
    assert read_maps(maps).layers == ("0", "1")
    assert read_maps({"decoder.cross": maps["0"]}).layers == ("decoder.cross",)


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


def spoiled(value):
    weights = W.clone()
    weights[1, 0, 2, 3] = value
    return weights


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(3), "weights: expected .* got shape"),
        (torch.ones(1, 1, 1, 1, 1), "weights: expected .* got shape"),
        (torch.ones(0, 3), "weights: expected at least one"),
        ([], "weights: expected at least one"),
        ({}, "weights: expected at least one"),
        ({"a": []}, "'a'.*at least one map"),
        (spoiled(float("nan")), "finite"),
        (spoiled(float("inf")), "finite"),
        (spoiled(-0.1), "not negative"),
        (W.to(torch.complex64), "weights"),
        ("attention", "weights: expected numbers"),
        (None, "eager"),
        ((None, None), r"weights\[0\]: got None"),
        ([W], r"weights\[0\]: expected one sentence, got a batch of 4; pick item i"),
        ({"a": [W]}, r"weights\['a'\]\[0\]: expected one sentence, got a batch of 4"),
        ([W[0], W[0, :, :2]], "same .* in every layer"),
        ({"enc": [W[:1]], "dec": [W[:1, :, :2]]}, "enc: .*dec: .*show each kind by itself"),
        ({"a": [W[:1], W[:1]]}, "capture one pass"),
        ([[W[0, :, :1]], [W[0, :, :1, :2]]], "same heads and keys at each step"),
        ([[W[0, :, :1]], [W[0, :, :1], W[1, :, :1]]], "as many layers at each step"),
        ([[W[0, :, :1]], W[0]], r"weights\[1\]: expected a list"),
        ([[[1.0, 2.0], [1.0]]], "weights: expected numbers"),
    ],
)
def test_refuses_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        read_maps(weights)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ("a b", "source: expected a sequence of 2 strings, got str"),
        (3, "got int"),
        (["a", 1], "expected strings, got 1"),
        (["a"], r"expected 2 tokens.*got 1 \(is <eos> among them\?\)"),
        (["a"] * 5, "expected 2 tokens.*got 5$"),
    ],
)
def test_refuses_tokens(tokens, message):
    with pytest.raises(ValueError, match=message):
        read_tokens(tokens, "source", 2)


@pytest.mark.parametrize("link", [(2, 0), (0, 3), (-1, 0), (0,), 5, ("a", 0), (0.5, 0)])
def test_refuses_links(link):
    with pytest.raises(ValueError, match="links: expected"):
        read_links([link], ["a", "b"], ["x", "y", "z"])


def test_orders_links_and_drops_doubles():
    assert read_links({(1, 0), (0, 2)}, "ab", "xyz") == [[0, 2], [1, 0]]
    assert read_links([(1, 0), (1, 0)], "ab", "xyz") == [[1, 0]]
    assert read_links(None, "ab", "xyz") == []
