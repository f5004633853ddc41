"""The engine: requests in, tokens out as they come."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from attn_core.cache import BlockPool, PackedKVCache
from attn_core.contract import check_integer, kind
from attn_core.decode.hypothesis import evaluating
from attn_core.mechanisms.dense import is_plain_softmax
from attn_core.multi_head import MultiHeadAttention
from attn_core.positions import Rotary
from attn_core.serving.prefix import PrefixTables
from attn_core.serving.request import Completion, Request
from attn_core.serving.scheduler import Scheduler
from attn_core.transformer import LanguageModel


class Engine:
    """Serves a ``LanguageModel`` to many requests at once: continuous batching over a paged cache.

    The cache has ``num_blocks`` blocks of ``block_size`` tokens, and is all the memory that requests take. Each
    ``step`` reads at most ``token_budget`` tokens, of decoding requests and of prompts together, in one call of the
    model without padding (``PackedKVCache``). With ``prefix_caching``, prompts that begin alike share the blocks of
    their beginning, even when one comes after the other has finished (``PrefixTables``). ``decode`` turns token ids
    into text, for requests with stop strings.

    Greedy requests get the tokens of ``attn_core.decode.generate``, whatever else is served beside them.

    Raises:
        ValueError: if ``model`` is not a ``LanguageModel`` with softmax attention over every key in each layer
            (``MultiHeadAttention``, ``Dense``), its positions act on the scores, or a size is below 1.

    Source: Yu et al. 2022; Kwon et al. 2023.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        num_blocks: int,
        block_size: int = 16,
        token_budget: int = 256,
        prefix_caching: bool = True,
        decode: Callable[[list[int]], str] | None = None,
    ) -> None:
        check_integer("token_budget", token_budget)
        self.model, self.prefix_caching, self.decode = model, prefix_caching, decode
        self.tables = PrefixTables(num_blocks, block_size)
        self.pools = new_pools(model, num_blocks, block_size)
        self.scheduler = Scheduler(self.tables, token_budget)
        self._device = next(model.parameters()).device
        self._arrived = 0

    @property
    def unfinished(self) -> int:
        """How many requests wait or run."""
        return len(self.scheduler.waiting) + len(self.scheduler.running)

    def add(self, request: Request) -> Completion:
        """Let a request wait. The completion grows with each ``step``.

        Raises:
            ValueError: if a prompt's token is not of the vocabulary, the request has more tokens than the cache or the
                model's positions have room for, or it has stop strings and the engine no ``decode``.
        """
        if not isinstance(request, Request):
            raise ValueError(f"request: expected a Request, got {kind(request)}")
        vocab_size, most = self.model.config.vocab_size, max(request.prompt)
        if most >= vocab_size:
            raise ValueError(f"prompt: expected token ids from 0 to {vocab_size - 1}, got {most}")
        room = self.tables.num_blocks * self.tables.block_size
        room = min(room, getattr(self.model.embedding.positions, "max_length", room))
        longest = len(request.prompt) + request.max_new_tokens - 1  # the last token is not read
        if longest > room:
            parts = f"{len(request.prompt)} of the prompt and max_new_tokens {request.max_new_tokens}"
            raise ValueError(f"prompt: expected room for at most {room} tokens, got {longest}: {parts} less 1")
        if request.stop_strings and self.decode is None:
            raise ValueError("stop_strings: expected an engine with decode, which turns ids into text, got one without")
        completion = Completion.of(request, self._arrived, self._device)
        self._arrived += 1
        self.scheduler.add(completion)
        return completion

    def cancel(self, completion: Completion) -> None:
        """Finish a request here, if it has not finished, and free its blocks."""
        if completion.finish_reason is None:
            self._finish(completion, "cancelled")

    def stream(self, request: Request) -> Iterator[int]:
        """Add a request; give its tokens as they come, while the others are served too.

        Whoever stops iterating cancels the request. Raises as ``add``, and whatever ended the request with an error.
        """
        completion = self.add(request)
        return self._stream(completion)

    def run(self) -> None:
        """Take steps until every request has finished."""
        while self.unfinished:
            self.step()

    @torch.no_grad()
    def step(self) -> dict[Completion, list[int]]:
        """One call of the model for a batch that the scheduler chooses: the new tokens of each request that got some.

        If the call fails, all requests are as they were, and the step can be taken again.
        """
        plan = self.scheduler.schedule()
        if not plan:
            assert not self.unfinished  # the oldest request can always go on
            return {}
        ends = {completion: self.tables.length(_sequence(completion)) for completion in plan}
        try:
            with evaluating(self.model) if self.model.training else nullcontext():  # it takes a while to go through
                taken = self._read(plan, ends)
        except BaseException:  # an interrupted cell of a notebook, too
            for completion, tokens in plan.items():
                self.tables.truncate(_sequence(completion), ends[completion] - tokens)
            raise
        for completion in plan:
            if self.prefix_caching:
                self.tables.register(_sequence(completion), completion.tokens)
        return {completion: self._extend(completion, ids) for completion, ids in taken.items()}

    def _read(self, plan: dict[Completion, int], ends: dict[Completion, int]) -> dict[Completion, list[int]]:
        """Read the batch, and take the next tokens of those requests whose last token is among them."""
        ids: list[int] = []
        wanted: dict[Completion, int] = {}  # the row of the packed batch whose logits are wanted
        for completion, tokens in plan.items():
            ids += completion.tokens[ends[completion] - tokens : ends[completion]]
            if ends[completion] == len(completion):
                wanted[completion] = len(ids) - 1
        ranges = {_sequence(one): range(ends[one] - tokens, ends[one]) for one, tokens in plan.items()}
        caches = PackedKVCache.for_layers(self.tables, self.pools, ranges)
        vectors = self.model.read(torch.tensor(ids, device=self._device)[:, None], caches)
        rows = torch.tensor(list(wanted.values()), dtype=torch.long, device=self._device)
        logits = self.model.embedding.logits(vectors[rows, 0])
        likeliest = logits.argmax(-1).tolist()
        taken = {}
        for i, completion in enumerate(wanted):
            try:
                sampler = completion.sampler
                taken[completion] = [likeliest[i] if sampler is None else int(sampler(logits[i : i + 1]))]
            except ValueError as error:  # this request's logits; the others are none the worse for it
                completion.error = error
                taken[completion] = []
        return taken

    def _extend(self, completion: Completion, ids: Sequence[int]) -> list[int]:
        """Add new tokens to a completion, as far as it goes on, and finish it where it ends."""
        before = len(completion.ids)
        reason = None if completion.error is None else "error"
        for token in ids:
            if token in completion.request.stop_ids:
                reason = "stop"
            else:
                completion.ids.append(token)
                reason = self._ending(completion)
            if reason is not None:
                break
        if reason is not None:
            self._finish(completion, reason)
        return completion.ids[before:]

    def _ending(self, completion: Completion) -> str | None:
        """The reason to finish after the last token, if there is one."""
        if self.decode is not None and completion.request.stop_strings:
            try:
                text = self.decode(completion.ids)
            except Exception as error:  # a function that is not ours; it must not stop the other requests
                completion.error = error
                return "error"
            if any(string in text for string in completion.request.stop_strings):
                return "stop"
        return "length" if completion.room == 0 else None

    def _finish(self, completion: Completion, reason: str) -> None:
        self.scheduler.remove(completion)
        completion.finish_reason = reason

    def _stream(self, completion: Completion) -> Iterator[int]:
        sent = 0
        try:
            while True:
                yield from completion.ids[sent:]
                sent = len(completion.ids)
                if completion.error is not None:
                    raise completion.error
                if completion.finish_reason is not None:
                    return
                self.step()
        finally:
            self.cancel(completion)


def _sequence(completion: Completion) -> int:
    assert completion.sequence is not None  # it is running
    return completion.sequence


def new_pools(model: LanguageModel, num_blocks: int, block_size: int) -> list[BlockPool]:
    """A pool of blocks for each layer of ``model``.

    Raises:
        ValueError: as ``Engine``.
    """
    if not isinstance(model, LanguageModel):
        raise ValueError(f"model: expected a LanguageModel, got {kind(model)}")
    pools = []
    layers: Any = model.stack.layers
    for attention in (layer.attention for layer in layers):
        if not isinstance(attention, MultiHeadAttention) or not is_plain_softmax(attention.mechanism):
            found = getattr(attention, "mechanism", attention)
            raise ValueError(f"model: expected MultiHeadAttention with Dense() in each layer, got {kind(found)}")
        if not isinstance(attention.positions, Rotary | None):
            raise ValueError(f"positions: expected added ones, or Rotary, got {kind(attention.positions)}")
        keys = attention.new_cache(1, 1).keys  # of the layer's heads, dtype and device
        pools.append(
            BlockPool(num_blocks, block_size, keys.shape[1], keys.shape[3], dtype=keys.dtype, device=keys.device)
        )
    return pools
