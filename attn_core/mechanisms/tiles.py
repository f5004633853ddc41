"""Which tiles the Triton kernels work in, by kernel, head size, dtype and device.

A tile has queries, keys, warps, and stages of the pipeline. What ``python -m benchmarks.tiles`` found on a GPU is in
``tiles.json``; for other devices there are guesses, made without one, of which the first call takes the fastest.
"""

import json
from pathlib import Path

import torch

Tile = tuple[int, int, int, int]

# By the largest head size in 16 bits; 0 is float32, without tensor cores. The last tile of a row fits GPUs with 100 KB
# of shared memory; some others need Hopper's 227 KB, and so does float32 with heads of more than 128 entries.
GUESSES: dict[str, dict[int, list[Tile]]] = {
    "forward": {
        0: [(32, 32, 4, 2)],
        64: [(128, 64, 4, 3), (128, 128, 8, 3), (128, 64, 8, 3), (64, 64, 4, 3)],
        128: [(128, 128, 8, 2), (128, 64, 8, 3), (64, 64, 4, 2)],
        256: [(128, 64, 8, 2), (128, 32, 8, 2), (64, 32, 4, 2)],
    },
    "backward_q": {
        0: [(32, 32, 4, 2)],
        64: [(128, 128, 8, 2), (128, 64, 8, 3), (64, 64, 4, 2)],
        128: [(128, 128, 8, 2), (128, 64, 8, 2), (64, 64, 4, 2), (64, 32, 4, 2)],
        256: [(64, 64, 8, 2), (64, 32, 4, 2), (32, 32, 4, 2)],
    },
    "backward_kv": {
        0: [(16, 32, 8, 1)],
        64: [(64, 128, 8, 3), (64, 128, 8, 2), (64, 64, 4, 2)],
        128: [(64, 128, 8, 2), (64, 64, 8, 2), (32, 128, 8, 3), (64, 64, 4, 2), (32, 64, 4, 2)],
        256: [(32, 64, 8, 2), (32, 32, 4, 2)],
    },
    "read_part": {128: [(16, 64, 4, 3)], 256: [(16, 32, 4, 3)], 512: [(16, 16, 4, 3)]},  # of paged_triton
}
FOUND: dict[str, Tile] = json.loads((Path(__file__).parent / "tiles.json").read_text(encoding="utf-8"))


def tiles(kernel: str, size: int, dtype: torch.dtype) -> list[Tile]:
    """The tiles to try for heads of ``size``, a power of two: the one that was fastest on such a GPU, or guesses."""
    from triton.runtime import driver  # triton may be absent

    if found := FOUND.get(f"{kernel}, heads of {size}, {dtype}, {driver.active.get_current_target().arch}"):
        return [found]
    row, wide = GUESSES[kernel], dtype == torch.float32
    return row[0 if wide and 0 in row else min(key for key in row if key >= (2 * size if wide else size))]
