"""LSH attention beside that of Hugging Face's Reformer, on the same queries, values and settings, without projections.

The two let different pairs meet: Reformer's chunks also see tokens of other buckets, and count a pair once for every
round that sees it. So queries come in runs of equal neighbours, which every round puts together, and the runs are far
apart: whatever else a token sees weighs next to nothing, and both have to come to the same output. The first tokens of
runs, which find none of their own before them, are left out of the output; no gradient comes through them.

Backward is PyTorch's through Reformer's attention. A whole Reformer stores less, because its reversible layers compute
the attention again, and takes longer.
"""

import functools
import importlib
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
LENGTHS, BOTH_WAYS = (512, 1024, 2048, 4096, 8192, 16384), (512, 2048, 8192)


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


def without_first(out: Tensor) -> Tensor:
    """A view that leaves out the first token of each run."""
    return out.unflatten(1, (-1, CLUSTER))[:, :, 1:]


def prepare(
    make: Callable[[int, bool, torch.device], Attention], length: int, *, backward: bool, device: torch.device
) -> Work:
    """The inputs, the same for all, and the work on them: the output, and the gradients of queries and values."""
    attend = make(length, True, device)
    draw = torch.Generator().manual_seed(1)
    values, toward = (torch.randn(1, length, WIDTH, generator=draw) for _ in range(2))
    toward *= torch.arange(length)[:, None] % CLUSTER > 0
    x, toward = torch.cat([clusters(length), values], -1).to(device), toward.to(device)
    if not backward:
        return lambda: without_first(attend(x))

    def both() -> tuple[Tensor, ...]:
        inputs = x.requires_grad_()
        out = attend(inputs)
        return without_first(out.detach()), *torch.autograd.grad(out, (inputs,), toward)

    return both


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """Causal: forward at every length, both ways at some."""
    found = []
    settings = [(n, False) for n in LENGTHS] + [(n, True) for n in BOTH_WAYS]
    for n, backward in settings:
        length = 256 if quick else n
        options: dict[str, Any] = {"length": length, "backward": backward, "device": device}
        setting = functools.partial(prepare, **options)
        shapes = {"B": 1, "H": HEADS, "n": length, "D": HEAD_DIM, "chunk": CHUNK, "rounds": ROUNDS}
        found.append(
            Trial(
                f"{n} tokens, causal, {'forward and backward' if backward else 'forward'}",
                shapes,
                torch.float32,
                ours={"LSHAttention": functools.partial(setting, ours)},
                peers={"transformers LSHSelfAttention": functools.partial(setting, reformer)},
                rounds=7,
                tolerance=1e-3,
            )
        )
    return found
