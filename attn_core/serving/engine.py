"""The engine: requests in, tokens out as they come."""

import itertools
import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from attn_core.cache import BlockPool, StreamingWindow
from attn_core.contract import check_integer, kind, shown, token_ids
from attn_core.decode import Sampler, argmax
from attn_core.decode.pick import check_logits
from attn_core.evaluation import evaluating
from attn_core.serving.paged_model import PagedModel
from attn_core.serving.prefix import PrefixTables
from attn_core.serving.request import Completion, Request
from attn_core.serving.scheduler import Scheduler
from attn_core.serving.speculative import PromptLookup, verify
from attn_core.serving.undo import Undo
from attn_core.transformer import LanguageModel

T = TypeVar("T")


class Engine:
    """Serves a ``LanguageModel`` to many requests at once: continuous batching over a paged cache.

    The cache has ``num_blocks`` blocks of ``block_size`` tokens. Each ``step`` reads at most ``token_budget`` tokens,
    of decoding requests and of prompts together, in one call of the model without padding (``PackedKVCache``). With
    ``prefix_caching``, prompts that begin alike share the blocks of their beginning (``PrefixTables``). ``decode``
    turns token ids into text, for requests with stop strings. A ``drafter`` makes decoding speculative. ``pool`` is
    what stores keys and values: ``QuantisedBlockPool`` does so in 8 bits. With a ``window`` every token attends to the
    first and the last of those before it, and a request holds a bounded number of blocks.

    Greedy requests get the tokens of ``attn_core.decode.generate``, whatever else is served beside them.

    A step either happens or does not, whatever is raised in it, an interrupt included: all requests and random
    generators are then as they were, but for requests that were preempted or admitted, and the step can be taken again.
    What concerns one request alone, such as an error of ``decode`` or bad logits, ends that request with the error.
    Functions that a step calls, ``decode`` for example, must not call the engine.

    Raises:
        ValueError: if ``PagedModel`` refuses ``model``, a size is below 1, or ``token_budget`` (with drafts) or
            ``num_blocks`` (with a window) is too small for one request.
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
        drafter: PromptLookup | None = None,
        window: StreamingWindow | None = None,
        decode: Callable[[list[int]], str] | None = None,
    ) -> None:
        check_integer("token_budget", token_budget, at_least=1 + (drafter.num_tokens if drafter else 0))
        self.model, self.drafter, self.prefix_caching, self.decode = model, drafter, prefix_caching, decode
        self.tables = PrefixTables(num_blocks, block_size)
        self.scheduler = Scheduler(self.tables, token_budget, window)
        check_integer("num_blocks", num_blocks, at_least=1 if window is None else self.scheduler.most_blocks)
        self.drafted = self.accepted = 0  # how many tokens were drafted, and how many of them stayed
        self._paged = PagedModel(model, self.tables, pool=pool, window=window)
        self._modules = list(model.modules())  # it takes a while to ask
        self._arrivals = itertools.count()
        # What takes back a change that is not done, and how many tokens each request of the batch had before.
        self._undo: tuple[Undo, dict[Completion, int]] | None = None

    @property
    def unfinished(self) -> int:
        """How many requests wait or run."""
        return len(self.scheduler.waiting) + len(self.scheduler.running)

    def add(self, request: Request) -> Completion:
        """Let a request wait. The completion grows with each ``step``.

        Raises:
            ValueError: if a token is not of the vocabulary, the cache or the model's positions have too
                little room, or there are stop strings and no ``decode``.
        """
        completion = self._checked(request)
        self._recover()
        self.scheduler.add(completion)
        return completion

    def _checked(self, request: Request) -> Completion:
        if not isinstance(request, Request):
            raise ValueError(f"request: expected a Request, got {kind(request)}")
        token_ids("prompt", request.prompt, self.model.config.vocab_size)
        capacity = self.tables.num_blocks * self.tables.block_size
        room = getattr(self.model.embedding.positions, "max_length", math.inf)
        room = room if self.scheduler.window else min(room, capacity)
        longest = len(request.prompt) + request.max_new_tokens - 1  # the last token is not read
        if longest > room:
            parts = f"{len(request.prompt)} and max_new_tokens {request.max_new_tokens} less 1"
            raise ValueError(f"prompt: expected at most {room} tokens with those to come, got {longest}: {parts}")
        if request.stop_strings and self.decode is None:
            raise ValueError("stop_strings: expected an engine with decode, which turns ids into text, got one without")
        sampler = request.sampler
        if sampler is not None and request.seed is not None:
            sampler = replace(sampler, generator=torch.Generator(self._paged.device).manual_seed(request.seed))
        return Completion(request, next(self._arrivals), sampler, self.decode)

    def cancel(self, completion: Completion) -> None:
        """Finish a request here, if it has not finished, and free its blocks."""
        self._recover()
        if completion in self.scheduler.running or completion in self.scheduler.waiting:
            self._whole(lambda: self._finish(completion, "cancelled"), completion)

    def stream(self, request: Request) -> Generator[int, None, None]:
        """Add a request; give its tokens as they come, while the others are served too.

        Whoever stops iterating, or closes the stream, cancels the request. With stop strings, a token is given when it
        is certain that it holds nothing of one: a token in which a stop string begins is not given, and
        ``Completion.text`` has the text before that. Raises as ``add``, and whatever ended the request with an error.
        """
        tokens = self._stream(self._checked(request))
        next(tokens)  # adds it; closing a generator that has not begun would not cancel the request
        return tokens

    def run(self) -> None:
        """Take steps until every request has finished."""
        self._recover()
        while self.unfinished:
            self.step()

    def step(self) -> dict[Completion, list[int]]:
        """One call of the model for a batch that the scheduler chooses: the new tokens of those that got some."""
        return self._whole(self._step)

    def _whole(self, change: Callable[[], T], *waiting: Completion) -> T:
        """Make a change of the running requests and these, or, where something is raised, none."""
        self._recover()
        self._undo = self._kept(*waiting), {}
        try:
            result = change()
            self._undo = None  # from here on it has happened
        except BaseException:  # an interrupted cell of a notebook, too
            self._recover()
            raise
        return result

    def _kept(self, *waiting: Completion, generators: Iterable[torch.Generator] = ()) -> Undo:
        undo = Undo(self.tables, self.scheduler, *self.scheduler.running, *waiting, generators=generators)
        undo.keep(self, ("drafted", "accepted"))
        return undo

    def _recover(self) -> None:
        """Take back a change that was not done. If this is interrupted, it is done over before the next change."""
        if self._undo is not None:
            undo, begins = self._undo
            undo.restore()
            for completion, begin in begins.items():
                self.tables.truncate(completion.sequence, begin)
            for completion in self.scheduler.waiting:  # some were being admitted
                completion.sequence, completion.drafts = -1, []
            self._undo = None

    @torch.no_grad()
    def _step(self) -> dict[Completion, list[int]]:
        for completion in list(self.scheduler.running):
            self._propose(completion)
        plan = self.scheduler.schedule()
        if not plan:
            assert not self.unfinished  # the oldest request can always go on
            return {}
        # From here on blocks are written to. Those that others have lost hold their tokens no more, so what the
        # schedule has changed stays, and only the reading is taken back.
        begins = {completion: self.tables.length(completion.sequence) - tokens for completion, tokens in plan.items()}
        generators = {self._generator(one.sampler) for one in plan if one.sampler is not None}
        self._undo = self._kept(generators=generators), begins
        with evaluating(self._modules):
            taken = self._read(begins)
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

    def _propose(self, completion: Completion) -> None:
        """Let the drafter say what may come after a request's tokens, no more than may still come."""
        completion.drafts = []
        if self.drafter is not None and self.scheduler.decoding(completion):
            limit = min(completion.room - 1, self.drafter.num_tokens)
            try:
                drafts = list(self.drafter.propose(completion.tokens, limit))[:limit]
                if not all(isinstance(one, tuple) and len(one) == 2 for one in drafts):
                    raise ValueError(f"drafts: expected pairs (parent, token), got {shown(drafts)}")
                token_ids("drafts", [token for _, token in drafts], self.model.config.vocab_size)
                for before, (parent, _) in enumerate(drafts):
                    check_integer("drafts", parent, at_least=0, at_most=before)
                completion.drafts = drafts
            except Exception as error:
                completion.error = error
                self._finish(completion, "error")

    def _generator(self, sampler: Sampler) -> torch.Generator:
        """Where a sampler's draws come from."""
        if sampler.generator is not None:
            return sampler.generator
        device = self._paged.device
        return torch.default_generator if device.type == "cpu" else torch.cuda.default_generators[device.index]

    def _read(self, begins: dict[Completion, int]) -> dict[Completion, list[int]]:
        """Read the batch, each request from a position on; the next tokens of those whose last token is in it."""
        tokens: dict[int, tuple[int, list[int]]] = {}
        trees = {one.sequence: [parent for parent, _ in one.drafts] for one in begins if one.drafts}
        wanted: list[Completion] = []
        rows: list[int] = []
        count = 0
        for one, begin in begins.items():
            end = self.tables.length(one.sequence)
            ids = [*one.tokens, *(token for _, token in one.drafts)][begin:end]
            tokens[one.sequence] = begin, ids
            count += len(ids)
            if end >= len(one):
                wanted.append(one)
                rows += range(count - 1 - len(one.drafts), count)
        logits = self._paged.read(tokens, rows, trees).split([1 + len(completion.drafts) for completion in wanted])
        taken: dict[Completion, list[int]] = {}
        paths: dict[int, tuple[int, list[int]]] = {}
        for completion, own in zip(wanted, logits, strict=True):
            taken[completion] = []
            try:
                check_logits(own)
                taken[completion], path = verify(completion.sampler or argmax, own, completion.drafts)
                paths[completion.sequence] = len(completion) - 1, path
            except Exception as error:  # only this request's logits or sampler are bad: the others go on
                completion.error = error
            self.drafted += len(completion.drafts)
            self.accepted += max(len(taken[completion]) - 1, 0)
        self._paged.keep(paths)
        return taken

    def _extend(self, completion: Completion, ids: Sequence[int]) -> str | None:
        """Add new tokens to a completion as far as it goes on; the reason to finish, if there is one."""
        for token in ids:
            if token in completion.request.stop_ids:
                return "stop"
            completion.ids.append(token)
            try:
                if completion.stopped():
                    return "stop"
            except Exception as error:  # a function that is not ours; it must not stop the other requests
                completion.error = error
                return "error"
            if completion.room == 0:
                return "length"
        return None if completion.error is None else "error"

    def _finish(self, completion: Completion, reason: str) -> None:
        self.scheduler.remove(completion)
        completion.finish_reason = reason

    def _stream(self, completion: Completion) -> Generator[int, None, None]:
        sent = 0
        try:
            self._recover()
            self.scheduler.add(completion)
            yield -1  # for ``stream``
            while True:
                settled = completion.settled
                yield from completion.ids[sent:settled]
                sent = max(sent, settled)
                if completion.error is not None:
                    raise completion.error
                if completion.finish_reason is not None:
                    return
                self.step()
        finally:
            self.cancel(completion)
