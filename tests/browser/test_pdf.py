"""The book on paper: printed when formulas, pictures and widgets are there, folds open, and not before."""

import subprocess
import sys

import numpy as np
import pytest

from attn_book.widgets import AttentionHeatmap
from tests.book.built_site import ROOT

pytestmark = pytest.mark.browser
pikepdf = pytest.importorskip("pikepdf")


def page(tmp_path, body):
    path = tmp_path / "a page.html"
    path.write_text(f"<!doctype html><meta charset='utf-8'><title>t</title><body>{body}", encoding="utf-8")
    return path


def printing(tmp_path, body):
    """Print a page in a process of its own: Playwright runs once in one."""
    files = [str(page(tmp_path, body)), str(tmp_path / "book.pdf")]
    return subprocess.run([sys.executable, ROOT / "website" / "pdf.py", *files], capture_output=True, text=True)


def sheets(tmp_path, body):
    """How many sheets a page takes."""
    done = printing(tmp_path, body)
    assert done.returncode == 0, done.stderr
    assert "The book on paper" in done.stdout
    with pikepdf.open(tmp_path / "book.pdf") as document:
        return len(document.pages)


@pytest.mark.usefixtures("browser")  # which skips where there is no Chromium
def test_folds_are_opened(tmp_path):
    solution = "<p style='break-before: page'>solution</p>" * 3
    assert sheets(tmp_path, f"<details><summary>s</summary>{solution}</details>") == 4


@pytest.mark.usefixtures("browser")
def test_a_widget_is_printed_as_it_runs(tmp_path):
    widget = AttentionHeatmap(np.eye(3), ["a", "b", "c"], ["d", "e", "f"])
    assert sheets(tmp_path, widget.static_html()) == 1


@pytest.mark.usefixtures("browser")
def test_a_widget_that_does_not_start_stops_the_print(tmp_path):
    done = printing(tmp_path, "<div class='attn-static'><img class='attn-picture' alt='a'></div>")
    assert done.returncode == 1 and done.stderr == "make: 1 widgets did not start\n"
    assert not (tmp_path / "book.pdf").exists()
