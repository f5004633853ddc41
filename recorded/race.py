"""Multi-query associative recall (MQAR, Arora et al. 2023): which pairs of key and value six mechanisms find again.

A text is N pairs, each a key and then its value, followed by all N keys once more in random order; at each of these the
model has to predict the value that came with the key. No key is written twice.

Nothing differs between the models but the mixing of tokens: all have one layer of it and the same around it, with a
short convolution, and queries and keys of length 1. Full attention and the window rotate queries and keys by their
positions, and learn a factor for their scores. The window holds as many numbers as the state of the other four.

Each model is trained until its loss on texts kept for this stops falling. Each mechanism has the learning rate, of two,
that ends at the lower loss with seed 0.
"""

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core import SlidingWindow, attention
from attn_core.mechanisms.linear import linear_attention
from attn_core.positions import Rotary
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2, 3, 4)
RATES = (5e-3, 1.5e-2)
KINDS = ("linear", "decay", "gated delta", "KDA", "window", "full")
KEYS, VALUES = 64, 32
PAIRS = (2, 4, 8, 16, 32)
WIDTH, HEAD_DIM, CONV = 48, 8, 4
WINDOW = HEAD_DIM**2 // (2 * HEAD_DIM)
ROWS, WARMUP, MOST_STEPS = 24, 50, 2500
EVERY, PATIENCE, GAIN, CUTS, SOLVED = 50, 3, 0.98, 2, 0.01


