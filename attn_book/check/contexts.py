"""Checks of prefix and sentence contexts, and of a gate."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception
from attn_book.context import blend

_PAGE = "chapters/22_context"
_PADDING = (_PAGE, "Padding on two levels, by hand")
_LEVELS = (_PAGE, "Two levels of pooling")
_CONTEXT = (_PAGE, "Does the document help a word?")


# The mean of the words so far.


def _prefix_cases(draw: Inputs) -> Iterator[Case]:
    words, size = draw.whole(4, 6), draw.whole(2, 3)
    yield Case("one text", (draw.normal(1, words, size),))
    yield Case("several texts", (draw.normal(draw.whole(2, 3), words + 2, size),))
    yield Case("a single word", (draw.normal(2, 1, size),), edge=True)
    yield Case("as many texts as words", (draw.normal(4, 4, size),), edge=True)


def _counts(x: Tensor) -> Tensor:
    return torch.arange(1, x.shape[1] + 1)[:, None]


prefix_context = Check(
    "prefix_context",
    answer=lambda x: x.cumsum(1) / _counts(x),
    cases=_prefix_cases,
    misconceptions=[
        Misconception(
            lambda x: x.mean(1, keepdim=True).expand_as(x).clone(),
            "every word gets the mean of the whole text",
            "That is the global context, in which a word also gets information from the words after it.",
            _CONTEXT,
        ),
        Misconception(
            lambda x: x.cumsum(1),
            "the sums are not divided",
            "The result is a mean: divide the sum at each position by the number of words in it.",
            _CONTEXT,
        ),
        Misconception(
            lambda x: x.cumsum(1) / x.shape[1],
            "all sums are divided by the number of all words",
            "The first sum contains one word, the second two.",
            _CONTEXT,
        ),
        Misconception(
            lambda x: (x.cumsum(1) - x) / (_counts(x) - 1).clamp(min=1),
            "a word's own vector is left out",
            "The mean runs over the words up to it, itself included.",
            _CONTEXT,
        ),
        Misconception(
            lambda x: x.flip(1).cumsum(1).flip(1) / _counts(x).flip(0),
            "the mean runs over the word and those after it",
            "These are exactly the words that must be masked in a decoder.",
            _CONTEXT,
        ),
        Misconception(
            lambda x: x.cumsum(0) / torch.arange(1, len(x) + 1)[:, None, None],
            "the sums run over the texts of the batch",
            "Axis 1 holds the words, and no text may influence another one.",
            _CONTEXT,
        ),
    ],
    hints=[
        "x.cumsum(1) holds the sum of the words up to each position.",
        "Divide the sums by 1, 2, …, n: a tensor of shape (n, 1).",
    ],
)


# A gate.


def _gate_cases(draw: Inputs) -> Iterator[Case]:
    words, size = draw.whole(3, 5), draw.whole(4, 6)
    x, context = draw.normal(2, words, size), draw.normal(2, words, size)
    own, given, bias = draw.normal(size), draw.normal(size), 0.5 + float(draw.uniform())
    yield Case("a context for each word", (x, context, own, given, bias))
    yield Case("one context for the whole text", (x, context[:, :1], own, given, -bias))
    yield Case("a closed gate", (x, context, own, given, -math.inf), edge=True)
    yield Case("a fully open gate", (x, context[:, :1], own, given, math.inf), edge=True)


def _logit(x: Tensor, context: Tensor, own: Tensor, given: Tensor, bias: float) -> Tensor:
    return (x @ own + context @ given + bias)[..., None]


gated = Check(
    "gated",
    answer=lambda x, context, own, given, bias: blend(x, context, _logit(x, context, own, given, bias).sigmoid()),
    cases=_gate_cases,
    misconceptions=[
        Misconception(
            lambda x, context, own, given, bias: blend(x, context, 1 - _logit(x, context, own, given, bias).sigmoid()),
            "the two parts of the blend are exchanged",
            "λ is the share of the context: at λ = 0 the context has no effect.",
            _CONTEXT,
        ),
        Misconception(
            lambda x, context, own, given, bias: x + _logit(x, context, own, given, bias).sigmoid() * context,
            "the context is added and nothing is taken away",
            "A blend keeps only 1 − λ of the word's own vector.",
            _CONTEXT,
        ),
        Misconception(
            lambda x, context, own, given, bias: blend(x, context, _logit(x, context, own, given, bias).softmax(1)),
            "the gates of a text are a softmax",
            "Each word has its own gate, a logistic function, and the gates need not add up to one over the words.",
            _CONTEXT,
        ),
        Misconception(
            lambda x, context, own, given, bias: blend(x, context, (x @ own + bias)[..., None].sigmoid().expand_as(x)),
            "the gate depends only on the word",
            "The gate depends on both vectors, the word's and the context's.",
            _CONTEXT,
        ),
        Misconception(
            lambda x, context, own, given, bias: blend(x, context, (x * own + context * given + bias).sigmoid()),
            "there is a gate for each entry",
            "The products with the two vectors are sums: one number for each word.",
            _CONTEXT,
        ),
        Misconception(
            lambda x, context, own, given, bias: blend(x, context, _logit(x, context, own, given, 0.0).sigmoid()),
            "the bias is left out",
            "The bias says how far the gate is open by default; −∞ closes it.",
            _CONTEXT,
        ),
    ],
    hints=[
        "x @ own is (B, T), context @ given is (B, T) or (B, 1): they add, with the bias.",
        "torch.sigmoid makes the gate; [..., None] gives it an axis to multiply whole vectors with.",
        "(1 − λ) · x + λ · context",
    ],
)


# The mean of each word's sentence.


def _sentence_cases(draw: Inputs) -> Iterator[Case]:
    words, size = draw.whole(8, 11), draw.whole(2, 4)
    x, full = draw.normal(2, words, size), torch.ones(2, words, dtype=torch.bool)
    numbers = torch.stack([torch.arange(words) // 3, torch.arange(words) // 2])
    yield Case("sentences of three words and of two", (x, numbers, full))
    shorter = full & (torch.arange(words) < torch.tensor([[words], [words - 3]]))
    yield Case("a padded paragraph", (x, numbers * shorter, shorter))
    yield Case("every word a sentence", (x, torch.arange(words).expand(2, -1), full), edge=True)
    mixed = torch.stack([numbers[0].flip(0) - 2, 5 * (torch.arange(words) % 3)])
    yield Case("numbers in any order, with gaps, some below zero", (x, mixed, full), edge=True)
    yield Case("padding that holds NaN", (x.masked_fill(~shorter[..., None], math.nan), numbers, shorter), edge=True)


def _means(x: Tensor, together: Tensor) -> Tensor:
    """For each position, the mean over the positions ``together (B, T, T)`` with it; zeros if there are none."""
    clean = x.nan_to_num(0.0)
    return together.float() @ clean / together.sum(2, keepdim=True).clamp(min=1)


def _same(numbers: Tensor, words: Tensor) -> Tensor:
    return (numbers[:, :, None] == numbers[:, None]) & words[:, None] & words[:, :, None]


def _across(x: Tensor, numbers: Tensor, words: Tensor) -> Tensor:
    """The means if the batch were one long paragraph."""
    flat = _means(x.flatten(0, 1)[None], _same(numbers.flatten()[None], words.flatten()[None]))
    return flat[0].unflatten(0, x.shape[:2])


sentence_context = Check(
    "sentence_context",
    answer=lambda x, numbers, words: _means(x, _same(numbers, words)),
    cases=_sentence_cases,
    misconceptions=[
        Misconception(
            lambda x, numbers, words: _means(x, words[:, None] & words[:, :, None]),
            "every word gets the mean of the whole paragraph",
            "The mean is over the words of the same sentence only.",
            _LEVELS,
        ),
        Misconception(
            _across,
            "sentences with the same number are joined across the paragraphs of the batch",
            "Sentence 0 of one text and sentence 0 of another are different sentences.",
            _LEVELS,
        ),
        Misconception(
            lambda x, numbers, words: _means(x, numbers[:, :, None] == numbers[:, None]),
            "padding takes part in the means",
            "Padding also has a sentence number, but it is not a word of that sentence.",
            _PADDING,
        ),
        Misconception(
            lambda x, numbers, words: _means(x, (numbers[:, :, None] == numbers[:, None]) & words[:, None]),
            "padding gets a mean too",
            "Padding is not a word: such positions get zeros.",
            _PADDING,
        ),
        Misconception(
            lambda x, numbers, words: _means(x, _same(numbers, words) & ~torch.eye(x.shape[1], dtype=torch.bool)),
            "a word's own vector is left out",
            "The sentence's vector is the same for all of its words.",
            _LEVELS,
        ),
        Misconception(
            lambda x, numbers, words: _same(numbers, words).float() @ x.nan_to_num(0.0),
            "the sums are not divided",
            "The result is a mean: the vector of a long sentence must not be longer than that of a short one.",
            _LEVELS,
        ),
        Misconception(
            lambda x, numbers, words: (
                _same(numbers, words).float() @ x / _same(numbers, words).sum(2)[..., None].clamp(1)
            ),
            "padding is multiplied by 0",
            "The values in the padding must not matter, and 0 times NaN is NaN. Fill the padding with zeros first.",
            _PADDING,
        ),
    ],
    hints=[
        "numbers[:, :, None] == numbers[:, None] is True for words of the same sentence, (B, T, T).",
        "A pair counts only if both are words. Each row is then a mask, and a mean is a product with it.",
        "Fill padding in x with zeros before the product, and divide by at least 1.",
    ],
)
