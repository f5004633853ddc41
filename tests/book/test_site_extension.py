"""The Sphinx extension: scripts dropped, alt text demanded."""

import types

import pytest
from docutils import nodes
from docutils.utils import new_document

from website import site_extension as extension


def script(filename="", **attributes):
    return types.SimpleNamespace(filename=filename, attributes=attributes)


def site_with(builder="html", **formulas):
    """An application that knows which pages have formulas."""
    domain = types.SimpleNamespace(data={"has_equations": formulas})
    env = types.SimpleNamespace(get_domain={"math": domain}.__getitem__)
    return types.SimpleNamespace(builder=types.SimpleNamespace(name=builder), env=env)


def test_scripts_of_live_kernels_are_dropped():
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
def test_a_picture_without_alt_text_is_a_warning(monkeypatch, alt, warnings):
    said = []
    monkeypatch.setattr(extension.logger, "warning", lambda *args, **kwargs: said.append(args))
    document = new_document("page")
    document += nodes.image(uri="cat.png", **({} if alt is None else {"alt": alt}))
    extension.warn_without_alt(None, document, "page")
    assert len(said) == warnings
