"""The race: its masks say what the package's mechanisms see, and what the models keep and learn."""

import pytest
import torch
from torch.nn import functional

from attn_core import BlockSelection, LSHAttention, SlidingWindow, attention
from recorded import race, recurrent

TOKENS = 41


def drawn(heads=1):
    torch.manual_seed(0)
    return torch.randn(3, 2, heads, TOKENS, recurrent.HEAD_DIM)


def test_a_window_sees_what_sliding_window_attention_sees():
    q, k, v = drawn()
    mask = race.near(TOKENS, 0)
    assert mask.tril().sum(-1).tolist() == [min(i + 1, race.KEYS_READ) for i in range(TOKENS)]
    wanted = SlidingWindow(race.KEYS_READ - 1)(q, k, v, causal=True)
    assert torch.allclose(attention(q, k, v, mask=mask, causal=True), wanted, atol=1e-6)


def test_sinks_take_their_places_from_the_window():
    mask = race.near(TOKENS, 2).tril()
    assert mask[1:, :2].all()
    assert mask.sum(-1).tolist() == [min(i + 1, race.KEYS_READ) for i in range(TOKENS)]
    assert mask[-1].nonzero().flatten().tolist() == [0, 1, *range(TOKENS - 6, TOKENS)]


@pytest.mark.parametrize("rounds", [1, 2])
def test_hashes_let_the_same_tokens_meet_as_lsh_attention(rounds):
    q, _, v = drawn()
    keys = functional.normalize(q, dim=-1)
    mask = race.hashed(keys, 4, rounds, seed=3)
    seen = mask.sum(-1)
    assert seen.min() == 1 and 4 * (rounds - 1) < seen.max() <= 4 * rounds
    wanted = LSHAttention(bucket_size=4, rounds=rounds, seed=3)(q, q, v, causal=True)
    assert torch.allclose(attention(q, keys, v, mask=mask, causal=True), wanted, atol=1e-5)


def test_a_query_reads_its_own_block_and_the_best_whole_one_before_it():
    scores = torch.zeros(1, 1, 10, 10)
    scores[0, 0, 8, :4] = torch.tensor([9.0, 0.0, 0.0, 0.0])
    scores[0, 0, 8, 4:8] = 1.0
    scores[0, 0, 9, 4:8] = 0.5
    scores[0, 0, 9, 9] = 99.0
    mask = race.selected(scores, 4)[0, 0].tril()
    assert mask[2].nonzero().flatten().tolist() == [0, 1, 2]
    assert mask[5].nonzero().flatten().tolist() == [0, 1, 2, 3, 4, 5]
    assert mask[8].nonzero().flatten().tolist() == [0, 1, 2, 3, 8]
    assert mask[9].nonzero().flatten().tolist() == [4, 5, 6, 7, 8, 9]


def test_without_a_slope_the_blocks_are_those_of_block_selection():
    q, k, v = drawn()
    mask = race.selected(q @ k.mT, 4)
    wanted = BlockSelection(4, selected=1, local=1)(q, k, v, causal=True)
    assert torch.allclose(attention(q, k, v, mask=mask, causal=True), wanted, atol=1e-5)


@pytest.mark.parametrize("kind", race.KINDS)
def test_a_layer_sees_no_later_token(kind):
    torch.manual_seed(0)
    layer, x = race.Layer(kind).eval(), torch.randn(2, 23, recurrent.WIDTH)
    later = torch.cat((x[:, :15], torch.randn(2, 8, recurrent.WIDTH)), 1)
    assert torch.allclose(layer(x)[:, :15], layer(later)[:, :15], atol=1e-5)
    assert not torch.allclose(layer(x)[:, 15:], layer(later)[:, 15:], atol=1e-2)


@pytest.mark.parametrize("kind", race.KINDS)
def test_every_parameter_of_its_mechanism_is_trained(kind):
    torch.manual_seed(0)
    model = recurrent.Model((kind, kind), race.Layer)
    *tokens, answers, _ = recurrent.recall(4, 8, torch.Generator().manual_seed(0))
    logits = model(*tokens)[:, -answers.shape[1] :]
    functional.cross_entropy(logits.flatten(0, 1), answers.flatten()).backward()
    unused = {name for name, p in model.attentions[0].named_parameters() if p.grad is None}
    slope = {"slope"} if kind in ("elu + 1", "Performer") else set()
    assert unused == {"rate.weight", "rate.bias", "keep.weight", "keep.bias"} | slope


def test_the_race_sweeps_rates_and_repeats_the_best(monkeypatch):
    monkeypatch.setattr(recurrent, "STEPS", 3)
    monkeypatch.setattr(recurrent, "SIZES", {"recall": (4,), "copy": (4,)})
    monkeypatch.setattr(race, "KINDS", ("window",))
    monkeypatch.setattr(race, "SEEDS", (0, 1))
    monkeypatch.setattr(race, "RATES", recurrent.RATES[:2])
    monkeypatch.setattr(race, "TASKS", ("recall", "copy"))
    runs = race.run(None)["runs"]
    assert [(run["task"], run["seed"]) for run in runs] == [(t, s) for t in race.TASKS for s in (0, 0, 1)]
    for task in race.TASKS:
        mine = [run for run in runs if run["task"] == task]
        assert {run["rate"] for run in mine[:2]} == set(race.RATES)
        best = min(mine[:2], key=lambda run: run["loss"])["rate"]
        assert all(run["chosen"] == (run["rate"] == best) for run in mine)
