"""The widgets' scripts and styles as they are joined: what they declare and reach, and that they are read anew."""

import re
import shutil
import subprocess
from collections import Counter

import pytest

from attn_book import widgets
from attn_book.widgets import OnlineSoftmaxStepper, StaticWidget, base
from tests.widgets.said import tokens

CLASSES = [cls for name in widgets.__all__ if (cls := getattr(widgets, name)) is not StaticWidget]
each_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)


def declared(script):
    """The names that a script declares at its top level, in order, those given twice included."""
    names, depth, pattern = [], 0, None  # `pattern` is the depth at which a declaration such as `const [a, b]` stands
    for before, token in zip([None, *(all_tokens := tokens(script))], all_tokens, strict=False):
        declares = depth == 0 and before is not None and before.text in ("const", "let", "var", "function", "class")
        if token.kind == "word" and (declares or pattern is not None):
            names.append(token.text)
        if token.kind == "mark" and token.text in ("(", "[", "{"):
            pattern = depth if declares else pattern
            depth += 1
        elif token.kind == "mark" and token.text in (")", "]", "}"):
            depth -= 1
            pattern = None if depth == pattern else pattern
    return names


def repeated(script):
    return [name for name, count in Counter(declared(script)).items() if count > 1]


def test_declarations_at_the_top_level_are_read():
    script = """
      const one = (x) => { const inner = 1; }; let two = `${one}`; const [three, four] = [{ key: 1 }, 2];
      function five(argument) { let inner = 2; } class Six {} const { seven, eight } = five({ key }); // const nine = 9;
    """
    assert declared(script) == ["one", "two", "three", "four", "five", "Six", "seven", "eight"]
    assert repeated("const make = 1; function make() {}") == ["make"]
    assert repeated("function one() { const make = 1; } function two() { const make = 2; }") == []


@each_class
def test_files_joined_in_one_scope_declare_each_name_once(cls):
    names = declared(str(cls._esm))
    assert {"say", "make", "mount", "draw"} <= set(names), "the shared file and the widget's own are read"
    assert repeated(str(cls._esm)) == []


@each_class
def test_a_module_has_one_export_and_no_address_and_runs_no_text(cls):
    script = str(cls._esm)
    assert script.count("export default") == 1
    addresses = script.replace("http://www.w3.org/${space}", "")  # the names of HTML and SVG, which nothing fetches
    assert not re.search(r"\bimport\b|https?:|innerHTML|insertAdjacent|document\.write|eval\(|\.on\w+ =", addresses)


@each_class
def test_a_style_stays_inside_the_widget(cls):
    style = re.sub(r"/\*.*?\*/|@keyframes[^}]*\}\s*\}", "", str(cls._css), flags=re.DOTALL)
    rules = re.findall(r"([^{}]+)\{", re.sub(r"@media[^{]*\{", "", style))
    selectors = [selector.strip() for rule in rules for selector in re.split(r",(?![^(]*\))", rule)]
    (root,) = re.findall(r'card\(\s*"(\w+)"', str(cls._esm))  # the class of its outermost element
    assert selectors and [one for one in selectors if not re.match(rf"\.attn-(card|static|{root})\b", one)] == []
    assert "url(" not in style and "@import" not in style


@each_class
def test_the_joined_module_is_javascript(cls, tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node found to check the syntax with")
    module = tmp_path / "module.mjs"
    module.write_text(str(cls._esm), encoding="utf-8")
    result = subprocess.run([node, "--check", module], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_widget_that_is_made_after_a_change_has_the_new_script_and_style(tmp_path, monkeypatch):
    for path in base._HERE.iterdir():
        if path.suffix in (".js", ".css"):
            shutil.copy(path, tmp_path)
    monkeypatch.setattr(base, "_HERE", tmp_path)
    for name in ("page.js", "softmax_steps.js"):
        (tmp_path / name).write_text(f"// {name} is new\n" + (tmp_path / name).read_text(encoding="utf-8"), "utf-8")
    (tmp_path / "online_softmax.css").write_text(".attn-new {}", encoding="utf-8")
    widget = OnlineSoftmaxStepper()
    for text in (widget._esm, widget.static_html()):
        assert text.count("// page.js is new") == text.count("// softmax_steps.js is new") == 1
    assert widget._css.endswith(".attn-new {}")
