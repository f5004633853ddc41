"""A notebook that is killed half-way leaves nothing behind, and its next run passes."""

import os
import shutil
import signal
import threading
from contextlib import suppress
from random import Random

import nbformat
import psutil
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

from tests.book.built_site import ROOT
from tests.book.notebooks import code_cells

# What a notebook reads, as seen from its own folder.
READ = ("chapters", "recorded/results", "benchmarks/results", "exercises/source")
# Where programs keep what they write outside the folder that they run in.
PLACES = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR", "TORCH_HOME",
          "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR")  # fmt: skip
# No chapter writes a file, starts a process or trains with a checkpoint: these are quick ones that between them train,
# read what was recorded, and draw. The number is how often each is killed.
STOPPED = {"01_pooling": 2, "09_block": 2}


def files(folder):
    """The files below a folder, each with its size; what Python compiles is left out."""
    return {p: p.stat().st_size for p in sorted(folder.rglob("*")) if p.is_file() and "__pycache__" not in p.parts}


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A copy of what notebooks read, and places of their own for all that programs keep elsewhere."""
    for part in READ:
        shutil.copytree(ROOT / part, tmp_path / "book" / part, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    for name in PLACES:
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path / "book"


def run(path, notebook=None, begun=lambda client, cell_index: None):
    """Run a notebook in its own folder, as `make execute` does, without writing it."""
    client = NotebookClient(
        notebook or nbformat.read(path, as_version=4),
        timeout=1200,
        kernel_name="python3",
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.on_cell_execute = lambda cell, cell_index: begun(client, cell_index)
    return client.execute()


def run_and_kill(path, cell, delay):
    """Run a notebook until so many seconds after the beginning of a code cell, and kill its kernel without warning."""
    notebook, timers = nbformat.read(path, as_version=4), []
    at = [k for k, one in enumerate(notebook.cells) if one.cell_type == "code"][cell]
    # A quick cell waits for its end.
    notebook.cells[at].source += "\nimport time\ntime.sleep(60)"

    def begun(client, cell_index):
        if cell_index == at:
            timers.append(threading.Timer(delay, os.kill, (client.km.provisioner.pid, signal.SIGKILL)))
            timers[0].start()

    with pytest.raises(DeadKernelError):
        run(path, notebook, begun)
    assert len(timers) == 1


def processes(temporary):
    """What still runs with this folder for its temporary files."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("TMPDIR") == str(temporary):
                found.append(process)
    return found


def state(book):
    """All that a notebook could leave: in its folder and beside it, in the book itself, in temporary files, running."""
    ours = {path for part in ("attn_core", "attn_book", *READ) for path in files(ROOT / part)}
    temporary = book.parent / "TMPDIR"
    return {"copy": files(book), "ours": ours, "temporary": files(temporary), "running": processes(temporary)}


@pytest.mark.parametrize("name", STOPPED)
def test_a_killed_notebook_leaves_nothing_and_runs_again(book, name):
    path, random = book / "chapters" / f"{name}.ipynb", Random(name)
    count = len(code_cells(nbformat.read(path, as_version=4)))
    before = state(book)
    # First where all is imported, and caches are made that were not there; then anywhere.
    for cell in [1, *random.sample(range(2, count), STOPPED[name] - 1)]:
        run_and_kill(path, cell, random.uniform(0, 2))
        assert state(book) == before, f"killed in cell {cell}"
    again = run(path)
    assert [cell.execution_count for cell in again.cells if cell.cell_type == "code"] == list(range(1, count + 1))
    assert state(book) == before


def test_what_is_left_is_noticed(book):
    source = """
import pathlib, subprocess, tempfile
pathlib.Path("half.txt").write_text("x")
tempfile.mkstemp()
subprocess.Popen(["sleep", "60"])
"""
    path = book / "chapters" / "trial.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)]), path)
    before = state(book)
    run_and_kill(path, 0, 2.0)
    after = state(book)
    assert set(after["copy"]) - set(before["copy"]) == {book / "chapters" / "half.txt"}
    assert len(after["temporary"]) == 1 and not before["temporary"]
    (left,) = after["running"]
    assert left.cmdline() == ["sleep", "60"]
    left.kill()
