"""Hostile input: each of the table's ends in an error that says what was wrong, and nothing is lost."""

import inspect
from typing import get_args, get_type_hints

import pytest
import torch
from torch import nn

from attn_core import KVCache
from attn_core.contract import Mechanism
from tests.hostile import models, tensors
from tests.hostile.tensors import REFUSED, inputs, numbers
from tests.properties.mechanisms import MECHANISMS

CASES = [
    *(tensors.CONTRACT + tensors.SETTINGS + tensors.PLACES + tensors.LAYERS + tensors.PAGED),
    *(models.MODELS + models.PICTURES + models.PRETRAINING + models.TRAINING + models.DECODING),
]


def frozen(value):
    """A value as it is now, in what never changes: tensors bit for bit, modules by their weights, objects by parts."""
    if isinstance(value, torch.Tensor):
        about = str(value.dtype), tuple(value.shape), value.stride(), str(value.device), value.requires_grad
        flat = value.detach().reshape(-1).contiguous()
        return about, None if value.is_meta else flat.view(torch.uint8).numpy().tobytes()
    if isinstance(value, KVCache):  # what it holds; room past that has no meaning
        rows = value.lengths.tolist()
        kept = [frozen(store[i, :, :n]) for store in (value.keys, value.values) for i, n in enumerate(rows)]
        return rows, value.longest, value.uniform, value.capacity, kept
    if isinstance(value, torch.Generator):
        return frozen(value.get_state())
    if isinstance(value, nn.Module):
        return type(value), value.training, frozen(value.state_dict())
    if isinstance(value, dict):
        return [(repr(key), frozen(part)) for key, part in value.items()]
    if isinstance(value, list | tuple):
        return type(value).__name__, [frozen(part) for part in value]
    if type(value).__module__.startswith(("attn_core", "attn_book")) and hasattr(value, "__dict__"):
        return type(value), frozen(vars(value))
    return repr(value)


@pytest.mark.parametrize("row", CASES, ids=lambda row: row.name)
def test_it_is_refused_and_nothing_is_lost(row):
    given = dict(row.given)
    before = frozen(given)
    with pytest.raises(ValueError) as caught:
        row.call(**given)
    message = str(caught.value)
    assert message.startswith(f"{row.argument}: expected "), message
    assert "\n" not in message and len(message) <= 300, message
    assert frozen(given) == before, "an input has changed"


def refuses(call, argument, **given):
    with pytest.raises(ValueError, match=rf"^{argument}: expected [^\n]*, got "):
        call(**given)


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_wrong_argument_is_refused_by_every_mechanism(name):
    """One wrong value of each; the table has all of them, through ``attention``."""
    made = MECHANISMS[name].made_for(**inputs())
    for argument, value in dict(REFUSED).items():
        for call in filter(None, (made, getattr(made, "with_weights", None))):
            refuses(call, argument, **inputs(**{argument: value}))


@pytest.mark.parametrize("name", MECHANISMS)
def test_what_a_mechanism_does_not_take_is_refused(name):
    """What follows from its entry in the table: a bias, a scale, a mask by query, other keys than queries."""
    mechanism = MECHANISMS[name]
    draws, given = mechanism.draws, inputs()
    if draws.get("shared"):
        given |= {"k": given["q"], "v": numbers(2, 4, 3, 6)}
        refuses(mechanism.made_for(**given), "k", **given | {"k": given["q"].clone()})
    made = mechanism.made_for(**given)
    wrong = {"bias": numbers(3, 3), "causal": True, "scale": 0.5, "mask": torch.ones(3, 3) > 0}
    for argument, value in wrong.items():
        if draws.get(argument) in (False, "keys"):
            refuses(made, argument, **given, **{argument: value})
    if mechanism.derivatives == "first":
        refuses(made, "bias", **given, bias=numbers(3, 3).requires_grad_())


WRONG = {int: (-1, 0.5, True, "4"), float: (float("nan"), True, "0.1"), bool: (1, "no")}
"""Values that no setting of this kind takes."""


def settings():
    """Every setting of every mechanism that is a class, with each value that it cannot have."""
    for made in sorted({type(one.made_for(**inputs())) for one in MECHANISMS.values()}, key=repr):
        if not issubclass(made, Mechanism):
            continue
        hints = get_type_hints(made.__init__)
        for name in inspect.signature(made).parameters:
            for kind in WRONG.keys() & {hints[name], *get_args(hints[name])}:
                for value in WRONG[kind]:
                    yield pytest.param(made, name, value, id=f"{made.__name__}, {name} {value}")


@pytest.mark.parametrize(("made", "name", "value"), list(settings()))
def test_a_wrong_setting_of_a_mechanism_is_refused(made, name, value):
    needed = {x.name: 4 for x in inspect.signature(made).parameters.values() if x.default is x.empty}
    refuses(made, name, **needed | {name: value})
