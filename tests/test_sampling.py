import math

import pytest
import torch

from attn_book.data import Vocab
from attn_core.decode import Sampler, argmax, generate, greedy, sample, top_k, top_p
from attn_core.positions import ALiBi, Learned, Rotary
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq
from attn_core.transformer import LanguageModel, Transformer, TransformerConfig

EOS = Vocab.EOS
LOGITS = torch.tensor([0.3, -1.0, 2.0, 1.1, -math.inf, 0.9, 1.7])
POSITIONS = {
    "sinusoidal": None,
    "learned": lambda: Learned(40, 16),
    "rotary": lambda: Rotary(8),
    "ALiBi": lambda: ALiBi(2),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def truncated(logits, temperature=1.0, k=None, p=None):
    """The distribution by its definition, in Python's floats."""
    weights = {i: math.exp(x / temperature) for i, x in enumerate(logits)}
    order = sorted(weights, key=lambda i: -weights[i])[:k]
    total = sum(weights[i] for i in order)
    kept, mass = [], 0.0
    for i in order:
        kept.append(i)
        mass += weights[i] / total
        if p is not None and mass >= p:
            break
    total = sum(weights[i] for i in kept)
    return [weights[i] / total if i in kept else 0.0 for i in range(len(logits))]


SETTINGS = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0},
    {"top_k": 3},
    {"top_p": 0.8},
    {"temperature": 1.7, "top_k": 5, "top_p": 0.7},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_draws_come_as_often_as_the_truncated_distribution_says(settings):
    expected = truncated(
        LOGITS.tolist(), settings.get("temperature", 1.0), settings.get("top_k"), settings.get("top_p")
    )
    sampler = Sampler(**settings, generator=seeded(1))
    assert sampler.probabilities(LOGITS).tolist() == pytest.approx(expected, abs=1e-6)
    draws = 20_000
    counts = torch.bincount(sampler(LOGITS.expand(draws, -1)), minlength=len(LOGITS)).tolist()
    for count, share in zip(counts, expected, strict=True):
        assert abs(count - draws * share) <= 4 * math.sqrt(draws * share * (1 - share)), (counts, expected)


def test_top_k_keeps_the_logits_of_the_k_likeliest():
    inf = math.inf
    assert top_k(LOGITS, 3).tolist() == pytest.approx([-inf, -inf, 2.0, 1.1, -inf, -inf, 1.7])
    assert torch.equal(top_k(LOGITS, 7), LOGITS) and torch.equal(top_k(LOGITS, 100), LOGITS)
    assert torch.isfinite(top_k(torch.zeros(3, 8), 5)).sum(-1).tolist() == [5, 5, 5], "of equals, as many as asked for"
    batch = torch.randn(2, 3, 9, generator=seeded())
    rows = [top_k(row, 4).tolist() for row in batch.flatten(0, 1)]
    assert top_k(batch, 4).flatten(0, 1).tolist() == rows


@pytest.mark.parametrize(
    ("probabilities", "p", "kept"),
    [
        ([0.25, 0.25, 0.25, 0.25], 0.5, [0, 1]),  # reached exactly
        ([0.25, 0.25, 0.25, 0.25], 0.51, [0, 1, 2]),  # crossed by the third
        ([0.1, 0.6, 0.3], 0.65, [1, 2]),  # the one that crosses is kept, wherever it stands
        ([0.1, 0.6, 0.3], 0.59, [1]),
        ([0.1, 0.6, 0.3], 1e-9, [1]),  # never none
        ([0.1, 0.6, 0.3], 0.95, [0, 1, 2]),
        ([1.0, 1e-12, 1e-30], 1, [0, 1, 2]),  # a rounded sum is 1 at once
        ([1.0, 1e-12, 1e-30], 0.999999, [0]),
    ],
)
def test_the_nucleus_is_the_smallest_that_holds_p(probabilities, p, kept):
    logits = torch.tensor(probabilities).log()
    found = top_p(logits, p)
    assert torch.isfinite(found).nonzero().flatten().tolist() == kept
    assert torch.equal(found[kept], logits[kept])


def test_each_row_has_its_own_nucleus():
    flat, sharp = [0.25] * 4, [0.01, 0.97, 0.01, 0.01]
    found = top_p(torch.tensor([[flat, sharp], [sharp, flat]]).log(), 0.9)
    assert torch.isfinite(found).sum(-1).tolist() == [[4, 1], [1, 4]]


