"""From the block of 2017 to that of today: small language models with one change at a time, trained on the stories.

The changes of ``LADDER`` are added one after another. Those of ``BESIDE`` are each made alone, to the model that has
the ladder's changes up to rotary positions. Every model is trained at two learning rates with three seeds, and three of
them at two higher ones. Of each are kept the training curve, the loss of unseen stories, the largest score of its
attention, the weight of its heads on the tokens <bos>, and the size of the residual stream after each layer.
"""

import importlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_book.corpus import paragraph_corpus
from attn_book.data import Vocab
from attn_core import Dense, MultiHeadAttention, SlidingWindow, capture_attention
from attn_core.mechanisms.sink import SinkAttention
from attn_core.positions import Rotary
from attn_core.transformer import FeedForward, LanguageModel, SwiGLU, TransformerConfig
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
RATES, HIGH_RATES = (4e-3, 1.2e-2), (3.6e-2, 1e-1)
STORIES, LENGTH, BATCH_SIZE, STEPS, WARMUP, EVERY = 8_000, 64, 8, 300, 30, 20
HEADS, LAYERS, WIDTH = 4, 4, 64
PROCESSES = 2
HIDDEN = 2 * 4 * WIDTH // 3 + 2
"""With three matrices of this size a SwiGLU has as many parameters as two matrices of size 4 · WIDTH, to 1 %."""
CAP, WINDOW = 10.0, 8
SIZES: dict[str, Any] = {"model_dim": WIDTH, "num_heads": HEADS, "num_layers": LAYERS, "dropout": 0.0}


class NoPositions(nn.Module):
    """Positions that add nothing."""

    def forward(self, x: Tensor, offset: int | Tensor = 0) -> Tensor:
        """``x`` as it is."""
        return x


def alternating(*factories: Any) -> Any:
    """A function that makes the mechanism of one layer after another, in turn; their number divides LAYERS."""
    turn = cycle(factories)
    return lambda: next(turn)()


def attention(**changes: Any) -> dict[str, Any]:
    """The self-attention of each layer with these arguments."""
    return {"attention": partial(MultiHeadAttention, **changes)}


