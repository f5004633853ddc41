"""Widgets beside Colab's versions, as far as that shows without Colab: for `make test-colab`, which makes .colab.

JupyterLab runs in .colab: its kernel has Colab's IPython, ipywidgets and anywidget, and of anywidget also the part in
the browser. So what such a kernel sends makes a widget, and one that answers. What this does not show is Colab's own
page, which keeps each output in a frame of its own and loads its own build of the widgets' base from Google's servers.
"""

import pytest

from tests.book import notebooks as nb
from tests.book.test_stored_widgets import HOLDERS
from tests.browser import jupyter
from tests.browser.test_jupyter import shown, visit

pytestmark = pytest.mark.browser

# JupyterLab 4 has the second version of the widgets' base, and logs that it lacks the first, in which ipywidgets 7
# describes a widget's margins. The widget itself is anywidget's, and lives.
OLDER = "Module @jupyter-widgets/base, version ^1.2.0 is not registered"


def test_widgets_live_beside_colabs_versions(browser, tmp_path):
    (path,) = [path for path in HOLDERS if path.stem == "13_sparse"]
    with jupyter.serve("lab", tmp_path, python=str(nb.ROOT / ".colab" / "bin" / "python")) as server:
        visit(browser, server, "lab/tree", path.name, shown(nb.read(path)["cells"]), known=OLDER)
