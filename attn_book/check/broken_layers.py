"""The bug gallery: multi-head attention step by step, and ten versions with one wrong step that no shape test notices.

``specimen(number)`` gives a broken layer as a black box; ``reveal(number)`` says what is wrong with it.
"""

import math

import torch
from torch import Tensor, nn


class StepByStep(nn.Module):
    """Multi-head attention with each step in a method of its own. This one is right; each of the ten breaks one step.

    Called as ``layer(queries, keys, mask=…, causal=…)`` with ``queries (B, T, C)``, ``keys (B, S, C)``, by default the
    queries, and a boolean ``mask`` (True = may attend) that broadcasts to ``(B, H, T, S)``; returns ``(B, T, C)``. The
    keys are the values too. Use ``attn_core.MultiHeadAttention`` in practice; it has the same parameters.

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(self, model_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.out = (nn.Linear(model_dim, model_dim) for _ in range(4))

    def forward(
        self, queries: Tensor, keys: Tensor | None = None, *, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Project, split, score, weigh, mix, merge, project."""
        keys = queries if keys is None else keys
        q, k, v = self.split(self.query(queries)), self.split(self.key(keys)), self.split(self.value(keys))
        allowed = self.allow(mask, causal, (*q.shape[:3], k.shape[2]), q.device)
        weights = self.weigh(self.score(q, k), allowed)
        return self.out(self.merge(weights @ v))

    def split(self, x: Tensor) -> Tensor:
        """``(B, n, C)`` to ``(B, H, n, D)``: cut the vectors, then swap the axes."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        """Scaled products ``(B, H, T, S)``."""
        return q @ k.mT / math.sqrt(q.shape[-1])

    def allow(self, mask: Tensor | None, causal: bool, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """Which keys are visible: ``(B, H, T, S)``, or a shape that broadcasts to it."""
        allowed = torch.ones(shape, dtype=torch.bool, device=device)
        if causal:
            allowed = allowed.tril(shape[3] - shape[2])
        return allowed if mask is None else allowed & mask

    def weigh(self, scores: Tensor, allowed: Tensor) -> Tensor:
        """Softmax over the visible keys; a row without any gets zeros."""
        weights = scores.masked_fill(~allowed, -math.inf).softmax(-1)
        return weights.masked_fill(~allowed.any(-1, keepdim=True), 0.0)

    def merge(self, out: Tensor) -> Tensor:
        """``(B, H, T, D)`` to ``(B, T, C)``: swap the axes, then join the vectors."""
        return out.transpose(1, 2).flatten(2)


class SplitByView(StepByStep):
    """The vectors are cut into heads by a view to (B, H, n, D), without the transpose.

    A head then has a few whole tokens instead of a slice of every token.
    """

    def split(self, x: Tensor) -> Tensor:
        """Wrong."""
        return x.contiguous().view(x.shape[0], self.num_heads, x.shape[1], -1)


class MergeByView(StepByStep):
    """The heads are joined by a view to (B, T, C), without the transpose back.

    Each output vector is put together from pieces of several tokens.
    """

    def merge(self, out: Tensor) -> Tensor:
        """Wrong."""
        return out.contiguous().view(out.shape[0], out.shape[2], -1)


class SoftmaxOverQueries(StepByStep):
    """The softmax runs over the axis of the queries instead of the keys.

    Each key distributes a total weight of one among the queries, so what a query gets depends on its neighbours.
    """

    def weigh(self, scores: Tensor, allowed: Tensor) -> Tensor:
        """Wrong."""
        return scores.masked_fill(~allowed, -math.inf).softmax(-2).nan_to_num(0.0)


class InvertedMask(StepByStep):
    """The mask is read the other way round, with True for "hide".

    PyTorch itself has both: True means "may attend" in scaled_dot_product_attention, "hide" in nn.MultiheadAttention.
    """

    def allow(self, mask: Tensor | None, causal: bool, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """Wrong."""
        return super().allow(None if mask is None else ~mask, causal, shape, device)


class CausalOffByOne(StepByStep):
    """The causal mask begins one diagonal too high: each token attends to the next one.

    In a language model this is the very token that it has to predict.
    """

    def allow(self, mask: Tensor | None, causal: bool, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """Wrong."""
        allowed = super().allow(mask, False, shape, device)
        return allowed.tril(shape[3] - shape[2] + 1) if causal else allowed


class Unscaled(StepByStep):
    """The products are not divided by √D.

    They grow with the head dimension, and the softmax then chooses a single key.
    """

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        """Wrong."""
        return q @ k.mT


class MaskAfterSoftmax(StepByStep):
    """The mask is multiplied in after the softmax.

    The masked keys have already taken their share, so the remaining weights do not sum to one.
    """

    def weigh(self, scores: Tensor, allowed: Tensor) -> Tensor:
        """Wrong."""
        return scores.softmax(-1) * allowed


class CausalWhileTraining(StepByStep):
    """The causal mask is applied in training mode only.

    Losses measured in evaluation mode then come from a model that reads later tokens.
    """

    def allow(self, mask: Tensor | None, causal: bool, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """Wrong."""
        return super().allow(mask, causal and self.training, shape, device)


class MaskOfAnotherSentence(StepByStep):
    """The padding mask is repeated for the heads in the wrong order.

    Once batch and heads share an axis, `repeat` and `repeat_interleave` give the same shape. With the first, a sentence
    gets the padding of another.
    """

    def allow(self, mask: Tensor | None, causal: bool, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """Wrong."""
        if mask is not None and mask.dim() == 4 and mask.shape[1] == 1:
            mask = mask.repeat(self.num_heads, 1, 1, 1).view(shape[0], self.num_heads, *mask.shape[2:])
        return super().allow(mask, causal, shape, device)


class HeadsOfSizeOne(StepByStep):
    """The number of heads is taken from the wrong variable, the model's size.

    Every vector is cut into single numbers. The layer runs and learns a little, and every shape is right.
    """

    def __init__(self, model_dim: int, num_heads: int) -> None:
        super().__init__(model_dim, model_dim)


_BROKEN = (
    CausalWhileTraining,
    MergeByView,
    MaskAfterSoftmax,
    HeadsOfSizeOne,
    CausalOffByOne,
    InvertedMask,
    SoftmaxOverQueries,
    Unscaled,
    SplitByView,
    MaskOfAnotherSentence,
)

SPECIMENS = len(_BROKEN)
"""The number of broken layers."""


def specimen(number: int) -> type[StepByStep]:
    """The class of a broken layer, to be called with ``model_dim`` and ``num_heads``; its name does not reveal the bug.

    Raises:
        ValueError: if ``number`` is not an integer from 1 to 10.
    """
    return type("Specimen", (_broken(number),), {"__doc__": "A multi-head attention with one bug."})


def reveal(number: int) -> str:
    """The bug of a specimen, and its consequences.

    Raises:
        ValueError: if ``number`` is not an integer from 1 to 10.
    """
    text = " ".join((_broken(number).__doc__ or "").split())
    return f"{_broken(number).__name__}: {text}"


def _broken(number: int) -> type[StepByStep]:
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= SPECIMENS:
        raise ValueError(f"number: expected a specimen from 1 to {SPECIMENS}, got {number!r}")
    return _BROKEN[number - 1]
