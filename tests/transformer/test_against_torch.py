"""The stacks with the weights of PyTorch's nn.Transformer: the same outputs and gradients."""

import pytest
import torch
from torch import nn

from attn_core import masks
from attn_core.mechanisms.dense import Dense
from attn_core.transformer import EncoderStack, TransformerConfig
from attn_core.transformer.stacks import DecoderStack

DIM, HEADS, HIDDEN, LAYERS = 24, 4, 40, 2


def theirs(norm_first, **options):
    torch.manual_seed(0)
    model = nn.Transformer(DIM, HEADS, LAYERS, LAYERS, HIDDEN, 0.0, batch_first=True, norm_first=norm_first, **options)
    for parameter in model.parameters():  # none at its start of 0 or 1
        nn.init.normal_(parameter, mean=0.1, std=0.3)
    if not norm_first:  # the paper's order has no norm at the end of a stack
        model.encoder.norm = model.decoder.norm = None
    return model


def ours(model, norm_first):
    config = TransformerConfig(
        11, model_dim=DIM, num_heads=HEADS, num_layers=LAYERS, feed_forward_dim=HIDDEN, norm_first=norm_first, dropout=0
    )
    encoder = EncoderStack(config, mechanism=Dense)
    decoder = DecoderStack(config, mechanism=Dense, cross_mechanism=Dense)
    with torch.no_grad():
        for stack, other in ((encoder, model.encoder), (decoder, model.decoder)):
            for layer, peer in zip(stack.layers, other.layers, strict=True):
                copy(layer, peer)
            if norm_first:
                stack.norm.load_state_dict(other.norm.state_dict())
    return encoder, decoder


def copy(layer, peer):
    attentions = [("attention", peer.self_attn, peer.norm1, "add_attention")]
    if hasattr(peer, "multihead_attn"):
        attentions.append(("cross_attention", peer.multihead_attn, peer.norm2, "add_cross"))
    for name, attention, norm, add in attentions:
        own = getattr(layer, name)
        for part in ("weight", "bias"):
            joint = getattr(attention, f"in_proj_{part}").chunk(3)
            for projection, values in zip((own.query, own.key, own.value), joint, strict=True):
                getattr(projection, part).copy_(values)
        own.out.load_state_dict(attention.out_proj.state_dict())
        getattr(layer, add).norm.load_state_dict(norm.state_dict())
    last = peer.norm3 if hasattr(peer, "norm3") else peer.norm2
    layer.add_feed_forward.norm.load_state_dict(last.state_dict())
    layer.feed_forward.hidden.load_state_dict(peer.linear1.state_dict())
    layer.feed_forward.out.load_state_dict(peer.linear2.state_dict())


def gradients(layer, peer):
    """Ours beside theirs, for every weight of a layer."""
    attentions = [(layer.attention, peer.self_attn, layer.add_attention.norm, peer.norm1)]
    if hasattr(peer, "multihead_attn"):
        attentions.append((layer.cross_attention, peer.multihead_attn, layer.add_cross.norm, peer.norm2))
    pairs = [
        (layer.feed_forward.hidden, peer.linear1),
        (layer.feed_forward.out, peer.linear2),
        (layer.add_feed_forward.norm, peer.norm3 if hasattr(peer, "norm3") else peer.norm2),
    ]
    for attention, other, norm, other_norm in attentions:
        pairs += [(attention.out, other.out_proj), (norm, other_norm)]
        for part in ("weight", "bias"):
            joint = [getattr(getattr(attention, name), part).grad for name in ("query", "key", "value")]
            yield torch.cat(joint), getattr(other, f"in_proj_{part}").grad
    for one, two in pairs:
        yield one.weight.grad, two.weight.grad
        yield one.bias.grad, two.bias.grad


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masked", ["nothing", "padding", "causal", "both"])
def test_stacks_equal_torch_forward_and_backward(norm_first, masked):
    model = theirs(norm_first)
    encoder, decoder = ours(model, norm_first)
    generator = torch.Generator().manual_seed(1)
    source, target = (torch.randn(3, n, DIM, generator=generator) for n in (7, 5))
    lengths, target_lengths = torch.tensor([7, 4, 1]), torch.tensor([5, 5, 2])
    seen, target_seen = masks.length_mask(lengths, 7), masks.length_mask(target_lengths, 5)
    hidden = {"src_key_padding_mask": ~seen, "memory_key_padding_mask": ~seen, "tgt_key_padding_mask": ~target_seen}
    if masked in ("nothing", "causal"):
        hidden, seen, target_seen = {}, torch.ones(3, 7, dtype=torch.bool), torch.ones(3, 5, dtype=torch.bool)
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    inputs = [[x.clone().requires_grad_() for x in (source, target)] for _ in range(2)]

    expected = model(*inputs[0], tgt_mask=future, **hidden)
    states = encoder(inputs[1][0], mask=seen[:, None, None])
    found = decoder(
        inputs[1][1], decoder.project_kv(states), mask=target_seen[:, None, None], memory_mask=seen[:, None, None]
    )
    weight = torch.randn(expected.shape, generator=generator)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    (expected * weight).sum().backward()
    (found * weight).sum().backward()
    for x, y in zip(*inputs, strict=True):
        torch.testing.assert_close(y.grad, x.grad, atol=1e-5, rtol=1e-4)
    for stack, other in ((encoder, model.encoder), (decoder, model.decoder)):
        for layer, peer in zip(stack.layers, other.layers, strict=True):
            for one, two in gradients(layer, peer):
                assert two.abs().max() > 1e-3
                torch.testing.assert_close(one, two, atol=1e-5 * two.abs().max().item(), rtol=1e-4)
