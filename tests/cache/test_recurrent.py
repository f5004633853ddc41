import pytest
import torch

from attn_core import LinearAttention, Performer
from attn_core.cache import LinearState, PerformerState, RecurrentState, rollback_on_error


def inputs(scale=1.0, dtype=torch.float32):
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, 9, size, generator=draw) for heads, size in ((6, 8), (2, 8), (2, 5)))
    return (q * scale).to(dtype), (k * scale).to(dtype), v.to(dtype)


def pieces(tensors, *sizes):
    return zip(*(x.split(list(sizes), dim=2) for x in tensors), strict=True)


def of(mechanism):
    return PerformerState(mechanism, 2, 2, value_dim=5)


@pytest.mark.parametrize("sizes", [[1] * 9, [4, 1, 3, 1], [9]])
@pytest.mark.parametrize("scale", [0.3, 8.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_token_by_token_a_performer_gives_what_its_causal_call_does(sizes, scale, dtype):
    mechanism, (q, k, v) = Performer(8, 32).to(dtype), inputs(scale, dtype)
    state, whole = of(mechanism), mechanism(q, k, v, causal=True)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = [state.attend(*piece) for piece in pieces((q, k, v), *sizes)]
    torch.testing.assert_close(torch.cat(outputs, 2), whole, atol=1e-4 if scale > 1 else 1e-5, rtol=0)
    assert state.longest == 9 and state.uniform and state.state[1].shape == (2, 2, 32, 6)


@pytest.mark.parametrize("sizes", [[1] * 9, [4, 1, 3, 1]])
def test_token_by_token_linear_attention_gives_what_its_causal_call_does(sizes):
    mechanism, tensors = LinearAttention(), inputs()
    state = LinearState(mechanism, 2, 2, 8, value_dim=5)
    outputs = [state.attend(*piece) for piece in pieces(tensors, *sizes)]
    torch.testing.assert_close(torch.cat(outputs, 2), mechanism(*tensors, causal=True))
    assert state.longest == 9 and state.state[0].shape == (2, 2, 8, 6)


@pytest.mark.parametrize(("rows", "heads"), [(1, 2), (2, 1)])
def test_a_state_of_another_size_is_refused(rows, heads):
    state = LinearState(LinearAttention(), rows, heads, 8, value_dim=5)
    with pytest.raises(ValueError, match="^k: expected"):
        state.attend(*(x[:, :, :1] for x in inputs()))
    assert state.longest == 0


def test_keys_without_a_feature_give_zeros_as_the_causal_call_does():
    mechanism, (q, k, v) = LinearAttention(), inputs()
    q, k, v = torch.full_like(q, -60.0).float(), torch.full_like(k, -60.0).float(), v.float()
    state = LinearState(mechanism, 2, 2, 8, value_dim=5)
    outputs = [state.attend(*piece) for piece in pieces((q, k, v), *[1] * 9)]
    torch.testing.assert_close(torch.cat(outputs, 2), mechanism(q, k, v, causal=True))


def test_half_precision_is_summed_in_float32():
    mechanism, (q, k, v) = Performer(8, 32), inputs(0.3, torch.bfloat16)
    out = of(mechanism).attend(q, k, v)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), mechanism(q.float(), k.float(), v.float(), causal=True), atol=1e-2, rtol=0)


def test_rows_grow_and_are_reordered_by_themselves():
    mechanism, (q, k, v) = Performer(8, 32), inputs()
    state = of(mechanism)
    state.attend(q[:, :, :4], k[:, :, :4], v[:, :, :4], torch.tensor([4, 2]))
    assert state.lengths.tolist() == [4, 2]
    rows = torch.tensor([1, 0, 1])
    state.reorder(rows)
    next_tokens = [torch.cat([x[[1], :, 2:4], x[[0], :, 4:6], x[[1], :, 2:4]]) for x in (q, k, v)]
    out = state.attend(*next_tokens)
    whole = mechanism(q, k, v, causal=True)
    torch.testing.assert_close(out, torch.cat([whole[[1], :, 2:4], whole[[0], :, 4:6], whole[[1], :, 2:4]]))
    assert state.lengths.tolist() == [4, 6, 4]


def test_the_last_call_can_be_taken_back_and_no_earlier_one():
    mechanism, (q, k, v) = Performer(8, 32), inputs()
    state, whole = of(mechanism), mechanism(q, k, v, causal=True)
    first, second, third = pieces((q, k, v), 3, 2, 4)
    state.attend(*first)
    with pytest.raises(RuntimeError), rollback_on_error([state]):
        state.attend(*second)
        raise RuntimeError
    assert state.lengths.tolist() == [3, 3]
    torch.testing.assert_close(state.attend(*second), whole[:, :, 3:5])
    state.truncate(state.lengths)
    wanted = r"lengths: expected \[3, 3\], those before the last call, since sums cannot be divided, got \[2, 3\]"
    with pytest.raises(ValueError, match=wanted):
        state.truncate(torch.tensor([2, 3]))
    torch.testing.assert_close(state.attend(*third), whole[:, :, 5:])


def test_wrong_input_is_named():
    state = of(Performer(8, 32))
    q, k, v = inputs()
    with pytest.raises(ValueError, match=r"^lengths: expected shape \(2,\)"):
        state.attend(q, k, v, torch.tensor([3]))
    with pytest.raises(ValueError, match="^rows: expected rows from 0 to 1"):
        state.reorder(torch.tensor([2]))
    with pytest.raises(ValueError, match="^lengths: expected an int64 or int32 tensor"):
        state.truncate([0, 0])
    with pytest.raises(NotImplementedError):
        RecurrentState(Performer(4, 8), (torch.zeros(2, 2),)).attend(q, k, v)
