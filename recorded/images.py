"""A ViT on marked pictures, and a pair of encoders learned by contrast: where one looks, what both make of new pairs.

On pictures that the project draws, with eight pairs of a colour and a shape kept out of training. The ViT names the
one object in a frame, with patches of two sizes; its weights are compared with what painting patches over does. The
pair is asked which of 64 captions fits a picture, after batches of three sizes. Every model is tested on new pictures
of trained pairs, and on pictures that hold nothing but pairs kept out. The chapter's captioner is in captions.py.

Sources: Dosovitskiy et al. 2021; Radford et al. 2021; Abnar and Zuidema 2020 (rollout).
"""

import importlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn
from torch.nn import functional

from attn_book.attribution import occlude, rollout
from attn_book.corpus import (
    COLOURS,
    HELD_PAIRS,
    SHAPES,
    SIZE,
    TRAINED_PAIRS,
    DrawingBatches,
    Drawings,
    centred,
    draw_marked,
    draw_scenes,
)
from attn_core import capture_attention
from attn_core.data import Batch, Vocab
from attn_core.train import Loss, fit, token_loss
from attn_core.transformer import TransformerConfig, TransformerEncoder
from attn_core.vision import ContrastivePair, VisionTransformer, pair_loss, zero_shot
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
SETTINGS: dict[str, dict[str, Any]] = {
    "vit": {"pictures": 12_000, "epochs": 8, "learning_rate": 3e-3, "batch_size": 64},
    "pair": {"pictures": 6_000, "epochs": 8, "learning_rate": 3e-3},
}
OPTIONS = {"vit": (8, 12), "pair": (64, 16, 256)}
"""The ViT's patches, in pixels a side; the pair's batches."""
DIM, SHARED_DIM, PAIR_PATCH_SIZE = 64, 32, 12
LAYERS: dict[str, Any] = {"model_dim": DIM, "num_heads": 4, "feed_forward_dim": 2 * DIM, "num_layers": 2}
LAYERS |= {"dropout": 0.0, "norm_first": True}
TESTED, POINTS, FEW = 1_000, 8, 250
"""Pictures of a test; validations on the way, and pictures of those."""
PROCESSES = 2
SORTS = {"trained": TRAINED_PAIRS, "held": HELD_PAIRS}
EVERY_PAIR = [(colour, shape) for colour in COLOURS for shape in SHAPES]
RELATIONS = ("left", "above", "below")
VOCAB = Vocab([("a", "an", "of", *RELATIONS, *COLOURS, *SHAPES)])

Found = tuple[dict[str, Any], dict[str, np.ndarray]]
"""What was measured, and weights to keep, if any."""


def vit(patch_size: int) -> nn.Sequential:
    """A ViT whose class token is asked for two words: logits ``(B, 2, V)``, the colour's and the shape's."""
    model = VisionTransformer(TransformerConfig(1, **LAYERS), image_size=SIZE, patch_size=patch_size)
    return nn.Sequential(model, nn.Linear(DIM, 2 * len(VOCAB)), nn.Unflatten(1, (2, len(VOCAB))))


def pair() -> ContrastivePair:
    """A ViT and an encoder of captions."""
    images = VisionTransformer(TransformerConfig(1, **LAYERS), image_size=SIZE, patch_size=PAIR_PATCH_SIZE)
    return ContrastivePair(images, TransformerEncoder(TransformerConfig(len(VOCAB), **LAYERS)), shared_dim=SHARED_DIM)


