"""The stages of ``benchmarks/gpu.py``: each yields rows, which say what was measured and what was found.

A row of contenders holds, for each, the seconds of a run (median, 10th and 90th percentile of the rounds) and the
MiB of a run's peak; how many times as fast as each peer ours is; and whether all gave the same. What a contender that
could not run said is in ``skipped``, or in ``failed`` if it is ours. A row of a kernel's check has ``right``.

The language model has the sizes of SmolLM2-135M and random parameters: its times are those of the real one, its text
means nothing.
"""

import functools
import gc
import itertools
import statistics
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from attn_core import GatedDeltaNet, MultiHeadAttention, SlidingWindow, attention_with_weights, linear_attention
from attn_core.cache.paged import gathered_attention
from attn_core.contract import contract
from attn_core.mechanisms.dense import attention
from attn_core.positions import Rotary
from attn_core.transformer import LanguageModel
from benchmarks import measure
from benchmarks.cases import crossover, flash_gpu, serving, smollm2
from benchmarks.measure import Trial, Work

Row = dict[str, Any]
MODEL = "random parameters in the sizes of SmolLM2-135M"


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


@functools.cache
def bandwidth(place: Place) -> float:
    """Bytes that a copy moves in a second, read and written, in memory that no cache holds."""
    source = torch.ones(2**16 if place.dry else 2**30, device=place.device)
    target = torch.empty_like(source)
    seconds, _ = measure.alternate({"copy": lambda: target.copy_(source)}, rounds=5, device=place.device)
    return 2 * source.nbytes / statistics.median(seconds["copy"])


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


