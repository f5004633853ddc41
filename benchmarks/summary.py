"""Every ratio of `results/`, and README's table of some: `python -m benchmarks.summary` writes it."""

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
OURS = (
    *("attention", "explicit", "without a cache", "KVCache and attention"),
    *("generate, one batch", "generate, one by one"),
)
_SDPA, _LLAMA = "torch scaled_dot_product_attention", "transformers LlamaForCausalLM"
_WINDOW = "LongformerAttention", "compiled FlexAttention"
_LAYER = "MultiHeadAttention", "torch nn.MultiheadAttention"
SHOWN = {
    "exact attention, 2,048 tokens": ("dense", "long, full, forward", "attention", _SDPA),
    "exact attention in PyTorch tiles, 4,096 tokens": ("flash", "long, full, forward", "flash_attention", _SDPA),
    "a layer, forward and backward, 4,096 tokens": ("multi_head", "longest, full, forward and backward", *_LAYER),
    "a window of 256 on either side, 8,192 tokens": ("longformer", "8192 tokens, window alone, forward", *_WINDOW),
    "training a Transformer": ("transformer_training", "same batches, cut at 10 steps", "attn_core", "d2l"),
    "SmolLM2 reads a prompt of 512 tokens": ("smollm2", "prefill, float32", "prefill", _LLAMA),
    "SmolLM2 writes 32 tokens for one request": ("smollm2", "decoding, float32", "generate", _LLAMA),
    "SmolLM2 serves 32 requests": ("serving", "32 requests", "Engine", "transformers generate, one batch"),
}
"""What README shows: some of each kind, and where we lose."""
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


def like_with_like(one: Ratio) -> bool:
    """Whether both sides did the same work, each in the way that it was written for."""
    if one.case == "crossover":  # cheaper mechanisms beside exact attention
        return False
    if one.case.endswith("_training"):  # in the other trials each side makes batches in its own way
        return one.trial.startswith("same batches")
    return one.case != "performer" or "causal" not in one.trial  # there the peer has only a plain fallback


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
    """A Markdown table of the comparisons in ``SHOWN``: how many times as fast ours is, and how far the rounds spread.

    Raises:
        ValueError: if one of them was not recorded.
    """
    lines = ["| what | ours | compared with | times as fast |", "|---|---|---|--:|"]
    recorded = {(one.case, one.trial, one.ours, one.peer): one for one in found}
    for what, key in SHOWN.items():
        if key not in recorded:
            raise ValueError(f"SHOWN: expected a recorded comparison, got {key}")
        one = recorded[key]
        spread = f"[{times(one.p10)}, {times(one.p90)}]"
        lines.append(f"| {what} | `{one.ours}` | {one.peer} | {times(one.median)} {spread} |")
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
