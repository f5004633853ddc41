"""Hostile tensors and sizes: what every mechanism refuses, and each layer, cache, model and setting by itself."""

import math

import torch
from torch import nn

import attn_core
from attn_core import KVCache, MultiHeadAttention, masks, positions, scores
from attn_core.cache import BlockPool, BlockTables, as_tensors, paged_attention
from attn_core.contract import shown
from attn_core.mechanisms.dense import masked_softmax
from tests.hostile.row import Row

NAN, INF = math.nan, math.inf


def numbers(*shape, dtype=torch.float32, device="cpu"):
    """The numbers from 0 on, divided by 8: every one exact, and none like another."""
    return (torch.arange(math.prod(shape)).view(shape) / 8).to(dtype).to(device)


def ids(*shape, dtype=torch.int64):
    """Token ids 4, 5, 6, 4, …"""
    return (4 + torch.arange(math.prod(shape)) % 3).view(shape).to(dtype)


def whole(*found):
    return torch.tensor(found, dtype=torch.int64)


def told(value):
    """What a value is, for the name of a row."""
    return f"{shown(value)} on {value.device}" if isinstance(value, torch.Tensor) else shown(value)


def inputs(**others):
    """What any mechanism takes, four heads that read two."""
    given = {"q": numbers(2, 4, 3, 8), "k": numbers(2, 2, 3, 8), "v": numbers(2, 2, 3, 6)}
    return given | others


# What the contract refuses, whoever is called: the argument, what comes, and what is said. All of it goes through
# `attention`; that the other mechanisms check each argument, too, is a test of its own.
# A row takes a line or two.
# fmt: off
REFUSED = [
    ("q", None, r"expected a floating tensor \(batch, heads, length, size\), got NoneType$"),
    ("q", [[1.0]], r"expected a floating tensor \(batch, heads, length, size\), got list$"),
    ("q", numbers(2, 3, 8), r"expected a floating tensor \(batch, .*\), got torch.float32 of shape \(2, 3, 8\)$"),
    ("q", numbers(2, 4, 3, 8, dtype=torch.int64), r"expected a floating tensor \(.*\), got torch.int64 of shape"),
    ("q", numbers(2, 4, 3, 8, dtype=torch.complex64), r"expected a floating tensor \(.*\), got torch.complex64 of"),
    ("k", numbers(2, 2, 3, 8) > 1, r"expected a floating tensor \(.*\), got torch.bool of shape"),
    ("k", numbers(2, 2, 3, 8, dtype=torch.float64), "expected q's torch.float32 on cpu, got torch.float64 on cpu$"),
    ("k", numbers(2, 2, 3, 8, device="meta"), "expected q's torch.float32 on cpu, got torch.float32 on meta$"),
    ("k", numbers(3, 2, 3, 8), r"expected shape \(2, G, S, 8\) to go with q, got \(3, 2, 3, 8\)$"),
    ("k", numbers(2, 2, 3, 7), r"expected shape \(2, G, S, 8\) to go with q, got \(2, 2, 3, 7\)$"),
    ("k", numbers(2, 3, 3, 8), "expected a number of heads that divides q's 4, got 3$"),
    ("k", numbers(2, 0, 3, 8), "expected a number of heads that divides q's 4, got 0$"),
    ("v", numbers(2, 2, 4, 6), r"expected shape \(2, 2, 3, 'Dv'\) to go with k, got \(2, 2, 4, 6\)$"),
    ("v", numbers(2, 2, 3, 6, dtype=torch.float16), "expected q's torch.float32 on cpu, got torch.float16 on cpu$"),
    ("mask", torch.ones(3, 3), r"expected a boolean tensor \(True = may attend\), got torch.float32 of shape \(3, 3"),
    ("mask", whole(1, 0, 1), r"expected a boolean tensor \(True = may attend\), got torch.int64 of shape \(3,\)$"),
    ("q", numbers(2, 4, 3, 8).to(torch.float8_e4m3fn), "expected a dense tensor of at least 16 bits a number, got "),
    ("mask", [True, False, True], r"expected a boolean tensor \(True = may attend\), got list$"),
    ("mask", torch.ones(3, 4) > 0, r"expected a shape that broadcasts to \(2, 4, 3, 3\), got \(3, 4\)$"),
    ("mask", torch.ones(1, 1, 1, 1, 3) > 0,
        r"expected a shape that broadcasts to \(2, 4, 3, 3\), got \(1, 1, 1, 1, 3\)$"),
    ("mask", torch.ones(3, 3, dtype=torch.bool, device="meta"), "expected device cpu, as the rest, got meta$"),
    ("bias", torch.ones(3, 3) > 0, r"expected a floating tensor, got torch.bool of shape \(3, 3\) \(a boolean one"),
    ("bias", whole(1, 2, 3), r"expected a floating tensor, got torch.int64 of shape \(3,\)"),
    ("bias", 0.5, "expected a floating tensor, got float"),
    ("bias", numbers(2, 3), r"expected a shape that broadcasts to \(2, 4, 3, 3\), got \(2, 3\)$"),
    ("bias", numbers(3, 3, device="meta"), "expected device cpu, as the rest, got meta$"),
    ("causal", "yes", "expected True or False, got 'yes'$"),
    ("causal", 1, "expected True or False, got 1$"),
    ("causal", None, "expected True or False, got None$"),
    ("scale", NAN, "expected a finite number or None, got nan$"),
    ("scale", -INF, "expected a finite number or None, got -inf$"),
    ("scale", "0.5", "expected a finite number or None, got '0.5'$"),
    ("scale", True, "expected a finite number or None, got True$"),
    ("scale", torch.tensor(0.5), r"expected a finite number or None, got torch.float32 of shape \(\)$"),
]
CONTRACT = [
    Row(f"attention: {name} is {told(value)}", attn_core.attention, inputs(**{name: value}), f"{name}: {said}")
    for name, value, said in REFUSED
]
CONTRACT += [
    Row("attention: heads of no size", attn_core.attention, inputs(q=numbers(2, 4, 3, 0), k=numbers(2, 2, 3, 0)),
        "q: expected a head size of at least 1, got 0$"),
    Row("attention: no heads", attn_core.attention, inputs(q=numbers(2, 0, 3, 8)),
        "k: expected a number of heads that divides q's 0, got 2$"),
]

