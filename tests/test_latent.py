import cmath
import math

import pytest
import torch

from attn_core import AdditiveAttention, LatentAttention, SlidingWindow, attention, capture_attention

DIM, HEADS, SIZE, LATENT, ROTARY = 12, 3, 4, 6, 2
CLOSE = {torch.float64: {"atol": 1e-10, "rtol": 0}, torch.float32: {"atol": 1e-5, "rtol": 0}}
each_dtype = pytest.mark.parametrize("dtype", CLOSE)


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def make(dtype=torch.float64, **options):
    """One whose parameters all differ, biases and norms too."""
    sizes = {"latent_dim": LATENT, "rotary_dim": ROTARY}
    layer = LatentAttention(DIM, HEADS, **{**sizes, **options}).double()
    for number, parameter in enumerate(layer.parameters()):
        parameter.data = 1 + draw(*parameter.shape, seed=number) / 3 if parameter.dim() == 1 else parameter.data
        if parameter.dim() == 2:
            parameter.data = draw(*parameter.shape, seed=number) / math.sqrt(parameter.shape[1])
    return layer.to(dtype)


# The plain form, against loops


def by_loops(layer, x, *, causal=False, mask=None, bias=None):
    """Row by row, head by head, query by query and key by key, from the equations of the paper."""
    batch, length, _ = x.shape
    mask = torch.ones(1, dtype=torch.bool) if mask is None else mask
    mask = mask.expand(batch, HEADS, length, length)
    bias = torch.zeros(1, dtype=x.dtype) if bias is None else bias
    bias = bias.expand(batch, HEADS, length, length)

    def linear(projection, vector):
        found = projection.weight @ vector
        return found if projection.bias is None else found + projection.bias

    def low_rank(projection, norm, vector):
        found = linear(projection, vector)
        return norm.weight * found / (found.square().mean() + torch.finfo(x.dtype).eps).sqrt()

    def rotated(vector, position):
        planes = []
        for j in range(ROTARY // 2):
            turned = complex(vector[2 * j], vector[2 * j + 1]) * cmath.exp(1j * position / 10_000 ** (2 * j / ROTARY))
            planes += [turned.real, turned.imag]
        return torch.tensor(planes, dtype=x.dtype)

    out = torch.zeros(batch, length, HEADS * SIZE, dtype=x.dtype)
    for b in range(batch):
        latents = [low_rank(layer.latent[0], layer.latent[1], h) for h in x[b]]
        shared = [rotated(linear(layer.rotary_key, h), i) for i, h in enumerate(x[b])]
        for head in range(HEADS):
            rows = slice(head * SIZE, (head + 1) * SIZE)
            keys = [torch.cat([layer.key.weight[rows] @ c, r]) for c, r in zip(latents, shared, strict=True)]
            for i in range(length):
                q = linear(layer.query, x[b, i])[head * (SIZE + ROTARY) : (head + 1) * (SIZE + ROTARY)]
                q = torch.cat([q[:SIZE], rotated(q[SIZE:], i)])
                seen = [j for j in range(length) if mask[b, head, i, j] and (j <= i or not causal)]
                weights = [
                    math.exp(float(q @ keys[j]) / math.sqrt(SIZE + ROTARY) + float(bias[b, head, i, j])) for j in seen
                ]
                for j, weight in zip(seen, weights, strict=True):
                    out[b, i, rows] += weight / sum(weights) * (layer.value.weight[rows] @ latents[j])
    return torch.stack([torch.stack([linear(layer.out, token) for token in row]) for row in out])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", [{}, {"bias": True}])
@torch.no_grad()
def test_it_equals_loops_over_heads_and_tokens(options, causal):
    layer, x = make(**options), draw(2, 5, DIM, seed=20)
    torch.testing.assert_close(layer(x, causal=causal), by_loops(layer, x, causal=causal), atol=1e-12, rtol=0)
    mask, bias = draw(2, HEADS, 5, 5, seed=21) > -0.5, draw(HEADS, 5, 5, seed=22)
    mask[1, :, 3] = False
    found = layer(x, mask=mask, bias=bias, causal=causal)
    torch.testing.assert_close(found, by_loops(layer, x, mask=mask, bias=bias, causal=causal), atol=1e-12, rtol=0)


@torch.no_grad()
def test_autocast_runs_with_a_cache():
    layer, x = make(torch.float32), draw(2, 6, DIM, dtype=torch.float32)
    wanted = layer(x, causal=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cache = layer.new_cache(2, 6)
        parts = [layer(part, causal=True, cache=cache) for part in x.split([4, 1, 1], dim=1)]
    assert cache.keys.dtype == torch.bfloat16
    torch.testing.assert_close(torch.cat(parts, 1).float(), wanted, atol=5e-2, rtol=0)


# The absorbed form


@each_dtype
@pytest.mark.parametrize("options", [{}, {"bias": True}])
@pytest.mark.parametrize("limits", ["none", "causal", "mask and bias"])
def test_the_absorbed_form_equals_the_plain_one_and_so_do_its_gradients(limits, options, dtype):
    layer, x = make(dtype, **options), draw(2, 6, DIM, seed=20, dtype=dtype).requires_grad_()
    bias = draw(HEADS, 6, 6, seed=22, dtype=dtype).requires_grad_()
    mask = draw(2, HEADS, 6, 6, seed=21) > -0.5
    mask[1, :, 3] = False
    given = {"none": {}, "causal": {"causal": True}, "mask and bias": {"mask": mask, "bias": bias}}[limits]
    inputs = [x, *layer.parameters(), *([bias] if "bias" in given else [])]
    toward, results = draw(2, 6, DIM, seed=23, dtype=dtype) / 6, []
    for form in (layer.attend_plain, layer.attend_absorbed):
        out = form(*layer.project(x), **given)
        results.append([out, *torch.autograd.grad(out, inputs, toward)])
    torch.testing.assert_close(results[1], results[0], **CLOSE[dtype])


def test_in_the_absorbed_form_all_heads_read_one_key_head_of_latents():
    seen = []

    def mechanism(q, k, v, *, scale=None, **options):
        seen.append((q.shape, k.shape, scale))
        return attention(q, k, v, scale=scale, **options)

    layer, x = make(mechanism=mechanism), draw(2, 7, DIM)
    q, latents = layer.project(x)
    out = layer.attend_absorbed(q, latents)
    assert seen == [((2, HEADS, 7, LATENT + ROTARY), (2, 1, 7, LATENT + ROTARY), 1 / math.sqrt(SIZE + ROTARY))]
    torch.testing.assert_close(layer.attend_plain(q, latents), out, **CLOSE[torch.float64])
    assert seen[1] == ((2, HEADS, 7, SIZE + ROTARY), (2, HEADS, 7, SIZE + ROTARY), None)


@torch.no_grad()
def test_a_prompt_is_read_in_the_plain_form_and_a_token_in_the_absorbed_one():
    layer, x, projected = make(), draw(2, 9, DIM), []
    layer.key.register_forward_hook(lambda *_: projected.append(1))
    cache = layer.new_cache(2, 9)
    layer(x[:, :7], causal=True, cache=cache)
    assert len(projected) == 1
    for part in x[:, 7:].split(1, dim=1):
        layer(part, causal=True, cache=cache)
    assert len(projected) == 1, "no cached latent is projected"


@pytest.mark.parametrize("form", ["attend_plain", "attend_absorbed"])
def test_captured_weights_give_the_outputs(form):
    layer, x = make(), draw(2, 6, DIM)
    q, latents = layer.project(x)
    with capture_attention(layer) as maps:
        out = getattr(layer, form)(q, latents, causal=True)
    ((name, (weights,)),) = maps.items()
    assert name == "" and weights.shape == (2, HEADS, 6, 6) and not weights.triu(1).any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, HEADS, 6).double())
    v = layer.value(latents[:, 0, :, :LATENT]).unflatten(2, (HEADS, SIZE)).transpose(1, 2)
    torch.testing.assert_close(layer.out((weights @ v).transpose(1, 2).flatten(2)), out, atol=1e-12, rtol=0)


