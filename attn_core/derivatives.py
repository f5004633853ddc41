"""What stands beside a mechanism's own backward pass: derivatives that it does not have are refused, never wrong.

A mechanism that works in tiles tells PyTorch its first gradient and nothing beyond it. PyTorch's ``once_differentiable``
refuses a second derivative only if the incoming gradient has one; a constant one, as below frozen layers, gives
gradients that look like constants, and whatever is computed from them loses a term without an error.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

Gradients = tuple[Tensor | None, ...]


def transformed() -> bool:
    """Whether a transform of ``torch.func`` is at work, in which the entries of a tensor cannot be read."""
    return torch._C._are_functorch_transforms_active()


def forward_mode() -> bool:
    """Whether tangents may be carried along: a dual level is open, by ``torch.func.jvp`` too."""
    return forward_ad._current_level >= 0


def refuse_transforms(name: str, *tensors: Tensor | None) -> None:
    """For what has a backward pass of its own: neither ``torch.func`` nor forward-mode derivatives know their way.

    Raises:
        ValueError: inside ``vmap``, ``grad`` or another transform, or if one of ``tensors`` has a tangent.
    """
    if transformed() or any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors):
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
