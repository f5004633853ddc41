"""The recorded runs of chapter 3 compare what they say they compare."""

import pytest

from recorded import luong, output_layers


def test_the_models_of_one_comparison_differ_in_one_thing():
    for script in (luong, output_layers):
        with pytest.raises(ValueError, match="kind: expected one of"):
            script.build("soft", 20, 30)
    sizes = {kind: sum(p.numel() for p in luong.build(kind, 20, 30).parameters()) for kind in luong.KINDS}
    swapped = {k: sum(p.numel() for p in output_layers.build(k, 20, 30).parameters()) for k in output_layers.KINDS}
    layer = swapped["concat, maxout"] - sizes["concat"]
    assert layer == sizes["Bahdanau"] - swapped["Bahdanau, no maxout"] > 0
