import pytest
import torch

from attn_core import capture_attention
from attn_core.scores import Additive, Dot, General
from attn_core.seq2seq import (
    BahdanauDecoder,
    Encoder,
    FixedContextDecoder,
    HardDecoder,
    LocalMonotonic,
    LocalPredictive,
    LuongDecoder,
    MultiHeadDecoder,
    Seq2Seq,
)

SIZES = {"embed_dim": 5, "hidden_dim": 6}


def luong(vocab_size, *, memory_dim, **sizes):
    return LuongDecoder(vocab_size, **sizes, memory_dim=memory_dim, score=General(6, memory_dim))


def luong_fed(vocab_size, *, memory_dim, **sizes):
    score = Additive(6, memory_dim, 7)
    return LuongDecoder(vocab_size, **sizes, memory_dim=memory_dim, score=score, input_feeding=True)


def local_m(vocab_size, *, memory_dim, **sizes):
    score = General(6, memory_dim)
    return LuongDecoder(vocab_size, **sizes, memory_dim=memory_dim, score=score, window=LocalMonotonic(1))


def local_p(vocab_size, *, memory_dim, **sizes):
    window = LocalPredictive(6, 2)
    score = General(6, memory_dim)
    return LuongDecoder(vocab_size, **sizes, memory_dim=memory_dim, score=score, window=window, input_feeding=True)


def multi_head(vocab_size, **sizes):
    return MultiHeadDecoder(vocab_size, **sizes, num_heads=6, num_kv_heads=2)


def model(decoder, *, bidirectional=True, dropout=0.0):
    torch.manual_seed(1)
    encoder = Encoder(11, **SIZES, bidirectional=bidirectional, dropout=dropout)
    return Seq2Seq(encoder, decoder(13, **SIZES, memory_dim=encoder.memory_dim, dropout=dropout))


source = torch.tensor([[4, 5, 6, 2, 0], [7, 2, 0, 0, 0], [4, 8, 9, 10, 2]])
lengths = torch.tensor([4, 2, 5])
target = torch.tensor([[1, 4, 5, 6], [1, 7, 8, 0], [1, 9, 10, 11]])

attending = [BahdanauDecoder, HardDecoder, luong, luong_fed, local_m, local_p, multi_head]
each = pytest.mark.parametrize("decoder", [FixedContextDecoder, *attending])
ways = pytest.mark.parametrize("bidirectional", [False, True])


@ways
def test_encoder_equals_each_sentence_read_alone(bidirectional):
    encoder = Encoder(11, **SIZES, bidirectional=bidirectional)
    memory = encoder(source, lengths)
    assert encoder.memory_dim == (12 if bidirectional else 6)
    assert memory.states.shape == (3, 5, encoder.memory_dim)
    for i, length in enumerate(lengths.tolist()):
        states, final = encoder.rnn(encoder.embedding(source[i : i + 1, :length]))
        assert torch.allclose(memory.states[i, :length], states[0], atol=1e-6)
        assert torch.allclose(memory.final[i], final.flatten(), atol=1e-6)
        assert memory.mask[i].tolist() == [True] * length + [False] * (5 - length)


@each
@ways
def test_step_by_step_equals_the_whole_target(decoder, bidirectional):
    seq2seq = model(decoder, bidirectional=bidirectional).eval()
    whole = seq2seq(source, lengths, target)
    assert whole.shape == (3, 4, 13)
    state = seq2seq.init_state(source, lengths)
    for t in range(target.shape[1]):
        logits, state = seq2seq.step(target[:, t], state)
        assert torch.allclose(logits, whole[:, t], atol=1e-6)


@each
def test_select_reorders_a_state(decoder):
    seq2seq = model(decoder).eval()
    _, state = seq2seq.step(target[:, 0], seq2seq.init_state(source, lengths))
    rows = torch.tensor([2, 0, 0])
    logits, _ = seq2seq.step(target[:, 1], state)
    chosen, after = seq2seq.step(target[rows, 1], state.select(rows))
    assert torch.allclose(chosen, logits[rows], atol=1e-6)
    if decoder is not FixedContextDecoder:
        before = seq2seq.step(target[:, 1], state)[1]
        assert torch.allclose(after.weights, before.weights[rows], atol=1e-6)
        assert torch.equal(before.select(rows).weights, before.weights[rows])
        assert not torch.equal(logits[rows], logits)


def test_a_stacked_encoder_hands_over_its_top_layer():
    encoder = Encoder(11, **SIZES, num_layers=2)
    memory = encoder(source, lengths)
    for i, length in enumerate(lengths.tolist()):
        states, _ = encoder.rnn(encoder.embedding(source[i : i + 1, :length]))
        assert torch.allclose(memory.states[i, :length], states[0], atol=1e-6)
        assert torch.allclose(memory.final[i], torch.cat([states[0, -1, :6], states[0, 0, 6:]]), atol=1e-6)


