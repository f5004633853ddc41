"""Fine-tuning with the papers' settings and with larger rates: what is learned, and what is forgotten.

MiniLM, a published encoder, and our small encoder of `recorded/transfer.py` (seed 0) learn "sense" from few labels:
three epochs in batches of 16, a linear warm-up over a tenth of the steps and a linear decay, as in the papers, at four
rates; with fewer labels also for more epochs; and with LoRA. Afterwards MiniLM is asked for the paraphrases of real
sentences, which it could find before, and ours for hidden words.

Source: Devlin et al. 2018, appendix A.3 (the settings); Hu et al. 2022 (LoRA); Tatoeba (tatoeba.org, CC-BY 2.0).
"""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from attn_book.corpus import two_part_texts
from attn_book.data.tokens import tokenize
from attn_book.pretrain import (
    Classifier,
    LabelledBatches,
    MaskedBatches,
    MaskedLanguageModel,
    PretrainingVocab,
    Text,
    class_logits,
    class_loss,
    masked_scores,
    tuned_from,
)
from attn_book.published import minilm_files
from attn_book.retrieval import retrieval_accuracy, text_vectors
from attn_book.tatoeba import lines
from attn_book.train import fit
from attn_book.word_pieces import WordPieces
from attn_core.pretrained import load_safetensors
from attn_core.transformer import SegmentEncoder
from recorded import transfer
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
PLAN = transfer.Plan()
RATES = (2e-5, 1e-4, 1e-3, 5e-3)
LABELS, EPOCHS, BATCH_SIZE, WARMUP = 200, 3, 16, 0.1
LONG = 20
RANK, LORA_RATE = 4, 1e-3
TESTED, PARAPHRASES = 200, 100
FROZEN = (10, 30, 100, 300, 1000)
# labels, epochs, rate, whether by LoRA
MINILM = [(LABELS, EPOCHS, rate, False) for rate in RATES] + [
    (LABELS, EPOCHS, LORA_RATE, True),
    (30, EPOCHS, 2e-5, False),
    (30, LONG, 1e-4, False),
    (30, LONG, 1e-3, False),
    (10, LONG, 1e-4, False),
]
OURS = [(LABELS, EPOCHS, rate, False) for rate in RATES] + [(LABELS, 80, 1e-3, False)]


class LoRA(nn.Module):
    """A frozen linear layer, plus a product of two thin matrices that is trained and begins at zero."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    in_features = property(lambda self: self.linear.in_features)
    weight = property(lambda self: self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        """The frozen layer's output and the correction."""
        return self.linear(x) + self.up(self.down(x))


