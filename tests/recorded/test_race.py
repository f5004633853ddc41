"""The race's task, its layers, and the rule that ends its training."""

import pytest
import torch

from recorded import race


def test_answers_are_the_values_that_came_with_the_keys():
    tokens, answers = race.recall(5, 7, torch.Generator().manual_seed(0))
    assert tokens.shape == (5, 21) and answers.shape == (5, 7)
    for row, wanted in zip(tokens.tolist(), answers.tolist(), strict=True):
        value_of = {key: value - race.KEYS for key, value in zip(row[:14:2], row[1:14:2], strict=True)}
        assert len(value_of) == 7 and sorted(row[14:]) == sorted(value_of)
        assert [value_of[key] for key in row[14:]] == wanted


def test_the_window_keeps_as_many_numbers_as_a_state():
    assert 2 * race.WINDOW * race.HEAD_DIM == race.HEAD_DIM**2


@pytest.mark.parametrize("kind", race.KINDS)
def test_a_layer_sees_no_later_token(kind):
    torch.manual_seed(0)
    layer, x = race.Layer(kind).eval(), torch.randn(2, 23, race.WIDTH)
    later = torch.cat((x[:, :15], torch.randn(2, 8, race.WIDTH)), 1)
    assert torch.allclose(layer(x)[:, :15], layer(later)[:, :15], atol=1e-5)
    assert not torch.allclose(layer(x)[:, 15:], layer(later)[:, 15:], atol=1e-2)


@pytest.mark.parametrize("kind", race.KINDS)
def test_only_the_window_forgets_where_it_must(kind):
    torch.manual_seed(0)
    layer, x = race.Layer(kind).eval(), torch.randn(1, 23, race.WIDTH)
    other = torch.cat((torch.randn(1, 3, race.WIDTH), x[:, 3:]), 1)
    same = torch.allclose(layer(x)[:, -1], layer(other)[:, -1], atol=1e-6)
    assert same == (kind == "window")


def test_training_ends_when_the_loss_has_stopped_falling_at_every_rate(monkeypatch):
    monkeypatch.setattr(race, "PAIRS", (2,))
    monkeypatch.setattr(race, "test", lambda model, rows, seed: (1.0, {}))
    torch.manual_seed(0)
    steps, _ = race.train(race.Model("linear"), 1e-3, seed=0)
    assert steps == race.EVERY * (1 + race.PATIENCE * (race.CUTS + 1))


def test_training_ends_when_the_task_is_solved(monkeypatch):
    monkeypatch.setattr(race, "PAIRS", (2,))
    monkeypatch.setattr(race, "test", lambda model, rows, seed: (race.SOLVED / 2, {}))
    assert race.train(race.Model("linear"), 1e-3, seed=0)[0] == race.EVERY
