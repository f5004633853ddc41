"""Every committed notebook, as it is stored."""

import ast
import json
import re
import statistics
from itertools import compress

import nbformat
import pytest

from tests.book import notebooks as nb
from website import page_heads

each = pytest.mark.parametrize("path", nb.NOTEBOOKS, ids=lambda path: path.stem)
chapter = pytest.mark.parametrize("path", [p for p in nb.NOTEBOOKS if re.match(r"\d\d_", p.name)], ids=lambda p: p.stem)
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
CLOCKS = {"perf_counter", "monotonic", "process_time", "time"}  # attributes of the module `time`


@each
def test_every_code_cell_was_run_and_none_failed(path):
    cells = nb.code_cells(nb.read(path))
    counts = [cell["execution_count"] for cell in cells]
    assert counts == list(range(1, len(cells) + 1)), "run top to bottom from a fresh kernel: make execute"
    assert not [cell["source"] for cell in cells if any(out["output_type"] == "error" for out in cell["outputs"])]


@each
def test_nothing_is_stored_that_serves_a_live_kernel_only(path):
    notebook = nb.read(path)
    assert "widgets" not in notebook["metadata"]
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert "version" not in notebook["metadata"].get("language_info", {})
    assert WIDGET_VIEW not in path.read_text(encoding="utf-8")


@each
def test_stderr_holds_progress_bars_only(path):
    streams = [out for cell in nb.code_cells(nb.read(path)) for out in cell["outputs"] if out.get("name") == "stderr"]
    lines = [line for out in streams for line in re.split(r"[\r\n]", nb.text(out["text"]))]
    assert not [line for line in lines if not nb.is_progress(line)]


@each
def test_the_file_is_small(path):
    assert path.stat().st_size < 1_500_000


@each
def test_the_first_code_cell_is_the_launch_cell(path):
    assert nb.text(nb.code_cells(nb.read(path))[0]["source"]).strip() == nb.launch_cell().strip()


@each
def test_code_cells_are_short(path):
    """Past the launch cell and the folded imports; a cell that defines something, a mechanism say, may be longer."""
    cells = nb.code_cells(nb.read(path))[2:]
    lengths = [sum(1 for line in nb.text(cell["source"]).splitlines() if line.strip()) for cell in cells]
    limits = [40 if defines(nb.text(cell["source"])) else 25 for cell in cells]
    assert [n for n, limit in zip(lengths, limits, strict=True) if n > limit] == []
    unseen = {"hide-input", "remove-input", "remove-cell"}
    is_open = [unseen.isdisjoint(cell["metadata"].get("tags", [])) for cell in cells]
    assert statistics.median_low(list(compress(lengths, is_open)) or [0]) <= 8


def defines(source):
    """Whether a cell defines a function or a class."""
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.parse(source).body)


def only_imports(source):
    """Whether a cell does nothing but import, and set up the plots."""
    body = [node for node in ast.parse(source).body if ast.unparse(node) != "plots.set_up()"]
    return all(isinstance(node, ast.Import | ast.ImportFrom) for node in body)


@each
def test_every_code_cell_shows_or_asserts(path):
    """Past the launch cell; a cell that only imports has nothing to show."""
    cells = [(nb.text(cell["source"]), cell["outputs"]) for cell in nb.code_cells(nb.read(path))[1:]]
    silent = [source for source, outputs in cells if not outputs and not nb.ends_in_assertion(source)]
    assert [source for source in silent if not only_imports(source)] == []


def names(code, context):
    """The names that code reads (`ast.Load`) or gives a value (`ast.Store`), but for those that live in it alone."""
    parts = list(ast.walk(code))
    inner = (
        [code]
        if isinstance(code, ast.FunctionDef)
        else [part.target for part in parts if isinstance(part, ast.comprehension)]
    )
    local = {
        name.id
        for one in inner
        for name in ast.walk(one)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    local |= {part.arg for part in parts if isinstance(part, ast.arg)}
    return {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, context)} - local


