"""Hard attention: its draws against counts, its gradient against the sum over every possible draw."""

import itertools
from dataclasses import replace

import pytest
import torch

from attn_book.data import Batch
from attn_book.train import reinforce_loss
from attn_core.seq2seq import BahdanauDecoder, Encoder, HardDecoder, Seq2Seq

source = torch.tensor([[4, 5, 6, 2], [7, 8, 2, 0]])
lengths = torch.tensor([4, 3])
target = torch.tensor([[1, 4, 5], [1, 7, 2]])
SIZES = {"embed_dim": 3, "hidden_dim": 4}


def build(decoder=HardDecoder, seed=3):
    torch.manual_seed(seed)
    encoder = Encoder(11, embed_dim=3, hidden_dim=2)
    model = Seq2Seq(encoder, decoder(9, **SIZES, memory_dim=4)).double()
    for parameter in model.parameters():  # small first weights would leave all places alike
        parameter.data.mul_(3)
    return model


def batch_of(rows, copies):
    """A batch of many copies of some sentences."""
    place = torch.tensor(rows).repeat_interleave(copies)
    out = torch.tensor([[4, 5, 2], [7, 2, 0]])
    return Batch(source[place], lengths[place], target[place], out[place], torch.tensor([3, 2])[place])


def test_it_looks_at_the_place_of_greatest_weight():
    hard, soft = build(), build(BahdanauDecoder)
    memory = hard.encoder(source, lengths)
    state, same = hard.decoder.init_state(memory), soft.decoder.init_state(memory)
    _, after = soft.decoder.step(target[:, 0], same)
    place = after.weights.argmax(-1)
    logits, state = hard.decoder.step(target[:, 0], state)
    assert torch.equal(state.weights, torch.nn.functional.one_hot(place, 4).double())
    # Soft attention over that one place alone gives the same step.
    lone = memory._replace(mask=torch.nn.functional.one_hot(place, 4).bool())
    expected, _ = soft.decoder.step(target[:, 0], soft.decoder.init_state(lone))
    assert torch.allclose(logits, expected, atol=1e-12)


def test_draws_come_as_often_as_their_weight():
    model = build()
    batch = batch_of([0, 1], 4000)
    draws = model.decoder.draw(model.encoder(batch.source, batch.source_lengths), batch.target_in)
    _, soft = build(BahdanauDecoder).step(target[:, 0], model.init_state(source, lengths))
    for row in range(2):
        first = draws.positions[row * 4000 : (row + 1) * 4000, 0]
        counts = torch.bincount(first, minlength=4).double() / 4000
        weights = soft.weights[row]
        assert (counts - weights).abs().max() < 5 * (weights * (1 - weights) / 4000).sqrt().max()
        assert counts[lengths[row] :].sum() == 0
        entropy = -sum(w * w.log() for w in weights if w > 0)
        chosen = row * 4000
        assert torch.allclose(draws.entropy[chosen, 0].double(), entropy, atol=1e-6)
        assert torch.allclose(draws.log_probability[chosen, 0].double(), weights[first[0]].log(), atol=1e-6)


def test_a_pass_follows_its_draws():
    """Told to look where a pass has looked, soft attention gives the same logits."""
    model, soft = build(), build(BahdanauDecoder)
    memory = model.encoder(source, lengths)
    draws = model.decoder.draw(memory, target)
    state = soft.decoder.init_state(memory)
    for t in range(target.shape[1]):
        lone = torch.nn.functional.one_hot(draws.positions[:, t], 4).bool()
        logits, state = soft.decoder.step(target[:, t], replace(state, memory=memory._replace(mask=lone)))
        assert torch.allclose(logits, draws.logits[:, t], atol=1e-12)


def words_given(model, row, places):
    """Log-probabilities of the true words of one sentence and of the draws, for given draws."""
    encoder, decoder = model.encoder, model.decoder
    memory = encoder(source[[row]], lengths[[row]])
    state = decoder.init_state(memory)
    words = draws = torch.zeros((), dtype=torch.float64)
    for t, place in enumerate(places):
        scores = decoder.score(state.hidden[:, None], memory.states)[0, 0]
        draws = draws + torch.log_softmax(scores[: lengths[row]], dim=0)[place]
        embedded = decoder.embedding(target[[row], t])
        context = memory.states[:, place]
        hidden = decoder.cells[0](torch.cat([embedded, context], dim=-1), state.hidden)
        state = replace(state, hidden=hidden)
        logits = decoder.output(hidden, context, embedded)[0]
        words = words + torch.log_softmax(logits, dim=0)[batch_of([row], 1).target_out[0, t]]
    return words, draws