class Layer(nn.Module):
    """One head, with a short convolution before it and a norm and a gate behind it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, channels = kind, 3 * HEAD_DIM
        self.query_key_value = nn.Linear(WIDTH, channels, bias=False)
        self.conv = nn.Conv1d(channels, channels, CONV, groups=channels, padding=CONV - 1, bias=False)
        with torch.no_grad():
            # At first a key is that of the token before, and equal tokens have equal queries and keys: so every model
            # begins near the task, and what is compared is how much it can hold, not how soon training finds this.
            self.query_key_value.weight[HEAD_DIM : 2 * HEAD_DIM] = self.query_key_value.weight[:HEAD_DIM]
            taps = self.conv.weight.mul_(0.2).view(3, HEAD_DIM, CONV)
            for part, tap in enumerate((-1, -2, -1)):
                taps[part, :, tap] += 1
        self.rate, self.keep = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, HEAD_DIM if kind == "KDA" else 1)
        nn.init.constant_(self.keep.bias, 5.0)  # at first a token keeps about 0.99 of the state
        self.factor = nn.Parameter(torch.tensor(8.0))
        self.rotary, self.window = Rotary(HEAD_DIM), SlidingWindow(WINDOW - 1)
        self.gate, self.out = nn.Linear(WIDTH, HEAD_DIM, bias=False), nn.Linear(HEAD_DIM, WIDTH, bias=False)
        self.norm = nn.RMSNorm(HEAD_DIM, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """From each token of ``x (B, T, WIDTH)``, what it reads of those up to it."""
        inputs = self.conv(self.query_key_value(x).mT)[..., : x.shape[1]].mT
        q, k, v = inputs[:, None].chunk(3, -1)  # (B, 1, T, HEAD_DIM)
        q, k = functional.normalize(q, dim=-1), functional.normalize(k, dim=-1)
        return self.out(self.norm(self.attend(q, k, v, x)[:, 0]) * functional.silu(self.gate(x)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
        """The mechanism: all that differs between the models."""
        if self.kind in ("full", "window"):
            at = torch.arange(x.shape[1])
            q, k = self.factor * self.rotary.rotate(q, at), self.rotary.rotate(k, at)
            if self.kind == "window":
                return self.window(q, k, v, causal=True, scale=1.0)
            return attention(q, k, v, causal=True, scale=1.0)
        keep = functional.logsigmoid(self.keep(x))  # (B, T, 1), for KDA (B, T, HEAD_DIM)
        log_decay = keep[:, None] if self.kind == "KDA" else keep.mT
        rate = torch.sigmoid(self.rate(x)).mT
        return linear_attention(
            q,
            k,
            v,
            log_decay=None if self.kind == "linear" else log_decay,
            beta=rate if self.kind in ("gated delta", "KDA") else None,
        )[0]


class Model(nn.Module):
    """One layer, so that the memory is one state, and a feed-forward network after it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(KEYS + VALUES, WIDTH)
        self.mixer = Layer(kind)
        self.forwards = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(3))
        self.logits = nn.Linear(WIDTH, VALUES)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the values ``(B, T, VALUES)`` for ``tokens (B, T)``."""
        x = self.embedding(tokens)
        x = x + self.mixer(self.norms[0](x))
        x = x + self.forwards(self.norms[1](x))
        return self.logits(self.norms[2](x))


def recall(rows: int, pairs: int, by: torch.Generator) -> tuple[Tensor, Tensor]:
    """Texts ``(rows, 3 · pairs)`` and the answers at their last ``pairs`` tokens."""
    keys = torch.rand(rows, KEYS, generator=by).topk(pairs).indices
    values = torch.randint(VALUES, (rows, pairs), generator=by)
    asked = torch.rand(rows, pairs, generator=by).argsort(1)
    written = torch.stack((keys, KEYS + values), -1).flatten(1)
    return torch.cat((written, keys.gather(1, asked)), 1), values.gather(1, asked)


def loss_of(model: Model, tokens: Tensor, answers: Tensor) -> Tensor:
    """The mean cross-entropy of the answers."""
    return functional.cross_entropy(model(tokens)[:, -answers.shape[1] :].flatten(0, 1), answers.flatten())


@torch.no_grad()
def test(model: Model, rows: int, seed: int) -> tuple[float, dict[str, float]]:
    """The mean loss over all numbers of pairs, and for each the share of right answers."""
    losses, right = [], {}
    for pairs in PAIRS:
        tokens, answers = recall(max(8, rows // pairs), pairs, torch.Generator().manual_seed(seed))
        logits = model(tokens)[:, -pairs:]
        losses.append(functional.cross_entropy(logits.flatten(0, 1), answers.flatten()).item())
        right[str(pairs)] = (logits.argmax(-1) == answers).float().mean().item()
    return sum(losses) / len(losses), right


def train(model: Model, rate: float, seed: int) -> tuple[int, float]:
    """Train on all numbers of pairs in turn until the loss stops falling; the number of steps and the loss.

    Where the loss of `test` has not fallen by 2% in three tests, the learning rate is cut to a quarter, and the third
    time training ends. It also ends where the loss is below `SOLVED`.
    """
    by = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    best, waited, cuts, step = float("inf"), 0, 0, 0
    while cuts <= CUTS and step < MOST_STEPS:
        optimizer.param_groups[0]["lr"] = rate * 0.25**cuts * min(1.0, (step + 1) / WARMUP)
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, *recall(ROWS, PAIRS[step % len(PAIRS)], by)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % EVERY == 0:
            loss = test(model, 512, seed=1)[0]
            if loss < SOLVED:
                break
            waited = 0 if loss < GAIN * best else waited + 1
            best = min(best, loss)
            if waited == PATIENCE:
                waited, cuts = 0, cuts + 1
    return step, test(model, 512, seed=1)[0]


def measure(kind: str, rate: float, seed: int) -> dict[str, Any]:
    """One model, trained to its end and tested on texts of its own."""
    torch.manual_seed(seed)
    model, started = Model(kind), time.process_time()
    steps, loss = train(model, rate, seed)
    seconds = time.process_time() - started
    right = test(model, 8192, seed=2)[1]
    print(kind, rate, seed, steps, f"{loss:.3f}, {seconds:.0f} s", rounded(right), flush=True)
    found = {"kind": kind, "rate": rate, "seed": seed, "steps": steps, "ended": steps < MOST_STEPS}
    return found | rounded({"loss": loss, "seconds": seconds, "right": right})


def run(folder: Path) -> dict[str, Any]:
    """Every mechanism: both rates with the first seed, and the better one with the others."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    runs = []
    for kind in KINDS:
        swept = [measure(kind, rate, SEEDS[0]) for rate in RATES]
        best = min(swept, key=lambda one: one["loss"])["rate"]
        runs += [one | {"chosen": one["rate"] == best} for one in swept]
        runs += [measure(kind, best, seed) | {"chosen": True} for seed in SEEDS[1:]]
    sizes = {"keys": KEYS, "values": VALUES, "pairs": PAIRS, "width": WIDTH, "head_dim": HEAD_DIM}
    sizes |= {"conv": CONV, "window": WINDOW, "rows": ROWS, "rates": RATES, "most_steps": MOST_STEPS}
    return {"sizes": sizes, "chance": 1 / VALUES, "runs": runs}
