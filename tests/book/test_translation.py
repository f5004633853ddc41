"""What the book adds to Sphinx's catalogues, and what a translated build takes from them."""

import importlib.util
import json
import re
import subprocess
import sys

import pytest
import yaml

from tests.book.built_site import ROOT, settings
from website import editions


@pytest.fixture(scope="module")
def translation():
    spec = importlib.util.spec_from_file_location("book_translation", ROOT / "website" / "translation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def locale(translation, tmp_path):
    """Catalogues as a translator leaves them: one message done, one not, one with a mark that it is doubtful."""
    folder = tmp_path / "fr" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    text = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\n"\n\n'
    text += 'msgid "layer {n}"\nmsgstr "couche {n}"\n\nmsgid "head"\nmsgstr ""\n\n'
    text += '#, fuzzy\nmsgid "word"\nmsgstr "mot"\n'
    (folder / "widgets.po").write_text(text, encoding="utf-8")
    return tmp_path


def test_what_is_done_is_taken_and_the_rest_stays_english(translation, locale):
    translation.compile_catalogues(locale, "fr")
    assert translation.translations(locale, "fr", "widgets") == {"layer {n}": "couche {n}"}
    assert translation.translations(locale, "fr", "figures") == {}


def test_catalogues_follow_the_book_and_what_is_left_is_counted(translation, locale):
    template = locale / "templates" / "widgets.pot"
    template.parent.mkdir()
    messages = [(text, "a.js") for text in ("layer {n}", "heads of a layer", "word")]
    with template.open("wb") as file:
        translation.write_po(file, translation.catalogue(iter(messages)))
    assert translation.update(template.parent, locale, "fr") == {"widgets.po": (1, 1)}
    written = (locale / "fr" / "LC_MESSAGES" / "widgets.po").read_text(encoding="utf-8")
    assert 'msgstr "couche {n}"' in written and '"head"' not in written and "a.js" not in written
    assert translation.update(template.parent, locale, "nl") == {"widgets.po": (3, 0)}


@pytest.mark.parametrize("language", ["nl", ""])
def test_a_language_without_catalogues_is_refused(tmp_path, language):
    (tmp_path / "LC_MESSAGES").mkdir()
    command = [sys.executable, "website/translation.py", "configure", "--locale", tmp_path, "--language", language]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1 and done.stdout == ""
    assert re.fullmatch(
        rf"make: language: expected catalogues in .*{language}/LC_MESSAGES, got no such folder\n", done.stderr
    )


def test_the_settings_are_the_book_s_own_but_for_language_and_address(translation, locale):
    translation.compile_catalogues(locale, "fr")
    made = yaml.safe_load(translation.configuration("fr", locale).replace("/attention-book/fr/", "/attention-book/"))
    assert made["sphinx"]["config"].pop("language") == "fr"
    assert made["sphinx"]["config"].pop("locale_dirs") == [str(locale)]
    plain = json.loads(json.dumps(settings()))
    plain["sphinx"]["config"].pop("language")
    paths = plain["sphinx"]["local_extensions"]
    paths.update({name: str(ROOT / path) for name, path in paths.items()})
    assert made == plain


def test_words_of_a_drawing_are_replaced_and_cannot_become_markup(translation):
    svg = '<svg><text x="1">values</text><text>q</text><text>a &lt; <tspan>b</tspan></text></svg>'
    done = translation.translated(translation.LABEL, svg, {"values": "<script>&", "q": "wrong"})
    assert done == svg.replace("values", "&lt;script&gt;&amp;")


def test_chinese_is_sorted_as_it_is_read(translation):
    terms = ["ALiBi", "掩码", "键", "token", "值", "注意力"]
    assert sorted(terms[::-1], key=translation.reading) == ["ALiBi", "键", "token", "掩码", "值", "注意力"]


def test_editions_lead_to_each_other_where_both_have_the_page(tmp_path):
    for name in "en/index en/404 en/a/b en/new zh/index zh/404 zh/a/b".split():
        name += ".html"
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"<head></head>{editions.BUTTONS}</div>", encoding="utf-8")
    assert editions.join({"en": tmp_path / "en", "zh_CN": tmp_path / "zh"}, tmp_path / "all", "https://book/") == 4
    pages = {path.relative_to(tmp_path / "all"): path.read_text("utf-8") for path in tmp_path.glob("all/**/*.html")}
    links = {str(name): found[1] for name, html in pages.items() if (found := re.search('<a .*href="(.*)"', html))}
    assert links.pop("index.html") == "zh/index.html" and links.pop("zh/index.html") == "../index.html"
    assert links == {"a/b.html": "../zh/a/b.html", "zh/a/b.html": "../../a/b.html"} and len(pages) == 7
    assert any('hreflang="zh-CN" href="https://book/zh/a/b.html"' in html for html in pages.values())
