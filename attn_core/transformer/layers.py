"""The layers of a Transformer: attention and feed-forward networks, each with its residual connection and its norm."""

from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor, nn

from attn_core.contract import check_dropout, check_factory, check_integer, kind
from attn_core.multi_head import MultiHeadAttention
from attn_core.positions import RelativePositions
from attn_core.transformer.config import TransformerConfig

Mechanism = Callable[..., Tensor]
Layer = TypeVar("Layer", bound=nn.Module)


class AddNorm(nn.Module):
    """A residual connection around a sublayer, and a norm: after the sum, or before the sublayer.

    Source: Vaswani et al. 2017, section 3.1 (after); Xiong et al. 2020 (before).
    """

    def __init__(
        self, model_dim: int, *, dropout: float, norm_first: bool, norm: Callable[[int], nn.Module] = nn.LayerNorm
    ) -> None:
        super().__init__()
        check_integer("model_dim", model_dim)
        check_dropout(dropout)
        check_factory("norm", norm)
        self.norm = norm(model_dim)
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """``x (B, T, C)`` plus the output of ``sublayer``: the same shape."""
        added = sublayer(self.norm(x) if self.norm_first else x)
        if self.dropout.training:  # dropout that does nothing would still take half as long as a layer norm
            added = self.dropout(added)
        return x + added if self.norm_first else self.norm(x + added)


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each in its ``AddNorm``; also the layer of decoder-only models.

    ``mechanism`` and ``positions`` are those of ``MultiHeadAttention``.

    Source: Vaswani et al. 2017, figure 1, left.
    """

    def __init__(
        self,
        config: TransformerConfig,
        *,
        mechanism: Mechanism | None = None,
        positions: RelativePositions | None = None,
    ) -> None:
        super().__init__()
        self.attention = _attention(config.attention, config, mechanism=mechanism, positions=positions)
        self.feed_forward = _feed_forward(config)
        self.add_attention, self.add_feed_forward = (_add_norm(config) for _ in range(2))

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        """``x (B, T, C)`` to the same shape; ``options`` are the keywords of ``MultiHeadAttention.forward``."""
        x = self.add_attention(x, lambda x: self.attention(x, **options))
        return self.add_feed_forward(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to an encoder's output, then a feed-forward network.

    ``mechanism`` and ``positions`` belong to the self-attention. A ``cross_mechanism`` that is ``aligned_only``, as
    ``SlidingWindow`` is, is refused: the place of a target token among the source's would depend on how many are read
    at once.

    Source: Vaswani et al. 2017, figure 1, right.
    """

    def __init__(
        self,
        config: TransformerConfig,
        *,
        mechanism: Mechanism | None = None,
        cross_mechanism: Mechanism | None = None,
        positions: RelativePositions | None = None,
    ) -> None:
        super().__init__()
        if getattr(cross_mechanism, "aligned_only", False):
            raise ValueError(f"cross_mechanism: expected one that places no queries, got {kind(cross_mechanism)}")
        self.attention = _attention(config.attention, config, mechanism=mechanism, positions=positions)
        self.cross_attention = _attention(MultiHeadAttention, config, mechanism=cross_mechanism)
        self.feed_forward = _feed_forward(config)
        self.add_attention, self.add_cross, self.add_feed_forward = (_add_norm(config) for _ in range(3))

    def forward(
        self, x: Tensor, memory: tuple[Tensor, Tensor], *, memory_mask: Tensor | None = None, **options: Any
    ) -> Tensor:
        """``x (B, T, C)`` to the same shape.

        ``memory`` is the encoder's output after ``cross_attention.project_kv``, ``memory_mask`` its mask. The
        self-attention is causal; ``options`` are its ``mask`` and ``cache``.
        """
        x = self.add_attention(x, lambda x: self.attention(x, causal=True, **options))
        x = self.add_cross(x, lambda x: self.cross_attention.attend(x, *memory, mask=memory_mask))
        return self.add_feed_forward(x, self.feed_forward)


def _attention(make: Callable[..., Layer], config: TransformerConfig, **options: Any) -> Layer:
    return make(config.model_dim, config.num_heads, num_kv_heads=config.num_kv_heads, bias=config.bias, **options)


def _feed_forward(config: TransformerConfig) -> nn.Module:
    return config.feed_forward(config.model_dim, config.feed_forward_dim, dropout=config.dropout, bias=config.bias)


def _add_norm(config: TransformerConfig) -> AddNorm:
    return AddNorm(config.model_dim, dropout=config.dropout, norm_first=config.norm_first, norm=config.norm)