def test_inputs_are_left_as_they_are():
    logits = LOGITS.clone()
    for change in (lambda x: top_k(x, 2), lambda x: top_p(x, 0.5), Sampler(temperature=0.1, top_k=2).probabilities):
        change(logits)
        assert torch.equal(logits, LOGITS)


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 5e-324])
def test_a_vanishing_temperature_takes_the_likeliest(temperature):
    logits = 5 * torch.randn(50, 30, generator=seeded())
    assert torch.equal(Sampler(temperature=temperature)(logits), logits.argmax(-1))
    assert torch.equal(argmax(logits), logits.argmax(-1))


# Drawing whole sentences.


def translator(**settings):
    torch.manual_seed(3)
    config = TransformerConfig(9, model_dim=16, num_heads=2, num_layers=2, feed_forward_dim=24)
    return Transformer(config, **settings).eval()


def recurrent():
    torch.manual_seed(0)
    decoder = BahdanauDecoder(9, embed_dim=6, hidden_dim=8, memory_dim=16)
    return Seq2Seq(Encoder(9, embed_dim=6, hidden_dim=8), decoder).eval()


SOURCE, LENGTHS = torch.tensor([[4, 5, 6, 2], [7, 8, 2, 0], [5, 2, 0, 0]]), torch.tensor([4, 3, 2])


@pytest.mark.parametrize("make", [translator, recurrent])
def test_the_likeliest_of_one_is_greedy(make):
    model = make()
    found = sample(model, SOURCE, LENGTHS, max_length=9, pick=Sampler(top_k=1))
    for ours, plain in zip(found, greedy(model, SOURCE, LENGTHS, max_length=9), strict=True):
        assert (ours.ids, ours.finished) == (plain.ids, plain.finished)
        assert ours.log_probability == pytest.approx(plain.log_probability, abs=1e-5)


@pytest.mark.parametrize("make", [translator, recurrent])
def test_a_drawn_sentence_has_the_models_own_probability(make):
    """Not that of the distribution that was cut, in which each token is likelier."""
    model = make()
    pick = Sampler(temperature=2.0, top_k=8, top_p=0.95, generator=seeded(5))
    found = [h for _ in range(6) for h in sample(model, SOURCE, LENGTHS, max_length=7, pick=pick)]
    assert {h.finished for h in found} == {True, False}
    assert len({tuple(h.ids) for h in found}) > 6
    for row, h in enumerate(found):
        row %= 3
        assert len(h.ids) == 7 if not h.finished else len(h.ids) < 7
        ids = h.ids + [EOS] * h.finished
        target = torch.tensor([[Vocab.BOS, *ids[:-1]]])
        with torch.no_grad():
            logits = model(SOURCE[row : row + 1, : LENGTHS[row]], LENGTHS[row : row + 1], target)[0]
        expected = sum(logits.log_softmax(-1)[t, token].item() for t, token in enumerate(ids))
        assert h.log_probability == pytest.approx(expected, abs=1e-4)
        if make is recurrent:
            assert h.attention.shape[0] == len(h.ids)


def test_a_sentence_comes_as_often_as_its_probability_says():
    """The chain of draws is the model's distribution over sentences."""
    model, draws = translator(), 4000
    source = SOURCE[:1].expand(draws, -1)
    torch.manual_seed(0)
    found = [tuple(h.ids) for h in sample(model, source, LENGTHS[:1].expand(draws), max_length=1)]
    logits = model(SOURCE[:1], LENGTHS[:1], torch.tensor([[Vocab.BOS]]))[0, 0].detach()
    for token, share in enumerate(logits.softmax(-1).tolist()):
        count = found.count(() if token == EOS else (token,))
        assert abs(count - draws * share) <= 4 * math.sqrt(draws * share * (1 - share))


def test_a_generator_makes_the_draws_repeatable():
    model, prompts = language_model(), [[4, 5], [6]]

    def drawn(seed):
        pick = Sampler(generator=seeded(seed))
        both = sample(translator(), SOURCE, LENGTHS, max_length=8, pick=pick)
        return both + generate(model, prompts, max_new_tokens=8, pick=pick)

    state = torch.random.get_rng_state()
    sampler = Sampler(generator=seeded(1))
    assert torch.equal(Sampler(generator=seeded(1))(LOGITS.expand(9, -1)), sampler(LOGITS.expand(9, -1)))
    assert torch.equal(torch.random.get_rng_state(), state), "the global randomness is left alone"
    assert drawn(1) == drawn(1) != drawn(2)


