import math
import random
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from attn_book.contrastive import pair_loss
from attn_book.data import Batches, Pair, Vocab
from attn_book.metrics import exact_match
from attn_book.pretrain import masked_and_next_loss, next_token_loss
from attn_book.train import cosine, fit, smoothed_loss, target_loss, token_loss
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq

LETTERS = "abcdefgh"


def reversal(count, seed):
    """Sentences of letters, and the same letters in capitals the other way round."""
    draw = random.Random(seed)
    words = [tuple(draw.choice(LETTERS) for _ in range(draw.randint(2, 5))) for _ in range(count)]
    return [Pair(sentence, tuple(letter.upper() for letter in reversed(sentence))) for sentence in words]


pairs = reversal(400, 0)
small, large = Vocab(p.source for p in pairs), Vocab(p.target for p in pairs)


def model(dropout=0.0):
    torch.manual_seed(0)
    encoder = Encoder(len(small), embed_dim=16, hidden_dim=16, dropout=dropout)
    return Seq2Seq(encoder, BahdanauDecoder(len(large), embed_dim=16, hidden_dim=32, memory_dim=32, dropout=dropout))


def batches(size=32):
    return Batches(pairs, small, large, batch_size=size, seed=0)


def quiet(net, **options):
    return fit(net, batches(), **({"epochs": 1, "progress": False} | options))


def test_token_loss_is_the_sum_over_true_tokens_and_their_number():
    logits = torch.randn(2, 3, 5)
    target = torch.tensor([[1, 4, 2], [3, 2, 0]])
    picked = [-logits[i, t].log_softmax(-1)[target[i, t]] for i, t in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]]
    loss, count = token_loss(logits, target)
    assert loss.item() == pytest.approx(float(sum(picked)), rel=1e-5) and count == 5
    assert token_loss(logits[0], target[0])[0].item() == pytest.approx(float(sum(picked[:3])), rel=1e-5)
    assert token_loss(logits.bfloat16(), target)[0].dtype == torch.float32


@pytest.mark.parametrize(("padding_id", "counted"), [(0, 5), (2, 4), (None, 6), (-100, 6)])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_padding_id_is_the_callers(padding_id, counted, dtype):
    logits, target = torch.randn(2, 3, 5), torch.tensor([[1, 4, 2], [3, 2, 0]], dtype=dtype)
    kept = torch.ones(2, 3) if padding_id is None else (target != padding_id).float()
    each = -logits.log_softmax(-1).gather(-1, target.long()[..., None])[..., 0]
    loss, count = token_loss(logits, target, padding_id=padding_id)
    torch.testing.assert_close(loss, (each * kept).sum())
    assert count == counted
    net, batch = (
        (lambda *read: logits),
        SimpleNamespace(source=target, source_lengths=None, target_in=target, target_out=target),
    )
    for one in (target_loss, next_token_loss, smoothed_loss(0.0, padding_id=padding_id)):
        options = {} if isinstance(one, partial) else {"padding_id": padding_id}
        assert one(net, batch, **options)[1] == counted


def test_it_learns_to_reverse():
    from attn_book.translation import translate

    net = model()
    history = quiet(net, epochs=25, learning_rate=1e-2)
    held_out = reversal(100, 1)
    found = translate(net, [p.source for p in held_out], small, large)
    assert exact_match([t.words for t in found], [p.target for p in held_out]) > 0.9
    assert len(history.losses) == 25 * 13
    assert sum(history.losses[-13:]) < 0.2 * sum(history.losses[:13])
    assert history.seconds > 0


def test_the_same_seed_gives_the_same_weights_and_leaves_the_callers_randomness():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    nets = [model(dropout=0.3) for _ in range(3)]
    torch.manual_seed(5)
    for net, seed in zip(nets, (1, 1, 2), strict=True):
        quiet(net, seed=seed)
    assert torch.equal(torch.rand(3), expected)
    first, second, third = (torch.cat([p.detach().flatten() for p in net.parameters()]) for net in nets)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_the_rate_rises_and_falls_to_zero():
    rates = [cosine(100, peak=1.0, warmup=0.1)(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1) and max(rates) == 1.0
    assert rates[:10] == sorted(rates[:10]) and rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] < 0.001
    assert cosine(1, peak=3.0, warmup=0.0)(0) == 3.0


