"""Longformer's self-attention with its projections: ours and Hugging Face's, with the same weights.

Theirs has no output projection of its own, so a linear layer with our weights follows it. The window is 256 tokens on
either side; four tokens are global, or none.
"""

import functools
import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from attn_core.longformer import LongformerAttention
from benchmarks.measure import Trial, Work

Layer = Callable[[Tensor, Tensor | None], Tensor]
HEADS, HEAD_DIM, GLOBAL = 8, 64, 4
MODEL_DIM = HEADS * HEAD_DIM


def weights(window: int) -> LongformerAttention:
    """The layer whose weights both have."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LongformerAttention(MODEL_DIM, HEADS, window)


def ours(window: int, device: torch.device) -> Layer:
    """Our layer."""
    return weights(window).to(device)


def of_hugging_face(window: int, device: torch.device) -> Layer:
    """`LongformerSelfAttention` of transformers, and our output projection.

    Raises ImportError where transformers is not installed.
    """
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    source = weights(window).to(device)
    config = LongformerConfig(
        hidden_size=MODEL_DIM,
        num_attention_heads=HEADS,
        attention_window=[2 * window],
        attention_probs_dropout_prob=0.0,
    )
    layer = LongformerSelfAttention(config, 0).to(device)
    layer.load_state_dict({name: w for name, w in source.state_dict().items() if not name.startswith("out.")})

    def attend(x: Tensor, marked: Tensor | None) -> Tensor:
        plain = torch.zeros(x.shape[:2], device=device)
        # Their mask, made once for all layers: above 0 is global, below 0 hidden.
        mask = plain if marked is None else plain.masked_fill(marked, 10000.0)
        return source.out(layer(x, mask, mask < 0, mask > 0, marked is not None)[0])

    return attend


def prepare(
    make: Callable[[int, torch.device], Layer],
    length: int,
    window: int,
    *,
    marked: bool,
    backward: bool,
    device: torch.device,
) -> Work:
    """The input, the same for both, and the work on it: the output, and the input's gradient with the weights'."""
    layer = make(window, device)
    draw = torch.Generator().manual_seed(1)
    x, toward = (torch.randn(1, length, MODEL_DIM, generator=draw).to(device) for _ in range(2))
    chosen = None
    if marked:
        chosen = torch.zeros(1, length, dtype=torch.bool, device=device)
        chosen[0, torch.linspace(0, length - 1, GLOBAL).long()] = True

    @torch.no_grad()
    def forward() -> Tensor:
        return layer(x, chosen)

    def both() -> tuple[Tensor, Tensor]:
        inputs = x.requires_grad_()
        inputs.grad = None
        out = layer(inputs, chosen)
        out.backward(toward)
        assert inputs.grad is not None
        return out.detach(), inputs.grad

    return both if backward else forward


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """Two lengths, with and without global tokens, forward and both ways."""
    found = []
    sizes = {"short": (32, 4), "long": (64, 4)} if quick else {"short": (2048, 256), "long": (8192, 256)}
    for (size, (length, window)), marked, backward in itertools.product(sizes.items(), (False, True), (False, True)):
        setting = functools.partial(
            prepare, length=length, window=window, marked=marked, backward=backward, device=device
        )
        tokens = f"{GLOBAL} global tokens" if marked else "window alone"
        found.append(
            Trial(
                f"{size}, {tokens}, {'forward and backward' if backward else 'forward'}",
                {"B": 1, "H": HEADS, "n": length, "D": HEAD_DIM, "window": window},
                torch.float32,
                ours={"LongformerAttention": functools.partial(setting, ours)},
                peers={"transformers LongformerSelfAttention": functools.partial(setting, of_hugging_face)},
                rounds=5,
            )
        )
    return found
