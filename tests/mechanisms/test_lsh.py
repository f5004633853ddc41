import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from attn_core import attention, masks
from attn_core.mechanisms.lsh import LSHAttention
from tests import reference


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def unit(q):
    return q / q.norm(dim=-1, keepdim=True)


def dense(q, v, *, causal, hidden=None, scale=None):
    """Softmax attention over everything, with unit keys and the self rule, by the loops of the reference."""
    size = q.shape[2]
    pairs = ~torch.eye(size, dtype=torch.bool) & (masks.causal(size, size) | (not causal))
    pairs = pairs.expand(*q.shape[:2], size, size)
    if hidden is not None:
        pairs = pairs & ~hidden[:, None, None] & ~hidden[:, None, :, None]
    return reference.attention(q, unit(q), v, mask=reference.with_self(pairs, hidden), scale=scale)[0]


CASES = [  # T, bucket_size, num_buckets, rounds
    (40, 8, None, 1),
    (40, 8, None, 3),
    (37, 5, 4, 4),
    (31, 4, 2, 2),
    (23, 3, 10, 5),
    (17, 1, 6, 2),
    (29, 7, 1, 2),
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("size", "bucket_size", "num_buckets", "rounds"), CASES)
def test_it_is_softmax_attention_over_the_pairs_that_meet(causal, size, bucket_size, num_buckets, rounds):
    mechanism = LSHAttention(bucket_size=bucket_size, num_buckets=num_buckets, rounds=rounds, seed=3)
    q, v = (x.requires_grad_() for x in (3 * draw(2, 2, size, 6), draw(2, 2, size, 4, seed=1)))
    pairs = reference.lsh_pairs(mechanism, q.detach(), causal=causal)
    assert 0.02 < pairs.float().mean() < 0.9, "the pattern says something"
    out = mechanism(q, q, v, causal=causal, scale=1.0)
    wanted = attention(q.double(), unit(q.double()), v.double(), mask=pairs, scale=1.0)
    assert (out - wanted).abs().max() < 1e-5
    toward = draw(*out.shape, seed=2)
    found = torch.autograd.grad((out * toward).sum(), (q, v))
    for one, other in zip(found, torch.autograd.grad((wanted * toward).sum(), (q, v)), strict=True):
        assert (one - other).abs().max() < 1e-4


@pytest.mark.parametrize("causal", [False, True])
def test_in_clusters_it_finds_nearly_all_that_dense_attention_does(causal):
    torch.manual_seed(0)
    centres = unit(torch.randn(24, 32))
    which = torch.arange(24).repeat(8)[torch.randperm(192)]
    q = 12 * (centres[which] + 0.02 * torch.randn(192, 32))[None, None]
    v = torch.randn(1, 1, 192, 16)
    wanted = dense(q, v, causal=causal, scale=1.0)
    found = LSHAttention(bucket_size=32, rounds=4)(q, q, v, causal=causal, scale=1.0)
    first = torch.tensor([which[:i].eq(which[i]).sum() == 0 for i in range(192)])  # finds none of its cluster
    wrong = (found - wanted).square().mean(-1).sqrt()[0, 0]
    if causal:
        wrong = wrong[~first]
    assert wrong.mean() < 0.02, f"{wrong.mean()}"
    uniform = (v.mean(2, keepdim=True) - wanted).square().mean().sqrt()
    assert uniform > 0.3


@pytest.mark.parametrize("rounds", [1, 4])
@pytest.mark.parametrize("seed", range(5))
def test_the_past_does_not_see_the_future_by_any_way(rounds, seed):
    """Not by values, not by scores, and not by where the hashes of later tokens make chunks begin."""
    mechanism = LSHAttention(bucket_size=4, num_buckets=6, rounds=rounds)
    q, v = 3 * draw(1, 2, 41, 8, seed=seed), draw(1, 2, 41, 8, seed=1)
    out = mechanism(q, q, v, causal=True)
    for cut in (1, 17, 40):
        other, values = q.clone(), v.clone()
        other[:, :, cut:] = 9 * draw(1, 2, 41 - cut, 8, seed=seed + 20)
        values[:, :, cut:] = draw(1, 2, 41 - cut, 8, seed=8)
        changed = mechanism(other, other, values, causal=True)
        torch.testing.assert_close(changed[:, :, :cut], out[:, :, :cut], atol=2e-6, rtol=0)
        assert not torch.allclose(changed[:, :, cut:], out[:, :, cut:])


