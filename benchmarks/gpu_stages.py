"""The stages of ``benchmarks/gpu.py``: each yields rows, which say what was measured and what was found.

A row of contenders holds, for each, the seconds of a run (median, 10th and 90th percentile of the rounds) and the
MiB of a run's peak; how many times as fast as each peer ours is; and whether all gave the same. What a contender that
could not run said is in ``skipped``, or in ``failed`` if it is ours. A row of a kernel's check has ``right``.
"""

import functools
import itertools
import statistics
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from attn_core import attention_with_weights
from attn_core.cache.paged import gathered_attention
from attn_core.contract import contract
from benchmarks import measure
from benchmarks.cases import crossover, flash_gpu
from benchmarks.gpu_contest import Place, Row, Stage, bandwidth, contest
from benchmarks.gpu_trials import MODEL, TRIALS, in_blocks, language_model, split, text
from benchmarks.measure import Work


def contests(name: str, share: float, *, dry: int, slow: bool = False) -> Stage:
    """The stage of the trials of this name; in a dry run so many of them."""

    def rows(place: Place) -> Iterator[Row]:
        for trial in itertools.islice(TRIALS[name](place), dry if place.dry else None):
            yield contest(trial, place, slow)

    return Stage(rows, share)


# The machine.


def the_machine(place: Place) -> Iterator[Row]:
    """What the device is."""
    row: Row = {"what": "device", "threads": torch.get_num_threads(), "model": MODEL}
    if not place.dry:
        found = torch.cuda.get_device_properties(0)
        row |= {"name": found.name, "capability": [found.major, found.minor], "memory_mib": found.total_memory // 2**20}
        row |= {"multiprocessors": found.multi_processor_count, "cuda": torch.version.cuda}
        row["cudnn"] = torch.backends.cudnn.version()
    yield row


def roofs(place: Place) -> Iterator[Row]:
    """The two roofs of the roofline: bytes moved a second, and operations a second in a product of matrices."""
    yield {"what": "a copy", "gb_per_second": round(bandwidth(place) / 1e9, 1)}
    size = 64 if place.dry else 8192
    a, b = place.randn(size, size), place.randn(size, size)
    seconds, _ = measure.alternate({"product": lambda: a @ b}, rounds=5, device=place.device)
    yield {"what": "a product", "tflops": round(2 * size**3 / statistics.median(seconds["product"]) / 1e12, 3)}


# Each kernel beside its reference.

ALLOWED = {torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}
"""Of the largest entry of what float64 gives."""
CHECKS = {  # H, G, T, S, D, Dv
    "heads of 64": (4, 4, 1024, 1024, 64, 64),
    "heads of 128, grouped": (8, 2, 1000, 1000, 128, 128),
    "heads of 80, other values, more keys": (4, 4, 500, 777, 80, 48),
    "heads of 256": (2, 2, 513, 513, 256, 256),
    "one tile and a token": (2, 1, 129, 129, 64, 64),
}
TINY_CHECKS = {"heads of 16, grouped": (2, 1, 17, 20, 16, 16)}


def verdict(place: Place, what: str, found: Callable[[], Any], exact: Any, dtype: torch.dtype) -> Row:
    """Whether a kernel gives what float64 gives; its traceback, where it gives nothing.

    An error that the device does not get over is raised.
    """
    try:
        errors = [
            float((mine.double() - one).abs().max() / one.abs().max())
            for mine, one in zip(as_tuple(found()), as_tuple(exact), strict=True)
        ]
    except Exception:
        place.wait()
        return {"what": what, "right": False, "failed": {"kernel": traceback.format_exc()}}
    right = all(error <= ALLOWED[dtype] for error in errors)  # NaN is not
    return {"what": what, "right": right, "errors": [f"{error:.2e}" for error in errors], "allowed": ALLOWED[dtype]}


def as_tuple(x: Any) -> tuple[Tensor, ...]:
    """A tuple of tensors, of one where it is one."""
    return x if isinstance(x, tuple) else (x,)


def checked_flash(place: Place) -> Iterator[Row]:
    """The kernels of flash attention, forward and backward, in each dtype, and that of the page."""
    from attn_core.mechanisms.flash_triton import flash_attention_triton

    dtypes = [torch.float32] if place.dry else [torch.bfloat16, torch.float16, torch.float32]
    for (name, sizes), dtype, kind in itertools.product(
        (TINY_CHECKS if place.dry else CHECKS).items(), dtypes, ("full", "causal", "mask and bias")
    ):
        heads, groups, queries, keys, size, value_size = sizes
        shapes = (2, heads, queries, size), (2, groups, keys, size), (2, groups, keys, value_size)
        inputs = [torch.randn(shape, device=place.device).to(dtype).requires_grad_() for shape in shapes]
        toward = torch.randn(2, heads, queries, value_size, device=place.device).to(dtype)
        options: dict[str, Any] = {"causal": kind == "causal"}
        if kind == "mask and bias":
            options["mask"] = torch.rand(2, 1, queries, keys, device=place.device) > 0.3
            options["bias"] = torch.randn(heads, queries, keys, device=place.device).to(dtype)

        def both(
            run: Callable[..., Tensor], given: list[Tensor], to: Tensor, options: dict[str, Any] = options
        ) -> tuple[Tensor, ...]:
            out = run(*given, **options)
            return out.detach(), *torch.autograd.grad(out, given, to)

        wide = [x.detach().double().requires_grad_() for x in inputs]
        exact = both(
            lambda *given, bias=None, **more: attention_with_weights(
                *given, bias=None if bias is None else bias.double(), **more
            )[0],
            wide,
            toward.double(),
        )
        ours = functools.partial(both, lambda *given, **more: flash_attention_triton(contract(*given, **more)))
        words = f"{name}, {str(dtype).removeprefix('torch.')}, {kind}: out, dq, dk, dv"
        yield verdict(place, words, functools.partial(ours, inputs, toward), exact, dtype)
    for size, tiles in ({16: {"rows": 16, "cols": 16}} if place.dry else flash_gpu.PAGE_TILES).items():
        q, k, v = (place.randn(2, 2, 40 if place.dry else 1000, size) for _ in range(3))
        wanted = attention_with_weights(q.double(), k.double(), v.double(), causal=True)[0]
        page = functools.partial(flash_gpu.page, tiles, q, k, v, True)
        yield verdict(place, f"the page's kernel, heads of {size}", page, wanted, place.dtype)


def checked_paged(place: Place) -> Iterator[Row]:
    """The kernels of decoding from a paged cache."""
    for batch, heads, groups, length, size in (
        [(2, 2, 1, 40, 16)] if place.dry else [(4, 32, 8, 5000, 128), (1, 9, 3, 333, 64)]
    ):
        given = in_blocks(place, batch, heads, groups, length, size)
        wide = [x.double() for x in given[:3]]
        exact = gathered_attention(*wide, *given[3:], scale=size**-0.5)
        yield verdict(
            place, f"{length} tokens, heads of {size}", functools.partial(split, place, given), exact, place.dtype
        )


def launches(place: Place) -> Iterator[Row]:
    """Kernels that one call launches, and how often Python waits: each mechanism, and a step of the model."""
    length = 64 if place.dry else 4096
    makers: dict[str, Callable[[int, bool], Any]] = {
        "attention": crossover.exact,
        "flash_attention": crossover.tiled,
        "SlidingWindow": crossover.window,
        "BlockSelection": crossover.selected,
        "LinearAttention": crossover.linear,
        "Performer": crossover.performer,
        "LSHAttention": crossover.hashed,
    }
    for name, make in itertools.islice(makers.items(), 2 if place.dry else None):
        for backward in (False, True):
            work = crossover.prepare(make, length, causal=True, backward=backward, device=place.device)
            yield counted(f"{name}, {length} tokens, {'both ways' if backward else 'forward'}", work, place)
    model = language_model(place)
    tokens = torch.tensor([text(place)[:8]], device=place.device)
    with torch.no_grad():
        _, state = model.prefill(tokens, torch.tensor([8]))
        yield counted("a decoding step of the model", lambda: model.step(tokens[:, 0], state), place)


def counted(what: str, work: Work, place: Place) -> Row:
    """What a profiler sees of a run after the first one, and not of none."""
    work()
    names = events(work, place) - events(lambda: None, place)
    return {
        "what": what,
        "launches": sum(count for name, count in names.items() if "LaunchKernel" in name),
        "waits": sum(count for name, count in names.items() if "Synchronize" in name),
        "numbers_asked": names["aten::_local_scalar_dense"],
        "operators": sum(count for name, count in names.items() if name.startswith("aten::")),
    }


def events(work: Work, place: Place) -> Counter[str]:
    """The names of what a profiler sees."""
    activities = [ProfilerActivity.CPU] + ([] if place.dry else [ProfilerActivity.CUDA])
    place.wait()
    with profile(activities=activities) as found:
        work()
        place.wait()
    return Counter(event.name for event in found.events() or ())


def the_tiles(place: Place) -> Iterator[Row]:
    """The fastest tiles of each kernel."""
    from benchmarks import tiles  # which imports this file

    yield from tiles.measured(place)


STAGES: dict[str, Stage] = {
    "machine": Stage(the_machine, 15),
    "roofs": Stage(roofs, 15),
    "kernels: flash": Stage(checked_flash, 70),
    "kernels: paged": Stage(checked_paged, 20),
    "flash": contests("flash", 160, dry=3),
    "paged": contests("paged", 30, dry=1),
    "window": contests("window", 45, dry=2),
    "model": contests("model", 50, dry=2),
    "engine": contests("engine", 90, dry=1, slow=True),
    "launches": Stage(launches, 20),
    "delta rule": contests("delta rule", 25, dry=2),
    "crossover": contests("crossover", 60, dry=1),
    "tiles": Stage(the_tiles, 120),
}
"""In the order of what matters most, since the time may end before the last."""
SMOKE = "machine", "roofs", "kernels: flash", "kernels: paged"
