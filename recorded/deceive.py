"""Classifiers of "it" whose maps say nothing of the answer: with fixed uniform weights, or trained to hide what counts.

Both are trained as the mended classifiers of `pronoun` are, on sentences whose nouns differ in gender and on sentences
whose nouns share it. The first has no attention weights to learn. The second pays, besides the loss of its answers, for
the weight that "it" puts on the two nouns and on the reason, in every layer and head.
"""

from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attn_book.corpus import corpus
from attn_book.data import Batch, Batches, Pair, Vocab
from attn_book.train import fit
from attn_core.contract import Call, Mechanism
from attn_core.mechanisms.dense import attend, weigh
from attn_core.transformer import TransformerConfig, TransformerEncoder
from recorded.bahdanau import rounded
from recorded.pronoun import (
    BATCH_SIZE,
    ENCODER_CUTS,
    ORDINARY,
    PRONOUNS,
    ROLES,
    SIZES,
    TRAINING,
    Classifier,
    accuracy,
    may,
    nouns,
    same_gender,
    split,
    spots,
)

SEEDS = (0, 1, 2)
KINDS = ("uniform", "hiding")
PRICE = 1.0
"""What hiding costs: the loss of the answers, plus this times −log of the weight on all other words."""
CUTS = ("nothing", "it > right", "all > right")


class Fixed(Mechanism):
    """Every visible key has the same weight."""

    def attend_with_weights(self, call: Call) -> tuple[Tensor, Tensor]:
        """The mean of the visible values, and the weights."""
        q, k, v = call.repeat_kv()
        return attend(torch.zeros_like(q @ k.mT), v, call.visible)


class Watched(Mechanism):
    """Softmax attention that leaves its last weights, with their gradient, in ``weights``."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.empty(0)

    def attend_with_weights(self, call: Call) -> tuple[Tensor, Tensor]:
        """What `Dense` gives."""
        out, self.weights = weigh(call)
        return out, self.weights


class Observed(Classifier):
    """A classifier of "it" around another mechanism."""

    def __init__(self, config: TransformerConfig, it: int, mechanism: type[Mechanism]) -> None:
        super().__init__(config, it)
        self.encoder = TransformerEncoder(config, mechanism=mechanism)

    def seen_by_it(self, batch: Batch) -> Tensor:
        """The weights of the last call in the row of "it", ``(B, L, H, S)``."""
        maps = torch.stack([m.weights for m in self.modules() if isinstance(m, Watched)], 2)  # (B, H, L, T, S)
        at_it = (batch.source == self.it).int().argmax(-1)
        return maps[torch.arange(len(batch)), :, :, at_it].transpose(1, 2)


@torch.no_grad()
def trained(seed: int, kind: str, train: list[Pair], parts: dict[str, list[Pair]], vocabs: Any) -> dict[str, Any]:
    """One classifier: how often it is right, what "it" looks at, and what cuts cost."""
    (it,), (elle,) = vocabs[0].encode(["it"]), vocabs[1].encode(["elle"])
    decisive_words = torch.zeros(len(vocabs[0]), dtype=torch.bool)
    decisive_words[vocabs[0].encode(sorted({word for pair in train for word in decisive(pair)}))] = True

    def right(batch: Batch) -> Tensor:
        return (batch.target_out == elle).any(1).long()

    def on_decisive(model: Observed, batch: Batch) -> Tensor:
        return (model.seen_by_it(batch) * decisive_words[batch.source][:, None, None]).sum(-1)  # (B, L, H)

    def loss(model: Any, batch: Batch) -> tuple[Tensor, int]:
        value = functional.cross_entropy(model(batch), right(batch), reduction="sum")
        if kind == "hiding":
            value = value - PRICE * torch.log1p(-on_decisive(model, batch).clamp(max=1 - 1e-6)).mean((1, 2)).sum()
        return value, len(batch)

    torch.manual_seed(seed)
    mechanism = Fixed if kind == "uniform" else Watched
    model = Observed(TransformerConfig(len(vocabs[0]), **SIZES), it, mechanism)
    batches = Batches(train, *vocabs, batch_size=BATCH_SIZE, seed=seed)
    with torch.enable_grad():
        history = fit(model, batches, **TRAINING, seed=seed, device="cpu", loss=loss, progress=False)
    model.eval()
    found: dict[str, Any] = {"seed": seed, "kind": kind, "train_seconds": history.seconds, "same_gender": {}}
    for role in ROLES:
        pairs = [p for p in parts["same gender, held"] if p.structure == role]
        (one,) = Batches(pairs, *vocabs, batch_size=len(pairs))
        found["same_gender"][role] = accuracy(model(one), right(one))
    (batch,), where = Batches(parts["held"], *vocabs, batch_size=len(parts["held"])), spots(parts["held"])
    length = batch.source.shape[1]
    found["cut"] = {
        name: accuracy(model(batch, may(ENCODER_CUTS[name].encoder, where, length, length)), right(batch))
        for name in CUTS
    }
    if kind == "hiding":
        model(batch)
        found["weight_on_decisive"] = on_decisive(model, batch).mean().item()
    return found


def decisive(pair: Pair) -> list[str]:
    """The two nouns and the reason."""
    return [pair.source[at] for at in (*nouns(pair), pair.source.index("it") + 2)]


def run(folder: Path) -> dict[str, Any]:
    """Both kinds with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data, random = corpus(train=ORDINARY, pronouns=PRONOUNS), Random(0)
    alike = [same_gender(pair, random) for pair in data.pronouns]
    both, marked = split([*data.pronouns, *alike]), set(alike)
    train = both[0]
    parts = {"held": [p for p in both[1] if p not in marked], "same gender, held": [p for p in both[1] if p in marked]}
    known = [*data.train, *(p for p in train if p not in marked)]
    vocabs = (Vocab(p.source for p in known), Vocab(p.target for p in known))
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for seed in SEEDS:
        for kind in KINDS:
            found[kind].append(trained(seed, kind, train, parts, vocabs))
            print(found[kind][-1], flush=True)
    about = {**SIZES, **TRAINING, "batch_size": BATCH_SIZE, "threads": 1, "price": PRICE}
    return rounded({"training": about, **found})
