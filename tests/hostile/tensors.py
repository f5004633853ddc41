"""Hostile tensors and sizes: what every mechanism refuses, and each layer, cache, model and setting by itself."""

import math

import torch
from torch import nn

import attn_core
from attn_core import KVCache, MultiHeadAttention, masks, positions, scores
from attn_core.cache import BlockPool, BlockTables, StreamingWindow, as_tensors, paged_attention
from attn_core.mechanisms.dense import masked_softmax
from tests.hostile.row import Row, sizes, wrong

NAN, INF = math.nan, math.inf


def numbers(*shape, dtype=torch.float32, device="cpu"):
    """The numbers from 0 on, divided by 8: every one exact, and none like another."""
    return (torch.arange(math.prod(shape)).view(shape) / 8).to(dtype).to(device)


def ids(*shape, dtype=torch.int64):
    """Token ids 4, 5, 6, 4, …"""
    return (4 + torch.arange(math.prod(shape)) % 3).view(shape).to(dtype)


def whole(*found):
    return torch.tensor(found, dtype=torch.int64)


def inputs(**others):
    """What any mechanism takes, four heads that read two."""
    given = {"q": numbers(2, 4, 3, 8), "k": numbers(2, 2, 3, 8), "v": numbers(2, 2, 3, 6)}
    return given | others


# What the contract refuses, whoever is called. All of it goes through `attention`; that the other mechanisms check each
# argument, too, is a test of its own.
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
    *wrong("attention", attn_core.attention, inputs(), *REFUSED),
    Row("attention: heads of no size", attn_core.attention, inputs(q=numbers(2, 4, 3, 0), k=numbers(2, 2, 3, 0)), "q"),
    Row("attention: no heads", attn_core.attention, inputs(q=numbers(2, 0, 3, 8)), "k"),
]


def add(state, scores, values):
    state.add(scores, values)


pairs = {"queries": numbers(2, 3), "keys": numbers(2, 3)}
SETTINGS = [
    Row("Linformer: too long", attn_core.Linformer(2, 2), inputs(), "k"),
    *sizes("LSH", attn_core.LSHAttention, {}, num_buckets=[3]),
    Row("Performer: another head size", attn_core.Performer(4, 2), inputs(), "q"),
    Row("additive: another head size", attn_core.AdditiveAttention(4, 5), inputs(), "keys"),
    *sizes("OnlineSoftmax", add,
        {"state": attn_core.OnlineSoftmax((2, 3), 4), "scores": numbers(2, 3, 5), "values": numbers(5, 4)},
        scores=[numbers(3, 3, 5), numbers(2, 3, 5, dtype=torch.float64), numbers(2, 3, 0),
            numbers(2, 3, 5).requires_grad_()],
        values=[numbers(4, 4)]),
    *sizes("masked_softmax", masked_softmax, {"scores": numbers(2, 3)},
        scores=[whole(1, 2), torch.tensor(1.0)], mask=[torch.ones(2, 3), torch.ones(4, 2, 3) > 0]),
    *sizes("attend", attn_core.attend, {"scores": numbers(2, 3)}, v=[numbers(4, 5), numbers(3)]),
    *wrong("Dot", scores.Dot(), pairs, ("keys", numbers(2, 4), "queries"), ("keys", numbers(3)), ("queries", [1.0])),
    *wrong("ScaledDot", scores.ScaledDot(), pairs,
        ("keys", numbers(2, 4), "queries"), ("queries", ids(2, 3)), ("queries", numbers(3))),
    *sizes("General", scores.General, {"query_dim": 3, "key_dim": 4}, query_dim=["3", 0], key_dim=[-1]),
    *sizes("General's call", scores.General(3, 3), pairs, queries=[numbers(2, 4)], keys=[numbers(2, 4)]),
    *sizes("Additive", scores.Additive, {"query_dim": 3, "key_dim": 4, "hidden_dim": 5}, hidden_dim=[True, 0]),
    *sizes("Additive's call", scores.Additive(3, 3, 5), pairs, queries=[numbers(2, 4)], keys=[numbers(2, 4)]),
]

