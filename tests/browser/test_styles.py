"""The widgets' styles beside each other: all bring the shared rules, and none may depend on which came last."""

from pathlib import Path

import numpy as np
import pytest
import torch

from attn_book.widgets import (
    AttentionHeatmap,
    AttentionPatternExplorer,
    KernelSmoother,
    MaskedWordExplorer,
    OnlineSoftmaxStepper,
    PagedCacheExplorer,
    PatchAttentionExplorer,
    PositionalEncodingExplorer,
    Quiz,
    Translator,
)

RECORDED = Path(__file__).parents[2] / "recorded" / "results"

pytestmark = pytest.mark.browser

LOOKS = """all => all.map((root) => [root, ...root.querySelectorAll('*')].map((e) => {
  const style = getComputedStyle(e);
  return [e.getAttribute('class'), ...[...style].sort().map((name) => `${name}: ${style.getPropertyValue(name)}`)];
}))"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_widgets_look_alike_alone_and_together(show, theme):
    tokens = ["a", "b", "c"]
    widgets = [
        AttentionPatternExplorer(),
        AttentionHeatmap([[[0.2, 0.3, 0.5]] * 3] * 2, tokens, tokens),
        OnlineSoftmaxStepper(step=2),
        PagedCacheExplorer(),
        PatchAttentionExplorer(torch.rand(2, 8, 8, 3), torch.full((2, 2, 2, 5, 4), 0.2), patch_size=4),
        MaskedWordExplorer(
            [tokens], [[None, ([("b", 0.6), ("x", 0.3)], 1, 0.6), None]], [np.full((3, 1, 2, 3), 1 / 3)], position=1
        ),
        PositionalEncodingExplorer(),
        KernelSmoother([1, 2, 5], [3, 1, 2]),
        Translator.load(RECORDED / "translators" / "transformer.json"),
        Quiz([{"question": "Which?", "options": [{"text": t, "right": t == "a", "why": "so"} for t in ("a", "b")]}]),
    ]
    pages = [widget.static_html() for widget in widgets]
    looks = {}
    together = list(range(len(pages)))
    for order in (*([i] for i in together), together, together[::-1]):
        # What the translator says of its own speed must not differ, for a text of another width looks otherwise.
        body = "<script>performance.now = () => 0;</script>" + "".join(pages[i] for i in order)
        with show(body, theme=theme, reduced_motion="reduce") as page:
            for i, seen in zip(order, page.locator(".attn-card").evaluate_all(LOOKS), strict=True):
                for one, other in zip(looks.setdefault(i, seen), seen, strict=True):
                    assert one == other, (type(widgets[i]).__name__, sorted(set(one) ^ set(other)))
