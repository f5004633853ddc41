"""Every ratio of `results/`, and README's table of them: `python -m benchmarks.summary` writes it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Peers that are no library of others': PyTorch's own layers and kernels, and plainer ways of ours.
PYTORCH = (
    *("torch scaled_dot_product_attention", "torch nn.MultiheadAttention", "fused kernel, four linear layers"),
    *("compiled FlexAttention", "gathered, then torch"),
)
OURS = ("attention", "explicit", "without a cache", "KVCache and attention")
README = HERE.parent / "README.md"
BEGIN, END = "<!-- benchmarks -->\n", "<!-- end of benchmarks -->\n"


@dataclass(frozen=True)
class Ratio:
    """How many times as fast as a peer ours was in one trial: the median of the rounds, and where most of them lie.

    ``ours_mib`` and ``peer_mib``: the peak memory of each, in MiB.
    """

    case: str
    trial: str
    ours: str
    peer: str
    median: float
    p10: float
    p90: float
    ours_mib: float
    peer_mib: float

    @property
    def kind(self) -> str:
        """Whose the peer is."""
        return "ourselves" if self.peer in OURS else "PyTorch" if self.peer in PYTORCH else "a library"

    @property
    def verdict(self) -> str:
        """Whether ours is faster or slower in most rounds; level where the rounds fell on both sides of 1."""
        return "faster" if self.p10 > 1 else "slower" if self.p90 < 1 else "level"


def ratios(folder: Path = HERE / "results") -> list[Ratio]:
    """Every ratio of every recorded case, in the order of the files and their trials."""
    found = []
    for path in sorted(folder.glob("*.json")):
        for trial in json.loads(path.read_text(encoding="utf-8"))["trials"]:
            for one in trial["ratios"]:
                mib = [trial["memory_mib"][one[side]]["memory"] for side in ("ours", "peer")]
                found.append(Ratio(path.stem, trial["name"], **one, ours_mib=mib[0], peer_mib=mib[1]))
    return found


def pairs(found: list[Ratio]) -> dict[tuple[str, str, str], list[Ratio]]:
    """The ratios by case, ours and peer; libraries first, then PyTorch, then ourselves."""
    grouped: dict[tuple[str, str, str], list[Ratio]] = {}
    for one in sorted(found, key=lambda one: ("a library", "PyTorch", "ourselves").index(one.kind)):
        grouped.setdefault((one.case, one.ours, one.peer), []).append(one)
    return grouped


def times(ratio: float) -> str:
    """A ratio in at most three figures."""
    return f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def table(found: list[Ratio]) -> str:
    """A Markdown table with a line for each pair: how many times as fast, and in how many trials faster or slower."""
    lines = [
        "| case | ours | beside | times as fast | faster | level | slower |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for (case, ours, peer), group in pairs(found).items():
        low, high = (times(limit(one.median for one in group)) for limit in (min, max))
        counts = [sum(one.verdict == verdict for one in group) for verdict in ("faster", "level", "slower")]
        span = low if low == high else f"{low} to {high}"
        lines.append(f"| {case} | {ours} | {peer} | {span} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines) + "\n"


def with_table(readme: str, found: list[Ratio]) -> str:
    """README's text with the table between its two marks as it should be.

    Raises:
        ValueError: a mark is missing.
    """
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise ValueError(f"README.md: expected the lines {BEGIN.strip()} and {END.strip()}, once each")
    before, rest = readme.split(BEGIN)
    return before + BEGIN + "\n" + table(found) + "\n" + END + rest.split(END)[1]


def main() -> int:
    """Write README's table."""
    README.write_text(with_table(README.read_text(encoding="utf-8"), ratios()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
