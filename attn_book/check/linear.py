"""Checks of features from a Taylor series, a decaying state in chunks, and a state that is continued."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception

_PAGE = "chapters/14_linear"
_FEATURES = (_PAGE, "Features in place of the exponential")
_OTHER = (_PAGE, "Performer: random features of the softmax")
_STATE = (_PAGE, "A recurrent network")


# Features whose product is a parabola.


def _series_cases(draw: Inputs) -> Iterator[Case]:
    size = draw.whole(3, 6)
    for name, shape in (("vectors", (draw.whole(3, 5), size)), ("several heads", (2, draw.whole(3, 5), size))):
        yield Case(name, (draw.normal(*shape), draw.normal(*shape)))
    yield Case("vectors of one entry", (draw.normal(4, 1), draw.normal(5, 1)), edge=True)
    yield Case("vectors of zeros", (torch.zeros(2, size), draw.normal(3, size)), edge=True)


def _products(features: Callable[[Tensor], Tensor], q: Tensor, k: Tensor) -> Tensor:
    """The kernel of all pairs, which does not depend on the order of the features."""
    return features(q) @ features(k).mT


def _series(x: Tensor, *, constant: float = 1.0, linear: float = 1.0, square: float = math.sqrt(0.5)) -> Tensor:
    squares = (x[..., :, None] * x[..., None, :]).flatten(-2)
    return torch.cat([constant * torch.ones_like(x[..., :1]), linear * x, square * squares], -1)


series = Check(
    "series",
    answer=_series,
    cases=_series_cases,
    use=_products,
    misconceptions=[
        Misconception(
            lambda x: _series(x, square=1.0),
            "the products of two entries are not divided by √2",
            "Without it the kernel is 1 + x + x².",
            _FEATURES,
        ),
        Misconception(
            lambda x: _series(x, square=0.5),
            "the products of two entries are divided by 2 instead of √2",
            "Query and key both have the factor, so it counts squared: a quarter instead of a half.",
            _FEATURES,
        ),
        Misconception(
            lambda x: torch.cat([torch.ones_like(x[..., :1]), x, x**2 / math.sqrt(2)], -1),
            "each entry is only multiplied by itself",
            "(q·k)² has the mixed products too: all pairs of entries, D² of them.",
            _FEATURES,
        ),
        Misconception(
            lambda x: _series(x, constant=0.0),
            "the constant 1 is missing",
            "The constant is a feature as well, the same for every vector.",
            _FEATURES,
        ),
        Misconception(
            lambda x: _series(x, linear=0.0),
            "the entries themselves are missing",
            "They give the middle term, q·k.",
            _FEATURES,
        ),
        Misconception(
            lambda x: _series(x / x.shape[-1] ** 0.25),
            "the vectors are divided by the fourth root of D first",
            "That is right if the score is divided by √D, but this kernel is of q·k itself.",
            _OTHER,
        ),
    ],
    hints=[
        "(q·k)² is the sum over a and b of (q_a q_b)(k_a k_b): a product of features, one for each pair (a, b).",
        "The factor 1/2 must be shared between query and key: 1/√2 for each.",
        "torch.cat([ones, x, squares / 2**0.5], -1), with squares = (x[..., :, None] * x[..., None, :]).flatten(-2).",
    ],
)


# A state that fades, in chunks.


def _decay_cases(draw: Inputs) -> Iterator[Case]:
    size, chunk = draw.whole(3, 5), draw.whole(4, 6)
    for name, words in (("three chunks", 3 * chunk), ("a last chunk that is shorter", 4 * chunk + 2)):
        yield Case(name, (*_words(draw, words, size), 0.7 + 0.2 * float(draw.uniform()), chunk))
    q, k, v = _words(draw, 3 * chunk, size)
    yield Case("a state that does not decay", (q, k, v, 1.0, chunk), edge=True)
    yield Case("chunks of one word", (q, k, v, 0.8, 1), edge=True)
    yield Case("one long chunk and a state that decays fast", (*_words(draw, 300, size), 0.5, 400), edge=True)


def _words(draw: Inputs, words: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    return draw.normal(words, size), draw.normal(words, size), draw.normal(words, size + 1)


def _chunked(  # type: ignore[no-untyped-def]
    q: Tensor, k: Tensor, v: Tensor, gamma: float, size: int, *, late=0, forget=1.0, mask=None, old=1.0, left=1
) -> Tensor:
    """The right answer with the default options; each option gets one factor wrong."""
    state, outputs = torch.zeros(k.shape[1], v.shape[1]), []
    for a, b, c in zip(q.split(size), k.split(size), v.split(size), strict=True):
        steps = torch.arange(1, len(a) + 1)[:, None]
        inside = (mask or _fading)(steps, gamma)
        outputs.append(old * gamma ** (steps - late) * (a @ state) + (a @ b.T * inside) @ c)
        faded = gamma ** (left * (len(a) - steps))
        state = (gamma ** len(a)) ** forget * state + (faded * b).T @ c
    return torch.cat(outputs)


def _fading(steps: Tensor, gamma: float) -> Tensor:
    apart = steps - steps.T
    return torch.where(apart >= 0, gamma ** apart.clamp(min=0), 0.0)


by_chunks = Check(
    "by_chunks",
    answer=_chunked,
    cases=_decay_cases,
    misconceptions=[
        Misconception(
            lambda q, k, v, gamma, size: _chunked(q, k, v, gamma, size, old=0.0),
            "a chunk does not use the state that enters it",
            "Then each chunk is a separate text, and no information passes from one chunk to the next.",
            _STATE,
        ),
        Misconception(
            lambda q, k, v, gamma, size: _chunked(q, k, v, gamma, size, late=1),
            "the incoming state reaches the first word of a chunk without decaying",
            "The state decays once per word, including the first: by γ to the power of i, counted from 1.",
            _STATE,
        ),
        Misconception(
            lambda q, k, v, gamma, size: _chunked(q, k, v, gamma, size, forget=0.0),
            "the old state does not decay while a chunk is read",
            "A chunk of n words shrinks it by γⁿ.",
            _STATE,
        ),
        Misconception(
            lambda q, k, v, gamma, size: _chunked(q, k, v, gamma, size, left=0),
            "the words of a chunk enter the state without decaying",
            "By the end of the chunk, each has decayed once for every word after it.",
            _STATE,
        ),
        Misconception(
            lambda q, k, v, gamma, size: _chunked(
                q, k, v, gamma, size, mask=lambda steps, gamma: (steps >= steps.T).float()
            ),
            "nothing decays within a chunk",
            "The mask holds γ to the power of i − j where it held ones.",
            _STATE,
        ),
        Misconception(
            lambda q, k, v, gamma, size: _chunked(
                q, k, v, gamma, size, mask=lambda steps, gamma: gamma ** (steps - steps.T).abs()
            ),
            "within a chunk, words attend to later words too",
            "A state holds only earlier words: where j is later than i, the mask is 0.",
            _STATE,
        ),
        Misconception(
            lambda q, k, v, gamma, size: _chunked(
                q, k, v, gamma, size, mask=lambda steps, gamma: (gamma**steps * gamma ** -steps.T.float()).tril()
            ),
            "the mask is made as γ to the power of i times γ to the power of −j",
            "In a long chunk one factor overflows while the other vanishes. Subtract the exponents first.",
            _STATE,
        ),
    ],
    hints=[
        "Two parts for each word: from the state that enters the chunk, and from the words of the chunk so far.",
        "Word i of a chunk (from 1) reads γⁱ (q · S); within the chunk word j reaches it with γ^(i − j).",
        "After a chunk of n words: S becomes γⁿ S plus the sum of γ^(n − j) k_j v_jᵀ.",
    ],
)


# Linear attention that goes on from a state.


def _state_cases(draw: Inputs) -> Iterator[Case]:
    words, features, size = draw.whole(4, 6), draw.whole(3, 5), draw.whole(2, 4)
    by_query, by_key = 0.2 + draw.uniform(words, features), 0.2 + draw.uniform(words, features)
    v, before = draw.normal(words, size), 0.2 + draw.uniform(9, features)
    state = before.T @ draw.normal(9, size), before.sum(0)
    fresh = torch.zeros(features, size), torch.zeros(features)
    yield Case("a text from its beginning", (by_query, by_key, v, *fresh))
    yield Case("a continued text", (by_query, by_key, v, *state))
    yield Case("a single word that continues a text", (by_query[:1], by_key[:1], v[:1], *state), edge=True)
    yield Case("a single word at the beginning", (by_query[:1], by_key[:1], v[:1], *fresh), edge=True)


_Read = tuple[Tensor, Tensor, Tensor]


def _read(by_query: Tensor, by_key: Tensor, v: Tensor, S: Tensor, z: Tensor, *, own: bool = True) -> _Read:
    mask = torch.ones(len(v), len(v)).tril(0 if own else -1)
    kernel = by_query @ by_key.T * mask
    total = kernel.sum(1) + by_query @ z
    return (kernel @ v + by_query @ S) / total[:, None], S + by_key.T @ v, z + by_key.sum(0)


def _all_at_once(by_query: Tensor, by_key: Tensor, v: Tensor, S: Tensor, z: Tensor) -> _Read:
    S, z = S + by_key.T @ v, z + by_key.sum(0)
    return by_query @ S / (by_query @ z)[:, None], S, z


def _undivided(by_query: Tensor, by_key: Tensor, v: Tensor, S: Tensor, z: Tensor) -> _Read:
    return (by_query @ by_key.T).tril() @ v + by_query @ S, S + by_key.T @ v, z + by_key.sum(0)


read_on = Check(
    "read_on",
    answer=_read,
    cases=_state_cases,
    misconceptions=[
        Misconception(
            lambda a, b, v, S, z: _read(a, b, v, S, z, own=False),
            "the state is read before the word's own key has been added",
            "A word attends to itself, as under a causal mask; otherwise the first word would have nothing to "
            "attend to.",
            _STATE,
        ),
        Misconception(
            _all_at_once,
            "all keys are added before the first word reads",
            "Then every word attends to the whole text, later words included.",
            _STATE,
        ),
        Misconception(
            lambda a, b, v, S, z: _read(a, b, v, torch.zeros_like(S), torch.zeros_like(z)),
            "the state that is given is not used",
            "It holds all the earlier words.",
            _STATE,
        ),
        Misconception(
            lambda a, b, v, S, z: _read(a, b, v, S, torch.zeros_like(z)),
            "z starts at zero instead of the given z",
            "S and z belong together: each word is added to both.",
            _STATE,
        ),
        Misconception(
            _undivided,
            "the outputs are not divided",
            "The weights of a query must add up to one: divide by its product with z.",
            _FEATURES,
        ),
        Misconception(
            lambda a, b, v, S, z: (_read(a, b, v, S, z)[0], S, z),
            "the old state is returned",
            "A continuation from it would miss these words.",
            _STATE,
        ),
        Misconception(
            lambda a, b, v, S, z: (_read(a, b, v, S, z)[0], b.T @ v, b.sum(0)),
            "the returned state holds only these words",
            "It must hold the earlier words as well.",
            _STATE,
        ),
    ],
    hints=[
        "Word by word: add to S and z, then read. torch.outer(key, value) is what a word adds to S.",
        "The output of a word is (query @ S) / (query @ z).",
        "S = S + … makes a new tensor; S += … would change the caller's.",
    ],
)
