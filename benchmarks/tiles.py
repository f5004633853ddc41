"""The fastest tiles of each Triton kernel, by head size, dtype and device, for ``attn_core/mechanisms/tiles.json``.

``python -m benchmarks.gpu --stages tiles --out FOLDER`` measures them on a GPU, among the guesses of that table, and
``python -m benchmarks.tiles FOLDER/gpu.json`` puts what it found into the table.
"""

import functools
import itertools
import json
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from attn_core.mechanisms import tiles
from benchmarks import measure
from benchmarks.gpu_contest import Place, Row
from benchmarks.gpu_trials import in_blocks, split

TABLE = Path(tiles.__file__).with_name("tiles.json")
STEPS, WARPS, STAGES = (32, 64, 128, 16), (4, 2), (3, 2)
"""What is tried for decoding: keys in a tile, warps, stages of the pipeline."""


def measured(place: Place) -> Iterator[Row]:
    """A row for each kernel, head size and dtype, with the ``tile`` that was fastest and the milliseconds of all."""
    tiles.FOUND.clear()  # all guesses are tried
    for dtype in [torch.float32] if place.dry else [torch.bfloat16, torch.float32, torch.float16]:
        for size in [16] if place.dry else [128, 64, 256]:
            yield from of_flash(place, size, dtype)
        for size in [16] if place.dry else [128, 64, 256]:
            yield of_decoding(place, size, dtype)


def row(place: Place, kernel: str, size: int, dtype: torch.dtype, tile: list[int], milliseconds: Any) -> Row:
    """What was found; its name is the one by which ``tiles`` looks for it."""
    device = "none" if place.dry else "".join(map(str, torch.cuda.get_device_capability()))
    return {"what": f"{kernel}, heads of {size}, {dtype}, {device}", "tile": tile, "milliseconds": milliseconds}


def of_flash(place: Place, size: int, dtype: torch.dtype) -> Iterator[Row]:
    """Flash attention's kernels measure their tiles themselves, when they first meet a size and dtype."""
    from attn_core.contract import contract
    from attn_core.mechanisms import flash_triton

    shape = (1, 1, 32, size) if place.dry else (4, 16, 4096, size)
    inputs = [torch.randn(shape, device=place.device, dtype=dtype, requires_grad=True) for _ in range(3)]
    flash_triton.flash_attention_triton(contract(*inputs, causal=True)).sum().backward()
    for kernel in ("forward", "backward_q", "backward_kv"):
        tuner = getattr(flash_triton, f"_{kernel}")
        times = {str(as_tile(config)): timing for config, timing in getattr(tuner, "configs_timings", {}).items()}
        finite = {name: round(timing[0], 4) for name, timing in times.items() if timing[0] < float("inf")}
        yield row(place, kernel, size, dtype, as_tile(tuner.best_config), finite)


def as_tile(config: Any) -> list[int]:
    """A choice of Triton's tuner as the table has it."""
    return [config.kwargs["BLOCK_T"], config.kwargs["BLOCK_S"], config.num_warps, config.num_stages]


def of_decoding(place: Place, size: int, dtype: torch.dtype) -> Row:
    """Decoding from a paged cache, with one tile after the other."""
    sizes = (2, 2, 1, 40) if place.dry else (32, 32, 8, 4096)
    given = in_blocks(place, *sizes, size)
    given = *(x.to(dtype) for x in given[:3]), *given[3:]
    work = functools.partial(split, place, given)
    found: dict[str, float] = {}
    some = [(16, 4, 1)] if place.dry else itertools.product(STEPS, WARPS, STAGES)
    for step, warps, stages in some:
        tile = [16, step, warps, stages]
        tiles.FOUND[row(place, "read_part", size, dtype, [], {})["what"]] = (16, step, warps, stages)
        try:
            work()
        except Exception:  # it does not fit into shared memory
            place.wait()
            continue
        seconds, _ = measure.alternate({"it": work}, rounds=3, device=place.device, shortest=0.002, warm_up=1)
        found[str(tile)] = round(1000 * statistics.median(seconds["it"]), 4)
    tiles.FOUND.clear()
    best = json.loads(min(found, key=found.__getitem__))
    return row(place, "read_part", size, dtype, best, found)


def main(arguments: list[str], table: Path = TABLE) -> int:
    """Put what a record has found into the table."""
    (path,) = arguments
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    if record["run"]["size"] == "dry":
        raise ValueError(f"{path}: expected a run on a GPU, got a dry one")
    stored = json.loads(table.read_text(encoding="utf-8"))
    stored["found"] |= {row["what"]: row["tile"] for row in record["stages"]["tiles"]["rows"]}
    text = json.dumps(stored, indent=1)
    text = re.sub(r"\[\s+(\d+),\s+(\d+),\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2, \3, \4]", text)  # a tile a line
    table.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
