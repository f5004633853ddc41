"""An encoder whose layers attend in the light of a context, made anew in each layer."""

from collections.abc import Callable

from torch import Tensor, nn

from attn_book.context.attention import ContextAttention
from attn_core import masks
from attn_core.contract import check_mask, check_tokens
from attn_core.positions import Sinusoidal
from attn_core.transformer.config import TransformerConfig
from attn_core.transformer.feed_forward import FeedForward
from attn_core.transformer.layers import AddNorm
from attn_core.transformer.stacks import TokenEmbedding


class ContextLayer(nn.Module):
    """An encoder layer with ``ContextAttention``: the context comes from what the attention reads, by ``form``.

    Raises:
        ValueError: if ``config`` asks for grouped heads, which ``ContextAttention`` does not have.

    Source: Vaswani et al. 2017, figure 1, left; Yang et al. 2019 (Context-Aware Self-Attention Networks).
    """

    def __init__(self, config: TransformerConfig, form: nn.Module) -> None:
        super().__init__()
        if config.num_kv_heads not in (None, config.num_heads):
            raise ValueError(f"config: expected as many key-value heads as heads, got {config.num_kv_heads}")
        context_dim = getattr(form, "context_dim", None)
        if not isinstance(context_dim, int):
            raise ValueError(f"form: expected a form of context with its context_dim, got {type(form).__name__}")
        dim, dropout = config.model_dim, config.dropout
        self.form = form
        self.attention = ContextAttention(dim, config.num_heads, context_dim=context_dim)
        self.feed_forward = FeedForward(dim, config.feed_forward_dim, dropout=dropout)
        self.add_attention, self.add_feed_forward = (
            AddNorm(dim, dropout=dropout, norm_first=config.norm_first) for _ in range(2)
        )

    def forward(self, x: Tensor, sentence_numbers: Tensor, words: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """``x (B, T, C)`` to the same shape; ``words (B, T)`` is True at words, ``mask`` as in ``ContextAttention``."""
        x = self.add_attention(x, lambda x: self.attention(x, self.form(x, sentence_numbers, words), mask=mask))
        return self.add_feed_forward(x, self.feed_forward)


class ContextEncoder(nn.Module):
    """``TransformerEncoder`` with ``ContextAttention``: token ids to one vector each.

    ``form`` is called with the model size once for each layer: ``GlobalContext``, ``HierarchicalContext``,
    ``DynamicContext``, or whatever makes a module that is called as these are.

    Raises:
        ValueError: as ``ContextLayer``.
    """

    def __init__(self, config: TransformerConfig, form: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config.vocab_size, config, Sinusoidal(config.model_dim))
        self.layers = nn.ModuleList(ContextLayer(config, form(config.model_dim)) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.model_dim) if config.norm_first else nn.Identity()

    def forward(
        self, tokens: Tensor, lengths: Tensor, sentence_numbers: Tensor, *, mask: Tensor | None = None
    ) -> Tensor:
        """Vectors ``(B, T, C)`` of ``tokens (B, T)``, of which the first ``lengths (B,)`` are true.

        ``sentence_numbers (B, T)`` says in which sentence a word stands. ``mask`` (True = may attend), broadcastable to
        ``(B, H, T, T)``, hides more than padding from the attention, and nothing from the context: with
        ``masks.same_group(sentence_numbers)`` a word attends to its own sentence.

        Raises:
            ValueError: if the tokens have another kind or shape or lie outside the vocabulary, the lengths or sentence
                numbers do not go with them, or the mask does not broadcast.
        """
        check_tokens("tokens", tokens, self.config.vocab_size, axes=2)
        words = masks.length_mask(lengths, tokens.shape[1]).to(tokens.device)
        if words.shape != tokens.shape:
            raise ValueError(f"lengths: expected shape ({len(tokens)},), got {tuple(lengths.shape)}")
        visible = words[:, None, None]
        if mask is not None:
            batch, length = tokens.shape
            check_mask(mask, (batch, self.config.num_heads, length, length), tokens.device)
            visible = visible & mask
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, sentence_numbers, words, mask=visible)
        return self.norm(x)