same = numbers(2, 4, 3, 8)
SETTINGS = [
    Row("Dense: dropout of 1", attn_core.Dense, {"dropout": 1}, r"dropout: expected a probability in \[0, 1\), got 1$"),
    Row("Dense: dropout NaN", attn_core.Dense, {"dropout": NAN},
        r"dropout: expected a probability in \[0, 1\), got nan$"),
    Row("Dense: soft cap of 0", attn_core.Dense, {"soft_cap": 0},
        "soft_cap: expected None or a finite number above 0, got 0$"),
    Row("Dense: soft cap True", attn_core.Dense, {"soft_cap": True},
        "soft_cap: expected None or a finite number above 0, got True$"),
    Row("Dense: soft cap as text", attn_core.Dense, {"soft_cap": "50"},
        "soft_cap: expected None or a finite number above 0, got '50'$"),
    Row("Dense: dropout as text", attn_core.Dense, {"dropout": "0.1"},
        "dropout: expected a probability .*, got '0.1'$"),
    Row("Dense: dropout True", attn_core.Dense, {"dropout": True}, "dropout: expected a probability .*, got True$"),
    Row("flash: a bias to learn", attn_core.flash_attention, inputs(bias=numbers(3, 3).requires_grad_()),
        "bias: expected one without gradient"),
    Row("flash: a tile of none", attn_core.FlashAttention, {"query_tile": 0},
        "query_tile: expected an integer of at least 1, got 0$"),
    Row("flash: a tile of half", attn_core.FlashAttention, {"key_tile": 0.5},
        "key_tile: expected an integer of at least 1, got 0.5$"),
    Row("window: before −1", attn_core.SlidingWindow, {"before": -1},
        "before: expected an integer of at least 0, got -1$"),
    Row("window: before True", attn_core.SlidingWindow, {"before": True},
        "before: expected an integer of at least 0, got True$"),
    Row("window: after as text", attn_core.SlidingWindow, {"before": 1, "after": "1"},
        "after: expected an integer of at least 0, got '1'$"),
    Row("window: dilation 0", attn_core.SlidingWindow, {"before": 1, "dilation": 0},
        "dilation: expected an integer of at least 1, got 0$"),
    Row("window: a bias to learn", attn_core.SlidingWindow(1), inputs(bias=numbers(3, 3).requires_grad_()),
        "bias: expected one without gradient"),
    Row("block selection: blocks of 0", attn_core.BlockSelection, {"block_size": 0},
        "block_size: expected an integer of at least 1, got 0$"),
    Row("block selection: −1 selected", attn_core.BlockSelection, {"selected": -1},
        "selected: expected an integer of at least 0, got -1$"),
    Row("block selection: not its own block", attn_core.BlockSelection, {"local": 0},
        "local: expected an integer of at least 1, got 0$"),
    Row("block selection: a bias", attn_core.BlockSelection(2), inputs(bias=numbers(3, 3)),
        "bias: expected None, got one"),
    Row("block selection: a mask by query", attn_core.BlockSelection(2), inputs(mask=torch.ones(3, 3) > 0),
        r"mask: expected one that hides keys from all heads and queries, \(B, 1, 1, S\), got \(3, 3\)$"),
    Row("Linformer: no length", attn_core.Linformer, {"max_length": 0},
        "max_length: expected an integer of at least 1, got 0$"),
    Row("Linformer: too long", attn_core.Linformer(2, 2), inputs(),
        "k: expected at most 2 keys, as the projections', got 3$"),
    Row("Linformer: other heads", attn_core.Linformer(8, 2, num_kv_heads=4), inputs(),
        "k: expected 4 heads, one per projection, got 2$"),
    Row("Linformer: causal", attn_core.Linformer(8, 2), inputs(causal=True),
        "causal: expected False, since each slot mixes all keys, got True$"),
    Row("Linformer: a bias", attn_core.Linformer(8, 2), inputs(bias=numbers(3, 3)),
        "bias: expected None, since slots are no positions, got one$"),
    Row("Linformer: a mask by query", attn_core.Linformer(8, 2), inputs(mask=torch.ones(3, 3) > 0),
        r"mask: expected one that hides keys from all heads and queries, \(B, 1, 1, S\), got \(3, 3\)$"),
    Row("LSH: other keys", attn_core.LSHAttention(), {"q": same, "k": same.clone(), "v": same},
        "k: expected the same tensor as q, got another"),
    Row("LSH: a bias", attn_core.LSHAttention(), {"q": same, "k": same, "v": same, "bias": numbers(3, 3)},
        "bias: expected None, got one"),
    Row("LSH: a mask by query", attn_core.LSHAttention(), {"q": same, "k": same, "v": same,
        "mask": torch.ones(3, 3) > 0},
        r"mask: expected one that hides keys from all heads and queries, \(B, 1, 1, S\), got \(3, 3\)$"),
    Row("LSH: three buckets", attn_core.LSHAttention, {"num_buckets": 3},
        "num_buckets: expected 1 or an even number, got 3$"),
    Row("LSH: no rounds", attn_core.LSHAttention, {"rounds": 0}, "rounds: expected an integer of at least 1, got 0$"),
    Row("Performer: no features", attn_core.Performer, {"head_dim": 8, "features": 0},
        "features: expected an integer of at least 1, got 0$"),
    Row("Performer: another head size", attn_core.Performer(4, 2), inputs(),
        r"q: expected head size 4, as the features', got torch.float32 of shape \(2, 4, 3, 8\)$"),
    Row("Performer: a bias", attn_core.Performer(8, 2), inputs(bias=numbers(3, 3)),
        "bias: expected None, since there are no scores to add it to, got torch.float32"),
    Row("Performer: a mask by query", attn_core.Performer(8, 2), inputs(mask=torch.ones(3, 3) > 0),
        "mask: expected one that hides keys from all heads and queries"),
    Row("linear: a bias", attn_core.LinearAttention(), inputs(bias=numbers(3, 3)),
        "bias: expected None, since there are no scores to add it to, got torch.float32"),
    Row("linear: a mask by query", attn_core.LinearAttention(), inputs(mask=torch.ones(3, 3) > 0),
        "mask: expected one that hides keys from all heads and queries"),
    Row("additive: a scale", attn_core.AdditiveAttention(8, 5), inputs(scale=0.5),
        "scale: expected None, since additive scores are not scaled, got 0.5$"),
    Row("additive: another head size", attn_core.AdditiveAttention(4, 5), inputs(),
        "keys: expected size 4 on the last axis, got 8$"),
    *(
        Row(f"OnlineSoftmax: {name}", lambda state, scores, values: state.add(scores, values),
            {"state": attn_core.OnlineSoftmax((2, 3), 4), "scores": s, "values": v}, said)
        for name, s, v, said in (
            ("scores of other rows", numbers(3, 3, 5), numbers(5, 4),
                r"scores: expected torch.float32 of shape \(2, 3, 'n'\), got torch.float32 of shape \(3, 3, 5\)$"),
            ("scores of float64", numbers(2, 3, 5, dtype=torch.float64), numbers(5, 4),
                "scores: expected torch.float32 of shape"),
            ("a tile of nothing", numbers(2, 3, 0), numbers(0, 4), "scores: expected torch.float32 of shape"),
            ("values of another number", numbers(2, 3, 5), numbers(4, 4),
                r"values: expected shape \('…', 5, 4\), got \(4, 4\)$"),
            ("scores to learn", numbers(2, 3, 5).requires_grad_(), numbers(5, 4),
                "scores: expected no gradient, since they are overwritten"),
        )
    ),
    Row("masked_softmax: whole scores", masked_softmax, {"scores": whole(1, 2)},
        r"scores: expected a floating tensor \(…, T, S\), got torch.int64 of shape \(2,\)$"),
    Row("masked_softmax: a number", masked_softmax, {"scores": torch.tensor(1.0)},
        r"scores: expected a floating tensor \(…, T, S\), got torch.float32 of shape \(\)$"),
    Row("masked_softmax: a mask of floats", masked_softmax, {"scores": numbers(2, 3), "mask": torch.ones(2, 3)},
        r"mask: expected a boolean tensor \(True = may attend\), got torch.float32 of shape \(2, 3\)$"),
    Row("masked_softmax: a mask too large", masked_softmax, {"scores": numbers(2, 3), "mask": torch.ones(4, 2, 3) > 0},
        r"mask: expected a shape that broadcasts to \(2, 3\), got \(4, 2, 3\)$"),
    Row("attend: other values", attn_core.attend, {"scores": numbers(2, 3), "v": numbers(4, 5)},
        r"v: expected a floating tensor of shape \(…, 3, Dv\), one row a score, got torch.float32 of shape \(4, 5\)$"),
    Row("attend: values of one axis", attn_core.attend, {"scores": numbers(2, 3), "v": numbers(3)},
        r"v: expected a floating tensor of shape \(…, 3, Dv\), one row a score, got torch.float32 of shape \(3,\)$"),
    Row("Dot: sizes that differ", scores.Dot(), {"queries": numbers(2, 3), "keys": numbers(2, 4)},
        "queries: expected size 4 on the last axis, got 3$"),
    Row("Dot: keys of one axis", scores.Dot(), {"queries": numbers(2, 3), "keys": numbers(3)},
        "keys: expected a floating tensor of at least 2 axes, got torch.float32 of shape"),
    Row("ScaledDot: whole queries", scores.ScaledDot(), {"queries": ids(2, 3), "keys": numbers(2, 3)},
        "queries: expected a floating tensor of at least 2 axes, got torch.int64"),
    Row("General: size as text", scores.General, {"query_dim": "3", "key_dim": 4},
        "query_dim: expected an integer of at least 1, got '3'$"),
    Row("General: queries of another size", scores.General(3, 4), {"queries": numbers(2, 4), "keys": numbers(2, 4)},
        "queries: expected size 3 on the last axis, got 4$"),
    Row("Additive: hidden True", scores.Additive, {"query_dim": 3, "key_dim": 4, "hidden_dim": True},
        "hidden_dim: expected an integer of at least 1, got True$"),
]

