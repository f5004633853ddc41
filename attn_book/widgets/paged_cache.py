"""A paged key–value cache to run by hand: requests start, grow, fork and end."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from typing import Any

import traitlets

from attn_book.widgets.base import Joined, RefusedError, StaticWidget, Whole, check_whole, png_of
from attn_core.cache import BlockTables, OutOfBlocks

_SIZES = (1, 2, 4, 8, 16)
_MOST = 2048
# The colours of a light page: a request's colour depends on its letter.
_HUES = ("#5a3aa6", "#b04d00", "#00755f", "#a8256b", "#1f63b3", "#6f6200", "#a12a2a", "#4d5a68")

# Shows growth past the end of a block, sharing, copy-on-write, freed blocks reused in scattered order, and preemption.
EXAMPLE: tuple[tuple[Any, ...], ...] = (
    ("start", "A", 7),
    ("start", "B", 10),
    ("decode",),
    ("decode",),
    ("fork", "A", "C"),
    ("grow", "C"),
    ("decode",),
    ("start", "D", 14),
    ("end", "B"),
    ("end", "A"),
    ("start", "E", 18),
    ("fork", "E", "F"),
    ("decode",),
    ("preempt", "F"),
    ("grow", "D", 4),
    ("end", "C"),
    ("resume", "F"),
)


class PagedCacheExplorer(StaticWidget):
    """A pool of blocks, and requests that allocate them token by token, share them, copy them and free them.

    The page computes everything itself from five synced traits: `block_size` (1, 2, 4, 8 or 16 slots, each for one
    token's keys and values), `num_blocks` (1 to 128), `reserve` (the tokens that a contiguous cache would reserve for
    each request, or as many as the longest request has), `events`, and `step`, the number of events so far. Each event
    is a list:

    - `["start", name, tokens]`: a request, named by a capital letter, starts with a prompt of this many tokens;
    - `["grow", name]`: it gets one more token, and with `["grow", name, tokens]` so many, the next chunk of a prompt;
    - `["decode"]`: each request gets one more token, in the order in which they started;
    - `["fork", name, other]`: `other` starts with all of the request's tokens and shares its blocks;
    - `["preempt", name]`: its blocks are freed and its text is kept, until `["resume", name]` reads all of it again;
    - `["end", name]`: it ends.

    If too few blocks are free, a start or a token waits: the event changes nothing for the request. By default the
    events are an example of seventeen, of which six have happened: two requests share two blocks, and the second of
    them has copied a third to write into it. A reader who chooses another block size divides the same memory
    differently.

    Raises:
        ValueError: if an argument, or a value that a trait is set to, does not fit. The message names it.

    Source: Kwon et al. 2023, section 4.
    """

    _esm = Joined("page.js", "paged_replay.js", "paged_cache.js")
    _css = Joined("page.css", "paged_cache.css")

    block_size = Whole(4, 1, _SIZES[-1]).tag(sync=True, static=True)
    num_blocks = Whole(24, 1, 128).tag(sync=True, static=True)
    reserve = Whole(32, 1, _MOST).tag(sync=True, static=True)
    events = traitlets.TraitType[Any, Any](()).tag(sync=True, static=True)  # a list, as _read_events has it
    step = Whole(0, 0, 10_000).tag(sync=True, static=True)

    def __init__(
        self,
        events: Iterable[Sequence[Any]] | None = None,
        *,
        block_size: int = 4,
        num_blocks: int = 24,
        reserve: int = 32,
        step: int | None = None,
    ) -> None:
        story = _read_events(EXAMPLE if events is None else events)
        if step is None:
            step = 6 if events is None else len(story)
        super().__init__(block_size=block_size, num_blocks=num_blocks, reserve=reserve, events=story, step=step)

    def __repr__(self) -> str:
        return (
            f"PagedCacheExplorer(block_size={self.block_size}, num_blocks={self.num_blocks}, "
            f"events={len(self.events)}, step={self.step})"
        )

    @traitlets.validate("block_size", "events", "step")
    def _fits(self, proposal: Any) -> Any:
        name, value = proposal["trait"].name, proposal["value"]
        if name == "events":
            return _read_events(value)
        if name == "step":
            return check_whole("step", value, 0, len(self.events))
        if value not in _SIZES:
            raise RefusedError(f"block_size: expected one of {', '.join(map(str, _SIZES))}, got {value!r}")
        return value

    @traitlets.observe("events")
    def _stay(self, _: Any) -> None:
        self.step = min(self.step, len(self.events))

    def replay(self) -> tuple[BlockTables, dict[str, int]]:
        """Return the allocator after the first `step` events, and its number for each present request.

        So `tables.table(numbers["A"])` is the block table of A.
        """
        return self._replay()[:2]

    def _replay(self) -> tuple[BlockTables, dict[str, int], dict[str, int]]:
        """As `replay`, and how many tokens each preempted request has."""
        tables, numbers, preempted = BlockTables(self.num_blocks, self.block_size), dict[str, int](), dict[str, int]()
        for action, *names in self.events[: self.step]:
            if action == "start" or (action == "resume" and names[0] in preempted):
                tokens = names[1] if action == "start" else preempted[names[0]]
                number = tables.add_sequence()
                if _append(tables, number, tokens):
                    numbers[names[0]] = number
                    preempted.pop(names[0], None)
                else:
                    tables.free(number)
            elif action == "decode":
                for number in numbers.values():
                    _append(tables, number, 1)
            elif action == "end" and names[0] in preempted:
                del preempted[names[0]]
            elif names[0] not in numbers:
                pass  # it could not start: too few blocks were free
            elif action == "grow":
                _append(tables, numbers[names[0]], *(names[1:] or [1]))
            elif action == "fork":
                numbers[names[1]] = tables.fork(numbers[names[0]])
            else:
                if action == "preempt":
                    preempted[names[0]] = tables.length(numbers[names[0]])
                tables.free(numbers.pop(names[0]))
        return tables, numbers, preempted

    def describe(self) -> str:
        """Describe the drawing: the pool, the block tables, and how many requests a contiguous cache would hold."""
        tables, numbers, preempted = self._replay()
        said = [
            f"{name}, {tables.length(number)} tokens, has blocks {', '.join(map(str, tables.table(number)))}"
            for name, number in numbers.items()
        ]
        lengths = [tables.length(number) for number in numbers.values()]
        most, slots = max([self.reserve, *lengths]), self.num_blocks * self.block_size
        requests = f" Block tables: {'; '.join(said)}." if said else ""
        if preempted:
            outside = (f"{name}, {_count(length, 'token')}" for name, length in preempted.items())
            requests += f" Preempted: {'; '.join(outside)}."
        return (
            f"A pool of {self.num_blocks} blocks of {_count(self.block_size, 'slot')}: {tables.used_blocks} in use, "
            f"{tables.filled_slots} of their {tables.used_blocks * tables.block_size} slots hold a token.{requests} "
            f"With {_count(most, 'slot')} reserved contiguously for each, {_count(slots // most, 'request')} would fit."
        )

    def picture(self) -> bytes:
        """Draw the pool and the block tables as a small PNG."""
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle

        tables, numbers = self.replay()
        owners: dict[int, list[str]] = {}
        filled: dict[int, int] = {}
        for name, number in numbers.items():
            for i, block in enumerate(tables.table(number)):
                owners.setdefault(block, []).append(name)
                filled[block] = min(self.block_size, tables.length(number) - i * self.block_size)
        across = 8 if self.num_blocks <= 32 else 16
        down, last = -(-self.num_blocks // across), len(numbers) * 0.42
        figure = Figure(figsize=(8.0, 0.62 * down + 0.55 * last + 0.5), dpi=80, layout="constrained")
        ax = figure.subplots()
        ax.set(xlim=(-0.05, across), ylim=(down + last + 0.4, -0.1))
        ax.set_axis_off()
        small = 9 if across == 8 else 7
        for block in range(self.num_blocks):
            row, column = divmod(block, across)
            names = owners.get(block, [])
            for slot in range(self.block_size):
                wide = 0.88 / self.block_size
                for k, name in enumerate(names if slot < filled.get(block, 0) else []):
                    place = (column + 0.03 + slot * wide, row + 0.38 + 0.4 * k / len(names))
                    ax.add_patch(Rectangle(place, 0.9 * wide, 0.4 / len(names), color=_hue(name), linewidth=0))
            edge, line = ("#5b6070", "-") if names else ("#b9bcc6", ":")
            ax.add_patch(Rectangle((column, row + 0.02), 0.92, 0.82, fill=False, edgecolor=edge, linestyle=line))
            shared = f" ×{len(names)}" if len(names) > 1 and across == 8 else ""
            ax.text(column + 0.05, row + 0.22, str(block), va="center", fontsize=small, color="#5b6070")
            ax.text(column + 0.88, row + 0.22, "".join(names[:3]) + shared, va="center", ha="right", fontsize=small)
        for k, (name, number) in enumerate(numbers.items()):
            table = ", ".join(map(str, tables.table(number)))
            said = f"{name}: {_count(tables.length(number), 'token')} in blocks {table}"
            ax.text(0, down + 0.42 * (k + 0.8), said, va="center", fontsize=10, color=_hue(name))
        return png_of(figure, 64)


def _append(tables: BlockTables, number: int, tokens: int) -> bool:
    try:
        tables.append(number, tokens)
    except OutOfBlocks:
        return False
    return True


def _hue(name: str) -> str:
    return _HUES[string.ascii_uppercase.index(name) % len(_HUES)]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _read_events(events: Any) -> list[list[Any]]:
    """The events as plain lists, once it is sure that they can happen in this order if the pool is large enough."""
    if isinstance(events, str) or not isinstance(events, Iterable):
        raise RefusedError(f"events: expected a sequence of events, got {events!r}")
    story: list[list[Any]] = []
    present: list[str] = []
    preempted: list[str] = []  # of those present
    for event in events:
        match event:
            case ["start", name, tokens] if _is_new(name, present):
                present.append(name)
                story.append(["start", name, check_whole("events", tokens, 1, _MOST)])
                continue
            case ["fork", name, other] if name in present and name not in preempted and _is_new(other, present):
                present.append(other)
            case ["end", name] if name in present:
                present.remove(name)
                preempted = [other for other in preempted if other != name]
            case ["decode"]:
                pass
            case ["grow", name] if name in present and name not in preempted:
                pass
            case ["grow", name, tokens] if name in present and name not in preempted:
                story.append(["grow", name, check_whole("events", tokens, 1, _MOST)])
                continue
            case ["preempt", name] if name in present and name not in preempted:
                preempted.append(name)
            case ["resume", name] if name in preempted:
                preempted.remove(name)
            case _:
                raise RefusedError(
                    'events: expected ["start", new, tokens], ["grow", name], ["grow", name, tokens], ["decode"], '
                    '["fork", name, new], ["preempt", name], ["resume", name] or ["end", name], each name one of '
                    f"{present}, {preempted} of them preempted, each new a capital letter that is not, got {event!r}"
                )
        story.append(list(event))
    return story


def _is_new(name: Any, present: list[str]) -> bool:
    return isinstance(name, str) and len(name) == 1 and name in string.ascii_uppercase and name not in present
