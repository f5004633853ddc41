"""Checks of add & norm, label smoothing, and a step of beam search."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from attn_book.check.exercise import Case, Check, Inputs, Misconception

_PAGE = "chapters/07_transformer"
_BLOCK = (_PAGE, "The model")
_NORM = (_PAGE, "Layer normalisation")
_TRAIN = (_PAGE, "Training")
_BEAM = ("chapters/18_next_word", "Choosing the next token")


# Add & norm.


def _norm_cases(draw: Inputs) -> Iterator[Case]:
    batch, words, size = draw.whole(2, 4), draw.whole(3, 6), draw.whole(5, 9)
    x, out = draw.normal(batch, words, size), draw.normal(batch, words, size)
    scale, shift = 0.5 + draw.uniform(size), draw.normal(size)
    yield Case("a fresh norm, of scale 1 and shift 0", (x, out, torch.ones(size), torch.zeros(size)))
    yield Case("a trained norm", (x, out, scale, shift))
    yield Case("vectors of entries near .003", (0.002 * x, 0.002 * out, scale, shift), edge=True)
    yield Case("sums whose entries are all alike", (x, -x, scale, shift), edge=True)


def _normed(
    x: Tensor, scale: Tensor, shift: Tensor, axes: tuple[int, ...] = (-1,), *, correction: int = 0, power: float = 0.5
) -> Tensor:
    variance, mean = torch.var_mean(x, axes, correction=correction, keepdim=True)
    return (x - mean) / (variance + 1e-5) ** power * scale + shift


def _by_spread(x: Tensor, scale: Tensor, shift: Tensor, more: float) -> Tensor:
    """The normalised vectors, with ε under the root."""
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, correction=0, keepdim=True) + more) * scale + shift


add_norm = Check(
    "add_norm",
    answer=lambda x, out, scale, shift: _normed(x + out, scale, shift),
    cases=_norm_cases,
    misconceptions=[
        Misconception(
            lambda x, out, scale, shift: _normed(out, scale, shift),
            "the input of the sublayer is not added",
            "The residual connection carries it past the sublayer; without it, the word's own vector is lost.",
            _BLOCK,
        ),
        Misconception(
            lambda x, out, scale, shift: x + _normed(out, scale, shift),
            "the normalisation comes before the sum",
            "Add first: in the published order, the sum is normalised.",
            _BLOCK,
        ),
        Misconception(
            lambda x, out, scale, shift: _normed(x + out, scale, shift, (1,)),
            "mean and variance run over the words of a sentence",
            "Layer norm computes them for each word, over its entries: the last axis.",
            _NORM,
        ),
        Misconception(
            lambda x, out, scale, shift: _normed(x + out, scale, shift, (0, 1)),
            "mean and variance run over all words of the batch",
            "That is like batch norm: the result would depend on the other sentences of the batch.",
            _NORM,
        ),
        Misconception(
            lambda x, out, scale, shift: _normed(x + out, scale, shift, correction=1),
            "the variance is divided by C − 1",
            "Here it is the mean of the squares, not an estimate from a sample: divide by C.",
            _BLOCK,
        ),
        Misconception(
            lambda x, out, scale, shift: _normed(x + out, scale, shift, power=1.0),
            "the division is by the variance itself",
            "Divide by its root, and the variance becomes 1.",
            _BLOCK,
        ),
        Misconception(
            lambda x, out, scale, shift: _by_spread(x + out, scale, shift, 0.0),
            "there is no ε under the root",
            "Where all entries are alike the variance is 0, and 0/0 is NaN.",
            _BLOCK,
        ),
        Misconception(
            lambda x, out, scale, shift: _by_spread(x + out, scale, shift, 1e-5),
            "ε is added to the root instead of the variance",
            "For small vectors that makes a difference: √(10⁻⁵) is about .003.",
            _BLOCK,
        ),
    ],
    hints=[
        "Add, then normalise each vector by itself, then scale and shift.",
        "y.var(-1, correction=0, keepdim=True) is the mean square distance from the mean, one for each word.",
        "(y − mean) / √(variance + 10⁻⁵) · scale + shift",
    ],
)


# A loss with smoothed labels.


def _loss_cases(draw: Inputs) -> Iterator[Case]:
    batch, words, vocab = draw.whole(2, 3), draw.whole(4, 7), draw.whole(6, 12)
    pad = draw.whole(0, 2)
    logits, target = draw.normal(batch, words, vocab), 3 + draw.ids(vocab - 3, batch, words)
    padded = target.clone()
    padded[0, 1:], padded[1, -1:] = pad, pad  # one word against many
    yield Case("sentences of one length, smoothing .1", (logits, target, 0.1, pad))
    yield Case("padded sentences, smoothing .2", (logits, padded, 0.2, pad))
    yield Case("padded sentences, no smoothing", (logits, padded, 0.0, pad), edge=True)
    yield Case("logits 200 times as large", (200 * logits, padded, 0.1, pad), edge=True)
    padded = padded.clone()
    padded[0] = pad
    yield Case("a row that is all padding", (logits, padded, 0.1, pad), edge=True)


def _parts(logits: Tensor, target: Tensor, smoothing: float, axis: int = -1) -> Tensor:
    """The loss at each position (B, T)."""
    logs = logits.log_softmax(axis)
    return -(1 - smoothing) * logs.gather(2, target[..., None])[..., 0] - smoothing * logs.mean(-1)


def _kept(parts: Tensor, target: Tensor, pad: int) -> Tensor:
    return parts[target != pad].mean()


def _among_others(logits: Tensor, target: Tensor, smoothing: float, pad: int) -> Tensor:
    vocab = logits.shape[-1]
    share = smoothing * vocab / (vocab - 1)  # takes back what the mean gives to the true token
    return _kept(_parts(logits, target, share), target, pad)


label_smoothing = Check(
    "label_smoothing",
    function="smoothed_loss",
    answer=lambda logits, target, smoothing, pad: functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=pad, label_smoothing=smoothing
    ),
    cases=_loss_cases,
    misconceptions=[
        Misconception(
            lambda logits, target, smoothing, pad: _parts(logits, target, smoothing).mean(),
            "padding is counted like a word",
            "Padding is easy to predict, so the loss then depends on how much padding the batch has.",
            _TRAIN,
        ),
        Misconception(
            lambda logits, target, smoothing, pad: (_parts(logits, target, smoothing) * (target != pad)).mean(),
            "padding costs nothing but is counted in the mean",
            "Divide by the number of true tokens; otherwise the same words cost less in a longer batch.",
            _TRAIN,
        ),
        Misconception(
            lambda logits, target, smoothing, pad: torch.stack(
                [_kept(*row, pad) for row in zip(_parts(logits, target, smoothing), target, strict=True)]
            ).mean(),
            "each sentence has its own mean, and these are averaged",
            "Then a word of a short sentence counts more than one of a long sentence.",
            _TRAIN,
        ),
        Misconception(
            lambda logits, target, smoothing, pad: _kept(_parts(logits, target, 0.0), target, pad),
            "the smoothing is left out",
            "The target is the true token with probability 1 − ε, and any token with what is left.",
            _TRAIN,
        ),
        Misconception(
            _among_others,
            "ε is shared among the other tokens alone",
            "It is spread over all V tokens, the true one included, as PyTorch does it.",
            _TRAIN,
        ),
        Misconception(
            lambda logits, target, smoothing, pad: _kept(_parts(logits, target, smoothing, 1), target, pad),
            "the softmax runs over the positions instead of the vocabulary",
            "At each position the probabilities of all words add up to one.",
            _TRAIN,
        ),
        Misconception(
            lambda logits, target, smoothing, pad: _kept(
                -(1 - smoothing) * logits.softmax(-1).gather(2, target[..., None])[..., 0].log()
                - smoothing * logits.softmax(-1).log().mean(-1),
                target,
                pad,
            ),
            "the logarithm is taken of a softmax",
            "A probability that is rounded to 0 costs ∞. log_softmax never leaves the logarithms.",
            _TRAIN,
        ),
    ],
    hints=[
        "log_softmax over the last axis gives every token's log-probability; gather picks that of the true one.",
        "At one position the loss is −(1 − ε) · (that of the true token) − ε · (the mean over all tokens).",
        "Take the mean over the positions where target != pad.",
    ],
)


# One step of beam search.


def _beam_cases(draw: Inputs) -> Iterator[Case]:
    for name in ("a step", "another step"):
        beams, vocab = draw.whole(3, 5), draw.whole(7, 12)
        logs = (2 * draw.normal(beams, vocab)).log_softmax(-1)
        scores = -5 - draw.uniform(beams).cumsum(0)
        yield Case(name, (scores, logs, torch.zeros(beams, dtype=torch.bool), draw.whole(0, 2)))
    ended = torch.arange(beams) == 1
    yield Case("a step with a finished beam", (scores, logs, ended, draw.whole(2, 4)), edge=True)
    yield Case("a step in which all beams are finished", (scores, logs, torch.ones_like(ended), 3), edge=True)
    first = torch.full((beams,), -math.inf).index_fill(0, torch.tensor(0), 0.0)
    yield Case("the first step, where only one beam counts", (first, logs, torch.zeros_like(ended), 1), edge=True)


def _offers(logs: Tensor, ended: Tensor, eos: int) -> Tensor:
    nothing = torch.full_like(logs, -math.inf)
    nothing[:, eos] = 0.0
    return torch.where(ended[:, None], nothing, logs)


def _best(table: Tensor, number: int, width: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    top, width = table.flatten().topk(number), width or table.shape[1]
    return top.values, top.indices // width, top.indices % width


def _each_its_own(scores: Tensor, logs: Tensor, ended: Tensor, eos: int) -> tuple[Tensor, Tensor, Tensor]:
    best = (scores[:, None] + _offers(logs, ended, eos)).max(1)
    order = best.values.argsort(descending=True)
    return best.values[order], order, best.indices[order]


def _exchanged(scores: Tensor, logs: Tensor, ended: Tensor, eos: int) -> tuple[Tensor, Tensor, Tensor]:
    top, parents, tokens = _best(scores[:, None] + _offers(logs, ended, eos), len(scores))
    return top, tokens, parents


beam_step = Check(
    "beam_step",
    answer=lambda scores, logs, ended, eos: _best(scores[:, None] + _offers(logs, ended, eos), len(scores)),
    cases=_beam_cases,
    misconceptions=[
        Misconception(
            lambda scores, logs, ended, eos: _best(_offers(logs, ended, eos), len(scores)),
            "what the beams have scored so far is not added",
            "Beams are compared by the score of all their words, not by that of the last one.",
            _BEAM,
        ),
        Misconception(
            _each_its_own,
            "each beam continues with its own best word",
            "All continuations of all beams compete: one beam may have several children, another none.",
            _BEAM,
        ),
        Misconception(
            _exchanged,
            "parents and tokens are exchanged",
            "In the flattened table each row belongs to a beam: // V gives the beam, and % V the token.",
            _BEAM,
        ),
        Misconception(
            lambda scores, logs, ended, eos: _best(
                scores[:, None] + _offers(logs, ended, eos), len(scores), len(scores)
            ),
            "positions in the flattened table are divided by the number of beams",
            "A row of the table is as long as the vocabulary.",
            _BEAM,
        ),
        Misconception(
            lambda scores, logs, ended, eos: _best(scores[:, None] + logs, len(scores)),
            "finished beams are continued",
            "Nothing follows <eos>: a finished beam stays among the candidates with its score unchanged.",
            _BEAM,
        ),
        Misconception(
            lambda scores, logs, ended, eos: _best(
                scores[:, None] + logs.masked_fill(ended[:, None], -math.inf), len(scores)
            ),
            "finished beams are dropped",
            "They may be the best ones. They stay with their score unchanged.",
            _BEAM,
        ),
    ],
    hints=[
        "scores[:, None] + log_probs is a table of all continuations, (K, V).",
        "Flatten it, take topk, and find the row and the column again: // V and % V.",
        "Give a finished beam a row of −∞ with a 0 at <eos>, before you add.",
    ],
)
