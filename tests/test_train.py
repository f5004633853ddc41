import math
import random
from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

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


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"logits": torch.ones(2, 5, dtype=torch.int64)}, "logits"),
        ({"target": torch.ones(2)}, "target"),
        ({"target": torch.tensor([1, 5])}, "target"),
        ({"target": torch.tensor([1, -1])}, "target"),
        ({"target": torch.tensor([1, -100]), "padding_id": None}, "target"),
        ({"target": [1, 2]}, "target"),
        ({"smoothing": -0.1}, "smoothing"),
        ({"smoothing": float("nan")}, "smoothing"),
        ({"padding_id": "0"}, "padding_id"),
        ({"padding_id": True}, "padding_id"),
    ],
)
def test_token_loss_names_wrong_input(change, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        token_loss(**{"logits": torch.randn(2, 5), "target": torch.tensor([1, 2]), **change})


def test_token_loss_keeps_float64():
    assert token_loss(torch.randn(2, 5, dtype=torch.float64), torch.tensor([1, 2]))[0].dtype == torch.float64


def test_past_its_end_a_cosine_stays_at_zero():
    rate = cosine(10, peak=1.0)
    assert rate(9) > 0 and [rate(step) for step in (10, 15, 20)] == [0.0] * 3


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cosine(0, peak=1.0), "steps: expected an integer of at least 1, got 0"),
        (lambda: cosine(5, peak=0.0), "peak: expected a finite number above 0, got 0.0"),
        (lambda: cosine(5, peak=1.0, warmup=1.0), "warmup: expected a share"),
        (lambda: smoothed_loss(1.0), r"smoothing: expected a share in \[0, 1\), got 1.0"),
        (lambda: smoothed_loss("a lot"), "smoothing: expected a share"),
    ],
)
def test_schedules_and_losses_refuse(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_schedule_takes_the_place_of_the_rate():
    """Steps of Adam are as long as the rate: none at 0, and not twice as long as at half."""
    moved = []
    for scale in (0.0, 1e-3, 2e-3):
        net = model()
        start = torch.cat([p.detach().flatten() for p in net.parameters()])
        quiet(net, schedule=lambda step, scale=scale: scale * (step == 0), learning_rate=1.0)
        moved.append((torch.cat([p.detach().flatten() for p in net.parameters()]) - start).abs().max().item())
    assert moved == pytest.approx([0.0, 1e-3, 2e-3], rel=0.01)


def test_smoothing_spreads_the_target():
    logits, target = torch.randn(2, 3, 7), torch.tensor([[4, 5, 6], [5, 6, Vocab.PAD]])
    logp = logits.log_softmax(-1)
    each = [
        0.9 * logp[i, t, target[i, t]] + 0.1 * logp[i, t].mean() for i, t in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    ]
    loss, count = token_loss(logits, target, smoothing=0.1)
    torch.testing.assert_close(loss / count, -torch.stack(each).mean())


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


@pytest.mark.parametrize("loss", [target_loss, smoothed_loss(0.1)])
def test_the_loss_of_a_batch_is_the_sum_over_its_parts(loss):
    net, (batch,) = model(), Batches(pairs[:10], small, large, batch_size=10)
    whole, parts = loss(net, batch), [loss(net, batch.rows(rows)) for rows in (slice(0, 3), slice(3, None))]
    torch.testing.assert_close(whole[0], parts[0][0] + parts[1][0])
    assert whole[1] == parts[0][1] + parts[1][1] == sum(len(pair.target) + 1 for pair in pairs[:10])


def test_parts_without_a_count_weigh_nothing():
    """The first batches of a step may hold nothing that counts, for example no hidden token."""
    calls = count()

    def sparse(net, batch):
        loss, number = target_loss(net, batch)
        weight = next(calls) % 3 == 2
        return loss * weight, number * weight

    nets, last = [model(), model()], pairs[8:10]
    parts = Batches(pairs[:10], small, large, batch_size=4)
    options = {"epochs": 1, "progress": False, "device": "cpu"}
    one = fit(nets[0], parts, accumulate=3, loss=sparse, **options)
    two = fit(nets[1], Batches(last, small, large, batch_size=2), **options)
    assert one.losses == pytest.approx(two.losses, rel=1e-6)
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


def test_accumulation_takes_up_what_an_epoch_leaves():
    batches = Batches(pairs[:10], small, large, batch_size=2)
    history = fit(model(), batches, epochs=2, accumulate=2, progress=False, device="cpu")
    assert len(history.losses) == 6, "five batches are two steps of two and one of one"


def test_float16_learns_with_a_scaled_loss():
    history = quiet(model(), precision=torch.float16, device="cpu", epochs=6, learning_rate=1e-2)
    assert history.losses[-1] < 0.7 * history.losses[0]


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


def test_bfloat16_learns_too():
    exact, rough = model(), model()
    plain = quiet(exact, epochs=3, learning_rate=1e-2)
    mixed = quiet(rough, epochs=3, learning_rate=1e-2, precision=torch.bfloat16)
    assert mixed.losses != plain.losses
    assert mixed.losses[-1] == pytest.approx(plain.losses[-1], rel=0.2)
    assert all(p.dtype == torch.float32 for p in rough.parameters())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_trains_on_a_gpu_in_mixed_precision_by_itself():
    net = model()
    history = quiet(net, epochs=5, learning_rate=1e-2)
    assert next(net.parameters()).is_cuda
    assert history.losses[-1] < history.losses[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs: expected an integer of at least 1, got 0"),
        ({"epochs": 1.5}, "epochs: expected an integer of at least 1, got 1.5"),
        ({"learning_rate": 0.0}, "learning_rate: expected a finite number above 0, got 0.0"),
        ({"learning_rate": math.nan}, "learning_rate: expected a finite number above 0, got nan"),
        ({"clip": -1.0}, "clip: expected a finite number above 0, got -1.0"),
        ({"warmup": 1.0}, r"warmup: expected a share in \[0, 1\), got 1.0"),
        ({"validate_every": 0}, "validate_every: expected an integer of at least 1, got 0"),
        ({"checkpoint_every": 0}, "checkpoint_every: expected an integer of at least 1, got 0"),
        ({"checkpoint": 5}, "checkpoint: expected a path, got int"),
        ({"loss": lambda *_: torch.ones(())}, r"loss: expected a scalar tensor, .*got torch.float32 of shape \(\)"),
        ({"loss": lambda *_: (torch.ones(2), 2)}, r"loss: expected .*got torch.float32 of shape \(2,\), int"),
        ({"loss": lambda *_: (torch.ones(()), None)}, "loss: expected .*, NoneType"),
        ({"loss": lambda *_: (1.0, 1)}, "loss: expected a scalar tensor, the sum, and a count, got float, int"),
        (
            {"precision": torch.float64},
            "precision: expected torch.float32, torch.bfloat16 or torch.float16, got torch.f",
        ),
        ({"precision": "bf16"}, "precision: expected torch.float32, torch.bfloat16 or torch.float16, got 'bf16'"),
        ({"accumulate": 0}, "accumulate: expected an integer of at least 1, got 0"),
    ],
)
def test_wrong_settings_are_named_before_anything_changes(options, message):
    net = model()
    before = [p.detach().clone() for p in net.parameters()]
    with pytest.raises(ValueError, match=message):
        quiet(net, device="cpu", **options)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


