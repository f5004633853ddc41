"""Checks of an induction circuit that matches two tokens, and nucleus sampling."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from attn_book.check.exercise import Case, Check, Inputs, Misconception
from attn_core.mechanisms.dense import attention

_PAGE = "chapters/18_next_word"
_ONCE = (_PAGE, "Induction heads: copying what was read once")
_CIRCUIT = (_PAGE, "The rule, set by hand")
_WRITES = (_PAGE, "Choosing the next token")


# A circuit that matches two tokens.


def _text_cases(draw: Inputs) -> Iterator[Case]:
    for name, size in (("texts of few symbols", draw.whole(7, 9)), ("texts of more symbols", draw.whole(12, 16))):
        tokens = _repeated(draw, 6, size)
        yield Case(name, (tokens, size, _known(tokens)))
    tokens = _repeated(draw, 8, 5)
    yield Case("texts of five symbols", (tokens, 5, _known(tokens)), edge=True)


def _repeated(draw: Inputs, rows: int, size: int) -> Tensor:
    """Random tokens, ten of which occur twice."""
    tokens = draw.ids(size, rows, 36)
    tokens[:, 20:30] = tokens[:, 4:14]
    return tokens


def _known(tokens: Tensor) -> Tensor:
    """Where a token and the one before it came together exactly once before, and not one position earlier."""
    before = tokens.roll(1, 1)
    same = (tokens[:, :, None] == tokens[:, None]) & (before[:, :, None] == before[:, None])
    same[:, :, 0] = False  # the first token has none before it
    just_now = functional.pad(same.diagonal(-1, 1, 2), (1, 0))
    return (same.tril(-1).sum(2) == 1) & ~just_now


def _note(own: Tensor, back: int) -> Tensor:
    """The tokens so many positions before, with zeros where there is none."""
    return functional.pad(own, (0, 0, back, 0))[:, :, : own.shape[2]]


_Circuit = Callable[[Tensor, int], Tensor]


def _circuit(*, keys: tuple[int, int] = (1, 2), strength: tuple[float, float]) -> _Circuit:
    """The attention of a query with two parts on a key with two parts, given by how far back each part looks."""

    def match_two(tokens: Tensor, vocab_size: int) -> Tensor:
        own = functional.one_hot(tokens, vocab_size).float()[:, None]
        query = torch.cat([strength[0] * own, strength[1] * _note(own, 1)], -1)
        key = torch.cat([_note(own, back) for back in keys], -1)
        return attention(query, key, own, causal=True, scale=1.0)[:, 0]

    return match_two


match_two = Check(
    "match_two",
    answer=_circuit(strength=(20.0, 10.0)),
    cases=_text_cases,
    use=lambda attempt, tokens, size, known: attempt(tokens, size).argmax(-1)[known],
    misconceptions=[
        Misconception(
            _circuit(strength=(20.0, 0.0)),
            "only the current token is matched",
            "If it occurred more than once, several keys match, and the result is a mixture.",
            _CIRCUIT,
        ),
        Misconception(
            _circuit(strength=(0.0, 20.0)),
            "only the token before the current one is matched",
            "Both tokens must match, each with its own part of the key.",
            _CIRCUIT,
        ),
        Misconception(
            _circuit(keys=(2, 1), strength=(20.0, 10.0)),
            "the two parts of the key are exchanged",
            "The current token is compared with the token one position back, and the one before it with the "
            "token two positions back.",
            _CIRCUIT,
        ),
        Misconception(
            _circuit(keys=(0, 1), strength=(20.0, 10.0)),
            "the keys hold their own token instead of the one before it",
            "Then each token matches itself, and repeats what it has just read.",
            _ONCE,
        ),
        Misconception(
            _circuit(keys=(2, 3), strength=(20.0, 10.0)),
            "the token two positions after the match is returned",
            "The prediction is the token right after the match, whose key holds the two tokens before it.",
            _ONCE,
        ),
        Misconception(
            _circuit(strength=(1.0, 1.0)),
            "the scores of a match are too small",
            "Many keys that do not match outweigh one that does. Make the query's part 10 or 20 times as large.",
            _CIRCUIT,
        ),
    ],
    hints=[
        "Shift the one-hot tokens by one and by two positions, with zeros where there is no token.",
        "Query: the current token and the one before it. Key: the tokens one and two positions back.",
        "Put the two parts side by side with torch.cat; the value is the current token.",
    ],
)


# The nucleus.


def _share_cases(draw: Inputs) -> Iterator[Case]:
    for name, share in (("a share of .8", 0.8), ("a share of .5", 0.5)):
        yield Case(name, ((1.5 * draw.normal(draw.whole(2, 4), draw.whole(20, 40))).softmax(-1), share))
    sharp = torch.eye(6)[draw.ids(6, 3)] * 0.94 + 0.01
    yield Case("one word with more than the share", (sharp, 0.9), edge=True)
    yield Case("the whole", (draw.normal(2, 12).softmax(-1), 1.0), edge=True)
    yield Case("a single row", (draw.normal(12).softmax(-1), 0.3), edge=True)


def _kept(probabilities: Tensor, share: float, *, more: int = 0, descending: bool = True, again: bool = True) -> Tensor:
    ranked, order = probabilities.sort(-1, descending=descending)
    before = ranked.cumsum(-1) - ranked
    inside = functional.pad(before < share, (more, 0), value=True)[..., : ranked.shape[-1]]
    kept = torch.zeros_like(probabilities).scatter(-1, order, ranked * inside)
    return kept / kept.sum(-1, keepdim=True) if again else kept


def _without_crossing(probabilities: Tensor, share: float) -> Tensor:
    ranked, order = probabilities.sort(-1, descending=True)
    kept = torch.zeros_like(probabilities).scatter(-1, order, ranked * (ranked.cumsum(-1) <= share))
    return kept / kept.sum(-1, keepdim=True)


def _left_sorted(probabilities: Tensor, share: float) -> Tensor:
    return _kept(probabilities.sort(-1, descending=True).values, share)


def _by_number(probabilities: Tensor, share: float) -> Tensor:
    number = max(1, round(share * probabilities.shape[-1]))
    kept = probabilities * (probabilities >= probabilities.topk(number).values[..., -1:])
    return kept / kept.sum(-1, keepdim=True)


nucleus = Check(
    "nucleus",
    answer=_kept,
    cases=_share_cases,
    misconceptions=[
        Misconception(
            _without_crossing,
            "the word that reaches the share is left out",
            "The kept words must have at least this share together; otherwise nothing is left if one word has "
            "more than the share.",
            _WRITES,
        ),
        Misconception(
            lambda probabilities, share: _kept(probabilities, share, more=1),
            "one word more than needed is kept",
            "Keep the fewest words that reach the share: stop as soon as it is reached.",
            _WRITES,
        ),
        Misconception(
            lambda probabilities, share: _kept(probabilities, share, again=False),
            "the remaining probabilities are not divided by their sum",
            "The result is a probability distribution: it must add up to one.",
            _WRITES,
        ),
        Misconception(
            lambda probabilities, share: _kept(probabilities, share, descending=False),
            "words are collected from the least likely one on",
            "The fewest words that reach a share are the most likely ones.",
            _WRITES,
        ),
        Misconception(
            _left_sorted,
            "the result stays in the order of the probabilities",
            "Each probability must be at the position of its own word: put them back with scatter.",
            _WRITES,
        ),
        Misconception(
            _by_number,
            "the share is taken of the number of words",
            "It is a share of the probability: few words where the model is sure, many where it is not.",
            _WRITES,
        ),
    ],
    hints=[
        "Sort in descending order and take the cumulative sum.",
        "Keep a word if the words before it have less than the share: cumsum − its own probability < share.",
        "scatter puts the kept probabilities back at their positions; then divide by the sum.",
    ],
)
