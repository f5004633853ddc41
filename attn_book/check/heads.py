"""Checks of multi-head attention, and grouped-query attention."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from attn_book.check import broken_layers
from attn_book.check.exercise import Case, Check, Inputs, Misconception
from attn_core.mechanisms.dense import attention
from attn_core.multi_head import MultiHeadAttention

_POOLING, _PAGE = "chapters/01_pooling", "chapters/04_multi_head"
_SCALE = (_POOLING, "Why divide by √d?")
_MASKS = (_POOLING, "Masking")
_ROLES = (_POOLING, "Queries, keys and values")
_HEADS = (_PAGE, "From one head to several")
_VIEW = (_PAGE, "The view that mixes tokens")
_BUG = (_PAGE, "A bug that no shape check catches")
_MASKED = (_PAGE, "Masks and padding")
_FEWER = ("chapters/09_block", "Fewer keys and values: GQA, MLA and windows")


# The layer.


def _use_layer(make: Any, sizes: tuple[int, int], weights: dict[str, Tensor], *inputs: Any) -> Tensor:
    layer = make(*sizes)
    layer.load_state_dict(weights)
    layer.eval()
    queries, keys, mask, causal = inputs
    return layer(queries, keys, mask=mask, causal=causal)


def _layer_cases(draw: Inputs) -> Iterator[Case]:
    heads, batch = draw.whole(2, 4), draw.whole(2, 3)
    size, queries, keys = heads * draw.whole(3, 5), draw.whole(4, 6), draw.whole(7, 9)
    weights = {}
    for name in ("query", "key", "value", "out"):
        weights[f"{name}.weight"] = 1.5 * draw.normal(size, size) / math.sqrt(size)
        weights[f"{name}.bias"] = 0.5 * draw.normal(size)
    x, memory = draw.normal(batch, queries, size), draw.normal(batch, keys, size)
    padding, own = (_padding(batch, n) for n in (keys, queries))
    nothing = padding & (torch.arange(batch) > 0)[:, None, None, None]
    both = ((size, heads), weights)
    yield Case("a sentence and itself", (*both, x, x, None, False))
    yield Case("a sentence and another, which is padded", (*both, x, memory, padding, False))
    yield Case("a causal layer", (*both, x, x, None, True))
    yield Case("a causal layer with padding", (*both, x, x, own, True), edge=True)
    yield Case("a single query", (*both, x[:, :1], memory, padding, False), edge=True)
    yield Case("a sentence that is all padding", (*both, x, memory, nothing, False), edge=True)


def _padding(batch: int, size: int) -> Tensor:
    """The mask ``(B, 1, 1, size)`` of a full-length sentence, one of half the length, and one of a single word."""
    return (torch.arange(size) < torch.tensor([size, size // 2, 1])[:batch, None])[:, None, None]


class _Unfilled(broken_layers.StepByStep):
    def weigh(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return scores.masked_fill(~allowed, -math.inf).softmax(-1)


class _ScaledByTheModel(broken_layers.StepByStep):
    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT / math.sqrt(self.query.out_features)


multi_head = Check(
    "multi_head",
    answer=MultiHeadAttention,
    cases=_layer_cases,
    use=_use_layer,
    misconceptions=[
        Misconception(
            broken_layers.SplitByView,
            "the vectors are cut into heads by a view straight to (B, H, T, D)",
            "A head then gets a few complete words instead of a slice of every word. Cut first, then swap the axes.",
            _VIEW,
        ),
        Misconception(
            broken_layers.MergeByView,
            "the heads are joined by a view straight to (B, T, C)",
            "Each vector is then put together from pieces of several words. Swap the axes back first.",
            _HEADS,
        ),
        Misconception(
            broken_layers.HeadsOfSizeOne,
            "there are as many heads as the vectors have entries",
            "The number of heads is taken from the size of the model. A head of size 1 is too small for a useful "
            "query.",
            _BUG,
        ),
        Misconception(
            broken_layers.Unscaled,
            "the scores are not divided by √D",
            "They grow with the size of the heads, and the softmax turns into a choice of one.",
            _SCALE,
        ),
        Misconception(
            _ScaledByTheModel,
            "the scores are divided by √C, the root of the model's size",
            "A score is a dot product of D entries, those of one head.",
            _HEADS,
        ),
        Misconception(
            broken_layers.SoftmaxOverQueries,
            "the softmax runs over the queries instead of the keys",
            "The weights of a query must add up to one, and not those of a key.",
            _ROLES,
        ),
        Misconception(
            broken_layers.InvertedMask,
            "the mask is interpreted the other way round",
            "In this book, True means that attention is allowed. In nn.MultiheadAttention it means the opposite.",
            _MASKS,
        ),
        Misconception(
            broken_layers.MaskAfterSoftmax,
            "the mask is multiplied in after the softmax",
            "The masked keys have already taken their share of the weights.",
            _MASKS,
        ),
        Misconception(
            broken_layers.MaskOfAnotherSentence,
            "the mask is repeated for the heads in the wrong order",
            "A sentence then gets the padding of another. A mask (B, 1, 1, S) broadcasts over the heads without "
            "a repeat.",
            _MASKED,
        ),
        Misconception(
            broken_layers.CausalOffByOne,
            "the causal mask begins one diagonal too high",
            "Each word then attends to the one after it.",
            _MASKED,
        ),
        Misconception(
            broken_layers.CausalWhileTraining,
            "the causal mask is applied only in training mode",
            "In evaluation mode the layer then attends to later words.",
            _MASKED,
        ),
        Misconception(
            _Unfilled,
            "a query without any key to attend to is not handled",
            "Its softmax is 0/0, and NaN spreads. Its heads should return zeros.",
            _MASKS,
        ),
    ],
    hints=[
        "Project, split, attend, merge, project. To split: x.unflatten(-1, (H, -1)).transpose(1, 2).",
        (
            "The scores are (B, H, T, S), so a mask (B, 1, 1, S) broadcasts. If causal, mask the later keys too, "
            "with tril."
        ),
        "To merge: out.transpose(1, 2).flatten(2). Rows of weights without any True in the mask are filled with zeros.",
    ],
)


# Query heads that share heads of keys and values.


def _grouped_cases(draw: Inputs) -> Iterator[Case]:
    groups, share, size = draw.whole(2, 3), draw.whole(2, 3), draw.whole(4, 8)
    batch, queries, keys = draw.whole(2, 3), draw.whole(2, 4), draw.whole(5, 7)
    q, mask = draw.normal(batch, groups * share, queries, size), draw.mask(batch, 1, queries, keys)
    k, v = draw.normal(batch, groups, keys, size), draw.normal(batch, groups, keys, size + 1)
    every = torch.ones_like(mask)
    yield Case(f"{groups * share} heads that share {groups}, without a mask", (q, k, v, every))
    yield Case(f"{groups * share} heads that share {groups}, with a mask", (q, k, v, mask))
    yield Case("multi-query attention", (q, k[:, :1], v[:, :1], mask), edge=True)
    yield Case("as many key-value heads as query heads", (q[:, :groups], k, v, mask), edge=True)
    hidden = mask & (torch.arange(queries) > 0)[:, None]
    yield Case("a query without any key to attend to", (q, k, v, hidden), edge=True)


def _in_turn(q: Tensor, x: Tensor) -> Tensor:
    """Keys or values for the heads 0, 1, …, 0, 1, … instead of 0, 0, …, 1, 1, …"""
    return x.repeat(1, q.shape[1] // x.shape[1], 1, 1)


def _grouped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float | None = None) -> Tensor:
    return attention(q, k, v, mask=mask, scale=scale)


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT / math.sqrt(q.shape[-1])


def _values(q: Tensor, v: Tensor) -> Tensor:
    return v.repeat_interleave(q.shape[1] // v.shape[1], 1)


grouped_attention = Check(
    "grouped_attention",
    answer=_grouped,
    cases=_grouped_cases,
    misconceptions=[
        Misconception(
            lambda q, k, v, mask: _grouped(q, _in_turn(q, k), _in_turn(q, v), mask),
            "the query heads take the key-value heads in turn",
            "A group is H / G query heads side by side: repeat_interleave, not repeat.",
            _FEWER,
        ),
        Misconception(
            lambda q, k, v, mask: _grouped(q, _values(q, k), _in_turn(q, v), mask),
            "keys and values are repeated in different orders",
            "A head then weighs the values of one group by the keys of another.",
            _FEWER,
        ),
        Misconception(
            lambda q, k, v, mask: _grouped(q, k[:, :1], v[:, :1], mask),
            "all heads use the first key-value head",
            "That is multi-query attention, G = 1.",
            _FEWER,
        ),
        Misconception(
            lambda q, k, v, mask: _grouped(q, k.mean(1, keepdim=True), v.mean(1, keepdim=True), mask),
            "the key-value heads are averaged",
            "Each group has its own keys and values.",
            _FEWER,
        ),
        Misconception(
            lambda q, k, v, mask: _grouped(q[:, : k.shape[1]], k, v, mask),
            "there are only as many query heads as key-value heads",
            "There are H query heads. Only the keys and values are shared.",
            _FEWER,
        ),
        Misconception(
            lambda q, k, v, mask: _grouped(q, k, v, mask, scale=1.0),
            "the scores are not divided by √D",
            "They grow with the size of the heads, and the softmax turns into a choice of one.",
            _SCALE,
        ),
        Misconception(
            lambda q, k, v, mask: _grouped(q, k, v, ~mask),
            "the mask is interpreted the other way round",
            "In this book, True means that a query may attend to the key.",
            _MASKS,
        ),
        Misconception(
            lambda q, k, v, mask: (_scores(q, k).softmax(-1) * mask) @ _values(q, v),
            "the mask is multiplied in after the softmax",
            "The masked keys have already taken their share of the weights.",
            _MASKS,
        ),
        Misconception(
            lambda q, k, v, mask: _scores(q, k).masked_fill(~mask, -math.inf).softmax(-1) @ _values(q, v),
            "a query without any key to attend to is not handled",
            "Its softmax is 0/0, and NaN spreads. Such a query gets zeros.",
            _MASKS,
        ),
    ],
    hints=[
        "With 6 query heads and 2 of keys, heads 0, 1, 2 read the first and heads 3, 4, 5 the second.",
        "k.repeat_interleave(q.shape[1] // k.shape[1], dim=1) gives each query head its keys. The same for the values.",
    ],
)