# The cache


@torch.no_grad()
def test_a_cache_holds_one_latent_and_one_rotary_key_a_token():
    layer, x = make(torch.float32), draw(2, 5, DIM, dtype=torch.float32)
    cache = layer.new_cache(2, 8)
    assert cache.nbytes == 2 * 8 * (LATENT + ROTARY) * 4
    layer(x, causal=True, cache=cache)
    assert torch.equal(cache.keys[:, :, :5], layer.project(x)[1])


@pytest.mark.parametrize("steps", [[5, 1, 1, 1], [2, 3, 0, 3], [1] * 8, [8]])
@torch.no_grad()
def test_rows_of_different_lengths_share_a_cache(steps):
    """Prompts of 5, 2 and 4 tokens, padded; then each row grows at its own end. A mask hides a key of all."""
    layer, hidden = make(), torch.arange(8) != 1
    tokens, total = draw(3, 8, DIM), torch.tensor([8, 5, 7])
    given = torch.zeros(3, dtype=torch.long)
    cache, found = layer.new_cache(3, 8), [[], [], []]
    for step in steps:
        new = torch.minimum(torch.full((3,), step), total - given)
        if step > 1:
            new[1] = min(int(new[1]), 2)
        chunk = draw(3, step, DIM, seed=9)  # padding holds whatever it holds
        for row in range(3):
            chunk[row, : new[row]] = tokens[row, given[row] : given[row] + new[row]]
        mask = hidden[: int((given + new).max())]
        out = layer(chunk, causal=True, cache=cache, lengths=new, mask=mask)
        for row in range(3):
            found[row].append(out[row, : new[row]])
        given += new
    assert torch.equal(cache.lengths, given) and cache.longest == int(given.max())
    for row in range(3):
        length = int(given[row])
        alone = layer(tokens[row : row + 1, :length], causal=True, mask=hidden[:length])[0]
        torch.testing.assert_close(torch.cat(found[row]), alone, **CLOSE[torch.float64])