def train(
    model: nn.Module,
    batches: DrawingBatches,
    loss: Loss,
    validate: Callable[[nn.Module], dict[str, float]],
    *,
    epochs: int,
    learning_rate: float,
) -> dict[str, Any]:
    """Train; the mean losses between validations, what those found, and the CPU seconds without them."""
    started, away = time.process_time(), 0.0

    def timed(model: nn.Module) -> dict[str, float]:
        nonlocal away
        left = time.process_time()
        found = validate(model)
        away += time.process_time() - left
        return found

    steps = epochs * len(batches)
    every = max(1, steps // POINTS)
    settings: dict[str, Any] = {"epochs": epochs, "learning_rate": learning_rate, "seed": batches.seed, "device": "cpu"}
    history = fit(model, batches, loss=loss, **settings, validate=timed, validate_every=every, progress=False)
    model.eval()
    spent = time.process_time() - started - away
    losses = [statistics.fmean(history.losses[at : at + every]) for at in range(0, steps - every + 1, every)]
    curve = [{key: value for key, value in point.items() if key != "seconds"} for point in history.validation]
    parameters = sum(p.numel() for p in model.parameters())
    return {"parameters": parameters, "steps": steps, "cpu_seconds": spent, "losses": losses, "curve": curve}


def marked(patch_size: int, seed: int) -> Found:
    """A ViT that names the object in the frame: what it answers, where it looks, and what painting over takes away."""
    torch.manual_seed(seed)
    model, few = vit(patch_size), {name: draw_marked(FEW, pairs=SORTS[name], seed=2000) for name in SORTS}
    chosen = SETTINGS["vit"]
    drawn = draw_marked(chosen["pictures"], seed=seed)
    batches = DrawingBatches(drawn, VOCAB, batch_size=chosen["batch_size"], patch_size=patch_size, seed=seed)

    def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        return token_loss(model(batch.source), batch.target_out[:, 1:3])

    def validate(model: nn.Module) -> dict[str, float]:
        answers = {name: answered(model, few[name], centred(few[name].images)) for name in few}
        return {f"{name}_{key}": value for name in few for key, value in answers[name].items()}

    about = {"patch_size": patch_size, "seed": seed} | train(
        model, batches, loss, validate, epochs=chosen["epochs"], learning_rate=chosen["learning_rate"]
    )
    for name in SORTS:
        tested = draw_marked(TESTED, pairs=SORTS[name], seed=3000)
        about[name] = answered(model, tested, centred(tested.images)) | looked_at(model, tested, patch_size)
    encoder: Any = model[0]
    about["positions"] = alike(encoder.positions.weight.detach()[1:])
    return about, to_keep(model, "vit") if (patch_size, seed) == (OPTIONS["vit"][0], SEEDS[0]) else {}


@torch.no_grad()
def answered(model: nn.Module, drawn: Drawings, images: Tensor) -> dict[str, float]:
    """How often the colour, the shape and both are right, the true words being those of ``drawn``."""
    wanted = torch.tensor([VOCAB.encode(caption[1:3]) for caption in drawn.captions])
    right = torch.cat([model(some).argmax(-1) for some in images.split(FEW)]) == wanted
    both = right.all(1).float().mean().item()
    return dict(zip(("colour", "shape"), right.float().mean(0).tolist(), strict=True)) | {"both": both}


@torch.no_grad()
def looked_at(model: nn.Sequential, drawn: Drawings, patch_size: int) -> dict[str, Any]:
    """The class token's attention on the marked object's patches, and the answers with patches painted over.

    Shares are of what goes to patches at all. As many patches as the object has are turned to paper: its own, any
    others, those of greatest attention in the last layer, and those of greatest attention among the others.
    """
    images, patches = centred(drawn.images), (SIZE // patch_size) ** 2
    with capture_attention(model) as collected:
        for some in images.split(FEW):
            model(some)
    maps = torch.stack([torch.cat(weights) for weights in collected.values()], 1)
    views = {f"layer_{number}": weights.mean(1) for number, weights in enumerate(maps.unbind(1), start=1)}
    views["rollout"] = rollout(maps)
    views = {name: functional.normalize(weights[:, 0, 1:], p=1, dim=-1) for name, weights in views.items()}
    own = torch.zeros(len(drawn), patches, dtype=torch.bool)
    for row, link in enumerate(drawn.links(patch_size)):
        own[row, list({region for region, _ in link})] = True
    last, by_chance = views[f"layer_{maps.shape[1]}"], torch.rand(own.shape, generator=torch.Generator().manual_seed(0))
    many = own.sum(1, keepdim=True)

    def highest(scores: Tensor) -> Tensor:
        """As many patches as the object has, those of the highest scores."""
        return scores.argsort(1, descending=True).argsort(1) < many

    painted = {"own": own, "others": highest(by_chance - 2 * own.float()), "most_attended": highest(last)}
    painted["most_attended_others"] = highest(last - 2 * own.float())
    return {
        "share_of_area": own.float().mean().item(),
        "on_object": {name: (weights * own).sum(1).mean().item() for name, weights in views.items()},
        "highest_on_object": {
            name: own.gather(1, weights.argmax(1, keepdim=True)).float().mean().item()
            for name, weights in views.items()
        },
        "painted": {name: answered(model, drawn, occlude(images, over, patch_size)) for name, over in painted.items()},
    }


def alike(positions: Tensor) -> dict[str, Any]:
    """Cosines of patches' position vectors ``(R, C)`` without their mean: by distance in steps, and of one row."""
    side = math.isqrt(len(positions))
    cosines = functional.normalize(positions - positions.mean(0), dim=-1)
    cosines = cosines @ cosines.T
    rows, columns = torch.arange(side**2) // side, torch.arange(side**2) % side
    down, across = (rows[:, None] - rows).abs(), (columns[:, None] - columns).abs()
    steps = {str(n): cosines[down + across == n].mean().item() for n in range(1, 2 * side - 1)}
    kinds = {"same_row": (down == 0) & (across > 0), "same_column": (across == 0) & (down > 0)}
    others = {"neither": (down > 0) & (across > 0)}
    return {"steps": steps} | {name: cosines[where].mean().item() for name, where in (kinds | others).items()}


def contrast(batch_size: int, seed: int) -> Found:
    """A contrastive pair: which of 64 captions, or of the eight kept out, fits a picture best."""
    torch.manual_seed(seed)
    model, few = pair(), {name: draw_scenes(FEW, objects=1, pairs=SORTS[name], seed=2000) for name in SORTS}
    chosen = SETTINGS["pair"]
    drawn = draw_scenes(chosen["pictures"], objects=1, seed=seed)
    batches = DrawingBatches(drawn, VOCAB, batch_size=batch_size, patch_size=PAIR_PATCH_SIZE, seed=seed)

    def validate(model: Any) -> dict[str, float]:
        return {name: named(model, few[name], EVERY_PAIR)["both"] for name in few}

    about = {"batch_size": batch_size, "seed": seed} | train(
        model, batches, pair_loss, validate, epochs=chosen["epochs"], learning_rate=chosen["learning_rate"]
    )
    for name, pairs in SORTS.items():
        tested = draw_scenes(TESTED, objects=1, pairs=pairs, seed=3000)
        about[name] = named(model, tested, EVERY_PAIR) | {"among_own": named(model, tested, list(pairs))["both"]}
    about["temperature"] = model.log_scale.exp().reciprocal().item()
    return about, {}


def named(model: ContrastivePair, drawn: Drawings, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Zero-shot answers among captions of ``pairs``: right in both words, in each, and in both for each true pair."""
    captions = [("an" if colour == "orange" else "a", colour, shape) for colour, shape in pairs]
    chosen = torch.cat([zero_shot(model, some, captions, VOCAB) for some in centred(drawn.images).split(FEW)])
    answers = [(pairs[number], caption[1:]) for number, caption in zip(chosen.tolist(), drawn.captions, strict=True)]
    right = [said == true for said, true in answers]
    by_pair: dict[str, list[bool]] = {}
    for (_, true), answer in zip(answers, right, strict=True):
        by_pair.setdefault(" ".join(true), []).append(answer)
    return {
        "both": statistics.fmean(right),
        "interval": wilson(sum(right), len(right)),
        "colour": statistics.fmean(said[0] == true[0] for said, true in answers),
        "shape": statistics.fmean(said[1] == true[1] for said, true in answers),
        "by_pair": {name: statistics.fmean(each) for name, each in sorted(by_pair.items())},
    }


def wilson(right: int, total: int) -> list[float]:
    """The 95 % interval of a share, after Wilson 1927: what drawing other pictures of the same pairs would change."""
    z, share = 1.96, right / total
    middle, width = share + z**2 / (2 * total), z * math.sqrt(share * (1 - share) / total + (z / (2 * total)) ** 2)
    return [(middle - width) / (1 + z**2 / total), (middle + width) / (1 + z**2 / total)]


def over_pairs(runs: Sequence[dict[str, Any]], sort: str) -> list[float]:
    """The 95 % interval of the mean over pairs, by bootstrap: what choosing other pairs of the sort would change."""
    by_pair = [statistics.fmean(run[sort]["by_pair"][name] for run in runs) for name in runs[0][sort]["by_pair"]]
    random = Random(0)
    drawn = sorted(statistics.fmean(random.choices(by_pair, k=len(by_pair))) for _ in range(2_000))
    return [drawn[50], drawn[1_949]]


def to_keep(model: nn.Module, name: str) -> dict[str, np.ndarray]:
    """The weights in half precision, as numpy has them: those pass from one process to another as they are."""
    kept = {key: value.half() if value.is_floating_point() else value for key, value in model.state_dict().items()}
    return {f"{name}.{key}": value.numpy() for key, value in kept.items()}


def measure(model: str, option: int, seed: int) -> Found:
    """One model, trained and tested."""
    about, weights = {"vit": marked, "pair": contrast}[model](option, seed)
    print(f"{model} {option}, seed {seed}: {about['cpu_seconds']:.0f} s, {about['curve'][-1]}", flush=True)
    return rounded(about), weights


def side_by_side(work: Callable[..., Found], jobs: Sequence[tuple[Any, ...]], to: Path) -> list[dict[str, Any]]:
    """What ``work`` measured for each job, two at a time; the weights to keep are written to a file."""
    with ProcessPoolExecutor(PROCESSES, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        found = list(pool.map(work, *zip(*jobs, strict=True)))
    save_file({name: value for _, kept in found for name, value in kept.items()}, to)
    return [about for about, _ in found]


def run(folder: Path) -> dict[str, Any]:
    """Both models with every option and seed; the weights of the first ViT are kept."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    training: dict[str, Any] = {"settings": SETTINGS, "layers": LAYERS, "shared_dim": SHARED_DIM, "threads": 1}
    training |= {"pair_patch_size": PAIR_PATCH_SIZE, "tested": TESTED, "tested_on_the_way": FEW}
    jobs = [(model, option, seed) for model in OPTIONS for option in OPTIONS[model] for seed in SEEDS]
    importable = importlib.import_module("recorded.images").measure  # run.py loads this file under another name
    found = side_by_side(importable, jobs, folder / "images.safetensors")
    runs = {model: [about for job, about in zip(jobs, found, strict=True) if job[0] == model] for model in OPTIONS}
    groups = {size: [about for about in runs["pair"] if about["batch_size"] == size] for size in OPTIONS["pair"]}
    intervals = {str(size): {sort: over_pairs(each, sort) for sort in SORTS} for size, each in groups.items()}
    return {"training": training, "words": list(VOCAB.tokens), "pair_over_pairs": rounded(intervals)} | runs
