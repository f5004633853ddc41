"""Whole models: encoder–decoder, encoder-only and decoder-only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from attn_core import masks
from attn_core.cache import Cache
from attn_core.contract import check_lengths, check_tokens, kind
from attn_core.mechanisms.dense import Dense
from attn_core.transformer.config import TransformerConfig
from attn_core.transformer.flat import flat
from attn_core.transformer.layers import Mechanism
from attn_core.transformer.stacks import DecoderStack, EncoderStack, TokenEmbedding, new_caches, placed

_FIRST_ROOM = 64


@dataclass
class LanguageModelState:
    """Between two tokens: each layer's cache, which ``step`` and ``select`` change. No ``weights`` are kept.

    ``stack`` is what reads a token: the model's, by default, or what ``flat`` made of it.
    """

    caches: Sequence[Cache]
    stack: Callable[..., Tensor] | None = None
    weights: None = None

    def select(self, rows: Tensor) -> Self:
        """These rows of the batch."""
        for cache in self.caches:
            cache.reorder(rows)
        return replace(self)


@dataclass(kw_only=True)
class TransformerState(LanguageModelState):
    """Also the source's keys and values in each decoder layer, ``memory``, and its ``mask (B, S)``."""

    memory: list[tuple[Tensor, Tensor]]
    mask: Tensor

    def select(self, rows: Tensor) -> Self:
        """These rows of the batch."""
        memory = [(k[rows], v[rows]) for k, v in self.memory]
        return replace(super().select(rows), memory=memory, mask=self.mask[rows])


