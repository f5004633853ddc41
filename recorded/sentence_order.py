"""A second task of pretraining that can be learned: are the two parts of a story in their order?

The parts of one story stand in both classes, so a noun that they share tells nothing. Everything else is as in
`recorded/transfer.py`: the encoder, the stories, the seeds, and the tasks "sense" and "order" that it is tuned on, and
frozen. Its start "masked" is what this one is to be compared with.

Source: Lan et al. 2020, section 3.1 (sentence-order prediction); Liu et al. 2019, section 4.2 (whether a second helps).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from attn_book.corpus import sentence_order_texts, two_part_texts
from attn_book.pretrain import MaskedBatches, NextSentenceModel, Text, masked_and_next_loss, masked_scores
from attn_book.train import fit
from recorded import transfer
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
PLAN = transfer.Plan(labels={10: 200, 100: 120, 1000: 40})


def parts_of(world: transfer.World) -> dict[str, list[Text]]:
    """Two parts of a story, in their order or exchanged, to train on and to test with."""
    told, most = world.stories, max(world.plan.labels)
    return {
        "train": list(sentence_order_texts(told.valid[:most], seed=7)(0)),
        "test": list(sentence_order_texts(told.test[: world.plan.tested], seed=7)(0)),
    }


def pretrained(seed: int, world: transfer.World) -> tuple[NextSentenceModel, list[dict[str, float]]]:
    """A model, and its scores on unseen stories after each epoch."""
    model = NextSentenceModel(transfer.new_encoder(world, seed))
    texts = sentence_order_texts(world.stories.train, seed=seed)
    unseen = world.stories.test[: world.plan.tested]
    words, orders = (
        list(MaskedBatches(texts(unseen), world.vocab, batch_size=100, seed=None))
        for texts in (two_part_texts, sentence_order_texts)
    )
    loss: Any = masked_and_next_loss
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


def measure(seed: int, world: transfer.World) -> dict[str, Any]:
    """One seed: pretrained, then tuned, and frozen, with all numbers of labels."""
    model, curve = pretrained(seed, world)
    encoder = model.encoder.eval()
    tuning = [
        one
        for task in ("sense", "order")
        for one in transfer.with_labels(encoder, task, world.tasks[task], list(world.plan.labels), world, seed)
    ]
    print(seed, rounded(curve[-1]), flush=True)
    return rounded({"seed": seed, "curve": curve, "tuning": tuning})


def run(folder: Path, plan: transfer.Plan = PLAN, seeds: Sequence[int] = SEEDS) -> dict[str, Any]:
    """Every seed, and what the words of each part tell by themselves."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    world = transfer.World(plan)
    words = transfer.bag_of_words(parts_of(world), world.vocab, max(plan.labels))
    return rounded({"plan": vars(plan), "bag_of_words": words, "runs": [measure(seed, world) for seed in seeds]})
