"""What every mechanism must compute, in float64: slow, plain, and what everything else is held against.

``by_loops`` writes attention out, query by query. ``attention`` gives the same from whole tensors, since the properties
ask for it ten thousand times; ``tests/test_reference.py`` holds the one against the other. What differs in the other
mechanisms stands below: which keys a window shows, which pairs share a bucket, what is mixed or estimated.
``tests/context/reference.py`` has the reference of context attention.
"""

import math

import torch
from torch import Tensor


def by_loops(q, k, v, *, mask=None, bias=None, causal=False, scale=None) -> tuple[Tensor, Tensor]:
    """The contract of ``attn_core``, query by query: output ``(B, H, T, Dv)`` and weights ``(B, H, T, S)``."""
    q, k, v = (x.detach().double() for x in (q, k, v))
    batch, heads, queries, size = q.shape
    group, keys = heads // k.shape[1], k.shape[2]
    shape = (batch, heads, queries, keys)
    allowed = torch.ones(shape, dtype=torch.bool) if mask is None else mask.broadcast_to(shape)
    extra = torch.zeros(shape, dtype=torch.float64) if bias is None else bias.detach().double().broadcast_to(shape)
    factor = 1 / math.sqrt(size) if scale is None else scale
    out = torch.zeros(batch, heads, queries, v.shape[-1], dtype=torch.float64)
    weights = torch.zeros(shape, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                seen = [
                    j
                    for j in range(keys)
                    if allowed[b, h, i, j]
                    and (not causal or j <= i + keys - queries)
                    and extra[b, h, i, j] != -math.inf
                ]
                if not seen:
                    continue
                scores = [
                    factor * float((q[b, h, i] * k[b, h // group, j]).sum()) + float(extra[b, h, i, j]) for j in seen
                ]
                top = max(scores)
                raised = [math.exp(score - top) for score in scores]
                for j, one in zip(seen, raised, strict=True):
                    weights[b, h, i, j] = one / sum(raised)
                    out[b, h, i] += weights[b, h, i, j] * v[b, h // group, j]
    return out, weights


def attention(
    q, k, v, *, mask=None, bias=None, causal=False, scale=None, soft_cap=math.inf, sinks=None
) -> tuple[Tensor, Tensor]:
    """What ``by_loops`` gives, from whole tensors; a value that nobody sees may be NaN.

    Products are capped first; ``sinks (H,)`` are scores that take weight from all keys of a head.
    """
    q, k, v = (x.detach().double() for x in (q, k, v))
    k, v = (grouped(x, q.shape[1]) for x in (k, v))
    queries, keys = q.shape[2], k.shape[2]
    scores = torch.einsum("bhid,bhjd->bhij", q, k) * (1 / math.sqrt(q.shape[3]) if scale is None else scale)
    if soft_cap < math.inf:
        scores = soft_cap * (2 / (1 + torch.exp(-2 * scores / soft_cap)) - 1)
    visible = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand_as(scores)
    if bias is not None:
        scores, visible = scores + bias.detach().double(), visible & (bias != -math.inf)
    if causal:
        visible = visible & (torch.arange(keys) <= torch.arange(queries)[:, None] + keys - queries)
    top = torch.where(visible, scores, -math.inf).amax(-1, keepdim=True) if keys else scores.new_zeros(1)
    sink = None if sinks is None else sinks.detach().double()[:, None, None]
    top = top if sink is None else torch.maximum(top, sink)
    raised = torch.where(visible, (scores - top).exp(), 0.0)
    total = raised.sum(-1, keepdim=True)
    total = total if sink is None else total + (sink - top).exp()
    weights = raised / torch.where(total == 0, 1.0, total)
    shares = torch.where(visible[..., None], weights[..., None] * v[:, :, None], 0.0)
    return shares.sum(3), weights


def grouped(x: Tensor, heads: int) -> Tensor:
    """Keys or values ``(B, G, S, D)`` as each of so many query heads sees them: head h reads h // (H / G)."""
    return x[:, torch.arange(heads) // (heads // x.shape[1])]


def tolerance(dtype: torch.dtype, *, scale: float = 1.0) -> float:
    """How far attention in ``dtype`` may be from float64, for inputs of standard deviation ``scale``.

    The error of a score grows with its size, the square of the inputs' scale.
    """
    unit = {torch.float64: 1e-12, torch.float32: 3e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]
    return unit * max(1.0, scale) ** 2


def assert_near(found: Tensor, wanted: Tensor, tolerance: float) -> None:
    """The two differ by at most the tolerance, over the last axis in all; an error says by how much they do.

    Raises AssertionError.
    """
    assert found.shape == wanted.shape, f"expected shape {tuple(wanted.shape)}, got {tuple(found.shape)}"
    apart = (found.detach().double() - wanted.detach().double()).abs().sum(-1)
    worst = apart.max().item() if apart.numel() else 0.0
    assert worst <= tolerance, f"the largest difference is {worst:.3g}, beyond {tolerance:.3g}"


def window(queries: int, keys: int, before: int, after: int, dilation: int) -> Tensor:
    """Which keys a sliding window shows, entry by entry: query i stands at position S − T + i."""
    visible = torch.zeros(queries, keys, dtype=torch.bool)
    for i in range(queries):
        for step in range(-before, after + 1):
            j = keys - queries + i + step * dilation
            if 0 <= j < keys:
                visible[i, j] = True
    return visible


def additive_scores(score: torch.nn.Module, q: Tensor, k: Tensor) -> Tensor:
    """``w · tanh(W_q q + W_k k)`` for every pair, ``(B, H, T, S)``.

    As a bias, and with a scale of 0 that switches the products off, they make ``attention`` additive attention.
    """
    query, key, energy = (getattr(score, name).weight.detach().double() for name in ("query", "key", "energy"))
    q, k = q.detach().double() @ query.T, grouped(k.detach().double(), q.shape[1]) @ key.T
    return torch.tanh(q[:, :, :, None] + k[:, :, None]) @ energy[0]


def linformer_slots(projection: Tensor, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Keys or values ``(B, G, S, D)`` mixed into slots; ``mask`` ``(B, 1, 1, S)`` leaves some out."""
    x = x.detach().double()
    if mask is not None:
        x = x.masked_fill(~mask.transpose(2, 3), 0.0)
    return projection.detach().double()[:, :, : x.shape[2]] @ x


def performer(projection, q, k, v, *, mask=None, causal=False, scale=None) -> Tensor:
    """Each weight from its features, with nothing stabilised: float64 can do without at these sizes."""
    q, k, v, w = (x.detach().double() for x in (q, k, v, projection))
    k, v = (grouped(x, q.shape[1]) for x in (k, v))
    queries, keys = q.shape[2], k.shape[2]
    factor = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    root = math.sqrt(abs(factor))  # half of the factor for each side
    asked, offered = (
        (x @ w.T - x.square().sum(-1, keepdim=True) / 2).exp() for x in (math.copysign(root, factor) * q, root * k)
    )
    weights = asked @ offered.mT
    visible = torch.ones(1, keys, dtype=torch.bool) if mask is None else mask
    if causal:
        visible = visible & (torch.arange(keys) <= torch.arange(queries)[:, None] + keys - queries)
    weights = torch.where(visible, weights, 0.0)
    total = weights.sum(-1, keepdim=True)
    return torch.where(total == 0, 0.0, weights @ v / total)


def by_features(features, q, k, v, *, mask=None, causal=False) -> Tensor:
    """Each weight a product of features, divided by the sum of its row."""
    k, v = (grouped(x.detach().double(), q.shape[1]) for x in (k, v))
    queries, keys = q.shape[2], k.shape[2]
    weights = features(q.detach().double()) @ features(k).mT
    visible = torch.ones(1, keys, dtype=torch.bool) if mask is None else mask
    if causal:
        visible = visible & (torch.arange(keys) <= torch.arange(queries)[:, None] + keys - queries)
    weights = torch.where(visible, weights, 0.0)
    total = weights.sum(-1, keepdim=True)
    return torch.where(total == 0, 0.0, weights @ v / total)


def linear_states(k, v, *, log_decay=None, beta=None, state=None) -> list[Tensor]:
    """The states (B, G, D, Dv) after each token, each from a matrix that acts on the last one: in float64."""
    size = k.shape[3]
    now, one = (
        (torch.zeros(*k.shape[:2], size, v.shape[3]) if state is None else state).double(),
        torch.eye(size).double(),
    )
    found = []
    for t in range(k.shape[2]):
        key, value = k[:, :, t, :, None].double(), v[:, :, t, None, :].double()
        rate = torch.ones(()) if beta is None else beta[:, :, t, None, None].double()
        decay = torch.zeros(1, 1) if log_decay is None else log_decay[:, :, t].double()
        decay = decay.reshape(*decay.shape[:2], -1).exp()[..., None]
        erase = one if beta is None else one - rate * key * key.mT
        now = erase @ (decay * now) + rate * key * value
        found.append(now)
    return found


def chosen_pairs(mechanism, q, k, *, mask=None, causal=False, scale=None) -> Tensor:
    """Which keys block selection shows to each query, (B, H, T, S): loops over lists, as its docstring says."""
    q, k = q.detach().double(), k.detach().double()
    (batch, heads, queries, width), (groups, keys) = q.shape, k.shape[1:3]
    size, factor = mechanism.block_size, 1 / math.sqrt(width) if scale is None else scale
    found = torch.zeros(batch, heads, queries, keys, dtype=torch.bool)
    for b in range(batch):
        shown = [j for j in range(keys) if mask is None or mask.broadcast_to(batch, 1, 1, keys)[b, 0, 0, j]]
        blocks = {i: [j for j in shown if j // size == i] for i in {j // size for j in shown}}
        for g in range(groups):
            group = slice(g * heads // groups, (g + 1) * heads // groups)
            for t in range(queries):
                position = keys - queries + t
                near = [position // size - i for i in range(mechanism.local)]
                far = [i for i in blocks if i not in near and (not causal or i < position // size)]
                if far:
                    means = torch.stack([k[b, g, blocks[i]].mean(0) for i in far])
                    shares = (factor * q[b, group, t] @ means.T).softmax(-1).sum(0).tolist()
                    near += [i for _, i in sorted(zip(shares, far, strict=True), reverse=True)[: mechanism.selected]]
                seen = [j for i in near for j in blocks.get(i, []) if not causal or j <= position]
                found[b, group, t, seen] = True
    return found


def lsh_pairs(mechanism, q, *, causal, hidden=None) -> Tensor:
    """Which pairs (B, H, T, T) some round lets meet: loops over lists, bucket by bucket, as its docstring says.

    A token that meets no other has itself, unless it is ``hidden`` (B, T).
    """
    batch, heads, size, _ = q.shape
    buckets = mechanism.hash(q.flatten(0, 1)).tolist()
    found = torch.zeros(batch * heads, size, size, dtype=torch.bool)
    for n, rounds in enumerate(buckets):
        out = [] if hidden is None else hidden[n // heads].nonzero().flatten().tolist()
        for bucket_of in rounds:
            line = sorted((i for i in range(size) if i not in out), key=lambda i: (bucket_of[i], i))
            place = {token: p for p, token in enumerate(line)}
            for i in line:
                for j in line:
                    if i == j or bucket_of[i] != bucket_of[j]:
                        continue
                    if causal:
                        near = 0 < place[i] - place[j] <= mechanism.bucket_size
                    else:
                        near = place[i] // mechanism.bucket_size - place[j] // mechanism.bucket_size in (0, 1)
                    found[n, i, j] |= near
    return with_self(found.view(batch, heads, size, size), hidden)


def with_self(pairs: Tensor, hidden: Tensor | None = None) -> Tensor:
    """LSH's rule for a token that meets no other: it has itself, unless it is hidden."""
    alone = ~pairs.any(-1)
    if hidden is not None:
        alone &= ~hidden[:, None]
    return pairs | (torch.eye(pairs.shape[-1], dtype=torch.bool) & alone[..., None])
