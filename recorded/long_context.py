"""SmolLM2 on texts of up to 1.5 times its trained length: the loss by position, and what it finds in them.

The text is this book's prose, chapter after chapter, with *needles* at equal distances: "The password of the red door
is tiger." While the model reads, it is stopped and asked for passwords: "The password of the red door is". The answer
is the next token, and a question is forgotten before the model reads on. So one reading gives the loss of every token,
and answers at many lengths and depths.

The readings differ in what is done about positions. In each of them the model is also asked for a door that does not
occur. `needles` asks about many short texts.
"""

import json
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_book.microscope import attentions
from attn_book.published import smollm2_file
from attn_core import attention
from attn_core.mechanisms.dense import Dense
from attn_core.positions import RelativePositions, Rotary, YaRN
from attn_core.pretrained import load_gguf
from attn_core.transformer import LanguageModel
from attn_core.transformer.stacks import new_caches
from recorded.bahdanau import rounded

SEEDS = (0,)
TRAINED, BASE = 8192, 100_000.0
LONG, EVERY, CHECKS = 12_288, 1024, (2048, 4096, 6144, 8192, 10_240, 12_288)
CHUNK, BIN = 256, 512
SINKS, WINDOW = 4, 2044
WAYS = ("window", "window in the text", "plain", "YaRN")
SCALINGS = {"plain": None, "YaRN": YaRN(2, TRAINED)}
NEEDLE = " The password of the {} door is"
DOORS = "red blue green white black yellow brown grey pink purple orange golden silver wooden iron glass".split()
WORDS = (
    "tiger bread river window garden apple mountain horse paper summer bridge candle forest doctor ocean pencil "
    "kitchen rabbit castle sugar guitar winter island butter camera eagle flower hammer lemon mirror needle onion "
    "piano queen rocket salad tower violin wagon"
).split()
CHAPTERS = Path(__file__).parents[1] / "chapters"


class SinksAndWindow(nn.Module):
    """Attention to the first tokens and to the last ones, of which only these are read.

    With ``positions``, those by which queries and keys were rotated, a query is never farther from the first tokens
    than it would be if only what it sees had been read: positions count within the cache. Without, within the text.
    """

    def __init__(self, positions: RelativePositions | None = None) -> None:
        super().__init__()
        self.positions = positions

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, mask: Tensor | None = None, **options: Any
    ) -> Tensor:
        """The contract's call of a layer with a cache."""
        keys, queries = k.shape[2], q.shape[2]
        begin = max(keys - queries - WINDOW + 1, 0)
        at = torch.cat([torch.arange(min(SINKS, begin)), torch.arange(begin, keys)])
        query = torch.arange(keys - queries, keys)[:, None]
        seen = (at <= query) & ((at < SINKS) | (query - at < WINDOW))
        k, v = k[:, :, at], v[:, :, at]
        if self.positions is None:
            return attention(q, k, v, mask=seen)
        gone = (query[:, 0] - WINDOW + 1 - SINKS).clamp(min=0)  # tokens between the sinks and the window of each query
        nearer, sinks = self.positions.rotate(q, -gone), at < SINKS  # rotated back
        # One softmax of two kinds of scores: a query and its copy for the sinks, side by side.
        both = torch.cat([k.masked_fill(sinks[:, None], 0), k.masked_fill(~sinks[:, None], 0)], -1)
        return attention(
            torch.cat([q, nearer], -1), both, functional.pad(v, (0, v.shape[3])), mask=seen, scale=q.shape[3] ** -0.5
        )[..., : v.shape[3]]


@contextmanager
def changed(model: LanguageModel, way: str) -> Iterator[None]:
    """Inside, the model has other positions, or sinks and a window."""
    layers, before = attentions(model), attentions(model)[0].positions
    for layer in layers:
        if way.startswith("window"):
            layer.mechanism = SinksAndWindow(layer.positions if way == "window" else None)
        else:
            layer.positions = Rotary(layer.head_dim, base=BASE, scaling=SCALINGS[way])
    try:
        yield
    finally:
        for layer in layers:
            layer.mechanism, layer.positions = Dense(), before


def prose() -> str:
    """The paragraphs of all chapters, without formulas, code, tables and markup."""
    pages = sorted(CHAPTERS.glob("[0-9][0-9]_*.ipynb"))
    paragraphs = []
    for page in pages:
        cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        text = re.sub(r" ?\{cite:p\}`[^`]*`", "", text)
        text = re.sub(r"\{(?:term|doc)\}`([^`<]*?)(?: <[^`]*>)?`|\[([^]]*)\]\([^)]*\)", r"\1\2", text)
        joined = (" ".join(paragraph.replace("*", "").split()) for paragraph in text.split("\n\n"))
        paragraphs += [p for p in joined if len(p) > 150 and not set(p) & set("{$:|#`<[")]
    return "\n\n".join(paragraphs)


