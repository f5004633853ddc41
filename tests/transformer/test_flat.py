"""A stack read flat gives what its modules give, or is left as it is."""

from functools import partial

import pytest
import torch
from torch import nn

from attn_core.capture import capture_attention
from attn_core.mechanisms.dense import Dense
from attn_core.mechanisms.window import SlidingWindow
from attn_core.multi_head import MultiHeadAttention
from attn_core.positions import ALiBi, Learned, Rotary
from attn_core.transformer import LanguageModel, SwiGLU, TransformerConfig
from attn_core.transformer.flat import flat
from attn_core.transformer.stacks import new_caches
from tests import reference

SIZES = {"vocab_size": 11, "model_dim": 16, "num_heads": 4, "num_layers": 2, "feed_forward_dim": 24, "norm_first": True}
LLAMA = {"num_kv_heads": 2, "norm": partial(nn.RMSNorm, eps=1e-2), "feed_forward": SwiGLU, "bias": False}
KINDS = {
    "Llama's": (LLAMA, {"positions": lambda: Rotary(4)}),
    "GPT-2's": ({}, {"positions": lambda: Learned(20, 16)}),
    "part of each head": (LLAMA, {"positions": lambda: Rotary(4, rotary_dim=2)}),
    "a window": (LLAMA, {"mechanism": lambda: SlidingWindow(3)}),
    "a soft cap": ({}, {"mechanism": lambda: Dense(soft_cap=0.5)}),
}
LEFT = {
    "post-norm": {"norm_first": False},
    "a gate": {"attention": partial(MultiHeadAttention, gate=True)},
    "norms of queries": {"attention": partial(MultiHeadAttention, query_key_norm=nn.RMSNorm)},
    "shared queries": {"attention": partial(MultiHeadAttention, share_query_key=True)},
    "another network": {"feed_forward": lambda dim, hidden, **_: nn.Linear(dim, dim)},
}


def made(changes, options, dtype=torch.float64):
    torch.manual_seed(0)
    model = LanguageModel(TransformerConfig(**{**SIZES, **changes}), **options).to(dtype).eval()
    for parameter in model.parameters():  # norms and biases, too, are others than at the start
        nn.init.normal_(parameter, std=0.5)
    return model


def reads(model, stack):
    """What three calls give, of one, three and again one token."""
    caches = new_caches(model.stack.layers, 2, 8)
    parts = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]).split([1, 3, 1], 1)
    return [model.read(tokens, caches, stack=stack) for tokens in parts]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_reads_what_the_modules_read(kind, dtype):
    model = made(*KINDS[kind], dtype)
    stack, tolerance = flat(model.stack), 4 * reference.tolerance(dtype)
    assert stack is not model.stack
    torch.testing.assert_close(reads(model, stack), reads(model, None), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("change", LEFT)
def test_other_stacks_are_left_as_they_are(change):
    stack = made(LEFT[change], {}).stack
    for other in (stack, made({}, {"positions": lambda: ALiBi(4)}).stack, stack.layers[0]):
        assert flat(other) is other
    stack = made({}, {}).stack
    stack.layers[1].attention.value = nn.Sequential(stack.layers[1].attention.value)
    assert flat(stack) is stack


def test_hooks_and_captures_see_what_they_see_in_the_modules():
    model, seen = made(*KINDS["Llama's"]), []
    stack = flat(model.stack)
    with capture_attention(model) as maps:
        reads(model, stack)
    with capture_attention(model) as wanted:
        reads(model, None)
    assert maps.keys() == wanted.keys() and len(maps) == 2
    torch.testing.assert_close(maps, wanted)
    model.stack.layers[1].feed_forward.out.register_forward_hook(lambda *_: seen.append(1))
    reads(model, stack)
    assert len(seen) == 3
