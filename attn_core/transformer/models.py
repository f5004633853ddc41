"""Whole models: encoder–decoder, encoder-only and decoder-only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from attn_core import masks
from attn_core.cache import Cache
from attn_core.contract import check_lengths, check_tokens
from attn_core.mechanisms.dense import Dense
from attn_core.transformer.config import TransformerConfig
from attn_core.transformer.layers import Mechanism
from attn_core.transformer.stacks import DecoderStack, EncoderStack, TokenEmbedding, new_caches, placed

_FIRST_ROOM = 64


@dataclass
class LanguageModelState:
    """Between two tokens: each layer's cache. ``step`` and ``select`` change them: a state is good for one of these.

    There are no ``weights``: the fast path keeps none.
    """

    caches: Sequence[Cache]
    weights: None = None

    def select(self, rows: Tensor) -> Self:
        """These rows of the batch."""
        for cache in self.caches:
            cache.reorder(rows)
        return replace(self)


@dataclass(kw_only=True)
class TransformerState(LanguageModelState):
    """Also each decoder layer's prepared ``memory``, and the source's ``mask (B, S)``."""

    memory: list[tuple[Tensor, Tensor]]
    mask: Tensor

    def select(self, rows: Tensor) -> Self:
        """These rows of the batch."""
        memory = [(k[rows], v[rows]) for k, v in self.memory]
        return replace(super().select(rows), memory=memory, mask=self.mask[rows])


class Transformer(nn.Module):
    """The encoder–decoder Transformer, from token ids to logits.

    ``encoder_mechanism``, ``decoder_mechanism`` and ``cross_mechanism`` are called once for each layer, ``positions``
    once for each stack: what it gives is added to the embeddings (``Sinusoidal`` by default, ``Learned``), or acts
    inside the self-attentions' scores (``Rotary``, ``ALiBi``). The target's embedding is also the matrix of the logits,
    and the source's too where ``config.source_vocab_size`` is None.

    Raises:
        ValueError: if a mechanism or positions are not given as a function that makes them; in use, if the tokens have
            another kind or shape or lie outside the vocabulary, or the lengths do not go with them.

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
        check_tokens("source", source, self.config.source_vocab_size or self.config.vocab_size, axes=2)
        mask = masks.length_mask(lengths, source.shape[1]).to(source.device)
        check_lengths(lengths, source.shape[0])
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

    ``mechanism`` is called once for each layer, ``positions`` once, as in ``Transformer``.

    Source: Devlin et al. 2018.
    """

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Vectors ``(B, T, C)`` of ``tokens (B, T)``, of which the first ``lengths (B,)`` are true."""
        check_tokens("tokens", tokens, self.config.vocab_size, axes=2)
        mask = masks.length_mask(lengths, tokens.shape[1]).to(tokens.device)
        check_lengths(lengths, tokens.shape[0])
        return self.stack(self.embedding(tokens), mask=mask[:, None, None])


class LanguageModel(_SingleStack):
    """The decoder-only Transformer: logits of each next token, from the tokens before it.

    ``mechanism`` is called once for each layer, ``positions`` once, as in ``Transformer``.

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

        ``caches`` has one for each layer, contiguous ones by default. What they hold already comes before the prompts.
        Returns the logits ``(B, V)`` of the token after each prompt, and the state.
        """
        check_tokens("tokens", tokens, self.config.vocab_size, axes=2)
        masks.length_mask(lengths, tokens.shape[1])  # for its errors
        check_lengths(lengths, tokens.shape[0], "prompt")
        if caches is None:
            caches = new_caches(self.stack.layers, tokens.shape[0], tokens.shape[1] + _FIRST_ROOM)
        rows = [len(cache.lengths) for cache in caches]
        if rows != [tokens.shape[0]] * len(self.stack.layers):
            expected = f"{len(self.stack.layers)}, one for each layer, of {tokens.shape[0]} rows"
            raise ValueError(f"caches: expected {expected}, got {len(rows)} of {rows} rows")
        ragged = lengths if int(lengths.min()) < tokens.shape[1] else None  # every mechanism can read whole rows
        x = self.read(tokens, caches, ragged)
        last = x[torch.arange(x.shape[0], device=x.device), lengths.to(x.device) - 1]
        return self.embedding.logits(last), LanguageModelState(caches)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: LanguageModelState) -> tuple[Tensor, LanguageModelState]:
        """Logits ``(B, V)`` after ``tokens (B,)``, and the next state; no gradient."""
        check_tokens("tokens", tokens, self.config.vocab_size, axes=1, batch=len(state.caches[0].lengths))
        x = self.read(tokens[:, None], state.caches)
        return self.embedding.logits(x)[:, 0], state

    @torch.no_grad()
    def read(self, tokens: Tensor, caches: Sequence[Cache], lengths: Tensor | None = None) -> Tensor:
        """The last layer's vectors ``(B, T, C)`` of each row's next ``tokens (B, T)``, which join the caches.

        ``embedding.logits`` makes logits of those that are wanted. With ``lengths (B,)`` the rest of a row is padding.
        """
        for cache in caches:
            cache.reserve(tokens.shape[1])
        before = caches[0].before
        return self.stack(self.embedding(tokens, before), causal=True, caches=caches, lengths=lengths)
