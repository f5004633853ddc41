"""The sizes of a Transformer."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from attn_core.contract import check_dropout, check_factory, check_flags, check_integer
from attn_core.multi_head import MultiHeadAttention
from attn_core.transformer.feed_forward import FeedForward


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes and the order of operations that all parts of a Transformer share.

    ``vocab_size`` is the target's; ``source_vocab_size`` the source's, None where both share one vocabulary and one
    embedding. ``num_layers`` is that of each stack. ``dropout`` acts on embeddings, in the feed-forward network, and on
    the output of each sublayer. With ``norm_first`` there is a norm before each sublayer and one at the end of a stack
    (pre-norm), otherwise one after each sum (post-norm). ``bias`` is that of every projection; ``scale_embedding``
    multiplies embeddings by √C.

    Three parts are functions. ``norm`` is called with ``model_dim``; ``feed_forward`` with ``model_dim``,
    ``feed_forward_dim`` and the keywords ``dropout`` and ``bias``; ``attention``, which makes each self-attention, as
    ``MultiHeadAttention`` with ``model_dim``, ``num_heads`` and the keywords ``num_kv_heads``, ``bias``, ``positions``
    and ``mechanism``. Its other options are set by, for example, ``partial(MultiHeadAttention, gate=True)``.

    The defaults are those of 2017. A model of the Llama family has ``norm_first=True``, ``norm=nn.RMSNorm``,
    ``feed_forward=SwiGLU``, ``bias=False`` and ``scale_embedding=False``.

    Source: Vaswani et al. 2017, section 3 and table 3; Xiong et al. 2020 (where the norm stands).
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
    norm: Callable[[int], nn.Module] = nn.LayerNorm
    feed_forward: Callable[..., nn.Module] = FeedForward
    bias: bool = True
    scale_embedding: bool = True
    attention: Callable[..., nn.Module] = MultiHeadAttention

    def __post_init__(self) -> None:
        for name in ("vocab_size", "model_dim", "num_heads", "num_layers", "feed_forward_dim"):
            check_integer(name, getattr(self, name))
        for name in ("source_vocab_size", "num_kv_heads"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        check_flags(norm_first=self.norm_first, bias=self.bias, scale_embedding=self.scale_embedding)
        check_dropout(self.dropout)
        for name in ("norm", "feed_forward", "attention"):
            check_factory(name, getattr(self, name))

    @classmethod
    def base(cls, vocab_size: int = 37_000) -> "TransformerConfig":
        """The paper's base model, 65 million parameters by its count, 63 by ours, for 37,000 tokens."""
        return cls(vocab_size)
