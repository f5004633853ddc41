"""Ring attention in 2 and 4 real processes is attention in one: outputs, gradients, and errors in all of them.

Run by ``torchrun``, this file is one of the processes.
"""

import itertools
import os
import subprocess
import sys

import pytest
import torch
from torch import distributed

from attn_book.train.distributed import process_group
from attn_core import attention
from attn_core.ring import ring_attention, stripe, unstripe

pytestmark = pytest.mark.skipif(not distributed.is_available(), reason="needs torch.distributed")
LENGTHS = 4, 20, 516  # four processes: one token each, several, and more than a tile of keys


def draw(length, dtype, heads=4, kv_heads=2):
    """q, k and v of a whole sequence, and a gradient of the output: the same in every process."""
    generator = torch.Generator().manual_seed(length)
    sizes = ((heads, 8), (kv_heads, 8), (kv_heads, 6), (heads, 6))
    return [torch.randn(2, h, length, d, generator=generator, dtype=torch.float64).to(dtype) for h, d in sizes]


def compare(length, causal, dtype, scale, tolerance, group=None):
    *inputs, toward = draw(length, dtype)
    whole = [x.double().requires_grad_() for x in inputs]
    expected = attention(*whole, causal=causal, scale=scale)
    gradients = torch.autograd.grad(expected, whole, toward.double())
    parts = [stripe(x, 2, group).requires_grad_() for x in inputs]
    out = ring_attention(*parts, causal=causal, scale=scale, group=group)
    found = torch.autograd.grad(out, parts, stripe(toward, 2, group))
    assert out.dtype == dtype and [x.dtype for x in found] == [dtype] * 3
    for x, y in zip((out, *found), (expected, *gradients), strict=True):
        torch.testing.assert_close(unstripe(x, 2, group).double(), y, rtol=tolerance, atol=tolerance)


def refuse(match, *tensors, **options):
    with pytest.raises(ValueError, match=match):
        ring_attention(*tensors, **options)


def main():
    """One of the processes: every check, the errors last."""
    with process_group():
        rank, size = distributed.get_rank(), distributed.get_world_size()
        for length, causal in itertools.product(LENGTHS, (False, True)):
            compare(length, causal, torch.float64, None, 1e-11)
        compare(20, True, torch.float32, 0.3, 1e-5)
        compare(20, True, torch.bfloat16, None, 4e-2)
        pair = [distributed.new_group([n, n + 1]) for n in range(0, size, 2)][rank // 2]
        compare(20, True, torch.float64, None, 1e-11, group=pair)  # rings of two beside each other
        with pytest.raises(ValueError, match=rf"x: expected a multiple of {size} entries along dim 1, got .*\(3, 5\)"):
            stripe(torch.ones(3, 5), -1)
        q, k, v, _ = draw(8, torch.float32)
        refuse("k: expected parts of one shape and dtype in all processes", q, *(x[:, : 1 + rank % 2] for x in (k, v)))
        refuse(r"q: expected 8 tokens, as k has, got", q[:, :, 1:], k, v)
        torch.testing.assert_close(unstripe(stripe(q, 2), 2), q)  # nobody was left behind


if __name__ == "__main__":
    main()


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_compute_what_one_does(processes):
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), __file__]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, timeout=300)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("causal", [False, True])
def test_one_process_needs_no_others(causal):
    compare(20, causal, torch.float64, None, 1e-11)
