"""Two contrastive losses: CLIP's softmax over the batch, and SigLIP's sigmoid for each pair.

Pairs of encoders on pictures of one coloured object, trained alike but for the loss. Each is asked which of 64 captions
fits a picture, on trained pairs of a colour and a shape and on pairs kept out of training, and which pictures fit a
caption. The softmax starts at CLIP's temperature; the sigmoid starts at SigLIP's temperature and bias.

Sources: Radford et al. 2021; Zhai et al. 2023.
"""

import statistics
from pathlib import Path
from typing import Any

import torch

from attn_book.contrastive import ContrastivePair, pair_loss, sigmoid_pair_loss
from attn_book.corpus import COLOURS, SHAPES, DrawingBatches, Drawings, centred, draw_scenes
from attn_book.train import Loss
from attn_core.transformer import TransformerConfig, TransformerEncoder
from recorded.images import FEW, LAYERS, SORTS, TESTED, VOCAB, Found, each, to_keep, train, vit

SEEDS = (0, 1, 2)
SETTINGS: dict[str, Any] = {"pictures": 6_000, "epochs": 4, "learning_rate": 3e-3}
BATCH_SIZE = 64
LOSSES: dict[str, Loss] = {"softmax": pair_loss, "sigmoid": sigmoid_pair_loss}
STARTS: dict[str, dict[str, float]] = {"softmax": {"temperature": 0.07}, "sigmoid": {"temperature": 0.1, "bias": -10.0}}
SHARED_DIM, PATCH_SIZE = 32, 12
EVERY_PAIR = [(colour, shape) for colour in COLOURS for shape in SHAPES]


def build(loss: str) -> ContrastivePair:
    """A ViT and an encoder of captions."""
    texts = TransformerEncoder(TransformerConfig(len(VOCAB), **LAYERS))
    return ContrastivePair(vit(PATCH_SIZE), texts, shared_dim=SHARED_DIM, **STARTS[loss])


def measure(loss: str, seed: int) -> Found:
    """One pair of encoders, trained and tested."""
    torch.manual_seed(seed)
    model, few = build(loss), {sort: draw_scenes(FEW, objects=1, pairs=SORTS[sort], seed=2000) for sort in SORTS}
    drawn = draw_scenes(SETTINGS["pictures"], objects=1, seed=seed)
    batches = DrawingBatches(drawn, VOCAB, batch_size=BATCH_SIZE, patch_size=PATCH_SIZE, seed=seed)

    def validate(model: Any) -> dict[str, float]:
        return {sort: retrieved(model, few[sort])["both"] for sort in few}

    about: dict[str, Any] = {"loss": loss, "seed": seed}
    rates = {name: SETTINGS[name] for name in ("epochs", "learning_rate")}
    about |= train(model, batches, LOSSES[loss], validate, **rates)
    for sort, pairs in SORTS.items():
        about[sort] = retrieved(model, draw_scenes(TESTED, objects=1, pairs=pairs, seed=3000))
    about["temperature"] = model.log_scale.exp().reciprocal().item()
    about["bias"] = 0.0 if model.bias is None else model.bias.item()
    keep = (loss, seed) == ("sigmoid", SEEDS[0])
    return about, to_keep(model, "pair") if keep else {}


@torch.no_grad()
def retrieved(model: ContrastivePair, drawn: Drawings) -> dict[str, float]:
    """Captions of pictures among 64: right in both words, and in each. And pictures of captions, ``pictures``: of the
    n pictures that a caption likes best, the share that it fits, where n pictures are to be found.
    """
    captions: list[tuple[str, ...]] = [
        ("an" if colour == "orange" else "a", colour, shape) for colour, shape in EVERY_PAIR
    ]
    tokens = torch.tensor([[*VOCAB.encode(words), VOCAB.EOS] for words in captions])
    texts = model.embed_texts(tokens, torch.full((len(tokens),), tokens.shape[1]))
    cosines = torch.cat([model.embed_images(some) for some in centred(drawn.images).split(FEW)]) @ texts.T
    true = torch.tensor([captions.index(caption) for caption in drawn.captions])
    said = cosines.argmax(1)
    found = {"both": said == true, "colour": said // 8 == true // 8, "shape": said % 8 == true % 8}
    shares = []
    for caption in true.unique().tolist():
        fits = true == caption
        shares.append(fits[cosines[:, caption].topk(int(fits.sum())).indices].float().mean().item())
    return {name: right.float().mean().item() for name, right in found.items()} | {"pictures": statistics.fmean(shares)}


def run(folder: Path) -> dict[str, Any]:
    """Both losses with every seed; the weights of one pair are kept."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    training = SETTINGS | {"starts": STARTS, "layers": LAYERS, "shared_dim": SHARED_DIM, "patch_size": PATCH_SIZE}
    training["batch_size"] = BATCH_SIZE
    jobs = [(loss, seed) for loss in LOSSES for seed in SEEDS]
    runs = each(measure, jobs, folder / "contrast.safetensors")
    return {"training": training | {"tested": TESTED, "threads": 1}, "words": list(VOCAB.tokens), "runs": runs}
