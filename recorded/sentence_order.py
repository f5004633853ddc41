"""A second task of pretraining that can be learned: are the two parts of a story in their order?

The parts of one story stand in both classes, so a noun that they share tells nothing. One encoder learns hidden words
alone, the other hidden words and the order of the parts; both are then tuned, and frozen, on "sense" and "order" of
`recorded/transfer.py` and on the second task itself, "parts".

Source: Lan et al. 2020, section 3.1 (sentence-order prediction); Liu et al. 2019, section 4.2 (whether a second helps).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from attn_book.corpus import sentence_order_texts, two_part_texts
from attn_core.pretrain import (
    MaskedBatches,
    MaskedLanguageModel,
    NextSentenceModel,
    Text,
    masked_and_next_loss,
    masked_loss,
    masked_scores,
)
from attn_core.train import fit
from recorded import transfer
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
STARTS = ("masked", "masked, order of parts")
PLAN = transfer.Plan(epochs=8, labels={100: 120, 1000: 20})


class World(transfer.World):
    """The texts of `transfer.World`, and the labelled texts of three tasks."""

    @property
    def parts(self) -> dict[str, list[Text]]:
        """Two parts of a story in their order or not, to train on and to test with."""
        told, most = self.stories, max(self.plan.labels)
        return {
            "train": list(sentence_order_texts(told.valid[:most], seed=7)(0)),
            "test": list(sentence_order_texts(told.test[: self.plan.tested], seed=7)(0)),
        }


def pretrained(start: str, seed: int, world: World) -> tuple[MaskedLanguageModel, list[dict[str, float]]]:
    """A model, and its scores on unseen stories after each epoch."""
    encoder = transfer.new_encoder(world, seed)
    both = start != "masked"
    model = NextSentenceModel(encoder) if both else MaskedLanguageModel(encoder)
    texts = (sentence_order_texts if both else two_part_texts)(world.stories.train, seed=seed)
    unseen = world.stories.test[: world.plan.tested]
    words, orders = (
        list(MaskedBatches(texts(unseen), world.vocab, batch_size=100, seed=None))
        for texts in (two_part_texts, sentence_order_texts)
    )
    loss: Any = masked_and_next_loss if both else masked_loss
    history = fit(
        model,
        MaskedBatches(texts, world.vocab, batch_size=transfer.BATCH_SIZE, seed=seed),
        epochs=world.plan.epochs,
        learning_rate=transfer.LEARNING_RATE,
        loss=loss,
        seed=seed,
        validate=lambda trained: masked_scores(trained, orders) | masked_scores(trained, words),  # type: ignore[arg-type]
        device="cpu",
        progress=False,
    )
    return model, history.validation


def measure(start: str, seed: int, world: World) -> dict[str, Any]:
    """One start: pretrained, then tuned, and frozen, with all numbers of labels."""
    model, curve = pretrained(start, seed, world)
    encoder, tuning = model.encoder.eval(), []
    for task, texts in {"sense": world.tasks["sense"], "order": world.tasks["order"], "parts": world.parts}.items():
        vectors = {part: transfer.features(encoder, each, world.vocab) for part, each in texts.items()}
        for labels in world.plan.labels:
            torch.manual_seed(seed)
            found = [("tuned", transfer.tuned(encoder, texts, labels, world, seed))]
            for weights in vectors["train"]:
                torch.manual_seed(seed)
                of_part = {part: x[weights] for part, x in vectors.items()}
                found.append((weights, transfer.head_on(of_part, texts, labels)))
            tuning += [{"task": task, "weights": weights} | one for weights, one in found]
    print(start, seed, rounded(curve[-1]), flush=True)
    return rounded({"start": start, "seed": seed, "curve": curve, "tuning": tuning})


def run(folder: Path, plan: transfer.Plan = PLAN, seeds: Sequence[int] = SEEDS) -> dict[str, Any]:
    """Both starts with every seed, and what the words of each part tell by themselves."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    world = World(plan)
    words = transfer.bag_of_words(world.parts, world.vocab, max(plan.labels))
    runs = [measure(start, seed, world) for seed in seeds for start in STARTS]
    return rounded({"plan": vars(plan), "bag_of_words": words, "runs": runs})
