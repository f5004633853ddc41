"""Image classifiers: what a task asks of the positions, a ViT beside a CNN, and where a ViT looks.

On pictures that the project draws, with eight pairs of a colour and a shape kept out of training. Two tasks have the
same answer, a colour and a shape. In `framed` it is the object in a frame, which its own patches show. In `left` it is
the object that a caption names first, the leftmost (in one column the upper), which no patch shows by itself. The ViT
of `left` has patches of 12 pixels, which are the cells of the drawings: without positions its input is then the same
if the two objects change places, so it cannot be right more often than in half of all pictures. In `framed` the ViT
has patches of 8 pixels, which know nothing of cells; its weights are compared with what painting patches over does,
and a CNN of about as many parameters learns the same pictures in as many steps.

Sources: Dosovitskiy et al. 2021; Abnar and Zuidema 2020 (rollout); Zeiler and Fergus 2014 (painting over).
"""

import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
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
from attn_book.data import Batch, Vocab
from attn_book.train import Loss, fit, token_loss
from attn_core import capture_attention
from attn_core.transformer import TransformerConfig
from attn_core.vision import VisionTransformer
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
PICTURES = (12_000, 1_500)
SETTINGS: dict[str, Any] = {"seen": 96_000, "learning_rate": 3e-3, "batch_size": 64}
"""``seen`` counts pictures with repeats: 8 epochs of 12,000, or 64 of 1,500."""
JOBS = [("left", kind, PICTURES[0]) for kind in ("vit", "vit without positions")]
JOBS += [("framed", kind, pictures) for pictures in PICTURES for kind in ("vit", "cnn")]
PATCH_SIZES = {"framed": 8, "left": 12}
DIM = 64
LAYERS: dict[str, Any] = {"model_dim": DIM, "num_heads": 4, "feed_forward_dim": 2 * DIM, "num_layers": 2}
LAYERS |= {"dropout": 0.0, "norm_first": True}
TESTED, POINTS, FEW = 1_000, 8, 250
"""Pictures of a test; validations on the way, and pictures of those."""
SORTS = {"trained": TRAINED_PAIRS, "held": HELD_PAIRS}
RELATIONS = ("left", "above", "below")
VOCAB = Vocab([("a", "an", "of", *RELATIONS, *COLOURS, *SHAPES)])

Found = tuple[dict[str, Any], dict[str, np.ndarray]]
"""What was measured, and weights to keep, if any."""


def classifier(task: str, kind: str) -> nn.Sequential:
    """A model that answers with two words: logits ``(B, 2, V)``, the colour's and the shape's."""
    body: nn.Module
    if kind == "cnn":
        body, size = cnn(), 96
    else:
        body, size = vit(PATCH_SIZES[task]), DIM
        if kind == "vit without positions":
            nn.init.zeros_(body.positions.weight).requires_grad_(False)
    return nn.Sequential(body, nn.Linear(size, 2 * len(VOCAB)), nn.Unflatten(1, (2, len(VOCAB))))


def vit(patch_size: int) -> VisionTransformer:
    """Two layers of size 64."""
    return VisionTransformer(TransformerConfig(1, **LAYERS), image_size=SIZE, patch_size=patch_size)