NO_PLACES = [numbers(3), torch.ones(3) > 0, [0, 1, 2], None, torch.tensor(5), ids(2, 1, 3), ids(3).to("meta")]
PLACES = [
    *sizes("length_mask", masks.length_mask, {"lengths": whole(0), "size": 3},
        lengths=[numbers(2), [1, 2], torch.tensor([True]), whole(1, -1), whole(1, 4)], size=[-1, True]),
    *sizes("padding", masks.padding, {"size": 9}, lengths=[ids(1, 1, 1)]),
    *sizes("causal", masks.causal, {"query_length": 1, "key_length": 2},
        query_length=[-1], key_length=["2"], offset=[1]),
    *sizes("same_group", masks.same_group, {}, groups=[ids(3)]),
    *sizes("sinusoidal", positions.sinusoidal, {"length": 1, "dim": 4},
        length=[-1, 2.0], dim=[0], base=[NAN, INF], dtype=[torch.int64]),
    *sizes("Sinusoidal", positions.Sinusoidal, {"dim": 4}, dim=[0], base=[0]),
    *sizes("Sinusoidal's call", positions.Sinusoidal(4), {"x": numbers(1, 2, 4)},
        x=[numbers(1, 2, 5)], offset=[-1, whole(1, 2), numbers(1)]),
    *sizes("Learned", positions.Learned, {"max_length": 3, "dim": 4}, max_length=[0], dim=[0]),
    *wrong("Learned's call", positions.Learned(3, 4), {"x": numbers(2, 2, 4)},
        ("x", numbers(2, 2, 5)), ("offset", 2, "x"), ("offset", whole(0, -2))),
    *sizes("Rotary", positions.Rotary, {"head_dim": 4}, head_dim=[5, "4"], base=["1e4", True], rotary_dim=[3, 6],
        scaling=[4.0, positions.Interpolation]),
    *sizes("rotate", positions.Rotary(4).rotate, {"x": numbers(2, 1, 3, 4), "positions": whole(0, 1, 2)},
        x=[numbers(2, 3, 4), ids(2, 1, 3, 4)],
        positions=[*NO_PLACES, whole(0), ids(3, 3)]),
    *sizes("scaling", lambda scaling: positions.Rotary(4, scaling=scaling).rotate(numbers(1, 1, 3, 4), whole(0, 1, 2)),
        {}, scaling=[lambda frequencies: frequencies[:1], lambda frequencies: None]),
    *sizes("Interpolation", positions.Interpolation, {}, factor=[0, -2, 0.5, NAN, INF, True, "4", None]),
    *sizes("NTKAware", positions.NTKAware, {}, factor=[0.5]),
    *sizes("YaRN", positions.YaRN, {"factor": 4, "trained": 4096}, factor=[0.5], trained=[0, 4096.0],
        slow=[-1, "1"], fast=[0.5, 1, INF], magnitude=[0, NAN]),
    *sizes("ALiBi", positions.ALiBi, {}, num_heads=[0]),
    *sizes("ALiBi's bias", positions.ALiBi(2).bias, {"query_positions": whole(0, 1, 2), "key_positions": whole(0, 1)},
        query_positions=[numbers(3)], key_positions=NO_PLACES),
    *sizes("ALiBi's bias of rows", positions.ALiBi(2).bias, {"query_positions": ids(2, 3)}, key_positions=[ids(3, 3)]),
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


def truncate(cache, lengths):
    cache.truncate(lengths)


def reorder(cache, rows):
    cache.reorder(rows)


class _Broken(nn.Module):
    """A mechanism that fails when it is used."""

    def forward(self, q, k, v, **options):
        raise ValueError("q: expected another")


heads = {"model_dim": 8, "num_heads": 2}
latent = {**heads, "latent_dim": 4, "rotary_dim": 2}
reader = attn_core.LatentAttention(**latent)
latents = {"layer": reader, "queries": numbers(2, 3, 8), "cache": reader.new_cache(2, 9)}
other_cache = attn_core.GatedDeltaNet(8, 2).new_cache(2, 9)
elsewhere = numbers(1, 3, 8, device="meta")
three = {"queries": numbers(1, 3, 8)}
next_token = {"layer": layer(), "queries": numbers(2, 1, 8), "cache": filled()}
uneven = {"layer": layer(), "queries": numbers(2, 2, 8), "cache": filled(lengths=(2, 1))}
cached = {"batch_size": 1, "num_kv_heads": 1, "capacity": 1, "head_dim": 1}
LAYERS = [
    *sizes("MultiHeadAttention", MultiHeadAttention, heads,
        num_heads=[3], num_kv_heads=[3], model_dim=[8.0], head_dim=[0], key_dim=[2.0], query_key_norm=[nn.RMSNorm(3)],
        positions=[positions.Sinusoidal(8), positions.Rotary], mechanism=[attn_core.Dense, "dense"]),
    *sizes("other keys", MultiHeadAttention, heads | {"key_dim": 4}, share_query_key=[True]),
    *sizes("fewer key heads", MultiHeadAttention, heads | {"num_kv_heads": 1}, share_query_key=[True]),
    *sizes("layer", layer(), three,
        queries=[numbers(3, 8), ids(1, 3, 8), numbers(1, 3, 8, dtype=torch.float64), elsewhere],
        keys=[numbers(1, 3, 4)], lengths=[whole(3)]),
    *sizes("layer of others", layer(), three | {"keys": numbers(1, 3, 8)}, values=[numbers(1, 2, 8)]),
    Row("a cache and not causal", layer(), {"queries": numbers(2, 1, 8), "cache": filled()}, "cache"),
    Row("a cache and gradients", layer(), {"queries": numbers(2, 1, 8), "cache": filled(), "causal": True}, "k"),
    Row("positions of other heads", layer(positions=positions.ALiBi(4)), three, "positions"),
    Row("positions of another head size", layer(positions=positions.Rotary(8)), three, "x"),
    *sizes("beside ALiBi", layer(positions=positions.ALiBi(2)), three, bias=[torch.ones(3, 3) > 0, numbers(3, 4)]),
    *wrong("cached", read, next_token, ("queries", numbers(2, 3, 8), "k"), ("mask", torch.ones(1, 3)),
        ("keys", numbers(2, 1, 8), "cache"), ("cache", other_cache), ("layer", layer(mechanism=_Broken()), "q")),
    *sizes("cached, beside ALiBi", read, next_token | {"layer": layer(positions=positions.ALiBi(2))},
        bias=[numbers(5)]),
    *wrong("cached, uneven", read, uneven, ("mask", torch.ones(2, 4)), ("mask", torch.ones(2, 5) > 0),
        ("layer", layer(mechanism=attn_core.SlidingWindow(1)), "cache")),
    *sizes("KVCache", KVCache, cached, batch_size=[0], capacity=[1.5], value_dim=[-1]),
    Row("append: too much", append, held(k=numbers(2, 2, 3, 4), v=numbers(2, 2, 3, 4)), "k"),
    Row("append: fewer values", append, held(k=numbers(2, 2, 2, 4)), "v"),
    *sizes("append", append, held(),
        k=[numbers(2, 1, 1, 4), numbers(2, 2, 1, 4, device="meta"), numbers(2, 2, 1, 4).requires_grad_()],
        v=[[1.0], numbers(2, 2, 1, 3), numbers(2, 2, 1, 4, dtype=torch.float64)],
        lengths=[whole(1, 2), whole(1), [1, 1]]),
    *sizes("truncate", truncate, {"cache": filled(lengths=(2, 1))}, lengths=[whole(2, 2), whole(2, -1), whole(2)]),
    *sizes("reorder", reorder, {"cache": filled()}, rows=[whole(0, 2), whole(), [0], torch.tensor([True, False])]),
    *sizes("latent", attn_core.LatentAttention, latent,
        latent_dim=[0], rotary_dim=[3], num_heads=[3], mechanism=["dense"]),
    *wrong("latent's call", reader, {"x": numbers(2, 1, 8), "causal": True},
        ("x", elsewhere), ("x", numbers(2, 1, 8).double()), ("lengths", whole(3, 3)), ("cache", filled(), "k"),
        ("cache", reader.new_cache(2, 9), "k")),
    Row("latents cached and not causal", reader, {"x": numbers(2, 3, 8), "cache": reader.new_cache(2, 9)}, "cache"),
    *sizes("latents cached", read, latents, cache=[other_cache], lengths=[whole(1, 4)]),
    *sizes("latents cached, uneven", read, latents | {"lengths": whole(1, 2)},
        mask=[torch.ones(3), torch.ones(3) > 0]),
    *sizes("Longformer", attn_core.LongformerAttention, heads | {"window": 1}, window=[-1], num_heads=[3]),
    *sizes("Longformer's call", attn_core.LongformerAttention(8, 2, 1), {"x": numbers(1, 3, 8)},
        x=[elsewhere], global_tokens=[whole(0)], mask=[torch.ones(1, 1, 1, 3) > 0]),
]


def started(*lengths, blocks=4):
    """Tables of blocks of two slots, with sequences of these lengths."""
    tables = BlockTables(blocks, 2)
    for tokens in lengths:
        tables.append(tables.add_sequence(), tokens)
    return tables


def paged(**others):
    """A row of three tokens in two blocks of two, asked by its last."""
    given = {"q": numbers(1, 4, 1, 8), "keys": numbers(3, 2, 2, 8), "values": numbers(3, 2, 2, 6)}
    return given | {"table": whole(2, 0)[None], "lengths": whole(3)} | others


def gone():
    tables = started(2)
    tables.free(0)
    return tables


slots = {"pool": BlockPool(3, 2, 1, 4), "slots": [(0, 0)], "k": numbers(1, 1, 4), "v": numbers(1, 1, 4)}
first = {"self": started(2), "sequence": 0}
PAGED = [
    *sizes("StreamingWindow", StreamingWindow, {"size": 3}, size=[0], sinks=[-1]),
    *sizes("tables", BlockTables, {"num_blocks": 3, "block_size": 1}, block_size=[0, 2.0, True], num_blocks=[0, "3"]),
    *sizes("fork", BlockTables.fork, first, sequence=[1]),
    *sizes("table", BlockTables.table, first, sequence=[[0]]),
    *sizes("length", BlockTables.length, first, sequence=[-1]),
    *sizes("free", BlockTables.free, first, sequence=[1, False]),
    Row("free: twice", BlockTables.free, {"self": gone(), "sequence": 0}, "sequence"),
    *sizes("truncate a sequence", BlockTables.truncate, first | {"tokens": 0}, sequence=[9], tokens=[-1, 3]),
    *sizes("append tokens", BlockTables.append, first | {"tokens": 1}, sequence=[1, False], tokens=[-1, 0.5]),
    Row("append_all: one is unknown", BlockTables.append_all, {"self": started(2), "growth": {0: 1, 9: 1}}, "sequence"),
    Row("blocks_needed: unknown", BlockTables.blocks_needed, {"self": started(2), "growth": {0: 1, 5: 1}}, "sequence"),
    Row("as_tensors: unknown", as_tensors, {"tables": started(2), "sequences": [0, 7]}, "sequence"),
    *sizes("pool", BlockPool, {"num_blocks": 1, "block_size": 1, "head_dim": 1}, num_kv_heads=[0]),
    *sizes("write", lambda pool, slots, k, v: pool.write(slots, k, v), slots,
        k=[numbers(2, 1, 4), numbers(1, 1, 4).double()],
        v=[numbers(1, 1, 3), numbers(1, 1, 4, device="meta"), numbers(1, 1, 4).requires_grad_()]),
    *sizes("paged", paged_attention, paged(), q=[numbers(1, 4, 8), [1.0]],
        keys=[ids(3, 2, 2, 8), numbers(3, 0, 2, 8), numbers(3, 2, 2, 6), numbers(3, 2, 2, 8).requires_grad_()],
        values=[numbers(3, 2, 2, 6).requires_grad_()], table=[whole(0, 1), [[0, 1]]],
        lengths=[whole(4)[None], torch.tensor([4.0]), 4], scale=["1"]),
    *wrong("paged", paged_attention, paged(), ("q", numbers(1, 4, 1, 8, dtype=torch.float64), "keys"),
        ("q", numbers(1, 4, 1, 8).requires_grad_()), ("q", numbers(1, 3, 1, 8), "keys"),
        ("values", numbers(2, 2, 2, 6)), ("table", torch.ones(1, 2)), ("table", ids(2, 2)),
        ("lengths", whole(5)), ("lengths", whole(-1)), ("scale", NAN), ("scale", True)),
]
