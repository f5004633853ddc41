"""Every public mechanism: how to make one, what it takes, and what it must compute, in float64.

From this table follow the properties, the hostile inputs, the launches that are counted, the derivatives and the tests
on a GPU, so a new mechanism needs one entry in it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from attn_core import (
    AdditiveAttention,
    BlockSelection,
    Dense,
    FlashAttention,
    LinearAttention,
    Linformer,
    LSHAttention,
    Performer,
    SinkAttention,
    SlidingWindow,
    attention,
    attention_with_weights,
    flash_attention,
)
from attn_core.mechanisms import linear
from tests import reference
from tests.properties.draws import Call, calls


@dataclass(frozen=True)
class Mechanism:
    """One entry of the table; the first two fields are needed, the others describe a mechanism with limits."""

    make: Callable[[Call], Any]
    """``make(call)`` gives the mechanism; one with parameters takes its sizes and its dtype from the call's tensors."""
    expected: Callable[[Any, Call], Tensor]
    """``expected(mechanism, call)`` gives the output in float64, by ``tests/reference.py``."""
    draws: dict[str, Any] = field(default_factory=dict)
    """What ``calls`` in ``draws.py`` may draw.

    ``{"bias": False}`` for a mechanism that refuses a bias; in the same way ``causal`` and ``scale``; ``{"mask":
    "keys"}`` where a mask may only hide whole keys; ``{"shared": True}`` where the queries are also the keys;
    ``{"ties": False}`` where it chooses by scores, of which no two may then be the same; ``spreads`` for other standard
    deviations of the queries and keys.
    """
    slack: float = 1.0
    """How many times the tolerance of exact attention the outputs need; most need 1."""
    weights: str | None = "shares"
    """What the weights ``(B, H, T, S)`` of its method ``with_weights`` are; None where it has none.

    ``"shares"`` are at least 0 and sum to 1 for a query that sees a key, ``"parts"`` are at least 0 and sum to at most
    1, and ``"any"`` may be negative or sum to more. Hidden keys always have 0, and the output is the sum of the values
    by these weights.
    """
    derivatives: str = "all"
    """``"first"`` if it has a backward pass of its own, and refuses derivatives beyond it and ``torch.func``.

    ``"fused"`` if it calls PyTorch's fused kernels, which have no second derivative on a CPU; otherwise ``"all"``.
    """
    by_position: bool = False
    """Whether it decides by position which keys a query sees, as a window does."""
    heads_apart: bool = True
    """Whether a key-value head with its queries gives alone what it gives among others: not where heads are mixed."""

    def made_for(self, q: Tensor, k: Tensor, v: Tensor) -> Any:
        """One that takes tensors of these shapes."""
        return self.make(Call(q, k, v, {}, 1.0))

    def calls(self, **more: Any) -> st.SearchStrategy[Call]:
        return calls(**(self.draws | more))

    def tolerance(self, call: Call) -> float:
        """How far an output may be from float64: scores grow with the spread of both queries and keys."""
        return self.slack * reference.tolerance(call.q.dtype, scale=call.spread)


def run(mechanism: Any, call: Call) -> Tensor:
    return mechanism(*call.tensors, **call.options)


def exact(_: Any, call: Call) -> Tensor:
    return reference.attention(*call.tensors, **call.options)[0]


def within_the_window(mechanism: SlidingWindow, call: Call) -> Tensor:
    window = reference.window(*call.shape[2:], mechanism.before, mechanism.after, mechanism.dilation)
    mask = call.options.get("mask")
    return exact(None, call.on(*call.tensors, mask=window if mask is None else mask & window))


def by_perceptron(mechanism: AdditiveAttention, call: Call) -> Tensor:
    scores = reference.additive_scores(mechanism.score, call.q, call.k)
    bias = call.options.get("bias")
    return exact(None, call.on(*call.tensors, bias=scores if bias is None else scores + bias, scale=0.0))


def over_mixtures(mechanism: Linformer, call: Call) -> Tensor:
    mask = call.options.get("mask")
    shown = None if mask is None else mask.broadcast_to(call.shape[0], 1, 1, call.shape[3])
    keys = reference.linformer_slots(mechanism.key_projection, call.k, shown)
    values = reference.linformer_slots(mechanism.value_projection, call.v, shown)
    return reference.attention(call.q, keys, values, scale=call.options.get("scale"))[0]


def by_features(mechanism: Performer, call: Call) -> Tensor:
    return reference.performer(mechanism.projection, *call.tensors, **call.options)


def by_positive_features(_: Any, call: Call) -> Tensor:
    return reference.by_features(linear.features, *call.tensors, **call.options)


