"""What "it" looks at and what that is worth: il or elle, with attention read, and with edges cut.

Small models learn sentences in which the reason tells which of two nouns "it" stands for: a Transformer that translates
them among others, and an encoder whose output at "it" is classified. The noun pairs of the test are held out. Then
edges of attention are cut by a mask, in all layers and heads at once, and il or elle is asked for again.

In the corpus the two nouns always differ in gender, so that the gender of either gives away the other's. Sentences
whose nouns have one gender show who learned that; a classifier trained on such sentences too cannot use it.
"""

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_book.corpus import NOUNS, corpus
from attn_book.data import Batch, Batches, Pair, Vocab
from attn_book.metrics import bleu
from attn_book.train import fit
from attn_book.translation import translate
from attn_core import capture_attention, masks
from attn_core.transformer import Transformer, TransformerConfig, TransformerEncoder
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2, 3, 4)
SIZES: dict[str, Any] = {"model_dim": 64, "num_layers": 2, "num_heads": 4, "feed_forward_dim": 128, "norm_first": True}
TRAINING: dict[str, Any] = {"learning_rate": 4e-3, "epochs": 5}
BATCH_SIZE = 64
ORDINARY, PRONOUNS = 6_000, 6_000
"""Pairs of the corpus: any sentences, and those with il or elle to choose (the held-out ones among them)."""
HELD_SHARE = 0.2
ROLES = ("it-subject", "it-object")
EXAMPLE, REASONS = ("the", "cat", "drank", "the", "soup", "because", "it", "was"), ("hungry", "hot")

Spots = dict[str, list[list[int]]]
"""Of each sentence, the positions that a name stands for."""
Edges = tuple[tuple[str, str], ...]
"""Who looks at what: names of `spots`, or "all", or "all but" and a name."""
Parts = dict[str, list[Pair]]
Vocabs = tuple[Vocab, Vocab]


@dataclass(frozen=True)
class Cut:
    """Edges to cut in the encoder, in the decoder's cross-attention and in its self-attention."""

    encoder: Edges = ()
    cross: Edges = ()
    decoder: Edges = ()


NOUNS_CUT, CLAUSE_CUT, ALONE = ("il", "nouns"), ("il", "French clause"), ("il", "all but il")
AT_IT = ("verb", "right", "other", "subject", "object", "nouns", "reason", "all but it")
ENCODER_CUTS = {
    "nothing": Cut(),
    **{f"it > {seen}": Cut(encoder=(("it", seen),)) for seen in AT_IT},
    **{f"all > {seen}": Cut(encoder=((f"all but {seen}", seen),)) for seen in ("right", "other", "subject", "object")},
}
AT_IL = ("it", "verb", "right", "other", "subject", "object", "nouns", "reason", "all but it")
DECODER_CUTS = {
    **{f"il > {seen}": Cut(cross=(("il", seen),)) for seen in AT_IL},
    "il > French clause": Cut(decoder=(CLAUSE_CUT,)),
    "il > nouns, French clause": Cut(cross=(NOUNS_CUT,), decoder=(CLAUSE_CUT,)),
    "only il > it": Cut(cross=(("il", "all but it"),), decoder=(ALONE,)),
    "only il > it, not it > nouns": Cut((("it", "nouns"),), (("il", "all but it"),), (ALONE,)),
    "all > it": Cut(encoder=(("all but it", "it"),), cross=(("all", "it"),)),
    "all > reason": Cut(encoder=(("all but reason", "reason"),), cross=(("all", "reason"),)),
}
"""Who looks > at what. The decoder's "il" is the position from which it gives il or elle."""


def nouns(pair: Pair) -> tuple[int, int]:
    """The positions of the subject and of the object."""
    subject, thing = (at for at, word in enumerate(pair.source) if word in NOUNS)
    return subject, thing


