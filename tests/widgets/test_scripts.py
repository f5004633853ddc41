"""The widgets' scripts and styles as they are joined: what they reach, and that they are read anew."""

import re
import shutil
import subprocess

import pytest

from attn_book import widgets
from attn_book.widgets import OnlineSoftmaxStepper, StaticWidget, base

CLASSES = [cls for name in widgets.__all__ if (cls := getattr(widgets, name)) is not StaticWidget]
each_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)


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
        (tmp_path / name).write_text(f"/* {name} is new */\n" + (tmp_path / name).read_text(encoding="utf-8"), "utf-8")
    (tmp_path / "online_softmax.css").write_text(".attn-new {}", encoding="utf-8")
    widget = OnlineSoftmaxStepper()
    for text in (widget._esm, widget.static_html()):
        assert text.count("/* page.js is new */") == text.count("/* softmax_steps.js is new */") == 1
        assert "They have one scope" not in text  # a line that is a comment alone
    assert widget._css.endswith(".attn-new {}")
