"""The pair's loss against a plain double loop, its vectors against their parts."""

import math

import pytest
import torch

from attn_book.contrastive import (
    ContrastivePair,
    contrastive_loss,
    pair_loss,
    sigmoid_loss,
    sigmoid_pair_loss,
    zero_shot,
)
from attn_book.data import Batch, Vocab
from attn_core.transformer import TransformerConfig, TransformerEncoder
from attn_core.vision import VisionTransformer

TOKENS = torch.tensor([[4, 5, 6, 2], [7, 2, 0, 0], [5, 5, 2, 0]])
LENGTHS = torch.tensor([4, 2, 3])


def build(**settings):
    torch.manual_seed(2)
    config = TransformerConfig(
        9, model_dim=12, num_heads=3, num_layers=1, feed_forward_dim=16, dropout=0.5, norm_first=True
    )
    images = VisionTransformer(config, image_size=8, patch_size=4)
    return ContrastivePair(images, TransformerEncoder(config), shared_dim=5, **settings).double().eval()


def images(count=3):
    torch.manual_seed(3)
    return torch.randn(count, 3, 8, 8, dtype=torch.float64)


def by_loops(logits):
    n, total = len(logits), 0.0
    for i in range(n):
        total += math.log(sum(math.exp(logits[i][j]) for j in range(n))) - logits[i][i]
        total += math.log(sum(math.exp(logits[j][i]) for j in range(n))) - logits[i][i]
    return total / (2 * n)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_the_loss_is_that_of_a_double_loop(count):
    logits = 3 * torch.randn(count, count, dtype=torch.float64)
    assert contrastive_loss(logits).item() == pytest.approx(by_loops(logits.tolist()), abs=1e-12)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_the_sigmoid_loss_asks_of_each_pair_by_itself(count):
    logits = 3 * torch.randn(count, count, dtype=torch.float64)
    own = [[1 if i == j else -1 for j in range(count)] for i in range(count)]
    total = sum(math.log1p(math.exp(-own[i][j] * logits[i][j])) for i in range(count) for j in range(count))
    assert sigmoid_loss(logits).item() == pytest.approx(total / count, abs=1e-12)
    assert sigmoid_loss(logits.bfloat16()).dtype == torch.float32


def test_a_bias_is_added_and_learned():
    plain, model = build(temperature=0.2), build(temperature=0.2, bias=-10.0)
    torch.testing.assert_close(model(images(), TOKENS, LENGTHS), plain(images(), TOKENS, LENGTHS) - 10)
    sigmoid_loss(model(images(), TOKENS, LENGTHS)).backward()
    assert model.bias.grad.item() < 0 and plain.bias is None  # own pairs are called unlikely: the bias has to rise


def test_the_loss_of_two_sides_that_differ():
    """Every image finds its text, and each text finds its image: two errors that are not the same."""
    logits = torch.tensor([[2.0, 0.0], [2.0, 0.0]])
    rows = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(2))) / 2
    assert contrastive_loss(logits).item() == pytest.approx((rows + math.log(2)) / 2, abs=1e-6)
    assert contrastive_loss(logits.T).item() == pytest.approx((rows + math.log(2)) / 2, abs=1e-6)


def test_logits_are_cosines_over_the_temperature():
    model = build(temperature=0.2)
    logits = model(images(), TOKENS, LENGTHS)
    for row in range(3):
        seen = model.image_projection(model.images(images()[row : row + 1]))[0].tolist()
        for column in range(3):
            length = int(LENGTHS[column])
            states = model.texts(TOKENS[column : column + 1, :length], LENGTHS[column : column + 1])
            read = model.text_projection(states[0, -1]).tolist()
            product = sum(a * b for a, b in zip(seen, read, strict=True))
            cosine = product / math.hypot(*seen) / math.hypot(*read)
            assert logits[row, column].item() == pytest.approx(cosine / 0.2, rel=1e-6)


def test_the_temperature_starts_learns_and_stays_above_one_hundredth():
    model = build(temperature=0.07)
    assert model.log_scale.exp().item() == pytest.approx(1 / 0.07, rel=1e-5)
    contrastive_loss(model(images(), TOKENS, LENGTHS)).backward()
    assert model.log_scale.grad.item() != 0 and all(p.grad is not None for p in model.parameters())
    model.log_scale.data.fill_(9.0)
    logits = model(images(), TOKENS, LENGTHS)
    assert logits.abs().max() <= 100
    model.log_scale.grad = None
    contrastive_loss(logits).backward()
    assert model.log_scale.grad.item() != 0  # it can fall again
    model.log_scale.data.fill_(3.0)
    torch.testing.assert_close(
        model(images(), TOKENS, LENGTHS),
        math.exp(3) * model.embed_images(images()) @ model.embed_texts(TOKENS, LENGTHS).T,
    )


def test_a_batch_of_pictures_has_the_loss_of_its_captions():
    model = build()
    target_in = torch.cat([torch.full((3, 1), Vocab.BOS), TOKENS[:, :-1]], 1)
    batch = Batch(images(), torch.full((3,), 4), target_in, TOKENS, LENGTHS)
    expected = by_loops(model(images(), TOKENS, LENGTHS).tolist())
    loss, count = pair_loss(model, batch)
    assert loss.item() == pytest.approx(3 * expected, rel=1e-5) and count == 3
    loss, count = sigmoid_pair_loss(model, batch)
    expected = sigmoid_loss(model(images(), TOKENS, LENGTHS)).item()
    assert loss.item() == pytest.approx(3 * expected, rel=1e-5) and count == 3
    assert pair_loss.needs_whole_batch and sigmoid_pair_loss.needs_whole_batch


def test_zero_shot_takes_the_nearest_caption():
    model, captions = build().train(), [("a", "red", "star"), ("a", "ring"), ("red",), ("star", "a", "ring")]
    vocab = Vocab(captions)
    found = zero_shot(model, images(40), captions, vocab)
    assert model.training and found.shape == (40,) and len(set(found.tolist())) > 1
    model.eval()
    seen = model.embed_images(images(40))
    read = []
    for words in captions:
        ids = torch.tensor([[*vocab.encode(words), Vocab.EOS]])
        read.append(model.embed_texts(ids, torch.tensor([ids.shape[1]]))[0])
    for row in range(40):
        products = [(seen[row] @ vector).item() for vector in read]
        assert found[row] == products.index(max(products))
