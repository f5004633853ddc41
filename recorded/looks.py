"""What a converged Transformer looks at, what its heads are worth, and four explanations of il or elle compared.

A translator: where each head looks, and the loss with the head switched off or alone in its layer. Classifiers of
"it", as in `pronoun`, trained without and with sentences whose two nouns share their gender: routes from the right
noun to "it" opened one at a time, and how attention weights, gradients and rollout agree with cutting and erasing.
The first seed's weights go to results/looks.safetensors, so that the page can run these models.
"""

from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from attn_book.alignment import alignment_error
from attn_book.attribution import rollout
from attn_book.corpus import corpus
from attn_book.data import Batch, Batches, Pair, Vocab
from attn_book.metrics import bleu, exact_match
from attn_book.train import fit
from attn_book.translation import translate
from attn_core import capture_attention, masks
from attn_core.transformer import Transformer, TransformerConfig
from recorded.bahdanau import rounded
from recorded.pronoun import ROLES, SIZES, TRAINING, Classifier, accuracy, at, may, same_gender, split, spots

SEEDS = (0, 1, 2)
TRANSLATOR: dict[str, Any] = {"learning_rate": 4e-3, "epochs": 4}
BATCH_SIZE = 64
TRIED, EXPLAINED = 300, 300
"""Test sentences on which heads are switched off, and held-out sentences whose answer is explained."""
SHOWN = 100
"""Sentences of each kind that the page has at hand."""
KINDS = (("encoder", "attention"), ("decoder", "attention"), ("decoder", "cross_attention"))
METHODS = ("weights", "last layer", "gradient", "gradient x input", "rollout", "erased")
Vocabs = tuple[Vocab, Vocab]


def attentions(model: Transformer) -> dict[str, nn.Module]:
    """Every attention of the model by its name."""
    return {
        f"{stack}.layers.{number}.{kind}": getattr(layer, kind)
        for stack, kind in KINDS
        for number, layer in enumerate(getattr(model, stack).layers)
    }


def forced(model: Transformer, batch: Batch) -> dict[str, float]:
    """The loss in nats a word, and the percent of words that are right, given the true words before."""
    logits = model(batch.source, batch.source_lengths, batch.target_in)
    real = batch.target_out != Vocab.PAD
    loss = functional.cross_entropy(logits[real], batch.target_out[real]).item()
    return {"loss": loss, "right": 100 * (logits.argmax(-1) == batch.target_out)[real].float().mean().item()}


def with_heads(model: Transformer, layer: Any, on: set[int], batch: Batch) -> dict[str, float]:
    """`forced` when only these heads of one attention speak: the others' columns of its output matrix are zero."""
    weight, kept = layer.out.weight, layer.out.weight.clone()
    for head in set(range(layer.num_heads)) - on:
        weight[:, head * layer.head_dim : (head + 1) * layer.head_dim] = 0
    found = forced(model, batch)
    weight.copy_(kept)
    return found


def head_rows(model: Transformer, pairs: list[Pair], batch: Batch) -> list[dict[str, Any]]:
    """For each head: how sharp it is, where its greatest weight lies, and what is lost without it."""
    with capture_attention(model) as maps:
        model(batch.source, batch.source_lengths, batch.target_in)
    rows, whole = [], set(range(SIZES["num_heads"]))
    for name, layer in attentions(model).items():
        (weights,) = maps[name]
        for head in sorted(whole):
            one = [weights[i, head] for i in range(len(pairs))]
            sizes = [len(p.source) if name.startswith("encoder") else len(p.target) for p in pairs]
            peaks = [(m[:n].argmax(-1) - torch.arange(n)) for m, n in zip(one, sizes, strict=True)]
            row: dict[str, Any] = {"attention": name, "head": head}
            row["sharpness"] = torch.cat([m[:n].amax(-1) for m, n in zip(one, sizes, strict=True)]).mean().item()
            if "cross" in name:
                cut = [m[: len(p.target), : len(p.source) + 1] for m, p in zip(one, pairs, strict=True)]
                shifted = {
                    shift: [{(s, t - shift) for s, t in p.links if 0 <= t - shift < len(p.target)} for p in pairs]
                    for shift in (-1, 0, 1)
                }
                row["points_at"] = [1 - alignment_error(cut, links) for links in shifted.values()]
            else:
                row["points_at"] = [(torch.cat(peaks) == shift).float().mean().item() for shift in (-1, 0, 1)]
            row["off"] = with_heads(model, layer, whole - {head}, batch)
            row["alone"] = with_heads(model, layer, {head}, batch)
            rows.append(row)
    return rows


