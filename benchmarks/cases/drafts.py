"""Speculative decoding with SmolLM2: a tree of drafts from the text beside a chain, and beside no drafts at all.

One request reads 256 tokens and gets 48 more, the likeliest ones, which are the same in every way. `repetitive` says
one sentence again and again. In `edited` the same sentence comes with two ends by turns, so that what follows is one of
two. `free` is the beginning of a page of Python's documentation. The report has how many steps each way took.
"""

import functools
from collections.abc import Mapping
from pydoc_data.topics import topics
from typing import Any

import torch

from attn_book.published import smollm2_file
from attn_core.pretrained import load_gguf
from attn_core.serving import Engine, PromptLookup, Request
from benchmarks.cases.smollm2 import TEXT, source
from benchmarks.measure import Trial, Work

TEXTS = {"repetitive": 64 * TEXT, "edited": 32 * (TEXT + TEXT.replace("tired", "wide")), "free": topics["execmodel"]}
WAYS = {"a tree": PromptLookup(8, branches=3), "a chain": PromptLookup(8), "no drafts": None}
SEARCHED, NEW = 256, 48


def prompt(text: str, quick: bool) -> list[int]:
    """The tokens to go on from."""
    if quick:
        return source(quick)[1][:8] * 3
    return load_gguf(smollm2_file()).tokenizer.encode(TEXTS[text]).ids[:SEARCHED]


def prepare(way: str, text: str, quick: bool) -> Work:
    """An engine, and one request served; what comes out are its tokens."""
    model, ids = source(quick)[0], prompt(text, quick)
    engine = Engine(model, num_blocks=32, drafter=WAYS[way], prefix_caching=False)

    def work() -> torch.Tensor:
        return torch.tensor(list(engine.stream(Request(ids, 8 if quick else NEW, stop_ids=()))))

    return work


def report(works: Mapping[str, Work], seconds: Mapping[str, list[float]], *, text: str, quick: bool) -> dict[str, Any]:
    """How many steps after the prompt's each way takes, and the share of drafts that stay."""
    found: dict[str, Any] = {}
    for way, drafter in WAYS.items():
        engine = Engine(source(quick)[0], num_blocks=32, drafter=drafter, prefix_caching=False)
        engine.add(Request(prompt(text, quick), 8 if quick else NEW, stop_ids=()))
        steps = 0
        while engine.unfinished:
            engine.step()
            steps += 1
        found[way] = {"steps": steps, "drafted": engine.drafted, "accepted": engine.accepted}
    return found


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """Each text."""
    try:
        smollm2_file()
    except FileNotFoundError as error:
        print(f"drafts: nothing to measure: {error}")
        return []
    if device.type != "cpu":
        print("drafts: measured on a CPU only")
        return []
    return [
        Trial(
            text,
            {"prompt": 24 if quick else SEARCHED, "new": 8 if quick else NEW},
            torch.float32,
            ours={"a tree": functools.partial(prepare, "a tree", text, quick)},
            peers={way: functools.partial(prepare, way, text, quick) for way in list(WAYS)[1:]},
            rounds=3,
            tolerance=0.0,
            report=functools.partial(report, text=text, quick=quick),
        )
        for text in TEXTS
    ]
