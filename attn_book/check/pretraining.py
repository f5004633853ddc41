"""Checks of masked inputs and targets, and the pseudo-log-likelihood of a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception

_TASK = ("chapters/17_pretraining", "Masked words")


# Words that are hidden.


def _hidden_cases(draw: Inputs) -> Iterator[Case]:
    rows, words, size = draw.whole(2, 4), draw.whole(20, 30), draw.whole(30, 60)
    mask = draw.whole(1, 5)
    pad = (mask + draw.whole(1, 5)) % 6  # another one of the ids below 6
    tokens, others = 6 + draw.ids(size, rows, words), 6 + draw.ids(size, rows, words)
    others += others == tokens  # another word is another word
    fate, chosen = draw.uniform(rows, words), draw.mask(rows, words)
    fate[:, :3], chosen[:, :3] = torch.tensor([0.3, 0.85, 0.95]), True
    yield Case("texts with every kind of replacement", (tokens, chosen, fate, others, mask, pad))
    few = draw.uniform(rows, words) < 0.15
    few[:, 4:7], fate[:, 4:7] = True, torch.tensor([0.1, 0.88, 0.92])
    yield Case("texts of which 15 % are chosen", (tokens, few, fate, others, mask, pad))
    yield Case("a text with nothing chosen", (tokens, chosen & False, fate, others, mask, pad), edge=True)
    yield Case("a text with everything chosen", (tokens, chosen | True, fate, others, mask, pad), edge=True)
    lost = tokens.masked_fill(draw.uniform(rows, words) < 0.2, mask)
    yield Case("a text that already contains <mask>", (lost, chosen, fate, others, mask, pad), edge=True)


def _hide(
    tokens: Tensor,
    chosen: Tensor,
    fate: Tensor,
    others: Tensor,
    mask: int,
    pad: int,
    *,
    to: float = 0.8,
    end: float = 0.9,
) -> tuple[Tensor, Tensor]:
    """<mask> for fates below ``to``, another word below ``end``."""
    inputs = torch.where(chosen & (fate >= to) & (fate < end), others, tokens)
    return inputs.masked_fill(chosen & (fate < to), mask), tokens.masked_fill(~chosen, pad)


_Hidden = Callable[[Tensor, Tensor, Tensor, Tensor, int, int], tuple[Tensor, Tensor]]


def _with_targets(targets: Callable[[Tensor, Tensor, Tensor, int, int], Tensor]) -> _Hidden:
    """The right inputs, and targets made of tokens, chosen, inputs, mask and pad."""

    def hide(
        tokens: Tensor, chosen: Tensor, fate: Tensor, others: Tensor, mask: int, pad: int
    ) -> tuple[Tensor, Tensor]:
        inputs, _ = _hide(tokens, chosen, fate, others, mask, pad)
        return inputs, targets(tokens, chosen, inputs, mask, pad)

    return hide


hide_words = Check(
    "hide_words",
    answer=_hide,
    cases=_hidden_cases,
    misconceptions=[
        Misconception(
            _with_targets(lambda tokens, chosen, inputs, mask, pad: tokens),
            "the targets contain every word",
            "Only the chosen words are predicted. Most of the others could be copied from the input.",
            _TASK,
        ),
        Misconception(
            _with_targets(lambda tokens, chosen, inputs, mask, pad: tokens.masked_fill(inputs != mask, pad)),
            "only words that became <mask> are predicted",
            "Replaced and kept words are predicted too, so that the vector of every word stays useful.",
            _TASK,
        ),
        Misconception(
            _with_targets(lambda tokens, chosen, inputs, mask, pad: inputs.masked_fill(~chosen, pad)),
            "the targets contain the words of the inputs",
            "The target is the true word, not the one that replaced it.",
            _TASK,
        ),
        Misconception(
            _with_targets(lambda tokens, chosen, inputs, mask, pad: tokens.masked_fill(chosen, pad)),
            "the words that were not chosen are predicted",
            "The targets contain the chosen words, and <pad> everywhere else.",
            _TASK,
        ),
        Misconception(
            lambda *args: _hide(*args, to=1.0),
            "every chosen word becomes <mask>",
            "Then the model predicts only at <mask>, which never occurs when it is used.",
            _TASK,
        ),
        Misconception(
            lambda *args: _hide(*args, end=1.0),
            "no chosen word stays as it is",
            "One in ten stays, so that the model also predicts words that it can see.",
            _TASK,
        ),
        Misconception(
            lambda *args: _hide(*args, to=0.1),
            "one word in ten becomes <mask> and eight in ten another word",
            "It must be the other way round: a fate below .8 means <mask>.",
            _TASK,
        ),
        Misconception(
            lambda tokens, chosen, *rest: (
                _hide(tokens, chosen | True, *rest)[0],
                _hide(tokens, chosen, *rest)[1],
            ),
            "words that were not chosen are masked too",
            "Only the chosen words are replaced.",
            _TASK,
        ),
    ],
    hints=[
        "Two tensors: tokens.masked_fill(…) for the targets, and torch.where or masked_fill for the inputs.",
        "chosen & (fate < .8) becomes <mask>; chosen & (.8 ≤ fate) & (fate < .9) takes its entry of others.",
    ],
)


# The likelihood of a sentence, word by word.


def _likelihood_cases(draw: Inputs) -> Iterator[Case]:
    for name, words in (("a sentence", draw.whole(4, 8)), ("a longer sentence", draw.whole(10, 15))):
        size = draw.whole(20, 40)
        shares = (2 * draw.normal(words + 2, size)).softmax(-1)
        yield Case(name, (draw.ids(size, words + 2), shares))
    yield Case("a single word", (draw.ids(size, 3), shares[:3]), edge=True)
    unlikely = torch.full((40, size), 1e-5)
    yield Case("forty unlikely words", (draw.ids(size, 40), unlikely), edge=True)


def _own(ids: Tensor, shares: Tensor) -> Tensor:
    return shares.gather(1, ids[:, None])[:, 0]


pseudo_log_likelihood = Check(
    "pseudo_log_likelihood",
    answer=lambda ids, shares: _own(ids, shares)[1:-1].log().sum().item(),
    cases=_likelihood_cases,
    misconceptions=[
        Misconception(
            lambda ids, shares: _own(ids, shares).log().sum(),
            "<cls> and <sep> are counted",
            "They are not words of the sentence: leave out the first and the last.",
            _TASK,
        ),
        Misconception(
            lambda ids, shares: _own(ids, shares)[1:-1].log().mean(),
            "the mean is taken instead of the sum",
            "That is another measure, useful for sentences of different lengths, but this one is the sum.",
            _TASK,
        ),
        Misconception(
            lambda ids, shares: -_own(ids, shares)[1:-1].log().sum(),
            "the sign is reversed",
            "That is a loss. A log-likelihood is at most 0, and is larger for a more likely sentence.",
            _TASK,
        ),
        Misconception(
            lambda ids, shares: _own(ids, shares)[1:-1].sum(),
            "probabilities are added instead of their logarithms",
            "Probabilities are multiplied; their logarithms are added.",
            _TASK,
        ),
        Misconception(
            lambda ids, shares: _own(ids, shares)[1:-1].prod().log(),
            "the logarithm is taken of the product",
            "A product of many small numbers is 0 to a float. Take the logarithms first.",
            _TASK,
        ),
        Misconception(
            lambda ids, shares: shares.amax(1)[1:-1].log().sum(),
            "the most likely word is taken at each position",
            "The measure uses the probability of the word that is really at this position.",
            _TASK,
        ),
        Misconception(
            lambda ids, shares: _own(ids[2:], shares[1:-1]).log().sum(),
            "each position is scored with the word after it",
            "That is for a decoder. In this model, row t is computed from all other words and predicts the word at t.",
            _TASK,
        ),
    ],
    hints=[
        "shares.gather(1, ids[:, None]) picks the true word's probability in each row.",
        "Leave out the first row and the last, take logarithms, and add them up.",
    ],
)
