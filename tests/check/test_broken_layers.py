"""The correct layer is correct, and each broken one has the symptoms that the book says."""

import pytest
import torch
from torch import nn

from attn_book.check import broken_layers, layer_tests
from attn_core import MultiHeadAttention, masks

SHORT = {test.__name__: test.__name__.split("_")[0] for test in layer_tests.TESTS}
SYMPTOMS = {
    "CausalWhileTraining": "causal",
    "MergeByView": "causal order padding a heads noise",
    "MaskAfterSoftmax": "causal padding weights noise",
    "HeadsOfSizeOne": "a heads",
    "CausalOffByOne": "causal noise",
    "InvertedMask": "padding",
    "SoftmaxOverQueries": "causal padding a weights scores noise",
    "Unscaled": "scores",
    "SplitByView": "causal order padding a weights heads noise",
    "MaskOfAnotherSentence": "padding sentences",
}


@pytest.fixture(scope="module")
def found():
    made = {}
    for number in range(1, broken_layers.SPECIMENS + 1):
        name = broken_layers.reveal(number).split(":")[0]
        made[name] = layer_tests.symptoms(broken_layers.specimen(number))
    return made


def test_every_specimen_has_shapes_that_are_right(found):
    assert len(found) == 10
    assert all(symptoms["shapes_are_right"] is None for symptoms in found.values())


@pytest.mark.parametrize("name", SYMPTOMS)
def test_each_bug_has_its_symptoms(found, name):
    seen = [SHORT[test] for test, message in found[name].items() if message]
    assert " ".join(seen) == SYMPTOMS[name]


def test_its_weights_and_gradients_are_those_of_the_layer_in_use():
    torch.manual_seed(1)
    layer, ours = broken_layers.StepByStep(12, 3), MultiHeadAttention(12, 3)
    ours.load_state_dict(layer.state_dict())
    x, keys = torch.randn(2, 5, 12, requires_grad=True), torch.randn(2, 7, 12)
    mask = masks.padding(torch.tensor([7, 0]), 7)
    outs = [one(x, keys, mask=mask) for one in (layer, ours)]
    torch.testing.assert_close(*outs, atol=1e-6, rtol=0)
    gradients = [torch.autograd.grad(out.pow(2).sum(), x)[0] for out in outs]
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-6)


def test_a_specimen_gives_nothing_away():
    for number in range(1, broken_layers.SPECIMENS + 1):
        kind, bug = broken_layers.specimen(number), broken_layers.reveal(number).split(":")[0]
        layer = kind(16, 4)
        assert kind.__name__ == type(layer).__name__ == "Specimen" and bug not in repr(layer) + (kind.__doc__ or "")
        layer.load_state_dict(broken_layers.StepByStep(16, 4).state_dict())
        assert [type(module) for module in layer.children()] == [nn.Linear] * 4


@pytest.mark.parametrize("number", [0, 11, True, "3"])
def test_a_wrong_number_is_named(number):
    for function in (broken_layers.specimen, broken_layers.reveal):
        with pytest.raises(ValueError, match="^number: expected a specimen from 1 to 10, got"):
            function(number)
