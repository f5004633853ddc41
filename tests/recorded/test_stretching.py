"""The recorded run of stretched rotary positions: what each method does to the frequencies, and a tiny run."""

import pytest
import torch

from attn_core.positions import Rotary
from recorded import positions, stretching


def test_stretched_positions_are_what_their_methods_say():
    draw = torch.Generator().manual_seed(0)
    x, here = torch.randn(2, 4, 9, 16, generator=draw), torch.arange(9)
    rotary, factor = Rotary(16), stretching.FACTOR
    torch.testing.assert_close(stretching.Stretched("none").rotate(x, here), rotary.rotate(x, here))
    squeezed = stretching.Stretched("interpolation").rotate(x, factor * here)
    torch.testing.assert_close(squeezed, rotary.rotate(x, here))
    plain, ntk, yarn = (stretching.Stretched(name) for name in ("none", "NTK-aware", "YaRN"))
    slowdown = plain.frequencies / ntk.frequencies
    assert slowdown[0] == pytest.approx(1) and slowdown[-1] == pytest.approx(factor)
    assert bool((slowdown.diff() > 0).all())
    slowdown = (plain.frequencies / yarn.frequencies).tolist()
    assert slowdown[0] == pytest.approx(1) and slowdown[2:] == pytest.approx([factor] * 6)
    assert 1 < slowdown[1] < factor and yarn.scale > 1 == plain.scale


def test_a_stretched_model_is_a_copy_that_is_trained_on():
    torch.manual_seed(0)
    model = positions.PlacedModel(positions.LETTERS, "rotary")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    words = {"train": torch.empty(0)}
    as_it_is = stretching.stretched(model, "copying", "YaRN", seed=0, steps=0, words=words)
    trained = stretching.stretched(model, "copying", "YaRN", seed=0, steps=2, words=words)
    torch.testing.assert_close(dict(model.state_dict()), before)
    torch.testing.assert_close(dict(as_it_is.state_dict()), before)
    assert not torch.equal(trained.logits.weight, model.logits.weight)
    tokens = torch.arange(9)[None]
    assert not torch.allclose(as_it_is(tokens), model(tokens))
