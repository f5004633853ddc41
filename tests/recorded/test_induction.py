"""The recorded run of induction heads interferes where it says."""

import pytest
import torch

from attn_book.induction import AttentionOnly
from recorded import induction
from tests.recorded.test_runs import INDUCTION


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    for name, value in INDUCTION.items():
        monkeypatch.setattr(induction, name, value)


def model_of(depth=2):
    torch.manual_seed(5)
    return AttentionOnly(8, model_dim=8, num_heads=2, num_layers=depth)


def test_only_the_head_named_is_off():
    model = model_of()
    plain, off = induction.behaviour(model), induction.heads_off(model)
    assert (
        off[0]["previous_token"] == plain["previous_token"] or off[0]["previous_token"][0] == plain["previous_token"][0]
    )
    assert off[0]["induction"][1] != plain["induction"][1]  # the second layer reads what the first one wrote
    assert off[2]["induction"] == plain["induction"] and off[2]["second"] != plain["second"]
    assert off[0]["second"] != off[1]["second"] and off[2]["second"] != off[3]["second"]
    assert induction.behaviour(model) == plain


def test_hiding_from_values_leaves_the_weights_alone():
    model = model_of()
    plain = induction.behaviour(model)
    hidden = {role: induction.hidden(model, 0, role) for role in ("queries", "keys", "values")}
    assert hidden["values"]["induction"] == pytest.approx(plain["induction"][1])
    assert hidden["values"]["second"] != pytest.approx(plain["second"], abs=1e-6)
    for role in ("queries", "keys"):
        assert hidden[role]["induction"] != pytest.approx(plain["induction"][1], abs=1e-6)
    with torch.no_grad():  # a head that writes nothing is not missed
        model.layers[0].out.weight[:, :4] = 0
    plain = induction.behaviour(model)
    for role in ("queries", "keys", "values"):
        assert induction.hidden(model, 0, role)["second"] == pytest.approx(plain["second"])
