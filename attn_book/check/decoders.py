"""Checks of Bahdanau's context vector, and Luong's local attention."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception
from attn_core.mechanisms.dense import attend
from attn_core.mechanisms.dense import masked_softmax as right_softmax

_POOLING, _BAHDANAU, _LUONG = "chapters/01_pooling", "chapters/02_bahdanau", "chapters/03_luong"
_MASKS = (_POOLING, "Masking")
_BEND = (_POOLING, "Scoring functions")
_GROWS = (_POOLING, "Why divide by √d?")
_AGAIN = (_BAHDANAU, "Bahdanau's attention: a new context vector at every step")
_WINDOW = (_LUONG, "A window on the source")


# A step of Bahdanau's: the context.


def _step_cases(draw: Inputs) -> Iterator[Case]:
    batch, words, size, hidden = draw.whole(3, 4), draw.whole(5, 8), draw.whole(6, 9), draw.whole(3, 5)
    query, states = draw.normal(batch, draw.whole(4, 5)), draw.normal(batch, words, size)
    parts = (draw.normal(hidden, query.shape[1]), draw.normal(hidden, size) / 2, draw.normal(hidden))
    positions = torch.arange(words)
    full, padded = (positions < torch.tensor([[words - cut * (b % 3)] for b in range(batch)]) for cut in (0, 2))
    yield Case("sentences of one length", (query, states, full, *parts))
    yield Case("sentences of different lengths", (query, states, padded, *parts))
    yield Case("a sentence of one word", (query[:1], states[:1, :1], full[:1, :1], *parts), edge=True)
    yield Case("a sentence that is all padding", (query[:1], states[:1], ~full[:1], *parts), edge=True)


def _energies(query: Tensor, states: Tensor, *parts: Tensor, bend: Any = torch.tanh) -> Tensor:
    w, u, v = parts
    return bend((query @ w.T)[:, None] + states @ u.T) @ v


def _context(scores: Tensor, states: Tensor, mask: Tensor) -> Tensor:
    return attend(scores[:, None], states, mask[:, None])[0][:, 0]


def _mix(weights: Tensor, states: Tensor) -> Tensor:
    return (weights[..., None] * states).sum(1)


bahdanau_context = Check(
    "bahdanau_context",
    answer=lambda query, states, mask, *parts: _context(_energies(query, states, *parts), states, mask),
    cases=_step_cases,
    misconceptions=[
        Misconception(
            lambda query, states, mask, *parts: _context(
                _energies(query, states, *parts, bend=lambda x: x), states, mask
            ),
            "there is no tanh",
            "The query then adds the same number to all scores of its sentence, and the softmax drops it.",
            _BEND,
        ),
        Misconception(
            lambda query, states, mask, W, U, v: _context(
                (torch.tanh(query @ W.T)[:, None] + torch.tanh(states @ U.T)) @ v, states, mask
            ),
            "tanh is applied to the two halves before they are added",
            "The query's half is then the same for all words, and the softmax drops it. The tanh comes after the sum.",
            _AGAIN,
        ),
        Misconception(
            lambda query, states, mask, W, U, v: _context(
                _energies(query, states, W, U, v) / math.sqrt(len(v)), states, mask
            ),
            "the scores are divided by the root of the perceptron's size",
            "That is for dot products. Additive scores are bounded, and dividing them only levels the weights.",
            _GROWS,
        ),
        Misconception(
            lambda query, states, mask, *parts: _context(_energies(query, states, *parts), states, ~mask),
            "the mask is interpreted the other way round",
            "In this book, True means that a query may attend to the key.",
            _MASKS,
        ),
        Misconception(
            lambda query, states, mask, *parts: _mix(_energies(query, states, *parts).softmax(-1), states),
            "the mask is not used",
            "Padding then takes a share of the weights, and a sentence's context depends on its batch.",
            _AGAIN,
        ),
        Misconception(
            lambda query, states, mask, *parts: _mix(_energies(query, states, *parts).softmax(-1) * mask, states),
            "the mask is multiplied in after the softmax",
            "By then the padding has already taken its share of the weights.",
            _MASKS,
        ),
        Misconception(
            lambda query, states, mask, *parts: _mix(
                _energies(query, states, *parts).masked_fill(~mask, -math.inf).softmax(0).nan_to_num(0.0), states
            ),
            "the softmax runs over the sentences of the batch",
            "The words of one sentence share out one unit of weight: the last axis.",
            _AGAIN,
        ),
        Misconception(
            lambda query, states, mask, W, U, v: _context(_energies(query, states, W, U, v), states @ U.T, mask),
            "the context is a mean of the projected keys Uh instead of the states",
            "U is only for the scores. The context is a mean of the states themselves.",
            _AGAIN,
        ),
        Misconception(
            lambda query, states, mask, W, U, v: _mix(
                _energies(query, states, W, U, v).masked_fill(~mask, -math.inf).softmax(-1), states
            ),
            "a sentence that is all padding is not handled",
            "Its softmax is 0/0, and NaN spreads. Such a sentence gets a context of zeros.",
            _MASKS,
        ),
    ],
    hints=[
        "The query's half has the shape (B, A), the keys' half (B, S, A). Which axis must be put in before they add?",
        "scores = torch.tanh((query @ W.T)[:, None] + states @ U.T) @ v is (B, S).",
        "Mask, softmax over the words, and then (weights[..., None] * states).sum(1).",
    ],
)


# Luong's local weights.


def _window_cases(draw: Inputs) -> Iterator[Case]:
    words, width = draw.whole(12, 16), draw.whole(2, 3)
    fractions = (words - 1) * draw.uniform(draw.whole(4, 6))
    scores = draw.normal(len(fractions), words)
    whole = torch.arange(len(fractions)) + 2.0
    yield Case("centres between two words", (scores, fractions.floor() + 0.2 + 0.2 * draw.uniform(1), width))
    yield Case("centres on a word", (scores, whole, width))
    past = torch.cat([whole[:-1], torch.tensor([words + width + 1.0])])
    yield Case("a centre far past the end of the source", (scores, past, width), edge=True)
    yield Case("large scores", (1000 * scores, fractions, width), edge=True)


def _distance(scores: Tensor, centres: Tensor) -> Tensor:
    return torch.arange(scores.shape[-1]) - centres[:, None]


def _bell(scores: Tensor, centres: Tensor, sigma: float) -> Tensor:
    return torch.exp(-((_distance(scores, centres) / sigma) ** 2) / 2)


def _seen(scores: Tensor, centres: Tensor, half_width: float) -> Tensor:
    return _distance(scores, centres).abs() <= half_width


def _local(scores: Tensor, centres: Tensor, half_width: int, factor: float = 0.5) -> Tensor:
    """The right weights when sigma is ``factor`` times the half width."""
    return right_softmax(scores, _seen(scores, centres, half_width)) * _bell(scores, centres, factor * half_width)


local_weights = Check(
    "local_weights",
    answer=_local,
    cases=_window_cases,
    misconceptions=[
        Misconception(
            lambda scores, centres, half_width: (
                scores.softmax(-1) * _seen(scores, centres, half_width) * _bell(scores, centres, half_width / 2)
            ),
            "the softmax runs over the whole source, and the window is applied after it",
            "Words outside the window then take a share of the weights. The softmax must run within the window.",
            _WINDOW,
        ),
        Misconception(
            lambda scores, centres, half_width: (
                _local(scores, centres, half_width)
                / _local(scores, centres, half_width).sum(-1, keepdim=True).clamp(min=1e-30)
            ),
            "the weights are normalised again at the end",
            "They sum to less than one. Divided, a single word in the window has weight 1 wherever the centre lies.",
            _WINDOW,
        ),
        Misconception(
            lambda scores, centres, half_width: right_softmax(scores, _seen(scores, centres, half_width)),
            "the Gaussian is missing",
            "The edges of the window are discontinuous, so without the Gaussian the predicted position gets no "
            "gradient.",
            _WINDOW,
        ),
        Misconception(
            lambda scores, centres, half_width: scores.softmax(-1) * _bell(scores, centres, half_width / 2),
            "there is a Gaussian but no window",
            "Words further away than the half width are masked: they take no share in the softmax.",
            _WINDOW,
        ),
        Misconception(
            lambda scores, centres, half_width: _local(scores, centres, half_width, 1.0),
            "σ is the half width itself",
            "It is half of it: at the edge of the window the Gaussian has fallen to e⁻².",
            _WINDOW,
        ),
        Misconception(
            lambda scores, centres, half_width: _local(scores, centres, half_width, math.sqrt(0.125)),
            "the 2 below the square is missing",
            "The exponent is −(i − p)² / 2σ².",
            _WINDOW,
        ),
        Misconception(
            lambda scores, centres, half_width: right_softmax(
                scores * _bell(scores, centres, half_width / 2), _seen(scores, centres, half_width)
            ),
            "the Gaussian is multiplied with the scores, before the softmax",
            "A negative score would grow with the distance. Multiply the weights instead.",
            _WINDOW,
        ),
        Misconception(
            lambda scores, centres, half_width: (
                right_softmax(scores, _seen(scores, centres, half_width - 1e-4))
                * _bell(scores, centres, half_width / 2)
            ),
            "the words at the edge of the window are left out",
            "A word at distance D is still inside the window.",
            _WINDOW,
        ),
        Misconception(
            lambda scores, centres, half_width: _local(scores, centres.round(), half_width),
            "the centre is rounded to a word",
            "Rounding has no gradient, so the centre could not be learned.",
            _WINDOW,
        ),
        Misconception(
            lambda scores, centres, half_width: (
                scores.masked_fill(~_seen(scores, centres, half_width), -math.inf).softmax(-1)
                * _bell(scores, centres, half_width / 2)
            ),
            "a window without any word is not handled",
            "Its softmax is 0/0, and NaN spreads. Such a window gives zeros.",
            _MASKS,
        ),
    ],
    hints=[
        (
            "The distances are torch.arange(S) - centres[:, None]; a word is in the window if the distance is at "
            "most half_width."
        ),
        (
            "First a softmax among the words in the window; then multiply by exp(−distance² / 2σ²), with σ = "
            "half_width / 2."
        ),
        "A window that lies completely past the end contains no words: its weights are zeros, not NaN.",
    ],
)
