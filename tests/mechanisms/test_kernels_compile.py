"""Every Triton kernel compiles for Hopper GPUs, down to machine code. This needs no GPU.

The other tests run the kernels in Triton's interpreter, which accepts code that the compiler refuses. Here the kernels
are launched as on a GPU, but with tensors on the CPU, and a launch stops as soon as the kernel is compiled.
"""

import json
import os
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="the package triton is not installed (it is made for Linux)")

from triton import knobs  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.runtime import Autotuner, JITFunction, driver  # noqa: E402

from attn_core.cache.block_tables import StreamingWindow  # noqa: E402
from attn_core.cache.paged_triton import split_attention  # noqa: E402
from attn_core.contract import contract  # noqa: E402
from attn_core.mechanisms import tiles as tiles_of_kernels  # noqa: E402
from attn_core.mechanisms.flash_triton import flash_attention_triton  # noqa: E402
from benchmarks.tiles import main as store_tiles  # noqa: E402

HOPPER = SimpleNamespace(  # instead of a driver; its kernels are kept apart from those of real devices, 0, 1, …
    get_current_target=lambda: GPUTarget("cuda", 90, 32),
    get_current_device=lambda: "Hopper",
    get_current_stream=lambda device: None,
)
HOPPERS, SMALL = 227 * 1024, 99 * 1024
"""Bytes of shared memory for a program: on Hopper, and on GPUs with 100 KB, which keep 1 KB to themselves."""


@pytest.fixture
def launches(monkeypatch, tmp_path):
    """A list to which each launch adds what it compiled: a list with one kernel for each of the tiles to try."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("this is the interpreter's process, in which nothing is compiled")
    try:
        assert knobs.nvidia.ptxas.path
    except RuntimeError as error:
        pytest.skip(f"NVIDIA's assembler is not at hand: {error}")
    launches, run, prune = [], JITFunction.run, Autotuner.prune_configs

    def compile(kernel, *args, warmup, **options):
        compiled = run(kernel, *args, warmup=True, **options)
        if not warmup:
            launches.append([compiled])
        return compiled

    def tiles(tuner, options):
        row = prune(tuner, options)
        return row[-1:] if tuner.nargs["q"].dtype == torch.float16 else row  # bfloat16 has the same tiles and tries all

    def compile_all(tuner, *args, warmup, **options):
        launches.append(tuner.warmup(*args, **options))

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tiles_of_kernels, "FOUND", {})  # guesses are tried on all devices
    monkeypatch.setattr(driver, "_active", HOPPER)
    monkeypatch.setattr(JITFunction, "run", compile)
    monkeypatch.setattr(Autotuner, "run", compile_all)
    monkeypatch.setattr(Autotuner, "prune_configs", tiles)
    return launches


CASES = {  # B, H, G, T, S; causal, and whether there are a mask and a bias
    "causal": (2, 4, 2, 128, 128, True, False),
    "limited": (2, 4, 2, 128, 128, False, True),
    "ones": (1, 1, 1, 1, 1, False, True),  # Triton compiles sizes and strides of 1 as constants
}
RUNS = [("causal", torch.bfloat16), ("limited", torch.float32), ("limited", torch.bfloat16), ("ones", torch.float16)]
KERNELS = {"forward", "backward_q", "backward_kv", "_read_part", "_combine"}


@pytest.mark.parametrize(("case", "dtype"), RUNS)
def test_every_kernel_compiles(launches, case, dtype):
    batch, heads, groups, queries, keys, causal, limited = CASES[case]
    q = torch.zeros(batch, heads, queries, 64, dtype=dtype, requires_grad=True)
    k, v = torch.zeros(2, batch, groups, keys, 64, dtype=dtype, requires_grad=True)
    mask = torch.ones(batch, 1, 1, keys, dtype=torch.bool) if limited else None
    bias = torch.zeros(heads, queries, keys, dtype=dtype) if limited else None
    flash_attention_triton(contract(q, k, v, mask=mask, bias=bias, causal=causal)).sum().backward()
    table, lengths = torch.zeros(batch, 1, dtype=torch.int64), torch.full((batch,), keys)
    window = StreamingWindow(64, sinks=4) if limited else None
    split_attention(q[:, :, -1:], k, v, table, lengths, scale=0.125, window=window, parts=2)
    assert {row[0].name for row in launches} == KERNELS
    for row in launches:
        sizes = [kernel.metadata.shared for kernel in row]
        assert max(sizes) <= HOPPERS and sizes[-1] <= SMALL, f"{row[0].name}: {sizes} bytes of shared memory"


def test_a_tile_that_was_found_is_taken_alone(launches, monkeypatch, tmp_path):
    """From the record of a GPU into the table, and from there to a launch."""
    kernels, warps = ("forward", "backward_q", "backward_kv", "read_part"), (8, 4, 4, 2)
    tiles = {kernel: [32, 32, number, 2] for kernel, number in zip(kernels, warps, strict=True)}
    found = {f"{kernel}, heads of 64, torch.float16, 90": tile for kernel, tile in tiles.items()}
    rows = [{"what": name, "tile": tile} for name, tile in found.items()]
    record, table = tmp_path / "gpu.json", tmp_path / "tiles.json"
    record.write_text(json.dumps({"run": {"size": "full"}, "stages": {"tiles": {"rows": rows}}}))
    table.write_text('{"guesses": {}, "found": {"another": [1, 2, 3, 4]}}')
    store_tiles([str(record)], table)
    assert json.loads(table.read_text()) == {"guesses": {}, "found": found | {"another": [1, 2, 3, 4]}}
    monkeypatch.setattr(tiles_of_kernels, "FOUND", found)
    q = torch.zeros(1, 2, 40, 64, dtype=torch.float16, requires_grad=True)
    flash_attention_triton(contract(q, q, q)).sum().backward()
    split_attention(q[:, :, -1:], q, q, torch.zeros(1, 1, dtype=torch.int64), torch.tensor([40]), scale=0.1, parts=1)
    warps = {row[0].name: row[0].metadata.num_warps for row in launches if len(row) == 1}
    assert warps == {"forward": 8, "backward_q": 4, "backward_kv": 4, "_read_part": 2, "_combine": 4}
    assert len(tiles_of_kernels.tiles("forward", 64, torch.bfloat16)) > 1  # guesses
