"""The Transformer built from d2l's classes computes what ours does with its weights, and learns by d2l's steps."""

import torch

from attn_core.transformer import Transformer, TransformerConfig
from benchmarks import d2l_transformer

SIZES = {"width": 8, "hidden_dim": 12, "num_heads": 2, "num_layers": 2}
SOURCE, LENGTHS = torch.tensor([[4, 5, 6, 7, 2], [8, 9, 2, 0, 0], [5, 4, 4, 2, 0]]), torch.tensor([5, 3, 4])
TARGET = torch.tensor([[1, 4, 5, 6], [1, 7, 8, 4], [1, 6, 6, 5]])


def ours_with_weights_of(model):
    config = TransformerConfig(11, 10, model_dim=8, num_heads=2, num_layers=2, feed_forward_dim=12, dropout=0.0)
    ours = Transformer(config)
    ours.source_embedding.tokens.load_state_dict(model.encoder.embedding.state_dict())
    ours.target_embedding.tokens.load_state_dict(model.decoder.embedding.state_dict())

    def linear(here, weight, bias=None):
        here.weight.data.copy_(weight)
        here.bias.data.copy_(torch.zeros_like(here.bias) if bias is None else bias)

    def attention(here, theirs):
        for name, part in (("query", "W_q"), ("key", "W_k"), ("value", "W_v"), ("out", "W_o")):
            linear(getattr(here, name), getattr(theirs, part).weight)

    def feed_forward(here, theirs):
        linear(here.hidden, theirs.dense1.weight, theirs.dense1.bias)
        linear(here.out, theirs.dense2.weight, theirs.dense2.bias)

    for here, theirs in zip(ours.encoder.layers, model.encoder.blks, strict=True):
        attention(here.attention, theirs.attention)
        feed_forward(here.feed_forward, theirs.ffn)
    for here, theirs in zip(ours.decoder.layers, model.decoder.blocks, strict=True):
        attention(here.attention, theirs.attention)
        attention(here.cross_attention, theirs.cross)
        feed_forward(here.feed_forward, theirs.feed_forward)
    return ours.eval()


@torch.no_grad()
def test_it_computes_what_our_transformer_does_with_its_weights(d2l):
    model = d2l_transformer.translator(d2l, 10, 11, **SIZES).eval()
    ours = ours_with_weights_of(model)
    states, mask = ours.encode(SOURCE, LENGTHS)
    decoder = ours.decoder
    x = decoder(ours.target_embedding(TARGET), decoder.project_kv(states), memory_mask=mask[:, None, None])
    logits, _ = model(SOURCE, TARGET, LENGTHS)
    torch.testing.assert_close(logits, model.decoder.dense(x), atol=1e-5, rtol=1e-5)