@torch.no_grad()
def translator(seed: int, vocabs: Vocabs, train: list[Pair], test: list[Pair]) -> tuple[dict[str, Any], Transformer]:
    """A translator trained until it is good, measured head by head."""
    torch.manual_seed(seed)
    model = Transformer(TransformerConfig(len(vocabs[1]), len(vocabs[0]), **SIZES))
    batches = Batches(train, *vocabs, batch_size=BATCH_SIZE, seed=seed)
    with torch.enable_grad():
        history = fit(model, batches, **TRANSLATOR, seed=seed, device="cpu", progress=False)
    model.eval()
    found = [t.words for t in translate(model, [p.source for p in test], *vocabs)]
    wanted, tried = [p.target for p in test], test[:TRIED]
    (batch,) = Batches(tried, *vocabs, batch_size=len(tried))
    with capture_attention(model) as maps:
        model(batch.source, batch.source_lengths, batch.target_in)
    links, error = [p.links for p in tried], {}
    for name in ("decoder.layers.0.cross_attention", "decoder.layers.1.cross_attention"):
        mean = maps[name][0].mean(1)
        error[name] = alignment_error(
            [m[: len(p.target), : len(p.source) + 1] for m, p in zip(mean, tried, strict=True)], links
        )
    layers = {name: with_heads(model, layer, set(), batch) for name, layer in attentions(model).items()}
    about = {
        "seed": seed,
        "train_seconds": history.seconds,
        "bleu": bleu(found, wanted),
        "exact": 100 * exact_match(found, wanted),
        "whole": forced(model, batch),
        "error_of_mean": error,
        "without_layer": layers,
        "heads": head_rows(model, tried, batch),
    }
    return about, model


def only(where: dict[str, list[list[int]]], via: str | None, size: int) -> Tensor:
    """The mask ``(B, 1, S, S)`` that leaves one way from the right noun to "it": the edge itself, or via a word."""
    looks = torch.zeros(len(where["it"]), size, dtype=torch.bool)
    for row, (it,), (right,), (reason,), (verb,) in zip(
        looks, where["it"], where["right"], where["reason"], where["verb"], strict=True
    ):
        places = {"it": it, "was": it + 1, "reason": reason, "verb": verb, "because": it - 1, "full stop": reason + 1}
        row[right] = True  # itself
        if via is not None:
            row[places[via]] = True
    return (looks[:, :, None] | ~at(where, "right", size)[:, None, :])[:, None]


def margins(model: Classifier, x: Tensor, batch: Batch, answers: Tensor, mask: Tensor | bool = True) -> Tensor:
    """How much the right answer's logit exceeds the wrong one's, from embeddings ``x (B, S, C)``."""
    seen = masks.padding(batch.source_lengths, batch.source.shape[1]) & mask
    states = model.encoder.stack(x, mask=seen)
    logits = model.out(states[batch.source == model.it])
    sign = 2.0 * answers - 1
    return (logits[:, 1] - logits[:, 0]) * sign


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's correlation of two vectors."""
    return torch.corrcoef(torch.stack([a, b]).argsort(-1).argsort(-1).float())[0, 1].item()


def explained(model: Classifier, batch: Batch, answers: Tensor) -> dict[str, Any]:
    """How each method's score of the source words agrees with what cutting a word costs, over sentences."""
    with torch.no_grad():
        x, size = model.encoder.embedding(batch.source), batch.source.shape[1]
        with capture_attention(model) as maps:
            model(batch)
        weights = torch.stack([layer for (layer,) in maps.values()], 1)  # (B, L, H, S, S)
        base, own = margins(model, x, batch, answers), torch.eye(size, dtype=torch.bool)
        cut, erased = torch.zeros(2, len(batch), size)
        for word in range(size):
            mask = own.clone()
            mask[:, [k for k in range(size) if k != word]] = True
            cut[:, word] = base - margins(model, x, batch, answers, mask)
            without = x.clone()
            without[:, word] = x.mean((0, 1))
            erased[:, word] = base - margins(model, without, batch, answers)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(margins(model, leaf, batch, answers).sum(), leaf)
    it, every = (batch.source == model.it).int().argmax(-1), torch.arange(len(batch))
    scores = {
        "weights": weights.mean((1, 2))[every, it],
        "last layer": weights[:, -1].mean(1)[every, it],
        "gradient": gradient.norm(dim=-1),
        "gradient x input": (gradient * x).sum(-1).abs(),
        "rollout": rollout(weights)[every, it],
        "erased": erased,
    }
    found: dict[str, Any] = {}
    for name in METHODS:
        agree, same = [], []
        for row, length in enumerate(batch.source_lengths.tolist()):
            words = [k for k in range(length) if k != it[row]]
            a, b = scores[name][row, words], cut[row, words]
            agree.append(rank_correlation(a, b))
            same.append((a.argmax() == b.argmax()).item())
        found[name] = {"rank_correlation": fmean(agree), "same_first": 100 * fmean(same)}
    return found


