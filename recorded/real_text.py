"""The model of `recorded/transfer.py` pretrained on real sentences: Tatoeba's English, as many words as of stories.

Its vocabulary is the words that occur ten times in these sentences or in the stories. It is tuned, and frozen, on
"sense" and "order" of `recorded/transfer.py`, whose sentences come from our grammar and are not Tatoeba's.

Source: Tatoeba (tatoeba.org, CC-BY 2.0), read by `attn_book.tatoeba`.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch

from attn_book.tatoeba import lines
from attn_core.data.tokens import tokenize
from attn_core.pretrain import (
    MaskedBatches,
    MaskedLanguageModel,
    PretrainingVocab,
    masked_loss,
    masked_scores,
    whole_texts,
)
from attn_core.train import fit
from recorded import transfer
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
PLAN = transfer.Plan(labels={10: 200, 100: 120, 1000: 40})
HELD, MIN_COUNT, EPOCHS, BATCH_SIZE = 1_000, 10, 3, 128
"""A batch holds about as many words as one of 32 stories, and three epochs as many as twelve of the stories."""

Words = tuple[str, ...]


def sentences() -> list[Words]:
    """Every English sentence of the archive once, in a random order."""
    found = list(dict.fromkeys(tokenize(english) for english, _ in lines()))
    Random(0).shuffle(found)
    return found


class World(transfer.World):
    """The tasks of `transfer.World`, and a vocabulary of real sentences and stories."""

    def __init__(self, plan: transfer.Plan, read: Sequence[Words]) -> None:
        super().__init__(plan)
        texts = [*read, *(paragraph.source for paragraph in self.stories.train)]
        self.__dict__["vocab"] = PretrainingVocab(texts, min_count=MIN_COUNT)


def between_neighbours(read: Sequence[Words], held: Sequence[Words], vocab: PretrainingVocab) -> dict[str, float]:
    """How often the most frequent word is right, and the word most often seen between the same two neighbours."""
    known = [[word if word in vocab else "<unk>" for word in words] for words in read]
    counts = Counter(word for words in known for word in words)
    table: dict[tuple[str, str], Counter[str]] = {}
    for words in known:
        for left, word, right in zip(["", *words], words, [*words[1:], ""], strict=False):
            table.setdefault((left, right), Counter())[word] += 1
    always = counts.most_common(1)[0][0]
    by_frequency = right_word = total = 0
    for raw in held:
        words = [word if word in vocab else "<unk>" for word in raw]
        for left, word, right in zip(["", *words], words, [*words[1:], ""], strict=False):
            if word != "<unk>":
                total += 1
                by_frequency += word == always
                right_word += table.get((left, right), counts).most_common(1)[0][0] == word
    return {"most frequent": by_frequency / total, "between neighbours": right_word / total}


def measure(seed: int, world: World, read: Sequence[Words], held: Sequence[Words]) -> dict[str, Any]:
    """One model: pretrained on ``read``, then tuned, and frozen, with all numbers of labels."""
    model = MaskedLanguageModel(transfer.new_encoder(world, seed))
    unseen = list(MaskedBatches(whole_texts(held), world.vocab, batch_size=200, seed=None))
    history = fit(
        model,
        MaskedBatches(whole_texts(read), world.vocab, batch_size=BATCH_SIZE, seed=seed),
        epochs=EPOCHS,
        learning_rate=transfer.LEARNING_RATE,
        loss=masked_loss,
        seed=seed,
        validate=lambda trained: masked_scores(trained, unseen),  # type: ignore[arg-type]
        device="cpu",
        progress=False,
    )
    encoder, tuning = model.encoder.eval(), []
    for task in ("sense", "order"):
        texts = world.tasks[task]
        vectors = {part: transfer.features(encoder, each, world.vocab) for part, each in texts.items()}
        for labels in world.plan.labels:
            torch.manual_seed(seed)
            found = [("tuned", transfer.tuned(encoder, texts, labels, world, seed))]
            torch.manual_seed(seed)
            of_part = {part: x["frozen"] for part, x in vectors.items()}
            found.append(("frozen", transfer.head_on(of_part, texts, labels)))
            tuning += [{"task": task, "weights": weights} | one for weights, one in found]
    print(seed, rounded(history.validation[-1]), flush=True)
    about = {"parameters": sum(p.numel() for p in model.parameters()), "steps": len(history.losses)}
    return rounded({"seed": seed, **about, "curve": history.validation, "tuning": tuning})


def run(
    folder: Path, plan: transfer.Plan = PLAN, seeds: Sequence[int] = SEEDS, most: int | None = None
) -> dict[str, Any]:
    """Every seed, and what counting would restore."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    found = sentences()[:most]
    held, read = found[:HELD], found[HELD:]
    world = World(plan, read)
    corpus = {"sentences": len(read), "words": sum(map(len, read)), "vocabulary": len(world.vocab)}
    baselines = between_neighbours(read, held, world.vocab)
    runs = [measure(seed, world, read, held) for seed in seeds]
    return rounded({"plan": vars(plan), "corpus": corpus, "baselines": baselines, "runs": runs})
