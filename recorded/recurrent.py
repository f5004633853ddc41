"""What a finite state recalls: small models with one mechanism each, trained on recall with overwriting and on copying.

Recall: a token carries a key and a value. Each key is written at least once, and as many writes again fall on keys at
random, so that some are overwritten. Then keys are asked for, and the answer is the value last written. Copying: random
tokens, a sign, and the same tokens once more, which the model has to predict.

The models differ in what a token does to the state. All have the same layer around it, with a short convolution, and no
positions; full attention takes from each score a distance times a slope that is learned, to tell newer keys from older.
Each mechanism has the learning rate, of three, with the lowest loss of training for seed 0.
"""

import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core import attention
from attn_core.mechanisms.linear import linear_attention
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
RATES = (6e-3, 1.2e-2, 2.4e-2)
WIDTH, HEAD_DIM, CONV = 48, 16, 4
STEPS, ROWS, TEST_ROWS, WARMUP = 1000, 32, 256, 40
SIZES = {"recall": (4, 8, 16, 32, 64), "copy": (4, 8, 16, 32, 64)}
KEYS, VALUES, QUESTIONS = 64, 16, 16
MODELS = {
    "linear": ("linear", "linear"),
    "decay": ("decay", "decay"),
    "delta": ("delta", "delta"),
    "gated delta": ("gated delta", "gated delta"),
    "hybrid": ("gated delta", "full"),
    "full": ("full", "full"),
}
"""The two layers of each model."""


