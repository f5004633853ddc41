import pytest
import torch

from attn_core import GatedDeltaNet
from attn_core.cache import rollback_on_error


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return GatedDeltaNet(12, 3).requires_grad_(False)


def test_rows_are_reordered_by_themselves(layer):
    x, state, rows = torch.randn(2, 6, 12), layer.new_cache(2, 0), torch.tensor([1, 0, 1])
    layer(x[:, :4], causal=True, cache=state, lengths=torch.tensor([4, 2]))
    state.reorder(rows)
    following = torch.cat([x[[1], 2:4], x[[0], 4:6], x[[1], 2:4]])
    whole = layer(x, causal=True)
    wanted = torch.cat([whole[[1], 2:4], whole[[0], 4:6], whole[[1], 2:4]])
    torch.testing.assert_close(layer(following, causal=True, cache=state), wanted)
    assert state.lengths.tolist() == [4, 6, 4]


def test_the_last_call_can_be_taken_back_and_no_earlier_one(layer):
    x, state = torch.randn(2, 9, 12), layer.new_cache(2, 0)
    first, second, third = x.split([3, 2, 4], dim=1)
    layer(first, causal=True, cache=state)
    with pytest.raises(RuntimeError), rollback_on_error([state]):
        layer(second, causal=True, cache=state)
        raise RuntimeError
    assert state.lengths.tolist() == [3, 3]
    whole = layer(x, causal=True)
    torch.testing.assert_close(layer(second, causal=True, cache=state), whole[:, 3:5])
    state.truncate(state.lengths)
    wanted = r"lengths: expected \[3, 3\], those before the last call, since sums cannot be divided, got \[2, 3\]"
    with pytest.raises(ValueError, match=wanted):
        state.truncate(torch.tensor([2, 3]))
    torch.testing.assert_close(layer(third, causal=True, cache=state), whole[:, 5:])


def test_wrong_input_is_named(layer):
    state, x = layer.new_cache(2, 0), torch.randn(2, 3, 12)
    with pytest.raises(ValueError, match=r"^lengths: expected shape \(2,\)"):
        layer(x, causal=True, cache=state, lengths=torch.tensor([3]))
    with pytest.raises(ValueError, match="^rows: expected rows from 0 to 1"):
        state.reorder(torch.tensor([2]))
    with pytest.raises(ValueError, match="^lengths: expected an int64 or int32 tensor"):
        state.truncate([0, 0])