def test_a_model_that_learns_nothing_and_a_validation_that_says_nothing_are_refused():
    with pytest.raises(ValueError, match="^model: expected a parameter that requires a gradient, got none$"):
        quiet(model().requires_grad_(False), device="cpu")
    with pytest.raises(ValueError, match="^validate: expected a function that returns a dictionary .*, got NoneType$"):
        quiet(model(), device="cpu", validate=lambda _: None, validate_every=1)


def test_another_loss_takes_the_place_of_the_default():
    dtypes = []

    def by_hand(net, batch):
        logits = net(batch.source, batch.source_lengths, batch.target_in)
        dtypes.append(logits.dtype)
        true = logits.float().log_softmax(-1).gather(-1, batch.target_out[..., None]).squeeze(-1)
        kept = batch.target_out != Vocab.PAD
        return -(true * kept).sum(), int(kept.sum())

    def smoothed(net, batch):
        logits = net(batch.source, batch.source_lengths, batch.target_in)
        loss = functional.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten(), label_smoothing=0.5)
        return loss, 1

    plain, same = (quiet(model(), device="cpu", **options) for options in ({}, {"loss": by_hand}))
    assert same.losses == pytest.approx(plain.losses, rel=1e-4)
    quiet(model(), loss=by_hand, device="cpu", precision=torch.bfloat16)
    assert dtypes == [torch.float32] * 13 + [torch.bfloat16] * 13
    assert min(quiet(model(), loss=smoothed, device="cpu").losses) > min(plain.losses)


def test_a_target_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"^target: expected shape \(2, 3\), got \(3, 2\)"):
        token_loss(torch.randn(2, 3, 5), torch.ones(3, 2, dtype=torch.long))
