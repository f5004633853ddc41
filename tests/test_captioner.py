"""Captions: the decoders of sentences over the regions of images."""

import pytest
import torch

from attn_book.alignment import alignment_error
from attn_book.captioner import ImageEncoder, region_maps
from attn_book.corpus import DrawingBatches, draw_scenes
from attn_book.data import Batch, Vocab
from attn_book.train import fit, reinforce_loss, target_loss
from attn_core.seq2seq import BahdanauDecoder, HardDecoder, Seq2Seq

SIZES = {"embed_dim": 3, "hidden_dim": 4, "memory_dim": 6}


def build(decoder=BahdanauDecoder):
    torch.manual_seed(3)
    model = Seq2Seq(ImageEncoder(image_size=24, memory_dim=6), decoder(9, **SIZES)).double()
    model.encoder.train()
    model(torch.rand(20, 3, 24, 24, dtype=torch.float64), torch.full((20,), 9), torch.full((20, 1), Vocab.BOS))
    for parameter in model.decoder.parameters():  # small first weights would leave all regions alike
        parameter.data.mul_(3)
    return model.eval()


def batch_of():
    torch.manual_seed(4)
    images = torch.rand(2, 3, 24, 24, dtype=torch.float64)
    target_in = torch.tensor([[1, 4, 5, 6], [1, 7, 0, 0]])
    target_out = torch.tensor([[4, 5, 6, 2], [7, 2, 0, 0]])
    return Batch(images, torch.tensor([9, 9]), target_in, target_out, torch.tensor([4, 2]))


def test_regions_are_vectors_of_one_place_each():
    encoder, images = build().encoder, batch_of().source
    states, final, mask = encoder(images, torch.tensor([9, 7]))
    assert states.shape == (2, 9, 6) and mask.tolist() == [[True] * 9, [True] * 7 + [False] * 2]
    torch.testing.assert_close(final[0], sum(states[0].unbind(0)) / 9)
    torch.testing.assert_close(final[1], sum(states[1, :7].unbind(0)) / 7)
    changed = images.clone()
    changed[:, :, 16:, 16:] += 1.0  # the last of nine regions; its neighbours see some of it, the far corner nothing
    moved = (encoder(changed, torch.tensor([9, 9])).states - states).abs().sum(-1)[0]
    assert moved[8] > 0 and moved[0] == 0 and moved[2] == 0 and moved[6] == 0


@pytest.mark.parametrize("decoder", [BahdanauDecoder, HardDecoder])
def test_every_word_has_a_map_and_steps_give_the_same(decoder):
    model, batch = build(decoder), batch_of()
    maps = region_maps(model.train(), [batch, batch])
    assert model.training and model.encoder.training
    model.eval()  # as it is to be inside: batch norm has not moved
    assert [tuple(m.shape) for m in maps] == [(3, 9), (1, 9)] * 2
    state = model.init_state(batch.source, batch.source_lengths)
    for t in range(3):
        _, state = model.step(batch.target_in[:, t], state)
        torch.testing.assert_close(maps[0][t], state.weights[0])
    if decoder is HardDecoder:
        assert set(torch.cat(maps).flatten().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_pictures_are_learned(kind):
    """A few pictures by heart: images, words and losses go together in ``fit``."""
    drawn = draw_scenes(16, objects=1, distractors=0)
    vocab = Vocab(drawn.captions)
    decoder = (HardDecoder if kind == "hard" else BahdanauDecoder)(
        len(vocab), embed_dim=8, hidden_dim=16, memory_dim=16
    )
    model = Seq2Seq(ImageEncoder(image_size=48, memory_dim=16), decoder)
    batches = DrawingBatches(drawn, vocab, batch_size=16, seed=0)
    loss = reinforce_loss if kind == "hard" else target_loss
    history = fit(model, batches, epochs=40, learning_rate=1e-2, loss=loss, device="cpu", progress=False)
    assert history.losses[-1] < history.losses[0] / 2
    error = alignment_error(region_maps(model, batches), drawn.links())
    assert 0.0 <= error <= 1.0