def test_bahdanau_by_hand():
    """One step from the paper's equations, sentence by sentence, in float64."""
    seq2seq = model(BahdanauDecoder).double()
    decoder = seq2seq.decoder
    logits, state = seq2seq.step(target[:, 0], seq2seq.init_state(source, lengths))
    for i, length in enumerate(lengths.tolist()):
        states, final = seq2seq.encoder.rnn(seq2seq.encoder.embedding(source[i, :length]))
        s = torch.tanh(decoder.first.weight @ final.flatten() + decoder.first.bias)
        w, u, v = decoder.score.query.weight, decoder.score.key.weight, decoder.score.energy.weight[0]
        alpha = torch.softmax(torch.stack([v @ torch.tanh(w @ s + u @ h) for h in states]), dim=0)
        c = sum(a * h for a, h in zip(alpha, states, strict=True))
        y = decoder.embedding.weight[target[i, 0]]
        s_next = decoder.cells[0](torch.cat([y, c])[None], s[None])[0]
        readout = decoder.output.hidden(torch.cat([s_next, c, y]))
        maxout = torch.maximum(readout[0::2], readout[1::2])
        expected = decoder.output.logits.weight @ maxout + decoder.output.logits.bias
        assert torch.allclose(logits[i], expected, atol=1e-12)
        assert torch.allclose(state.weights[i, :length], alpha, atol=1e-12)
        assert not state.weights[i, length:].any()


def test_multi_head_by_hand():
    """One step, sentence by sentence and head by head, in float64."""
    seq2seq = model(multi_head).double()
    decoder, layer = seq2seq.decoder, seq2seq.decoder.attention
    logits, state = seq2seq.step(target[:, 0], seq2seq.init_state(source, lengths))
    for i, length in enumerate(lengths.tolist()):
        states, final = seq2seq.encoder.rnn(seq2seq.encoder.embedding(source[i, :length]))
        first = torch.tanh(decoder.first.weight @ final.flatten() + decoder.first.bias)
        query, _ = decoder.rnn(decoder.embedding(target[i, :1]), first[None])
        found, mean = [], 0
        for head in range(6):  # of size 1; three share a key-value head
            q, k, v = layer.query(query)[:, head], layer.key(states)[:, head // 3], layer.value(states)[:, head // 3]
            alpha = torch.softmax(q * k, dim=0)
            found.append(alpha @ v)
            mean = mean + alpha / 6
        context = layer.out.weight @ torch.stack(found) + layer.out.bias
        known = torch.tanh(decoder.attentional.weight @ torch.cat([context, query[0]]))
        assert torch.allclose(logits[i], decoder.logits(known), atol=1e-12)
        assert torch.allclose(state.weights[i, :length], mean, atol=1e-12)


@pytest.mark.parametrize("decoder", attending)
def test_attention_is_captured_and_sums_to_one(decoder):
    seq2seq = model(decoder).eval()
    with capture_attention(seq2seq) as maps:
        seq2seq(source, lengths, target)
    ((name, (weights,)),) = maps.items()
    assert name == ("decoder.attention" if decoder is multi_head else "decoder")
    heads = 6 if decoder is multi_head else 1
    assert weights.shape == (3, heads, 4, 5)
    total = weights.sum(-1)
    if decoder is local_p:  # the Gaussian only takes away
        assert (total > 0).all() and (total < 1).all()
    elif decoder is local_m:  # the last word of the short sentence sees nothing of it
        assert torch.allclose(total[:, 0], torch.tensor([[1.0] * 4, [1.0, 1.0, 1.0, 0.0], [1.0] * 4]))
    else:
        assert torch.allclose(total, torch.ones(3, heads, 4))
    assert not weights[1, :, :, 2:].any()
    with capture_attention(seq2seq) as steps:
        state = seq2seq.init_state(source, lengths)
        for t in range(4):
            _, state = seq2seq.step(target[:, t], state)
    assert torch.allclose(torch.cat(steps[name], dim=2), weights, atol=1e-6)


def test_no_attention_no_weights():
    seq2seq = model(FixedContextDecoder)
    assert seq2seq.init_state(source, lengths).weights is None
    with capture_attention(seq2seq) as maps:
        seq2seq(source, lengths, target)
    assert maps == {}


@each
def test_dropout_acts_in_training_only(decoder):
    seq2seq = model(decoder, dropout=0.5)
    assert not torch.equal(seq2seq.encoder(source, lengths).states, seq2seq.encoder(source, lengths).states)
    memory = seq2seq.encoder(source, lengths)
    assert not torch.equal(seq2seq.decoder(memory, target), seq2seq.decoder(memory, target))
    seq2seq.eval()
    assert torch.equal(seq2seq(source, lengths, target), seq2seq(source, lengths, target))


def test_dropout_acts_between_the_encoders_layers_too():
    """Words embedded as zeros leave dropout nothing else to act on."""
    for num_layers, same in ((1, True), (2, False)):
        encoder = Encoder(11, **SIZES, num_layers=num_layers, dropout=0.5)
        torch.nn.init.zeros_(encoder.embedding.weight)
        assert torch.equal(encoder(source, lengths).states, encoder(source, lengths).states) == same


@pytest.mark.parametrize(("score", "name"), [(Dot(), "queries"), (General(6, 11), "keys")])
def test_a_score_of_other_sizes_is_refused(score, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        model(lambda size, **sizes: LuongDecoder(size, **sizes, score=score))(source, lengths, target)


@pytest.mark.parametrize("decoder", [BahdanauDecoder, luong])
def test_a_step_of_another_batch_is_refused(decoder):
    seq2seq = model(decoder)
    with pytest.raises(ValueError, match="^tokens: expected"):
        seq2seq.step(target[:2, 0], seq2seq.init_state(source, lengths))
