"""Checks of attention with a cache, and the values' bias moved into the output projection."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception
from attn_core.mechanisms.dense import attention

_USES = ("chapters/11_kv_cache", "An attention layer with a cache")
_HEADS = ("chapters/04_multi_head", "From one head to several")

Results = tuple[Tensor, Tensor, Tensor]


# The next words, read with a cache.


def _cached_cases(draw: Inputs) -> Iterator[Case]:
    batch, heads, size = draw.whole(1, 3), draw.whole(1, 3), draw.whole(3, 6)

    def case(name: str, past: int, new: int, edge: bool = False) -> Case:
        q, k, v = (draw.normal(batch, heads, new, size) for _ in range(3))
        held = (draw.normal(batch, heads, past, size), draw.normal(batch, heads, past, size))
        return Case(name, (q, k, v, *held), edge)

    yield case("several words after a few", draw.whole(4, 6), draw.whole(3, 4))
    yield case("one word after several", draw.whole(3, 6), 1)
    yield case("more words than are cached", 2, draw.whole(4, 6), edge=True)
    yield case("an empty cache", 0, draw.whole(3, 5), edge=True)
    yield case("the first word", 0, 1, edge=True)


def _join(k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)


def _shifted(shift: int, q: Tensor, *parts: Tensor) -> Results:
    """Like the right answer, but with the diagonal of the mask ``shift`` positions further to the right."""
    k, v = _join(*parts)
    past = k.shape[2] - q.shape[2]
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(past + shift)
    return attention(q, k, v, mask=seen), k, v


def _from_the_left(q: Tensor, *parts: Tensor) -> Results:
    k, v = _join(*parts)
    return attention(q, k, v, mask=torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()), k, v


def _past_last(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Results:
    out, *_ = _shifted(0, q, k, v, past_k, past_v)
    return out, *_join(past_k, past_v, k, v)


cached_attention = Check(
    "cached_attention",
    answer=lambda q, *parts: _shifted(0, q, *parts),
    cases=_cached_cases,
    misconceptions=[
        Misconception(
            _from_the_left,
            "the causal mask begins at the first key",
            "The first new word comes after the cached words and attends to them: the diagonal is S − T "
            "positions further right.",
            _USES,
        ),
        Misconception(
            lambda q, *parts: (attention(q, *_join(*parts)), *_join(*parts)),
            "the new words attend to each other without a mask",
            "As one chunk, the words would then attend to later words, which they cannot do one by one.",
            _USES,
        ),
        Misconception(
            lambda q, *parts: _shifted(1, q, *parts),
            "the diagonal is one position too far to the right",
            "Each new word then attends to the one after it.",
            _USES,
        ),
        Misconception(
            lambda q, *parts: _shifted(-1, q, *parts),
            "a new word does not attend to itself",
            "Its own key and value join the cache before its query is used.",
            _USES,
        ),
        Misconception(
            lambda q, k, v, past_k, past_v: (attention(q, past_k, past_v), *_join(k, v, past_k, past_v)),
            "the new words attend only to the cache",
            "Their own keys and values join it before their queries are used.",
            _USES,
        ),
        Misconception(
            lambda q, k, v, past_k, past_v: (attention(q, k, v, causal=True), *_join(k, v, past_k, past_v)),
            "the new words attend only to each other",
            "They must attend to the cached keys too.",
            _USES,
        ),
        Misconception(
            lambda q, k, v, past_k, past_v: (_shifted(0, q, k, v, past_k, past_v)[0], past_k, past_v),
            "the cache is returned unchanged",
            "The next words need the keys and values of these words in it.",
            _USES,
        ),
        Misconception(
            _past_last,
            "the new keys are put before the cached ones",
            "A key's position in the cache is its position in the sequence.",
            _USES,
        ),
    ],
    hints=[
        "Join first: torch.cat([past_k, k], dim=2), and the values in the same way. Then attend.",
        "Query i of T attends to the first S − T + i + 1 of the S keys: torch.ones(T, S).bool().tril(S - T).",
    ],
)


# The bias of the values, moved into that of the output projection.


def _bias_cases(draw: Inputs) -> Iterator[Case]:
    for name in ("a layer", "another layer"):
        size = draw.whole(4, 9)
        yield Case(name, (draw.normal(size), draw.normal(size, size), draw.normal(size)))
    size = draw.whole(3, 5)
    wide = (draw.normal(2 * size), draw.normal(size, 2 * size), draw.normal(size))
    yield Case("heads that together are wider than the model", wide, edge=True)


folded_bias = Check(
    "folded_bias",
    answer=lambda value_bias, weight, bias: bias + weight @ value_bias,
    cases=_bias_cases,
    misconceptions=[
        Misconception(
            lambda value_bias, weight, bias: bias + value_bias,
            "the two biases are added as they are",
            "The bias of the values passes through the output projection, as the values do.",
            _HEADS,
        ),
        Misconception(
            lambda value_bias, weight, bias: bias + weight.T @ value_bias,
            "the weight matrix is transposed",
            "nn.Linear stores its weight as (out, in) and computes W x.",
            _HEADS,
        ),
        Misconception(
            lambda value_bias, weight, bias: weight @ value_bias,
            "the bias of the output projection is lost",
            "The projected bias of the values is added to it.",
            _HEADS,
        ),
        Misconception(
            lambda value_bias, weight, bias: weight @ (value_bias + bias),
            "both biases pass through the output projection",
            "The output projection's own bias is added after it.",
            _HEADS,
        ),
        Misconception(
            lambda value_bias, weight, bias: bias - weight @ value_bias,
            "the projected bias of the values is subtracted",
            "It was removed from the values, so it must be added at this point.",
            _HEADS,
        ),
        Misconception(
            lambda value_bias, weight, bias: bias + weight.sum(1) * value_bias,
            "each row of the weight is summed and multiplied by one entry of the bias",
            "Entry i of W b is the sum of W[i, j] · b[j] over j.",
            _HEADS,
        ),
    ],
    hints=[
        "The weights of a query add up to one: a mean of v + b is the mean of v, plus b.",
        "The output projection maps b to W b. Add it to the projection's own bias.",
    ],
)