def test_batches_that_make_one_step_are_one_batch():
    """Three batches of unequal sizes: the gradients, and so the weights, of one batch with all their pairs."""
    whole, parts = (Batches(pairs[:10], small, large, batch_size=size) for size in (10, 4))
    nets = [model(), model()]
    histories = [
        fit(net, batches, epochs=3, learning_rate=1e-2, accumulate=together, progress=False, device="cpu")
        for net, batches, together in zip(nets, (whole, parts), (1, 3), strict=True)
    ]
    assert len(histories[0].losses) == len(histories[1].losses) == 3
    assert histories[0].losses == pytest.approx(histories[1].losses, abs=1e-5)
    for one, two in zip(*(net.parameters() for net in nets), strict=True):
        torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-3)


def test_a_loss_that_needs_the_whole_batch_is_refused_where_it_would_be_split(monkeypatch):
    net = model()
    message = "loss: expected a sum over the examples .*, got {}, which needs the whole batch"
    for loss, name in (
        (pair_loss, "pair_loss"),
        (masked_and_next_loss, "masked_and_next_loss"),
    ):
        with pytest.raises(ValueError, match=message.format(name)):
            quiet(net, loss=loss, accumulate=2)
        monkeypatch.setattr("attn_book.train.distributed.size", lambda: 2)
        with pytest.raises(ValueError, match=message.format(name)):
            quiet(net, loss=loss)
        monkeypatch.undo()


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(2), nn.BatchNorm2d(2), nn.SyncBatchNorm(2)])
def test_batch_normalisation_is_refused_in_several_processes(monkeypatch, layer):
    net = model()
    net.encoder.extra = nn.Sequential(layer)
    quiet(net, device="cpu")
    monkeypatch.setattr("attn_book.train.distributed.size", lambda: 2)
    message = rf"model: expected no batch normalisation in 2 processes, got {type(layer).__name__} encoder.extra.0$"
    with pytest.raises(ValueError, match=message):
        quiet(net, device="cpu")


def test_a_float16_step_whose_gradient_overflows_is_left_out():
    net, seen = model(), []
    start = [p.detach().clone() for p in net.parameters()]
    net.decoder.embedding.weight.register_hook(lambda grad: grad * (math.inf if not seen else 1))

    def watch(net):
        seen.append(max((p - s).abs().max().item() for p, s in zip(net.parameters(), start, strict=True)))
        return {}

    quiet(net, precision=torch.float16, device="cpu", validate=watch, validate_every=1)
    assert seen[0] == 0 < seen[1]


def test_gradients_are_clipped():
    free, held = model(), model()
    start = torch.cat([p.detach().clone().flatten() for p in free.parameters()])
    norms = []

    def watch(net):
        norms.append(math.sqrt(sum(float(p.grad.square().sum()) for p in net.parameters())))
        return {}

    quiet(free, clip=1e9, validate=watch, validate_every=1)
    loose = max(norms)
    norms.clear()
    quiet(held, clip=1e-3, validate=watch, validate_every=1)
    assert loose > 1e-1
    assert max(norms) <= 1e-3 * (1 + 1e-4)
    assert not torch.equal(start, torch.cat([p.detach().flatten() for p in held.parameters()]))


def test_validation_runs_in_evaluation_mode_and_is_recorded():
    modes = []

    def validate(net):
        modes.append((net.training, torch.is_grad_enabled()))
        return {"answer": 42.0}

    net = model().eval()
    last = list(net.modules())[-1].train()  # each module has a mode of its own
    history = quiet(net, epochs=2, validate=validate, validate_every=5)
    assert [record["step"] for record in history.validation] == [5.0, 10.0, 15.0, 20.0, 25.0]
    assert all(record["answer"] == 42.0 for record in history.validation)
    assert set(modes) == {(False, False)}
    assert not net.training and last.training
    seconds = [record["seconds"] for record in history.validation]
    assert seconds == sorted(seconds) and seconds[-1] <= history.seconds


def test_a_broken_loss_stops_training_at_once():
    net = model()
    with torch.no_grad():
        net.decoder.output.logits.bias[3] = math.nan
    net.eval()
    before = [p.detach().clone() for p in net.parameters()]
    with pytest.raises(FloatingPointError, match="the loss became nan at step 1"):
        quiet(net)
    assert not net.training
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(before, net.parameters(), strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_trains_on_a_gpu_in_mixed_precision_by_itself():
    net = model()
    history = quiet(net, epochs=5, learning_rate=1e-2)
    assert next(net.parameters()).is_cuda
    assert history.losses[-1] < history.losses[0]


def test_what_validate_gives_is_checked():
    with pytest.raises(ValueError, match="^validate: expected"):
        quiet(model(), device="cpu", validate=lambda _: None)
