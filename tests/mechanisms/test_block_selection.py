import pytest
import torch

from attn_core import BlockSelection, MultiHeadAttention, attention, device
from attn_core.contract import contract
from attn_core.mechanisms import block_selection
from tests import reference
from tests.mechanisms.test_window import Largest


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture(
    params=[(64, 2**18, ["cpu"]), (4, 64, ["cpu"]), (7, 2**18, [])], ids=["as made", "tiny tiles", "no tiles"]
)
def tile(request, monkeypatch):
    """Large and small chunks, in tiles as on a CPU, and all at once."""
    for name, size in zip(("CHUNK", "SCORES"), request.param, strict=False):
        monkeypatch.setattr(block_selection, name, size)
    monkeypatch.setattr(device, "TILED", request.param[2])


def draw(batch=2, heads=4, groups=2, queries=131, keys=131, size=16, dtype=torch.float64):
    shapes = (heads, queries, size), (groups, keys, size), (groups, keys, size)
    return [torch.randn(batch, *shape, dtype=dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(131, 131), (40, 97), (1, 64)])
def test_it_is_dense_attention_under_its_own_choice_forward_and_backward(queries, keys, masked, causal, tile):
    mechanism, tensors = BlockSelection(8, selected=3, local=2), draw(queries=queries, keys=keys)
    options = {"causal": causal, "mask": torch.rand(2, 1, 1, keys) > 0.3 if masked else None}
    pairs = reference.chosen_pairs(mechanism, *tensors[:2], **options)
    out, wanted = mechanism(*tensors, **options), attention(*tensors, mask=pairs)
    torch.testing.assert_close(out, wanted)
    toward = torch.randn_like(out)
    for ours, theirs in zip(*(torch.autograd.grad(x, tensors, toward) for x in (out, wanted)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_group_chooses_other_blocks_beside_its_nearest():
    call = contract(*draw(), causal=True)
    blocks, last = BlockSelection(8, selected=3, local=2).choose(call)
    assert blocks.shape == last.shape == (2, 2, 131, 5)
    late = blocks[:, :, 48:]  # from here on there are five blocks
    assert (last[:, :, 48:] == torch.arange(48, 131)[:, None]).all() and (last[:, :, :8, 1:] == -1).all()
    own = torch.arange(48, 131) // 8
    assert (late[..., 0] == own).all() and (late[..., 1] == own - 1).all() and (late[..., 2:] < own[:, None] - 1).all()
    assert (late.sort(-1).values.diff() > 0).all()


def planted(value):
    """A key that query 120 looks for, at 3 in the first block; the others there are ``value`` times the query."""
    q, k, v = (x.detach() for x in draw(1, 1, 1, 128, 128, dtype=torch.float32))
    k[..., 8:, :] -= (k[..., 8:, :] @ q[..., 120, :, None]) * q[..., 120, None, :] / q[..., 120, :].square().sum()
    k[..., :8, :] = value * q[..., 120, None, :]
    k[..., 3, :] = 4 * q[..., 120, :]
    return q, k, v


@pytest.mark.parametrize(("others", "found"), [(0.0, True), (-0.7, False)])
def test_it_finds_a_key_far_away_unless_the_mean_of_its_block_hides_it(others, found):
    q, k, v = planted(others)
    full = attention(q, k, v, causal=True)[0, 0, 120]
    assert torch.cosine_similarity(full, v[0, 0, 3], 0) > 0.99
    out = BlockSelection(8, selected=1, local=2)(q, k, v, causal=True)[0, 0, 120]
    assert (torch.cosine_similarity(out, full, 0) > 0.99) == found


def test_what_is_not_chosen_has_no_gradient_and_neither_has_the_choice():
    q, k, v = draw(1, 1, 1, 1, 64)
    mechanism = BlockSelection(8, selected=2, local=1)
    chosen = reference.chosen_pairs(mechanism, q, k, causal=True)[0, 0, 0]
    assert chosen.sum() == 24
    for gradient in torch.autograd.grad(mechanism(q, k, v, causal=True).square().sum(), (k, v)):
        assert ((gradient[0, 0] != 0).any(-1) == chosen).all()


def test_rows_of_different_lengths_are_refused():
    layer = MultiHeadAttention(32, 4, mechanism=BlockSelection(4)).requires_grad_(False)
    with pytest.raises(ValueError, match="^lengths: expected"):
        layer(torch.randn(2, 2, 32), causal=True, cache=layer.new_cache(2, 4), lengths=torch.tensor([2, 1]))


def test_under_autocast_the_explicit_path_makes_the_same_choice():
    tensors = draw(dtype=torch.float32)
    mechanism = BlockSelection(8, selected=2)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        out, explicit = mechanism(*tensors, causal=True), mechanism.with_weights(*tensors, causal=True)[0]
    torch.testing.assert_close(out, explicit, atol=1e-5, rtol=0)


def test_no_tensor_grows_with_the_square_of_the_length_but_the_scores_of_blocks():
    most = []
    for length in (1024, 2048):
        tensors = draw(1, 2, 2, length, length, 8, torch.float32)
        with Largest() as largest:
            BlockSelection(64, selected=2)(*tensors, causal=True).sum().backward()
        most.append(largest.most)
    assert most[1] <= 2.2 * most[0] and most[1] < 2048**2 / 4


def test_a_nan_in_one_row_of_the_batch_leaves_the_gradients_of_the_others(tile):
    q, k, v = draw(dtype=torch.float32)
    clean = torch.autograd.grad(BlockSelection(8, selected=2)(q, k, v, causal=True).sum(), (q, k, v))
    spoilt = q.detach().clone()
    spoilt[0, :, 0] = torch.nan
    spoilt.requires_grad_()
    found = torch.autograd.grad(BlockSelection(8, selected=2)(spoilt, k, v, causal=True).sum(), (spoilt, k, v))
    for one, other in zip(found, clean, strict=True):
        torch.testing.assert_close(one[1], other[1])
