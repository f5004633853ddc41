import subprocess
import sys

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch

from attn_book import plots

matplotlib.use("Agg")
SOURCE, TARGET = "the black cat".split(), "le chat noir .".split()
WEIGHTS = torch.rand(4, 3).softmax(-1)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_heatmap_draws_each_weight_where_its_tokens_are():
    ax = plots.heatmap(WEIGHTS, SOURCE, TARGET, links=[(2, 1)], title="Attention")
    ax.figure.canvas.draw()
    mesh = ax.collections[0]
    assert torch.equal(torch.tensor(mesh.get_array().reshape(4, 3)), WEIGHTS)
    assert [t.get_text() for t in ax.get_xticklabels()] == SOURCE
    assert [t.get_text() for t in ax.get_yticklabels()] == TARGET
    top, bottom = (ax.transData.transform((0.5, y))[1] for y in (0.5, 3.5))
    assert top > bottom, "the first target token stands first"
    (outline,) = ax.patches
    assert tuple(outline.get_center()) == pytest.approx((2.5, 1.5))
    assert ax.get_xlabel() and ax.get_ylabel() and ax.get_title("left") == "Attention"


def test_style_ends_with_its_block():
    before = matplotlib.rcParams.copy()
    with plots.style():
        assert matplotlib.rcParams["axes.titlelocation"] == "left"
        assert len(matplotlib.rcParams["axes.prop_cycle"]) == 6
    assert matplotlib.rcParams == before


def test_importing_plots_imports_no_matplotlib():
    code = "import sys, attn_book.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_style_keeps_the_backend_interactive_once_it_is():
    import matplotlib

    before = matplotlib.is_interactive()
    try:
        matplotlib.interactive(False)
        with plots.style():
            matplotlib.interactive(True)  # what a notebook's backend does when the first figure is made
        assert matplotlib.is_interactive()
    finally:
        matplotlib.interactive(before)
