"""Checks of chapter 9: a circuit that matches two tokens, and a cut before a word is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from attn_book.check.exercise import Case, Check, Inputs, Misconception
from attn_core.mechanisms.dense import attention

_PAGE = "chapters/09_generation"
_ONCE = (_PAGE, "Read once")
_CIRCUIT = (_PAGE, "Two layers, by hand")
_WRITES = (_PAGE, "What it writes")


# A circuit that matches two tokens.


def _text_cases(draw: Inputs) -> Iterator[Case]:
    for name, size in (("texts of few symbols", draw.whole(7, 9)), ("texts of more symbols", draw.whole(12, 16))):
        tokens = _repeated(draw, 6, size)
        yield Case(name, (tokens, size, _known(tokens)))
    tokens = _repeated(draw, 8, 5)
    yield Case("texts of five symbols", (tokens, 5, _known(tokens)), edge=True)


def _repeated(draw: Inputs, rows: int, size: int) -> Tensor:
    """Random tokens, of which ten come twice."""
    tokens = draw.ids(size, rows, 36)
    tokens[:, 20:30] = tokens[:, 4:14]
    return tokens


def _known(tokens: Tensor) -> Tensor:
    """Where a token and the one before it came together exactly once before, and not one place earlier."""
    before = tokens.roll(1, 1)
    same = (tokens[:, :, None] == tokens[:, None]) & (before[:, :, None] == before[:, None])
    same[:, :, 0] = False  # the first token has none before it
    just_now = functional.pad(same.diagonal(-1, 1, 2), (1, 0))
    return (same.tril(-1).sum(2) == 1) & ~just_now


def _note(own: Tensor, back: int) -> Tensor:
    """What stood so many places before; zeros where nobody did."""
    return functional.pad(own, (0, 0, back, 0))[:, :, : own.shape[2]]


_Circuit = Callable[[Tensor, int], Tensor]


def _circuit(*, keys: tuple[int, int] = (1, 2), strength: tuple[float, float]) -> _Circuit:
    """A query of the own token and the one before, a key of two notes, by how far they look back."""

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
            "only the asking token is matched",
            "Where it came more than once, several notes fit, and the answer is a coin's toss.",
            _CIRCUIT,
        ),
        Misconception(
            _circuit(strength=(0.0, 20.0)),
            "only the token before the asking one is matched",
            "Both must match, each with the note that belongs to it.",
            _CIRCUIT,
        ),
        Misconception(
            _circuit(keys=(2, 1), strength=(20.0, 10.0)),
            "the two notes are compared the wrong way round",
            "The asking token meets the note of one place back, the one before it the note of two places back.",
            _CIRCUIT,
        ),
        Misconception(
            _circuit(keys=(0, 1), strength=(20.0, 10.0)),
            "the keys hold their own token instead of the one before it",
            "Then whoever asks finds itself, and repeats what it has just read.",
            _ONCE,
        ),
        Misconception(
            _circuit(keys=(2, 3), strength=(20.0, 10.0)),
            "the token two places after the match is handed over",
            "What comes next is the token right after: its notes are those of one and of two places back.",
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
        "A note is the one-hot token of one or of two places back, with zeros where there is none.",
        "Query: the own token and the note of one place back. Key: the notes of one and of two places back.",
        "Put the two parts side by side with torch.cat; the value is the own token.",
    ],
)


# The nucleus.


def _share_cases(draw: Inputs) -> Iterator[Case]:
    for name, share in (("a share of .8", 0.8), ("a share of .5", 0.5)):
        yield Case(name, ((1.5 * draw.normal(draw.whole(2, 4), draw.whole(20, 40))).softmax(-1), share))
    sharp = torch.eye(6)[draw.ids(6, 3)] * 0.94 + 0.01
    yield Case("one word that holds more than the share", (sharp, 0.9), edge=True)
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
            "the word that crosses the share is left out",
            "Together the kept words must hold at least the share; and if one word holds more, nothing would be left.",
            _WRITES,
        ),
        Misconception(
            lambda probabilities, share: _kept(probabilities, share, more=1),
            "one word more than needed is kept",
            "The fewest that hold the share: stop as soon as it is reached.",
            _WRITES,
        ),
        Misconception(
            lambda probabilities, share: _kept(probabilities, share, again=False),
            "what is left is not divided by its sum",
            "What is drawn from is a distribution: it must add up to one.",
            _WRITES,
        ),
        Misconception(
            lambda probabilities, share: _kept(probabilities, share, descending=False),
            "words are collected from the least likely one on",
            "The fewest words that hold a share are the likeliest ones.",
            _WRITES,
        ),
        Misconception(
            _left_sorted,
            "the result stays in the order of the probabilities",
            "Each word must find its own probability again: put them back with scatter.",
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
        "A word stays if the words before it hold less than the share: cumsum − its own probability < share.",
        "scatter puts the kept ones back to their places; then divide by the sum.",
    ],
)
