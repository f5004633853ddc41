"""A pretrained model looked into: what the heads of SmolLM2-135M attend to, and what cutting them costs.

The first token as a sink, and what the loss says when its key or its value is taken away; heads found by tests on
repeated random tokens, then cut; a head for "it" on sentences whose last word decides what "it" is; the share of each
rotary frequency in each head's scores.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from attn_book.corpus.english import REFERENTS, SENTENCES
from attn_book.induction import induction_scores, next_token_losses, previous_token_scores
from attn_book.microscope import (
    Head,
    all_maps,
    attentions,
    cut_heads,
    duplicate_scores,
    first_token_scores,
    head_means,
    rotary_parts,
    variance_shares,
)
from attn_book.published import smollm2_file
from attn_core.positions import Rotary
from attn_core.pretrained import load_gguf
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
ROWS, PIECE = 4, 25
"""Sequences of random tokens for each seed, and the tokens in each before they are repeated."""
FEW = (1, 3, 10)
"""How many heads are cut together."""
IT = (13, 8)
BANDS = {f"pairs {8 * i} to {8 * i + 7}": range(8 * i, 8 * i + 8) for i in range(4)}


class Text:
    """Texts as rows of tokens, padded on the right; ``real`` is True at the tokens of the texts."""

    def __init__(self, tokenizer: Any, texts: Sequence[str]) -> None:
        rows = [torch.tensor(tokenizer.encode(text).ids) for text in texts]
        self.lengths = torch.tensor([len(row) for row in rows])
        self.tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        self.real = torch.arange(self.tokens.shape[1]) < self.lengths[:, None]
        self.last = self.lengths - 1


def last_logits(model: Any, text: Text, mask: Tensor | None = None) -> Tensor:
    """The logits ``(B, V)`` after the last token of each text."""
    x = model.stack(model.embedding(text.tokens), causal=True, mask=mask)
    return model.embedding.logits(x[torch.arange(len(x)), text.last])


def text_loss(model: Any, text: Text) -> float:
    """The mean loss of the texts' tokens after the first, in nats."""
    losses = next_token_losses(model(text.tokens), text.tokens)
    return losses[text.real[:, 1:]].mean().item()


def first_id(tokenizer: Any, word: str) -> int:
    """The first token of a word inside a text."""
    return int(tokenizer.encode(f" {word}").ids[0])


def without(model: Any, text: Text, hidden: Tensor, *, start: int, what: str) -> Tensor:
    """Losses ``(B, T − 1)`` when one token of each row is hidden from the later ones in layers ≥ ``start``.

    With ``what`` "key" the later queries cannot attend to it; with "value" its value is zero.
    """
    rows, length = torch.arange(len(text.tokens)), text.tokens.shape[1]
    mask = torch.ones(len(rows), 1, length, length, dtype=torch.bool)
    mask[rows, 0, :, hidden] = False
    mask |= torch.eye(length, dtype=torch.bool)

    def no_value(_: Any, __: Any, out: Tensor) -> Tensor:
        out[rows, hidden] = 0.0
        return out

    x = model.embedding(text.tokens)
    for number, layer in enumerate(model.stack.layers):
        use = number >= start
        hooks = [layer.attention.value.register_forward_hook(no_value)] if use and what == "value" else []
        x = layer(x, causal=True, mask=mask if use and what == "key" else None)
        for hook in hooks:
            hook.remove()
    return next_token_losses(model.embedding.logits(model.stack.norm(x)), text.tokens)


