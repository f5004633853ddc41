"""Checks of the REINFORCE gradient of hard attention, and its variance."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception

_CHOICE = ("chapters/03_luong", "Hard attention: one source word at a time")


def _choice_cases(draw: Inputs) -> Iterator[Case]:
    for name, b in (("no baseline", 0.0), ("a baseline", -1.0 - float(draw.uniform()))):
        positions = draw.whole(3, 6)
        yield Case(name, (draw.normal(positions).softmax(0), -3 * draw.uniform(positions), b))
    alpha = draw.normal(4).softmax(0)
    yield Case("the mean reward as the baseline", (alpha, alpha - 2, float(alpha @ (alpha - 2))), edge=True)
    yield Case("a choice that is certain", (torch.tensor([0.0, 1.0, 0.0]), -draw.uniform(3), 0.5), edge=True)


def _variances(alpha: Tensor, reward: Tensor, b: float, chances: Tensor | None = None) -> Tensor:
    """The variance of each entry of the estimate; ``chances``, by default alpha, are the positions' probabilities."""
    chances = alpha if chances is None else chances
    samples = (reward - b)[:, None] * (torch.eye(len(alpha)) - alpha)
    return chances @ samples**2 - (chances @ samples) ** 2


def _root(variances: Tensor) -> float:
    return float(variances.sum().clamp(min=0).sqrt())


def _uncentred(alpha: Tensor, reward: Tensor, b: float) -> float:
    samples = torch.diag(reward - b)
    return _root(alpha @ samples**2 - (alpha @ samples) ** 2)


def _second(alpha: Tensor, reward: Tensor, b: float) -> float:
    return _root(alpha @ ((reward - b)[:, None] * (torch.eye(len(alpha)) - alpha)) ** 2)


reinforce_spread = Check(
    "reinforce_spread",
    answer=lambda alpha, reward, b: _root(_variances(alpha, reward, b)),
    cases=_choice_cases,
    misconceptions=[
        Misconception(
            lambda alpha, reward, b: _root(_variances(alpha, reward, b, torch.full_like(alpha, 1 / len(alpha)))),
            "all positions are equally likely",
            "Position i is drawn with probability αᵢ, so it has this weight in the sum.",
            _CHOICE,
        ),
        Misconception(
            _second,
            "the square of the mean is not subtracted",
            "A variance is the mean square minus the square of the mean.",
            _CHOICE,
        ),
        Misconception(
            _uncentred,
            "the gradient of log αᵢ is taken to be 1 at the drawn position and 0 elsewhere",
            "With respect to the scores, ∇ log αᵢ is that one-hot vector minus α: the other positions lose what "
            "this one gains.",
            _CHOICE,
        ),
        Misconception(
            lambda alpha, reward, b: _root(_variances(alpha, reward, -b)),
            "the baseline is added to the reward",
            "It is subtracted: what counts is how much better than b a draw did.",
            _CHOICE,
        ),
        Misconception(
            lambda alpha, reward, b: _root(_variances(alpha, reward, 0.0)),
            "the baseline is not used",
            "The baseline leaves the mean unchanged, but it changes the spread.",
            _CHOICE,
        ),
        Misconception(
            lambda alpha, reward, b: float(_variances(alpha, reward, b).sum()),
            "the root is missing",
            "The spread is the root of the variances' sum, in the unit of the gradient.",
            _CHOICE,
        ),
        Misconception(
            lambda alpha, reward, b: float(_variances(alpha, reward, b).clamp(min=0).sqrt().sum()),
            "the roots of the variances are added",
            "The spread is the length of the vector of standard deviations: add first, then take the root.",
            _CHOICE,
        ),
    ],
    hints=[
        (
            "With torch.eye(n) - alpha, row i is the gradient of log αᵢ. The sample for position i is (reward[i] "
            "- b) times that row."
        ),
        "A mean over draws is a sum over positions, weighted by alpha: that of the samples, and that of their squares.",
        "For each entry: the mean square minus the square of the mean. Add the entries, take the root.",
    ],
)


# REINFORCE with the other draws as the baseline.


def _draw_cases(draw: Inputs) -> Iterator[Case]:
    for name in ("a few draws", "other draws"):
        positions = draw.whole(4, 7)
        yield Case(name, _drawn(draw, positions, draw.whole(6, 12)))
    yield Case("two draws", _drawn(draw, 4, 2), edge=True)
    scores, draws, rewards = _drawn(draw, 5, 8)
    yield Case("rewards that are all equal", (scores, draws, torch.full_like(rewards, -2.0)), edge=True)
    yield Case("large rewards", (scores, draws, rewards - 1000), edge=True)


def _drawn(draw: Inputs, positions: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    return draw.normal(positions), draw.ids(positions, count), -3 * draw.uniform(count)


def _pull(scores: Tensor, draws: Tensor) -> Tensor:
    return torch.eye(len(scores))[draws] - scores.softmax(0)


def _others(rewards: Tensor) -> Tensor:
    return (rewards.sum() - rewards) / (len(rewards) - 1)


def _estimate(scores: Tensor, draws: Tensor, better: Tensor) -> Tensor:
    return (better[:, None] * _pull(scores, draws)).mean(0)


reinforce_gradient = Check(
    "reinforce_gradient",
    answer=lambda scores, draws, rewards: _estimate(scores, draws, rewards - _others(rewards)),
    cases=_draw_cases,
    close=1e-3,
    misconceptions=[
        Misconception(
            lambda scores, draws, rewards: _estimate(scores, draws, rewards),
            "there is no baseline",
            "The mean is right without one, but the noise grows with the rewards.",
            _CHOICE,
        ),
        Misconception(
            lambda scores, draws, rewards: _estimate(scores, draws, rewards - rewards.mean()),
            "the baseline is the mean reward of all draws",
            "It contains the draw's own reward, so it depends on the draw, and the estimate comes out too small.",
            _CHOICE,
        ),
        Misconception(
            lambda scores, draws, rewards: _estimate(scores, draws, rewards - (rewards.sum() - rewards) / len(rewards)),
            "the sum over the others is divided by the number of all draws",
            "There are N − 1 others.",
            _CHOICE,
        ),
        Misconception(
            lambda scores, draws, rewards: (
                (rewards - _others(rewards))[:, None] * torch.eye(len(scores))[draws] / scores.softmax(0)
            ).mean(0),
            "the gradient is with respect to the weights",
            "With respect to the weights, ∇ log α is 1/α. With respect to the scores it is a one-hot vector minus α.",
            _CHOICE,
        ),
        Misconception(
            lambda scores, draws, rewards: len(draws) * _estimate(scores, draws, rewards - _others(rewards)),
            "the draws are added up instead of averaged",
            "The estimate is a mean over the draws.",
            _CHOICE,
        ),
        Misconception(
            lambda scores, draws, rewards: _estimate(scores, draws, _others(rewards) - rewards),
            "the sign is reversed",
            "A draw that did better than the others must become more likely.",
            _CHOICE,
        ),
        Misconception(
            lambda scores, draws, rewards: _estimate(
                scores, draws, scores.softmax(0)[draws] * (rewards - _others(rewards))
            ),
            "each draw is weighted by its probability once more",
            "A likely position is already drawn more often, so its probability must not count twice.",
            _CHOICE,
        ),
    ],
    hints=[
        "torch.eye(S)[draws] - alpha has a row for each draw: the gradient of its log-probability.",
        "The mean reward of the others is (rewards.sum() - rewards) / (N - 1).",
        "Multiply each row by how much better its draw did than the others, and take the mean over the draws.",
    ],
)
