"""Pretraining on plain stories, then few labels: what is learned from which start, and do next sentences help?

In each task a bag of words is right half the time. "sense": does a sentence make sense, or have two nouns changed
places? "order": are its words in order, or have any two changed places? "entailment": does the second sentence follow
from the first? "next sentence": is it the rest of the same story? This is what one kind of pretraining has had beside
hidden words. No sentence of the first two tasks stands in the stories that are read.

Source: Devlin et al. 2018 (both kinds of pretraining); Liu et al. 2019, section 4.2 (whether the second helps).
"""

import importlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from attn_book.corpus import (
    ParagraphCorpus,
    entailments,
    next_sentence_texts,
    paragraph_corpus,
    plausible_sentences,
    two_part_texts,
)
from attn_book.pretrain import (
    ClassHead,
    LabelledBatches,
    MaskedBatches,
    MaskedLanguageModel,
    NextSentenceModel,
    PretrainingVocab,
    Text,
    class_logits,
    class_loss,
    masked_and_next_loss,
    masked_loss,
    masked_scores,
    tuned_from,
)
from attn_book.retrieval import mean_vectors
from attn_book.train import fit
from attn_core.transformer import SegmentEncoder, TransformerConfig
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
STARTS = ("masked", "masked, next", "scratch")
BATCH_SIZE, LEARNING_RATE = 32, 3e-3
TUNING_BATCH, TUNING_RATE = 32, 1e-3
FROZEN_STEPS, FROZEN_RATE = 1_000, 3e-3
LAYERS, WIDTH, HEADS = 2, 64, 4
GROWN = [(1, 32), (2, 32), (1, 64), (2, 64), (4, 64), (2, 128)]
PROCESSES = 2


@dataclass(frozen=True)
class Plan:
    """How much of everything; `labels` says how many epochs so many labels are seen for."""

    paragraphs: int = 8_000
    held: int = 2_500
    tested: int = 1_000
    epochs: int = 12
    growing: int = 4
    labels: dict[int, int] = field(default_factory=lambda: {10: 200, 30: 200, 100: 120, 300: 80, 1000: 40})


@dataclass(frozen=True)
class World:
    """All texts of a plan, the same in every process."""

    plan: Plan

    @cached_property
    def stories(self) -> ParagraphCorpus:
        """Paragraphs to pretrain with (train), to make labels of (valid) and to test with."""
        return paragraph_corpus(train=self.plan.paragraphs, valid=self.plan.held, test=self.plan.held)

    @cached_property
    def vocab(self) -> PretrainingVocab:
        """The English words of the stories that are read."""
        return PretrainingVocab(p.source for p in self.stories.train)

    @cached_property
    def tasks(self) -> dict[str, dict[str, list[Text]]]:
        """The labelled texts of each task, to train on and to test with; twins in class 1 and 0 stand together."""
        told, most, tested = self.stories, max(self.plan.labels), self.plan.tested
        read = {pair.source for paragraph in told.train for pair in paragraph.sentences}
        parts = {"train": (told.valid, most), "test": (told.test, tested)}
        pairs = entailments(train=most, valid=0, test=tested, combinations=0)
        found: dict[str, dict[str, list[Text]]] = {"sense": {}, "order": {}, "next sentence": {}}
        for part, (paragraphs, count) in parts.items():
            senses = plausible_sentences(paragraphs, without=told.train)
            own = [pair.source for paragraph in paragraphs for pair in paragraph.sentences]
            found["sense"][part] = [Text(e.words, label=int(e.plausible)) for e in senses[:count]]
            found["order"][part] = word_orders([words for words in own if words not in read], count)
            found["next sentence"][part] = list(next_sentence_texts(paragraphs[:count], seed=7)(0))
        examples = {"train": pairs.train, "test": pairs.test}
        found["entailment"] = {
            part: [Text(e.premise.source, e.hypothesis.source, int(e.follows)) for e in each]
            for part, each in examples.items()
        }
        short = [task for task, made in found.items() if len(made["train"]) < most or len(made["test"]) < tested]
        if short:
            raise ValueError(f"held: expected more than {self.plan.held} paragraphs, they are too few for {short}")
        return found

    def counts(self, task: str) -> Sequence[int]:
        """The numbers of labels that a task is learned from: of entailment the greatest alone."""
        return [max(self.plan.labels)] if task == "entailment" else list(self.plan.labels)


