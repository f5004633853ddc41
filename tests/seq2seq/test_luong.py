"""Luong's decoder against its equations, written as loops over sentences and words in float64."""

import pytest
import torch

from attn_core.scores import Additive, Dot, General
from attn_core.seq2seq import Encoder, LocalMonotonic, LocalPredictive, LuongDecoder, Seq2Seq

source = torch.tensor([[4, 5, 6, 2, 0, 0], [7, 2, 0, 0, 0, 0], [4, 8, 9, 10, 3, 2]])
lengths = torch.tensor([4, 2, 6])
target = torch.tensor([[1, 4, 5, 6, 7], [1, 7, 8, 3, 9], [1, 9, 10, 11, 12]])
SCORES = {
    "dot": lambda: Dot(),
    "general": lambda: General(6, 6),
    "concat": lambda: Additive(6, 6, 7),
}
WINDOWS = {"global": lambda: None, "local-m": lambda: LocalMonotonic(1), "local-p": lambda: LocalPredictive(6, 3)}


def build(score, window, feeding):
    torch.manual_seed(2)
    encoder = Encoder(11, embed_dim=5, hidden_dim=3)
    decoder = LuongDecoder(
        13,
        embed_dim=5,
        hidden_dim=6,
        memory_dim=6,
        score=SCORES[score](),
        window=WINDOWS[window](),
        input_feeding=feeding,
    )
    # Small first weights would leave attention flat and the tests blunt.
    for parameter in [*encoder.parameters(), *decoder.parameters()]:
        parameter.data.mul_(2)
    return Seq2Seq(encoder, decoder).double().eval()


def gru_cell(rnn, x, h):
    """Cho et al. 2014, in PyTorch's arrangement of the weights."""
    r_x, z_x, n_x = (rnn.weight_ih_l0 @ x + rnn.bias_ih_l0).chunk(3)
    r_h, z_h, n_h = (rnn.weight_hh_l0 @ h + rnn.bias_hh_l0).chunk(3)
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    return (1 - z) * torch.tanh(n_x + r * n_h) + z * h


def score_of(score, h, key):
    if type(score) is Dot:
        return h @ key
    if isinstance(score, General):
        return h @ score.key_to_query.weight @ key
    joined = torch.cat([score.query.weight, score.key.weight], dim=1)  # W of [h; key]
    return score.energy.weight[0] @ torch.tanh(joined @ torch.cat([h, key]))


def weights_of(decoder, h, states, t):
    size = len(states)
    centre, factor = None, [1.0] * size
    if isinstance(decoder.window, LocalMonotonic):
        centre = torch.tensor(float(t))
    if isinstance(decoder.window, LocalPredictive):
        inner = torch.tanh(decoder.window.hidden.weight @ h)
        centre = size * torch.sigmoid(decoder.window.position.weight[0] @ inner)
        sigma = decoder.window.half_width / 2
        factor = [torch.exp(-((s - centre) ** 2) / (2 * sigma**2)) for s in range(size)]
    seen = [s for s in range(size) if centre is None or abs(s - centre.item()) <= decoder.window.half_width]
    weights = torch.zeros(size, dtype=torch.float64)
    if not seen:
        return weights
    raised = {s: torch.exp(score_of(decoder.score, h, states[s])) for s in seen}
    for s in seen:
        weights[s] = raised[s] / sum(raised.values()) * factor[s]
    return weights


@pytest.mark.parametrize("feeding", [False, True], ids=["plain", "fed"])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("score", SCORES)
@torch.no_grad()
def test_by_the_equations(score, window, feeding):
    model = build(score, window, feeding)
    decoder = model.decoder
    logits = model(source, lengths, target)
    state = model.init_state(source, lengths)
    for t in range(target.shape[1]):
        _, state = model.step(target[:, t], state)
        for i, length in enumerate(lengths.tolist()):
            states, final = model.encoder.rnn(model.encoder.embedding(source[i, :length]))
            h = torch.tanh(decoder.first.weight @ final.flatten() + decoder.first.bias)
            fed = torch.zeros(6, dtype=torch.float64)
            for step in range(t + 1):  # from the beginning each time: slow, and plain
                x = decoder.embedding.weight[target[i, step]]
                h = gru_cell(decoder.rnn, torch.cat([x, fed]) if feeding else x, h)
                weights = weights_of(decoder, h, states, step)
                context = sum(w * s for w, s in zip(weights, states, strict=True))
                fed = torch.tanh(decoder.attentional.weight @ torch.cat([context, h]))
            expected = decoder.logits.weight @ fed + decoder.logits.bias
            assert torch.allclose(logits[i, t], expected, atol=1e-12)
            assert torch.allclose(state.weights[i, :length], weights, atol=1e-12)
            assert not state.weights[i, length:].any()


def test_a_window_past_the_end_is_empty_and_gives_zeros():
    model = build("dot", "local-m", False)
    long_target = torch.cat([target, target], dim=1)
    model(source, lengths, long_target).square().mean().backward()
    state = model.init_state(source, lengths)
    for token in long_target.unbind(1):
        logits, state = model.step(token, state)
    assert not state.weights.any() and torch.isfinite(logits).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_dropout_acts_on_the_read_out():
    """Words embedded as zeros leave dropout nothing else to act on."""
    encoder = Encoder(11, embed_dim=5, hidden_dim=3)
    decoder = LuongDecoder(13, embed_dim=5, hidden_dim=6, memory_dim=6, score=Dot(), dropout=0.5)
    torch.nn.init.zeros_(decoder.embedding.weight)
    memory = encoder(source, lengths)
    assert not torch.equal(decoder(memory, target), decoder(memory, target))
