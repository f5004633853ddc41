"""Stacks of layers, and the embedding that they begin with."""

import math
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from attn_core.cache import Cache, KVCache, rollback_on_error
from attn_core.contract import check_factory, check_integer
from attn_core.mechanisms.dense import Dense
from attn_core.positions import RelativePositions, Sinusoidal
from attn_core.transformer.config import TransformerConfig
from attn_core.transformer.layers import DecoderLayer, EncoderLayer, Mechanism


class TokenEmbedding(nn.Module):
    """Token ids ``(B, T)`` to vectors ``(B, T, C)``: embedded, scaled by √C, positions added, dropout.

    The matrix starts at standard deviation 1/√C. Multiplied by √C, a vector is as long as a position's, and ``logits``,
    which uses the same matrix, turns normalised vectors into logits of size 1.

    Source: Vaswani et al. 2017, section 3.4; Press and Wolf 2017 (one matrix for both ends).
    """

    def __init__(self, vocab_size: int, config: TransformerConfig, positions: nn.Module | None) -> None:
        super().__init__()
        check_integer("vocab_size", vocab_size)
        self.tokens = nn.Embedding(vocab_size, config.model_dim)
        nn.init.normal_(self.tokens.weight, std=config.model_dim**-0.5)
        self.scale = math.sqrt(config.model_dim) if config.scale_embedding else 1.0
        self.positions = positions
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: Tensor, offset: int | Tensor = 0) -> Tensor:
        """``offset`` is the number of positions before the first token, or ``(B,)`` of them."""
        x = self.tokens(tokens) * self.scale
        x = x if self.positions is None else self.positions(x, offset)
        return self.dropout(x) if self.dropout.training else x

    def logits(self, x: Tensor) -> Tensor:
        """``x (…, C)`` to logits ``(…, V)``."""
        return functional.linear(x, self.tokens.weight)


class EncoderStack(nn.Module):
    """``num_layers`` encoder layers; with ``norm_first`` also a last norm.

    Source: Vaswani et al. 2017, figure 1, left.
    """

    def __init__(
        self,
        config: TransformerConfig,
        *,
        mechanism: Callable[[], Mechanism] = Dense,
        positions: RelativePositions | None = None,
    ) -> None:
        super().__init__()
        check_factory("mechanism", mechanism)
        self.layers = nn.ModuleList(
            EncoderLayer(config, mechanism=mechanism(), positions=positions) for _ in range(config.num_layers)
        )
        self.norm = config.norm(config.model_dim) if config.norm_first else nn.Identity()

    def forward(self, x: Tensor, *, caches: Sequence[Cache] | None = None, **options: Any) -> Tensor:
        """Vectors ``x (B, T, C)`` to the same shape; ``options`` are the keywords of ``MultiHeadAttention.forward``.

        There is one cache for each layer. A call that fails in any layer leaves all caches as they were.
        """
        with rollback_on_error(caches or []):
            for layer, cache in zip(self.layers, caches or repeat(None), strict=caches is not None):
                x = layer(x, cache=cache, **options)
        return self.norm(x)


class DecoderStack(nn.Module):
    """``num_layers`` decoder layers; the last norm as in ``EncoderStack``.

    Source: Vaswani et al. 2017, figure 1, right.
    """

    def __init__(
        self,
        config: TransformerConfig,
        *,
        mechanism: Callable[[], Mechanism],
        cross_mechanism: Callable[[], Mechanism],
        positions: RelativePositions | None = None,
    ) -> None:
        super().__init__()
        check_factory("mechanism", mechanism)
        check_factory("cross_mechanism", cross_mechanism)
        self.layers = nn.ModuleList(
            DecoderLayer(config, mechanism=mechanism(), cross_mechanism=cross_mechanism(), positions=positions)
            for _ in range(config.num_layers)
        )
        self.norm = config.norm(config.model_dim) if config.norm_first else nn.Identity()

    def project_kv(self, memory: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Every layer's cross-attention keys and values of the encoder's output ``(B, S, C)``, made once."""
        layers: Any = self.layers
        return [layer.cross_attention.project_kv(memory) for layer in layers]

    def forward(
        self,
        x: Tensor,
        memory: Sequence[tuple[Tensor, Tensor]],
        *,
        caches: Sequence[Cache] | None = None,
        **options: Any,
    ) -> Tensor:
        """Vectors ``x (B, T, C)`` to the same shape; ``memory`` is from ``project_kv``; see ``DecoderLayer``."""
        with rollback_on_error(caches or []):
            for layer, kv, cache in zip(self.layers, memory, caches or repeat(None), strict=caches is not None):
                x = layer(x, kv, cache=cache, **options)
        return self.norm(x)


def new_caches(layers: Any, batch_size: int, capacity: int) -> list[KVCache]:
    """An empty cache for the self-attention of each layer."""
    return [layer.attention.new_cache(batch_size, capacity) for layer in layers]


def placed(
    config: TransformerConfig, positions: Callable[[], nn.Module] | None
) -> tuple[nn.Module | None, RelativePositions | None]:
    """The positions of one stack, in the place where they act: added to the embeddings, or inside the scores."""
    if positions is not None:
        check_factory("positions", positions)
    made: Any = Sinusoidal(config.model_dim) if positions is None else positions()
    return (None, made) if hasattr(made, "rotate") else (made, None)
