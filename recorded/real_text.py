"""Pretraining on real sentences: how hard they are to restore, and what they are worth with few labels.

The text is the English side of Tatoeba, in pieces of a byte-pair encoding. The task is "order" of
`recorded/transfer.py`: are the words of a sentence in order, or have any two of them changed places? The encoder, its
size, the tuning and the seeds are those of that run. Two encoders read for equally many steps, one the whole text and
one a small part of it; a third reads nothing. Needs the archive (`ATTN_CORE_DATA`, or a download).

Source: Devlin et al. 2018, section 3.1; Sennrich et al. 2016 (byte-pair encoding).
"""

import importlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from attn_book import tatoeba
from attn_book.data import tokenize
from attn_book.pretrain import (
    MaskedBatches,
    MaskedLanguageModel,
    PretrainingVocab,
    Text,
    masked_loss,
    masked_scores,
    whole_texts,
)
from attn_book.train import fit
from attn_core.transformer import SegmentEncoder
from recorded import transfer
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
STARTS = ("all", "few", "scratch")
SHORTEST, LONGEST = 5, 14
"""Words and marks of a sentence; it is a statement, which ends with a full stop."""
BATCH_SIZE = 64
PROCESSES = 2
TEXTS = (
    "she ___ to the store .",
    "he drinks a cup of ___ .",
    "i do n't ___ where he lives .",
    "tom asked ___ to help her .",
    "the ___ is sleeping on the roof .",
)
"""Sentences with a word to restore, shown on the page."""


@dataclass(frozen=True)
class Plan(transfer.Plan):
    """As there, with these beside it: pieces of the encoding, sentences of the small part, epochs of the whole."""

    held: int = 1_000
    pieces: int = 4_000
    few: int = 8_000
    epochs: int = 10


