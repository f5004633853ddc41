"""What layers with several heads share: the size of a head, vectors cut into heads, and how projections start."""

from torch import Tensor, nn

from attn_core.contract import check_integer


def head_size(model_dim: int, num_heads: int, head_dim: int | None = None) -> int:
    """The size of a head: ``head_dim``, or ``model_dim / num_heads`` where it is left out; checks all three."""
    check_integer("model_dim", model_dim)
    check_integer("num_heads", num_heads)
    if head_dim is None:
        if model_dim % num_heads:
            raise ValueError(f"num_heads: expected a number that divides model_dim {model_dim}, got {num_heads}")
        return model_dim // num_heads
    check_integer("head_dim", head_dim)
    return head_dim


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """``(B, n, heads · D)`` to ``(B, heads, n, D)``; a view."""
    return x.unflatten(2, (-1, head_dim)).transpose(1, 2)


def start_by_glorot(*layers: nn.Module) -> None:
    """Draw the weights of the linear layers among these after Glorot and Bengio 2010; their biases are zero."""
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