def in_blocks(place: Place, batch: int, heads: int, groups: int, length: int, size: int) -> tuple[Tensor, ...]:
    """Queries of a decoding step, and a full cache of keys and values in blocks that lie in no order."""
    count = batch * -(-length // 16)
    table = torch.randperm(count, device=place.device).view(batch, -1)
    return (
        place.randn(batch, heads, 1, size),
        *(place.randn(count, groups, 16, size) for _ in range(2)),
        table,
        torch.full((batch,), length),
    )


def split(place: Place, given: tuple[Tensor, ...]) -> Tensor:
    """Our split-K kernels."""
    from attn_core.cache.paged_triton import split_attention

    parts = 2 if place.dry else None  # by default as many as fill the GPU
    return split_attention(*given, scale=given[0].shape[3] ** -0.5, parts=parts)


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


# Attention.


def flash_trials(place: Place) -> Iterator[Trial]:
    """The case ``flash_gpu``, the longer rows first; a few of it in a dry run."""
    lengths = (1,) if place.dry else (4, 16, 1, 8, 2)
    for thousands, backward, head_dim, causal in itertools.product(lengths, (False, True), (128, 64), (True, False)):
        yield flash_gpu.trial(thousands, head_dim, causal, backward, quick=place.dry, device=place.device)


def window_trials(place: Place) -> Iterator[Trial]:
    """256 keys on either side, or before: ours beside compiled FlexAttention."""
    near, lengths = (4, (40,)) if place.dry else (256, (16384, 4096))
    for backward, length, causal in itertools.product((False, True), lengths, (False, True)):

        def visible(b: Tensor, h: Tensor, query: Tensor, key: Tensor, causal: bool = causal) -> Tensor:
            close = (query - key).abs() <= near
            return close & (query >= key) if causal else close

        yield simple_trial(
            f"{length} tokens, {'causal' if causal else 'full'}, {'backward' if backward else 'forward'}",
            {"SlidingWindow": lambda: keyword(SlidingWindow(near))},
            {"compiled FlexAttention": functools.partial(flash_gpu.flex, visible, length, place.device)},
            (1, 2 if place.dry else 16, length, 64),
            place,
            causal=causal,
            backward=backward,
        )


def keyword(mechanism: Callable[..., Tensor]) -> flash_gpu.Attention:
    """A mechanism as these contenders are called."""
    return lambda q, k, v, causal: mechanism(q, k, v, causal=causal)


def simple_trial(
    name: str,
    ours: dict[str, Callable[[], flash_gpu.Attention]],
    peers: dict[str, Callable[[], flash_gpu.Attention]],
    shape: tuple[int, int, int, int],
    place: Place,
    *,
    causal: bool,
    backward: bool,
    tolerance: float = 3e-2,
) -> Trial:
    """A trial of functions of q, k and v."""
    way: dict[str, Any] = {"causal": causal, "backward": backward, "device": place.device, "dtype": place.dtype}
    makers: list[dict[str, Callable[[], Work]]] = [
        {name: functools.partial(flash_gpu.prepare, make, *shape, **way) for name, make in side.items()}
        for side in (ours, peers)
    ]
    sizes = dict(zip(("B", "H", "T", "D"), shape, strict=True))
    return Trial(name, sizes, place.dtype, ours=makers[0], peers=makers[1], tolerance=tolerance)


def paged_trials(place: Place) -> Iterator[Trial]:
    """A decoding step's attention, and its roofline: the bytes of keys and values against the measured bandwidth."""
    settings = [(2, 40)] if place.dry else [(1, 16384), (8, 4096), (32, 4096), (32, 16384), (128, 4096)]
    heads, groups, size = (2, 1, 16) if place.dry else (32, 8, 128)
    for batch, length in settings:

        def given(batch: int = batch, length: int = length) -> tuple[Tensor, ...]:
            torch.manual_seed(0)
            return in_blocks(place, batch, heads, groups, length, size)

        def ours(given: Callable[..., Any] = given) -> Work:
            return functools.partial(split, place, given())

        def gathered(given: Callable[..., Any] = given) -> Work:
            return functools.partial(gathered_attention, *given(), scale=size**-0.5)

        def contiguous(given: Callable[..., Any] = given, length: int = length) -> Work:
            q, keys, values, table, _ = given()
            k, v = (x[table].transpose(1, 2).flatten(2, 3)[:, :, :length].contiguous() for x in (keys, values))
            return lambda: functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

        def share(
            works: Any, seconds: Any, moved: int = 2 * batch * groups * length * size * place.dtype.itemsize
        ) -> dict[str, Any]:
            found = {name: moved / statistics.median(times) for name, times in seconds.items()}
            return {
                "mib_read": round(moved / 2**20, 1),
                "share_of_bandwidth": {name: round(each / bandwidth(place), 3) for name, each in found.items()},
            }

        yield Trial(
            f"{batch} rows of {length} tokens",
            {"B": batch, "H": heads, "G": groups, "T": 1, "S": length, "D": size, "block_size": 16},
            place.dtype,
            ours={"split_attention": ours},
            peers={"gathered, then dense": gathered, "torch, contiguous": contiguous},
            tolerance=3e-2,
            report=share,
        )


def crossover_trials(place: Place) -> list[Trial]:
    """Every cheaper mechanism beside exact attention, at each length."""
    return crossover.trials(quick=place.dry, device=place.device)


def delta_trials(place: Place) -> Iterator[Trial]:
    """The delta rule in chunks beside exact attention, and its layer beside multi-head attention."""
    for length, backward in itertools.product((40,) if place.dry else (2048, 8192, 32768), (False, True)):
        words = f"{length} tokens, {'backward' if backward else 'forward'}"
        heads, size = (2, 16) if place.dry else (8, 64)
        rates = [torch.rand(1, heads, length, device=place.device) for _ in range(2)]

        def rule(q: Tensor, k: Tensor, v: Tensor, causal: bool, rates: list[Tensor] = rates) -> Tensor:
            unit = functional.normalize(k, dim=-1).to(k.dtype)
            return linear_attention(q, unit, v, log_decay=-0.1 * rates[0], beta=rates[1])[0]

        yield simple_trial(
            f"the rule alone, {words}",
            {"linear_attention": lambda rule=rule: rule},  # type: ignore[misc]
            {"attention": lambda: keyword(attention)},
            (1, heads, length, size),
            place,
            causal=True,
            backward=backward,
            tolerance=crossover.ANY,
        )
        way: dict[str, Any] = {
            "length": length,
            "width": heads * size,
            "heads": heads,
            "backward": backward,
            "place": place,
        }
        yield Trial(
            f"the layer, {words}",
            {"B": 1, "T": length, "C": heads * size},
            place.dtype,
            ours={"GatedDeltaNet": functools.partial(layer_work, GatedDeltaNet, **way)},
            peers={"MultiHeadAttention": functools.partial(layer_work, MultiHeadAttention, **way)},
            tolerance=crossover.ANY,
        )


def layer_work(kind: Any, *, length: int, width: int, heads: int, backward: bool, place: Place) -> Work:
    """A causal layer, forward without gradients or both ways."""
    options = {"positions": Rotary(width // heads)} if kind is MultiHeadAttention else {}
    layer = kind(width, heads, **options).to(place.device, place.dtype)
    x = place.randn(1, length, width)
    call = functools.partial(layer, causal=True)
    return measure.forward_and_backward(call, x, torch.ones_like(x)) if backward else measure.forward(call, x)


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


# The language model.


def sizes(place: Place) -> dict[str, Any]:
    """Those of the model."""
    return smollm2.TINY if place.dry else smollm2.SIZES


def text(place: Place) -> list[int]:
    """Random tokens."""
    return smollm2.random_tokens(sizes(place)["vocab_size"])


@functools.cache
def language_model(place: Place) -> LanguageModel:
    """A model of SmolLM2's sizes with random parameters."""
    return smollm2.random_model(sizes(place)).to(place.device, place.dtype)


@functools.cache
def their_model(place: Place) -> Any:
    """The same model in ``transformers``. Raises ImportError where that is not installed."""
    return smollm2.their_copy(smollm2.random_model(sizes(place)), place.dtype).to(place.device)


def eager(model: LanguageModel, text: Tensor, tokens: int) -> Tensor:
    """The bare loop: a prompt, then one token after the other."""
    logits, state = model.prefill(text, torch.tensor([text.shape[1]]))
    found = [logits.argmax(-1)]
    for _ in range(tokens - 1):
        logits, state = model.step(found[-1], state)
        found.append(logits.argmax(-1))
    return torch.cat(found)


class Graphs:
    """The bare loop whose steps are CUDA graphs: one for each length, since a step's slot and view are fixed in it."""

    def __init__(self, model: LanguageModel, text: Tensor, tokens: int) -> None:
        self.model, self.text = model, text
        self.length = torch.tensor([text.shape[1]])
        logits, self.state = model.prefill(text, self.length)
        for cache in self.state.caches:
            cache.reserve(tokens)
        self.empty, self.held = ([cache.lengths * n for cache in self.state.caches] for n in (0, 1))
        self.token, self.found = logits.argmax(-1), torch.zeros(tokens, dtype=torch.long, device=text.device)
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):  # what is compiled or made once, is so now
            self.step(1)
        torch.cuda.synchronize()
        self.back(self.held)
        self.graphs: list[torch.cuda.CUDAGraph] = []
        pool = None
        for place in range(1, tokens):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                self.step(place)
            pool = pool or graph.pool()
            self.graphs.append(graph)

    def step(self, place: int) -> None:
        """Read the token, and put the next one in its place."""
        logits, self.state = self.model.step(self.token, self.state)
        self.token.copy_(logits.argmax(-1))
        self.found[place : place + 1].copy_(self.token)

    def back(self, lengths: list[Tensor]) -> None:
        """Forget what the caches hold beyond these lengths."""
        for cache, length in zip(self.state.caches, lengths, strict=True):
            cache.truncate(length)

    def run(self) -> Tensor:
        """The prompt by itself, then the graphs."""
        self.back(self.empty)
        logits, _ = self.model.prefill(self.text, self.length, self.state.caches)
        self.token.copy_(logits.argmax(-1))
        self.found[:1].copy_(self.token)
        for graph in self.graphs:
            graph.replay()
        return self.found.clone()


def model_trials(place: Place) -> Iterator[Trial]:
    """Reading a prompt, and writing after a short one, eagerly and by CUDA graphs."""
    prompt, tokens, long = (8, 4, 16) if place.dry else (64, 64, 512)

    def work(run: Callable[[Any, Tensor], Tensor], model: Callable[[], Any], length: int) -> Callable[[], Work]:
        def make() -> Work:
            made = model()
            given = torch.tensor([text(place)[:length]], device=place.device)
            return lambda: run(made, given)

        return make

    mine, theirs = functools.partial(language_model, place), functools.partial(their_model, place)

    def rate(count: int, works: Any, seconds: Any) -> dict[str, Any]:
        return {
            "model": MODEL,
            "tokens_per_second": {name: round(count / statistics.median(each), 1) for name, each in seconds.items()},
        }

    yield Trial(
        "prefill",
        {"B": 1, "prompt": long},
        place.dtype,
        ours={"prefill": work(smollm2.our_prefill, mine, long)},
        peers={smollm2.PEER: work(torch.no_grad()(smollm2.their_prefill), theirs, long)},
        tolerance=5e-2,
        report=functools.partial(rate, long),
    )

    def graphs() -> Work:
        given = torch.tensor([text(place)[:prompt]], device=place.device)
        with torch.no_grad():
            return torch.no_grad()(Graphs(mine(), given, tokens).run)

    written = functools.partial(eager, tokens=tokens)
    ours = {
        "the bare loop": work(written, mine, prompt),
        "generate": work(lambda model, text: smollm2.our_decoding(model, text, tokens), mine, prompt),
    }
    if not place.dry:
        ours["CUDA graphs"] = graphs
    yield Trial(
        "decoding",
        {"B": 1, "prompt": prompt, "tokens": tokens},
        place.dtype,
        ours=ours,
        peers={
            smollm2.PEER: work(
                torch.no_grad()(lambda model, text: smollm2.their_decoding(model, text, tokens)), theirs, prompt
            )
        },
        rounds=5,
        tolerance=crossover.ANY,  # random parameters are sure of nothing, so rounding decides between tokens
        report=functools.partial(rate, tokens),
    )


def engine_trials(place: Place) -> Iterator[Trial]:
    """Continuous batching, and the ways without."""
    for count in (1, 2) if place.dry else (8, 128, 32, 1):
        asked = serving.requests_of(text(place), count, 6 if place.dry else 256)

        def work(way: serving.Way, model: Callable[[], Any], asked: serving.Asked = asked) -> Callable[[], Work]:
            def make() -> Work:
                made = model()

                def run() -> int:
                    with torch.inference_mode():
                        return sum(len(answer) for answer in way(made, asked))

                return run

            return make

        def rate(works: Any, seconds: Any) -> dict[str, Any]:
            per = {name: works[name]() / statistics.median(times) for name, times in seconds.items()}
            return {"model": MODEL, "tokens_per_second": {name: round(each, 1) for name, each in per.items()}}

        yield Trial(
            f"{count} requests",
            {"requests": count},
            place.dtype,
            ours={"Engine": work(serving.by_engine, functools.partial(language_model, place))},
            peers={
                "generate, one batch": work(serving.one_batch, functools.partial(language_model, place)),
                "transformers generate, one batch": work(
                    serving.theirs_one_batch, functools.partial(their_model, place)
                ),
            },
            rounds=2,
            tolerance=crossover.ANY,
            report=rate,
        )


TRIALS: dict[str, Callable[[Place], Iterable[Trial]]] = {
    "flash": flash_trials,
    "paged": paged_trials,
    "window": window_trials,
    "model": model_trials,
    "engine": engine_trials,
    "delta rule": delta_trials,
    "crossover": crossover_trials,
}
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
}
"""In the order of what matters most, since the time may end before the last."""
SMOKE = "machine", "roofs", "kernels: flash", "kernels: paged"
