"""What it costs SmolLM2 to store keys and values in few bits: the loss that each way of rounding adds, text by text.

A group of numbers that share a scale is so many tokens by so many channels of one head. Every text is read in one
call: its keys and values are rounded after their rotation, and all queries read the rounded ones. The texts are prose
of this book, which SmolLM2 cannot have read.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_book.induction import next_token_losses
from attn_book.microscope import attentions
from attn_book.published import smollm2_file
from attn_core import attention
from attn_core.pretrained import load_gguf
from recorded.likeliest import CHAPTERS, prose

SEEDS = (0,)
TOKENS, SIZE = 400, 64  # of a text; of a head
PAGES = ("02_bahdanau", "10_flash", "15_recurrent", "16_long_context", "19_pictures")
BLOCK, TOKEN, HALF, CHANNEL = (32, SIZE), (1, SIZE), (1, SIZE // 2), (32, 1)

Group = tuple[int, int]


@dataclass(frozen=True)
class Scheme:
    """How keys and values are stored: integers of ``bits`` bits in groups, or the format ``floats`` without a scale."""

    bits: int
    keys: Group = TOKEN
    values: Group = TOKEN
    zero: bool = False  # each group has a smallest number besides its scale
    rotated: bool = False
    floats: torch.dtype | None = None

    @property
    def stored_bits(self) -> float:
        """Bits a number, with scales (and smallest numbers) of 16 bits."""
        if self.floats is not None:
            return self.bits
        shared = [1 / (tokens * channels) for tokens, channels in (self.keys, self.values)]
        return self.bits + 16 * (1 + self.zero) * sum(shared) / 2


SCHEMES = {
    "FP8 E4M3": Scheme(8, floats=torch.float8_e4m3fn),
    "FP8 E5M2": Scheme(8, floats=torch.float8_e5m2),
    "INT8, block": Scheme(8, BLOCK, BLOCK),
    "INT4, block": Scheme(4, BLOCK, BLOCK),
    "INT4, token": Scheme(4),
    "INT4, token, zero point": Scheme(4, zero=True),
    "INT4, half token, zero point": Scheme(4, HALF, HALF, zero=True),
    "INT4, keys by channel": Scheme(4, CHANNEL, TOKEN),
    "INT4, values by channel": Scheme(4, TOKEN, CHANNEL),
    "INT4, token, rotated": Scheme(4, rotated=True),
    "INT4, token, zero point, rotated": Scheme(4, zero=True, rotated=True),
    "INT2, keys by channel, zero point": Scheme(2, CHANNEL, HALF, zero=True),
}


def hadamard(size: int) -> Tensor:
    """The orthogonal matrix of ±1/√size after Sylvester; ``size`` is a power of two."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / size**0.5


def integers(x: Tensor, bits: int, group: Group, zero: bool) -> Tensor:
    """Heads ``x (B, G, T, D)``, rounded; the last tokens fill a group of their own with copies of the last one."""
    tokens, channels = group
    padded = functional.pad(x, (0, 0, 0, -x.shape[2] % tokens), mode="replicate")
    groups = padded.unflatten(3, (-1, channels)).unflatten(2, (-1, tokens))  # (B, G, ·, tokens, ·, channels)
    low = groups.amin((3, 5), keepdim=True) if zero else torch.zeros(())
    levels = 2**bits - 1 if zero else 2 ** (bits - 1) - 1
    scale = (groups - low).abs().amax((3, 5), keepdim=True) / levels
    back = ((groups - low) / scale.clamp(min=1e-12)).round() * scale + low
    return back.flatten(4, 5).flatten(2, 3)[:, :, : x.shape[2]]


class Rounded(nn.Module):
    """Causal dense attention to keys and values as a scheme stores them."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__()
        self.scheme = scheme

    def _stored(self, x: Tensor, group: Group) -> Tensor:
        one = self.scheme
        if one.floats is not None:
            most = torch.finfo(one.floats).max
            return x.clamp(-most, most).to(one.floats).to(x.dtype)
        return integers(x, one.bits, group, one.zero)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None, **options: Any) -> Tensor:
        """As a mechanism of ``MultiHeadAttention``, for causal calls without a mask."""
        if options.get("mask") is not None or not options.get("causal"):
            raise ValueError(f"causal: expected a causal call without a mask, got {options}")
        turn = hadamard(q.shape[-1]) if self.scheme.rotated else None
        if turn is not None:
            q, k, v = q @ turn, k @ turn, v @ turn
        k, v = self._stored(k, self.scheme.keys), self._stored(v, self.scheme.values)
        out = attention(q, k, v, causal=True, scale=scale)
        return out if turn is None else out @ turn.mT


def run(folder: Path) -> dict[str, Any]:
    """The loss on every text: with keys and values as they are, and what each scheme adds."""
    torch.set_num_threads(1)
    model, tokenizer = load_gguf(smollm2_file())
    model.requires_grad_(False)
    pages = [prose(CHAPTERS / f"{page}.ipynb") for page in PAGES]
    passages = [(Path(__file__).parent / "prose.txt").read_text(encoding="utf-8"), *pages]
    texts = [torch.tensor([tokenizer.encode(passage).ids[:TOKENS]]) for passage in passages]

    def losses() -> list[float]:
        return [next_token_losses(model(text), text).mean().item() for text in texts]

    exact, added = losses(), {}
    layers = attentions(model)
    for name, scheme in SCHEMES.items():
        for layer in layers:
            layer.mechanism = Rounded(scheme)
        more = [round(loss - before, 4) for loss, before in zip(losses(), exact, strict=True)]
        added[name] = {"bits": scheme.stored_bits, "loss_added": more}
        print(name, more, flush=True)
    return {
        "setting": {"tokens": TOKENS, "texts": ["prose.txt", *PAGES]},
        "loss": [round(loss, 4) for loss in exact],
        "schemes": added,
    }