class Transformer(nn.Module):
    """The encoder–decoder Transformer, from token ids to logits.

    The mechanisms are functions that are called once for each layer, ``positions`` one that is called once for each
    stack. The positions are added to the embeddings (``Sinusoidal`` by default, ``Learned``), or act inside the scores
    of self-attention (``Rotary``, ``ALiBi``). The target's embedding is also the matrix of the logits, and the source's
    embedding where ``config.source_vocab_size`` is None.

    Source: Vaswani et al. 2017.
    """

    def __init__(
        self,
        config: TransformerConfig,
        *,
        encoder_mechanism: Callable[[], Mechanism] = Dense,
        decoder_mechanism: Callable[[], Mechanism] = Dense,
        cross_mechanism: Callable[[], Mechanism] = Dense,
        positions: Callable[[], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        (added, inside), (added_too, inside_too) = (placed(config, positions) for _ in range(2))
        self.target_embedding = TokenEmbedding(config.vocab_size, config, added)
        self.source_embedding = TokenEmbedding(config.source_vocab_size or config.vocab_size, config, added_too)
        if config.source_vocab_size is None:
            self.source_embedding.tokens = self.target_embedding.tokens
        self.encoder = EncoderStack(config, mechanism=encoder_mechanism, positions=inside_too)
        self.decoder = DecoderStack(
            config, mechanism=decoder_mechanism, cross_mechanism=cross_mechanism, positions=inside
        )

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The encoder's output ``(B, S, C)`` for ``source (B, S)``, and its mask ``(B, S)``, True at true tokens."""
        mask = _true_tokens("source", source, lengths, self.config.source_vocab_size or self.config.vocab_size)
        return self.encoder(self.source_embedding(source), mask=mask[:, None, None]), mask

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits ``(B, T, V)``: ``source (B, S)`` with ``lengths (B,)``, ``target (B, T)`` beginning with <bos>."""
        states, mask = self.encode(source, lengths)
        check_tokens("target", target, self.config.vocab_size, axes=2, batch=source.shape[0])
        x = self.target_embedding(target)
        x = self.decoder(x, self.decoder.project_kv(states), memory_mask=mask[:, None, None])
        return self.target_embedding.logits(x)

    def init_state(self, source: Tensor, lengths: Tensor) -> TransformerState:
        """Read the source; give the state before the first token."""
        states, mask = self.encode(source, lengths)
        caches = new_caches(self.decoder.layers, source.shape[0], _FIRST_ROOM)
        return TransformerState(caches, memory=self.decoder.project_kv(states), mask=mask)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """Logits ``(B, V)`` after ``tokens (B,)``, from the cache, and the next state; no gradient."""
        check_tokens("tokens", tokens, self.config.vocab_size, axes=1, batch=state.mask.shape[0])
        for cache in state.caches:
            cache.reserve(1)
        x = self.target_embedding(tokens[:, None], state.caches[0].longest)
        x = self.decoder(x, state.memory, memory_mask=state.mask[:, None, None], caches=state.caches)
        return self.target_embedding.logits(x)[:, 0], state


class _SingleStack(nn.Module):
    """What models of one stack share; the arguments are those of ``Transformer``."""

    def __init__(
        self,
        config: TransformerConfig,
        *,
        mechanism: Callable[[], Mechanism] = Dense,
        positions: Callable[[], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        added, inside = placed(config, positions)
        self.embedding = TokenEmbedding(config.vocab_size, config, added)
        self.stack = EncoderStack(config, mechanism=mechanism, positions=inside)


class TransformerEncoder(_SingleStack):
    """The encoder-only Transformer: token ids to one vector each, which has seen the whole sentence.

    Source: Devlin et al. 2018.
    """

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Vectors ``(B, T, C)`` of ``tokens (B, T)``, of which the first ``lengths (B,)`` are true."""
        mask = _true_tokens("tokens", tokens, lengths, self.config.vocab_size)
        return self.stack(self.embedding(tokens), mask=mask[:, None, None])


class SegmentEncoder(TransformerEncoder):
    """A ``TransformerEncoder`` that adds to each token's vector one for its part of the text, 0 or 1.

    With ``norm_embedding`` the sum of the three embeddings is normalised before the first layer, as in BERT's published
    parameters (dropout acts before this norm, BERT's after it). ``options`` are those of ``TransformerEncoder``.

    Source: Devlin et al. 2018, section 3 and figure 2.
    """

    def __init__(self, config: TransformerConfig, *, norm_embedding: bool = False, **options: Any) -> None:
        super().__init__(config, **options)
        self.segments = nn.Embedding(2, config.model_dim)
        self.norm = config.norm(config.model_dim) if norm_embedding else nn.Identity()

    def forward(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """As ``TransformerEncoder``; without ``segments (B, T)`` the text is one part, 0."""
        return self.states(tokens, lengths, segments)[-1]

    def states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        """The first layer's input and each layer's output, ``(B, T, C)``; the last one is what ``forward`` gives."""
        mask = _true_tokens("tokens", tokens, lengths, self.config.vocab_size)[:, None, None]
        if segments is None:
            segments = torch.zeros_like(tokens)
        check_tokens("segments", segments, 2, axes=2)
        if segments.shape != tokens.shape:
            raise ValueError(f"segments: expected the shape of tokens, {tuple(tokens.shape)}, got {kind(segments)}")
        states = [self.norm(self.embedding(tokens) + self.segments(segments))]
        for layer in self.stack.layers:
            states.append(layer(states[-1], mask=mask))
        return [*states[:-1], self.stack.norm(states[-1])]


class LanguageModel(_SingleStack):
    """The decoder-only Transformer: logits of each next token, from the tokens before it.

    Source: Radford et al. 2018.
    """

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits ``(B, T, V)``, at each of ``tokens (B, T)`` those of the token after it; padding goes last."""
        check_tokens("tokens", tokens, self.config.vocab_size, axes=2)
        return self.embedding.logits(self.stack(self.embedding(tokens), causal=True))

    @torch.no_grad()
    def prefill(
        self, tokens: Tensor, lengths: Tensor, caches: Sequence[Cache] | None = None
    ) -> tuple[Tensor, LanguageModelState]:
        """Read prompts ``tokens (B, T)``, of which the first ``lengths (B,)`` are true, at least one.

        The prompts continue what is in ``caches``, one for each layer, by default new ones. Returns the logits
        ``(B, V)`` of the token after each prompt, and the state.
        """
        _true_tokens("tokens", tokens, lengths, self.config.vocab_size, full="prompt")  # for its errors
        if caches is None:
            caches = new_caches(self.stack.layers, tokens.shape[0], tokens.shape[1] + _FIRST_ROOM)
        rows = [len(cache.lengths) for cache in caches]
        if rows != [tokens.shape[0]] * len(self.stack.layers):
            expected = f"{len(self.stack.layers)}, one for each layer, of {tokens.shape[0]} rows"
            raise ValueError(f"caches: expected {expected}, got {len(rows)} of {rows} rows")
        ragged = lengths if int(lengths.min()) < tokens.shape[1] else None  # every mechanism can read whole rows
        state = LanguageModelState(caches, flat(self.stack))
        x = self.read(tokens, caches, ragged, state.stack)
        last = x[torch.arange(x.shape[0], device=x.device), lengths.to(x.device) - 1]
        return self.embedding.logits(last), state

    @torch.no_grad()
    def step(self, tokens: Tensor, state: LanguageModelState) -> tuple[Tensor, LanguageModelState]:
        """Logits ``(B, V)`` after ``tokens (B,)``, and the next state; no gradient."""
        check_tokens("tokens", tokens, self.config.vocab_size, axes=1, batch=len(state.caches[0].lengths))
        x = self.read(tokens[:, None], state.caches, stack=state.stack)
        return self.embedding.logits(x)[:, 0], state

    @torch.no_grad()
    def read(self, tokens: Tensor, caches: Sequence[Cache], lengths: Tensor | None = None, stack: Any = None) -> Tensor:
        """The last layer's vectors ``(B, T, C)`` of each row's next ``tokens (B, T)``, which are added to the caches.

        ``embedding.logits`` turns them into logits. With ``lengths (B,)`` the rest of a row is padding. ``stack`` is
        the model's, or what ``flat`` made of it once for many calls.
        """
        for cache in caches:
            cache.reserve(tokens.shape[1])
        before = caches[0].before
        x = self.embedding(tokens, before)
        return (stack or self.stack)(x, causal=True, caches=caches, lengths=lengths)


def _true_tokens(name: str, tokens: Tensor, lengths: Tensor, vocab_size: int, full: str | None = None) -> Tensor:
    """Check ``tokens (B, T)`` and their ``lengths (B,)``; the mask ``(B, T)``, True at true tokens."""
    check_tokens(name, tokens, vocab_size, axes=2)
    mask = masks.length_mask(lengths, tokens.shape[1]).to(tokens.device)
    check_lengths(lengths, tokens.shape[0], full)
    return mask