class Needles:
    """What is hidden in a text: doors, each with its password."""

    def __init__(self, tokenizer: Any, seed: int, count: int) -> None:
        self.tokenizer, draw = tokenizer, random.Random(seed)
        doors = draw.sample(DOORS, count + 1)
        self.doors, self.absent = doors[:count], doors[count]
        self.passwords = dict(zip(self.doors, draw.sample(WORDS, count), strict=True))
        self.ids = torch.tensor([self.encode(f" {word}") for word in WORDS])[:, 0]

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        ids: list[int] = self.tokenizer.encode(text).ids
        return ids

    def sentence(self, door: str) -> list[int]:
        """The needle of a door."""
        return self.encode(f"{NEEDLE.format(door)} {self.passwords[door]}.\n\n")

    def question(self, door: str) -> Tensor:
        """The tokens that ask for a door's password."""
        return torch.tensor([self.encode("\n\n" + NEEDLE.format(door).strip())])


def hidden(text: list[int], needles: Needles, places: list[int], length: int) -> tuple[Tensor, Tensor]:
    """A text with needles: its first ``length`` tokens ``(1, T)``, and which of them are its own.

    ``places`` says where each needle begins.
    """
    tokens: list[int] = []
    own: list[bool] = []
    taken = 0
    for place, door in zip(places, needles.doors, strict=True):
        more, needle = place - len(tokens), needles.sentence(door)
        tokens += text[taken : taken + more] + needle
        own += [True] * more + [False] * len(needle)
        taken += more
    rest = length - len(tokens)
    tokens, own = tokens + text[taken : taken + rest], own + [True] * rest
    if len(tokens) != length:
        raise ValueError(f"text: expected at least {length} tokens with the needles, got {len(tokens)}")
    return torch.tensor([tokens]), torch.tensor(own)


def ask(model: LanguageModel, caches: Any, needles: Needles, door: str) -> dict[str, Any]:
    """What the model answers after all that it has read; the caches are then as they were."""
    held = caches[0].lengths
    x = model.read(needles.question(door), caches)
    for cache in caches:
        cache.truncate(held)
    found = model.embedding.logits(x[0, -1]).log_softmax(-1)
    first = needles.tokenizer.decode([int(found.argmax())]).strip()
    answer: dict[str, Any] = {"door": door, "says": first}
    if door in needles.passwords:
        right = needles.passwords[door]
        own = found[needles.ids[WORDS.index(right)]]
        planted = needles.ids[[WORDS.index(word) for word in set(needles.passwords.values())]]
        ahead = {"before": found[needles.ids], "planted_before": found[planted]}  # words likelier than the right one
        answer |= {name: int((others > own).sum()) for name, others in ahead.items()}
        answer |= {"right": first == right, "log_p": own.item()}
    return answer


def read(
    model: LanguageModel, tokens: Tensor, needles: Needles, places: list[int], checks: tuple[int, ...]
) -> dict[str, Any]:
    """The loss of each token, and at each of ``checks`` the answers about every needle read so far."""
    caches = new_caches(model.stack.layers, 1, tokens.shape[1] + 64)
    losses, answers, begin = [], [], 0
    for part in tokens.split(CHUNK, 1):
        x = model.read(part, caches)[0]
        begin += part.shape[1]
        following = tokens[0, begin - part.shape[1] + 1 : begin + 1]
        logits = model.embedding.logits(x)[: len(following)]
        losses.append(functional.cross_entropy(logits, following, reduction="none"))
        if begin in checks:
            known = [door for door, place in zip(needles.doors, places, strict=True) if place + 32 < begin]
            for door in (*known, needles.absent):
                place = places[needles.doors.index(door)] if door in known else None
                answers.append({"read": begin, "at": place, **ask(model, caches, needles, door)})
    return {"losses": torch.cat(losses), "answers": answers}


def long_reading(model: LanguageModel, tokenizer: Any, way: str) -> dict[str, Any]:
    """One reading past the trained length: the mean loss of each ``BIN`` tokens of prose, and the answers."""
    needles = Needles(tokenizer, SEEDS[0], LONG // EVERY)
    places = [EVERY // 2 + EVERY * number for number in range(LONG // EVERY)]
    tokens, own = hidden(needles.encode(prose()), needles, places, LONG)
    started = time.process_time()
    with changed(model, way):
        found = read(model, tokens, needles, places, CHECKS)
    losses = torch.cat([torch.full((1,), torch.nan), found["losses"]]).masked_fill(~own, torch.nan)
    means = [part.nanmean().item() for part in losses.split(BIN)]
    about = {"way": way, "losses": means, "answers": found["answers"], "passwords": needles.passwords}
    about |= {"absent": needles.absent, "seconds": time.process_time() - started}
    print(way, rounded({"seconds": about["seconds"], "losses": means[::4]}), flush=True)
    return rounded(about)


@torch.no_grad()
def run(folder: Path) -> dict[str, Any]:
    """A reading for each way."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    model, tokenizer = load_gguf(smollm2_file())
    longs = [long_reading(model, tokenizer, way) for way in WAYS]
    about = {"trained": TRAINED, "base": BASE, "length": LONG, "every": EVERY, "checks": CHECKS, "bin": BIN}
    about |= {"words": len(WORDS), "sinks": SINKS, "window": WINDOW, "factor": 2}
    return {"settings": about, "long": longs}