def sinks(model: Any, text: Text) -> dict[str, Any]:
    """The first token's weight, the norms at it, and the loss without its key or its value."""
    maps = all_maps(model, text.tokens)
    found: dict[str, Any] = {"weight": [first_token_scores(w, text.real).tolist() for w in maps]}
    second = text.real.clone()
    second[:, :2] = False
    found["weight_of_second"] = [(w[..., 1].mean(1)[second].mean()).item() for w in maps]
    x, norms, entries, values = model.embedding(text.tokens), [], [], []
    later = text.real.clone()
    later[:, 0] = False
    for layer in model.stack.layers:
        seen = layer.attention.value(layer.add_attention.norm(x)).unflatten(-1, (-1, 64)).norm(dim=-1).mean(-1)
        values.append([seen[:, 0].mean().item(), seen[later].mean().item()])
        x = layer(x, causal=True)
        norms.append([x[:, 0].norm(dim=-1).mean().item(), x[later].norm(dim=-1).mean().item()])
        top = x[:, 0].abs().mean(0).topk(2)
        entries.append({"entries": top.indices.tolist(), "sizes": top.values.tolist()})
    found |= {"stream_norm": norms, "value_norm": values, "largest_entries": entries}
    # All losses are of the tokens from the seventh on, so that each is after every token that is hidden.
    asked = text.real[:, 1:].clone()
    asked[:, :6] = False
    plain = next_token_losses(model(text.tokens), text.tokens)[asked].mean().item()
    found["loss"] = {"asked": int(asked.sum()), "plain": plain, "first": [], "control": []}
    zero = torch.zeros(len(text.tokens), dtype=torch.long)
    for what, starts in (("key", (0, 1, 2, 3, 4, 8, 12, 20)), ("value", (0, 3))):
        for start in starts:
            lost = without(model, text, zero, start=start, what=what)
            found["loss"]["first"].append({"what": what, "from_layer": start, "loss": lost[asked].mean().item()})
        for seed in SEEDS:
            other = torch.randint(1, 6, (len(text.tokens),), generator=torch.Generator().manual_seed(seed))
            for start in (0, 3):
                lost = without(model, text, other, start=start, what=what)
                row = {"what": what, "from_layer": start, "seed": seed, "loss": lost[asked].mean().item()}
                found["loss"]["control"].append(row)
    return found


def second_takes_over(model: Any, text: Text) -> dict[str, Any]:
    """The weight of the second token when the first is hidden from all later ones, in every layer or from layer 3."""
    length = text.tokens.shape[1]
    mask = torch.ones(length, length, dtype=torch.bool)
    mask[1:, 0] = False
    found: dict[str, Any] = {}
    later = text.real.clone()
    later[:, :2] = False
    for start in (0, 3):
        x, weights, norms = model.embedding(text.tokens), [], []
        for number, layer in enumerate(model.stack.layers):
            use = mask if number >= start else None
            normed = layer.add_attention.norm(x)
            k, v = layer.attention.project_kv(normed)
            _, w = layer.attention.attend_with_weights(normed, k, v, causal=True, mask=use)
            weights.append(w[..., 1].mean(1)[later].mean().item())
            x = layer(x, causal=True, mask=use)
            norms.append(x[:, 1].norm(dim=-1).mean().item())
        found[f"from layer {start}"] = {"weight": weights, "stream_norm": norms}
    return found


