import pytest
import torch

from attn_core.longformer import LongformerAttention
from attn_core.masks import length_mask
from tests import reference
from tests.mechanisms.test_window import Largest

HEADS, SIZE = 2, 3


def layer(window=2, dtype=torch.float64):
    """One whose weights all differ, biases too."""
    torch.manual_seed(5)
    made = LongformerAttention(HEADS * SIZE, HEADS, window)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made.to(dtype)


def case(marks, length=11):
    """Two rows: how many tokens of each are global, and where, by name; the second row is shorter."""
    torch.manual_seed(6)
    x = torch.randn(2, length, HEADS * SIZE, dtype=torch.float64)
    places = {
        "none": ([], []),
        "first": ([0], [0]),
        "ragged": ([0, 3, 4, 10], [5]),
        "one row": ([], [2, 6]),
        "a hidden one": ([1], [3, length - 1]),
        "all": (range(length), range(length)),
    }[marks]
    marked = torch.zeros(2, length, dtype=torch.bool)
    for row, chosen in enumerate(places):
        marked[row, list(chosen)] = True
    return x, marked, length_mask(torch.tensor([length, length - 4]), length)


def expected(layer, x, marked, mask):
    """Row by row and token by token, each with its own set of keys: dense attention of the reference."""
    out = torch.zeros_like(x)

    def split(y):
        return y.unflatten(-1, (HEADS, SIZE)).transpose(1, 2)

    local = [split(projection(x)) for projection in (layer.query, layer.key, layer.value)]
    wide = [split(projection(x)) for projection in (layer.query_global, layer.key_global, layer.value_global)]
    marked = marked & mask
    for b in range(len(x)):
        for i in range(x.shape[1]):
            if not mask[b, i]:
                continue
            reach = [i + step for step in range(-layer.window, layer.window + 1)]
            near = torch.tensor([j in reach for j in range(x.shape[1])])
            seen = mask[b] & (marked[b, i] | marked[b] | near)
            q, k, v = wide if marked[b, i] else local
            found, _ = reference.attention(q[b : b + 1, :, i : i + 1], k[b : b + 1], v[b : b + 1], mask=seen)
            out[b, i] = found.flatten()
    return layer.out(out)


@pytest.mark.parametrize("marks", ["none", "first", "ragged", "one row", "a hidden one", "all"])
def test_equals_dense_attention_of_each_token_to_its_own_keys(marks):
    made, (x, marked, mask) = layer(2), case(marks)
    assert (made(x, marked, mask) - expected(made, x, marked, mask)).abs().max() < 1e-12
    full = torch.ones_like(mask)
    assert (made(x, marked) - expected(made, x, marked, full)).abs().max() < 1e-12
    single = layer(2, torch.float32)(x.float(), marked, mask)
    assert (single - expected(made, x, marked, mask)).abs().max() < 1e-5
    if marks == "none":
        assert torch.equal(made(x, None, mask), made(x, marked, mask))


@pytest.mark.parametrize("marks", ["none", "ragged", "a hidden one"])
def test_gradcheck(marks):
    made, (x, marked, mask) = layer(1), case(marks, 8 if marks == "none" else 11)
    made.requires_grad_(False)
    assert torch.autograd.gradcheck(lambda x: made(x, marked, mask), x.requires_grad_(), atol=1e-7, fast_mode=True)
    if marks == "ragged":
        weights = [made.query_global.weight, made.key_global.weight, made.value_global.bias, made.key.weight]

        def of_weights(*_):
            return made(x.detach(), marked, mask)

        assert torch.autograd.gradcheck(of_weights, [w.requires_grad_() for w in weights], atol=1e-7, fast_mode=True)


def test_no_tensor_grows_with_the_square_of_the_length():
    length, made = 4096, LongformerAttention(16, 2, 32)
    marked = torch.zeros(1, length, dtype=torch.bool)
    marked[0, [0, 7, 4000]] = True
    with Largest() as largest:
        made(torch.randn(1, length, 16), marked).sum().backward()
    # The largest are x, and what 3 global questions of 2 heads weigh.
    assert largest.most <= 2 * length * 16


@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (2, 1)])
def test_lengths_zero_and_one(shape):
    marked = torch.ones(shape, dtype=torch.bool)
    assert layer()(torch.zeros(*shape, HEADS * SIZE, dtype=torch.float64), marked).shape == (*shape, HEADS * SIZE)


def test_starts_with_global_projections_that_are_copies():
    made = LongformerAttention(8, 2, 1)
    for name in ("query", "key", "value"):
        own, shared = getattr(made, f"{name}_global"), getattr(made, name)
        assert torch.equal(own.weight, shared.weight) and own.weight.data_ptr() != shared.weight.data_ptr()
    assert "window=1" in repr(made)
    assert not any(name.endswith("bias") for name, _ in LongformerAttention(8, 2, 1, bias=False).named_parameters())


@pytest.mark.parametrize("name", ["global_tokens", "mask"])
def test_marks_that_are_not_boolean_are_named(name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        LongformerAttention(8, 2, 1)(torch.zeros(2, 3, 8), **{name: torch.zeros(2, 3)})