def same_gender(pair: Pair, random: Random) -> Pair:
    """The sentence with an animal of the object's gender for its subject, and il or elle for its whole translation."""
    subject, thing = nouns(pair)
    gender = NOUNS[pair.source[thing]].gender
    others = [name for name, noun in NOUNS.items() if "animal" in noun.classes and noun.gender == gender]
    source = (*pair.source[:subject], random.choice(others), *pair.source[subject + 1 :])
    return Pair(source, ("il" if gender == "m" else "elle",), structure=pair.structure)


def split(pairs: list[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Training and test pairs: no subject of the test stands with the same object in training."""
    couples = [tuple(pair.source[at] for at in nouns(pair)) for pair in pairs]
    choice = sorted(set(couples) - {("cat", "soup")})
    held = {("cat", "soup"), *Random(0).sample(choice, round(HELD_SHARE * len(choice)))}
    parts = [[p for p, c in zip(pairs, couples, strict=True) if (c in held) == test] for test in (False, True)]
    return parts[0], parts[1]


def spots(pairs: list[Pair]) -> Spots:
    """Where things stand in the source; "il" and "French clause" count the decoder's positions, <bos> being 0."""
    found: Spots = {}
    for pair in pairs:
        it, (subject, thing) = pair.source.index("it"), nouns(pair)
        right, other = (subject, thing) if pair.structure == "it-subject" else (thing, subject)
        places = {
            "it": [it],
            "right": [right],
            "other": [other],
            "subject": [subject],
            "object": [thing],
            "nouns": [right, other],
            "reason": [it + 2],
            "verb": [thing - 2],
            "il": [next(at for at, word in enumerate(pair.target) if word in ("il", "elle"))],
            "French clause": [*range(1, pair.target.index("parce") + 1)],
        }
        for name, positions in places.items():
            found.setdefault(name, []).append(positions)
    return found


def at(where: Spots, name: str, size: int) -> Tensor:
    """Booleans ``(B, size)``, True where the name says."""
    if name == "all":
        return torch.ones(len(where["it"]), size, dtype=torch.bool)
    plain = name.removeprefix("all but ")
    rows = torch.zeros(len(where["it"]), size, dtype=torch.bool)
    for row, chosen in zip(rows, where[plain], strict=True):
        row[chosen] = True
    return rows if plain == name else ~rows


def may(edges: Edges, where: Spots, rows: int, columns: int) -> Tensor:
    """The mask ``(B, 1, rows, columns)`` that forbids these edges."""
    allowed = torch.ones(len(where["it"]), rows, columns, dtype=torch.bool)
    for looks, seen in edges:
        allowed &= ~(at(where, looks, rows)[:, :, None] & at(where, seen, columns)[:, None, :])
    return allowed[:, None]


def looks(maps: list[Tensor], rows: Tensor, where: Spots) -> dict[str, list[list[float]]]:
    """The mean weight of some rows ``(B, T)``, one a sentence, on each spot and on the rest, by layer and head."""
    chosen = torch.stack([layer.transpose(1, 2)[rows] for layer in maps])  # (L, B, H, S)
    found = {}
    for name in ("it", "right", "other", "subject", "object", "reason", "verb"):
        found[name] = (chosen * at(where, name, chosen.shape[-1])[:, None]).sum(-1).mean(1)
    found["rest"] = 1 - torch.stack([found[name] for name in ("it", "right", "other", "reason", "verb")]).sum(0)
    return {name: weights.tolist() for name, weights in found.items()}


class Classifier(nn.Module):
    """An encoder, and from its output at "it" the logits of il and elle."""

    def __init__(self, config: TransformerConfig, it: int) -> None:
        super().__init__()
        self.encoder = TransformerEncoder(config)
        self.out = nn.Linear(config.model_dim, 2)
        self.it = it

    def forward(self, batch: Batch, mask: Tensor | bool = True) -> Tensor:
        """Logits ``(B, 2)``; ``mask (B, 1, S, S)`` forbids edges."""
        seen = masks.padding(batch.source_lengths, batch.source.shape[1]) & mask
        states = self.encoder.stack(self.encoder.embedding(batch.source), mask=seen)
        return self.out(states[batch.source == self.it])


def word_logits(model: Transformer, batch: Batch, where: Spots, cut: Cut) -> Tensor:
    """Logits ``(B, V)`` of the word that should be il or elle, the true words before it given, with edges cut."""
    length, size = batch.source.shape[1], batch.target_in.shape[1]
    seen = masks.padding(batch.source_lengths, length)
    states = model.encoder(model.source_embedding(batch.source), mask=seen & may(cut.encoder, where, length, length))
    x = model.decoder(
        model.target_embedding(batch.target_in),
        model.decoder.project_kv(states),
        mask=may(cut.decoder, where, size, size),
        memory_mask=seen & may(cut.cross, where, size, length),
    )
    return model.target_embedding.logits(x[at(where, "il", size)])


def accuracy(logits: Tensor, right: Tensor) -> float:
    """Percent of rows ``(B, 2)``, il and elle, whose greater logit is the right one."""
    return 100 * (logits.argmax(-1) == right).float().mean().item()


def pronouns_right(model: Transformer, pairs: list[Pair], vocabs: Vocabs) -> dict[str, float]:
    """Percent of sentences, by what "it" stands for, whose translation has the right one of il and elle."""
    found: dict[str, list[bool]] = {role: [] for role in ROLES}
    for pair, guess in zip(pairs, translate(model, [p.source for p in pairs], *vocabs), strict=True):
        il, words = [[w for w in words if w in ("il", "elle")] for words in (pair.target, guess.words)]
        found[pair.structure].append(il == words)
    return {role: 100 * sum(row) / len(row) for role, row in found.items()}


@torch.no_grad()
def translator(seed: int, parts: Parts, vocabs: Vocabs) -> dict[str, Any]:
    """A translator: how well it translates, where it looks, and il or elle after each cut."""
    torch.manual_seed(seed)
    model = Transformer(TransformerConfig(len(vocabs[1]), len(vocabs[0]), **SIZES))
    batches = Batches(parts["ordinary"] + parts["train"], *vocabs, batch_size=BATCH_SIZE, seed=seed)
    with torch.enable_grad():
        history = fit(model, batches, **TRAINING, seed=seed, device="cpu", progress=False)
    model.eval()
    (batch,), where = Batches(parts["held"], *vocabs, batch_size=len(parts["held"])), spots(parts["held"])
    choices, asked = vocabs[1].encode(("il", "elle")), at(where, "il", batch.target_in.shape[1])
    right = (batch.target_out[asked] == choices[1]).long()
    with capture_attention(model) as maps:
        model(batch.source, batch.source_lengths, batch.target_in)
    encoder, cross = ([maps[name][0] for name in maps if part in name] for part in ("encoder", "cross"))
    cuts = {**ENCODER_CUTS, **DECODER_CUTS}
    found = translate(model, [p.source for p in parts["test"]], *vocabs)
    return {
        "seed": seed,
        "train_seconds": history.seconds,
        "bleu": bleu([t.words for t in found], [p.target for p in parts["test"]]),
        "translated": pronouns_right(model, parts["held"], vocabs),
        "translated_same_gender": pronouns_right(model, parts["same gender, held"], vocabs),
        "encoder_from_it": looks(encoder, at(where, "it", batch.source.shape[1]), where),
        "decoder_from_il": looks(cross, asked, where),
        "cut": {name: accuracy(word_logits(model, batch, where, cut)[:, choices], right) for name, cut in cuts.items()},
        "examples": [example(model, reason, vocabs[0]) for reason in REASONS] if seed == SEEDS[0] else None,
    }


def example(model: Transformer, reason: str, vocab: Vocab) -> dict[str, Any]:
    """An example sentence and the encoder's weights ``(L, H, S, S)``."""
    source = (*EXAMPLE, reason, ".")
    tokens = torch.tensor([[*vocab.encode(source), Vocab.EOS]])
    with capture_attention(model) as maps:
        model.encode(tokens, torch.tensor([tokens.shape[1]]))
    return {"source": [*source, "<eos>"], "weights": torch.cat([layer for (layer,) in maps.values()]).tolist()}


@torch.no_grad()
def classifier(seed: int, train: list[Pair], parts: Parts, vocabs: Vocabs) -> dict[str, Any]:
    """A classifier of "it" trained on some pairs: where it looks, and il or elle after each cut."""
    (it,), (elle,) = vocabs[0].encode(["it"]), vocabs[1].encode(["elle"])

    def right(batch: Batch) -> Tensor:
        return (batch.target_out == elle).any(1).long()

    def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
        return functional.cross_entropy(model(batch), right(batch), reduction="sum"), len(batch)

    torch.manual_seed(seed)
    model = Classifier(TransformerConfig(len(vocabs[0]), **SIZES), it)
    batches = Batches(train, *vocabs, batch_size=BATCH_SIZE, seed=seed)
    with torch.enable_grad():
        history = fit(model, batches, **TRAINING, seed=seed, device="cpu", loss=loss, progress=False)
    model.eval()
    (batch,), where = Batches(parts["held"], *vocabs, batch_size=len(parts["held"])), spots(parts["held"])
    same = {}
    for role in ROLES:
        pairs = [p for p in parts["same gender, held"] if p.structure == role]
        (one,) = Batches(pairs, *vocabs, batch_size=len(pairs))
        same[role] = accuracy(model(one), right(one))
    length = batch.source.shape[1]
    with capture_attention(model) as maps:
        model(batch)
    masked = {name: may(cut.encoder, where, length, length) for name, cut in ENCODER_CUTS.items()}
    return {
        "seed": seed,
        "train_seconds": history.seconds,
        "same_gender": same,
        "encoder_from_it": looks([layer for (layer,) in maps.values()], at(where, "it", length), where),
        "cut": {name: accuracy(model(batch, mask), right(batch)) for name, mask in masked.items()},
    }


def run(folder: Path) -> dict[str, Any]:
    """All models with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data, random = corpus(train=ORDINARY, pronouns=PRONOUNS), Random(0)
    alike = [same_gender(pair, random) for pair in data.pronouns]
    both, marked = split([*data.pronouns, *alike]), set(alike)
    parts = {"ordinary": list(data.train), "test": list(data.test)}
    for part, pairs in zip(("train", "held"), both, strict=True):
        parts[part] = [p for p in pairs if p not in marked]
        parts[f"same gender, {part}"] = [p for p in pairs if p in marked]
    known, mended = parts["ordinary"] + parts["train"], parts["train"] + parts["same gender, train"]
    vocabs = (Vocab(p.source for p in known), Vocab(p.target for p in known))
    found: dict[str, list[dict[str, Any]]] = {"translators": [], "classifiers": [], "mended_classifiers": []}
    for seed in SEEDS:
        found["translators"].append(translator(seed, parts, vocabs))
        found["classifiers"].append(classifier(seed, parts["train"], parts, vocabs))
        found["mended_classifiers"].append(classifier(seed, mended, parts, vocabs))
        for kind, rows in found.items():
            print(f"{kind}, seed {seed}: {rows[-1]['cut']}; {rows[-1]['train_seconds']:.0f} s", flush=True)
    by_role = [("il" in p.target) == (p.structure == "it-subject") for p in parts["held"]]
    about = {
        "training": {**SIZES, **TRAINING, "batch_size": BATCH_SIZE, "threads": 1},
        "pairs": {name: len(pairs) for name, pairs in parts.items()},
        "right_by_role_alone": 100 * sum(by_role) / len(by_role),
    }
    return rounded({**about, **found})