def test_reinforce_is_unbiased():
    """Its mean over many draws is the gradient of the expected loss, summed over all 3 · 3 ways to draw."""
    model = build()
    row, steps, copies = 1, 2, 20_000
    expected_loss = torch.zeros((), dtype=torch.float64)
    for places in itertools.product(range(3), repeat=steps):
        words, draws = words_given(model, row, places)
        expected_loss = expected_loss - draws.exp() * words / steps
    parameters = dict(model.named_parameters())
    exact = torch.autograd.grad(expected_loss, list(parameters.values()), allow_unused=True)
    estimates = []
    for _ in range(8):
        loss, count = reinforce_loss(model, batch_of([row], copies // 8), discount=1.0, entropy_weight=0.0)
        estimates.append(torch.autograd.grad(loss / count, list(parameters.values()), allow_unused=True))
    checked = 0
    for name, true, *found in zip(parameters, exact, *estimates, strict=True):
        if true is None:
            continue
        samples = torch.stack(found)
        error = samples.std(0) / 8**0.5
        assert ((samples.mean(0) - true).abs() <= 6 * error + 1e-7).all(), name
        checked += name.startswith("decoder.score")
    assert checked == 3


def test_the_scores_learn_from_the_draws_alone():
    model = build()
    cross_entropy = torch.nn.functional.cross_entropy
    draws = model.decoder.draw(model.encoder(source, lengths), target)
    cross_entropy(draws.logits.flatten(0, 1), target.flatten()).backward()
    assert all(p.grad is None for p in model.decoder.score.parameters())
    reinforce_loss(model, batch_of([0, 1], 8))[0].backward()
    assert all(p.grad.abs().max() > 0 for p in model.decoder.score.parameters())


def test_the_loss_by_its_formula():
    """Word by word, with the same draws; the second sentence is one word shorter, and its padding counts not."""
    model = build()
    batch = batch_of([0, 1], 3)
    memory = model.encoder(batch.source, batch.source_lengths)
    torch.manual_seed(4)
    draws = model.decoder.draw(memory, batch.target_in)
    best = model.decoder(memory, batch.target_in)
    total = count = 0.0
    for b in range(6):
        length = int(batch.target_lengths[b])
        for t in range(length):
            own = [torch.log_softmax(x[b, t], -1)[batch.target_out[b, t]] for x in (draws.logits, best)]
            gain = sum(
                0.5 ** (s - t)
                * (
                    torch.log_softmax(draws.logits[b, s], -1)[batch.target_out[b, s]]
                    - torch.log_softmax(best[b, s], -1)[batch.target_out[b, s]]
                )
                for s in range(t, length)
            )
            total -= own[0] + gain * draws.log_probability[b, t] + 0.3 * draws.entropy[b, t]
            count += 1
    torch.manual_seed(4)
    loss, number = reinforce_loss(model, batch, discount=0.5, entropy_weight=0.3)
    assert loss.item() == pytest.approx(total.item(), rel=1e-5) and number == count
    assert reinforce_loss(model, batch, padding_id=None)[1] == batch.target_out.numel()


def test_an_unlikely_draw_has_its_own_log_probability():
    model = build()
    model.decoder.score.energy.weight.data.mul_(10)  # two places now have probabilities below 1e-3
    batch = batch_of([0], 40_000)
    draws = model.decoder.draw(model.encoder(batch.source, batch.source_lengths), batch.target_in)
    state = model.decoder.init_state(model.encoder(source[:1], lengths[:1]))
    scores = model.decoder.score.score(state.hidden[:, None], state.keys)[0, 0]
    expected = torch.log_softmax(scores, 0)[draws.positions[:, 0]]
    assert expected.min().exp() < 5e-4
    assert torch.allclose(draws.log_probability[:, 0].double(), expected, atol=1e-4)


def test_each_word_answers_for_itself_and_entropy_weighs_little_unless_told_otherwise():
    model, batch = build(), batch_of([0, 1], 4)
    losses = []
    for settings in ({}, {"discount": 0.0, "entropy_weight": 0.01}):
        torch.manual_seed(6)
        losses.append(reinforce_loss(model, batch, **settings)[0].item())
    assert losses[0] == losses[1]


def test_half_precision():
    model, batch = build().float(), batch_of([0, 1], 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        draws = model.decoder.draw(model.encoder(batch.source, batch.source_lengths), batch.target_in)
        loss, _ = reinforce_loss(model, batch)
        logits = model(source, lengths, target)
    assert draws.log_probability.dtype == draws.entropy.dtype == loss.dtype == torch.float32
    assert torch.allclose(logits.float(), model(source, lengths, target), atol=0.05)
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
