"""Where nothing is cut into tiles, as on a GPU, every mechanism launches few operators and waits for none of them.

The mechanisms are those of ``tests/properties/mechanisms.py``: a new one is counted without further code.
"""

import re

import pytest
import torch

from attn_core import Linformer, LSHAttention, Performer, SlidingWindow, device
from attn_core.cache import BlockPool, paged_attention
from attn_core.longformer import LongformerAttention
from attn_core.mechanisms import linear
from tests.mechanisms.launches import Launches
from tests.properties.draws import Call
from tests.properties.mechanisms import MECHANISMS

MOST, HASHED = 40, 160  # hashed attention works round by round, and here there are four
SORTED = 91
"""What block selection launches, which sorts pairs of queries and blocks."""
SMALL, LARGE = (2, 2, 48), (5, 4, 96)  # B, H, T
TILES = {"flash_attention", "FlashAttention"}
"""In PyTorch's operators, their tiles are there to be read; on CUDA, ``flash_attention`` is one Triton kernel."""
DEFAULTS = {
    "SlidingWindow(16)": lambda call: SlidingWindow(16),
    "Performer()": lambda call: Performer(call.q.shape[3]),
    "LSHAttention()": lambda call: LSHAttention(bucket_size=8),
    "Linformer": lambda call: Linformer(96, 3),
}
"""As a reader makes them, where the table has smaller ones."""
MAKERS = {name: one.make for name, one in MECHANISMS.items() if name not in TILES} | DEFAULTS
OPTIONS = {}, {"causal": True}, {"mask": True}, {"mask": True, "causal": True}


@pytest.fixture(autouse=True)
def _without_tiles(monkeypatch):
    monkeypatch.setattr(device, "TILED", ())
    monkeypatch.setattr(linear, "CHUNK", 24)  # so that both sizes have several: one alone is copied less


def counted(name, kind, sizes, options):
    """The counts forward and backward of a call on a device of this kind."""
    batch, heads, length = sizes
    shared = name.startswith("LSH")
    with torch.device(kind):
        q, k, v = (torch.randn(batch, heads, length, 4, requires_grad=True) for _ in range(3))
        k = q if shared else k
        made = MAKERS[name](Call(q, k, v, {}, 1.0))
    made = made.to(kind) if isinstance(made, torch.nn.Module) else made
    if "mask" in options:
        options = options | {"mask": torch.ones(batch, 1, 1, length, dtype=torch.bool, device=kind)}
    made(q, k, v, **options)  # hashed attention draws its axes in the first call
    with Launches(kind) as forward:
        out = made(q, k, v, **options)
    with Launches(kind) as backward:
        torch.autograd.grad(out, [q, v] if shared else [q, k, v], torch.ones_like(out))
    return forward, backward


def cases():
    """Each mechanism without a mask, causal, and with padding."""
    for name in MAKERS:
        for options in OPTIONS:
            yield pytest.param(name, options, id="-".join([name, *options] if options else [name, "full"]))


def check(name, kind, options, most):
    """Calls of two sizes launch the same operators, at most so many forward, and wait for none."""
    small, large = (counted(name, kind, sizes, options) for sizes in (SMALL, LARGE))
    for one, other in zip(small, large, strict=True):
        assert one.operators == other.operators
        assert not one.waits and not other.waits
    assert small[0].operators.total() <= most, small[0].operators
    return small


@pytest.mark.parametrize("kind", ["cpu", "meta"])
@pytest.mark.parametrize(("name", "options"), list(cases()))
def test_launches_are_few_and_do_not_grow(name, options, kind):
    if name.startswith("Linformer"):
        options = {key: one for key, one in options.items() if key != "causal"}  # it is never causal
    check(name, kind, options, {"LSH": HASHED, "Block": SORTED}.get(re.match("LSH|Block|", name)[0], MOST))


def test_longformer_launches_few_and_waits_for_none_where_marks_stay_on_the_cpu():
    counts = []
    for batch, length in ((2, 48), (5, 96)):
        with torch.device("meta"):
            layer, x = LongformerAttention(8, 2, 16), torch.randn(batch, length, 8, requires_grad=True)
        marked = torch.arange(length).expand(batch, -1) < 2
        with Launches("meta") as forward:
            out = layer(x, marked)
        with Launches("meta") as backward:
            torch.autograd.grad(out, x, torch.ones_like(out))
        assert not forward.waits and not backward.waits
        counts.append((forward.operators, backward.operators))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("tokens", [1, 7])
def test_paged_attention_gathers_once_and_waits_for_nothing_where_lengths_stay_on_the_cpu(tokens):
    counts = []
    for batch, blocks in ((2, 3), (5, 9)):
        pool = BlockPool(batch * blocks, 4, 2, 8, device="meta")
        table = torch.arange(batch * blocks, device="meta").view(batch, blocks)
        with Launches("meta") as found:
            q = torch.empty(batch, 4, tokens, 8, device="meta")
            paged_attention(q, pool.keys, pool.values, table, torch.full((batch,), 4 * blocks - 1))
        assert not found.waits and found.operators.total() <= MOST
        counts.append(found.operators)
    assert counts[0] == counts[1]


def test_what_counts():
    """Views are free; a number, a shape and a copy to or from the CPU are waited for."""
    with Launches() as found:
        x = torch.ones(3, 4)
        x.mT.unsqueeze(0)[:, 1:].view(1, 3, 3)
    assert found.operators == {"ones": 1} and not found.waits
    for ask in (lambda: x.sum().item(), lambda: x[x > 0], lambda: x.nonzero(), lambda: bool(x.any())):
        with Launches() as found:
            ask()
        assert found.waits
    for asynchronous in (False, True):
        with Launches("meta") as found:
            x.to("meta", non_blocking=asynchronous)
        assert bool(found.waits) != asynchronous