@dataclass(frozen=True)
class World(transfer.World):
    """Sentences to read, and a task made of others."""

    plan: Plan

    @cached_property
    def sentences(self) -> dict[str, list[tuple[str, ...]]]:
        """What is read, and what labels (valid) and tests are made of: no two alike but for their marks."""
        distinct: dict[tuple[str, ...], tuple[str, ...]] = {}
        for english, _ in tatoeba.lines():
            words = tokenize(english)
            if SHORTEST <= len(words) <= LONGEST and words[-1] == ".":
                distinct.setdefault(tuple(word for word in words if word[0].isalnum()), words)
        found = list(distinct.values())
        Random(0).shuffle(found)
        held = self.plan.held
        return {"valid": found[:held], "test": found[held : 2 * held], "train": found[2 * held :]}

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """A byte-pair encoding of the sentences that are read."""
        made = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"))
        made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        options: dict[str, Any] = {
            "special_tokens": ["<unk>"],
            "continuing_subword_prefix": "##",
            "show_progress": False,
        }
        trainer = trainers.BpeTrainer(vocab_size=self.plan.pieces, **options)
        made.train_from_iterator((" ".join(words) for words in self.sentences["train"]), trainer)
        return made

    def split(self, sentences: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        """The pieces of each sentence."""
        return [tuple(one.tokens) for one in self.tokenizer.encode_batch([" ".join(words) for words in sentences])]

    @cached_property
    def read(self) -> list[tuple[str, ...]]:
        """The pieces of what is read."""
        return self.split(self.sentences["train"])

    @cached_property
    def vocab(self) -> PretrainingVocab:
        """The pieces that occur."""
        return PretrainingVocab(self.read)

    @cached_property
    def tasks(self) -> dict[str, dict[str, list[Text]]]:
        """The task, to train on and to test with."""
        found = {}
        for part, count in (("train", max(self.plan.labels)), ("test", self.plan.tested)):
            made = transfer.word_orders(self.sentences["valid" if part == "train" else "test"], count)
            pieces = self.split([text.first for text in made])
            found[part] = [Text(each, label=text.label) for each, text in zip(pieces, made, strict=True)]
        return {"order": found}


def triples(texts: Sequence[Sequence[str]]) -> Iterator[tuple[str, str, str]]:
    """Each piece between its neighbours."""
    for text in texts:
        yield from zip(text, text[1:], text[2:], strict=False)


def baselines(world: World) -> dict[str, float]:
    """As on the page: the loss by frequency alone, and how often the likeliest between the same neighbours is right."""
    counts = Counter(piece for text in world.read for piece in text)
    share = torch.tensor(list(counts.values())) / counts.total()
    between: dict[tuple[str, str], Counter[str]] = {}
    for left, piece, right in triples(world.read):
        between.setdefault((left, right), Counter())[piece] += 1
    hits = [
        between.get((left, right), counts).most_common(1)[0][0] == piece
        for left, piece, right in triples(world.split(world.sentences["test"]))
    ]
    return {"by_frequency": -(share * share.log()).sum().item(), "neighbours": sum(hits) / len(hits)}


def pretrained(start: str, seed: int, world: World) -> tuple[MaskedLanguageModel, dict[str, Any]]:
    """A model that has read, and how it did on unseen sentences after each epoch of the whole text."""
    model = MaskedLanguageModel(transfer.new_encoder(world, seed))
    texts = world.read if start == "all" else world.read[: world.plan.few]
    unseen = list(MaskedBatches(whole_texts(world.split(world.sentences["test"])), world.vocab, batch_size=100, seed=0))
    times = max(1, round(len(world.read) / len(texts)))  # equally many steps for both
    history = fit(
        model,
        MaskedBatches(whole_texts(texts), world.vocab, batch_size=BATCH_SIZE, seed=seed),
        epochs=world.plan.epochs * times,
        learning_rate=transfer.LEARNING_RATE,
        loss=masked_loss,
        seed=seed,
        validate=lambda trained: masked_scores(trained, unseen),  # type: ignore[arg-type]
        device="cpu",
        progress=False,
    )
    about: dict[str, Any] = {"parameters": sum(p.numel() for p in model.parameters()), "sentences": len(texts)}
    about |= {"steps": len(history.losses), "train_seconds": history.seconds}
    return model, about | {"curve": history.validation[times - 1 :: times]}


@torch.no_grad()
def guesses(model: MaskedLanguageModel, world: World) -> dict[str, list[tuple[str, float]]]:
    """The five likeliest pieces for the blank of each text."""
    found = {}
    for text in TEXTS:
        sides = [world.split([part.split()])[0] for part in text.split("___")]
        before, after = (world.vocab.encode(side) if side else [] for side in sides)
        tokens = torch.tensor([[world.vocab.CLS, *before, world.vocab.MASK, *after, world.vocab.SEP]])
        length, hidden = torch.tensor([tokens.shape[1]]), tokens == world.vocab.MASK
        best = model(tokens, length, torch.zeros_like(tokens), hidden).softmax(-1)[0].topk(5)
        found[text] = [(world.vocab.tokens[at], share) for share, at in zip(*(x.tolist() for x in best), strict=True)]
    return found


def measure(start: str, seed: int, plan: Plan) -> dict[str, Any]:
    """One start: pretrained or not, then tuned, and frozen, with all numbers of labels."""
    world = World(plan)
    result: dict[str, Any] = {"start": start, "seed": seed}
    encoder: SegmentEncoder = transfer.new_encoder(world, seed)
    if start != "scratch":
        model, result["pretraining"] = pretrained(start, seed, world)
        encoder = model.encoder
        if seed == SEEDS[0]:
            result["guesses"] = guesses(model.eval(), world)
    parts = world.tasks["order"]
    result["tuning"] = transfer.with_labels(encoder.eval(), "order", parts, list(plan.labels), world, seed)
    print(rounded(result), flush=True)
    return rounded(result)


def run(folder: Path, plan: Plan = Plan(), seeds: Sequence[int] = SEEDS) -> dict[str, Any]:
    """Every start with every seed, and what simple baselines can do."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    module = importlib.import_module("recorded.real_text")  # run.py gives this file another name
    plan = module.Plan(**vars(plan))
    world = World(plan)
    with ProcessPoolExecutor(PROCESSES, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        jobs = [pool.submit(module.measure, start, seed, plan) for seed in seeds for start in STARTS]
        runs = [job.result() for job in jobs]
    text: dict[str, Any] = {"sentences": len(world.read), "words": sum(map(len, world.sentences["train"]))}
    text |= {"pieces": sum(map(len, world.read)), "vocabulary": len(world.vocab)}
    text |= {"examples": [" ".join(pieces) for pieces in world.read[:6]]}
    found = {"bag_of_words": transfer.bag_of_words(world.tasks["order"], world.vocab, max(plan.labels))}
    return rounded({"plan": vars(plan), "text": text, **baselines(world), **found, "runs": runs})
