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
    ("q", None),
    ("q", [[1.0]]),
    ("q", numbers(2, 3, 8)),
    ("q", numbers(2, 4, 3, 8, dtype=torch.int64)),
    ("q", numbers(2, 4, 3, 8, dtype=torch.complex64)),
    ("k", numbers(2, 2, 3, 8) > 1),
    ("k", numbers(2, 2, 3, 8, dtype=torch.float64)),
    ("k", numbers(2, 2, 3, 8, device="meta")),
    ("k", numbers(3, 2, 3, 8)),
    ("k", numbers(2, 2, 3, 7)),
    ("k", numbers(2, 3, 3, 8)),
    ("k", numbers(2, 0, 3, 8)),
    ("v", numbers(2, 2, 4, 6)),
    ("v", numbers(2, 2, 3, 6, dtype=torch.float16)),
    ("mask", torch.ones(3, 3)),
    ("mask", whole(1, 0, 1)),
    ("q", numbers(2, 4, 3, 8).to(torch.float8_e4m3fn)),
    ("mask", [True, False, True]),
    ("mask", torch.ones(3, 4) > 0),
    ("mask", torch.ones(1, 1, 1, 1, 3) > 0),
    ("mask", torch.ones(3, 3, dtype=torch.bool, device="meta")),
    ("bias", torch.ones(3, 3) > 0),
    ("bias", whole(1, 2, 3)),
    ("bias", 0.5),
    ("bias", numbers(2, 3)),
    ("bias", numbers(3, 3, device="meta")),
    ("causal", "yes"),
    ("causal", 1),
    ("causal", None),
    ("scale", NAN),
    ("scale", -INF),
    ("scale", "0.5"),
    ("scale", True),
    ("scale", torch.tensor(0.5)),
]
CONTRACT = [
    Row(f"attention: {name} is {told(value)}", attn_core.attention, inputs(**{name: value}), f"{name}: expected")
    for name, value in REFUSED
]
CONTRACT += [
    Row("attention: heads of no size", attn_core.attention, inputs(q=numbers(2, 4, 3, 0), k=numbers(2, 2, 3, 0)),
        "q: expected"),
    Row("attention: no heads", attn_core.attention, inputs(q=numbers(2, 0, 3, 8)), "k: expected"),
]

same = numbers(2, 4, 3, 8)
SETTINGS = [
    Row("Linformer: too long", attn_core.Linformer(2, 2), inputs(), "k: expected"),
    Row("LSH: three buckets", attn_core.LSHAttention, {"num_buckets": 3}, "num_buckets: expected"),
    Row("Performer: another head size", attn_core.Performer(4, 2), inputs(), "q: expected"),
    Row("additive: another head size", attn_core.AdditiveAttention(4, 5), inputs(), "keys: expected"),
    *(
        Row(f"OnlineSoftmax: {name}", lambda state, scores, values: state.add(scores, values),
            {"state": attn_core.OnlineSoftmax((2, 3), 4), "scores": s, "values": v}, said)
        for name, s, v, said in (
            ("scores of other rows", numbers(3, 3, 5), numbers(5, 4), "scores: expected"),
            ("scores of float64", numbers(2, 3, 5, dtype=torch.float64), numbers(5, 4), "scores: expected"),
            ("a tile of nothing", numbers(2, 3, 0), numbers(0, 4), "scores: expected"),
            ("values of another number", numbers(2, 3, 5), numbers(4, 4), "values: expected"),
            ("scores to learn", numbers(2, 3, 5).requires_grad_(), numbers(5, 4), "scores: expected"),
        )
    ),
    Row("masked_softmax: whole scores", masked_softmax, {"scores": whole(1, 2)}, "scores: expected"),
    Row("masked_softmax: a number", masked_softmax, {"scores": torch.tensor(1.0)}, "scores: expected"),
    Row("masked_softmax: a mask of floats", masked_softmax, {"scores": numbers(2, 3), "mask": torch.ones(2, 3)},
        "mask: expected"),
    Row("masked_softmax: a mask too large", masked_softmax, {"scores": numbers(2, 3), "mask": torch.ones(4, 2, 3) > 0},
        "mask: expected"),
    Row("attend: other values", attn_core.attend, {"scores": numbers(2, 3), "v": numbers(4, 5)}, "v: expected"),
    Row("attend: values of one axis", attn_core.attend, {"scores": numbers(2, 3), "v": numbers(3)}, "v: expected"),
    Row("Dot: sizes that differ", scores.Dot(), {"queries": numbers(2, 3), "keys": numbers(2, 4)}, "queries: expected"),
    Row("Dot: keys of one axis", scores.Dot(), {"queries": numbers(2, 3), "keys": numbers(3)}, "keys: expected"),
    Row("ScaledDot: whole queries", scores.ScaledDot(), {"queries": ids(2, 3), "keys": numbers(2, 3)},
        "queries: expected"),
    Row("General: size as text", scores.General, {"query_dim": "3", "key_dim": 4}, "query_dim: expected"),
    Row("General: queries of another size", scores.General(3, 4), {"queries": numbers(2, 4), "keys": numbers(2, 4)},
        "queries: expected"),
    Row("Additive: hidden True", scores.Additive, {"query_dim": 3, "key_dim": 4, "hidden_dim": True},
        "hidden_dim: expected"),
]

