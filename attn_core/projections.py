"""The linear layers around an attention: sizes, how they start, and what holds of others in their place."""

from typing import Any

import torch
from torch import Tensor, nn

from attn_core.contract import check_integer, kind


def head_size(model_dim: int, num_heads: int, head_dim: int | None = None) -> int:
    """``head_dim`` of these checked sizes, by default ``model_dim / num_heads``."""
    check_integer("model_dim", model_dim)
    check_integer("num_heads", num_heads)
    if head_dim is None and model_dim % num_heads:
        raise ValueError(f"num_heads: expected a number that divides model_dim {model_dim}, got {num_heads}")
    head_dim = model_dim // num_heads if head_dim is None else head_dim
    check_integer("head_dim", head_dim)
    return head_dim


def initialise(*layers: nn.Linear) -> None:
    """After Glorot and Bengio 2010, the biases at zero."""
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def is_plain_linear(*layers: nn.Module) -> bool:
    """Whether ``weight`` is all that these layers multiply by: LoRA's may still have the attribute of its base."""
    return all(type(layer) is nn.Linear for layer in layers)


def check_vectors(name: str, x: Tensor, size: int, projection: nn.Module) -> None:
    """``x`` is floating, ``(batch, length, size)``, and of the device and dtype of a plain ``projection``."""
    if not isinstance(x, Tensor) or x.dim() != 3 or not x.dtype.is_floating_point or x.shape[2] != size:
        raise ValueError(f"{name}: expected a floating tensor of shape (batch, length, {size}), got {kind(x)}")
    weight: Any = projection.weight if is_plain_linear(projection) else x
    if x.device != weight.device:
        raise ValueError(f"{name}: expected device {weight.device}, the weights', got {x.device}")
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(f"{name}: expected dtype {weight.dtype}, the weights', got {x.dtype}")


def like_parameters(module: nn.Module) -> Tensor:
    """A floating parameter, for its dtype and device: float32 on the CPU where all are quantised, as they run there."""
    empty = torch.empty(0, dtype=torch.float32, device="cpu")
    return next((x for x in module.parameters() if x.is_floating_point()), empty)


def like_projected(module: nn.Module) -> dict[str, Any]:
    """The dtype and device of what a module's linear layers give, also under autocast."""
    like = like_parameters(module)
    device = like.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else like.dtype
    return {"dtype": dtype, "device": like.device}


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """``(B, n, heads · D)`` to ``(B, heads, n, D)``; a view."""
    return x.view(*x.shape[:2], x.shape[2] // head_dim, head_dim).transpose(1, 2)
