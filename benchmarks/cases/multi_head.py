"""Multi-head self-attention with its projections: ours, PyTorch's, d2l's, and PyTorch's fused kernel between four
linear layers, which is the least that any such layer has to do. All have the same weights.
"""

import functools
import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_book.companion import load_d2l
from attn_core import MultiHeadAttention, masks
from benchmarks.measure import Trial, Work, forward, forward_and_backward

Layer = Callable[[Tensor, Tensor | None], Tensor]
HEADS, HEAD_DIM = 8, 64
MODEL_DIM = HEADS * HEAD_DIM


def weights() -> MultiHeadAttention:
    """The layer that all others copy: no biases, since d2l's has none."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MultiHeadAttention(MODEL_DIM, HEADS, bias=False)


def ours(device: torch.device) -> Layer:
    """Our layer; lengths become a mask in each call."""
    layer = weights().to(device)
    return lambda x, lengths: layer(x, mask=None if lengths is None else masks.padding(lengths, x.shape[1]))


def fused(device: torch.device) -> Layer:
    """Four linear layers and PyTorch's kernel, with nothing around them."""
    layer = weights().to(device)

    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)

    def attend(x: Tensor, lengths: Tensor | None) -> Tensor:
        mask = None if lengths is None else masks.padding(lengths, x.shape[1])
        q, k, v = (split(projection(x)) for projection in (layer.query, layer.key, layer.value))
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return layer.out(out.transpose(1, 2).flatten(2))

    return attend


def of_torch(device: torch.device) -> Layer:
    """`nn.MultiheadAttention`, asked for no weights."""
    source = weights()
    layer = nn.MultiheadAttention(MODEL_DIM, HEADS, bias=False, batch_first=True)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([source.query.weight, source.key.weight, source.value.weight]))
        layer.out_proj.weight.copy_(source.out.weight)
    layer = layer.to(device).eval()  # where no gradient is wanted, that is its faster path

    def attend(x: Tensor, lengths: Tensor | None) -> Tensor:
        hidden = None if lengths is None else ~masks.length_mask(lengths, x.shape[1])
        out: Tensor = layer(x, x, x, key_padding_mask=hidden, need_weights=False)[0]
        return out

    return attend


def of_d2l(device: torch.device) -> Layer:
    """d2l's `MultiHeadAttention`.

    Raises ImportError where d2l is not installed.
    """
    source, layer = weights(), load_d2l().MultiHeadAttention(*[MODEL_DIM] * 4, HEADS, dropout=0.0)
    pairs = ((layer.W_q, source.query), (layer.W_k, source.key), (layer.W_v, source.value), (layer.W_o, source.out))
    for theirs, weight in pairs:
        theirs.load_state_dict(weight.state_dict())
    layer = layer.to(device)
    return lambda x, lengths: layer(x, x, x, lengths)


def prepare(
    make: Callable[[torch.device], Layer],
    batch: int,
    length: int,
    *,
    padded: bool,
    backward: bool,
    device: torch.device,
) -> Work:
    """The input, the same for all, and the work on it: the output, and the input's gradient with the weights'."""
    layer = make(device)
    draw = torch.Generator().manual_seed(1)
    x, toward = (torch.randn(batch, length, MODEL_DIM, generator=draw).to(device) for _ in range(2))
    lengths = torch.linspace(length / 2, length, batch).long().to(device) if padded else None

    def whole(x: Tensor) -> Tensor:
        return layer(x, lengths)

    return forward_and_backward(whole, x, toward) if backward else forward(whole, x)


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """Three lengths, with and without padding at the first, forward and both ways."""
    found = []
    tiny = {"short": (4, 16, True), "long": (2, 24, False), "longest": (1, 32, False)}
    real = {"short": (8, 512, True), "long": (2, 2048, False), "longest": (1, 4096, False)}
    sizes = tiny if quick else real
    for (size, (batch, length, padded)), backward in itertools.product(sizes.items(), (False, True)):
        setting = functools.partial(
            prepare, batch=batch, length=length, padded=padded, backward=backward, device=device
        )
        padding, way = "padded" if padded else "full", "forward and backward" if backward else "forward"
        found.append(
            Trial(
                f"{size}, {padding}, {way}",
                {"B": batch, "H": HEADS, "n": length, "D": HEAD_DIM},
                torch.float32,
                ours={"MultiHeadAttention": functools.partial(setting, ours)},
                peers={
                    "fused kernel, four linear layers": functools.partial(setting, fused),
                    "torch nn.MultiheadAttention": functools.partial(setting, of_torch),
                    "d2l MultiHeadAttention": functools.partial(setting, of_d2l),
                },
                rounds=9,
            )
        )
    return found
