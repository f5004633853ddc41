"""Induction heads: the model, the sequences, and every measure against a loop that spells it out."""

import cmath
import itertools
import math
from collections import Counter

import pytest
import torch
from torch.nn import functional

from attn_book.induction import (
    AttentionOnly,
    best_losses,
    draw_repeats,
    head_off,
    induction_scores,
    next_token_losses,
    occurrence_losses,
    previous_token_scores,
)
from attn_core import capture_attention

V, T, PIECE = 7, 12, (2, 5)


def build(layers=2):
    torch.manual_seed(1)
    model = AttentionOnly(V, model_dim=8, num_heads=2, num_layers=layers).double()
    for parameter in model.parameters():  # biases and norms that matter
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def drawn(rows=40, seed=0):
    return draw_repeats(rows, T, V, piece=PIECE, generator=torch.Generator().manual_seed(seed))


def turned(vector, place):
    """Rotary positions as complex numbers; the pairs of entries turn ever more slowly."""
    size = len(vector)
    pairs = [complex(*vector[i : i + 2]) * cmath.rect(1, place / 10_000 ** (i / size)) for i in range(0, size, 2)]
    return torch.tensor([part for z in pairs for part in (z.real, z.imag)], dtype=torch.float64)


def by_hand(model, tokens):
    """Logits of one sequence, token by token and head by head."""
    stream = model.embedding.weight[tokens]
    for norm, layer in zip(model.norms, model.layers, strict=True):
        x = functional.layer_norm(stream, (8,), norm.weight, norm.bias)
        q, k, v = ((p.weight @ x.T).T + p.bias for p in (layer.query, layer.key, layer.value))
        added = []
        for t in range(len(tokens)):
            out = []
            for head in (slice(0, 4), slice(4, 8)):
                asks = turned(q[t, head].tolist(), t)
                scores = [asks @ turned(k[s, head].tolist(), s) / 2 for s in range(t + 1)]
                total = sum(score.exp() for score in scores)
                out.append(sum(score.exp() / total * v[s, head] for s, score in enumerate(scores)))
            added.append(layer.out.weight @ torch.cat(out) + layer.out.bias)
        stream = stream + torch.stack(added)
    last = model.last_norm
    return functional.layer_norm(stream, (8,), last.weight, last.bias) @ model.unembedding.weight.T


@torch.no_grad()
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_model_is_attention_and_nothing_else(layers):
    model = build(layers)
    tokens = torch.randint(V, (2, 6))
    torch.testing.assert_close(model(tokens), torch.stack([by_hand(model, row) for row in tokens]))
    attention = 4 * (8 * 8 + 8)
    assert sum(p.numel() for p in model.parameters()) == 2 * V * 8 + layers * (attention + 16) + 16


def test_a_piece_comes_twice():
    tokens, first, second = drawn(300)
    sizes, distances = set(), set()
    for ids, early, late in zip(tokens.tolist(), first.tolist(), second.tolist(), strict=True):
        there, again = ([i for i, mark in enumerate(marks) if mark] for marks in (early, late))
        size = len(there) + 1
        assert there == list(range(there[0], there[0] + size - 1))
        assert again == list(range(again[0], again[0] + size - 1))
        assert there[0] >= 1 and there[-1] < again[0] - 1  # the first tokens are before these, and nothing overlaps
        assert ids[there[0] - 1 : there[-1] + 1] == ids[again[0] - 1 : again[-1] + 1]
        sizes.add(size)
        distances.add(again[0] - there[0])
    assert sizes == {2, 3, 4, 5} and distances == set(range(2, 11))


def every_sequence(length, vocab_size, piece):
    """How likely each sequence is: over all lengths of the piece, places of it, and fresh tokens."""
    chances = Counter()
    sizes = range(piece[0], piece[1] + 1)
    for size in sizes:
        cuts = range(length - 2 * size + 1)
        for cut in itertools.product(cuts, repeat=2):
            before, upto = sorted(cut)
            for fresh in itertools.product(range(vocab_size), repeat=length - size):
                start, again = list(fresh[: upto + size]), list(fresh[before : before + size])
                chance = 1 / len(sizes) / len(cuts) ** 2 / vocab_size ** (length - size)
                chances[tuple(start + again + list(fresh[upto + size :]))] += chance
    return chances


def test_no_reader_is_better_than_the_best():
    chances = every_sequence(6, 2, (2, 3))
    tokens = torch.tensor(sorted(chances)[::3])
    starts = Counter()
    for each, chance in chances.items():
        for upto in range(1, 7):
            starts[each[:upto]] += chance
    wanted = [
        [-math.log(starts[(*ids[: t + 1],)] / starts[(*ids[:t],)]) for t in range(1, 6)] for ids in tokens.tolist()
    ]
    torch.testing.assert_close(best_losses(tokens, 2, piece=(2, 3)), torch.tensor(wanted))


def test_losses_against_a_loop():
    repeats, logits = drawn(5), torch.randn(5, T, V, dtype=torch.float64)
    sums = {"first": [], "second": []}
    losses = next_token_losses(logits, repeats.tokens)
    for row in range(5):
        for t in range(1, T):
            token = int(repeats.tokens[row, t])
            cost = -math.log(math.exp(logits[row, t - 1, token]) / sum(math.exp(x) for x in logits[row, t - 1]))
            assert math.isclose(losses[row, t - 1].item(), cost)
            for name, costs in sums.items():
                if getattr(repeats, name)[row, t]:
                    costs.append(cost)
    wanted = [sum(costs) / len(costs) for costs in sums.values()]
    assert occurrence_losses(losses, repeats) == pytest.approx(wanted)


def weights_of(rows=4, length=T):
    return torch.rand(rows, 3, length, length, dtype=torch.float64).tril().softmax(-1)


def test_previous_token_scores_against_a_loop():
    weights = weights_of()
    for head, score in enumerate(previous_token_scores(weights).tolist()):
        each = [weights[row, head, t, t - 1].item() for row in range(4) for t in range(1, T)]
        assert math.isclose(score, sum(each) / len(each))


def test_induction_scores_against_a_loop():
    weights, tokens = weights_of(), drawn(4).tokens
    tokens[0, 3:6] = 2  # a token that follows itself is its own follower
    for head, score in enumerate(induction_scores(weights, tokens).tolist()):
        each = []
        for row, ids in enumerate(tokens.tolist()):
            for t in range(T):
                followers = [j + 1 for j in range(t) if ids[j] == ids[t]]
                if followers:
                    each.append(sum(weights[row, head, t, s].item() for s in followers))
        assert math.isclose(score, sum(each) / len(each))


@torch.no_grad()
@pytest.mark.parametrize("head", [0, 1])
def test_a_head_that_is_off_adds_nothing(head):
    model, tokens = build(), drawn(3).tokens
    layer, before = model.layers[0], [p.clone() for p in model.parameters()]
    x = model.norms[0](model.embedding(tokens))
    with capture_attention(layer) as maps:
        whole = layer(x, causal=True)
    part = slice(4 * head, 4 * head + 4)
    values = (x @ layer.value.weight.T + layer.value.bias)[..., part]
    share = maps[""][0][:, head] @ values @ layer.out.weight[:, part].T
    with head_off(layer, head), capture_attention(layer) as same:
        torch.testing.assert_close(layer(x, causal=True), whole - share)
    torch.testing.assert_close(same[""][0], maps[""][0])
    with pytest.raises(KeyError), head_off(layer, head):
        raise KeyError
    assert all(torch.equal(*both) for both in zip(before, model.parameters(), strict=True))