def with_lora(model: Classifier, rank: int = RANK, everywhere: bool = False) -> Classifier:
    """The model with its encoder frozen, and LoRA at the queries and values of each layer, or at all linear layers."""
    model.encoder.requires_grad_(False)
    for module in list(model.encoder.stack.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and (everywhere or name in ("query", "value")):
                setattr(module, name, LoRA(child, rank))
    return model


def tune(
    encoder: SegmentEncoder,
    texts: list[Text],
    vocab: PretrainingVocab,
    setting: tuple[int, int, float, bool],
    seed: int,
    adapt: Callable[[Classifier], Classifier] = with_lora,
) -> tuple[Classifier, dict[str, Any]]:
    """A copy of the encoder and a new head, trained on the first labels."""
    labels, epochs, peak, by_lora = setting
    torch.manual_seed(seed)
    model = tuned_from(encoder, 2)
    if by_lora:
        model = adapt(model)
    batches = LabelledBatches(texts[:labels], vocab, batch_size=BATCH_SIZE, seed=seed)
    steps = epochs * len(batches)
    rising = max(1, round(WARMUP * steps))

    def rate(step: int) -> float:
        return peak * min((step + 1) / rising, (steps - step) / max(1, steps - rising))

    history = fit(
        model, batches, epochs=epochs, schedule=rate, loss=class_loss, seed=seed, device="cpu", progress=False
    )
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    about: dict[str, Any] = {"labels": labels, "epochs": epochs, "rate": f"{peak:.0e}", "lora": by_lora, "seed": seed}
    last = history.losses[-len(batches) :]
    return model, about | {"trained": trained, "steps": steps, "last_loss": sum(last) / len(last)}


def moved(before: nn.Module, after: nn.Module) -> float:
    """How far the matrices of the layers have moved, relative to their norm: the median."""
    old = dict(before.named_parameters())
    return (
        torch.tensor(
            [
                ((x - old[name]).norm() / old[name].norm()).item()
                for name, x in after.named_parameters()
                if name in old and x.dim() == 2 and "layers" in name
            ]
        )
        .median()
        .item()
    )


def paraphrases(count: int) -> tuple[list[list[str]], list[list[str]]]:
    """So many pairs of English sentences with one French translation, of which few words are shared, none twice."""
    by_french: dict[str, list[str]] = {}
    for english, french in lines():
        by_french.setdefault(french, []).append(english)
    groups, seen, found = [g for g in by_french.values() if len(g) > 1], set[tuple[str, ...]](), []
    Random(0).shuffle(groups)
    for one, other, *_ in groups:
        keys = {tokenize(one), tokenize(other)}
        few = len({*tokenize(one)} & {*tokenize(other)}) <= 2  # one of them is mostly the full stop
        if few and seen.isdisjoint(keys) and min(map(len, keys)) >= 5:
            seen |= keys
            found.append(([one], [other]))
    first, second = zip(*found[:count], strict=True)
    return list(first), list(second)


def minilm(
    texts: dict[str, list[Text]],
    settings: Sequence[Any],
    seeds: Sequence[int],
    count: int,
    adapt: Callable[[Classifier], Classifier] = with_lora,
) -> dict[str, Any]:
    """MiniLM: frozen, and tuned with each setting; ``adapt`` puts LoRA into those that want it."""
    encoder, tokenizer = load_safetensors(minilm_files() / "model.safetensors", "bert")
    vocab, pairs = WordPieces(tokenizer), paraphrases(count)

    def found(model: SegmentEncoder) -> float:
        return retrieval_accuracy(*(text_vectors(model, side, vocab)[-1] for side in pairs))

    words = [{word for word in tokenize(side[0])} for side in (*pairs[0], *pairs[1])]
    overlap = torch.tensor([[len(a & b) / len(a | b) for b in words[count:]] for a in words[:count]])
    shared = (overlap.argmax(1) == torch.arange(count)).float().mean().item()
    before = {"paraphrases": found(encoder), "by_shared_words": shared, "chance": 1 / count}
    vectors = {part: transfer.features(encoder, each, vocab) for part, each in texts.items()}
    frozen, tuned = [], []
    for labels in (n for n in FROZEN if n <= len(texts["train"])):
        for weights in vectors["train"]:
            torch.manual_seed(0)
            of_part = {part: x[weights] for part, x in vectors.items()}
            frozen.append({"weights": weights} | transfer.head_on(of_part, texts, labels))
    test = LabelledBatches(texts["test"], vocab, batch_size=50)
    for seed in seeds:
        for setting in settings:
            model, about = tune(encoder, texts["train"], vocab, setting, seed, adapt)
            about["test"] = transfer.share_right(class_logits(model, test), texts["test"])
            about["paraphrases"] = found(model.encoder)
            about["moved"] = 0.0 if setting[3] else moved(encoder, model.encoder)
            tuned.append(about)
            print(rounded(about), flush=True)
    return {"before": before, "frozen": frozen, "tuned": tuned}


def ours(world: transfer.World, folder: Path, settings: Sequence[Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Our encoder, tuned with each setting, and its own head on it for hidden words."""
    model = MaskedLanguageModel(transfer.new_encoder(world, 0)).eval()
    model.load_state_dict({name: x.float() for name, x in load_file(folder / "transfer.safetensors").items()})
    unseen = two_part_texts(world.stories.test[: world.plan.tested])
    hidden = list(MaskedBatches(unseen, world.vocab, batch_size=100, seed=None))
    texts, tuned = world.tasks["sense"], []
    test = LabelledBatches(texts["test"], world.vocab, batch_size=200)
    for seed in seeds:
        for setting in settings:
            classifier, about = tune(model.encoder, texts["train"], world.vocab, setting, seed)
            about["test"] = transfer.share_right(class_logits(classifier, test), texts["test"])
            after = copy.copy(model)
            after._modules = {**model._modules, "encoder": classifier.encoder}
            about["hidden_words"] = masked_scores(after, hidden)["accuracy"]
            tuned.append(about | {"moved": moved(model.encoder, classifier.encoder)})
    return {"before": masked_scores(model, hidden), "tuned": tuned}


def run(
    folder: Path,
    plan: transfer.Plan = PLAN,
    seeds: Sequence[int] = SEEDS,
    settings: tuple[Sequence[Any], Sequence[Any]] = (MINILM, OURS),
    tested: int = TESTED,
    count: int = PARAPHRASES,
) -> dict[str, Any]:
    """Both models with every setting and seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    world = transfer.World(plan)
    own = ours(world, Path(__file__).parent / "results", settings[1], seeds)
    texts = {"train": world.tasks["sense"]["train"], "test": world.tasks["sense"]["test"][:tested]}
    return rounded({"minilm": minilm(texts, settings[0], seeds, count), "ours": own})
