"""Split-K decoding: in Triton's interpreter at tiny sizes, and on a CUDA device at real ones.

As in ``tests/mechanisms/test_flash_triton.py``, one test runs those for the interpreter in a process of its own.
"""

import pytest
import torch

from attn_core.cache import StreamingWindow, paged_attention
from attn_core.cache.paged import gathered_attention
from tests import reference
from tests.interpreter import INTERPRETED, interpreted, run_interpreted

pytest.importorskip("triton", reason="the package triton is not installed (it is made for Linux)")

from attn_core.cache.paged_triton import split_attention, suits  # noqa: E402


@pytest.mark.skipif(INTERPRETED, reason="this is the interpreter's process")
def test_kernels_in_the_interpreter():
    run_interpreted(__file__)


def drawn(heads, groups, queries, size, value_size, lengths, block_size, dtype=torch.float32, device="cpu"):
    """A batch whose blocks lie scattered in a pool full of NaN, with −1 where a row of the table ends."""
    torch.manual_seed(0)
    counts = [-(-length // block_size) for length in lengths]
    blocks = torch.randperm(sum(counts) + 3).tolist()
    pools = [torch.full((len(blocks), groups, block_size, d), float("nan")) for d in (size, value_size)]
    table = torch.full((len(lengths), max(counts, default=0)), -1)
    for row, length in enumerate(lengths):
        for number in range(counts[row]):
            table[row, number] = block = blocks.pop()
            used = min(block_size, length - number * block_size)
            for pool in pools:
                pool[block, :, :used] = torch.randn(groups, used, pool.shape[3])
    q = torch.randn(len(lengths), heads, queries, size)
    return *(x.to(device, dtype) for x in (q, *pools)), table.to(device), torch.tensor(lengths)


CASES = {  # heads, key heads, queries, D, Dv, lengths, block size
    "one query": (4, 2, 1, 16, 16, (37, 1, 16), 4),
    "an empty row": (2, 2, 1, 8, 8, (0, 21), 16),
    "odd sizes": (3, 1, 1, 20, 24, (50,), 5),
    "several queries": (4, 2, 3, 16, 16, (2, 19, 33), 8),
    "more queries than keys": (2, 1, 4, 16, 16, (3, 1), 2),
    "a contiguous cache": (2, 1, 1, 16, 16, (40, 40), 64),
}


@interpreted
@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("name", CASES)
def test_the_parts_make_up_the_whole(name, parts):
    given = drawn(*CASES[name])
    assert suits(*given[:3])
    out = split_attention(*given, scale=0.3, parts=parts)
    expected = gathered_attention(*(x.double() for x in given[:3]), *given[3:], scale=0.3)
    assert out.dtype == torch.float32
    assert (out - expected).abs().max() < reference.tolerance(torch.float32)


@interpreted
@pytest.mark.parametrize("window", [StreamingWindow(7, 2), StreamingWindow(1, 0), StreamingWindow(100, 4)])
@pytest.mark.parametrize("parts", [1, 5])
def test_of_a_window_only_the_first_and_the_last_keys_are_seen(window, parts):
    batch = drawn(4, 2, 3, 16, 16, (37, 3, 16), 4)
    found = split_attention(*batch, scale=0.25, window=window, parts=parts)
    torch.testing.assert_close(found, gathered_attention(*batch, scale=0.25, window=window), rtol=0, atol=1e-5)


@interpreted
def test_half_precision_and_any_layout_of_the_pools():
    # bfloat16 is left to the GPU: the interpreter multiplies its bits as integers.
    q, keys, values, table, lengths = drawn(*CASES["several queries"], dtype=torch.float16)
    apart = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (keys, values)]
    out = split_attention(q, *apart, table.int(), lengths.int(), scale=0.25, parts=2)
    expected = gathered_attention(*(x.double() for x in (q, keys, values)), table, lengths, scale=0.25)
    assert out.dtype == torch.float16
    assert (out - expected).abs().max() < 2 * reference.tolerance(torch.float16)


@pytest.mark.parametrize(
    ("heads", "groups", "queries", "size", "value_size", "dtype", "expected"),
    [
        (8, 2, 1, 64, 64, torch.float16, True),
        (8, 2, 17, 64, 64, torch.float16, False),  # 68 rows for a key head
        (8, 2, 1, 257, 64, torch.float16, False),
        (8, 2, 1, 64, 0, torch.float16, False),  # keys that serve as values
        (8, 2, 1, 64, 64, torch.float64, False),
    ],
)
def test_what_it_suits(heads, groups, queries, size, value_size, dtype, expected):
    q = torch.empty(2, heads, queries, size, dtype=dtype)
    keys, values = (torch.empty(3, groups, 16, d, dtype=dtype) for d in (size, value_size))
    assert suits(q, keys, values) is expected


on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@on_a_gpu
def test_blocks_beyond_what_32_bits_hold():
    q, keys, values, table, lengths = drawn(8, 8, 1, 128, 128, (100, 77), 16, torch.bfloat16, "cuda")
    far, count = (
        [torch.empty(2**17 + 16, *x.shape[1:], device="cuda", dtype=x.dtype) for x in (keys, values)],
        len(keys),
    )
    for store, x in zip(far, (keys, values), strict=True):
        store[-count:] = x
    found = paged_attention(q, *far, table + (len(far[0]) - count), lengths)
    assert torch.equal(found, paged_attention(q, keys, values, table, lengths))


@pytest.mark.gpu
@on_a_gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("queries", [1, 4])
def test_paged_attention_on_a_gpu(queries, dtype):
    given = drawn(32, 8, queries, 128, 128, (1, 4096, 333, 17000), 16, dtype, "cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        out = paged_attention(*given)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = gathered_attention(*(x.double() for x in given[:3]), *given[3:])
    assert (out - expected).abs().max() < 2 * reference.tolerance(dtype)
