"""What FlexAttention costs on a CPU: compiling each of four variants, a compiled call, and a call without compiling.

All times are CPU seconds of this process and of the compilers that it starts, so that other work on the machine
counts little. The variants are compiled one after the other in one process, and the first once more at half the
length; then all of them again, from the cache on disk. A sink is missing: it needs the logarithm of the sum of
exponentials, which a compiled call does not return on a CPU.
"""

import os
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

SEEDS = (0,)
HEADS, LENGTH, HEAD_DIM, RUNS = 8, 2048, 64, 10
WINDOW, DOCUMENT, CAP = 255, 256, 20.0

Flex = Callable[..., Any]


def cpu_seconds(work: Callable[[], Any], runs: int = 1) -> float:
    """CPU seconds of a call, child processes included: the mean of some runs."""
    before = os.times()
    for _ in range(runs):
        work()
    after = os.times()
    return round((sum(after[:4]) - sum(before[:4])) / runs, 3)


def variants(
    q: Tensor, k: Tensor, v: Tensor, window: int, document: int, cap: float
) -> dict[str, Callable[[Flex], Any]]:
    """What to call, given `flex_attention` or its compiled form. All are causal.

    The masks and the cap use nothing global: a script that is run is in no module where the compiler could look it up.
    """

    def causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return query >= key

    def in_window(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (query - key <= window)

    def same_document(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (query // document == key // document)

    def capped(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return cap * (score / cap).tanh()

    n = q.shape[2]
    blocks, blocks_of_window, blocks_of_documents = (
        create_block_mask(mask, None, None, n, n, "cpu") for mask in (causal, in_window, same_document)
    )
    return {
        "causal": lambda flex: flex(q, k, v, block_mask=blocks),
        "window": lambda flex: flex(q, k, v, block_mask=blocks_of_window),
        "documents": lambda flex: flex(q, k, v, block_mask=blocks_of_documents),
        "soft cap": lambda flex: flex(q, k, v, score_mod=capped, block_mask=blocks),
    }


def run(folder: Path) -> dict[str, Any]:
    """CPU seconds of the first call, which compiles, of that with a cache on disk, of later ones, and uncompiled."""
    torch.set_num_threads(1)
    torch.manual_seed(SEEDS[0])
    q, k, v = torch.randn(3, 1, HEADS, LENGTH, HEAD_DIM).unbind(0)
    calls = variants(q, k, v, WINDOW, DOCUMENT, CAP)
    q, k, v = (x[:, :, : LENGTH // 2].contiguous() for x in (q, k, v))
    calls["causal, half the length"] = variants(q, k, v, WINDOW, DOCUMENT, CAP)["causal"]
    found: list[dict[str, Any]] = []
    with torch.no_grad(), warnings.catch_warnings(), tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        warnings.simplefilter("ignore")  # of a call that is not compiled
        plus = torch.compile(lambda x: x + 1)  # loads the compiler
        warm_up = cpu_seconds(lambda: plus(torch.ones(8)))
        compiled = torch.compile(flex_attention, dynamic=False)
        for name, call in calls.items():
            first = cpu_seconds(partial(call, compiled))
            later = cpu_seconds(partial(call, compiled), RUNS)
            eager = cpu_seconds(partial(call, flex_attention), RUNS)
            found.append({"variant": name, "first": first, "later": later, "eager": eager})
        torch.compiler.reset()
        for call, entry in zip(calls.values(), found, strict=True):
            entry["from_disk"] = cpu_seconds(partial(call, compiled))
    shape = {"heads": HEADS, "length": LENGTH, "head_dim": HEAD_DIM, "window": WINDOW, "document": DOCUMENT}
    return {**shape, "cap": CAP, "warm_up": warm_up, "variants": found}