# Continuing prompts.


def language_model(positions=None, seed=0, **changes):
    torch.manual_seed(seed)
    config = TransformerConfig(9, model_dim=16, num_heads=2, num_layers=2, feed_forward_dim=24, **changes)
    return LanguageModel(config, positions=positions)


PROMPTS = [[4, 5, 6, 7], [8], [7, 7, 4], [6, 4, 8, 5, 5]]


@torch.no_grad()
def uncached(model, prompt, max_new_tokens, pick, ends=(EOS,)):
    """All tokens anew at each step; a prompt by itself."""
    ids, total, new = list(prompt), 0.0, []
    while len(new) < max_new_tokens and (not new or new[-1] not in ends):
        logits = model(torch.tensor([ids]))[:, -1]
        new.append(int(pick(logits)[0]))
        ids.append(new[-1])
        total += logits.log_softmax(-1)[0, new[-1]].item()
    return new, total


def third(logits):
    """A pick that is neither greedy nor random, and finds <eos> now and then."""
    return logits.argsort(-1)[:, -3]


@pytest.mark.parametrize("kind", POSITIONS)
@pytest.mark.parametrize("pick", [argmax, third])
def test_ragged_prompts_go_on_as_each_alone_and_without_a_cache(kind, pick):
    """Also where a row ends before the others, and at positions that none of them alone would reach."""
    finished = []
    for seed in range(6):
        model = language_model(POSITIONS[kind], seed, norm_first=seed % 2 == 0).eval()
        for h, prompt in zip(generate(model, PROMPTS, max_new_tokens=35, pick=pick), PROMPTS, strict=True):
            expected, total = uncached(model, prompt, 35, pick)
            assert h.ids == [token for token in expected if token != EOS]
            assert h.finished == (expected[-1] == EOS) and h.attention is None
            assert h.log_probability == pytest.approx(total, abs=1e-3)
            finished.append(h.finished)
    if pick is third:
        assert 6 <= sum(finished) < len(finished)


@pytest.mark.parametrize("ends", [(), (7,), (4, 5)])
def test_a_text_ends_with_the_given_ids(ends):
    model = language_model().eval()
    for h, prompt in zip(generate(model, PROMPTS, max_new_tokens=20, pick=third, end_ids=ends), PROMPTS, strict=True):
        expected, total = uncached(model, prompt, 20, third, ends)
        assert h.finished == (expected[-1] in ends) and h.ids == expected[: len(expected) - h.finished]
        assert h.log_probability == pytest.approx(total, abs=1e-3)


@pytest.mark.parametrize(
    "prompts",
    [torch.tensor([[4, 5], [6, 7]]), [torch.tensor([4, 5]), (6, 7)], torch.tensor([[4, 5], [6, 7]]).numpy()],
    ids=["a tensor", "rows of two kinds", "an array"],
)
def test_prompts_may_be_tensors_and_arrays(prompts):
    assert generate(language_model(), prompts, max_new_tokens=3) == generate(
        language_model(), [[4, 5], [6, 7]], max_new_tokens=3
    )


def test_a_row_that_has_ended_needs_no_more_positions():
    """The long prompt ends at once; with the batch it would pass the last learned position."""

    def ends_the_first(logits):
        tokens = torch.full((len(logits),), 5)
        if len(logits) == 2:
            tokens[0] = EOS
        return tokens

    model = language_model(POSITIONS["learned"])
    long, short = generate(model, [[4] * 39, [4]], max_new_tokens=20, pick=ends_the_first)
    assert (long.ids, long.finished) == ([], True)
    assert (short.ids, short.finished) == ([5] * 20, False)
    (full,) = generate(model, [[4] * 39], max_new_tokens=2)
    assert len(full.ids) <= 2, "the last token is not read any more"


@pytest.mark.parametrize("training", [True, False])
def test_the_models_mode_is_left_and_dropout_is_off(training):
    model = language_model(dropout=0.5).train(training)
    assert generate(model, PROMPTS, max_new_tokens=5) == generate(model, PROMPTS, max_new_tokens=5)
    with pytest.raises(ValueError, match="pick"):
        generate(model, PROMPTS, max_new_tokens=5, pick=lambda logits: logits)
    assert model.training == training
