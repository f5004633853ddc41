"""Which tiles the Triton kernels work in, by kernel, head size, dtype and device: the table is ``tiles.json``.

A tile has queries, keys, warps, and stages of the pipeline. What ``python -m benchmarks.tiles`` has found on a GPU is
``found``. For other devices there are ``guesses``, made without one, of which the first call takes the fastest: by the
largest head size in 16 bits, 0 for float32, without tensor cores. The last tile of a row fits GPUs with 100 KB of
shared memory; some others need Hopper's 227 KB, and so does float32 with heads of more than 128 entries.
"""

import json
from pathlib import Path

import torch

Tile = tuple[int, int, int, int]
_TABLE = json.loads((Path(__file__).parent / "tiles.json").read_text(encoding="utf-8"))
GUESSES: dict[str, dict[int, list[Tile]]] = {
    kernel: {int(size): some for size, some in rows.items()} for kernel, rows in _TABLE["guesses"].items()
}
FOUND: dict[str, Tile] = _TABLE["found"]


def tiles(kernel: str, size: int, dtype: torch.dtype) -> list[Tile]:
    """The tiles to try for heads of ``size``, a power of two: the one that was fastest on such a GPU, or guesses."""
    from triton.runtime import driver  # triton may be absent

    if found := FOUND.get(f"{kernel}, heads of {size}, {dtype}, {driver.active.get_current_target().arch}"):
        return [found]
    row, wide = GUESSES[kernel], dtype == torch.float32
    return row[0 if wide and 0 in row else min(key for key in row if key >= (2 * size if wide else size))]
