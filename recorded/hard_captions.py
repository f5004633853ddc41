"""Captions by hard attention from a warm start: the trained soft captioner chooses one region, and then REINFORCE.

The parameters are those of the soft captioner that `captions` kept. With hard attention they are measured at once, and
after training by REINFORCE with three seeds, which order the scenes and draw the regions. `captions` has the runs from
random parameters.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file

from attn_book.corpus import DrawingBatches, draw_scenes
from attn_book.train import reinforce_loss
from attn_core.seq2seq import Seq2Seq
from recorded.bahdanau import rounded
from recorded.captions import captioner, described, words_right
from recorded.images import FEW, SORTS, TESTED, VOCAB, to_keep, train

SEEDS = (0, 1, 2)
SETTINGS: dict[str, Any] = {"pictures": 8_000, "batch_size": 32, "epochs": 4, "learning_rate": 3e-3}
SETTINGS |= {"entropy_weight": 0.0}


def started(folder: Path) -> Seq2Seq:
    """Hard attention with the parameters of the recorded soft captioner."""
    model, kept = captioner("hard"), load_file(folder / "captions.safetensors")
    model.load_state_dict({name.removeprefix("captioner."): weight for name, weight in kept.items()})
    return model.eval()


def tested(model: Seq2Seq) -> dict[str, Any]:
    """On new scenes of trained pairs, and of pairs kept out."""
    drawn = {sort: draw_scenes(TESTED, pairs=SORTS[sort], seed=3000) for sort in SORTS}
    return {sort: described(model, drawn[sort]) | words_right(model, drawn[sort]) for sort in SORTS}


def run(folder: Path) -> dict[str, Any]:
    """Before REINFORCE and after it with every seed; the weights of the first are kept."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    few = {sort: draw_scenes(FEW, pairs=SORTS[sort], seed=2000) for sort in SORTS}
    loss = partial(reinforce_loss, entropy_weight=SETTINGS["entropy_weight"])
    rates = {name: SETTINGS[name] for name in ("epochs", "learning_rate")}

    def validate(model: Any) -> dict[str, float]:
        found = {sort: described(model, few[sort]) for sort in few}
        return {f"{sort}_{key}": found[sort][key] for sort in found for key in ("exact", "alignment_error")}

    runs = []
    for seed in SEEDS:
        model, drawn = started(folder), draw_scenes(SETTINGS["pictures"], seed=seed)
        batches = DrawingBatches(drawn, VOCAB, batch_size=SETTINGS["batch_size"], seed=seed)
        about = {"seed": seed} | train(model, batches, loss, validate, **rates) | tested(model)
        print(seed, f"{about['cpu_seconds']:.0f} s", about["curve"][-1], flush=True)
        runs.append(rounded(about))
        if seed == SEEDS[0]:
            save_file(to_keep(model, "hard"), folder / "hard_captions.safetensors")
    training = SETTINGS | {"tested": TESTED, "tested_on_the_way": FEW, "threads": 1}
    return {"training": training, "words": list(VOCAB.tokens), "start": rounded(tested(started(folder))), "runs": runs}