def drawn(model: Any, seed: int) -> Tensor:
    """Random tokens, a piece of which every row says twice, after one more token."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(100, model.config.vocab_size, (ROWS, PIECE + 1), generator=generator)
    return torch.cat([tokens, tokens[:, 1:]], 1)


def repeat_losses(model: Any, tokens: Tensor) -> tuple[float, float]:
    """The mean losses at the first and second occurrence, without the first token of a piece."""
    losses = next_token_losses(model(tokens), tokens)
    return losses[:, 1:PIECE].mean().item(), losses[:, PIECE + 1 :].mean().item()


def scores(model: Any, text: Text) -> dict[str, Any]:
    """Every head by what it attends to, for each seed; the previous token in English too."""
    found: dict[str, Any] = {name: [] for name in ("previous", "induction", "duplicate")}
    for seed in SEEDS:
        tokens = drawn(model, seed)
        maps = all_maps(model, tokens)
        found["previous"].append([previous_token_scores(w).tolist() for w in maps])
        found["induction"].append([induction_scores(w, tokens).tolist() for w in maps])
        found["duplicate"].append([duplicate_scores(w, tokens).tolist() for w in maps])
    maps, later = all_maps(model, text.tokens), text.real[:, 1:]
    found["previous_in_english"] = [
        [x.item() for x in (w.diagonal(-1, -2, -1) * later[:, None]).sum((0, 2)) / later.sum()] for w in maps
    ]
    return found


def best(table: Sequence[Sequence[Sequence[float]]], count: int) -> list[Head]:
    """The heads with the greatest scores, averaged over the seeds."""
    mean = torch.tensor(table).mean(0)
    order = mean.flatten().argsort(descending=True)[:count].tolist()
    return [(i // mean.shape[1], i % mean.shape[1]) for i in order]


def cuts(model: Any, text: Text, kinds: dict[str, list[Head]]) -> list[dict[str, Any]]:
    """The losses with the best heads of each kind cut, and with as many random ones."""
    means = head_means(model, text.tokens, text.real & (torch.arange(text.tokens.shape[1]) > 0))
    named = {head for heads in kinds.values() for head in heads}
    others = [head for head in every_head(model) if head not in named]
    groups: list[tuple[str, int, list[Head]]] = [("none", 0, [])]
    groups += [(name, few, heads[:few]) for name, heads in kinds.items() for few in FEW]
    groups += [("random", few, Random(seed).sample(others, few)) for seed in SEEDS for few in FEW]
    found = []
    for name, count, heads in groups:
        for fill, value in (("zero", None), ("mean", means)):
            if not heads and fill == "mean":
                continue
            with cut_heads(model, heads, value):
                pairs = [repeat_losses(model, drawn(model, seed)) for seed in SEEDS]
                row: dict[str, Any] = {"kind": name, "count": count, "fill": fill, "heads": heads}
                row |= {"english": text_loss(model, text), "first": [p[0] for p in pairs]}
                row["second"] = [p[1] for p in pairs]
                if name in ("none", "previous", "random") and fill == "zero":
                    row["induction"] = induction_left(model, kinds["induction"])
            found.append(row)
            print(name, count, fill, rounded(row), flush=True)
    return found


def induction_left(model: Any, heads: list[Head]) -> float:
    """The mean induction score of these heads."""
    tokens = drawn(model, 0)
    maps = all_maps(model, tokens)
    return fmean(induction_scores(maps[layer], tokens)[head].item() for layer, head in heads)


def every_head(model: Any) -> list[Head]:
    """All heads, layer by layer."""
    layers = attentions(model)
    return [(layer, head) for layer in range(len(layers)) for head in range(layers[0].num_heads)]


def spot(tokenizer: Any, text: str, word: str) -> int:
    """Where a word's last token is, the last time that it comes."""
    ids, token = tokenizer.encode(text).ids, tokenizer.encode(f" {word}").ids[-1]
    return len(ids) - 1 - ids[::-1].index(token)


def referents(model: Any, tokenizer: Any) -> dict[str, Any]:
    """Where the heads look at "it", in both orders of the nouns; and which noun the model names as the referent."""
    found: dict[str, Any] = {}
    looks = {}
    for order in ("as written", "swapped"):
        rows = []
        for one in REFERENTS:
            a, b = one.nouns
            start = f"{one.start}" if order == "as written" else swapped(one.start, a, b)
            places = [spot(tokenizer, start, word) for word in (a, b, "it")]
            ids = torch.tensor([tokenizer.encode(start).ids])
            w = all_maps(model, ids)[:, 0, :, places[2]]
            rows.append(torch.stack([w[..., places[0]], w[..., places[1]]]))
        looks[order] = torch.stack(rows)  # sentence, noun, layer, head
        found[order] = looks[order].mean(0).tolist()
        first = looks[order][:, 0] > looks[order][:, 1]
        found[f"{order}, first wins"] = first.float().mean(0).tolist()
        found[f"{order}, the head"] = looks[order][:, :, IT[0], IT[1]].tolist()
    found["answers"] = {
        name: answers(model, tokenizer, heads, order, told)
        for name, heads, order, told in (
            ("plain", [], "as written", True),
            ("swapped", [], "swapped", True),
            ("adjective alone", [], "as written", False),
            ("without the head", [IT], "as written", True),
        )
    }
    return found


