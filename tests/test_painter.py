"""The painter: its shapes, what its time and its caption reach, its loss and its sampling."""

import json
import math

import pytest
import torch

from attn_book.corpus.arrangements import draw_arrangements
from attn_book.data import Vocab
from attn_book.painter import Painter, encode_captions, flow_loss, paint, to_images, to_patches
from attn_book.widgets.exported import export_painter, load_painter
from attn_core.capture import capture_attention

DATA = draw_arrangements(24, seed=0)
VOCAB = Vocab(DATA.captions)
IDS = {word: i for i, word in enumerate(VOCAB.tokens)}
CAPTIONS, LENGTHS = encode_captions(DATA.captions, IDS)
PICTURES = to_patches(DATA.images, 4)


def painter(*, active=True):
    """A small painter; if it is active, its parts that begin at zero are drawn at random."""
    torch.manual_seed(0)
    model = Painter(len(VOCAB), dim=16, num_heads=2, num_layers=2)
    if active:
        with torch.no_grad():
            for parameter in model.parameters():
                if not parameter.any():
                    parameter.normal_(std=0.2)
    return model


def test_patches_and_images_are_the_same_pictures():
    torch.testing.assert_close(to_images(PICTURES, 4), DATA.images)
    assert PICTURES.shape == (24, 64, 48) and PICTURES.min() >= -1 and PICTURES.max() <= 1
    assert to_images(torch.full((1, 64, 48), 3.0), 4).max() == 1


def test_captions_begin_with_bos_and_are_padded():
    ids, lengths = encode_captions([(), ("a", "red", "star")], IDS)
    assert ids.tolist()[0] == [Vocab.BOS, Vocab.PAD, Vocab.PAD, Vocab.PAD] and lengths.tolist() == [1, 4]
    assert [VOCAB.tokens[i] for i in ids[1, 1:]] == ["a", "red", "star"]
    with pytest.raises(ValueError, match="^captions: expected words that the model knows, got 'egg'"):
        encode_captions([("an", "egg")], IDS)


def test_a_new_painter_paints_nothing():
    out = painter(active=False)(PICTURES, torch.rand(24), CAPTIONS, LENGTHS)
    assert out.shape == PICTURES.shape and not out.any()


def test_the_time_the_caption_and_the_patches_reach_the_output():
    model = painter()
    time = torch.full((24,), 0.5)
    out = model(PICTURES, time, CAPTIONS, LENGTHS)
    assert (model(PICTURES, time + 0.1, CAPTIONS, LENGTHS) - out).abs().max() > 1e-3
    other = CAPTIONS.clone()
    other[:, 2] = other[:, 2].roll(1)
    changed = (model(PICTURES, time, other, LENGTHS) - out).abs().amax((1, 2)) > 1e-5
    assert torch.equal(changed, other[:, 2] != CAPTIONS[:, 2])
    moved = PICTURES.clone()
    moved[:, 0] += 1
    assert ((model(moved, time, CAPTIONS, LENGTHS) - out)[:, -1].abs().amax(-1) > 1e-6).all()


def test_padding_and_hidden_words_reach_nothing():
    model = painter()
    time = torch.full((24,), 0.5)
    longer = torch.cat([CAPTIONS, torch.full((24, 3), VOCAB.encode(["red"])[0])], 1)
    out = model(PICTURES, time, CAPTIONS, LENGTHS)
    torch.testing.assert_close(model(PICTURES, time, longer, LENGTHS), out)
    hidden = torch.zeros(CAPTIONS.shape)
    hidden[:, 3] = -math.inf
    with capture_attention(model) as maps:
        model(PICTURES, time, CAPTIONS, LENGTHS, bias=hidden)
    for block in range(2):
        weights = maps[f"blocks.{block}.cross_attention"][0]
        assert weights.shape == (24, 2, 64, CAPTIONS.shape[1])
        assert not weights[..., 3].any() and weights[..., 2].all()


def test_a_bias_of_log_two_doubles_a_weight_beside_the_others():
    model = painter()
    time, bias = torch.full((24,), 0.5), torch.zeros(CAPTIONS.shape)
    bias[:, 2] = math.log(2)
    ratios = []
    for added in (None, bias):
        with capture_attention(model) as maps:
            model(PICTURES, time, CAPTIONS, LENGTHS, bias=added)
        weights = maps["blocks.0.cross_attention"][0]
        ratios.append(weights[..., 2] / weights[..., 0])
    torch.testing.assert_close(ratios[1], 2 * ratios[0])


