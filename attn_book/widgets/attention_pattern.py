"""An explorer of sparse attention patterns: which pairs of tokens each computes, and how many scores that takes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import traitlets

from attn_book.widgets.base import Joined, RefusedError, StaticWidget, Whole, check_whole, png_of
from attn_core.mechanisms.window import SlidingWindow

PATTERNS = {
    "full": "Full attention",
    "window": "Sliding window",
    "global": "Window + global tokens",
    "hash": "Hashed buckets",
    "slots": "Learned slots",
}
_NEVER_CAUSAL = {"global": "a global token reads all tokens", "slots": "each slot mixes all keys"}
# What the page's sliders reach, and how its circle of tokens is drawn: as in pattern_pairs.js.
_LENGTHS, _WINDOWS, _DILATIONS, _GLOBALS = (16, 96), (0, 32), (1, 8), (0, 16)
_BUCKETS, _SIZES, _ROUNDS, _SLOTS, _SEEDS = (2, 16), (2, 32), (1, 4), (1, 32), (0, 9999)
_SCALE, _CLUSTERS, _SPREAD, _TOKENS = 16, 6, 0.05, 7
_NEAR, _GLOBAL, _SAME = "#5a3aa6", "#d9680f", "#00755f"


class _OneOf(traitlets.TraitType[Any, Any]):
    """One of a few values. Anything else raises a ValueError, as with `Whole`."""

    def __init__(self, *choices: Any) -> None:
        super().__init__(choices[0])
        self.choices = choices

    def validate(self, _: Any, value: Any) -> Any:
        if not isinstance(value, str | bool | np.bool_) or value not in self.choices:
            expected = ", ".join(map(repr, self.choices))
            raise RefusedError(f"{self.name}: expected one of {expected}, got {value!r}")
        return self.choices[self.choices.index(value)]


class AttentionPatternExplorer(StaticWidget):
    """The matrix of queries and keys, the pairs that a pattern reads, the reason for each, and the number of scores.

    The page computes everything itself from twelve synced traits. `pattern` is one of

    - `"full"`: each query reads all keys;
    - `"window"`: `SlidingWindow` with `window` tokens (0 to 32) on each side and a `dilation` (1 to 8);
    - `"global"`: `LongformerAttention`, where the first `global_tokens` (0 to 16) read all and are read by all;
    - `"hash"`: `LSHAttention` with `rounds` (1 to 4) of hashes into `num_buckets` (even, 2 to 16) and chunks of
      `bucket_size` (2 to 32); the tokens are points in clusters on a circle, and `seed` (0 to 9999) draws the hashes;
    - `"slots"`: `Linformer`, whose keys are `slots` mixtures (1 to 32) of all keys.

    `n` is the length (16 to 96) and `query` the selected row (0 to n − 1; it moves to the last row when `n` falls below
    it). `causal` leaves out the keys after a query. The patterns `"global"` and `"slots"` are never causal and ignore
    the trait.

    Raises:
        ValueError: if an argument, or a value that a trait is set to, does not fit. The message names it. The
            constructor also refuses `causal=True` for a pattern that is never causal.

    Source: Beltagy et al. 2020, section 3.1; Kitaev et al. 2020, section 2; Wang et al. 2020, section 4.
    """

    _esm = Joined("page.js", "pattern_pairs.js", "pattern_words.js", "pattern_drawing.js", "attention_pattern.js")
    _css = Joined("page.css", "attention_pattern.css")

    pattern = _OneOf(*PATTERNS).tag(sync=True, static=True)
    causal = _OneOf(False, True).tag(sync=True, static=True)
    n = Whole(64, *_LENGTHS).tag(sync=True, static=True)
    window = Whole(4, *_WINDOWS).tag(sync=True, static=True)
    dilation = Whole(1, *_DILATIONS).tag(sync=True, static=True)
    global_tokens = Whole(2, *_GLOBALS).tag(sync=True, static=True)
    num_buckets = Whole(8, *_BUCKETS).tag(sync=True, static=True)
    bucket_size = Whole(8, *_SIZES).tag(sync=True, static=True)
    rounds = Whole(2, *_ROUNDS).tag(sync=True, static=True)
    slots = Whole(8, *_SLOTS).tag(sync=True, static=True)
    seed = Whole(0, *_SEEDS).tag(sync=True, static=True)
    query = Whole(32, 0, _LENGTHS[1] - 1).tag(sync=True, static=True)

    def __init__(
        self,
        pattern: str = "window",
        n: int = 64,
        *,
        causal: bool = False,
        window: int = 4,
        dilation: int = 1,
        global_tokens: int = 2,
        num_buckets: int = 8,
        bucket_size: int = 8,
        rounds: int = 2,
        slots: int = 8,
        seed: int = 0,
        query: int | None = None,
    ) -> None:
        n = check_whole("n", n, *_LENGTHS)
        if causal and isinstance(pattern, str) and pattern in _NEVER_CAUSAL:
            why = _NEVER_CAUSAL[pattern]
            raise RefusedError(f'causal: expected False with pattern "{pattern}", since {why}, got {causal!r}')
        super().__init__(
            pattern=pattern,
            n=n,
            causal=causal,
            window=window,
            dilation=dilation,
            global_tokens=global_tokens,
            num_buckets=num_buckets,
            bucket_size=bucket_size,
            rounds=rounds,
            slots=slots,
            seed=seed,
            query=n // 2 if query is None else query,
        )

    def __repr__(self) -> str:
        return f"AttentionPatternExplorer({self.pattern!r}, n={self.n}{', causal=True' if self._causal() else ''})"

    @traitlets.validate("num_buckets", "query")
    def _fits(self, proposal: Any) -> int:
        name, value = proposal["trait"].name, int(proposal["value"])
        if name == "query":
            return check_whole("query", value, 0, self.n - 1)
        if value % 2:
            raise RefusedError(f"num_buckets: expected an even number from 2 to 16, got {value}")
        return value

    @traitlets.observe("n")
    def _stay(self, _: Any) -> None:
        self.query = min(self.query, self.n - 1)

    def pairs(self) -> np.ndarray:
        """Return which keys each query reads, `(n, n)` bool; for slots `(n, slots)`, all True."""
        if self.pattern == "slots":
            return np.ones((self.n, self.slots), dtype=bool)
        masked = self._masked()
        if self.pattern == "full":
            return ~masked
        if self.pattern == "hash":
            return self._meeting()
        near = SlidingWindow(self.window, dilation=self.dilation).allowed(self.n, self.n).numpy()
        if self.pattern == "window":
            return np.asarray(near & ~masked)
        is_global = np.arange(self.n) < self.global_tokens
        return np.asarray(near | is_global | is_global[:, None])

    def directions(self) -> np.ndarray:
        """Return each token's direction on the circle of the hashes, `(n,)`, in turns from 0 to 1."""
        draw = _random(_TOKENS)
        centres = [(k + 0.6 * draw()) / _CLUSTERS for k in range(_CLUSTERS)]
        return np.array([centres[int(draw() * _CLUSTERS)] + _SPREAD * (draw() + draw() - 1) for _ in range(self.n)])

    def buckets(self) -> np.ndarray:
        """Return each token's bucket in each round, `(rounds, n)`: its sector after a random rotation of the circle."""
        draw, angles = _random(self.seed), self.directions()
        rotated = angles + np.array([[draw()] for _ in range(self.rounds)])
        return np.floor((rotated - np.floor(rotated)) * self.num_buckets).astype(int)

    def weights(self) -> np.ndarray:
        """Return the weights of full attention among the circle's tokens, `(n, n)`: softmax of 16 times the cosine.

        As in LSH attention, a token attends to itself only if it can attend to no other.
        """
        angles = self.directions()
        powers = np.exp(_SCALE * (np.cos(2 * np.pi * (angles[:, None] - angles)) - 1))
        powers[self._masked()] = 0
        np.fill_diagonal(powers, 0)
        powers[powers.sum(1) == 0] = np.eye(self.n)[powers.sum(1) == 0]
        return np.asarray(powers / powers.sum(1, keepdims=True))

    def scores(self, n: int | None = None) -> int:
        """Return how many scores the pattern computes at length `n`, by default the widget's own.

        These are its pairs. For hashing they are, for each token and round, the tokens of both chunks, whatever their
        bucket.
        """
        length = self.n if n is None else check_whole("n", n, 1, 2**31)
        return _count(self, self.pattern, length, self._causal())

    def describe(self) -> str:
        """Describe the drawing: the pattern, how many pairs it reads, and how many scores it computes."""
        pairs, order = self.pairs(), ", causal" if self._causal() else ""
        keys = f"{self.slots} slots, each a mixture of all keys" if self.pattern == "slots" else f"{self.n} keys"
        said = (
            f"{PATTERNS[self.pattern]}{order}: {self.n} queries by {keys}. {pairs.sum():,} pairs are read, and "
            f"{self.scores():,} scores computed, where full attention has {self.n**2:,}; "
            f"query {self.query} reads {pairs[self.query].sum()}."
        )
        if self.pattern != "hash":
            return said
        held = (self.weights() * pairs).sum(1).mean()
        return f"{said} Of the weight that full attention gives, the pairs read hold {100 * held:.0f} % on average."

    def picture(self) -> bytes:
        """Draw the matrix, and the scores of each pattern over the length, as a small PNG."""
        from matplotlib.colors import ListedColormap
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.0, 4.0), dpi=80, layout="constrained")
        matrix, chart = figure.subplots(1, 2)
        shown = self.pairs().astype(int)
        if self.pattern == "global":
            shown[: self.global_tokens], shown[:, : self.global_tokens] = 2, 2
        colours = ["#efedf7", _SAME if self.pattern == "hash" else _NEAR, _GLOBAL]
        matrix.imshow(shown, cmap=ListedColormap(colours), vmin=0, vmax=2, interpolation="nearest")
        matrix.set(title=PATTERNS[self.pattern], ylabel="query", xlabel="slot" if self.pattern == "slots" else "key")
        lengths = [2**power for power in range(6, 17)]
        for pattern, style in zip(PATTERNS, ("-", "--", "-.", ":", (0, (8, 3))), strict=True):
            chosen = pattern == self.pattern
            counts = [_count(self, pattern, n, self._causal()) for n in lengths]
            look: dict[str, Any] = {"linewidth": 2.8, "color": _NEAR} if chosen else {"color": "#5b6070"}
            chart.loglog(lengths, counts, label=PATTERNS[pattern], linestyle=style, **look)
        chart.set(title="Scores over the length n", xlabel="n", ylim=(30, None))
        chart.minorticks_off()
        chart.legend(frameon=False, fontsize=8)
        return png_of(figure, 48)

    def _causal(self) -> bool:
        return bool(self.causal and self.pattern not in _NEVER_CAUSAL)

    def _masked(self) -> np.ndarray:
        """The pairs whose key comes after the query, `(n, n)`, if the pattern is causal; otherwise none."""
        return np.asarray((np.arange(self.n) > np.arange(self.n)[:, None]) & self._causal())

    def _meeting(self) -> np.ndarray:
        """The pairs that share a bucket, in chunks near enough, in at least one round of hashes."""
        seen, chunk = np.zeros((self.n, self.n), dtype=bool), min(self.bucket_size, self.n)
        for buckets in self.buckets():
            rank = np.argsort(np.argsort(buckets, kind="stable"))
            apart = rank[:, None] - rank if self._causal() else rank[:, None] // chunk - rank // chunk
            seen |= (buckets[:, None] == buckets) & (apart >= 0) & (apart <= (chunk if self._causal() else 1))
        np.fill_diagonal(seen, False)
        np.fill_diagonal(seen, ~seen.any(1))
        return seen


def _random(seed: int) -> Callable[[], float]:
    """Numbers from 0 to 1, the same in Python and in the page."""
    states = itertools.accumulate(itertools.repeat(seed), lambda state, _: (1664525 * state + 1013904223) % 2**32)
    numbers = itertools.islice(states, 4, None)  # leaves out the first numbers, nearly alike for neighbouring seeds
    return lambda: next(numbers) / 2**32


def _count(widget: AttentionPatternExplorer, pattern: str, n: int, causal: bool) -> int:
    """The scores of a pattern at length n: see `scores`."""
    if pattern == "full":
        return n * (n + 1) // 2 if causal else n * n
    if pattern == "hash":
        return widget.rounds * n * 2 * min(widget.bucket_size, n)
    if pattern == "slots":
        return n * widget.slots
    rest = n if pattern == "window" else max(0, n - widget.global_tokens)
    lines = max(0, min(widget.window, (rest - 1) // widget.dilation))
    beside = lines * rest - widget.dilation * math.comb(lines + 1, 2)
    return n * n - rest * rest + rest + (1 if causal and pattern == "window" else 2) * beside
