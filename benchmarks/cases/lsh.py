"""LSH attention beside that of Hugging Face's Reformer, on the same queries, values and settings, without projections.

The two let different pairs meet: Reformer's chunks also see tokens of other buckets, and count a pair once for every
round that sees it. So queries come in runs of equal neighbours, which every round puts together, and the runs are far
apart: whatever else a token sees weighs next to nothing, and both have to come to the same output. The first tokens of
runs, which find none of their own before them, are left out of the output; no gradient comes through them.
"""

import functools
import importlib
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attn_core.mechanisms.lsh import LSHAttention
from benchmarks.measure import Trial, Work

Attention = Callable[[Tensor], Tensor]
"""From queries and values side by side, ``(B, T, 2 · H · D)``, to outputs ``(B, T, H · D)``."""

HEADS, HEAD_DIM = 8, 64
WIDTH = HEADS * HEAD_DIM
CHUNK, ROUNDS, CLUSTER = 64, 4, 8


def ours(length: int, causal: bool, device: torch.device) -> Attention:
    """Our mechanism, with Reformer's scale: none beyond keys of unit length."""
    mechanism = LSHAttention(bucket_size=CHUNK, rounds=ROUNDS)

    def attend(x: Tensor) -> Tensor:
        q, v = (part.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2) for part in x.split(WIDTH, -1))
        out: Tensor = mechanism(q, q, v, causal=causal, scale=1.0)
        return out.transpose(1, 2).flatten(2)

    return attend


class _Part(nn.Module):
    """What stands in for a projection: some of the entries, as they are."""

    def __init__(self, start: int) -> None:
        super().__init__()
        self.start = start

    def forward(self, x: Tensor) -> Tensor:
        return x[..., self.start : self.start + WIDTH]


def reformer(length: int, causal: bool, device: torch.device) -> Attention:
    """The `LSHSelfAttention` of `transformers`, with as many buckets of as many tokens.

    Raises ImportError where it is not installed.
    """
    modeling = importlib.import_module("transformers.models.reformer.modeling_reformer")
    config = importlib.import_module("transformers").ReformerConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        attention_head_size=HEAD_DIM,
        lsh_attn_chunk_length=CHUNK,
        num_buckets=length // CHUNK,
        num_hashes=ROUNDS,
        is_decoder=causal,
        lsh_attention_probs_dropout_prob=0.0,
        max_position_embeddings=length,
    )
    layer = modeling.LSHSelfAttention(config, layer_idx=0)
    layer.query_key, layer.value = _Part(0), _Part(WIDTH)
    layer = layer.to(device).eval()

    def attend(x: Tensor) -> Tensor:
        out: Tensor = layer(x).hidden_states
        return out

    return attend


def clusters(length: int) -> Tensor:
    """Queries ``(1, T, H · D)``: runs of neighbours in one direction, drawn for each head."""
    centres = torch.randn(length // CLUSTER, HEADS, HEAD_DIM, generator=torch.Generator().manual_seed(0))
    centres = 64.0 * centres / centres.norm(dim=-1, keepdim=True)
    return centres.repeat_interleave(CLUSTER, 0).view(1, length, WIDTH)


def prepare(
    make: Callable[[int, bool, torch.device], Attention], length: int, *, backward: bool, device: torch.device
) -> Work:
    """The inputs, the same for all, and the work on them: the output, and the gradients of queries and values."""
    attend = make(length, True, device)
    draw = torch.Generator().manual_seed(1)
    values, toward = (torch.randn(1, length, WIDTH, generator=draw) for _ in range(2))
    counted = torch.arange(length) % CLUSTER > 0
    x = torch.cat([clusters(length), values], -1).to(device)
    toward, counted = (toward * counted[:, None]).to(device), counted.to(device)
    if not backward:
        return lambda: attend(x)[:, counted]

    def both() -> tuple[Tensor, ...]:
        inputs = x.requires_grad_()
        out = attend(inputs)
        return out.detach()[:, counted], *torch.autograd.grad(out, (inputs,), toward)

    return both


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """Two lengths, causal, forward and both ways."""
    found = []
    sizes = {"short": 256, "long": 512} if quick else {"short": 2048, "long": 8192}
    for (size, length), backward in itertools.product(sizes.items(), (False, True)):
        options: dict[str, Any] = {"length": length, "backward": backward, "device": device}
        setting = functools.partial(prepare, **options)
        shapes = {"B": 1, "H": HEADS, "T": length, "S": length, "D": HEAD_DIM, "chunk": CHUNK, "rounds": ROUNDS}
        found.append(
            Trial(
                f"{size}, causal, {'forward and backward' if backward else 'forward'}",
                shapes,
                torch.float32,
                ours={"LSHAttention": functools.partial(setting, ours)},
                peers={"transformers LSHSelfAttention": functools.partial(setting, reformer)},
                rounds=7,
                tolerance=1e-3,
            )
        )
    return found
