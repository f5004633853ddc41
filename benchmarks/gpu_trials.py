"""What is compared on a GPU: attention in its forms, decoding, and a language model.

The model has the sizes of SmolLM2-135M and random parameters: its times are those of the real one, its text means
nothing.
"""

import functools
import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attn_core import GatedDeltaNet, MultiHeadAttention, SlidingWindow, linear_attention
from attn_core.cache.paged import gathered_attention
from attn_core.mechanisms.dense import attention
from attn_core.positions import Rotary
from attn_core.transformer import LanguageModel
from benchmarks import measure
from benchmarks.cases import crossover, flash_gpu, serving, smollm2
from benchmarks.gpu_contest import Place, bandwidth
from benchmarks.measure import Trial, Work

MODEL = "random parameters in the sizes of SmolLM2-135M"


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
