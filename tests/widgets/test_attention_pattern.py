import matplotlib
import numpy as np
import pytest
import torch

from attn_book.widgets import AttentionPatternExplorer
from attn_core import LongformerAttention, LSHAttention, SlidingWindow, attention

matplotlib.use("Agg")
# Chunks that divide the length, that do not, and that are longer than a bucket can be; one round and several.
HASHES = [
    {"n": 64},
    {"n": 33, "num_buckets": 4, "bucket_size": 5, "rounds": 3, "seed": 9},
    {"n": 96, "num_buckets": 16, "bucket_size": 3, "rounds": 1, "seed": 4},
    {"n": 17, "num_buckets": 2, "bucket_size": 32, "rounds": 4},
]
WINDOWS = [(16, 0, 1), (17, 3, 1), (40, 4, 3), (33, 32, 8), (96, 32, 1), (21, 20, 1)]


def meeting(buckets, chunk, causal):
    """Who meets whom, by the words of LSHAttention: sorted lists, and chunks cut from them."""
    size = len(buckets[0])
    chunk = min(chunk, size)
    seen = np.zeros((size, size), dtype=bool)
    for row in buckets:
        order = sorted(range(size), key=lambda i: (row[i], i))
        chunks = [order[start : start + chunk] for start in range(0, size, chunk)]
        for k, tokens in enumerate(chunks):
            for i in tokens:
                near = (chunks[k - 1] if k else []) + tokens
                if causal:
                    near = [j for j in order if row[j] == row[i] and j < i][-chunk:]
                for j in near:
                    seen[i, j] |= row[i] == row[j] and i != j
    for i in range(size):
        seen[i, i] = not seen[i].any()
    return seen


def probed(widget, causal):
    """Who meets whom in LSHAttention itself: each value is its token's own axis, so the output shows the keys read."""
    angles = 2 * np.pi * torch.tensor(widget.directions())
    q = torch.stack((angles.cos(), angles.sin()), -1)[None, None]
    layer = LSHAttention(bucket_size=widget.bucket_size, num_buckets=widget.num_buckets, rounds=widget.rounds)
    layer.hash = lambda _: torch.tensor(widget.buckets())[None]
    return layer(q, q, torch.eye(widget.n, dtype=q.dtype)[None, None], causal=causal)[0, 0].numpy() > 0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("n", "window", "dilation"), WINDOWS)
def test_a_window_holds_its_neighbours(n, window, dilation, causal):
    widget = AttentionPatternExplorer("window", n, window=window, dilation=dilation, causal=causal)
    offsets = {k * dilation for k in range(-window, 1 if causal else window + 1)}
    expected = [[j - i in offsets for j in range(n)] for i in range(n)]
    assert widget.pairs().tolist() == expected
    assert widget.scores() == np.sum(expected)


@pytest.mark.parametrize(("window", "shared"), [(2, 3), (0, 0), (3, 1), (5, 16)])
def test_global_tokens_see_and_are_seen_as_in_longformer(window, shared):
    n = 19
    widget = AttentionPatternExplorer("global", n, window=window, global_tokens=shared)
    torch.manual_seed(0)
    layer = LongformerAttention(8, 2, window).double()
    x = torch.randn(1, n, 8, dtype=torch.float64, requires_grad=True)
    out = layer(x, torch.arange(n)[None] < shared)[0].sum(1)
    seen = [torch.autograd.grad(row, x, retain_graph=True)[0][0].abs().sum(1) > 1e-12 for row in out]
    assert widget.pairs().tolist() == torch.stack(seen).tolist()
    assert widget.scores() == widget.pairs().sum()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("settings", HASHES)
def test_hashes_let_meet_whom_lsh_attention_does(settings, causal):
    widget = AttentionPatternExplorer("hash", causal=causal, **settings)
    expected = meeting(widget.buckets().tolist(), widget.bucket_size, causal)
    assert (widget.pairs() == expected).all()
    assert (probed(widget, causal) == expected).all()
    chunk = min(widget.bucket_size, widget.n)
    assert widget.scores() == sum(2 * chunk for _ in range(widget.n) for _ in range(widget.rounds))


@pytest.mark.parametrize("causal", [False, True])
def test_weights_are_those_of_full_attention_without_the_token_itself(causal):
    widget = AttentionPatternExplorer("hash", 41, causal=causal)
    angles = 2 * np.pi * torch.tensor(widget.directions())
    q = torch.stack((angles.cos(), angles.sin()), -1)[None, None]
    mask = ~torch.eye(41, dtype=torch.bool)
    mask[0, 0] = causal  # the first token has only itself
    expected = attention(q, q, torch.eye(41, dtype=q.dtype)[None, None], mask=mask, causal=causal, scale=16)
    np.testing.assert_allclose(widget.weights(), expected[0, 0], atol=1e-12)
    held = (expected[0, 0].numpy() * widget.pairs()).sum(1).mean()
    assert widget.describe().endswith(f"the pairs read hold {100 * held:.0f} % on average.")


@pytest.mark.parametrize("n", [1, 2, 3, 16, 97, 300])
@pytest.mark.parametrize("causal", [False, True])
def test_scores_are_counted_at_any_length(n, causal):
    for _, window, dilation in WINDOWS:
        widget = AttentionPatternExplorer("window", window=window, dilation=dilation, causal=causal)
        allowed = SlidingWindow(window, 0 if causal else window, dilation=dilation).allowed(n, n)
        assert widget.scores(n) == allowed.sum()
        chosen = torch.arange(n) < 5
        widget = AttentionPatternExplorer("global", window=window, dilation=dilation, global_tokens=5)
        allowed = SlidingWindow(window, dilation=dilation).allowed(n, n) | chosen | chosen[:, None]
        assert widget.scores(n) == allowed.sum()
    assert AttentionPatternExplorer("full", causal=causal).scores(n) == (n * (n + 1) // 2 if causal else n * n)
    assert AttentionPatternExplorer("slots", slots=3).scores(n) == 3 * n


def test_a_page_may_turn_to_a_pattern_that_is_never_causal():
    widget = AttentionPatternExplorer("window", causal=True)
    pairs = widget.pairs()
    widget.set_state({"pattern": "global"})
    assert widget.causal and widget.pairs()[0, -1] and "causal" not in widget.describe()
    widget.set_state({"pattern": "window"})
    assert (widget.pairs() == pairs).all()


def test_the_query_stays_within_the_length():
    widget = AttentionPatternExplorer(n=90, query=89)
    widget.n = 40
    assert widget.query == 39
    widget.set_state({"n": 96, "query": 95})
    assert widget.query == 95 and AttentionPatternExplorer(n=17).query == 8