def rotary(dim: int) -> dict[str, Any]:
    """Rotary positions on the first ``dim`` entries of each head."""
    return {"positions": partial(Rotary, WIDTH // HEADS, rotary_dim=dim)}


WINDOWED = partial(SlidingWindow, WINDOW, 0)
LADDER: dict[str, dict[str, Any]] = {
    "2017": {"feed_forward_dim": 4 * WIDTH},
    "pre-norm": {"norm_first": True},
    "RMSNorm": {"norm": nn.RMSNorm},
    "SwiGLU": {"feed_forward": SwiGLU, "feed_forward_dim": HIDDEN},
    "no biases": {"bias": False},
    "rotary": rotary(WIDTH // HEADS),
    "QK-norm": attention(query_key_norm=nn.RMSNorm),
    "grouped": {"num_kv_heads": 2},
}
BESIDE: dict[str, dict[str, Any]] = {
    "ReLU": {"feed_forward": FeedForward, "feed_forward_dim": 4 * WIDTH},
    "GELU": {"feed_forward": partial(FeedForward, activation=functional.gelu), "feed_forward_dim": 4 * WIDTH},
    "soft cap": {"mechanism": partial(Dense, soft_cap=CAP)},
    "sinks": {"mechanism": partial(SinkAttention, HEADS)},
    "gate": attention(gate=True),
    "half rotary": rotary(8),
    "quarter rotary": rotary(4),
    "no positions": {"positions": NoPositions},
    "windows in turn": {"mechanism": alternating(WINDOWED, Dense)},
    "windows only": {"mechanism": WINDOWED},
}
HIGH = ("rotary", "QK-norm", "soft cap")


def variants() -> dict[str, dict[str, Any]]:
    """What each model has, by its name."""
    found: dict[str, dict[str, Any]] = {}
    for name, change in LADDER.items():
        found[name] = list(found.values())[-1] | change if found else change
    return found | {name: found["rotary"] | change for name, change in BESIDE.items()}


def make(vocab_size: int, options: dict[str, Any]) -> LanguageModel:
    """A model with these options, of which positions and mechanism are not the config's."""
    parts = {key: options[key] for key in ("positions", "mechanism") if key in options}
    config = {key: value for key, value in options.items() if key not in parts}
    return LanguageModel(TransformerConfig(vocab_size, **SIZES, **config), **parts)


def rows(stories: Sequence[Any], vocab: Vocab) -> Tensor:
    """Rows of LENGTH + 1 tokens: each begins with <bos> and a story, and goes on with the stories after it."""
    tokens = [[Vocab.BOS, *vocab.encode(story.source)] for story in stories]
    joined = (sum(tokens[i : i + 5], [])[: LENGTH + 1] for i in range(0, len(tokens) - 4, 2))
    return torch.tensor([row for row in joined if len(row) == LENGTH + 1])


def stories() -> tuple[tuple[Tensor, Tensor], int]:
    """The rows to train on and the unseen ones, and the size of the vocabulary."""
    corpus = paragraph_corpus(train=STORIES, valid=0, test=500)
    vocab = Vocab([story.source for story in corpus.train])
    return (rows(corpus.train, vocab), rows(corpus.test, vocab)), len(vocab)


def loss_of(model: LanguageModel, batch: Tensor) -> Tensor:
    """The mean loss of each next token, in nats."""
    return functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


@torch.no_grad()
def largest_score(model: LanguageModel, batch: Tensor) -> float:
    """The largest scaled product of a query and a key that it sees, over all layers; before a soft cap."""
    found: list[Tensor] = []

    def watch(mechanism: nn.Module, inputs: tuple[Tensor, ...], options: object) -> None:
        q, k, _ = inputs
        scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).mT / q.shape[-1] ** 0.5
        found.append(scores.tril().abs().max())

    layers: Any = model.stack.layers
    hooks = [layer.attention.mechanism.register_forward_pre_hook(watch, with_kwargs=True) for layer in layers]
    model(batch[:, :-1])
    for hook in hooks:
        hook.remove()
    return max(found).item()


@torch.no_grad()
def measured(model: LanguageModel, batch: Tensor) -> dict[str, Any]:
    """What is kept of a trained model."""
    sizes: list[float] = []
    layers: Any = model.stack.layers

    def watch(layer: nn.Module, inputs: object, out: Tensor) -> None:
        sizes.append(out.square().mean().sqrt().item())

    hooks = [layer.register_forward_hook(watch) for layer in layers]
    with capture_attention(model) as maps:
        loss = loss_of(model, batch)
    for hook in hooks:
        hook.remove()
    begins = (batch[:, :-1] == Vocab.BOS).float()  # a row holds several stories, each with its own <bos>
    late = [one[:, :, LENGTH // 2 :] @ begins[:, None, :, None] for (one,) in maps.values()]
    uniform = begins.cumsum(-1) / torch.arange(1, LENGTH + 1)
    return {
        "loss": loss.item(),
        "score": largest_score(model, batch),
        "bos": [one.mean((0, 2, 3)).tolist() for one in late],
        "uniform": uniform[:, LENGTH // 2 :].mean().item(),
        "stream": sizes,
    }


def train(
    options: dict[str, Any], rate: float, seed: int, data: tuple[Tensor, Tensor], vocab_size: int
) -> dict[str, Any]:
    """One run: what is kept of it."""
    torch.manual_seed(seed)
    known, unseen = data
    model = make(vocab_size, options)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    draw = torch.Generator().manual_seed(seed)
    curve, scores, recent = [], [], []
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(step / WARMUP, (STEPS - step) / (STEPS - WARMUP))
        loss = loss_of(model, known[torch.randint(len(known), (BATCH_SIZE,), generator=draw)])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recent.append(loss.item())
        if step % EVERY == 0:
            curve.append(sum(recent) / EVERY)
            scores.append(largest_score(model, unseen[:16]))
            recent = []
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"curve": curve, "scores": scores, "parameters": parameters} | measured(model.eval(), unseen)


def one_of(name: str, rate: float, seed: int) -> dict[str, Any]:
    """One run, in a process of its own thread."""
    torch.set_num_threads(1)
    found = train(variants()[name], rate, seed, *stories())
    print(f"{name:16} {rate:7.3f} {seed} {found['loss']:.3f} {found['score']:.1f}", flush=True)
    return {"model": name, "rate": rate, "seed": seed} | rounded(found)


def run(folder: Path) -> dict[str, Any]:
    """Every model at its learning rates, with each seed."""
    runs = [
        (name, rate, seed)
        for name in variants()
        for rate in RATES + (HIGH_RATES if name in HIGH else ())
        for seed in SEEDS
    ]
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        # By its name: the script itself was not loaded as a module that a process can import.
        found = list(pool.map(importlib.import_module("recorded.block").one_of, *zip(*runs, strict=True)))
    return {
        "training": {
            "stories": STORIES,
            "length": LENGTH,
            "batch_size": BATCH_SIZE,
            "steps": STEPS,
            "warmup": WARMUP,
            "rates": RATES,
            "high_rates": HIGH_RATES,
            "sizes": SIZES,
            "cap": CAP,
            "window": WINDOW,
        },
        "steps": list(range(EVERY, STEPS + 1, EVERY)),
        "runs": found,
    }