def word_orders(sentences: Sequence[Sequence[str]], count: int) -> list[Text]:
    """So many texts by twos: a sentence, no two alike, and the same with two of its words exchanged, class 0."""
    random, found = Random(0), []
    for words in list(dict.fromkeys(sentences))[: count // 2]:
        i, j = random.sample(range(len(words) - 1), 2)  # the full stop stays
        while words[i] == words[j]:
            i, j = random.sample(range(len(words) - 1), 2)
        order = list(range(len(words)))
        order[i], order[j] = j, i
        found += [Text(words, label=1), Text([words[at] for at in order], label=0)]
    return found


def new_encoder(world: World, seed: int, layers: int = LAYERS, width: int = WIDTH) -> SegmentEncoder:
    """An encoder that has read nothing."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"model_dim": width, "num_heads": HEADS, "num_layers": layers}
    sizes["feed_forward_dim"] = 4 * width
    return SegmentEncoder(TransformerConfig(len(world.vocab), dropout=0.0, norm_first=True, **sizes))


def pretrain(
    start: str, seed: int, world: World, encoder: SegmentEncoder, epochs: int
) -> tuple[MaskedLanguageModel, dict[str, Any]]:
    """A model around this encoder, pretrained on the stories, and what its training was like."""
    next_too = start == "masked, next"
    model = NextSentenceModel(encoder) if next_too else MaskedLanguageModel(encoder)
    texts = (next_sentence_texts if next_too else two_part_texts)(world.stories.train, seed=seed)
    batches = MaskedBatches(texts, world.vocab, batch_size=BATCH_SIZE, seed=seed)
    loss: Any = masked_and_next_loss if next_too else masked_loss
    unseen = world.stories.test[: world.plan.tested]
    words, rests = (
        list(MaskedBatches(texts(unseen), world.vocab, batch_size=100, seed=None))
        for texts in (two_part_texts, next_sentence_texts)
    )

    def validate(trained: Any) -> dict[str, float]:
        """Hidden words of true stories, whatever was trained; and whether it tells their rests from others."""
        return masked_scores(trained, rests) | masked_scores(trained, words)

    history = fit(
        model,
        batches,
        epochs=epochs,
        learning_rate=LEARNING_RATE,
        loss=loss,
        seed=seed,
        validate=validate,
        device="cpu",
        progress=False,
    )
    about: dict[str, Any] = {"parameters": sum(p.numel() for p in model.parameters()), "steps": len(history.losses)}
    return model, about | {"train_seconds": history.seconds, "curve": history.validation}


def tuned(
    encoder: SegmentEncoder, parts: dict[str, list[Text]], labels: int, world: World, seed: int
) -> dict[str, Any]:
    """Train a copy of the encoder and a new head on the first so many labels; the accuracy on the test part."""
    model = tuned_from(encoder, 2)
    batches = LabelledBatches(parts["train"][:labels], world.vocab, batch_size=TUNING_BATCH, seed=seed)
    epochs = world.plan.labels[labels]
    options: dict[str, Any] = {"learning_rate": TUNING_RATE, "seed": seed, "device": "cpu", "progress": False}
    history = fit(model, batches, epochs=epochs, loss=class_loss, **options)
    logits = class_logits(model, LabelledBatches(parts["test"], world.vocab, batch_size=200))
    return {"labels": labels, "last_loss": history.losses[-1], "test": share_right(logits, parts["test"])}


@torch.no_grad()
def features(encoder: SegmentEncoder, texts: list[Text], vocab: PretrainingVocab) -> dict[str, Tensor]:
    """What the encoder makes of each text: the vector of <cls>, and the mean of its words', each ``(N, C)``."""
    found: dict[str, list[Tensor]] = {"frozen": [], "frozen, mean": []}
    for batch in LabelledBatches(texts, vocab, batch_size=200):
        x = encoder(batch.source, batch.source_lengths, batch.segments)
        found["frozen"].append(x[:, 0])
        found["frozen, mean"].append(mean_vectors(x, batch.source))
    return {name: torch.cat(parts) for name, parts in found.items()}


def head_on(x: dict[str, Tensor], parts: dict[str, list[Text]], labels: int) -> dict[str, Any]:
    """Train a head alone on the first so many vectors ``x["train"]``; the accuracy on ``x["test"]``."""
    head = ClassHead(x["train"].shape[1], 2)
    optimizer = torch.optim.Adam(head.parameters(), lr=FROZEN_RATE)
    classes = torch.tensor([text.label for text in parts["train"][:labels]])
    for _ in range(FROZEN_STEPS):
        loss = functional.cross_entropy(head(x["train"][:labels]), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {"labels": labels, "last_loss": loss.item(), "test": share_right(head(x["test"]), parts["test"])}


def share_right(logits: Tensor, texts: list[Text]) -> float:
    """The share of texts whose class has the greatest logit."""
    return (logits.argmax(-1) == torch.tensor([text.label for text in texts])).float().mean().item()


def with_labels(
    encoder: SegmentEncoder, task: str, parts: dict[str, list[Text]], counts: Sequence[int], world: World, seed: int
) -> list[dict[str, Any]]:
    """What is learned from so many labels: by the whole model, and by a head on what the encoder makes of each text."""
    found: list[dict[str, Any]] = []
    frozen = {part: features(encoder, texts, world.vocab) for part, texts in parts.items()}
    for labels in counts:
        torch.manual_seed(seed)
        found.append({"task": task, "weights": "tuned"} | tuned(encoder, parts, labels, world, seed))
        for weights in frozen["train"]:
            torch.manual_seed(seed)
            on_head = head_on({part: x[weights] for part, x in frozen.items()}, parts, labels)
            found.append({"task": task, "weights": weights} | on_head)
    return found


def measure(start: str, seed: int, plan: Plan, folder: Path) -> dict[str, Any]:
    """One start: pretrained or not, then tuned, and frozen, with all numbers of labels."""
    world = World(plan)
    encoder = new_encoder(world, seed)
    result: dict[str, Any] = {"start": start, "seed": seed, "tuning": []}
    if start != "scratch":
        model, result["pretraining"] = pretrain(start, seed, world, encoder, plan.epochs)
        if start == "masked" and seed == SEEDS[0]:
            save_file({name: x.half() for name, x in model.state_dict().items()}, folder / "transfer.safetensors")
    for task, parts in world.tasks.items():
        result["tuning"] += with_labels(encoder.eval(), task, parts, world.counts(task), world, seed)
        print(start, seed, [one for one in rounded(result["tuning"]) if one["task"] == task], flush=True)
    return rounded(result)


def grow(layers: int, width: int, plan: Plan) -> dict[str, Any]:
    """One size, pretrained with hidden words for equally many steps."""
    world = World(plan)
    _, about = pretrain("masked", SEEDS[0], world, new_encoder(world, SEEDS[0], layers, width), plan.growing)
    print(layers, width, about["curve"][-1], flush=True)
    return rounded({"layers": layers, "width": width, **about})


def bag_of_words(parts: dict[str, list[Text]], vocab: PretrainingVocab, labels: int) -> float:
    """The accuracy of a linear classifier of the counts of words in both parts of the texts."""

    def counts(texts: Sequence[Text]) -> tuple[Tensor, Tensor]:
        rows = torch.zeros(len(texts), 2, len(vocab))
        for row, text in zip(rows, texts, strict=True):
            for side, words in zip(row, (text.first, text.second), strict=True):
                for word in words:
                    side[vocab.encode((word,))] += 1
        return rows.flatten(1), torch.tensor([text.label for text in texts])

    torch.manual_seed(0)
    x, y = counts(parts["train"][:labels])
    model = nn.Linear(x.shape[1], 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-4)
    for _ in range(200):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    x, y = counts(parts["test"])
    return (model(x).argmax(-1) == y).float().mean().item()


def run(folder: Path, plan: Plan = Plan(), seeds: Sequence[int] = SEEDS, grown: Any = GROWN) -> dict[str, Any]:
    """Every start with every seed, every size with one, and what a bag of words can do."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    world, module = World(plan), importlib.import_module("recorded.transfer")  # run.py gives this file another name
    plan = module.Plan(**vars(plan))
    with ProcessPoolExecutor(PROCESSES, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        starts = [pool.submit(module.measure, start, seed, plan, folder) for seed in seeds for start in STARTS]
        sizes = [pool.submit(module.grow, layers, width, plan) for layers, width in grown]
        runs, growth = ([job.result() for job in jobs] for jobs in (starts, sizes))
    training = {"batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE, "tuning_batch_size": TUNING_BATCH}
    training |= {"frozen_steps": FROZEN_STEPS, "frozen_learning_rate": FROZEN_RATE}
    training |= {"tuning_learning_rate": TUNING_RATE, "layers": LAYERS, "width": WIDTH, "heads": HEADS, "threads": 1}
    words = {task: bag_of_words(parts, world.vocab, max(plan.labels)) for task, parts in world.tasks.items()}
    about = {"plan": vars(plan), "vocabulary": list(world.vocab.tokens), "bag_of_words": words}
    return rounded({"training": training, **about, "runs": runs, "growth": growth})
