"""The Sphinx extension: recorded heatmaps read and refused, scripts dropped, alt text demanded."""

import importlib.util
import json
import re
import types

import pytest
from docutils import nodes
from docutils.utils import new_document

from tests.book.built_site import ROOT


@pytest.fixture(scope="module")
def extension():
    spec = importlib.util.spec_from_file_location("site_extension", ROOT / "website" / "site_extension.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record(**changes):
    whole = {
        "title": "English to French",
        "source": ["the", "cat", "<eos>"],
        "target": ["le", "chat"],
        "weights": [[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]],
        "links": [[0, 0], [1, 1]],
    }
    return {key: value for key, value in (whole | changes).items() if value is not None}


@pytest.fixture
def stored(tmp_path):
    def store(content):
        path = tmp_path / "trial.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return store


def test_a_record_is_read(extension, stored):
    shown = extension.read_heatmap(stored(record(run={})))
    assert shown["links"] == [(0, 0), (1, 1)] and shown["target"] == ["le", "chat"]
    assert set(shown) == {"weights", "source", "target", "links", "title"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"links": None}, r"trial\.json lacks links"),
        ({"title": None, "weights": None}, r"trial\.json lacks weights, title"),
        ({"target": ["le"]}, r"trial\.json: weights must be 1 × 3 \(target × source\)"),
        ({"source": ["the", "cat"]}, r"trial\.json: weights must be 2 × 2"),
        ({"weights": [[0.9, 0.1, 0.0], [0.2]]}, r"trial\.json: weights must be 2 × 3"),
    ],
)
def test_what_does_not_fit_is_refused(extension, stored, changes, message):
    with pytest.raises(ValueError, match=message):
        extension.read_heatmap(stored(record(**changes)))


def test_a_heatmap_is_html_that_stands_alone(extension, stored):
    html = extension.heatmap_html(extension.read_heatmap(stored(record(target=["</script><img src=x>", "chat"]))))
    assert "attn-static" in html and "<img src=x" not in html
    namespaces = "http://www.w3.org/"  # a name, to which nothing is sent
    assert not re.search(r"https?://", html.replace(namespaces, ""))


def script(filename="", **attributes):
    return types.SimpleNamespace(filename=filename, attributes=attributes)


def site_with(builder="html", **formulas):
    """An application that knows which pages have formulas."""
    domain = types.SimpleNamespace(data={"has_equations": formulas})
    env = types.SimpleNamespace(get_domain={"math": domain}.__getitem__)
    return types.SimpleNamespace(builder=types.SimpleNamespace(name=builder), env=env)


def test_scripts_of_live_kernels_are_dropped(extension):
    kept = [script("_static/doctools.js"), script(body="let x = 1;"), "plain.js"]
    dropped = [
        script(body="const THEBE_JS_URL = 'x'"),
        script("_static/sphinx-thebe.js"),
        script(type=extension.WIDGET_STATE),
    ]
    context = {"script_files": [*dropped, *kept]}
    extension.drop_unused_scripts(site_with(), "index", "page.html", context, None)
    assert context["script_files"] == kept


@pytest.mark.parametrize(("alt", "warnings"), [(None, 1), ("  ", 1), ("a cat", 0)])
def test_a_picture_without_alt_text_is_a_warning(extension, monkeypatch, alt, warnings):
    said = []
    monkeypatch.setattr(extension.logger, "warning", lambda *args, **kwargs: said.append(args))
    document = new_document("page")
    document += nodes.image(uri="cat.png", **({} if alt is None else {"alt": alt}))
    extension.warn_without_alt(None, document, "page")
    assert len(said) == warnings