PLACES = [
    Row("valid: lengths of floats", masks.length_mask, {"lengths": numbers(2), "size": 3},
        "lengths: expected an int64 or int32 tensor, got torch.float32"),
    Row("valid: lengths as a list", masks.length_mask, {"lengths": [1, 2], "size": 3},
        "lengths: expected an int64 or int32 tensor, got list$"),
    Row("valid: lengths of True", masks.length_mask, {"lengths": torch.tensor([True]), "size": 3},
        "lengths: expected an int64 or int32 tensor, got torch.bool"),
    Row("valid: a negative length", masks.length_mask, {"lengths": whole(1, -1), "size": 3},
        "lengths: expected lengths from 0 to 3, got -1$"),
    Row("valid: past the end", masks.length_mask, {"lengths": whole(1, 4), "size": 3},
        "lengths: expected lengths from 0 to 3, got 4$"),
    Row("valid: size −1", masks.length_mask, {"lengths": whole(0), "size": -1},
        "size: expected an integer of at least 0, got -1$"),
    Row("valid: size True", masks.length_mask, {"lengths": whole(0), "size": True},
        "size: expected an integer of at least 0, got True$"),
    Row("padding: three axes", masks.padding, {"lengths": ids(1, 1, 1), "size": 9},
        r"lengths: expected shape \(B,\) or \(B, T\), got \(1, 1, 1\)$"),
    Row("causal: −1 queries", masks.causal, {"query_length": -1, "key_length": 2},
        "query_length: expected an integer of at least 0, got -1$"),
    Row("causal: keys as text", masks.causal, {"query_length": 1, "key_length": "2"},
        "key_length: expected an integer of at least 0, got '2'$"),
    Row("causal: a plain offset", masks.causal, {"query_length": 1, "key_length": 2, "offset": 1},
        r"offset: expected an int64 or int32 tensor of shape \(B,\), got int$"),
    Row("same_group: one axis", masks.same_group, {"groups": ids(3)},
        "groups: expected an int64 or int32 tensor of 2 axes, got torch.int64 of shape"),
    Row("sinusoidal: length −1", positions.sinusoidal, {"length": -1, "dim": 4},
        "length: expected an integer of at least 0, got -1$"),
    Row("sinusoidal: size 0", positions.sinusoidal, {"length": 1, "dim": 0},
        "dim: expected an integer of at least 1, got 0$"),
    Row("sinusoidal: base NaN", positions.sinusoidal, {"length": 1, "dim": 4, "base": NAN},
        "base: expected a finite number above 0, got nan$"),
    Row("sinusoidal: base 0", positions.Sinusoidal, {"dim": 4, "base": 0},
        "base: expected a finite number above 0, got 0$"),
    Row("Sinusoidal: another size", positions.Sinusoidal(4), {"x": numbers(1, 2, 5)},
        r"x: expected a floating tensor of shape \(batch, length, 4\), got torch.float32 of shape \(1, 2, 5\)$"),
    Row("Sinusoidal: offset −1", positions.Sinusoidal(4), {"x": numbers(1, 2, 4), "offset": -1},
        "offset: expected an integer of at least 0, got -1$"),
    Row("Sinusoidal: offsets of others", positions.Sinusoidal(4), {"x": numbers(1, 2, 4), "offset": whole(1, 2)},
        r"offset: expected an int64 or int32 tensor of shape \(1,\), got torch.int64 of shape \(2,\)$"),
    Row("Learned: past the end", positions.Learned(3, 4), {"x": numbers(1, 2, 4), "offset": 2},
        "x: expected positions below max_length 3, got position 3$"),
    Row("Learned: offset −2 in a row", positions.Learned(3, 4), {"x": numbers(2, 2, 4), "offset": whole(0, -2)},
        "offset: expected integers of at least 0, got -2$"),
    Row("Rotary: odd", positions.Rotary, {"head_dim": 5},
        "head_dim: expected an even size, since entries are rotated in pairs, got 5$"),
    Row("Rotary: base as text", positions.Rotary, {"head_dim": 4, "base": "1e4"},
        "base: expected a finite number above 0, got '1e4'$"),
    Row("ALiBi: no heads", positions.ALiBi, {"num_heads": 0}, "num_heads: expected an integer of at least 1, got 0$"),
]