def within_buckets(mechanism: LSHAttention, call: Call) -> Tensor:
    """The hash is taken in the dtype that the mechanism hashes in; all else in float64."""
    batch, heads, size, _ = call.shape
    wide = call.q.to(torch.promote_types(call.q.dtype, torch.float32))
    length = wide.norm(dim=-1, keepdim=True)
    unit = wide / length.masked_fill(length == 0, math.inf)
    mask = call.options.get("mask")
    hidden = None if mask is None else ~mask.broadcast_to(batch, 1, 1, size)[:, 0, 0]
    pairs = reference.lsh_pairs(mechanism, unit, causal=call.options["causal"], hidden=hidden)
    if hidden is not None:
        pairs = pairs & ~hidden[:, None, :, None]
    q = call.q.double()
    keys = q / q.norm(dim=-1, keepdim=True).masked_fill(q.norm(dim=-1, keepdim=True) == 0, math.inf)
    return reference.attention(q, keys, call.v, mask=pairs, scale=call.options.get("scale"))[0]


def within_blocks(mechanism: BlockSelection, call: Call) -> Tensor:
    return exact(None, call.on(*call.tensors, mask=reference.chosen_pairs(mechanism, call.q, call.k, **call.options)))


def capped(mechanism: Dense, call: Call) -> Tensor:
    return reference.attention(*call.tensors, **call.options, soft_cap=mechanism.soft_cap)[0]


def with_sinks(mechanism: SinkAttention, call: Call) -> Tensor:
    return reference.attention(*call.tensors, **call.options, sinks=mechanism.sinks)[0]


def sink_attention(call: Call) -> SinkAttention:
    made = SinkAttention(call.q.shape[1])
    with torch.no_grad():
        made.sinks.copy_(torch.linspace(-1.0, 2.0, call.q.shape[1]))
    return learned(made, call)


def learned(made: torch.nn.Module, call: Call) -> torch.nn.Module:
    return made.to(call.q.dtype)


WINDOWS = {"": (1, 1, 1), ", before alone": (2, 0, 1), ", dilated": (1, 2, 2), ", itself": (0, 0, 3)}
PER_KEY = {"mask": "keys", "bias": False}

MECHANISMS: dict[str, Mechanism] = {
    "attention": Mechanism(lambda call: attention, exact, derivatives="fused"),
    "attention_with_weights": Mechanism(lambda call: lambda *a, **o: attention_with_weights(*a, **o)[0], exact),
    "Dense": Mechanism(lambda call: Dense(), exact, derivatives="fused"),
    "Dense, capped": Mechanism(lambda call: Dense(soft_cap=1.5), capped),
    "SinkAttention": Mechanism(
        sink_attention,
        with_sinks,
        weights="parts",
        heads_apart=False,  # each has a sink of its own
    ),
    "flash_attention": Mechanism(lambda call: flash_attention, exact, derivatives="first"),
    "FlashAttention": Mechanism(lambda call: FlashAttention(query_tile=2, key_tile=3), exact, derivatives="first"),
    **{
        f"SlidingWindow{name}": Mechanism(
            lambda call, w=w: SlidingWindow(*w[:2], dilation=w[2]),
            within_the_window,
            by_position=True,
            derivatives="first" if w[2] == 1 else "fused",  # with a dilation it is dense
        )
        for name, w in WINDOWS.items()
    },
    "AdditiveAttention": Mechanism(
        lambda call: learned(AdditiveAttention(call.q.shape[3], 5), call), by_perceptron, {"scale": False}, slack=3
    ),
    "Linformer": Mechanism(
        lambda call: learned(Linformer(8, 3), call),
        over_mixtures,
        PER_KEY | {"causal": False},
        slack=3,
        weights=None,  # they are over slots
        derivatives="fused",
    ),
    "LinearAttention": Mechanism(
        lambda call: LinearAttention(), by_positive_features, PER_KEY | {"scale": False}, slack=3
    ),
    "Performer": Mechanism(
        lambda call: learned(Performer(call.q.shape[3], 16), call),
        by_features,
        PER_KEY | {"spreads": (0.1, 1.0)},
        slack=10,
    ),
    **{
        f"BlockSelection{name}": Mechanism(
            lambda call, s=sizes: BlockSelection(s[0], selected=s[1], local=s[2]),
            within_blocks,
            PER_KEY | {"ties": False},
            by_position=True,
            derivatives="first",
        )
        for name, sizes in {"": (2, 1, 1), ", wide": (3, 2, 2), ", near alone": (1, 0, 3)}.items()
    },
    "LSHAttention": Mechanism(
        lambda call: LSHAttention(bucket_size=3, num_buckets=2, rounds=2, seed=1),
        within_buckets,
        PER_KEY | {"shared": True},
        weights=None,  # it never has whole rows
    ),
}