def classifier(
    seed: int, train: list[Pair], held: list[Pair], same: list[Pair], vocabs: Vocabs
) -> tuple[dict[str, Any], Classifier]:
    """A classifier of "it": its accuracy, the routes to the right noun, and the methods' agreement."""
    (it,), (elle,) = vocabs[0].encode(["it"]), vocabs[1].encode(["elle"])

    def right(batch: Batch) -> Tensor:
        return (batch.target_out == elle).any(1).long()

    def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
        return functional.cross_entropy(model(batch), right(batch), reduction="sum"), len(batch)

    torch.manual_seed(seed)
    model = Classifier(TransformerConfig(len(vocabs[0]), **SIZES), it)
    batches = Batches(train, *vocabs, batch_size=BATCH_SIZE, seed=seed)
    history = fit(model, batches, **TRAINING, seed=seed, device="cpu", loss=loss, progress=False)
    model.eval()
    found: dict[str, Any] = {"seed": seed, "train_seconds": history.seconds, "same_gender": {}}
    with torch.no_grad():
        for role in ROLES:
            (one,) = Batches([p for p in same if p.structure == role], *vocabs, batch_size=len(same))
            found["same_gender"][role] = accuracy(model(one), right(one))
        (batch,), where = Batches(held, *vocabs, batch_size=len(held)), spots(held)
        size, answers = batch.source.shape[1], right(batch)
        routes = {"every way": True, "no edge it > noun": may((("it", "right"),), where, size, size)}
        routes |= {f"only noun > {via} > it": only(where, via, size) for via in VIA}
        routes |= {"only it > noun": only(where, "it", size), "no way": only(where, None, size)}
        found["routes"] = {name: accuracy(model(batch, mask), answers) for name, mask in routes.items()}
    (batch,) = Batches(held[:EXPLAINED], *vocabs, batch_size=EXPLAINED)
    found["agreement"] = explained(model, batch, right(batch))
    return found, model


VIA = ("was", "reason", "verb", "because", "full stop")
"""Words by way of which "it" may learn of the right noun, in two hops."""


def run(folder: Path) -> dict[str, Any]:
    """Every model with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus()
    vocabs = (Vocab(p.source for p in data.train), Vocab(p.target for p in data.train))
    few, random = corpus(train=6_000, pronouns=6_000), Random(0)
    alike = [same_gender(pair, random) for pair in few.pronouns]
    both, marked = split([*few.pronouns, *alike]), set(alike)
    train, held = ([p for p in part if p not in marked] for part in both)
    same_train, same_held = ([p for p in part if p in marked] for part in both)
    known = [*few.train, *train]
    small = (Vocab(p.source for p in known), Vocab(p.target for p in known))
    found: dict[str, Any] = {"translators": [], "classifiers": [], "mended_classifiers": []}
    tensors: dict[str, Tensor] = {}
    for seed in SEEDS:
        for kind, pairs in (("classifiers", train), ("mended_classifiers", train + same_train)):
            about, model = classifier(seed, pairs, held, same_held, small)
            found[kind].append(about)
            print(kind, about, flush=True)
            if seed == SEEDS[0]:
                tensors |= {f"{kind}.{name}": x.half() for name, x in model.state_dict().items()}
    for seed in SEEDS:
        about, translates = translator(seed, vocabs, list(data.train), list(data.test))
        found["translators"].append(about)
        print({k: v for k, v in about.items() if k not in ("heads", "without_layer")}, flush=True)
        if seed == SEEDS[0]:
            tensors |= {f"translator.{name}": x.half() for name, x in translates.state_dict().items()}
    save_file(tensors, folder / "looks.safetensors")
    about = {"sizes": SIZES, "translator": TRANSLATOR, "classifier": TRAINING, "batch_size": BATCH_SIZE, "threads": 1}
    counts = {"train": len(train), "same gender, train": len(same_train), "held": len(held)}
    words = {"English": vocabs[0].tokens, "French": vocabs[1].tokens, "classifier": small[0].tokens}
    shown = {
        name: [
            {"source": " ".join(p.source), "role": p.structure, "answer": "elle" if "elle" in p.target else "il"}
            for p in Random(0).sample(pairs, min(SHOWN, len(pairs)))
        ]
        for name, pairs in (("held", held), ("same gender, held", same_held))
    }
    texts = {"words": {name: " ".join(tokens) for name, tokens in words.items()}, "sentences": shown}
    return rounded({"training": about, "pairs": counts, **texts, **found})
