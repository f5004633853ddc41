"""Where the stages of ``benchmarks/gpu.py`` run, and how contenders are measured there."""

import functools
import gc
import itertools
import statistics
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks import measure
from benchmarks.measure import Trial

Row = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where stages run, and at which sizes: ``"full"``, ``"smoke"`` or ``"dry"``."""

    size: str

    @property
    def dry(self) -> bool:
        """Whether sizes are tiny, and all is on the CPU."""
        return self.size == "dry"

    @property
    def device(self) -> torch.device:
        """The GPU, but for a dry run."""
        return torch.device("cpu" if self.dry else "cuda")

    @property
    def dtype(self) -> torch.dtype:
        """Of what is measured; Triton's interpreter has no bfloat16."""
        return torch.float32 if self.dry else torch.bfloat16

    def wait(self) -> None:
        """Wait for the device; it raises here what went wrong in a kernel."""
        measure.wait_for(self.device)

    def randn(self, *shape: int) -> Tensor:
        """Random numbers there."""
        return torch.randn(shape, device=self.device, dtype=self.dtype)


@dataclass(frozen=True)
class Stage:
    """What yields the rows, and how many seconds it may take."""

    rows: Callable[[Place], Iterable[Row]]
    share: float


# Contenders.


def contest(trial: Trial, place: Place, slow: bool = False) -> Row:
    """The row of a trial; of ``slow`` ones the memory is not measured, and each contender runs four times in all.

    An error that the device does not get over is raised, others are in the row.
    """
    row: Row = {
        "what": trial.name,
        "shapes": trial.shapes,
        "dtype": str(trial.dtype).removeprefix("torch."),
        "skipped": {},
        "failed": {},
    }
    works, results = {}, {}
    for name, make in (trial.ours | trial.peers).items():
        try:
            works[name] = make()
            results[name] = works[name]()
            place.wait()
        except Exception as error:
            works.pop(name, None)
            place.wait()
            kind = "skipped" if name in trial.peers else "failed"
            said = next(iter(str(error).splitlines()), "")
            row[kind][name] = f"{type(error).__name__}: {said}" if kind == "skipped" else traceback.format_exc()
    if works:
        row["same"] = "yes"
        try:
            measure.check_same(results, trial.tolerance)
        except ValueError as error:
            row["same"] = str(error)
        results.clear()
        hurried = place.dry or slow
        seconds, _ = measure.alternate(
            works,
            rounds=2 if hurried else min(9, trial.rounds),
            device=place.device,
            shortest=0.0 if hurried else measure.SHORTEST,
            warm_up=1 if hurried else measure.WARM_UP,
            apart=True,
        )
        row["seconds"] = {name: spread(times) for name, times in seconds.items()}
        row["ratios"] = [
            {"ours": a, "peer": b, **measure.ratio(seconds[a], seconds[b])}
            for a, b in itertools.product(trial.ours, trial.peers)
            if a in works and b in works
        ]
        peaks = {} if slow else {name: measure.peak_memory(work, place.device) for name, work in works.items()}
        row["memory_mib"] = {name: found.get("cuda", found["memory"]) for name, found in peaks.items()}
        row["report"] = trial.report(works, seconds)
    works.clear()
    gc.collect()
    if not place.dry:
        torch.cuda.empty_cache()
    return row


def spread(times: list[float]) -> dict[str, float]:
    """Median, 10th and 90th percentile."""
    low, middle, high = torch.tensor(times, dtype=torch.float64).quantile(
        torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    )
    return {name: float(f"{float(x):.4g}") for name, x in (("median", middle), ("p10", low), ("p90", high))}


@functools.cache
def bandwidth(place: Place) -> float:
    """Bytes that a copy moves in a second, read and written, in memory that no cache holds."""
    source = torch.ones(2**16 if place.dry else 2**30, device=place.device)
    target = torch.empty_like(source)
    seconds, _ = measure.alternate({"copy": lambda: target.copy_(source)}, rounds=5, device=place.device)
    return 2 * source.nbytes / statistics.median(seconds["copy"])
