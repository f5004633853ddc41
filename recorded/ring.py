"""Ring attention in one, two and four processes: what each of them holds in memory at most, and what it sends.

Every process makes its own part of the queries, keys and values, so that the whole sequence is nowhere. The memory is
the greatest resident size during one forward and backward pass, less the size before the parts were made.

Run by ``torchrun``, this file is one of the processes:

    torchrun --standalone --nproc-per-node 4 recorded/ring.py OUT
"""

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from attn_book.train.distributed import process_group, rank, size
from attn_core import attention
from attn_core.ring import ring_attention, stripe, unstripe
from recorded.bahdanau import rounded

SEEDS = (0,)
PROCESSES = (1, 2, 4)
LENGTHS, SHORT = (8192, 32_768), 256
HEADS, HEAD_DIM = 2, 64


def highest() -> float:
    """The greatest resident size of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def pass_through(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """The output, and the gradients of its sum of squares."""
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = ring_attention(*leaves, causal=True)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), leaves)]


def difference() -> float:
    """The greatest difference of outputs and gradients from those of one process that has the whole sequence."""
    torch.manual_seed(SEEDS[0])
    whole = [torch.randn(1, HEADS, SHORT, HEAD_DIM) for _ in range(3)]
    found = [unstripe(x, 2) for x in pass_through(*(stripe(x, 2).clone() for x in whole))]
    leaves = [x.requires_grad_() for x in whole]
    out = attention(*leaves, causal=True)
    wanted = [out, *torch.autograd.grad(out.square().sum(), leaves)]
    return max((x - y).abs().max().item() for x, y in zip(found, wanted, strict=True))


def one_process(out: Path) -> None:
    """Measure, from the shortest length to the longest; the first process writes what all have found."""
    torch.set_num_threads(1)
    with process_group():
        apart = difference()  # which also loads everything that is loaded at the first use
        before, found = highest(), []
        for length in LENGTHS:
            parts = [torch.randn(1, HEADS, length // size(), HEAD_DIM) for _ in range(3)]
            pass_through(*parts)
            found.append({"length": length, "mib": highest() - before})
        everyone: list[Any] = [found]
        if size() > 1:
            everyone = [None] * size()
            distributed.all_gather_object(everyone, found)
        if rank() == 0:
            by_length = zip(*everyone, strict=True)
            about = [{"length": one[0]["length"], "mib": [each["mib"] for each in one]} for one in by_length]
            out.write_text(json.dumps({"difference": apart, "memory": about}), encoding="utf-8")


def run(folder: Path) -> dict[str, Any]:
    """The same work in one process, in two and in four."""
    runs = []
    for processes in PROCESSES:
        with tempfile.TemporaryDirectory() as place:
            out = Path(place) / "found.json"
            start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
            subprocess.run([sys.executable, *start, __file__, str(out)], check=True, cwd=Path(__file__).parents[1])
            runs.append({"processes": processes, **json.loads(out.read_text(encoding="utf-8"))})
    sizes = {"lengths": LENGTHS, "heads": HEADS, "head_dim": HEAD_DIM, "short": SHORT}
    return {**sizes, "runs": [one | {"memory": rounded(one["memory"])} for one in runs]}


if __name__ == "__main__":
    one_process(Path(sys.argv[1]))
