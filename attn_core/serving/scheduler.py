"""The scheduler: which requests a step works on, and with how many tokens each. Plain Python, without tensors."""

import bisect

from attn_core.cache import StreamingWindow
from attn_core.serving.prefix import PrefixTables
from attn_core.serving.request import Completion


class Scheduler:
    """Continuous batching: every step chooses its batch anew, within a token budget and the free blocks.

    Requests are *waiting* until they are admitted, in the order of their arrival, and then *running*. A running request
    first reads its prompt (prefill) and then decodes. One step reads at most ``token_budget`` tokens:

    1. Each decoding request reads its last token and what is drafted beyond it; those that have waited longest first.
    2. The rest of the budget goes to prompts, in the order of arrival. One that does not fit is cut (chunked prefill).
    3. Waiting requests are admitted while there is budget, and memory for their whole prompts.

    When blocks run out, the running request that arrived last is *preempted*: its blocks are freed, and it waits again,
    before all that came later. It keeps its tokens, and reads them once more when it is admitted. The running requests
    are always older than the waiting ones, and the oldest can always go on, so each one finishes.

    Source: Yu et al. 2022; Agrawal et al. 2024 (chunked prefill); Kwon et al. 2023, section 4.5 (preemption).
    """

    def __init__(self, tables: PrefixTables, token_budget: int, window: StreamingWindow | None = None) -> None:
        self.tables, self.token_budget, self.window = tables, token_budget, window
        # How many blocks one request may hold.
        self.most_blocks = window.most_blocks(token_budget, tables.block_size) if window else tables.num_blocks
        self.waiting: list[Completion] = []
        self.running: list[Completion] = []
        self.preemptions = self._step = 0
        self.reused = 0  # tokens that admitted requests found in the cache

    def add(self, completion: Completion) -> None:
        """Let it wait, in the order of arrival."""
        bisect.insort(self.waiting, completion, key=lambda other: other.number)

    def remove(self, completion: Completion) -> None:
        """Forget a request wherever it is, and free its blocks."""
        (self.waiting if completion.sequence < 0 else self.running).remove(completion)
        self._free(completion)

    def drop_unseen(self, completion: Completion) -> None:
        """Give back the blocks that no token still to be read attends to."""
        if self.window is not None:
            held = self.tables.length(completion.sequence)
            self.tables.drop(completion.sequence, self.window.unseen(held, self.tables.block_size))

    def decoding(self, completion: Completion) -> bool:
        """Whether all but the last of its tokens are read, and the last is one that the model has given."""
        return bool(completion.ids) and self._held(completion) == len(completion) - 1

    def missing(self, completion: Completion) -> int:
        """How many tokens it has still to read: the last one and the drafts if it decodes, otherwise its prompt.

        If it was preempted, all but the last of its new tokens are read as a prompt, so that it takes its next token
        by decoding, as it would have done otherwise: its generator makes the same draws.
        """
        end = len(completion) - bool(completion.ids)
        if self.decoding(completion):
            end += 1 + len(completion.drafts)
        return end - self._held(completion)

    def schedule(self) -> dict[Completion, int]:
        """Choose a step's batch, how many tokens of each request it reads, and take the blocks for them."""
        self._step += 1
        plan: dict[Completion, int] = {}
        decoding = {completion for completion in self.running if self.decoding(completion)}
        short_of_blocks = False
        # Prompts keep the order of arrival. Among requests that decode, the one that was served longest ago is first.
        order = sorted(self.running, key=lambda one: (0, one.last_step) if one in decoding else (1, one.number))
        for completion in order:
            if completion.sequence < 0:  # preempted by one before it
                continue
            tokens, left = self.missing(completion), self.token_budget - sum(plan.values())
            tokens = tokens if completion in decoding else min(tokens, left)
            if 0 < tokens <= left:
                short_of_blocks |= not self._grow(plan, completion, tokens)
        if not short_of_blocks and len(self.running) == len(order):  # nothing was preempted
            self._admit(plan)
        for completion in plan:
            completion.last_step = self._step
        return plan

    def _grow(self, plan: dict[Completion, int], completion: Completion, tokens: int) -> bool:
        """Take blocks for so many more tokens; where there are too few, preempt requests that arrived later."""
        while not self._fits(completion, tokens):
            last = self.running[-1]
            if last is completion:
                return False
            plan.pop(last, None)
            self.running.pop()
            self._free(last)
            self.add(last)
            self.preemptions += 1
        copies = self.tables.append(completion.sequence, tokens).copies
        assert not copies  # only full blocks are shared, and nobody writes into those
        plan[completion] = tokens
        return True

    def _admit(self, plan: dict[Completion, int]) -> None:
        while self.waiting and (left := self.token_budget - sum(plan.values())) > 0:
            completion = self.waiting[0]
            # The last token is read in any case, for its logits.
            known = completion.tokens[: len(completion) - bool(completion.ids) - 1]
            completion.sequence = self.tables.add_sequence(known)
            self.drop_unseen(completion)
            missing = self.missing(completion)
            # Its whole prompt must fit, with a block to spare for each that runs: otherwise it would soon be preempted.
            if not self._fits(completion, missing, spare=len(self.running)):
                self._free(completion)
                return
            self.reused += self.tables.length(completion.sequence)
            self.running.append(self.waiting.pop(0))
            self._grow(plan, completion, min(missing, left))

    def _fits(self, completion: Completion, tokens: int, spare: int = 0) -> bool:
        held = sum(block >= 0 for block in self.tables.table(completion.sequence))  # of a cached prefix, for example
        needed = min(self.tables.blocks_needed({completion.sequence: tokens}), self.most_blocks - held)
        return needed + spare <= self.tables.free_blocks

    def _free(self, completion: Completion) -> None:
        if completion.sequence >= 0:
            self.tables.free(completion.sequence)
        completion.sequence, completion.drafts = -1, []

    def _held(self, completion: Completion) -> int:
        return self.tables.length(completion.sequence) if completion.sequence >= 0 else 0