def test_a_token_alone_attends_to_itself_and_zero_has_no_direction():
    q, v = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])[None, None].requires_grad_(), draw(1, 1, 3, 2)
    v.requires_grad_()
    mechanism = LSHAttention(bucket_size=1, num_buckets=2, rounds=1)
    first, second, _ = mechanism.hash(q.detach()[0])[0, 0].tolist()
    assert first != second
    out = mechanism(q, q, v, causal=True)
    torch.testing.assert_close(out[0, 0, :2], v[0, 0, :2])
    out.sum().backward()
    assert torch.isfinite(q.grad).all() and torch.equal(v.grad.sum((0, 1, 2)), torch.tensor([3.0, 3.0]))


def test_far_scores_stay_finite():
    q, v = 300 * draw(1, 1, 64, 8), draw(1, 1, 64, 4, seed=1)
    mechanism = LSHAttention(bucket_size=8, rounds=4)
    pairs = reference.lsh_pairs(mechanism, q, causal=False)
    wanted = reference.attention(q, unit(q), v, mask=pairs, scale=1.0)[0]
    q.requires_grad_()
    out = mechanism(q, q, v, scale=1.0)
    assert (out - wanted).abs().max() < 1e-3
    assert torch.isfinite(torch.autograd.grad(out.sum(), q)[0]).all()


def test_hashes_follow_the_seed_and_near_vectors_meet():
    x = unit(draw(1, 400, 16))
    mechanism = LSHAttention(num_buckets=8, rounds=50)
    buckets = mechanism.hash(x)
    assert buckets.shape == (1, 50, 400) and set(buckets.flatten().tolist()) == set(range(8))
    assert torch.equal(buckets, mechanism.hash(7 * x)), "only directions count"
    assert torch.equal(buckets, LSHAttention(num_buckets=8, rounds=50).hash(x))
    assert torch.equal((buckets + 4) % 8, mechanism.hash(-x)), "opposite vectors have opposite buckets"
    near = (mechanism.hash(unit(x + 0.02 * draw(1, 400, 16, seed=1))) == buckets).float().mean()
    far = (mechanism.hash(x.flip(1)) == buckets).float().mean()
    assert near > 0.8 and 0.08 < far < 0.2
    mechanism.seed = 1
    assert not torch.equal(mechanism.hash(x), buckets)
    state = torch.get_rng_state()
    mechanism.hash(x)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("size", "buckets"), [(1, 1), (64, 1), (128, 2), (500, 8), (1024, 16)])
def test_buckets_hold_a_chunk_on_average_by_default(size, buckets):
    assert int(LSHAttention(rounds=8).hash(draw(1, size, 32)).max()) + 1 == buckets


@pytest.mark.parametrize("causal", [False, True])
def test_many_places_need_wider_codes(causal):
    """Buckets whose numbers float32 could not tell apart."""
    q, v = draw(1, 1, 40, 8), draw(1, 1, 40, 4, seed=1)
    mechanism = LSHAttention(bucket_size=4, num_buckets=4, rounds=3)
    wide = LSHAttention(bucket_size=4, num_buckets=4 * 2**30, rounds=3)
    wide.hash = lambda x: mechanism.hash(x) + 2**30
    assert torch.equal(wide(q, q, v, causal=causal), mechanism(q, q, v, causal=causal))


def test_another_default_device_does_not_matter():
    q, mechanism = draw(1, 2, 20, 8), LSHAttention(bucket_size=4)
    wanted = mechanism(q, q, q)
    with torch.device("meta"):
        assert torch.equal(mechanism(q, q, q), wanted)


def test_what_is_drawn_while_pytorch_traces_is_not_kept():
    layer = LSHAttention(bucket_size=8, seed=71)
    with FakeTensorMode(), pytest.raises(RuntimeError, match="numpy"):  # it says so instead
        x = torch.empty(1, 1, 40, 6)
        layer(x, x, x)
    x = torch.randn(1, 1, 40, 6)
    assert layer(x, x, x).isfinite().all()
