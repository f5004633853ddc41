"""SmolLM2 served by the engine: long prompts in chunks, shared beginnings, speculation, and two hundred requests.

A request is a piece of English sentences, and is continued greedily by a given number of tokens. The lengths of the two
hundred are drawn so that their means are those of the Alpaca data as Kwon et al. 2023 report them (section 6.1): 19
tokens in a prompt and 58 in an answer. Times are those of one thread of the machine that the record names.
"""

import math
import random
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from attn_book.corpus.english import SENTENCES
from attn_book.published import smollm2_file
from attn_core.decode import generate
from attn_core.pretrained import load_gguf
from attn_core.serving import Engine, PromptLookup, Request
from attn_core.transformer import LanguageModel
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
PROMPT_MEAN, ANSWER_MEAN, REQUESTS = 19, 58, 200
DECODING, LONG, BUDGETS = 6, 512, (32, 128, 1024)
SHARED, QUESTIONS = 256, 8
DRAFTS = (1, 2, 4, 8)


def pieces(text: list[int], count: int, length: int, draw: random.Random) -> list[list[int]]:
    """Pieces of a text, each from a place drawn at random, as if it began again at its end."""
    begins = [draw.randrange(len(text)) for _ in range(count)]
    return [(text * (length // len(text) + 2))[begin : begin + length] for begin in begins]


def lengths(mean: float, count: int, draw: random.Random, most: int = 256) -> list[int]:
    """Log-normal lengths with this mean, from 4 tokens to `most`."""
    return [min(max(4, round(draw.lognormvariate(math.log(mean) - 0.5, 1.0))), most) for _ in range(count)]


def chunks(model: LanguageModel, text: list[int], seed: int) -> list[dict[str, Any]]:
    """What a long prompt does to requests that decode, for several token budgets."""
    found = []
    for budget in BUDGETS:
        draw = random.Random(seed)
        engine = Engine(model, num_blocks=128, token_budget=budget, prefix_caching=False)
        decoding = [engine.add(Request(each, 40, stop_ids=())) for each in pieces(text, DECODING, 16, draw)]
        gaps, first, number = [], 0.0, 0
        long = None
        while any(one.finish_reason is None for one in decoding):
            if number == 10:
                long = engine.add(Request(pieces(text, 1, LONG, draw)[0], 4, stop_ids=()))
                came = time.perf_counter()
            started = time.perf_counter()
            new = engine.step()
            ended = time.perf_counter()
            if long is not None and long in new and first == 0.0:
                first = ended - came
            if number > 2 and decoding[0] in new:
                gaps.append(ended - started)
            number += 1
        about = {"budget": budget, "median_gap": statistics.median(gaps), "longest_gap": max(gaps)}
        found.append({**about, "first_token_of_the_long": first, "steps": number})
    return rounded(found)


def prefixes(model: LanguageModel, text: list[int], seed: int) -> dict[str, Any]:
    """Requests with the same instructions before different questions, with and without prefix caching."""
    found: dict[str, Any] = {}
    for caching in (False, True):
        draw = random.Random(seed)
        (instructions,) = pieces(text, 1, SHARED, draw)
        engine = Engine(model, num_blocks=256, prefix_caching=caching)
        completions, firsts = [], []
        for question in pieces(text, QUESTIONS, 16, draw):  # one after the other, as in a conversation
            completion, started = engine.add(Request(instructions + question, 8, stop_ids=())), time.perf_counter()
            while not completion.ids:
                engine.step()
            firsts.append(time.perf_counter() - started)
            engine.run()
            completions.append(completion.ids)
        name = "with" if caching else "without"
        found[name] = {"first_tokens": firsts, "reused": engine.scheduler.reused, "ids": completions}
    same = found["with"].pop("ids") == found["without"].pop("ids")
    return {**rounded(found), "same": same}


def speculation(model: LanguageModel, text: list[int], seed: int) -> list[dict[str, Any]]:
    """Prompt lookup on a text that repeats its prompt, and on one that does not."""
    draw, found = random.Random(seed), []
    (once,) = pieces(text, 1, 60, draw)
    prompts = {"repeating": once * 2 + once[:8], "new": pieces(text, 1, 60, draw)[0]}
    for name, prompt in prompts.items():
        plain: list[int] = []
        for drafts in (0, *DRAFTS):
            engine = Engine(model, num_blocks=64, drafter=PromptLookup(drafts) if drafts else None)
            completion = engine.add(Request(prompt, 48, stop_ids=()))
            engine.step()  # the prompt
            started, steps = time.perf_counter(), 0
            while completion.finish_reason is None:
                engine.step()
                steps += 1
            about = {"text": name, "drafts": drafts, "steps": steps, "seconds": time.perf_counter() - started}
            plain = plain or completion.ids
            about |= {"drafted": engine.drafted, "accepted": engine.accepted, "same": completion.ids == plain}
            found.append(rounded(about))
    return found


def many(model: LanguageModel, text: list[int]) -> dict[str, Any]:
    """Two hundred requests in a small memory, with everything on; every token is compared with the plain loop's."""
    draw = random.Random(0)
    prompts = [pieces(text, 1, length, draw)[0] for length in lengths(PROMPT_MEAN, REQUESTS, draw)]
    answers = lengths(ANSWER_MEAN, REQUESTS, draw)
    engine = Engine(model, num_blocks=96, token_budget=64, drafter=PromptLookup(2))
    started = time.perf_counter()
    completions = [
        engine.add(Request(prompt, answer, stop_ids=())) for prompt, answer in zip(prompts, answers, strict=True)
    ]
    running, used, steps = 0, 0, 0
    while engine.unfinished:
        engine.step()
        steps += 1
        running, used = max(running, len(engine.scheduler.running)), max(used, engine.tables.used_blocks)
    seconds = time.perf_counter() - started
    different: list[float] = []
    for completion in completions:
        ids = completion.ids
        logits = model(torch.tensor([[*completion.request.prompt, *ids[:-1]]]))[0, -len(ids) :]
        best, likeliest = logits.max(-1)
        behind = best - logits.gather(1, torch.tensor(ids)[:, None])[:, 0]
        different += behind[likeliest != torch.tensor(ids)].tolist()
    return rounded(
        {
            "requests": REQUESTS,
            "prompt_tokens": sum(map(len, prompts)),
            "tokens": sum(answers),
            "written": sum(len(one.ids) for one in completions),
            "seconds": seconds,
            "steps": steps,
            "most_running": running,
            "blocks": engine.tables.num_blocks,
            "most_blocks": used,
            "preemptions": engine.scheduler.preemptions,
            "reused": engine.scheduler.reused,
            "drafted": engine.drafted,
            "accepted": engine.accepted,
            "other_tokens": len(different),  # than the likeliest, given all before them
            "farthest_behind": max(different, default=0.0),  # its logit, in nats
        }
    )


@torch.no_grad()
def run(folder: Path) -> dict[str, Any]:
    """All four experiments."""
    torch.set_num_threads(1)
    model, tokenizer = load_gguf(smollm2_file())
    text = tokenizer.encode(" ".join(SENTENCES)).ids
    generate(model, [text[:8]], max_new_tokens=2)  # to warm up
    found: dict[str, Any] = {"many": many(model, text)}
    print(found, flush=True)
    for name, experiment in {"chunks": chunks, "prefixes": prefixes, "speculation": speculation}.items():
        found[name] = [experiment(model, text, seed) for seed in SEEDS]
        print(name, found[name], flush=True)
    sizes = {"decoding": DECODING, "long": LONG, "shared": SHARED, "questions": QUESTIONS}
    return {"sizes": sizes, **found}