PLACES = [
    Row("valid: lengths of floats", masks.length_mask, {"lengths": numbers(2), "size": 3}, "lengths: expected"),
    Row("valid: lengths as a list", masks.length_mask, {"lengths": [1, 2], "size": 3}, "lengths: expected"),
    Row("valid: lengths of True", masks.length_mask, {"lengths": torch.tensor([True]), "size": 3}, "lengths: expected"),
    Row("valid: a negative length", masks.length_mask, {"lengths": whole(1, -1), "size": 3}, "lengths: expected"),
    Row("valid: past the end", masks.length_mask, {"lengths": whole(1, 4), "size": 3}, "lengths: expected"),
    Row("valid: size −1", masks.length_mask, {"lengths": whole(0), "size": -1}, "size: expected"),
    Row("valid: size True", masks.length_mask, {"lengths": whole(0), "size": True}, "size: expected"),
    Row("padding: three axes", masks.padding, {"lengths": ids(1, 1, 1), "size": 9}, "lengths: expected"),
    Row("causal: −1 queries", masks.causal, {"query_length": -1, "key_length": 2}, "query_length: expected"),
    Row("causal: keys as text", masks.causal, {"query_length": 1, "key_length": "2"}, "key_length: expected"),
    Row("causal: a plain offset", masks.causal, {"query_length": 1, "key_length": 2, "offset": 1}, "offset: expected"),
    Row("same_group: one axis", masks.same_group, {"groups": ids(3)}, "groups: expected"),
    Row("sinusoidal: length −1", positions.sinusoidal, {"length": -1, "dim": 4}, "length: expected"),
    Row("sinusoidal: size 0", positions.sinusoidal, {"length": 1, "dim": 0}, "dim: expected"),
    Row("sinusoidal: base NaN", positions.sinusoidal, {"length": 1, "dim": 4, "base": NAN}, "base: expected"),
    Row("sinusoidal: base 0", positions.Sinusoidal, {"dim": 4, "base": 0}, "base: expected"),
    Row("Sinusoidal: another size", positions.Sinusoidal(4), {"x": numbers(1, 2, 5)}, "x: expected"),
    Row("Sinusoidal: offset −1", positions.Sinusoidal(4), {"x": numbers(1, 2, 4), "offset": -1}, "offset: expected"),
    Row("Sinusoidal: offsets of others", positions.Sinusoidal(4), {"x": numbers(1, 2, 4), "offset": whole(1, 2)},
        "offset: expected"),
    Row("Learned: past the end", positions.Learned(3, 4), {"x": numbers(1, 2, 4), "offset": 2}, "x: expected"),
    Row("Learned: offset −2 in a row", positions.Learned(3, 4), {"x": numbers(2, 2, 4), "offset": whole(0, -2)},
        "offset: expected"),
    Row("Rotary: odd", positions.Rotary, {"head_dim": 5}, "head_dim: expected"),
    Row("Rotary: base as text", positions.Rotary, {"head_dim": 4, "base": "1e4"}, "base: expected"),
    Row("ALiBi: no heads", positions.ALiBi, {"num_heads": 0}, "num_heads: expected"),
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
        raise ValueError("q: expected")


latent = {"model_dim": 8, "num_heads": 2, "latent_dim": 4, "rotary_dim": 2}
uneven = {"layer": layer(), "queries": numbers(2, 2, 8), "cache": filled(lengths=(2, 1))}
LAYERS = [
    Row("heads that do not divide", MultiHeadAttention, {"model_dim": 8, "num_heads": 3}, "num_heads: expected"),
    Row("key heads that do not divide", MultiHeadAttention, {"model_dim": 8, "num_heads": 4, "num_kv_heads": 3},
        "num_kv_heads: expected"),
    Row("model size as float", MultiHeadAttention, {"model_dim": 8.0, "num_heads": 2}, "model_dim: expected"),
    Row("sharing with other keys", MultiHeadAttention, {"model_dim": 8, "num_heads": 2, "key_dim": 4,
        "share_query_key": True},
        "share_query_key: expected"),
    Row("positions for the embedding", MultiHeadAttention, {"model_dim": 8, "num_heads": 2,
        "positions": positions.Sinusoidal(8)},
        "positions: expected"),
    Row("positions of other heads", layer(positions=positions.ALiBi(4)), {"queries": numbers(1, 3, 8)},
        "positions: expected"),
    Row("positions of another head size", layer(positions=positions.Rotary(8)), {"queries": numbers(1, 3, 8)},
        "x: expected"),
    Row("mechanism: the class", MultiHeadAttention, {"model_dim": 8, "num_heads": 2, "mechanism": attn_core.Dense},
        "mechanism: expected"),
    Row("mechanism: its name", MultiHeadAttention, {"model_dim": 8, "num_heads": 2, "mechanism": "dense"},
        "mechanism: expected"),
    Row("from_torch: extra keys", MultiHeadAttention.from_torch,
        {"layer": nn.MultiheadAttention(4, 2, add_bias_kv=True)},
        "layer: expected"),
    Row("queries of two axes", layer(), {"queries": numbers(3, 8)}, "queries: expected"),
    Row("queries as ids", layer(), {"queries": ids(1, 3, 8)}, "queries: expected"),
    Row("queries of float64", layer(), {"queries": numbers(1, 3, 8, dtype=torch.float64)}, "queries: expected"),
    Row("queries elsewhere", layer(), {"queries": numbers(1, 3, 8, device="meta")}, "queries: expected"),
    Row("keys of another size", layer(), {"queries": numbers(1, 3, 8), "keys": numbers(1, 3, 4)}, "keys: expected"),
    Row("values of another length", layer(), {"queries": numbers(1, 3, 8), "keys": numbers(1, 3, 8),
        "values": numbers(1, 2, 8)}, "values: expected"),
    Row("lengths without a cache", layer(), {"queries": numbers(1, 3, 8), "lengths": whole(3)}, "lengths: expected"),
    Row("a cache and not causal", layer(), {"queries": numbers(2, 1, 8), "cache": filled()}, "cache: expected"),
    Row("a boolean bias beside ALiBi", layer(positions=positions.ALiBi(2)),
        {"queries": numbers(1, 3, 8), "bias": torch.ones(3, 3) > 0},
        "bias: expected"),
    Row("a wrong bias beside ALiBi", layer(positions=positions.ALiBi(2)),
        {"queries": numbers(1, 3, 8), "bias": numbers(3, 4)},
        "bias: expected"),
    Row("cached: no room", read, {"layer": layer(), "queries": numbers(2, 3, 8), "cache": filled()}, "k: expected"),
    Row("cached: a mask of floats", read, {"layer": layer(), "queries": numbers(2, 1, 8), "cache": filled(),
        "mask": torch.ones(1, 3)}, "mask: expected"),
    Row("cached, uneven: a mask of floats", read, {**uneven, "mask": torch.ones(2, 4)}, "mask: expected"),
    Row("cached, uneven: a mask too wide", read, {**uneven, "mask": torch.ones(2, 5) > 0}, "mask: expected"),
    Row("cached: a wrong bias and ALiBi", read, {"layer": layer(positions=positions.ALiBi(2)),
        "queries": numbers(2, 1, 8), "cache": filled(), "bias": numbers(5)},
        "bias: expected"),
    Row("cached: the mechanism fails", read, {"layer": layer(mechanism=_Broken()), "queries": numbers(2, 1, 8),
        "cache": filled()}, "q: expected"),
    Row("cached: a window, uneven", read, {**uneven, "layer": layer(mechanism=attn_core.SlidingWindow(1))},
        "cache: expected"),
    Row("KVCache: no rows", KVCache, {"batch_size": 0, "num_kv_heads": 1, "capacity": 1, "head_dim": 1},
        "batch_size: expected"),
    Row("KVCache: capacity 1.5", KVCache, {"batch_size": 1, "num_kv_heads": 1, "capacity": 1.5, "head_dim": 1},
        "capacity: expected"),
    Row("append: too much", append, held(k=numbers(2, 2, 3, 4), v=numbers(2, 2, 3, 4)), "k: expected"),
    Row("append: other heads", append, held(k=numbers(2, 1, 1, 4)), "k: expected"),
    Row("append: a list", append, held(v=[1.0]), "v: expected"),
    Row("append: float64", append, held(v=numbers(2, 2, 1, 4, dtype=torch.float64)), "v: expected"),
    Row("append: elsewhere", append, held(k=numbers(2, 2, 1, 4, device="meta")), "k: expected"),
    Row("append: to learn", append, held(k=numbers(2, 2, 1, 4).requires_grad_()), "k: expected"),
    Row("append: fewer values", append, held(k=numbers(2, 2, 2, 4)), "v: expected"),
    Row("append: a length too many", append, held(lengths=whole(1, 2)), "lengths: expected"),
    Row("append: one length for two", append, held(lengths=whole(1)), "lengths: expected"),
    Row("truncate: to more", lambda cache, lengths: cache.truncate(lengths),
        {"cache": filled(lengths=(2, 1)), "lengths": whole(2, 2)},
        "lengths: expected"),
    Row("truncate: −1", lambda cache, lengths: cache.truncate(lengths), {"cache": filled(), "lengths": whole(2, -1)},
        "lengths: expected"),
    Row("reorder: a row that is not there", lambda cache, rows: cache.reorder(rows),
        {"cache": filled(), "rows": whole(0, 2)}, "rows: expected"),
    Row("reorder: rows by True", lambda cache, rows: cache.reorder(rows),
        {"cache": filled(), "rows": torch.tensor([True, False])},
        "rows: expected"),
    Row("KVCache: values of size −1", KVCache, {"batch_size": 1, "num_kv_heads": 1, "capacity": 1, "head_dim": 1,
        "value_dim": -1}, "value_dim: expected"),
    Row("latent: no size", attn_core.LatentAttention, {**latent, "latent_dim": 0}, "latent_dim: expected"),
    Row("latent: an odd rotary part", attn_core.LatentAttention, {**latent, "rotary_dim": 3}, "rotary_dim: expected"),
    Row("latent: heads", attn_core.LatentAttention, {**latent, "num_heads": 3}, "num_heads: expected"),
    Row("latent: x elsewhere", attn_core.LatentAttention(**latent), {"x": numbers(1, 3, 8, device="meta")},
        "x: expected"),
    Row("latent: lengths without a cache", attn_core.LatentAttention(**latent),
        {"x": numbers(1, 3, 8), "lengths": whole(3)}, "lengths: expected"),
    Row("latent: a cache of keys", attn_core.LatentAttention(**latent),
        {"x": numbers(2, 1, 8), "causal": True, "cache": filled()},
        "k: expected"),
    Row("Longformer: window −1", attn_core.LongformerAttention, {"model_dim": 8, "num_heads": 2, "window": -1},
        "window: expected"),
    Row("Longformer: heads", attn_core.LongformerAttention, {"model_dim": 8, "num_heads": 3, "window": 1},
        "num_heads: expected"),
    Row("Longformer: x elsewhere", attn_core.LongformerAttention(8, 2, 1), {"x": numbers(1, 3, 8, device="meta")},
        "x: expected"),
    Row("Longformer: places for globals", attn_core.LongformerAttention(8, 2, 1),
        {"x": numbers(1, 3, 8), "global_tokens": whole(0)},
        "global_tokens: expected"),
    Row("Longformer: a mask of 4 axes", attn_core.LongformerAttention(8, 2, 1),
        {"x": numbers(1, 3, 8), "mask": torch.ones(1, 1, 1, 3) > 0},
        "mask: expected"),
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
    Row("tables: blocks of none", BlockTables, {"num_blocks": 3, "block_size": 0}, "block_size: expected"),
    Row("tables: blocks as text", BlockTables, {"num_blocks": "3", "block_size": 1}, "num_blocks: expected"),
    Row("free: an unknown sequence", free, {"tables": started(2), "sequence": 1}, "sequence: expected"),
    Row("free: twice", free, {"tables": gone(), "sequence": 0}, "sequence: expected"),
    Row("free: False for 0", free, {"tables": started(2), "sequence": False}, "sequence: expected"),
    Row("truncate a sequence: −1", lambda tables: tables.truncate(0, -1), {"tables": started(2)}, "tokens: expected"),
    Row("append: −1 tokens", lambda tables: tables.append(0, -1), {"tables": started(2)}, "tokens: expected"),
    Row("append: half a token", lambda tables: tables.append(0, 0.5), {"tables": started(2)}, "tokens: expected"),
    Row("append_all: one is unknown", lambda tables, growth: tables.append_all(growth),
        {"tables": started(2), "growth": {0: 1, 9: 1}}, "sequence: expected"),
    Row("as_tensors: unknown", as_tensors, {"tables": started(2), "sequences": [0, 7]}, "sequence: expected"),
    Row("pool: no heads", BlockPool, {"num_blocks": 1, "block_size": 1, "num_kv_heads": 0, "head_dim": 1},
        "num_kv_heads: expected"),
    Row("write: more keys than slots", write, {**slots, "k": numbers(2, 1, 4)}, "k: expected"),
    Row("write: elsewhere", write, {**slots, "v": numbers(1, 1, 4, device="meta")}, "v: expected"),
    Row("paged: q of float64", paged_attention, paged(q=numbers(1, 4, 1, 8, dtype=torch.float64)), "keys: expected"),
    Row("paged: q to learn", paged_attention, paged(q=numbers(1, 4, 1, 8).requires_grad_()), "q: expected"),
    Row("paged: heads that do not divide", paged_attention, paged(q=numbers(1, 3, 1, 8)), "keys: expected"),
    Row("paged: other values", paged_attention, paged(values=numbers(2, 2, 2, 6)), "values: expected"),
    Row("paged: a table of floats", paged_attention, paged(table=torch.ones(1, 2)), "table: expected"),
    Row("paged: a table of another batch", paged_attention, paged(table=ids(2, 2)), "table: expected"),
    Row("paged: longer than its blocks", paged_attention, paged(lengths=whole(5)), "lengths: expected"),
    Row("paged: a negative length", paged_attention, paged(lengths=whole(-1)), "lengths: expected"),
    Row("paged: scale NaN", paged_attention, paged(scale=NAN), "scale: expected"),
    Row("paged: scale True", paged_attention, paged(scale=True), "scale: expected"),
]
