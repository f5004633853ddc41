"""How long requests wait when they arrive at random: percentiles against the rate, with and without chunked prefill.

Requests arrive in a Poisson process, with prompts and answers of log-normal lengths. The clock is simulated: it moves
by the processor time of each step of the engine, and, when nothing is to be done, to the next arrival. So whatever else
the machine does hardly changes the result. Token values do not matter for times, so the model has random parameters.

The capacity is the rate at which requests are served that all arrive at once, with the large budget. Rates are shares
of it.
"""

import random
import time
from pathlib import Path
from typing import Any

import torch

from attn_core.positions import Rotary
from attn_core.serving import Engine, Request
from attn_core.serving.request import Completion
from attn_core.transformer import LanguageModel, TransformerConfig
from recorded.bahdanau import rounded
from recorded.serving import lengths

SEEDS = (0, 1, 2)
MODEL: dict[str, Any] = {
    "vocab_size": 1_000,
    "model_dim": 256,
    "num_heads": 4,
    "num_layers": 6,
    "feed_forward_dim": 1_024,
}
REQUESTS, PROMPT_MEAN, LONGEST_PROMPT, ANSWER_MEAN, LONGEST_ANSWER = 100, 128, 1_024, 32, 128
BUDGETS = {"chunks": 128, "whole prompts": 2_048}
SHARES = (0.4, 0.7, 0.95)


def workload(seed: int, count: int) -> list[Request]:
    """Requests of lengths that differ widely; the same for every rate and budget."""
    draw = random.Random(seed)
    prompts = lengths(PROMPT_MEAN, count, draw, LONGEST_PROMPT)
    answers = lengths(ANSWER_MEAN, count, draw, LONGEST_ANSWER)
    texts = [[draw.randrange(4, MODEL["vocab_size"]) for _ in range(n)] for n in prompts]
    return [Request(text, n, stop_ids=()) for text, n in zip(texts, answers, strict=True)]


def arrivals(rate: float, count: int, seed: int) -> list[float]:
    """Times of a Poisson process, in seconds."""
    draw, now = random.Random(seed), 0.0
    return [now := now + draw.expovariate(rate) for _ in range(count)]


def serve(model: LanguageModel, requests: list[Request], at: list[float], budget: int) -> list[list[float]]:
    """For each request: when it arrived, and when each of its tokens came, on the simulated clock."""
    engine = Engine(model, num_blocks=512, token_budget=budget, prefix_caching=False)
    times: dict[Completion, list[float]] = {}
    coming, now = list(zip(at, requests, strict=True)), 0.0
    while coming or engine.unfinished:
        if not engine.unfinished:
            now = max(now, coming[0][0])
        while coming and coming[0][0] <= now:
            arrived, request = coming.pop(0)
            times[engine.add(request)] = [arrived]
        started = time.process_time()
        new = engine.step()
        now += time.process_time() - started
        for completion, tokens in new.items():
            times[completion] += [now] * len(tokens)
    return list(times.values())


def waits(times: list[float]) -> dict[str, float]:
    """Time to the first token, mean time for each later one, and the longest pause between two."""
    arrived, first, *_, last = times
    gaps = [b - a for a, b in zip(times[1:], times[2:], strict=False)]
    return {"ttft": first - arrived, "tpot": (last - first) / len(gaps), "pause": max(gaps), "end": last}


@torch.no_grad()
def run(folder: Path) -> dict[str, Any]:
    """All rates, budgets and seeds; of each request, what it waited for."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = LanguageModel(
        TransformerConfig(**MODEL), positions=lambda: Rotary(MODEL["model_dim"] // MODEL["num_heads"])
    )
    return measure(model.eval())


def measure(model: LanguageModel) -> dict[str, Any]:
    """The capacity, then every rate."""
    serve(model, workload(0, 5), [0.0] * 5, 64)  # to warm up
    capacity = {}
    for name, budget in BUDGETS.items():
        ends = [times[-1] for times in serve(model, workload(0, REQUESTS), [0.0] * REQUESTS, budget)]
        capacity[name] = REQUESTS / max(ends)
    found = []
    for seed in SEEDS:
        for share in SHARES:
            rate = share * capacity["whole prompts"]
            for name, budget in BUDGETS.items():
                about = {"seed": seed, "share": share, "rate": rate, "budget": name}
                served = serve(model, workload(seed, REQUESTS), arrivals(rate, REQUESTS, seed), budget)
                found.append(about | {"requests": [waits(times) for times in served]})
                print(about, flush=True)
    sizes = {"requests": REQUESTS, "prompt_mean": PROMPT_MEAN, "answer_mean": ANSWER_MEAN, "budgets": BUDGETS}
    return rounded({"sizes": sizes, "capacity": capacity, "runs": found})
