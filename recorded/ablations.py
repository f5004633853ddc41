"""What each part of a Transformer is for: training curves with the part removed, and of both orders of the norm.

A small translator learns the grammar's pairs as it is, and again without residual connections, without normalisation,
without its feed-forward networks, without the division by the square root of the head dimension, and without positions.
Then deeper models with the norm before or after each sublayer are trained, with and without warm-up.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attn_book.corpus import corpus
from attn_book.data import Batches, Pair, Vocab
from attn_book.metrics import bleu, exact_match
from attn_book.train import fit, token_loss
from attn_book.translation import translate
from attn_core import attention
from attn_core.mechanisms.dense import Dense
from attn_core.transformer import Transformer, TransformerConfig
from attn_core.transformer.layers import AddNorm
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
BATCH_SIZE = 32
SIZES: dict[str, Any] = {"model_dim": 64, "num_heads": 4, "feed_forward_dim": 128, "dropout": 0.0}
ABLATED: dict[str, Any] = {"num_layers": 2, "norm_first": True}
ABLATED_TRAINING: dict[str, Any] = {"learning_rate": 4e-3, "sentences": 18_000, "epochs": 2}
VARIANTS = (
    "full",
    "no residual connections",
    "no normalisation",
    "no feed-forward networks",
    "no division by √d",
    "no positions",
)
ORDERED: dict[str, Any] = {"num_layers": 6}
ORDERED_TRAINING: dict[str, Any] = {"learning_rate": 4e-3, "sentences": 12_800, "epochs": 1}
ORDERS = {"post-norm": False, "pre-norm": True}
WARMUPS = {"with warm-up": 0.1, "without warm-up": 0.0}
"""Shares of the steps over which the learning rate rises."""
CURVE = 20
"""Points on each curve."""


class Unscaled(nn.Module):
    """Dot-product attention whose scores are not divided by the square root of the head dimension."""

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
        scale: float | None = None,
    ) -> Tensor:
        """As the contract, with a scale of 1."""
        return attention(q, k, v, mask=mask, bias=bias, causal=causal, scale=1.0)


class WithoutResidual(AddNorm):
    """A sublayer that replaces its input instead of adding to it; the norm stays."""

    def forward(self, x: Tensor, sublayer: Any) -> Tensor:
        """What the sublayer makes of the normalised ``x``."""
        return sublayer(self.norm(x))


class Skipped(nn.Module):
    """In the place of the ``AddNorm`` of a sublayer that is left out."""

    def forward(self, x: Tensor, sublayer: Any) -> Tensor:
        """``x`` itself."""
        return x


def build(variant: str, vocabs: tuple[Vocab, Vocab]) -> Transformer:
    """The translator with one part removed."""
    if variant not in VARIANTS:
        raise ValueError(f"variant: expected one of {VARIANTS}, got {variant!r}")
    config = TransformerConfig(len(vocabs[1]), len(vocabs[0]), **SIZES, **ABLATED)
    made = Unscaled if variant == "no division by √d" else Dense
    model = Transformer(config, encoder_mechanism=made, decoder_mechanism=made, cross_mechanism=made)
    if variant == "no positions":
        model.source_embedding.positions = model.target_embedding.positions = None
    stacks: tuple[Any, Any] = (model.encoder, model.decoder)
    for stack in stacks:
        if variant == "no normalisation":
            stack.norm = nn.Identity()
        for layer in stack.layers:
            if variant == "no feed-forward networks":
                layer.add_feed_forward, layer.feed_forward = Skipped(), nn.Identity()
            for name, module in list(layer.named_children()):
                if isinstance(module, AddNorm) and variant == "no residual connections":
                    without = WithoutResidual(config.model_dim, dropout=0.0, norm_first=True)
                    without.load_state_dict(module.state_dict())
                    setattr(layer, name, without)
                if isinstance(module, AddNorm) and variant == "no normalisation":
                    module.norm = nn.Identity()
    return model


def held_out(model: nn.Module, batches: Batches) -> dict[str, float]:
    """Nats per target token, given the true tokens before it."""
    total = count = 0.0
    for batch in batches:
        part, tokens = token_loss(model(batch.source, batch.source_lengths, batch.target_in), batch.target_out)
        total, count = total + part.item(), count + tokens.item()
    return {"loss": total / count}


def curve(
    model: Transformer, seed: int, pairs: list[Pair], valid: list[Pair], vocabs: tuple[Vocab, Vocab], **training: Any
) -> tuple[list[int], list[float | None]]:
    """The steps and the held-out losses of one run; None from the step at which the loss is no longer finite."""
    train = Batches(pairs[: training.pop("sentences")], *vocabs, batch_size=BATCH_SIZE, seed=seed)
    steps = training["epochs"] * len(train)
    every = steps // CURVE
    validate = partial(held_out, batches=Batches(valid, *vocabs, batch_size=100))
    losses: list[float | None] = []

    def noted(model: nn.Module) -> dict[str, float]:
        found = validate(model)
        losses.append(found["loss"])
        return found

    try:
        fit(model, train, seed=seed, device="cpu", progress=False, validate=noted, validate_every=every, **training)
    except FloatingPointError as error:
        print(error, flush=True)
    points = [every * (number + 1) for number in range(steps // every)]
    return points, losses + [None] * (len(points) - len(losses))


def run(folder: Path) -> dict[str, Any]:
    """Every variant, and both orders of the norm with and without warm-up, with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus()
    pairs, valid, test = list(data.train), list(data.valid)[:200], list(data.test)[:300]
    vocabs = (Vocab(p.source for p in pairs), Vocab(p.target for p in pairs))
    runs: list[dict[str, Any]] = []
    orders: list[dict[str, Any]] = []
    for seed in SEEDS:
        for variant in VARIANTS:
            torch.manual_seed(seed)
            model = build(variant, vocabs)
            steps, losses = curve(model, seed, pairs, valid, vocabs, **ABLATED_TRAINING)
            found = [t.words for t in translate(model, [p.source for p in test], *vocabs)]
            wanted = [p.target for p in test]
            quality = {"bleu": bleu(found, wanted), "exact": 100 * exact_match(found, wanted)}
            parameters = sum(p.numel() for p in model.parameters())
            runs.append({"variant": variant, "seed": seed, "parameters": parameters, "loss": losses, **quality})
            print(variant, seed, losses[-1], quality, flush=True)
    for seed in SEEDS:
        for order, norm_first in ORDERS.items():
            for name, warmup in WARMUPS.items():
                torch.manual_seed(seed)
                sizes: dict[str, Any] = {**SIZES, **ORDERED, "norm_first": norm_first}
                model = Transformer(TransformerConfig(len(vocabs[1]), len(vocabs[0]), **sizes))
                order_steps, losses = curve(model, seed, pairs, valid, vocabs, **ORDERED_TRAINING, warmup=warmup)
                orders.append({"order": order, "warmup": name, "seed": seed, "loss": losses})
                print(order, name, seed, losses[-1], flush=True)
    training = {
        "batch_size": BATCH_SIZE,
        **SIZES,
        "threads": 1,
        "variants": {**ABLATED, **ABLATED_TRAINING},
        "orders": {**ORDERED, **ORDERED_TRAINING, "warmup": WARMUPS},
    }
    return rounded({"training": training, "steps": steps, "runs": runs, "order_steps": order_steps, "orders": orders})
