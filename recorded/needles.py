"""Needles in ten texts: what SmolLM2 finds when more is read before them or after them.

Each text has 384 tokens of this book's prose with four needles, as in `long_context`. The model reads it alone; with
1,664 tokens after it; and with 7,680 or 11,904 tokens of other prose before it, so that the questions come near the end
of the trained length or at 1.5 times it. The needles are equally far from the questions in all cases but the second.
What comes before is read once and kept in the caches while the texts are read, one after another, and forgotten.

The same prose is also read with a single needle. Everywhere the model is asked for a door that does not occur, too.
Parameters and caches are in bfloat16, in which the model was published.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attn_book.published import smollm2_file
from attn_core.pretrained import load_gguf
from attn_core.transformer import LanguageModel
from attn_core.transformer.stacks import new_caches
from recorded.bahdanau import rounded
from recorded.long_context import WORDS, Needles, changed, hidden, prose

SEEDS = tuple(range(10))
TEXT, FIRST, EVERY, NEEDLES = 384, 32, 88, 4
AFTER = 1664
BEFORE = {"plain": (0, 7680, 11_904), "YaRN": (0, 11_904)}
CHUNK = 512


def read(model: LanguageModel, tokens: Tensor, caches: Any) -> None:
    """Add tokens ``(1, T)`` to the caches."""
    for part in tokens.split(CHUNK, 1):
        model.read(part, caches)


def forget(caches: Any, held: Tensor) -> None:
    """Take from the caches what came after the first ``held`` tokens."""
    for cache in caches:
        cache.truncate(held)


def ask(model: LanguageModel, caches: Any, needles: Needles, door: str) -> dict[str, Any]:
    """The next token, and how many candidates are likelier than the right one; the caches are then as they were."""
    held = caches[0].lengths
    x = model.read(needles.question(door), caches)[0, -1]
    forget(caches, held)
    logits = functional.linear(x.float(), model.embedding.tokens.weight.float())  # in bfloat16, many would be equal
    says = needles.tokenizer.decode([int(logits.argmax())]).strip()
    candidates = logits[needles.ids]
    answer = {"door": door, "says": says, "likeliest": WORDS[int(candidates.argmax())]}
    if door in needles.passwords:
        word = needles.passwords[door]
        ahead = int((candidates > candidates[WORDS.index(word)]).sum())
        answer |= {"password": word, "right": says == word, "ahead": ahead}
    return answer


def asked(model: LanguageModel, caches: Any, needles: Needles, **about: Any) -> dict[str, Any]:
    """The answers about every door of a text, and about one that does not occur."""
    doors = (*needles.doors, needles.absent)
    return {**about, "answers": [ask(model, caches, needles, door) for door in doors]}


def texts(tokenizer: Any, prose_tokens: list[int], count: int) -> list[tuple[Needles, Tensor]]:
    """A text ``(1, TEXT)`` with so many needles for each seed; all are different parts of the end of the prose."""
    made = []
    for number, seed in enumerate(SEEDS):
        begin = len(prose_tokens) - TEXT * (number + 1)
        needles = Needles(tokenizer, seed, count)
        places = [FIRST + EVERY * place for place in range(count)]
        made.append((needles, hidden(prose_tokens[begin : begin + TEXT], needles, places, TEXT)[0]))
    return made


def readings(
    model: LanguageModel, made: Sequence[tuple[Needles, Tensor]], other: Tensor, befores: Sequence[int], after: int = 0
) -> list[dict[str, Any]]:
    """The answers about all texts with so many tokens of ``other`` before them, and with ``after`` of them next."""
    found = []
    caches = new_caches(model.stack.layers, 1, max(befores) + TEXT + after + 64)
    for before in befores:
        read(model, other[:, int(caches[0].lengths) : before], caches)
        held = caches[0].lengths
        for seed, (needles, text) in zip(SEEDS, made, strict=True):
            read(model, text, caches)
            about = {"count": len(needles.doors), "seed": seed, "before": before}
            found.append(asked(model, caches, needles, **about, after=0))
            if after and not before:
                read(model, other[:, :after], caches)
                found.append(asked(model, caches, needles, **about, after=after))
            forget(caches, held)
    return found


@torch.no_grad()
def run(folder: Path) -> dict[str, Any]:
    """The texts with one needle, and those with four in every surrounding, with plain positions and with YaRN."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    model, tokenizer = load_gguf(smollm2_file())
    model.to(torch.bfloat16)
    tokens: list[int] = tokenizer.encode(prose()).ids
    other, longest = torch.tensor([tokens]), max(max(befores) for befores in BEFORE.values())
    if len(tokens) < longest + TEXT * len(SEEDS):
        raise ValueError(f"prose: expected {longest + TEXT * len(SEEDS)} tokens of the chapters, got {len(tokens)}")
    one, four = (texts(tokenizer, tokens, count) for count in (1, NEEDLES))
    found, started = [], time.process_time()
    for way, befores in BEFORE.items():
        with changed(model, way):
            ways = readings(model, one, other, (0,)) if way == "plain" else []
            ways += readings(model, four, other, befores, AFTER if way == "plain" else 0)
        found += [{"way": way, **reading} for reading in ways]
        print(way, rounded(time.process_time() - started), flush=True)
    settings = {"text": TEXT, "needles": NEEDLES, "after": AFTER, "before": BEFORE, "words": len(WORDS)}
    return {"settings": settings, "readings": found}
