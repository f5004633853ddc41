"""Longformer's self-attention with its projections: ours, Hugging Face's and FlexAttention's, with the same weights.

The window is 256 tokens on either side; four tokens are global, or none. Theirs has no output projection of its own, so
a linear layer with our weights follows it. FlexAttention, compiled, stands between our projections and the heads'
layout; it has no backward pass on a CPU, and takes part where the window is alone. Its mask of blocks and its compiling
come before the timing, as does the other's mask of tokens.
"""

import functools
import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from attn_core.longformer import LongformerAttention
from benchmarks.measure import Trial, Work, forward, forward_and_backward

Layer = Callable[[Tensor], Tensor]
Make = Callable[[int, Tensor], Layer]
"""From the window and the marks of global tokens ``(1, n)``."""

HEADS, HEAD_DIM, GLOBAL = 8, 64, 4
MODEL_DIM = HEADS * HEAD_DIM
LENGTHS = 512, 1024, 2048, 4096, 8192, 16384
BOTH_WAYS, WITH_GLOBAL = (512, 2048, 8192), (2048, 8192)


def weights(window: int) -> LongformerAttention:
    """The layer whose weights all have."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LongformerAttention(MODEL_DIM, HEADS, window)


def ours(window: int, marked: Tensor) -> Layer:
    """Our layer."""
    layer = weights(window).to(marked.device)
    return lambda x: layer(x, marked)


def of_hugging_face(window: int, marked: Tensor) -> Layer:
    """`LongformerSelfAttention` of transformers, and our output projection.

    Raises ImportError where transformers is not installed.
    """
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    source = weights(window).to(marked.device)
    config = LongformerConfig(
        hidden_size=MODEL_DIM,
        num_attention_heads=HEADS,
        attention_window=[2 * window],
        attention_probs_dropout_prob=0.0,
    )
    layer = LongformerSelfAttention(config, 0).to(marked.device).eval()
    layer.load_state_dict({name: w for name, w in source.state_dict().items() if not name.startswith("out.")})
    # Their mask, which a model makes once for all layers: above 0 is global, below 0 hidden.
    mask = torch.zeros(marked.shape, device=marked.device).masked_fill(marked, 10000.0)
    hidden, any_marked = mask < 0, bool(marked.any())
    return lambda x: source.out(layer(x, mask, hidden, marked, any_marked)[0])


def flex(window: int, marked: Tensor) -> Layer:
    """Our projections around FlexAttention.

    Raises ImportError where it cannot be compiled.
    """
    source, length, device = weights(window).to(marked.device), marked.shape[1], marked.device
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what compiles it uses parts of PyTorch that warn of their end
        torch.compiler.reset()  # each length is compiled for itself
        compiled = torch.compile(flex_attention, dynamic=False)

    def near(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query - key).abs() <= window

    blocks = create_block_mask(near, None, None, length, length, device=device.type)

    def attend(x: Tensor) -> Tensor:
        q, k, v = (
            project(x).unflatten(2, (HEADS, HEAD_DIM)).transpose(1, 2)
            for project in (source.query, source.key, source.value)
        )
        found: Tensor = source.out(compiled(q, k, v, block_mask=blocks).transpose(1, 2).flatten(2))
        return found

    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attend(torch.zeros(1, length, MODEL_DIM, device=device))
    except RuntimeError as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ImportError(f"FlexAttention could not be compiled: {reason}") from error
    return attend


def prepare(make: Make, length: int, window: int, *, with_global: bool, backward: bool, device: torch.device) -> Work:
    """The input, the same for all, and the work on it: the output, and the input's gradient with the weights'."""
    draw = torch.Generator().manual_seed(1)
    x, toward = (torch.randn(1, length, MODEL_DIM, generator=draw).to(device) for _ in range(2))
    marked = torch.zeros(1, length, dtype=torch.bool, device=device)
    if with_global:
        marked[0, torch.linspace(0, length - 1, GLOBAL).long()] = True
    layer = make(window, marked)

    return forward_and_backward(layer, x, toward) if backward else forward(layer, x)


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """The window alone forward at every length; both ways, and with global tokens, at some."""
    found = []
    settings = [(n, False, False) for n in LENGTHS]
    settings += [(n, False, True) for n in BOTH_WAYS]
    settings += [(n, True, backward) for n in WITH_GLOBAL for backward in (False, True)]
    for n, with_global, backward in settings:
        length, window = (64, 4) if quick else (n, 256)
        setting = functools.partial(
            prepare, length=length, window=window, with_global=with_global, backward=backward, device=device
        )
        peers: dict[str, Callable[[], Work]] = {
            "transformers LongformerSelfAttention": functools.partial(setting, of_hugging_face)
        }
        if not with_global and not backward:
            peers["compiled FlexAttention"] = functools.partial(setting, flex)
        tokens = f"{GLOBAL} global tokens" if with_global else "window alone"
        found.append(
            Trial(
                f"{n} tokens, {tokens}, {'forward and backward' if backward else 'forward'}",
                {"B": 1, "H": HEADS, "n": length, "D": HEAD_DIM, "window": window},
                torch.float32,
                ours={"LongformerAttention": functools.partial(setting, ours)},
                peers=peers,
                rounds=15 if n <= 2048 else 7 if n <= 8192 else 5,
            )
        )
    return found