def cnn() -> nn.Sequential:
    """Three convolutions that halve the sides, and the maximum of each of 96 channels."""
    layers: list[nn.Module] = []
    for channels, more, width in ((3, 32, 5), (32, 64, 3), (64, 96, 3)):
        convolution = nn.Conv2d(channels, more, width, stride=2, padding=width // 2, bias=False)
        layers += [convolution, nn.BatchNorm2d(more), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten())


def draw(task: str, count: int, seed: int, sort: str = "trained") -> Drawings:
    """Pictures of a task; in both the answer is the second and the third word of the caption."""
    return {"framed": draw_marked, "left": draw_scenes}[task](count, pairs=SORTS[sort], seed=seed)


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


def measure(task: str, kind: str, pictures: int, seed: int) -> Found:
    """One model, trained and tested."""
    torch.manual_seed(seed)
    model, patch_size = classifier(task, kind), PATCH_SIZES[task]
    few = {sort: draw(task, FEW, 2000, sort) for sort in SORTS}
    batches = DrawingBatches(
        draw(task, pictures, seed), VOCAB, batch_size=SETTINGS["batch_size"], patch_size=patch_size, seed=seed
    )

    def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        return token_loss(model(batch.source), batch.target_out[:, 1:3])

    def validate(model: nn.Module) -> dict[str, float]:
        return {f"{sort}_both": answered(model, few[sort], centred(few[sort].images))["both"] for sort in few}

    about: dict[str, Any] = {"task": task, "kind": kind, "pictures": pictures, "seed": seed}
    rates = {"epochs": SETTINGS["seen"] // pictures, "learning_rate": SETTINGS["learning_rate"]}
    about |= train(model, batches, loss, validate, **rates)
    for sort in SORTS:
        tested = draw(task, TESTED, 3000, sort)
        about[sort] = answered(model, tested, centred(tested.images))
        about[sort]["shuffled"] = answered(model, tested, shuffle(centred(tested.images), patch_size))
        if (task, kind, pictures) == ("framed", "vit", PICTURES[0]):
            about[sort] |= looked_at(model, tested, patch_size)
    if kind == "vit":
        encoder: Any = model[0]
        about["positions"] = alike(encoder.positions.weight.detach()[1:])
    keep = kind == "vit" and (pictures, seed) == (PICTURES[0], SEEDS[0])
    return about, to_keep(model, task) if keep else {}


@torch.no_grad()
def answered(model: nn.Module, drawn: Drawings, images: Tensor) -> dict[str, Any]:
    """How often the colour, the shape and both are right, the true words being those of ``drawn``.

    In pictures of two named objects also how often the answer is the second one.
    """
    said = torch.cat([model(some).argmax(-1) for some in images.split(FEW)])
    right = said == torch.tensor([VOCAB.encode(caption[1:3]) for caption in drawn.captions])
    both = right.all(1).float().mean().item()
    found = dict(zip(("colour", "shape"), right.float().mean(0).tolist(), strict=True)) | {"both": both}
    if drawn.colours.shape[1] == 2:
        second = said == torch.tensor([VOCAB.encode(caption[-2:]) for caption in drawn.captions])
        found["second"] = second.all(1).float().mean().item()
    return found


def shuffle(images: Tensor, patch_size: int) -> Tensor:
    """The images with their patches in another order, one for all."""
    patches = functional.unfold(images, patch_size, stride=patch_size)
    order = torch.randperm(patches.shape[2], generator=torch.Generator().manual_seed(0))
    return functional.fold(patches[..., order], images.shape[2:], patch_size, stride=patch_size)


@torch.no_grad()
def looked_at(model: nn.Sequential, drawn: Drawings, patch_size: int) -> dict[str, Any]:
    """The class token's attention on the framed object's patches, and the answers with patches painted over.

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


def alike(positions: Tensor) -> dict[str, float]:
    """Mean cosines of patches' position vectors ``(R, C)`` without their mean: in one row, one column, and neither."""
    side = math.isqrt(len(positions))
    cosines = functional.normalize(positions - positions.mean(0), dim=-1)
    cosines = cosines @ cosines.T
    rows, columns = torch.arange(side**2) // side, torch.arange(side**2) % side
    down, across = (rows[:, None] - rows).abs(), (columns[:, None] - columns).abs()
    kinds = {"same_row": (down == 0) & (across > 0), "same_column": (across == 0) & (down > 0)}
    kinds["neither"] = (down > 0) & (across > 0)
    return {name: cosines[where].mean().item() for name, where in kinds.items()}


def to_keep(model: nn.Module, name: str) -> dict[str, np.ndarray]:
    """The weights in half precision, as numpy has them."""
    kept = {key: value.half() if value.is_floating_point() else value for key, value in model.state_dict().items()}
    return {f"{name}.{key}": value.numpy() for key, value in kept.items()}


def each(work: Callable[..., Found], jobs: list[tuple[Any, ...]], to: Path) -> list[dict[str, Any]]:
    """What ``work`` measured for each job; the weights to keep are written to a file."""
    runs: list[dict[str, Any]] = []
    weights: dict[str, np.ndarray] = {}
    for job in jobs:
        about, kept = work(*job)
        print(*job, f"{about['cpu_seconds']:.0f} s", about["curve"][-1], flush=True)
        runs.append(rounded(about))
        weights |= kept
    save_file(weights, to)
    return runs


def run(folder: Path) -> dict[str, Any]:
    """Every model with every seed; the weights of the first ViT of each task are kept."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    training: dict[str, Any] = SETTINGS | {"layers": LAYERS, "patch_sizes": PATCH_SIZES, "threads": 1}
    training |= {"tested": TESTED, "tested_on_the_way": FEW}
    jobs = [(*job, seed) for job in JOBS for seed in SEEDS]
    runs = each(measure, jobs, folder / "images.safetensors")
    return {"training": training, "words": list(VOCAB.tokens), "runs": runs}
