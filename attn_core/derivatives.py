"""What stands beside a mechanism's own backward pass: derivatives that it does not have are refused, never wrong.

A mechanism that works in tiles tells PyTorch its first gradient and nothing beyond it. PyTorch's own
``once_differentiable`` refuses a second derivative only where the incoming gradient requires one. Where that is a
constant, as below frozen layers, its gradients look like constants, too, and a penalty on them is silently lost.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

Gradients = tuple[Tensor | None, ...]


def transformed(*tensors: Tensor | None) -> bool:
    """Whether ``torch.func`` is at work, where no entry can be read, or a tensor has a tangent of forward mode."""
    if torch._C._are_functorch_transforms_active():
        return True
    dual = forward_ad._current_level >= 0  # asked first: unpacking every tensor of every call would cost microseconds
    return dual and any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors)


def refuse_transforms(name: str, *tensors: Tensor | None) -> None:
    """For what has a backward pass of its own, which ``torch.func`` and forward mode do not know: a ``ValueError``."""
    if transformed(*tensors):
        raise ValueError(
            f"{name}: expected a plain call, got one under torch.func or forward-mode differentiation; "
            "attn_core.attention_with_weights takes both"
        )


def without_second_derivative(name: str) -> Callable[[Callable[..., Gradients]], Callable[..., Gradients]]:
    """Make of ``backward(ctx, saved, *incoming)`` one whose gradients raise an error where they are differentiated.

    ``saved`` are the tensors that ``forward`` saved, all its differentiable inputs among them. What depends on these or
    on the incoming gradients raises a ``RuntimeError``; a first gradient alone costs nothing.
    """

    def decorate(backward: Callable[..., Gradients]) -> Callable[..., Gradients]:
        @functools.wraps(backward)
        def once(ctx: Any, *incoming: Tensor) -> Gradients:
            refuse_transforms(name)
            saved = ctx.saved_tensors  # once: a checkpoint does not give them twice
            with torch.no_grad():
                gradients = backward(ctx, saved, *incoming)
            if not torch.is_grad_enabled():
                return gradients
            found: Gradients = _Last.apply(name, gradients, *saved, *incoming)
            return found

        return once

    return decorate


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
