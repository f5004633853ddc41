"""How a benchmark measures: pairs of times taken in turn, and the highest memory of a fresh process.

The noise of a shared machine comes and goes by the second. Contenders that take turns meet the same noise, so the ratio
of two neighbouring times is steadier than either time.
"""

import ctypes
import gc
import math
import re
import resource
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

Work = Callable[[], Any]
"""One run of a contender. What it returns is compared with what the others return: tensors or numbers."""

Result = TypeVar("Result")
SHORTEST = 0.02
"""Seconds: quicker work is run several times per measurement, lest the clock and the scheduler decide."""
WARM_UP = 2
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Trial:
    """Contenders that do the same work on the same inputs.

    `ours` and `peers` hold, by name, functions that make the inputs and return the `Work`; one that raises ImportError
    is left out, and the result says why. `report` adds to the result what it finds in the works after the timing, given
    the seconds of each run.
    """

    name: str
    shapes: dict[str, int]
    dtype: torch.dtype
    ours: dict[str, Callable[[], Work]]
    peers: dict[str, Callable[[], Work]]
    rounds: int = 15
    tolerance: float = 1e-4
    report: Callable[[Mapping[str, Work], Mapping[str, list[float]]], dict[str, Any]] = field(
        default=lambda works, seconds: {}
    )


def forward(function: Callable[[Tensor], Tensor], x: Tensor) -> Work:
    """The work of computing `function(x)`, without gradients."""

    @torch.no_grad()
    def work() -> Tensor:
        return function(x)

    return work


def forward_and_backward(function: Callable[[Tensor], Tensor], x: Tensor, toward: Tensor) -> Work:
    """The work of computing `function(x)` and the gradient of x, `toward` being the output's; it returns both."""

    def work() -> tuple[Tensor, Tensor]:
        inputs = x.requires_grad_()
        inputs.grad = None
        out = function(inputs)
        out.backward(toward)
        assert inputs.grad is not None
        return out.detach(), inputs.grad

    return work


def alternate(
    works: Mapping[str, Work],
    *,
    rounds: int,
    device: torch.device,
    shortest: float = SHORTEST,
    warm_up: int = WARM_UP,
    apart: bool = False,
) -> tuple[dict[str, list[float]], int]:
    """Seconds of one run, per contender and round, and how many runs a measurement held: enough to last `shortest`.

    Within a round each contender is measured once; the order turns by one from round to round. Rounds to warm up come
    first, at least one, and are not counted. The garbage collector waits until the end. With ``apart`` each contender
    has a number of runs of its own, which saves time where they differ by orders of magnitude; the largest is returned.
    """
    names = list(works)
    repeats = dict.fromkeys(names, 1)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    gc.disable()
    try:
        for round_number in range(-warm_up, rounds):
            if round_number == 0:
                fastest = {name: min(times) for name, times in seconds.items()}
                if not apart:
                    fastest = dict.fromkeys(names, min(fastest.values()))
                repeats = {name: max(1, math.ceil(shortest / fastest[name])) for name in names}
                seconds = {name: [] for name in names}
            turn = round_number % len(names)
            for name in names[turn:] + names[:turn]:
                seconds[name].append(_timed(works[name], repeats[name], device))
    finally:
        gc.enable()
    return seconds, max(repeats.values())


def _timed(work: Work, repeats: int, device: torch.device) -> float:
    """Seconds of one run, of so many in a row; on CUDA by the device's own clock."""
    wait_for(device)
    if device.type == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(repeats):
            work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000 / repeats
    started = time.perf_counter()
    for _ in range(repeats):
        work()
    wait_for(device)
    return (time.perf_counter() - started) / repeats


def ratio(ours: list[float], peer: list[float]) -> dict[str, float]:
    """How many times as fast as the peer we are: median, 10th and 90th percentile over the pairs of a round."""
    pairs = torch.tensor(peer, dtype=torch.float64) / torch.tensor(ours, dtype=torch.float64)
    low, median, high = pairs.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)).tolist()
    return {"median": round(median, 3), "p10": round(low, 3), "p90": round(high, 3)}


def check_same(results: Mapping[str, Any], tolerance: float) -> None:
    """Refuse contenders that do not compute what the first one computes.

    Raises:
        ValueError: one differs by more than `tolerance`, absolutely and relatively; it says which, and by how much.
    """
    (first, wanted), *others = results.items()
    for name, found in others:
        try:
            torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
        except AssertionError as error:
            raise ValueError(f"{name}: expected what {first} computes, got something else: {error}") from None


def wait_for(device: torch.device) -> None:
    """Wait until the device has done what it was asked to."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def peak_memory(work: Work, device: torch.device) -> dict[str, float]:
    """MiB that one run needs beyond what was in use before it: `memory` of the process, `cuda` of the allocator there.

    Give it a fresh process, in which nothing larger has run. On Linux the memory is VmHWM, the process's high-water
    mark, set back to what is resident before the run; elsewhere the growth of getrusage's ru_maxrss, which misses what
    fits below an earlier peak.
    """
    _return_freed_memory()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before_cuda = torch.cuda.memory_allocated(device)
    _lower_high_water()
    before = _high_water()
    kept = work()  # what it returns is alive when the mark is read, as it is for a caller
    wait_for(device)
    found = {"memory": (_high_water() - before) / 2**20}
    if device.type == "cuda":
        found["cuda"] = (torch.cuda.max_memory_allocated(device) - before_cuda) / 2**20
    del kept
    return {name: round(mebibytes, 1) for name, mebibytes in found.items()}


def memory_is_read_from() -> str:
    """The source of `peak_memory`'s figure on this machine, for the result."""
    return "VmHWM, set back before the run" if _lower_high_water() else "growth of ru_maxrss"


def _lower_high_water() -> bool:
    """Set the high-water mark back to what is resident, where the kernel allows it; whether it did."""
    try:
        CLEAR.write_text("5")
    except OSError:
        return False
    return True


def _high_water() -> int:
    """Bytes: the most memory that the process has had in RAM since the mark was last set back."""
    # ru_maxrss is never lowered and, in a new process, begins at the size of the one that started it.
    found = re.search(r"VmHWM:\s*(\d+) kB", STATUS.read_text()) if STATUS.exists() else None
    if found is not None:
        return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _return_freed_memory() -> None:
    """Hand freed memory back to the system where the C library can, lest the work reuse it unseen."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def fresh(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function of a module in a new process that ends with it; errors come back."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function, *arguments).result()
