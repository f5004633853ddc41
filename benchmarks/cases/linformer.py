"""Multi-head attention over learned mixtures of the keys: ours beside the package linformer's, with the same weights.

The package has the projections of queries, keys, values and output inside, and no bias in the first three; ours gets
zeros there. Both share one pair of projections along the length among all heads.
"""

import functools
import importlib
from collections.abc import Callable

import torch
from torch import Tensor, nn

from attn_core import MultiHeadAttention
from attn_core.mechanisms.linformer import Linformer
from benchmarks.measure import Trial, Work

HEADS, HEAD_DIM = 8, 64
MODEL_DIM = HEADS * HEAD_DIM
LENGTHS, BOTH_WAYS = (512, 1024, 2048, 4096, 8192, 16384), (512, 2048, 8192)


def ours(length: int, slots: int, device: torch.device) -> nn.Module:
    """`MultiHeadAttention` around `Linformer`."""
    torch.manual_seed(1)
    return MultiHeadAttention(MODEL_DIM, HEADS, mechanism=Linformer(length, slots)).to(device)


def package(length: int, slots: int, device: torch.device) -> nn.Module:
    """`LinformerSelfAttention` with our weights. Raises ImportError where the package is not installed."""
    module = importlib.import_module("linformer")
    peer: nn.Module = module.LinformerSelfAttention(MODEL_DIM, length, k=slots, heads=HEADS)
    weights = ours(length, slots, torch.device("cpu")).state_dict()
    names = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out": "out"}
    found = {f"{theirs}.weight": weights[f"{own}.weight"] for theirs, own in names.items()}
    found["to_out.bias"] = weights["out.bias"]
    for theirs, own in {"proj_k": "key_projection", "proj_v": "value_projection"}.items():
        found[theirs] = weights[f"mechanism.{own}"][0].T
    peer.load_state_dict(found)
    return peer.to(device)


def prepare(
    make: Callable[[int, int, torch.device], nn.Module],
    length: int,
    slots: int,
    *,
    backward: bool,
    device: torch.device,
) -> Work:
    """The input, the same for all, and the work on it: the output, and the gradient of the input.

    Both ways, the gradients of all weights are made too; they have other shapes in the package, and are not compared.
    """
    layer = make(length, slots, device)
    draw = torch.Generator().manual_seed(0)
    x, toward = (torch.randn(1, length, MODEL_DIM, generator=draw).to(device) for _ in range(2))
    if not backward:

        def forward() -> Tensor:
            with torch.no_grad():
                out: Tensor = layer(x)
            return out

        return forward

    def both() -> tuple[Tensor, Tensor]:
        out = layer(x.requires_grad_())
        return out.detach(), torch.autograd.grad(out, [x, *layer.parameters()], toward)[0]

    return both


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """Forward at every length, both ways at some."""
    found = []
    slots = 4 if quick else 256
    settings = [(n, False) for n in LENGTHS] + [(n, True) for n in BOTH_WAYS]
    for n, backward in settings:
        length = 16 if quick else n
        setting = functools.partial(prepare, length=length, slots=slots, backward=backward, device=device)
        found.append(
            Trial(
                f"{n} tokens, {'forward and backward' if backward else 'forward'}",
                {"B": 1, "H": HEADS, "n": length, "D": HEAD_DIM, "slots": slots},
                torch.float32,
                ours={"MultiHeadAttention(Linformer)": functools.partial(setting, ours)},
                peers={"linformer LinformerSelfAttention": functools.partial(setting, package)},
            )
        )
    return found