def test_the_loss_is_that_of_the_velocity():
    """A model that always answers with grey has the loss of the velocity that leads there."""

    class Grey(torch.nn.Module):
        def forward(self, noisy, time, captions, lengths):
            self.seen = noisy, time, lengths
            return torch.zeros_like(noisy)

    model = Grey()
    loss = flow_loss(model, PICTURES, CAPTIONS, LENGTHS, generator=torch.Generator().manual_seed(0))
    noisy, time, lengths = model.seen
    t = time[:, None, None]
    noise = (noisy - t * PICTURES) / (1 - t)
    assert abs(noise.mean()) < 0.02 and abs(noise.std() - 1) < 0.02
    velocity, implied = PICTURES - noise, (0 - noisy) / (1 - t)
    late = (1 - t) / (1 - t).clamp(min=0.1)  # below 1 where the division is by a tenth
    assert (late == 1).any()
    torch.testing.assert_close(loss, ((late * (velocity - implied)) ** 2).mean(), rtol=1e-4, atol=1e-4)
    assert set(lengths.tolist()) <= {1, *LENGTHS.tolist()}


def test_some_captions_are_left_empty():
    class Lengths(torch.nn.Module):
        def forward(self, noisy, time, captions, lengths):
            self.empty = (lengths == 1).float().mean().item()
            return noisy

    model = Lengths()
    many = [x.repeat(50, *[1] * (x.dim() - 1)) for x in (PICTURES, CAPTIONS, LENGTHS)]
    flow_loss(model, *many, generator=torch.Generator().manual_seed(1))
    assert 0.06 < model.empty < 0.14


def test_painting_is_the_loop_written_out():
    model, (ids, lengths) = painter(), (CAPTIONS[:3], LENGTHS[:3])
    noise = torch.randn(3, 64, 48, generator=torch.Generator().manual_seed(0))
    empty = torch.ones_like(lengths)
    x, watched = noise, []
    with torch.no_grad():
        for step in range(4):
            time = torch.full((3,), step / 4)
            without = model(x, time, ids, empty)
            found = without + 3.0 * (model(x, time, ids, lengths) - without)
            velocity = (found - x) / (1 - step / 4)
            x = x + velocity / 4
    out = paint(
        model, ids, lengths, noise=noise, steps=4, guidance=3.0, watch=lambda step, found: watched.append((step, found))
    )
    torch.testing.assert_close(out, x, rtol=1e-4, atol=1e-4)
    assert [step for step, _ in watched] == [0, 1, 2, 3]
    torch.testing.assert_close(watched[-1][1], out, rtol=1e-4, atol=1e-4)  # the last step arrives at the prediction


def test_a_bias_acts_on_the_caption_alone():
    model, (ids, lengths) = painter(), (CAPTIONS[:2], LENGTHS[:2])
    noise, hidden = torch.randn(2, 64, 48), torch.zeros(2, ids.shape[1])
    hidden[:, 1:] = -math.inf  # what is left is the empty caption, but for the encoder that has read the words
    plain, biased = (paint(model, ids, lengths, noise=noise, steps=2, bias=bias) for bias in (None, hidden))
    assert (plain - biased).abs().max() > 1e-4
    unguided = [paint(model, ids, lengths, noise=noise, steps=2, guidance=0, bias=bias) for bias in (None, hidden)]
    torch.testing.assert_close(*unguided)


def test_it_learns():
    torch.manual_seed(0)
    model = painter(active=False)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(30):
        loss = flow_loss(model, PICTURES[:8], CAPTIONS[:8], LENGTHS[:8])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_an_exported_painter_paints_nearly_the_same():
    model = painter()
    again, ids_of = load_painter(json.loads(json.dumps(export_painter(model, VOCAB))))
    assert ids_of == IDS and not again.training
    noise = torch.randn(2, 64, 48, generator=torch.Generator().manual_seed(0))
    outs = [paint(each, CAPTIONS[:2], LENGTHS[:2], noise=noise, steps=3) for each in (model, again)]
    assert 0 < (outs[0] - outs[1]).abs().mean() < 0.05 * outs[0].abs().mean()


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("patch_size", lambda: Painter(20, patch_size=5)),
        ("num_layers", lambda: Painter(20, num_layers=0)),
        ("steps", lambda: paint(painter(), CAPTIONS, LENGTHS, noise=PICTURES, steps=0)),
        ("guidance", lambda: paint(painter(), CAPTIONS, LENGTHS, noise=PICTURES, guidance=-1)),
        ("model", lambda: export_painter(torch.nn.Linear(1, 1), VOCAB)),
        ("vocab", lambda: export_painter(painter(), Vocab([["red"]]))),
    ],
)
def test_bad_input_is_named(name, act):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        act()
