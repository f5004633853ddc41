"""Serving SmolLM2: our engine, and the ways without one, on the same requests.

Each request has a prompt and the number of tokens that it wants; lengths differ, as they do for users (log-normal, with
the means of the Alpaca data after Kwon et al. 2023, section 6.1: 19 and 58 tokens, from 4 to 256). All ways choose the
likeliest token, until <eos> or as many as were wanted:

- `Engine`: continuous batching over a paged cache;
- `generate`, one by one: each request alone;
- `generate`, one batch: all together, padded, until the longest answer is done;
- the same two with `transformers`' `generate`, on a model with the same parameters.

With 32 requests the two ways one by one are left out: they take as long for each request as with eight.

The report has tokens per second, and for the engine the time to a request's first token, and the bytes of keys and
values in use beside what a batch reserves that is padded to the longest prompt and the longest answer.
"""

import functools
import importlib
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from attn_book.data import Vocab
from attn_book.published import smollm2_file
from attn_core.decode import generate
from attn_core.serving import Engine, Request
from attn_core.transformer import LanguageModel
from benchmarks.cases.smollm2 import source, their_model
from benchmarks.measure import Trial, Work

Answers = list[list[int]]
Asked = list[tuple[list[int], int]]
Way = Callable[[Any, Asked], Answers]


def requests(count: int, quick: bool) -> Asked:
    """Prompts with the number of tokens that each is to be continued by."""
    return requests_of(source(quick)[1], count, 8 if quick else 256)


def requests_of(text: list[int], count: int, longest: int) -> Asked:
    """The same from a text of one's own, no prompt and no answer of more than ``longest`` tokens."""
    draw, found = random.Random(0), []
    for _ in range(count):
        prompt, new = (min(max(4, round(draw.lognormvariate(math.log(mean) - 0.5, 1.0))), longest) for mean in (19, 58))
        begin = draw.randrange(max(1, min(len(text) - prompt, 200)))
        found.append((text[begin : begin + prompt], new))
    return found


def engine_for(model: LanguageModel, asked: Asked) -> Engine:
    """An engine with as many blocks as the requests' longest texts need together."""
    blocks = sum(-(-(len(prompt) + new) // 16) for prompt, new in asked)
    return Engine(model, num_blocks=blocks, prefix_caching=False)


def by_engine(model: LanguageModel, asked: Asked) -> Answers:
    """Continuous batching."""
    engine = engine_for(model, asked)
    completions = [engine.add(Request(prompt, new)) for prompt, new in asked]
    engine.run()
    return [completion.ids for completion in completions]


def until_eos(ids: list[int]) -> list[int]:
    """The tokens before <eos>, or all."""
    return ids[: ids.index(Vocab.EOS)] if Vocab.EOS in ids else ids


def one_by_one(model: LanguageModel, asked: Asked) -> Answers:
    """Our loop, each request alone."""
    return [until_eos(generate(model, [prompt], max_new_tokens=new)[0].ids) for prompt, new in asked]


def one_batch(model: LanguageModel, asked: Asked) -> Answers:
    """Our loop, all requests together until the longest answer is done."""
    found = generate(model, [prompt for prompt, _ in asked], max_new_tokens=max(new for _, new in asked))
    return [until_eos(each.ids[:new]) for each, (_, new) in zip(found, asked, strict=True)]


def theirs_one_by_one(model: Any, asked: Asked) -> Answers:
    """Their `generate`, each request alone."""
    return [theirs_one_batch(model, [one])[0] for one in asked]


def theirs_one_batch(model: Any, asked: Asked) -> Answers:
    """Their `generate`, padded on the left, until the longest answer is done."""
    longest, new = max(len(prompt) for prompt, _ in asked), max(new for _, new in asked)
    padded = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt, _ in asked], device=model.device)
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt, _ in asked], device=model.device)
    out = model.generate(
        padded, attention_mask=mask, do_sample=False, max_new_tokens=new, eos_token_id=Vocab.EOS, pad_token_id=Vocab.EOS
    )
    return [until_eos(row[longest : longest + own].tolist()) for row, (_, own) in zip(out, asked, strict=True)]


def prepare(make: Callable[[bool, torch.dtype], Any], way: Way, *, count: int, quick: bool) -> Work:
    """A model, and the requests served; what comes out are the tokens of all requests, one after the other."""
    model, asked = make(quick, torch.float32), requests(count, quick)

    def work() -> torch.Tensor:
        with torch.inference_mode():
            answers = way(model, asked)
        return torch.tensor([token for answer in answers for token in answer])

    return work


def our_model(quick: bool, dtype: torch.dtype) -> LanguageModel:
    """Ours."""
    return source(quick)[0].to(dtype)


@torch.inference_mode()
def report(works: Mapping[str, Work], seconds: Mapping[str, list[float]], *, count: int, quick: bool) -> dict[str, Any]:
    """Tokens per second, the engine's times to the first token, and the memory of the caches."""
    asked = requests(count, quick)
    engine = engine_for(our_model(quick, torch.float32), asked)
    completions = [engine.add(Request(prompt, new)) for prompt, new in asked]
    began, firsts, used = time.perf_counter(), [0.0] * count, 0
    while engine.unfinished:
        engine.step()
        used = max(used, engine.tables.used_blocks)
        for number, completion in enumerate(completions):
            if completion.ids and not firsts[number]:
                firsts[number] = time.perf_counter() - began
    tokens = sum(len(completion.ids) for completion in completions)
    found: dict[str, Any] = {
        name: {"tokens_per_second": round(tokens / statistics.median(times), 1)} for name, times in seconds.items()
    }
    longest = max(len(prompt) for prompt, _ in asked) + max(new for _, new in asked)
    found["Engine"] |= {
        "first_token_median": round(statistics.median(firsts), 3),
        "most_tokens_in_blocks": used * engine.tables.block_size,
        "tokens_that_padding_reserves": longest * count,
    }
    peer = next((name for name in works if name.startswith("transformers")), None)
    if peer is not None:
        found[peer]["transformers"] = importlib.import_module("transformers").__version__
    return found


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """One request, 8 and 32."""
    try:
        smollm2_file()
    except FileNotFoundError as error:
        print(f"serving: nothing to measure: {error}")
        return []
    if device.type != "cpu":
        print("serving: measured on a CPU only")
        return []
    found = []
    for count in (1, 8, 32):
        served = min(count, 3) if quick else count
        ways: dict[str, tuple[Callable[..., Any], Way]] = {
            "generate, one batch": (our_model, one_batch),
            "transformers generate, one batch": (their_model, theirs_one_batch),
        }
        if count < 32:
            ways["generate, one by one"] = our_model, one_by_one
            ways["transformers generate, one by one"] = their_model, theirs_one_by_one
        setting: dict[str, Any] = {"count": served, "quick": quick}
        found.append(
            Trial(
                f"{count} requests",
                {"requests": served},
                torch.float32,
                ours={"Engine": functools.partial(prepare, our_model, by_engine, **setting)},
                peers={name: functools.partial(prepare, *way, **setting) for name, way in ways.items()},
                rounds=3 if count < 32 else 2,
                tolerance=0.0,
                report=functools.partial(report, **setting),
            )
        )
    return found
