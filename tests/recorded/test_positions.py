"""The recorded runs of positions: T5's buckets, and what each way of stretching does to the frequencies."""

import pytest
import torch

from attn_core.positions import Rotary
from recorded import positions, stretching


def test_buckets_are_single_when_near_shared_when_far_and_end_with_the_training_length():
    module = positions.Buckets()
    with torch.no_grad():
        module.table.copy_(torch.arange(16.0)[:, None].expand(-1, positions.HEADS))
    found = module.bias(torch.tensor([200]), 200 - torch.tensor([0, 1, 7, 8, 31, 32, 200, -3]))[0, 0]
    assert found.tolist() == [0, 1, 7, 8, 15, 15, 15, 0]


def test_stretched_positions_are_what_their_methods_say():
    x, here = torch.randn(2, 4, 9, 16), torch.arange(9)
    rotary, factor = Rotary(16), stretching.FACTOR
    torch.testing.assert_close(stretching.Stretched("none").rotate(x, here), rotary.rotate(x, here))
    squeezed = stretching.Stretched("interpolation").rotate(x, factor * here)
    torch.testing.assert_close(squeezed, rotary.rotate(x, here))
    plain, ntk, yarn = (stretching.Stretched(name) for name in ("none", "NTK-aware", "YaRN"))
    slowdown = plain.frequencies / ntk.frequencies
    assert slowdown[0] == pytest.approx(1) and slowdown[-1] == pytest.approx(factor) and (slowdown.diff() > 0).all()
    slowdown = (plain.frequencies / yarn.frequencies).tolist()
    assert slowdown[0] == pytest.approx(1) and slowdown[2:] == pytest.approx([factor] * 6)
    assert 1 < slowdown[1] < factor and yarn.scale > 1 == plain.scale
