"""The sizes of a Transformer."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from attn_core.contract import check_dropout, check_factory, check_flags, check_integer, check_soft_cap
from attn_core.multi_head import MultiHeadAttention
from attn_core.transformer.feed_forward import FeedForward


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes and the order of operations that all parts of a Transformer share.

    ``vocab_size`` is the target's; ``source_vocab_size`` the source's, None where both share one vocabulary and one
    embedding. ``num_layers`` counts for each stack. ``num_kv_heads`` below ``num_heads`` is grouped-query attention.
    ``dropout`` acts on embeddings, in the feed-forward network, and on what each sublayer adds. With ``norm_first``
    layer norm stands before each sublayer and once at the end of a stack (pre-norm); without it after each sum
    (post-norm). With ``share_query_key`` queries and keys of each self-attention have one projection, as
    ``LSHAttention`` needs.

    The defaults are those of 2017. A model of the Llama family has ``norm_first=True``, ``norm=nn.RMSNorm`` (with its
    epsilon: ``partial(nn.RMSNorm, eps=1e-5)``), ``feed_forward=SwiGLU``, ``bias=False`` and ``scale_embedding=False``.
    ``norm`` is called with ``model_dim``; ``feed_forward`` with ``model_dim``, ``feed_forward_dim`` and the keywords
    ``dropout`` and ``bias``; ``attention``, each layer's self-attention, with ``model_dim``, ``num_heads`` and the
    keywords ``num_kv_heads``, ``bias``, ``share_query_key``, ``positions`` and ``mechanism`` of ``MultiHeadAttention``,
    which is the default: ``partial(MultiHeadAttention, query_key_norm=nn.RMSNorm)``. ``bias`` counts for every
    projection, and ``scale_embedding`` multiplies embeddings by √C. With ``soft_cap`` c a logit x of a token becomes
    c · tanh(x / c), which keeps its size below c.

    Whether the sizes fit together is for ``attention`` to say, when a model is made.

    Source: Vaswani et al. 2017, section 3 and table 3; Xiong et al. 2020 (where the norm stands); Gemma Team 2024,
    section 2 (soft cap).
    """

    vocab_size: int
    source_vocab_size: int | None = None
    model_dim: int = 512
    num_heads: int = 8
    num_kv_heads: int | None = None
    num_layers: int = 6
    feed_forward_dim: int = 2048
    dropout: float = 0.1
    norm_first: bool = False
    share_query_key: bool = False
    norm: Callable[[int], nn.Module] = nn.LayerNorm
    feed_forward: Callable[..., nn.Module] = FeedForward
    bias: bool = True
    scale_embedding: bool = True
    attention: Callable[..., nn.Module] = MultiHeadAttention
    soft_cap: float | None = None

    def __post_init__(self) -> None:
        for name in ("vocab_size", "model_dim", "num_heads", "num_layers", "feed_forward_dim"):
            check_integer(name, getattr(self, name))
        for name in ("source_vocab_size", "num_kv_heads"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        for name in ("norm_first", "share_query_key", "bias", "scale_embedding"):
            check_flags(**{name: getattr(self, name)})
        check_dropout(self.dropout)
        for name in ("norm", "feed_forward", "attention"):
            check_factory(name, getattr(self, name))
        check_soft_cap(self.soft_cap)

    @classmethod
    def base(cls, vocab_size: int = 37_000) -> "TransformerConfig":
        """The paper's base model, 65 million parameters by its count, 63 by ours, for 37,000 tokens."""
        return cls(vocab_size)

    @classmethod
    def big(cls, vocab_size: int = 37_000) -> "TransformerConfig":
        """The paper's big model, about 213 million parameters; its dropout is the one for English–German."""
        return cls(vocab_size, model_dim=1024, num_heads=16, feed_forward_dim=4096, dropout=0.3)
