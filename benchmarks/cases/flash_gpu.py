"""Our Triton kernels beside PyTorch's: its flash backend (FlashAttention-2), cuDNN's, and compiled FlexAttention.

bfloat16, 16,384 tokens at a time in rows of 1k to 16k, and heads that make up a model size of 2048. The backward pass
is timed alone. Short rows also meet the explicit form, and causal ones the kernel that chapter 10 writes. Nothing runs
without a CUDA device, but for the dry run of ``benchmarks/gpu.py``.
"""

import ast
import functools
import itertools
import json
import linecache
import math
import statistics
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from attn_core import attention_with_weights
from attn_core.contract import contract
from benchmarks.measure import Trial, Work

Attention = Callable[[Tensor, Tensor, Tensor, bool], Tensor]
Visible = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Row of the batch, head, query, key: whether the query sees the key."""
TOKENS, MODEL_DIM = 16384, 2048
LENGTHS = 1, 2, 4, 8, 16
"""Thousands of tokens in a row."""
EXPLICIT, FLEX = (1, 2), (4, 128)
"""Lengths at which the table of scores fits; the one length and head size of FlexAttention, which compiles slowly."""
BACKENDS = {"torch flash": SDPBackend.FLASH_ATTENTION, "torch cuDNN": SDPBackend.CUDNN_ATTENTION}
CHAPTER = Path(__file__).resolve().parents[2] / "chapters" / "10_flash.ipynb"
PAGE_TILES = {64: {"rows": 128, "cols": 64, "num_warps": 4}, 128: {"rows": 128, "cols": 64, "num_warps": 8}}
"""Queries, keys and warps by head size: guesses, until a GPU has chosen."""


def ours(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Our kernels."""
    from attn_core.mechanisms.flash_triton import flash_attention_triton  # triton may be absent

    return flash_attention_triton(contract(q, k, v, causal=causal))


def explicit(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """All scores and weights in memory."""
    return attention_with_weights(q, k, v, causal=causal)[0]


def backend(which: SDPBackend, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """One of PyTorch's, or nothing.

    Raises ImportError where it has no kernel.
    """
    try:
        with sdpa_kernel(which):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    except RuntimeError as error:
        raise ImportError(f"no kernel on this device: {error}") from error


def flex(visible: Visible | None, length: int, device: torch.device) -> Attention:
    """FlexAttention with what each query sees, compiled on a GPU; its mask of blocks is made here, not timed."""
    run: Any = flex_attention
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what compiles it uses parts of PyTorch that warn of their end
        if device.type == "cuda":
            torch.compiler.reset()  # each length is compiled for itself
            run = torch.compile(flex_attention, dynamic=False)
        blocks = None
        if visible is not None:
            blocks = create_block_mask(visible, None, None, length, length, device=device.type)

    def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found: Tensor = run(q, k, v, block_mask=blocks)
        return found

    return attend


def until_itself(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """What the causal mask shows."""
    return query >= key


@functools.cache
def page_kernel() -> Callable[..., Tensor]:
    """``causal_flash`` of chapter 10: its kernel in Triton, and the function that launches it, as the page has them."""
    import triton
    import triton.language as tl

    cells = {cell.get("id"): "".join(cell["source"]) for cell in json.loads(CHAPTER.read_text("utf-8"))["cells"]}
    tree = ast.parse(cells["flash-kernel"] + "\n" + cells["causal-flash"])
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    source, name = ast.unparse(tree), "<chapter 10>"  # where Triton looks for the source
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    space = {"triton": triton, "tl": tl, "torch": torch, "math": math, "LOG2_E": math.log2(math.e)}
    exec(compile(source, name, "exec"), space)
    found: Callable[..., Tensor] = space["causal_flash"]
    return found


def page(tiles: Mapping[str, int], q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """The kernel of the page."""
    return page_kernel()(q, k, v, **tiles)


def prepare(
    attend: Callable[[], Attention],
    batch: int,
    heads: int,
    length: int,
    head_dim: int,
    *,
    causal: bool,
    backward: bool,
    device: torch.device,
    dtype: torch.dtype = torch.bfloat16,
) -> Work:
    """The inputs, the same for all, and the work on them: the output, or the gradients of q, k and v."""
    draw = torch.Generator(device).manual_seed(0)
    options: dict[str, Any] = {"generator": draw, "device": device, "dtype": dtype}
    q, k, v, toward = (torch.randn(batch, heads, length, head_dim, **options) for _ in range(4))
    run = attend()
    run(q, k, v, causal)  # a contender that cannot says so now
    if not backward:
        return lambda: run(q, k, v, causal)
    inputs = q.requires_grad_(), k.requires_grad_(), v.requires_grad_()
    out = run(*inputs, causal)
    return lambda: torch.autograd.grad(out, inputs, toward, retain_graph=True)


def rate(operations: float, works: Mapping[str, Work], seconds: Mapping[str, list[float]]) -> dict[str, Any]:
    """TFLOP/s of each contender."""
    return {name: round(operations / statistics.median(seconds[name]) / 1e12, 1) for name in works}


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """Rows of 1k to 16k, two head sizes, with and without the causal mask, forward and backward."""
    if device.type != "cuda":
        print("flash_gpu: nothing to measure without a CUDA device")
        return []
    return [
        trial(thousands, head_dim, causal, backward, quick=quick, device=device)
        for head_dim, causal, backward in itertools.product((64, 128), (False, True), (False, True))
        for thousands in LENGTHS
    ]


def trial(thousands: int, head_dim: int, causal: bool, backward: bool, *, quick: bool, device: torch.device) -> Trial:
    """One of them."""
    length = thousands * (16 if quick else 1024)
    batch, heads = (1, 2) if quick else (TOKENS // length, MODEL_DIM // head_dim)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32  # the interpreter has no bfloat16
    sizes: dict[str, Any] = {"batch": batch, "heads": heads, "length": length, "head_dim": head_dim}
    way: dict[str, Any] = {"causal": causal, "backward": backward, "device": device, "dtype": dtype}

    def contender(attend: Callable[..., Attention], *given: Any) -> Callable[[], Work]:
        return functools.partial(prepare, functools.partial(attend, *given), **sizes, **way)

    def whole(attend: Attention) -> Callable[[], Work]:
        return contender(lambda: attend)

    mine = {"flash_attention_triton": whole(ours)}
    if causal and not backward:
        tiles = PAGE_TILES[head_dim] if not quick else {"rows": 16, "cols": 16}
        mine["the page's kernel"] = whole(functools.partial(page, tiles))
    peers = {name: whole(functools.partial(backend, which)) for name, which in BACKENDS.items()}
    if thousands in EXPLICIT:
        peers["explicit"] = whole(explicit)
    if (thousands, head_dim) == FLEX or quick:
        peers["compiled FlexAttention"] = contender(flex, until_itself if causal else None, length, device)
    # Two products forward, five backward; half of each under the causal mask.
    operations = (5 if backward else 2) * 2 * batch * heads * head_dim * length**2 / (2 if causal else 1)
    words = f"{'causal' if causal else 'full'}, {'backward' if backward else 'forward'}"
    return Trial(
        f"rows of {thousands}k, heads of {head_dim}, {words}",
        {"B": batch, "H": heads, "T": length, "S": length, "D": head_dim},
        dtype,
        ours=mine,
        peers=peers,
        tolerance=3e-2,
        report=functools.partial(rate, operations),
    )