def swapped(start: str, first: str, second: str) -> str:
    """The sentence with its nouns exchanged."""
    return start.replace(first, "\0").replace(second, first).replace("\0", second)


def answers(model: Any, tokenizer: Any, heads: list[Head], order: str, told: bool) -> list[list[float]]:
    """By how much the first noun's logit exceeds the second's after "The thing that was too … was the"."""
    prompts = []
    for one in REFERENTS:
        start = one.start if order == "as written" else swapped(one.start, *one.nouns)
        for reason in one.reasons:
            asked = f"The thing that was too {reason} was the"
            prompts.append(f"{start} {reason}. {asked}" if told else asked)
    text = Text(tokenizer, prompts)
    with cut_heads(model, heads):
        logits = last_logits(model, text).view(len(REFERENTS), 2, -1)
    pairs = [[first_id(tokenizer, noun) for noun in one.nouns] for one in REFERENTS]
    return [(row[:, a] - row[:, b]).tolist() for row, (a, b) in zip(logits, pairs, strict=True)]


def layer_inputs(model: Any, tokens: Tensor) -> Iterator[tuple[Any, Tensor]]:
    """Each layer's attention, and what it reads."""
    x = model.embedding(tokens)
    for layer in model.stack.layers:
        yield layer.attention, layer.add_attention.norm(x)
        x = layer(x, causal=True)


def frequencies(model: Any, kinds: dict[str, list[Head]]) -> dict[str, Any]:
    """The share of each rotary frequency in each head's scores, and the best heads' own scores without a band's turn.

    A band without its turn: its entries are multiplied as they are, unrotated, in this head alone.
    """
    shares = []
    left: dict[str, dict[str, list[float]]] = {name: {} for name in kinds}
    tokens = torch.cat([drawn(model, seed) for seed in SEEDS])
    for number, (layer, x) in enumerate(layer_inputs(model, tokens)):
        turned = rotary_parts(layer, x)
        shares.append(variance_shares(turned).T.tolist())
        positions, layer.positions = layer.positions, Still(64)
        still = rotary_parts(layer, x)
        layer.positions = positions
        for name, heads in kinds.items():
            own = [head for n, head in heads if n == number]
            for band, pairs in {"none": range(0), **BANDS}.items() if own else ():
                mixed = torch.stack([still[p] if p in pairs else turned[p] for p in range(len(turned))]).sum(0)
                mask = torch.ones(mixed.shape[-2:], dtype=torch.bool).tril()
                w = mixed.masked_fill(~mask, -torch.inf).softmax(-1)
                score = {
                    "previous": previous_token_scores,
                    "induction": lambda w: induction_scores(w, tokens),
                    "duplicate": lambda w: duplicate_scores(w, tokens),
                    "first": first_token_scores,
                }[name](w)
                left[name].setdefault(band, []).extend(score[own].tolist())
    return {"shares": shares, "without_band": {k: {b: fmean(v) for b, v in bands.items()} for k, bands in left.items()}}


class Still(Rotary):
    """Rotary positions that do not turn."""

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """The heads as they are."""
        return x


@torch.no_grad()
def run(folder: Path) -> dict[str, Any]:
    """Everything."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    model, tokenizer = load_gguf(smollm2_file())
    text = Text(tokenizer, SENTENCES)
    found: dict[str, Any] = {"texts": {"sentences": len(SENTENCES), "tokens": int(text.real.sum())}}
    found["sinks"] = sinks(model, text) | {"first_hidden": second_takes_over(model, text)}
    print("sinks", rounded(found["sinks"]["loss"]), flush=True)
    found["scores"] = scores(model, text)
    kinds = {name: best(found["scores"][name], max(FEW)) for name in ("previous", "induction", "duplicate")}
    kinds["first"] = best([found["sinks"]["weight"]], max(FEW))
    found["best"] = kinds
    print("best", kinds, flush=True)
    found["it"] = referents(model, tokenizer)
    found["frequencies"] = frequencies(model, kinds)
    print("bands", rounded(found["frequencies"]["without_band"]), flush=True)
    found["cuts"] = cuts(model, text, kinds)
    return rounded(found)
