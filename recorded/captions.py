"""A captioner with soft attention: what it writes, and where it looks for each word.

On scenes that the project draws: two coloured objects to name, two grey ones to pass over, and eight pairs of a colour
and a shape kept out of training. Every model is tested on new scenes of trained pairs, and on scenes of nothing but the
pairs kept out; there, what the eye finds and what the writer expects come apart.

Source: Xu et al. 2015.
"""

import statistics
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attn_book.alignment import alignment_error
from attn_book.captioner import ImageEncoder, region_maps
from attn_book.corpus import COLOURS, SHAPES, SIZE, TRAINED_PAIRS, DrawingBatches, Drawings, draw_scenes
from attn_book.metrics import exact_match
from attn_book.train import target_loss
from attn_core.decode import greedy
from attn_core.seq2seq import BahdanauDecoder, Seq2Seq
from recorded.images import FEW, RELATIONS, SORTS, TESTED, VOCAB, Found, each, to_keep, train

SEEDS = (0, 1, 2)
SETTINGS: dict[str, Any] = {"pictures": 8_000, "epochs": 8, "learning_rate": 5e-3, "batch_size": 32}
SIZES = {"embed_dim": 32, "hidden_dim": 64, "memory_dim": 64}
LONGEST = 10


def captions(seed: int) -> Found:
    """A captioner: whole captions, words, and maps beside the true regions."""
    torch.manual_seed(seed)
    encoder = ImageEncoder(image_size=SIZE, memory_dim=SIZES["memory_dim"])
    model = Seq2Seq(encoder, BahdanauDecoder(len(VOCAB), **SIZES))
    few = {name: draw_scenes(FEW, pairs=SORTS[name], seed=2000) for name in SORTS}
    drawn = draw_scenes(SETTINGS["pictures"], seed=seed)
    batches = DrawingBatches(drawn, VOCAB, batch_size=SETTINGS["batch_size"], seed=seed)

    def validate(model: Any) -> dict[str, float]:
        found = {name: described(model, few[name]) for name in few}
        return {f"{name}_{key}": found[name][key] for name in found for key in ("exact", "alignment_error")}

    about: dict[str, Any] = {"seed": seed}
    rates = {"epochs": SETTINGS["epochs"], "learning_rate": SETTINGS["learning_rate"]}
    about |= train(model, batches, target_loss, validate, **rates)
    tests = {name: draw_scenes(TESTED, pairs=SORTS[name], seed=3000) for name in SORTS}
    about |= {name: described(model, tests[name]) | words_right(model, tests[name]) for name in SORTS}
    return about, to_keep(model, "captioner") if seed == SEEDS[0] else {}


def described(model: Seq2Seq, drawn: Drawings) -> dict[str, float]:
    """Captions that the model writes by itself, and its maps while it is given the true ones."""
    batches = DrawingBatches(drawn, VOCAB, batch_size=FEW)
    found = [h for batch in batches for h in greedy(model, batch.source, batch.source_lengths, max_length=LONGEST)]
    return {
        "exact": exact_match([VOCAB.decode(h.ids) for h in found], drawn.captions),
        "alignment_error": alignment_error(region_maps(model, batches), drawn.links()),
    }


@torch.no_grad()
def words_right(model: nn.Module, drawn: Drawings) -> dict[str, Any]:
    """How often each sort of word is right after the true words before it; and the shape after another colour's name.

    The other colour is one that the shape was seen in. If the shape is right then, the eye was not at fault.
    """
    renamed = tuple(another_colour(caption) for caption in drawn.captions)
    changed = Drawings(drawn.images, drawn.masks, drawn.colours, drawn.shapes, renamed)
    right: dict[str, list[bool]] = {}
    for given, names in (
        (drawn, ("colour", "shape", "relation")),
        (changed, (None, "shape_after_another_colour", None)),
    ):
        for batch in DrawingBatches(given, VOCAB, batch_size=FEW):
            said = model(batch.source, batch.source_lengths, batch.target_in).argmax(-1)
            for row, wanted in zip(said.tolist(), batch.target_out.tolist(), strict=True):
                for word, true in zip(row, wanted, strict=True):
                    for name, of in zip(names, (COLOURS, SHAPES, RELATIONS), strict=True):
                        if name and VOCAB.tokens[true] in of:
                            right.setdefault(name, []).append(word == true)
    return {"words": {name: statistics.fmean(answers) for name, answers in right.items()}}


def another_colour(caption: tuple[str, ...]) -> tuple[str, ...]:
    """The caption with the name of each colour replaced by the next one that its shape was seen in."""
    words, names = list(caption), [*COLOURS, *COLOURS]
    for at, word in enumerate(caption):
        if word in COLOURS:
            after = names[names.index(word) + 1 :]
            words[at] = next(other for other in after if (other, caption[at + 1]) in TRAINED_PAIRS)
            words[at - 1] = "an" if words[at] == "orange" else "a"
    return tuple(words)


def run(folder: Path) -> dict[str, Any]:
    """A captioner with every seed; the weights of the first are kept."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    runs = each(captions, [(seed,) for seed in SEEDS], folder / "captions.safetensors")
    training = SETTINGS | SIZES | {"tested": TESTED, "tested_on_the_way": FEW, "threads": 1}
    return {"training": training, "words": list(VOCAB.tokens), "runs": runs}
