"""Mechanisms with a backward pass of their own: derivatives that they do not have are refused, never wrong.

Such a mechanism tells PyTorch its first gradient and nothing beyond it. PyTorch's own ``once_differentiable`` refuses a
second derivative only where the incoming gradient requires one. Where that is a constant, as below frozen layers, the
gradients would look like constants, too, and a penalty on them would silently be lost.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attn_core.contract import transformed, without_autocast

Gradients = tuple[Tensor | None, ...]


def refuse_transforms(name: str, *tensors: Tensor | None) -> None:
    """Raise a ``ValueError`` under ``torch.func`` and in forward mode, which know no backward pass of our own."""
    if transformed(*tensors):
        raise ValueError(
            f"{name}: expected a plain call, got one under torch.func or forward-mode differentiation; "
            "attn_core.attention_with_weights takes both"
        )


def first_order(name: str, algorithm: Callable[..., Any], *arguments: Any) -> Tensor:
    """The output of ``algorithm(*arguments)``, with the gradients that it computes itself and no further derivative.

    ``algorithm`` makes an object of two methods, which run without autocast. ``forward()`` returns the output, and
    after it what the backward pass needs. ``backward(…)`` takes all of these and the output's gradient, and returns the
    gradients of the first arguments. To differentiate these gradients raises a ``RuntimeError``.
    """
    refuse_transforms(name, *(x for x in arguments if isinstance(x, Tensor)))
    out: Tensor = _FirstOrder.apply(name, algorithm, *arguments)
    return out


class _FirstOrder(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str, algorithm: Callable[..., Any], *arguments: Any) -> Tensor:
        with without_autocast(arguments[0]):
            results = algorithm(*arguments).forward()
        ctx.name, ctx.algorithm = name, algorithm
        ctx.others = [None if isinstance(x, Tensor) else x for x in arguments]
        ctx.save_for_backward(*(x if isinstance(x, Tensor) else None for x in arguments), *results)
        out: Tensor = results[0]
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        refuse_transforms(ctx.name)
        saved, count = ctx.saved_tensors, len(ctx.others)  # saved once: a checkpoint does not give them twice
        arguments = (x if other is None else other for x, other in zip(saved[:count], ctx.others, strict=True))
        with torch.no_grad(), without_autocast(gradient):
            gradients: Gradients = tuple(ctx.algorithm(*arguments).backward(*saved[count:], gradient))
        if torch.is_grad_enabled():
            gradients = _Last.apply(ctx.name, gradients, *saved, gradient)
        return None, None, *gradients, *[None] * (count - len(gradients))


class _Last(torch.autograd.Function):
    """Gradients as they are, as a function of what they depend on that cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, name: str, gradients: Gradients, *_: Tensor | None) -> Gradients:
        ctx.name = name
        return gradients

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Gradients:
        raise RuntimeError(
            f"{ctx.name}: expected no second derivative, got one to compute; attn_core.attention_with_weights has one"
        )
