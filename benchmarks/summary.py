"""Every ratio of `results/`, and README's tables of some: `python -m benchmarks.summary` writes them."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
ON_A_GPU = {
    "flash attention forward, 4,096 tokens": (
        *("flash", "rows of 4k, heads of 128, causal, forward"),
        *("flash_attention_triton", "torch flash"),
    ),
    "flash attention backward, 4,096 tokens": (
        *("flash", "rows of 4k, heads of 128, causal, backward"),
        *("flash_attention_triton", "torch flash"),
    ),
    "the kernel of chapter 10, 4,096 tokens": (
        *("flash", "rows of 4k, heads of 128, causal, forward"),
        *("the page's kernel", "torch flash"),
    ),
    "a window of 256, 16,384 tokens": (
        *("window", "16384 tokens, causal, forward"),
        *("SlidingWindow", "compiled FlexAttention"),
    ),
    "decoding from a paged cache, 32 rows of 16,384 tokens": (
        *("paged", "32 rows of 16384 tokens"),
        *("split_attention", "torch, contiguous"),
    ),
    "a model of SmolLM2's sizes writes 64 tokens": ("model", "decoding", "CUDA graphs", _LLAMA),
    "the same serves 32 requests": ("engine", "32 requests", "Engine", "transformers generate, one batch"),
}
"""What README and the page of benchmarks show of a GPU: stage, row, ours, peer."""
NO_GPU = (
    "No GPU has been measured yet; the kernels for GPUs are tested in Triton's interpreter and compiled for compute "
    "capability 9.0."
)
COLUMNS = ["what", "ours", "compared with", "times as fast"]
README = HERE.parent / "README.md"
BEGIN, END = "<!-- benchmarks -->\n", "<!-- end of benchmarks -->\n"
GPU_BEGIN, GPU_END = "<!-- on a GPU -->\n", "<!-- end of on a GPU -->\n"


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


def files(folder: Path = HERE / "results") -> list[Path]:
    """The results of the cases; what was measured on a GPU has a form of its own."""
    return sorted(path for path in folder.glob("*.json") if path.name != "gpu.json")


def ratios(folder: Path = HERE / "results") -> list[Ratio]:
    """Every ratio of every recorded case, in the order of the files and their trials."""
    found = []
    for path in files(folder):
        for trial in json.loads(path.read_text(encoding="utf-8"))["trials"]:
            for one in trial["ratios"]:
                mib = [trial["memory_mib"][one[side]]["memory"] for side in ("ours", "peer")]
                found.append(Ratio(path.stem, trial["name"], **one, ours_mib=mib[0], peer_mib=mib[1]))
    return found


def like_with_like(one: Ratio) -> bool:
    """Whether both sides did the same work, each in the way that it was written for."""
    if one.case == "crossover" or "its products" in one.trial:  # cheaper mechanisms, and the limit of decoding
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


def spread(one: dict[str, float]) -> str:
    """A median, and where most of the rounds lie."""
    return f"{times(one['median'])} [{times(one['p10'])}, {times(one['p90'])}]"


def table(found: list[Ratio]) -> str:
    """A Markdown table of the comparisons in ``SHOWN``: how many times as fast ours is, and how far the rounds spread.

    Raises:
        ValueError: if one of them was not recorded.
    """
    rows = []
    recorded = {(one.case, one.trial, one.ours, one.peer): one for one in found}
    for what, key in SHOWN.items():
        if key not in recorded:
            raise ValueError(f"SHOWN: expected a recorded comparison, got {key}")
        one = recorded[key]
        rows.append((what, one.ours, one.peer, spread(vars(one))))
    return markdown(rows)


def markdown(rows: list[tuple[str, str, str, str]]) -> str:
    """Rows as a Markdown table."""
    lines = [f"| {what} | `{ours}` | {peer} | {ratio} |" for what, ours, peer, ratio in rows]
    return "\n".join([f"| {' | '.join(COLUMNS)} |", "|---|---|---|--:|", *lines]) + "\n"


def gpu_record(folder: Path = HERE / "results") -> dict[str, Any] | None:
    """What ``benchmarks/gpu.py`` measured on a GPU, or None.

    Raises:
        ValueError: if it is the record of a dry run.
    """
    path = folder / "gpu.json"
    if not path.exists():
        return None
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if record["run"]["size"] == "dry":
        raise ValueError(f"{path.name}: expected a run on a GPU, got a dry one")
    return record


def gpu_rows(record: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """The comparisons in ``ON_A_GPU`` that were measured, as ``COLUMNS`` say."""
    measured = {
        (stage, row["what"], one["ours"], one["peer"]): one
        for stage, found in record["stages"].items()
        for row in found["rows"]
        for one in row.get("ratios", ())
    }
    return [(what, key[2], key[3], spread(measured[key])) for what, key in ON_A_GPU.items() if key in measured]


def gpu_sentence(record: dict[str, Any] | None) -> str:
    """On which GPU was measured, and when."""
    if record is None:
        return NO_GPU
    run = record["run"]
    versions = f"torch {run['versions']['torch']}, Triton {run['versions']['triton']}"
    return f"Measured on one {run['device']} in bfloat16, with {versions}, on {run['date']}."


def with_table(readme: str, found: list[Ratio], gpu: dict[str, Any] | None) -> str:
    """README's text with what stands between its two pairs of marks as it should be.

    Raises:
        ValueError: a mark is missing.
    """
    on_a_gpu = gpu_sentence(gpu) + "\n" + ("\n" + markdown(gpu_rows(gpu)) if gpu else "")
    for begin, end, text in ((BEGIN, END, table(found)), (GPU_BEGIN, GPU_END, on_a_gpu)):
        if readme.count(begin) != 1 or readme.count(end) != 1:
            raise ValueError(f"README.md: expected the lines {begin.strip()} and {end.strip()}, once each")
        before, rest = readme.split(begin)
        readme = before + begin + "\n" + text + "\n" + end + rest.split(end)[1]
    return readme


def main() -> int:
    """Write README's tables."""
    readme = README.read_text(encoding="utf-8")
    README.write_text(with_table(readme, ratios(), gpu_record()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
