"""The engine: requests in, tokens out as they come."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import torch

from attn_core.cache import BlockPool, StreamingWindow
from attn_core.contract import check_integer, kind
from attn_core.decode import argmax
from attn_core.decode.hypothesis import evaluating
from attn_core.serving.paged_model import PagedModel
from attn_core.serving.prefix import PrefixTables
from attn_core.serving.request import Completion, Request
from attn_core.serving.scheduler import Scheduler
from attn_core.serving.speculative import DraftModel, PromptLookup, draft, reject, verify
from attn_core.transformer import LanguageModel


class Engine:
    """Serves a ``LanguageModel`` to many requests at once: continuous batching over a paged cache.

    The cache has ``num_blocks`` blocks of ``block_size`` tokens, and is all the memory that requests take. Each
    ``step`` reads at most ``token_budget`` tokens, of decoding requests and of prompts together, in one call of the
    model without padding (``PackedKVCache``). With ``prefix_caching``, prompts that begin alike share the blocks of
    their beginning, even when one comes after the other has finished (``PrefixTables``). ``decode`` turns token ids
    into text, for requests with stop strings. A ``drafter`` makes decoding speculative. ``pool`` is what
    stores keys and values: ``QuantisedBlockPool`` does so in 8 bits. With a ``window`` every token attends to the first
    and the last of those before it, and a request holds a bounded number of blocks, however long its text grows.

    Greedy requests get the tokens of ``attn_core.decode.generate``, whatever else is served beside them; with 8 bits
    they do unless rounding decides. With a window they are those of a model whose layers have it.

    Raises:
        ValueError: if ``PagedModel`` refuses ``model`` or the draft model, their vocabularies differ, a size is below
            1, ``token_budget`` is too small for one request with its drafts, or ``num_blocks`` for the window.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        num_blocks: int,
        block_size: int = 16,
        token_budget: int = 256,
        prefix_caching: bool = True,
        pool: type[BlockPool] = BlockPool,
        drafter: PromptLookup | DraftModel | None = None,
        window: StreamingWindow | None = None,
        decode: Callable[[list[int]], str] | None = None,
    ) -> None:
        check_integer("token_budget", token_budget, at_least=1 + (drafter.num_tokens if drafter else 0))
        self.model, self.drafter, self.prefix_caching, self.decode = model, drafter, prefix_caching, decode
        self.tables = PrefixTables(num_blocks, block_size)
        self.scheduler = Scheduler(self.tables, token_budget, window)
        check_integer("num_blocks", num_blocks, at_least=1 if window is None else self.scheduler.most_blocks)
        self.drafted = self.accepted = 0  # how many tokens were drafted, and how many of them stayed
        self._paged, self._draft_paged = PagedModel(model, self.tables, pool=pool, window=window), None
        if isinstance(drafter, DraftModel):
            self._draft_paged = PagedModel(drafter.model, self.tables, pool=pool, window=window)
            sizes = model.config.vocab_size, drafter.model.config.vocab_size
            if sizes[0] != sizes[1]:
                raise ValueError(f"drafter: expected the model's vocabulary of {sizes[0]} tokens, got {sizes[1]}")
        self._models = [paged.model for paged in (self._paged, self._draft_paged) if paged is not None]
        self._arrivals = itertools.count()

    @property
    def unfinished(self) -> int:
        """How many requests wait or run."""
        return len(self.scheduler.waiting) + len(self.scheduler.running)

    def add(self, request: Request) -> Completion:
        """Let a request wait. The completion grows with each ``step``.

        Raises:
            ValueError: if a token is not of the vocabulary, the cache or the model's positions have too little room, or
                there are stop strings and no ``decode``.
        """
        if not isinstance(request, Request):
            raise ValueError(f"request: expected a Request, got {kind(request)}")
        vocab_size, most = self.model.config.vocab_size, max(request.prompt)
        if most >= vocab_size:
            raise ValueError(f"prompt: expected token ids from 0 to {vocab_size - 1}, got {most}")
        capacity = self.tables.num_blocks * self.tables.block_size
        rooms = [getattr(model.embedding.positions, "max_length", math.inf) for model in self._models]
        room = min(rooms if self.scheduler.window else [*rooms, capacity])
        longest = len(request.prompt) + request.max_new_tokens - 1  # the last token is not read
        if longest > room:
            parts = f"{len(request.prompt)} and max_new_tokens {request.max_new_tokens} less 1"
            raise ValueError(f"prompt: expected at most {room} tokens with those to come, got {longest}: {parts}")
        if request.stop_strings and self.decode is None:
            raise ValueError("stop_strings: expected an engine with decode, which turns ids into text, got one without")
        sampler = request.sampler
        if sampler is not None and request.seed is not None:
            sampler = replace(sampler, generator=torch.Generator(self._paged.device).manual_seed(request.seed))
        completion = Completion(request, next(self._arrivals), sampler)
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
        return self._stream(self.add(request))

    def run(self) -> None:
        """Take steps until every request has finished."""
        while self.unfinished:
            self.step()

    @torch.no_grad()
    def step(self) -> dict[Completion, list[int]]:
        """One call of the model for a batch that the scheduler chooses: the new tokens of each request that got some.

        If the call fails, all requests are as they were, and the step can be taken again; numbers drawn are gone.
        """
        for completion in self.scheduler.running:
            completion.drafts = []
            if self.drafter is not None and self.scheduler.decoding(completion):  # never more than may still come
                completion.drafts = self.drafter.propose(completion.tokens, completion.room - 1)
        plan = self.scheduler.schedule()
        if not plan:
            assert not self.unfinished  # the oldest request can always go on
            return {}
        begins = {completion: self.tables.length(completion.sequence) - tokens for completion, tokens in plan.items()}
        try:
            with ExitStack() as modes:
                for model in self._models:
                    if model.training:  # asking first, since going through all modules takes a while
                        modes.enter_context(evaluating(model))
                taken = self._read(begins)
        except BaseException:  # an interrupted cell of a notebook, too
            for completion, begin in begins.items():
                self.tables.truncate(completion.sequence, begin)
            raise
        new = {}
        for completion in plan:
            before, reason = len(completion.ids), None
            if completion in taken:
                reason = self._extend(completion, taken[completion])
                new[completion] = completion.ids[before:]
                # What was rejected is forgotten; the last token is still to be read.
                self.tables.truncate(completion.sequence, len(completion) - 1)
            if self.prefix_caching:
                self.tables.register(completion.sequence, completion.tokens)
            self.scheduler.drop_unseen(completion)
            if reason is not None:
                self._finish(completion, reason)
        return new

    def _read(self, begins: dict[Completion, int]) -> dict[Completion, list[int]]:
        """Read the batch, each request from a position on; the next tokens of those whose last token is in it."""
        ends = {one: self.tables.length(one.sequence) for one in begins}
        known = {one: (begin, one.tokens[begin : ends[one]]) for one, begin in begins.items()}
        distributions = {} if self._draft_paged is None else draft(self._draft_paged, known)
        tokens = {one.sequence: (begin, [*ids, *one.drafts]) for one, (begin, ids) in known.items()}
        counts = itertools.accumulate(len(ids) for _, ids in tokens.values())  # where each request's rows end
        wanted = {one: count for one, count in zip(known, counts, strict=True) if ends[one] >= len(one)}
        rows = [row for one, end in wanted.items() for row in range(end - 1 - len(one.drafts), end)]
        logits = self._paged.read(tokens, rows).split([1 + len(completion.drafts) for completion in wanted])
        taken: dict[Completion, list[int]] = {}
        for completion, own in zip(wanted, logits, strict=True):
            sampler, drafts = completion.sampler, completion.drafts
            try:
                if not own.amax(-1).isfinite().all():
                    raise ValueError("logits: expected a finite greatest logit after each token, got NaN or infinity")
                if completion in distributions and sampler is not None:
                    drafted = torch.stack(distributions[completion])
                    taken[completion] = reject(sampler.probabilities(own), drafted, drafts, sampler.generator)
                else:
                    taken[completion] = verify(argmax if sampler is None else sampler, own, drafts)
            except ValueError as error:  # this request's logits; the others are none the worse for it
                completion.error, taken[completion] = error, []
            self.drafted += len(drafts)
            self.accepted += max(len(taken[completion]) - 1, 0)
        return taken

    def _extend(self, completion: Completion, ids: Sequence[int]) -> str | None:
        """Add new tokens to a completion as far as it goes on; the reason to finish, if there is one."""
        for token in ids:
            if token in completion.request.stop_ids:
                return "stop"
            completion.ids.append(token)
            if self.decode is not None and completion.request.stop_strings:
                try:
                    text = self.decode(completion.ids)
                except Exception as error:  # a function that is not ours; it must not stop the other requests
                    completion.error = error
                    return "error"
                if any(string in text for string in completion.request.stop_strings):
                    return "stop"
            if completion.room == 0:
                return "length"
        return None if completion.error is None else "error"

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