def changed(code):
    """The names that code gives a value, or an entry of one: `x = …`, `def x`, `x[i] = …`, `x.append(…)`."""
    if isinstance(code, ast.FunctionDef):
        return {code.name}
    parts = list(ast.walk(code))
    filled = [part for part in parts if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store)]
    calls = [part.func for part in parts if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)]
    filled += [call for call in calls if call.attr == "append"]
    return names(code, ast.Store) | {next(n.id for n in ast.walk(one) if isinstance(n, ast.Name)) for one in filled}


def timed_assertions(statements, timed):
    """The assertions that depend on a measured time, where `timed` holds the names that do."""
    for one in statements:
        block = [part for part in ast.iter_child_nodes(one) if isinstance(part, ast.stmt)]
        whole = not block or isinstance(one, ast.FunctionDef)
        head = [one] if whole else [part for part in ast.iter_child_nodes(one) if part not in block]
        attributes = {part.attr for code in head for part in ast.walk(code) if isinstance(part, ast.Attribute)}
        given = set().union(*map(changed, head))
        if attributes & CLOCKS or any(names(code, ast.Load) & timed for code in head):
            timed |= given
            if isinstance(one, ast.Assert):
                yield ast.unparse(one)
        else:
            timed -= given
        if not whole:
            yield from timed_assertions(block, timed)


def test_an_assertion_on_a_measured_time_is_found_and_another_is_not():
    code = "spent.append(time.perf_counter() - start)\nassert min(spent) < 1\nassert size < 1"
    assert list(timed_assertions(ast.parse(code).body, set())) == ["assert min(spent) < 1"]


@each
def test_no_assertion_depends_on_how_long_something_took(path):
    sources = [nb.text(cell["source"]) for cell in nb.code_cells(nb.read(path))[1:]]
    assert list(timed_assertions(ast.parse("\n".join(sources)).body, set())) == []


@each
def test_what_cells_draw_has_alt_text_and_a_caption(path):
    for cell in nb.code_cells(nb.read(path)):
        mimes = {mime for out in cell["outputs"] for mime in out.get("data", {})}
        shown = cell["metadata"].get("mystnb", {})
        if any(mime.startswith("image/") for mime in mimes) and "text/html" not in mimes:
            source = nb.text(cell["source"])
            assert shown.get("image", {}).get("alt", "").strip(), source
            assert shown.get("figure", {}).get("caption", "").strip(), source


@chapter
def test_a_chapter_says_what_it_is_for(path):
    cells = nb.read(path)["cells"][:5]
    opening = "\n".join(nb.text(cell["source"]) for cell in cells if cell["cell_type"] == "markdown").lower()
    assert re.search(r"objectives|learning goals|you will|you can", opening)
    assert re.search(r"prerequisites|you need", opening) and "**it takes** about" in opening


@chapter
def test_a_chapter_ends_with_advice_a_quiz_and_a_summary(path):
    cells = nb.read(path)["cells"]
    text = "\n".join(nb.text(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert re.findall(r"^## (.+)$", text, flags=re.M)[-3:] == ["In practice", "Check yourself", "Summary"]


@each
def test_what_an_opening_says_of_its_time_is_what_was_measured(path):
    record = json.loads(page_heads.RECORD.read_text(encoding="utf-8"))
    notebook = nbformat.read(path, as_version=4)
    assert page_heads.headed(notebook, path.stem, record) == notebook, "make heads"


@chapter
def test_a_chapter_has_six_exercises_with_solutions_and_a_widget(path):
    notebook = nb.read(path)
    text = "\n".join(nb.text(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    labels = re.findall(r"\{exercise(?:-start)?\}[^\n]*\n(?:\s*:[^\n]*\n)*?\s*:label:\s*(\S+)", text)
    assert len(labels) >= 6 and len(set(labels)) == len(labels)
    assert set(labels) == set(re.findall(r"\{solution(?:-start)?\}\s*(\S+)", text))
    assert "attn-static" in json.dumps(notebook)
