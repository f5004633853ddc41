"""A real JupyterLab, or Notebook 7, on a copy of the chapters, for tests that a browser drives."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.book.built_site import ROOT

# Cells out of view are not on the page, which is JupyterLab's most careful mode; and it asks no other host for news.
SETTINGS = {
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "full"},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
# Much more than anything takes: what is waited for is that it happens.
PATIENCE = 1200  # seconds
NOTEBOOK = "jupyterapp.shell.currentWidget"


@contextmanager
def serve(application: str, home: Path, python: str = sys.executable) -> Iterator[SimpleNamespace]:
    """Start "lab" or "notebook" in the empty folder `home`, with settings of its own; gives its address and token."""
    shutil.copytree(ROOT / "chapters", home / "book" / "chapters")
    for name in ("recorded", "benchmarks"):  # what chapters read beside themselves
        (home / "book" / name).symlink_to(ROOT / name)
    for name, values in SETTINGS.items():
        path = home / "settings" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")
    own = {"JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces", "IPYTHONDIR": "ipython"}
    own |= {f"JUPYTER_{name}_DIR": name.lower() for name in ("CONFIG", "DATA", "RUNTIME")}
    environment = {
        **os.environ,
        **{name: str(home / folder) for name, folder in own.items()},
        "JUPYTER_PREFER_ENV_PATH": "1",  # the kernel of the same environment
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),  # for notebooks that show the tests' own samples
    }
    module = {"lab": "jupyterlab", "notebook": "notebook"}[application]
    command = [python, "-m", module, "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1"]
    command += ["--ServerApp.port=0", f"--ServerApp.root_dir={home / 'book'}", "--LabApp.extension_manager=readonly"]
    command += [f"--{name}.expose_app_in_browser=True" for name in ("LabApp", "JupyterNotebookApp")]
    with (home / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            # The file is there before what it holds is.
            while not (found := "".join(path.read_text() for path in (home / "runtime").glob("jpserver-*.json"))):
                assert server.poll() is None, (home / "log").read_text()
                time.sleep(0.1)
            yield SimpleNamespace(**json.loads(found))
        finally:
            server.terminate()  # its kernels end with it
            server.wait(PATIENCE)


@contextmanager
def opened(browser: Any, server: SimpleNamespace, view: str, path: str) -> Iterator[SimpleNamespace]:
    """Open a notebook with a kernel, which ends with it; gives the page, and all that goes wrong on it."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(1000 * PATIENCE)
    page, wrong = context.new_page(), []

    def route(request: Any) -> None:
        if request.request.url.startswith((server.url, "data:", "blob:")):
            request.continue_()
        else:
            wrong.append(f"another host: {request.request.url}")
            request.abort()

    page.route("**/*", route)
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(f"{server.url}{view}/chapters/{path}?reset&token={server.token}")  # no tabs of another test
    status = f"window.jupyterapp && {NOTEBOOK}?.sessionContext?.session?.kernel?.connectionStatus"
    page.wait_for_function(f"{status} === 'connected'")
    try:
        yield SimpleNamespace(page=page, wrong=wrong)
    finally:
        page.evaluate(f"{NOTEBOOK}.sessionContext.shutdown()")
        context.close()


def run_all(page: Any) -> list[dict[str, Any]]:
    """Run All Cells; gives each cell as it is once the last has run."""
    run = "jupyterapp.commands.execute('notebook:run-all-cells')"
    page.evaluate(f"() => {{ {run}.then(() => {{ window.allRan = true; }}); }}")
    page.wait_for_function("window.allRan", polling=1000)
    cells: list[dict[str, Any]] = page.evaluate(f"{NOTEBOOK}.content.widgets.map((cell) => cell.model.toJSON())")
    return cells


def scroll(page: Any, cell: int, ready: str, card: Any = None) -> None:
    """Make a cell the active one and scroll to it, until `ready`, a JavaScript function of the card, says so twice.

    Once is not enough: JupyterLab lays cells out again as it learns their heights, and what was in view leaves it.
    """
    page.evaluate(f"cell => {{ {NOTEBOOK}.content.activeCellIndex = cell; window.readyTimes = 0; }}", cell)
    again = f"window.readyTimes = ({ready})(card) ? window.readyTimes + 1 : 0; return window.readyTimes > 1;"
    script = f"([cell, card]) => {{ {NOTEBOOK}.content.scrollToItem(cell, 'start'); {again} }}"
    page.wait_for_function(script, arg=[cell, card], polling=500)