@torch.no_grad()
def test_ragged_rows_are_reordered_truncated_and_grow_without_being_told_their_lengths_again():
    layer, tokens = make(), draw(2, 6, DIM)
    cache = layer.new_cache(2, 4)
    layer(tokens[:, :4], causal=True, cache=cache, lengths=torch.tensor([4, 1]))
    cache.truncate(torch.tensor([3, 1]))
    cache.reorder(torch.tensor([1, 0, 1]))
    cache.reserve(2)
    step = torch.stack([tokens[1, 1:3], tokens[0, 3:5], tokens[1, 1:3]])
    out = layer(step, causal=True, cache=cache)
    for row, wanted in enumerate(
        (layer(tokens[1:, :3], causal=True)[0, 1:], layer(tokens[:1, :5], causal=True)[0, 3:])
    ):
        torch.testing.assert_close(out[row], wanted, **CLOSE[torch.float64])
    torch.testing.assert_close(out[2], out[0], **CLOSE[torch.float64])


@torch.no_grad()
def test_a_mask_and_a_bias_count_the_cached_keys():
    layer, x = make(), draw(1, 5, DIM)
    hidden, bias = torch.tensor([False, False, True, True, True]), draw(HEADS, 5, 5, seed=1)
    cache = layer.new_cache(1, 5)
    parts = [
        layer(x[:, a:b], causal=True, cache=cache, mask=hidden[:b], bias=bias[:, a:b, :b])
        for a, b in ((0, 3), (3, 4), (4, 5))
    ]
    wanted = layer(x, causal=True, mask=hidden, bias=bias)
    torch.testing.assert_close(torch.cat(parts, 1), wanted, **CLOSE[torch.float64])
    assert not wanted[:, :2].any(), "two queries see nothing"


@torch.no_grad()
def test_a_window_reads_rows_of_one_length_alone():
    layer, x = make(mechanism=SlidingWindow(2, 0)), draw(2, 7, DIM)
    cache = layer.new_cache(2, 7)
    parts = [layer(part, causal=True, cache=cache) for part in x.split([4, 1, 2], dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), layer(x, causal=True), **CLOSE[torch.float64])


# What it is made of, and what it refuses


def test_weights_start_by_glorot_and_print_shows_the_sizes():
    layer = LatentAttention(64, 4, latent_dim=32, rotary_dim=8, bias=True)
    bound = math.sqrt(6 / (64 + 32))
    assert bound * 0.9 < layer.key.weight.abs().max() <= bound and not layer.out.bias.any()
    assert layer.key.bias is None
    assert "num_heads=4, head_dim=16, latent_dim=32, rotary_dim=8" in repr(layer)
    bare = LatentAttention(64, 4, latent_dim=32, rotary_dim=8)
    assert not any(name.endswith("bias") for name, _ in bare.named_parameters())


def test_scores_that_are_no_products_serve_without_a_cache_and_are_refused_when_absorbed():
    layer, x = make(mechanism=AdditiveAttention(SIZE + ROTARY, 5).double()), draw(2, 4, DIM)
    assert layer(x, causal=True).shape == x.shape
    with pytest.raises(ValueError, match="^scale: expected None"):
        layer.attend_absorbed(*layer.project(x))
