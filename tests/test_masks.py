import pytest
import torch

from attn_core import masks
from attn_core.contract import group_by_kv_head


def test_padding_has_the_contracts_shape():
    per_sentence = masks.padding(torch.tensor([1, 3]), 3)
    assert per_sentence.shape == (2, 1, 1, 3)
    assert per_sentence[0, 0, 0].tolist() == [True, False, False]
    per_query = masks.padding(torch.tensor([[1, 2], [3, 0]]), 3)
    assert per_query.shape == (2, 1, 2, 3)
    assert per_query[1, 0, 1].tolist() == [False, False, False]


@pytest.mark.parametrize(
    ("shape", "sorted_by_head"),
    [
        ((5, 7), (1, 1, 1, 5, 7)),
        ((6, 5, 7), (1, 2, 3, 5, 7)),
        ((4, 1, 1, 7), (4, 1, 1, 1, 7)),
        ((6, 1, 7), (1, 2, 3, 1, 7)),
    ],
)
def test_heads_are_sorted_by_the_key_head_that_they_read(shape, sorted_by_head):
    x = torch.arange(torch.Size(shape).numel()).view(shape)
    found = group_by_kv_head(x, 2)
    assert found.shape == sorted_by_head and group_by_kv_head(None, 2) is None
    if shape[0] == 6:  # three query heads in a row read each key head
        assert torch.equal(found[0, 1, 0], x[3])


def test_same_group_lets_each_position_see_its_own_group():
    groups = torch.tensor([[0, 0, 1, 1, 1, 2], [0, 2, 2, 0, -7, 99]])
    mask = masks.same_group(groups)
    assert mask.shape == (2, 1, 6, 6)
    assert mask.dtype == torch.bool
    for row, numbers in enumerate(groups.tolist()):
        assert mask[row, 0].tolist() == [[mine == other for other in numbers] for mine in numbers]