class Layer(nn.Module):
    """One head of attention, with a short convolution before it and a norm and a gate behind it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, channels = kind, 3 * HEAD_DIM
        self.query_key_value = nn.Linear(WIDTH, channels, bias=False)
        self.conv = nn.Conv1d(channels, channels, CONV, groups=channels, padding=CONV - 1, bias=False)
        with torch.no_grad():
            # At first equal tokens have equal queries and keys, and the convolution mostly passes them on as they are.
            self.query_key_value.weight[HEAD_DIM : 2 * HEAD_DIM] = self.query_key_value.weight[:HEAD_DIM]
            self.conv.weight.mul_(0.5)[..., -1] += 1
        self.rate, self.keep = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 1)
        nn.init.constant_(self.keep.bias, 5.0)  # at first a token keeps about 0.99 of the state
        self.slope = nn.Parameter(torch.tensor(0.05))
        self.gate, self.out = nn.Linear(WIDTH, HEAD_DIM, bias=False), nn.Linear(HEAD_DIM, WIDTH, bias=False)
        self.norm = nn.RMSNorm(HEAD_DIM, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """From each token of ``x (B, T, WIDTH)``, what it reads of those up to it."""
        inputs = self.conv(self.query_key_value(x).mT)[..., : x.shape[1]].mT
        q, k, v = inputs[:, None].chunk(3, -1)  # (B, 1, T, HEAD_DIM)
        return self.out(self.norm(self.attend(q, k, v, x)[:, 0]) * functional.silu(self.gate(x)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
        """The mechanism: all that differs between the models."""
        if self.kind == "full":
            return attention(q, k, v, causal=True, bias=self.slope * distances(x.shape[1]))
        q, k = (functional.normalize(functional.silu(x), dim=-1) for x in (q, k))
        keep = functional.logsigmoid(self.keep(x)).mT if self.kind in ("decay", "gated delta") else None
        rate = torch.sigmoid(self.rate(x)).mT if "delta" in self.kind else None
        return linear_attention(q, k, v, log_decay=keep, beta=rate)[0]


def distances(tokens: int) -> Tensor:
    """How far each key stands after each query ``(T, T)``: for those that the query sees, at most 0."""
    at = torch.arange(tokens)
    return at - at[:, None]


class Model(nn.Module):
    """Two layers, each with a feed-forward network after it."""

    def __init__(self, kinds: tuple[str, ...], layer: type[Layer] = Layer) -> None:
        super().__init__()
        self.keys, self.values = nn.Embedding(KEYS, WIDTH), nn.Embedding(VALUES + 1, WIDTH)
        self.attentions = nn.ModuleList(layer(kind) for kind in kinds)
        wide = 2 * WIDTH
        self.forwards = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, wide), nn.ReLU(), nn.Linear(wide, WIDTH)) for _ in kinds
        )
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2 * len(kinds) + 1))
        self.logits = nn.Linear(WIDTH, VALUES)

    def forward(self, keys: Tensor, values: Tensor) -> Tensor:
        """Logits ``(B, T, VALUES)``."""
        x = self.keys(keys) + self.values(values)
        for n, (attend, forward) in enumerate(zip(self.attentions, self.forwards, strict=True)):
            x = x + attend(self.norms[2 * n](x))
            x = x + forward(self.norms[2 * n + 1](x))
        return self.logits(self.norms[-1](x))


def recall(many: int, size: int, by: torch.Generator) -> tuple[Tensor, ...]:
    """Keys and values ``(many, T)``, `VALUES` at the questions; ``(many, QUESTIONS)`` answers and numbers of writes."""
    keys = torch.rand(many, KEYS, generator=by).topk(size).indices
    written = torch.cat((torch.arange(size).expand(many, -1), torch.randint(size, (many, size), generator=by)), 1)
    written = written.gather(1, torch.rand(many, 2 * size, generator=by).argsort(1))
    values = torch.randint(VALUES, (many, 2 * size), generator=by)
    asked = torch.randint(size, (many, QUESTIONS), generator=by)
    same = written[:, None] == asked[..., None]  # (many, QUESTIONS, 2 · size)
    last = (same * torch.arange(1, 2 * size + 1)).argmax(-1)
    tokens = keys.gather(1, torch.cat((written, asked), 1))
    return tokens, functional.pad(values, (0, QUESTIONS), value=VALUES), values.gather(1, last), same.sum(-1)


def copy(many: int, size: int, by: torch.Generator) -> tuple[Tensor, ...]:
    """As `recall`: what to copy, the sign 0, and the copy except for its last token, as keys; the copy as answers."""
    text = torch.randint(VALUES, (many, size), generator=by)
    tokens = torch.cat((text + 1, torch.zeros(many, 1, dtype=torch.long), text[:, :-1] + 1), 1)
    return tokens, torch.full_like(tokens, VALUES), text, torch.ones_like(text)


TASKS = {"recall": recall, "copy": copy}


def train(model: Model, task: str, rate: float, seed: int) -> float:
    """Train on all sizes in turn; the mean loss of the last 100 steps."""
    by, losses = torch.Generator().manual_seed(seed), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    for number in range(STEPS):
        warm, share = min(1.0, (number + 1) / WARMUP), number / STEPS
        optimizer.param_groups[0]["lr"] = rate * warm * 0.5 * (1 + math.cos(math.pi * share))
        *tokens, answers, _ = TASKS[task](ROWS, SIZES[task][number % len(SIZES[task])], by)
        logits = model(*tokens)[:, -answers.shape[1] :]
        loss = functional.cross_entropy(logits.flatten(0, 1), answers.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return statistics.mean(losses[-100:])


@torch.no_grad()
def test(model: Model, task: str, size: int) -> dict[str, float]:
    """The share of right answers: of all, of keys written once, and of those overwritten."""
    *tokens, answers, writes = TASKS[task](TEST_ROWS, size, torch.Generator().manual_seed(1234))
    right = (model(*tokens)[:, -answers.shape[1] :].argmax(-1) == answers).float()
    found = {"all": right.mean().item()}
    if task == "recall":
        found |= {"once": right[writes == 1].mean().item(), "overwritten": right[writes > 1].mean().item()}
    return rounded(found)


def measure(task: str, name: str, make: Callable[[], Model], rate: float, seed: int) -> dict[str, Any]:
    """One model, trained and tested at every size."""
    torch.manual_seed(seed)
    model, started = make(), time.process_time()
    loss = train(model, task, rate, seed)
    seconds = time.process_time() - started
    right = {str(size): test(model, task, size) for size in SIZES[task]}
    print(task, name, rate, seed, f"{loss:.3f}, {seconds:.0f} s", [x["all"] for x in right.values()], flush=True)
    about = {"task": task, "model": name, "rate": rate, "seed": seed, "right": right}
    return about | rounded({"loss": loss, "seconds": seconds})


def race(
    makers: Mapping[str, Callable[[], Model]], tasks: Iterable[str], rates: Sequence[float], seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """Every model on every task: all rates with the first seed, and the best of them with the others."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    runs: list[dict[str, Any]] = []
    for task, (name, make) in itertools.product(tasks, makers.items()):
        swept = [measure(task, name, make, rate, seeds[0]) for rate in rates]
        best = min(swept, key=lambda one: one["loss"])["rate"]
        runs += [each | {"chosen": each["rate"] == best} for each in swept]
        runs += [measure(task, name, make, best, seed) | {"chosen": True} for seed in seeds[1:]]
    return runs


def run(folder: Path) -> dict[str, Any]:
    """The race of the recurrent mechanisms and full attention."""
    runs = race({name: functools.partial(Model, kinds) for name, kinds in MODELS.items()}, TASKS, RATES, SEEDS)
    training = {"rates": RATES, "width": WIDTH, "head_dim": HEAD_DIM, "conv": CONV, "steps": STEPS, "rows": ROWS}
    training |= {"keys": KEYS, "values": VALUES, "questions": QUESTIONS, "test_rows": TEST_ROWS, "sizes": SIZES}
    return {"training": training | {"layers": MODELS}, "chance": 1 / VALUES, "runs": runs}