def layer(**options):
    return MultiHeadAttention(8, 2, **options)


def filled(capacity=4, lengths=(2, 2)):
    """A cache of two rows, these many tokens in each."""
    cache = KVCache(2, 2, capacity, 4)
    most = max(lengths)
    cache.append(numbers(2, 2, most, 4), numbers(2, 2, most, 4), whole(*lengths))
    return cache


def read(layer, queries, cache, **options):
    with torch.no_grad():
        return layer(queries, cache=cache, causal=True, **options)


def held(**others):
    return {"cache": filled(), "k": numbers(2, 2, 1, 4), "v": numbers(2, 2, 1, 4)} | others


def append(cache, k, v, lengths=None):
    cache.append(k, v, lengths)


class _Broken(nn.Module):
    """A mechanism that fails when it is used."""

    def forward(self, q, k, v, **options):
        raise ValueError("q: expected luck, got none")


latent = {"model_dim": 8, "num_heads": 2, "latent_dim": 4, "rotary_dim": 2}
uneven = {"layer": layer(), "queries": numbers(2, 2, 8), "cache": filled(lengths=(2, 1))}
LAYERS = [
    Row("heads that do not divide", MultiHeadAttention, {"model_dim": 8, "num_heads": 3},
        "num_heads: expected a number that divides model_dim 8, got 3$"),
    Row("key heads that do not divide", MultiHeadAttention, {"model_dim": 8, "num_heads": 4, "num_kv_heads": 3},
        "num_kv_heads: expected a number that divides num_heads 4, got 3$"),
    Row("model size as float", MultiHeadAttention, {"model_dim": 8.0, "num_heads": 2},
        "model_dim: expected an integer of at least 1, got 8.0$"),
    Row("sharing with other keys", MultiHeadAttention, {"model_dim": 8, "num_heads": 2, "key_dim": 4,
        "share_query_key": True},
        "share_query_key: expected num_kv_heads 2 and key_dim 8, those of the queries, got 2 and 4$"),
    Row("positions for the embedding", MultiHeadAttention, {"model_dim": 8, "num_heads": 2,
        "positions": positions.Sinusoidal(8)},
        "positions: expected some inside the scores, as Rotary or ALiBi, got Sinusoidal$"),
    Row("positions of other heads", layer(positions=positions.ALiBi(4)), {"queries": numbers(1, 3, 8)},
        r"positions: expected some for 2 heads, got ALiBi\(num_heads=4\)$"),
    Row("positions of another head size", layer(positions=positions.Rotary(8)), {"queries": numbers(1, 3, 8)},
        r"x: expected a floating tensor \(batch, heads, length, 8\), got torch.float32 of shape \(1, 2, 3, 4\)$"),
    Row("mechanism: the class", MultiHeadAttention, {"model_dim": 8, "num_heads": 2, "mechanism": attn_core.Dense},
        r"mechanism: expected a made one, as Dense\(\), got the class itself$"),
    Row("mechanism: its name", MultiHeadAttention, {"model_dim": 8, "num_heads": 2, "mechanism": "dense"},
        "mechanism: expected a callable of the contract, got str$"),
    Row("from_torch: extra keys", MultiHeadAttention.from_torch,
        {"layer": nn.MultiheadAttention(4, 2, add_bias_kv=True)},
        "layer: expected none with add_bias_kv or add_zero_attn, got one$"),
    Row("queries of two axes", layer(), {"queries": numbers(3, 8)},
        r"queries: expected a floating tensor of shape \(batch, length, 8\), got torch.float32 of shape \(3, 8\)$"),
    Row("queries as ids", layer(), {"queries": ids(1, 3, 8)}, "queries: expected a floating tensor .* got torch.int64"),
    Row("queries of float64", layer(), {"queries": numbers(1, 3, 8, dtype=torch.float64)},
        "queries: expected dtype torch.float32, the weights', got torch.float64$"),
    Row("queries elsewhere", layer(), {"queries": numbers(1, 3, 8, device="meta")},
        "queries: expected device cpu, the weights', got meta$"),
    Row("keys of another size", layer(), {"queries": numbers(1, 3, 8), "keys": numbers(1, 3, 4)},
        r"keys: expected a floating tensor of shape \(batch, length, 8\), got"),
    Row("values of another length", layer(), {"queries": numbers(1, 3, 8), "keys": numbers(1, 3, 8),
        "values": numbers(1, 2, 8)}, r"values: expected leading axes \(1, 3\), as keys, got \(1, 2, 8\)$"),
    Row("lengths without a cache", layer(), {"queries": numbers(1, 3, 8), "lengths": whole(3)},
        "lengths: expected a cache with them"),
    Row("a cache and not causal", layer(), {"queries": numbers(2, 1, 8), "cache": filled()},
        "cache: expected causal=True and no keys or values of their own"),
    Row("a boolean bias beside ALiBi", layer(positions=positions.ALiBi(2)),
        {"queries": numbers(1, 3, 8), "bias": torch.ones(3, 3) > 0},
        r"bias: expected a floating tensor, got torch.bool of shape \(3, 3\)"),
    Row("a wrong bias beside ALiBi", layer(positions=positions.ALiBi(2)),
        {"queries": numbers(1, 3, 8), "bias": numbers(3, 4)},
        r"bias: expected a shape that broadcasts to \(1, 2, 3, 3\), got \(3, 4\)$"),
    Row("cached: no room", read, {"layer": layer(), "queries": numbers(2, 3, 8), "cache": filled()},
        "k: expected at most 4 tokens a row, the cache's capacity, got 5 with the 2 that are cached$"),
    Row("cached: a mask of floats", read, {"layer": layer(), "queries": numbers(2, 1, 8), "cache": filled(),
        "mask": torch.ones(1, 3)}, "mask: expected a boolean tensor"),
    Row("cached, uneven: a mask of floats", read, {**uneven, "mask": torch.ones(2, 4)},
        "mask: expected a boolean tensor"),
    Row("cached, uneven: a mask too wide", read, {**uneven, "mask": torch.ones(2, 5) > 0},
        r"mask: expected a shape that broadcasts to \(2, 2, 2, 4\), got \(2, 5\)$"),
    Row("cached: a wrong bias and ALiBi", read, {"layer": layer(positions=positions.ALiBi(2)),
        "queries": numbers(2, 1, 8), "cache": filled(), "bias": numbers(5)},
        r"bias: expected a shape that broadcasts to \(2, 2, 1, 3\), got \(5,\)$"),
    Row("cached: the mechanism fails", read, {"layer": layer(mechanism=_Broken()), "queries": numbers(2, 1, 8),
        "cache": filled()}, "q: expected luck, got none$"),
    Row("cached: a window, uneven", read, {**uneven, "layer": layer(mechanism=attn_core.SlidingWindow(1))},
        "cache: expected rows of one length without padding, as SlidingWindow needs, got tensor"),
    Row("KVCache: no rows", KVCache, {"batch_size": 0, "num_kv_heads": 1, "capacity": 1, "head_dim": 1},
        "batch_size: expected an integer of at least 1, got 0$"),
    Row("KVCache: capacity 1.5", KVCache, {"batch_size": 1, "num_kv_heads": 1, "capacity": 1.5, "head_dim": 1},
        "capacity: expected an integer of at least 1, got 1.5$"),
    Row("append: too much", append, held(k=numbers(2, 2, 3, 4), v=numbers(2, 2, 3, 4)),
        "k: expected at most 4 tokens a row, the cache's capacity, got 5 with the 2 that are cached$"),
    Row("append: other heads", append, held(k=numbers(2, 1, 1, 4)),
        r"k: expected shape \(2, 2, T, 4\), got torch.float32 of shape \(2, 1, 1, 4\)$"),
    Row("append: a list", append, held(v=[1.0]), r"v: expected shape \(2, 2, T, 4\), got list$"),
    Row("append: float64", append, held(v=numbers(2, 2, 1, 4, dtype=torch.float64)),
        "v: expected the cache's torch.float32 on cpu, got torch.float64 on cpu$"),
    Row("append: elsewhere", append, held(k=numbers(2, 2, 1, 4, device="meta")),
        "k: expected the cache's torch.float32 on cpu, got torch.float32 on meta$"),
    Row("append: to learn", append, held(k=numbers(2, 2, 1, 4).requires_grad_()),
        "k: expected no gradient, since a cache passes none back"),
    Row("append: fewer values", append, held(k=numbers(2, 2, 2, 4)), "v: expected 2 tokens, as many as k, got 1$"),
    Row("append: a length too many", append, held(lengths=whole(1, 2)),
        "lengths: expected lengths from 0 to 1, got 2$"),
    Row("append: one length for two", append, held(lengths=whole(1)),
        r"lengths: expected shape \(2,\), got \(1,\)$"),
    Row("truncate: to more", lambda cache, lengths: cache.truncate(lengths),
        {"cache": filled(lengths=(2, 1)), "lengths": whole(2, 2)},
        r"lengths: expected at most \[2, 1\] tokens, got \[2, 2\]$"),
    Row("truncate: −1", lambda cache, lengths: cache.truncate(lengths), {"cache": filled(), "lengths": whole(2, -1)},
        "lengths: expected lengths from 0 to 2, got -1$"),
    Row("reorder: a row that is not there", lambda cache, rows: cache.reorder(rows),
        {"cache": filled(), "rows": whole(0, 2)}, r"rows: expected rows from 0 to 1, at least one, got \[0, 2\]$"),
    Row("reorder: rows by True", lambda cache, rows: cache.reorder(rows),
        {"cache": filled(), "rows": torch.tensor([True, False])},
        "rows: expected an int64 or int32 tensor of 1 axes, got torch.bool"),
    Row("KVCache: values of size −1", KVCache, {"batch_size": 1, "num_kv_heads": 1, "capacity": 1, "head_dim": 1,
        "value_dim": -1}, "value_dim: expected an integer of at least 0, got -1$"),
    Row("latent: no size", attn_core.LatentAttention, {**latent, "latent_dim": 0},
        "latent_dim: expected an integer of at least 1, got 0$"),
    Row("latent: an odd rotary part", attn_core.LatentAttention, {**latent, "rotary_dim": 3},
        "rotary_dim: expected an even size, since entries are rotated in pairs, got 3$"),
    Row("latent: a norm that is made", attn_core.LatentAttention, {**latent, "norm": nn.RMSNorm(4)},
        "norm: expected a function that makes one, got RMSNorm$"),
    Row("latent: heads", attn_core.LatentAttention, {**latent, "num_heads": 3},
        "num_heads: expected a number that divides model_dim 8, got 3$"),
    Row("latent: x elsewhere", attn_core.LatentAttention(**latent), {"x": numbers(1, 3, 8, device="meta")},
        "x: expected device cpu, the weights', got meta$"),
    Row("latent: lengths without a cache", attn_core.LatentAttention(**latent),
        {"x": numbers(1, 3, 8), "lengths": whole(3)}, "lengths: expected a cache with them"),
    Row("latent: a cache of keys", attn_core.LatentAttention(**latent),
        {"x": numbers(2, 1, 8), "causal": True, "cache": filled()},
        r"k: expected shape \(2, 2, T, 4\), got torch.float32 of shape \(2, 1, 1, 6\)$"),
    Row("Longformer: window −1", attn_core.LongformerAttention, {"model_dim": 8, "num_heads": 2, "window": -1},
        "window: expected an integer of at least 0, got -1$"),
    Row("Longformer: heads", attn_core.LongformerAttention, {"model_dim": 8, "num_heads": 3, "window": 1},
        "num_heads: expected a number that divides model_dim 8, got 3$"),
    Row("Longformer: x elsewhere", attn_core.LongformerAttention(8, 2, 1), {"x": numbers(1, 3, 8, device="meta")},
        "x: expected device cpu, the weights', got meta$"),
    Row("Longformer: places for globals", attn_core.LongformerAttention(8, 2, 1),
        {"x": numbers(1, 3, 8), "global_tokens": whole(0)},
        r"global_tokens: expected a boolean tensor of shape \(1, 3\), got torch.int64"),
    Row("Longformer: a mask of 4 axes", attn_core.LongformerAttention(8, 2, 1),
        {"x": numbers(1, 3, 8), "mask": torch.ones(1, 1, 1, 3) > 0},
        r"mask: expected a boolean tensor of shape \(1, 3\), got torch.bool of shape \(1, 1, 1, 3\)$"),
]


