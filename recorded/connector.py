"""A connector: a small language model reads an image's patches through one linear map.

As in LLaVA, in its smallest form. The eye is the ViT of `contrast`, trained with captions of one object, and frozen.
The language model first learns captions of two objects as text alone. Then the connector is trained with both frozen,
and after that together with the language model: once with a causal mask, and once with patches that see each other in
the language model, too.

Source: Liu et al. 2023.
"""

import copy
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch import Tensor, nn

from attn_book.corpus import DrawingBatches, Drawings, centred, draw_scenes
from attn_book.data import Batch, Vocab
from attn_book.train import fit, target_loss, token_loss
from attn_core.positions import Rotary
from attn_core.transformer import LanguageModel, TransformerConfig
from attn_core.vision import VisionTransformer
from recorded.bahdanau import rounded
from recorded.captions import words_right
from recorded.contrast import PATCH_SIZE
from recorded.images import DIM, FEW, LAYERS, SORTS, TESTED, VOCAB, to_keep, train, vit

SEEDS = (0, 1, 2)
SETTINGS: dict[str, Any] = {"pictures": 8_000, "batch_size": 32, "learning_rate": 3e-3}
EPOCHS = {"text": 1, "connector": 2, "both": 20}
KINDS = ("both", "patches see all")
EYE_LAYERS = 1
"""The last of the eye's two layers is left out: only its class token was trained."""
LONGEST = 10


class Describer(nn.Module):
    """A language model that reads the patches of an image, then a caption."""

    def __init__(self, eye: VisionTransformer, writer: LanguageModel, *, patches_see_all: bool = False) -> None:
        super().__init__()
        self.eye, self.writer, self.patches_see_all = eye.requires_grad_(False), writer, patches_see_all
        self.connector = nn.Linear(DIM, DIM)

    def look(self, images: Tensor) -> Tensor:
        """Features ``(B, R, C)`` of the patches, without the class token."""
        x = self.eye.patches(images)
        x = self.eye.positions(torch.cat([self.eye.class_token.expand(len(x), 1, -1), x], 1))
        for layer in list(self.eye.stack.layers)[:EYE_LAYERS]:
            x = layer(x)
        return x[:, 1:]

    def forward(self, images: Tensor, lengths: Tensor, tokens: Tensor) -> Tensor:
        """Logits ``(B, T, V)`` of the token after each of ``tokens (B, T)``; ``lengths`` go unread."""
        prefix = self.connector(self.look(images))
        x = torch.cat([prefix, self.writer.embedding(tokens)], 1)
        at, patches = torch.arange(x.shape[1]), prefix.shape[1]
        visible = (at <= at[:, None]) | ((at < patches) & torch.tensor(self.patches_see_all))
        return self.writer.embedding.logits(self.writer.stack(x, mask=visible)[:, patches:])


def writer() -> LanguageModel:
    """A causal language model of captions, with rotary positions."""
    config = TransformerConfig(len(VOCAB), **LAYERS)
    return LanguageModel(config, positions=lambda: Rotary(DIM // LAYERS["num_heads"]))


def eye(folder: Path) -> VisionTransformer:
    """The recorded ViT."""
    model, prefix = vit(PATCH_SIZE), "pair.images."
    kept = load_file(folder / "contrast.safetensors")
    model.load_state_dict({name.removeprefix(prefix): w for name, w in kept.items() if name.startswith(prefix)})
    return model.eval()


@torch.no_grad()
def written(model: Describer, images: Tensor) -> list[tuple[str, ...]]:
    """The captions that the model writes by itself, the most probable word each time."""
    said: list[tuple[str, ...]] = []
    for some in images.split(FEW):
        tokens = torch.full((len(some), 1), Vocab.BOS)
        for _ in range(LONGEST):
            logits = model(some, torch.zeros(0), tokens)
            tokens = torch.cat([tokens, logits[:, -1:].argmax(-1)], 1)
        rows = [row[1:] for row in tokens.tolist()]
        said += [tuple(VOCAB.decode(row[: row.index(Vocab.EOS)] if Vocab.EOS in row else row)) for row in rows]
    return said


def exact(model: Describer, drawn: Drawings) -> float:
    """The share of captions that are exactly right."""
    pairs = zip(written(model, centred(drawn.images)), drawn.captions, strict=True)
    return statistics.fmean(said == true for said, true in pairs)


def text_loss(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """The loss of captions without their pictures."""
    return token_loss(model(batch.target_in), batch.target_out)


def measure(folder: Path, seed: int) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """The language model by itself, and every kind that is made of it."""
    torch.manual_seed(seed)
    few = {sort: draw_scenes(FEW, pairs=SORTS[sort], seed=2000) for sort in SORTS}
    tests = {sort: draw_scenes(TESTED, pairs=SORTS[sort], seed=3000) for sort in SORTS}
    drawn = draw_scenes(SETTINGS["pictures"], seed=seed)
    batches = DrawingBatches(drawn, VOCAB, batch_size=SETTINGS["batch_size"], patch_size=PATCH_SIZE, seed=seed)
    rate = SETTINGS["learning_rate"]

    def validate(model: Any) -> dict[str, float]:
        return {sort: exact(model, few[sort]) for sort in few}

    def trained(kind: str, model: Describer) -> dict[str, Any]:
        epochs = EPOCHS["connector" if kind == "connector" else "both"]
        model.writer.requires_grad_(kind != "connector")
        about: dict[str, Any] = {"kind": kind, "seed": seed}
        about |= train(model, batches, target_loss, validate, epochs=epochs, learning_rate=rate)
        about |= {sort: {"exact": exact(model, tests[sort])} | words_right(model, tests[sort]) for sort in SORTS}
        print(kind, seed, about["cpu_seconds"], about["curve"][-1], flush=True)
        return rounded(about)

    text = writer()
    history = fit(
        text, batches, loss=text_loss, epochs=EPOCHS["text"], learning_rate=rate, device="cpu", progress=False
    )
    runs: list[dict[str, Any]] = [{"kind": "text", "seed": seed, "loss": statistics.fmean(history.losses[-50:])}]
    model = Describer(eye(folder), text)
    runs.append(trained("connector", model))
    for kind in KINDS:
        other = copy.deepcopy(model)
        other.patches_see_all = kind == "patches see all"
        runs.append(trained(kind, other))
        if (kind, seed) == ("both", SEEDS[0]):
            weights = {name: each for name, each in to_keep(other, "describer").items() if ".eye." not in name}
    return runs, weights if seed == SEEDS[0] else {}


def run(folder: Path) -> dict[str, Any]:
    """Every kind with every seed; the weights of the first connector and language model are kept."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    runs: list[dict[str, Any]] = []
    weights: dict[str, np.ndarray] = {}
    for seed in SEEDS:
        found, kept = measure(folder, seed)
        runs += found
        weights |= kept
    save_file(weights, folder / "connector.safetensors")
    training = SETTINGS | {"epochs": EPOCHS, "layers": LAYERS, "eye_layers": EYE_LAYERS, "patch_size": PATCH_SIZE}
    return {"training": training | {"tested": TESTED, "threads": 1}, "words": list(VOCAB.tokens), "runs": runs}
