"""Captions: the decoders of sentences over the regions of images."""

import pytest
import torch

from attn_book.alignment import alignment_error
from attn_book.captioner import ImageEncoder, region_maps
from attn_book.corpus import DrawingBatches, draw_scenes
from attn_book.data import Batch, Vocab
from attn_book.train import fit, reinforce_loss, target_loss
from attn_core.decode import beam, greedy
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


def test_a_region_sees_seventeen_pixels():
    """Measured by gradient, on an image larger than that."""
    torch.manual_seed(1)
    encoder = ImageEncoder(image_size=48, memory_dim=8).double().eval()
    images = torch.rand(1, 3, 48, 48, dtype=torch.float64, requires_grad=True)
    encoder(images, torch.tensor([36])).states[0, 14].sum().backward()  # row 2, column 2: pixels 16 to 23
    seen = images.grad[0].abs().sum(0)
    rows = seen.sum(1).nonzero().flatten()
    assert rows[-1] - rows[0] + 1 == 17


def test_equal_regions_differ_by_their_place():
    encoder = build().encoder
    states = encoder(torch.full((1, 3, 24, 24), 0.5, dtype=torch.float64), torch.tensor([9])).states[0]
    plain = encoder.layers(torch.full((1, 3, 24, 24), 0.5, dtype=torch.float64)).flatten(2)[0].T
    torch.testing.assert_close(states - plain, encoder.positions.weight)


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


def test_searches_read_images():
    model, batch = build(), batch_of()
    found = greedy(model, batch.source, batch.source_lengths, max_length=5)
    best = beam(model, batch.source, batch.source_lengths, max_length=5, beam_size=2)
    assert len(found) == len(best) == 2 and all(h.attention.shape == (len(h.ids), 9) for h in found)
    for row, hypothesis in enumerate(found):
        ids = [Vocab.BOS, *hypothesis.ids]
        logits = model(batch.source[row : row + 1], torch.tensor([9]), torch.tensor([ids]))[0]
        assert logits.argmax(-1).tolist()[: len(hypothesis.ids)] == hypothesis.ids


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ImageEncoder(image_size=20, memory_dim=4), "image_size: expected a multiple of 8, got 20"),
        (lambda: ImageEncoder(image_size=16, memory_dim=0), "memory_dim: expected an integer of at least 1"),
        (lambda: ImageEncoder(image_size=16, memory_dim=1), "memory_dim: expected"),
        (lambda: build().encoder(torch.rand(2, 3, 16, 16).double(), torch.tensor([4, 4])), "images: expected sides"),
        (lambda: build().encoder(batch_of().source, torch.tensor([9])), r"lengths: expected shape \(2,\), got \(1,\)"),
        (lambda: build().encoder(batch_of().source, torch.tensor([9, 10])), "lengths: expected lengths from 0 to 9"),
        (lambda: build().encoder(batch_of().source, torch.tensor([9, 0])), "lengths: expected at least one region"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