def started(*lengths, blocks=4):
    """Tables of blocks of two slots, with sequences of these lengths."""
    tables = BlockTables(blocks, 2)
    for tokens in lengths:
        tables.append(tables.add_sequence(), tokens)
    return tables


def free(tables, sequence):
    tables.free(sequence)


def paged(**others):
    """A row of three tokens in two blocks of two, asked by its last."""
    given = {"q": numbers(1, 4, 1, 8), "keys": numbers(3, 2, 2, 8), "values": numbers(3, 2, 2, 6)}
    return given | {"table": whole(2, 0)[None], "lengths": whole(3)} | others


def gone():
    tables = started(2)
    tables.free(0)
    return tables


slots = {"pool": BlockPool(3, 2, 1, 4), "slots": [(0, 0)], "k": numbers(1, 1, 4), "v": numbers(1, 1, 4)}


def write(pool, slots, k, v):
    pool.write(slots, k, v)


PAGED = [
    Row("tables: blocks of none", BlockTables, {"num_blocks": 3, "block_size": 0},
        "block_size: expected an integer of at least 1, got 0$"),
    Row("tables: blocks as text", BlockTables, {"num_blocks": "3", "block_size": 1},
        "num_blocks: expected an integer of at least 1, got '3'$"),
    Row("free: an unknown sequence", free, {"tables": started(2), "sequence": 1},
        r"sequence: expected one of \[0\], got 1$"),
    Row("free: twice", free, {"tables": gone(), "sequence": 0}, r"sequence: expected one of \[\], got 0$"),
    Row("free: False for 0", free, {"tables": started(2), "sequence": False},
        r"sequence: expected one of \[0\], got False$"),
    Row("fork: more than there is", lambda tables: tables.fork(0, 3), {"tables": started(2)},
        "tokens: expected an integer from 0 to 2, got 3$"),
    Row("truncate a sequence: −1", lambda tables: tables.truncate(0, -1), {"tables": started(2)},
        "tokens: expected an integer from 0 to 2, got -1$"),
    Row("append: −1 tokens", lambda tables: tables.append(0, -1), {"tables": started(2)},
        "tokens: expected an integer of at least 0, got -1$"),
    Row("append: half a token", lambda tables: tables.append(0, 0.5), {"tables": started(2)},
        "tokens: expected an integer of at least 0, got 0.5$"),
    Row("append_all: one is unknown", lambda tables, growth: tables.append_all(growth),
        {"tables": started(2), "growth": {0: 1, 9: 1}}, r"sequence: expected one of \[0\], got 9$"),
    Row("as_tensors: unknown", as_tensors, {"tables": started(2), "sequences": [0, 7]},
        r"sequence: expected one of \[0\], got 7$"),
    Row("pool: no heads", BlockPool, {"num_blocks": 1, "block_size": 1, "num_kv_heads": 0, "head_dim": 1},
        "num_kv_heads: expected an integer of at least 1, got 0$"),
    Row("write: more keys than slots", write, {**slots, "k": numbers(2, 1, 4)},
        r"k: expected shape \(1, 1, 4\), one row a slot, got torch.float32 of shape \(2, 1, 4\)$"),
    Row("write: elsewhere", write, {**slots, "v": numbers(1, 1, 4, device="meta")},
        "v: expected the pool's torch.float32 on cpu, got torch.float32 on meta$"),
    Row("paged: q of float64", paged_attention, paged(q=numbers(1, 4, 1, 8, dtype=torch.float64)),
        "keys: expected q's torch.float64 on cpu, got torch.float32 on cpu$"),
    Row("paged: q to learn", paged_attention, paged(q=numbers(1, 4, 1, 8).requires_grad_()),
        "q: expected no gradient, since a cache passes none back"),
    Row("paged: heads that do not divide", paged_attention, paged(q=numbers(1, 3, 1, 8)),
        r"keys: expected a pool's shape \(N, G, block_size, 8\), G dividing q's 3 heads, got"),
    Row("paged: other values", paged_attention, paged(values=numbers(2, 2, 2, 6)),
        r"values: expected shape \(3, 2, 2, 'Dv'\), as keys, got \(2, 2, 2, 6\)$"),
    Row("paged: a table of floats", paged_attention, paged(table=torch.ones(1, 2)),
        "table: expected an int64 or int32 tensor of 2 axes, got torch.float32"),
    Row("paged: a table of another batch", paged_attention, paged(table=ids(2, 2)),
        "table: expected 1 rows, as q has, got 2$"),
    Row("paged: longer than its blocks", paged_attention, paged(lengths=whole(5)),
        "lengths: expected lengths from 0 to 4, got 5$"),
    Row("paged: a negative length", paged_attention, paged(lengths=whole(-1)),
        "lengths: expected lengths from 0 to 4, got -1$"),
    Row("paged: scale NaN", paged_attention, paged(scale=NAN), "scale: expected a finite number or None, got nan$"),
    Row("paged: scale True", paged_attention, paged(scale=True), "scale: expected a finite number or None, got True$"),
]
