"""The book in another language: our part of the catalogues, and what is done with them.

Sphinx extracts the sentences of the pages and puts their translations in. Some text is beyond it: what the widgets say,
which lies in their JavaScript and in the state that a cell has stored; the words within our drawings; what the settings
say to readers.
"""

from __future__ import annotations

import argparse
import gettext
import json
import re
import shutil
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import yaml
from babel.messages.catalog import Catalog
from babel.messages.extract import extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from docutils import nodes
from pypinyin import Style, lazy_pinyin
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment.adapters import indexentries
from sphinx.transforms import SphinxTransform
from sphinx_exercise.nodes import exercise_subtitle
from sphinxcontrib.bibtex.plugin import register_plugin
from sphinxcontrib.bibtex.style.referencing import PersonStyle
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle

from attn_book.widgets.base import prose_of

ROOT = Path(__file__).resolve().parent.parent
WIDGETS = ROOT / "attn_book" / "widgets"
FIGURES = ROOT / "chapters" / "figures"
PSEUDO = "xx"
REPOSITORY = "https://github.com/attention-book/attention-book"
WORDS = "words.js"
# A widget in a stored output: which of its traits hold prose, and its state.
STORED = re.compile(r'data-attn-said="([\w ]+)">.*?<script type="application/json">(.*?)</script>', re.DOTALL)
SETTINGS = (
    ("title",),
    ("author",),
    ("html", "extra_footer"),
    ("sphinx", "config", "html_theme_options", "logo", "text"),
    ("sphinx", "config", "ogp_site_name"),
    ("sphinx", "config", "notfound_context", "title"),
    ("sphinx", "config", "notfound_context", "body"),
    ("sphinx", "config", "nb_code_prompt_show"),
    ("sphinx", "config", "nb_code_prompt_hide"),
)
# What Sphinx and the theme say on our pages, by catalogues that lack some of it, or in no catalogue at all.
THEME = (
    "Binder logo;By;Click to hide;Click to show;Colab logo;Color mode;Contents;Dark;"
    "Download notebook file;Download source file;Download this page;Error;Fullscreen mode;Index;"
    "Launch interactive content;Launch on;Light;Link to this equation;Link to this heading;Link to this image;"
    "Link to this table;Link to this term;Main;On this page;Open an issue;Open issue;Page;"
    "Please activate JavaScript to enable the search functionality.;Print to PDF;Repository;Search;"
    "Search this book...;Skip to main content;Source repositories;Source repository;Symbols;System Settings;"
    "Toggle primary sidebar;Toggle secondary sidebar;Version warning;next;next page;previous;previous page;"
    "© Copyright %(copyright)s."
).split(";")
EXERCISE = re.compile(r"^```\{exercise-start\} (.+)$", re.MULTILINE)
WORDS_IN_FORMULA = re.compile(r"\\text\{[^}]*[a-z]{2}")
LABEL = re.compile(r"(<text\b[^>]*>)([^<]*[^\W\d_]{2,}[^<]*)(</text>)")
CELL = re.compile(r"(<(?:t[hd]|caption)\b[^>]*>)([^<]*[^\W\d_]{2,}[^<]*)(</(?:t[hd]|caption)>)")
ATTRIBUTE = re.compile(r'((?:alt|aria-label|placeholder|title)=")([^"]+)(")')


def widget_messages() -> Iterator[tuple[str, str]]:
    """What our own scripts say: each text, and the file in which it stands."""
    for path in [*sorted(WIDGETS.glob("*.js")), *sorted((ROOT / "website" / "js").glob("*.js"))]:
        with path.open("rb") as code:
            for _, message, _, _ in extract("javascript", code, keywords={"say": None}):
                yield str(message), path.relative_to(ROOT).as_posix()


def stored_messages() -> Iterator[tuple[str, str]]:
    """What the widgets of the pages were given to say: titles, questions and answers."""
    for path in sorted((ROOT / "chapters").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                page = "".join(output.get("data", {}).get("text/html", ""))
                for names, state in STORED.findall(page):
                    held = json.loads(state)
                    for message in prose_of([held[name] for name in names.split()]):
                        yield message, f"chapters/{path.name}"


def cell_messages(path: Path) -> Iterator[tuple[str, int]]:
    """What Sphinx does not extract, each with its line: titles of exercises, as it extracts after they were numbered;
    alternative texts and tables, as it extracts without outputs; and the labels of folded code."""
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"], 1):
        texts = EXERCISE.findall("".join(cell["source"]))
        shown = cell["metadata"].get("mystnb", {})
        texts += filter(None, (shown.get("image", {}).get("alt"), shown.get("code_prompt_show")))
        for output in cell.get("outputs", []):
            found = CELL.findall("".join(output.get("data", {}).get("text/html", "")))
            texts += [unescape(text) for _, text, _ in found]
        for text in texts:
            yield text, 10_000 * number  # as MyST-NB counts


def setting_messages(settings: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What the book's settings say to readers."""
    for path in SETTINGS:
        yield _held(settings, path[:-1])[path[-1]], "_config.yml"


def figure_messages() -> Iterator[tuple[str, str]]:
    """The words within our drawings; single letters and signs are the same in every language."""
    for path in sorted(FIGURES.glob("*.svg")):
        for _, text, _ in LABEL.findall(path.read_text(encoding="utf-8")):
            yield unescape(text), f"chapters/figures/{path.name}"


def _held(settings: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for key in path:
        settings = settings[key]
    return settings


def catalogue(messages: Iterator[tuple[str, str]]) -> Catalog:
    """Messages as a catalogue without translations."""
    made = Catalog(project="The Attention Book", charset="utf-8")
    for message, place in messages:
        made.add(message, locations=[(place, 0)])
    return made


def extract_own(folder: Path) -> None:
    """Write our catalogues beside those that Sphinx has written, and what Sphinx leaves out into those of the pages.

    Raises:
        FileNotFoundError: Sphinx has written none there.
    """
    for page in sorted((ROOT / "chapters").glob("*.ipynb")):
        name = f"chapters/{page.name}"
        template = (folder / name).with_suffix(".pot")
        with template.open("rb") as file:
            read = read_po(file)
        made = Catalog(project="The Attention Book", charset="utf-8")
        for message in read:
            if message.id:
                made.add(message.id, locations=[(name, line or 0) for _, line in message.locations])
        for text, line in cell_messages(page):
            made.add(text, locations=[(name, line)])
        with template.open("wb") as file:
            write_po(file, made, sort_by_file=True)  # in the order of the page
    widgets = [*widget_messages(), *stored_messages()]
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    own = {"widgets": iter(widgets), "figures": figure_messages(), "settings": setting_messages(settings)}
    own["theme"] = ((text, "theme") for text in THEME)
    for name, messages in own.items():
        with (folder / f"{name}.pot").open("wb") as file:
            write_po(file, catalogue(messages), omit_header=True)


def make_pseudo(templates: Path, locale: Path) -> int:
    """Translate every message into a language that anyone can check, each in a pair of brackets; how many there are."""
    target = locale / PSEUDO / "LC_MESSAGES"
    target.mkdir(parents=True, exist_ok=True)
    count = 0
    for path in sorted(templates.rglob("*.pot")):
        with path.open("rb") as file:
            made = read_po(file)
        for message in made:
            if message.id:
                message.string = f"⟦{message.id}⟧"
                count += 1
        written = target / path.relative_to(templates).with_suffix(".po")
        written.parent.mkdir(exist_ok=True)
        with written.open("wb") as file:
            write_po(file, made)
    return count


def update(templates: Path, locale: Path, language: str) -> dict[str, tuple[int, int]]:
    """Bring a language's catalogues up to date: new sentences empty, changed ones marked fuzzy, which no page shows.

    Returns:
        For each catalogue that is not whole, how many messages are empty, and how many fuzzy.
    """
    target, found = locale / language / "LC_MESSAGES", {}
    for path in sorted(templates.rglob("*.pot")):
        name = path.relative_to(templates).with_suffix(".po")
        written = target / name
        with path.open("rb") as file:
            template = read_po(file)
        made = Catalog(locale=language, project="The Attention Book", charset="utf-8")
        if written.is_file():
            with written.open("rb") as file:
                made = read_po(file, locale=language)
        made.update(template, update_creation_date=False)
        made.header_comment, made.fuzzy = f"# The Attention Book, {language}", False
        made.last_translator = made.language_team = made.copyright_holder = "The Attention Book"
        made.msgid_bugs_address, made.revision_date = f"{REPOSITORY}/issues", made.creation_date
        written.parent.mkdir(parents=True, exist_ok=True)
        with written.open("wb") as file:
            write_po(file, made, width=0, no_location=True, ignore_obsolete=True)
        messages = [message for message in made if message.id]
        counts = sum(not message.string for message in messages), sum(message.fuzzy for message in messages)
        if any(counts):
            found[name.as_posix()] = counts
    return found


def compile_catalogues(locale: Path, language: str) -> None:
    """Compile what translators have written. Sphinx would do it for the pages; our own catalogues it does not know.

    Raises:
        FileNotFoundError: there are no catalogues of this language.
    """
    folder = locale / language / "LC_MESSAGES"
    if not language or not folder.is_dir():
        raise FileNotFoundError(f"language: expected catalogues in {folder}, got no such folder")
    for path in folder.rglob("*.po"):
        with path.open("rb") as file, path.with_suffix(".mo").open("wb") as compiled:
            write_mo(compiled, read_po(file))
    if (folder / "theme.mo").is_file():
        for name in ("sphinx", "booktheme"):
            shutil.copy(folder / "theme.mo", folder / f"{name}.mo")


def translations(locale: Path, language: str, name: str) -> dict[str, str]:
    """A compiled catalogue as a table; empty where there is none."""
    path = locale / language / "LC_MESSAGES" / f"{name}.mo"
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        table: dict[Any, str] = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    return {key: value for key, value in table.items() if key and value}


def translated(kind: re.Pattern[str], markup: str, words: dict[str, str]) -> str:
    """A drawing, table or page with its words in another language, of which a pattern says where they are."""

    def put(found: re.Match[str]) -> str:
        text = words.get(unescape(found[2]))
        return found[0] if text is None else found[1] + escape(text, {'"': "&quot;"}) + found[3]

    return kind.sub(put, markup)


def configuration(language: str, locale: Path) -> str:
    """The book's settings for a translated build, as YAML."""
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    words = translations(locale, language, "settings")
    for path in SETTINGS:
        held = _held(settings, path[:-1])
        held[path[-1]] = words.get(held[path[-1]], held[path[-1]])
    config = settings["sphinx"]["config"]
    config.update(language=language, locale_dirs=[str(locale)])
    # An edition lies in a folder of the English site (website/editions.py).
    prefix = config["notfound_urls_prefix"]
    for name in ("html_baseurl", "ogp_site_url", "notfound_urls_prefix"):
        config[name] += f"{language.split('_')[0]}/"
    theme = translations(locale, language, "theme")
    for name, text in (("togglebutton_hint", "Click to show"), ("togglebutton_hint_hide", "Click to hide")):
        config |= {name: theme[text]} if text in theme else {}
    if language.startswith("zh"):
        config["ogp_social_cards"] = {"enable": False}  # their font has no Chinese
        config["bibtex_reference_style"] = "chinese"
    said = config["notfound_context"]
    said["body"] = said["body"].replace(f'"{prefix}', f'"{config["notfound_urls_prefix"]}')
    # This one path is taken from where the settings lie, not from where the book does.
    extensions = settings["sphinx"]["local_extensions"]
    settings["sphinx"]["local_extensions"] = {name: str(ROOT / path) for name, path in extensions.items()}
    return str(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))


class SourcesOfTitles(SphinxTransform):
    """Says of each exercise's title where it stands: Sphinx does not translate what seems to come from an extension."""

    default_priority = 5  # before Sphinx takes what is to be translated

    def apply(self, **kwargs: Any) -> None:
        """Give each title the place of its exercise."""
        for title in self.document.findall(exercise_subtitle):
            exercise = title.parent.parent
            title.source = exercise.source or self.document["source"]
            title.line = exercise.line or 1
            title.rawsource = title.astext()


class TitlesOfSolutions(SphinxTransform):
    """Lets solutions name their exercises by the translated titles: they read a copy from before the translation."""

    default_priority = 30  # after Sphinx has put translations in

    def apply(self, **kwargs: Any) -> None:
        """Put each exercise as it is now where its solution will look."""
        registry = getattr(self.env, "sphinx_exercise_registry", {})
        for title in self.document.findall(exercise_subtitle):
            exercise = title.parent.parent
            if exercise.get("label") in registry:
                registry[exercise["label"]]["node"] = exercise.deepcopy()


class Translation(SphinxTransform):
    """What Sphinx leaves untranslated on a page."""

    default_priority = 30

    def words(self, name: str = "") -> dict[str, str]:
        """The catalogue of this page, or another; empty in English."""
        if self.config.language == "en" or not self.config.locale_dirs:
            return {}
        return translations(Path(self.config.locale_dirs[0]), self.config.language, name or self.env.docname)


class LabelsOfFolds(Translation):
    """Translates the labels of folded code."""

    def apply(self, **kwargs: Any) -> None:
        """Replace each label that the page's catalogue has."""
        words = self.words()
        for cell in self.document.findall(nodes.container):
            for name in ("prompt_show", "prompt_hide"):
                if name in cell:
                    cell[name] = words.get(cell[name], cell[name])


class FormulasApart(SphinxTransform):
    """Keeps displayed formulas from Sphinx, which would put “::” in the place of a translated one; those with words are
    extracted."""

    default_priority = 5

    def apply(self, **kwargs: Any) -> None:
        """Mark them."""
        for formula in self.document.findall(nodes.math_block):
            is_extracted = self.app.builder.name == "gettext" and WORDS_IN_FORMULA.search(formula.astext())
            formula["translatable"] = bool(is_extracted)


class WordsInFormulas(Translation):
    """Puts translated formulas in."""

    def apply(self, **kwargs: Any) -> None:
        """Replace each formula that the page's catalogue has."""
        words = self.words()
        for formula in self.document.findall(nodes.math_block):
            if text := words.get(formula.rawsource or formula.astext()):
                formula.children = [nodes.Text(text)]
                formula.rawsource = text


class WordsInTables(Translation):
    """Translates the tables that cells have made."""

    def apply(self, **kwargs: Any) -> None:
        """Replace what the page's catalogue has."""
        words = self.words()
        for output in self.document.findall(nodes.raw) if words else ():
            if output["format"] == "html" and "<table" in output.astext():
                output.children = [nodes.Text(translated(CELL, output.astext(), words))]


class CaptionsOfParts(Translation):
    """Translates the captions of the parts: their lists come in after Sphinx has translated."""

    default_priority = 110

    def apply(self, **kwargs: Any) -> None:
        """Replace each caption that the page's catalogue has."""
        words = self.words()
        for tree in self.document.findall(addnodes.toctree):
            if tree.get("caption"):
                tree["caption"] = words.get(tree["caption"], tree["caption"])


class Terms(Translation):
    """Names each term in the glossary and in the index in both languages, and sorts the glossary."""

    def apply(self, **kwargs: Any) -> None:
        """Replace the entries of the index, and add to each head of the glossary."""
        words = self.words("reference/glossary")
        if not words:
            return
        names = {english.lower(): name for english, name in words.items()}
        origin = {name: english for english, name in words.items() if english.lower() != name.lower()}
        both = "{}（{}）" if self.config.language.startswith("zh") else "{} ({})"
        for index in self.document.findall(addnodes.index):
            shown = [names.get(term.lower(), term) for _, term, *_ in index["entries"]]
            index["entries"] = [
                (kind, both.format(name, origin[name]) if name in origin else name, *rest)
                for name, (kind, _, *rest) in zip(shown, index["entries"], strict=True)
            ]
        for glossary in self.document.findall(addnodes.glossary):
            for entries in glossary.findall(nodes.definition_list):
                entries.children.sort(key=lambda item: reading(item[0].astext()))
            for term in glossary.findall(nodes.term):
                if self.config.language.startswith("zh"):
                    term["letter"] = reading(term.astext())[0]  # for the bar above the glossary
                if english := origin.get(term.astext()):
                    term += [nodes.Text(" "), nodes.inline("", english, classes=["language-en"])]


def reading(text: str) -> str:
    """How a text is read, to sort it by: Chinese in pinyin, with the tones."""
    return " ".join(lazy_pinyin(text, style=Style.TONE3)).lower()


def order_index(app: Sphinx) -> None:
    """Let Sphinx sort and group the Chinese index by how its entries are read, not by their code points."""
    if app.config.language.startswith("zh"):
        indexentries._key_func_1 = lambda entry: ((1, reading(entry[0].split("（")[0])), entry[0])
        indexentries._group_by_func = lambda entry: reading(entry[0])[0].upper()


def _is_translated(app: Sphinx) -> bool:
    return app.config.language != "en" and app.builder.format == "html"


def bring_words(app: Sphinx) -> None:
    """Load what the widgets say, in a translated build, on every page and before any widget runs."""
    if _is_translated(app):
        app.add_js_file(WORDS)


def write_words(app: Sphinx, exception: Exception | None) -> None:
    """Write what the widgets say, and the drawings with their words, into a translated site."""
    if exception is not None or not _is_translated(app):
        return
    locale, language = Path(app.config.locale_dirs[0]), str(app.config.language)
    words = json.dumps(translations(locale, language, "widgets"), ensure_ascii=False, sort_keys=True)
    site = Path(app.outdir)
    (site / "_static" / WORDS).write_text(f"globalThis.attentionBookWords = {words};\n", encoding="utf-8")
    labels = translations(locale, language, "figures")
    for path in sorted((site / "_images").glob("*.svg")):
        path.write_text(translated(LABEL, path.read_text(encoding="utf-8"), labels), encoding="utf-8")
    theme = translations(locale, language, "theme")
    for path in sorted(site.rglob("*.html")):
        path.write_text(translated(ATTRIBUTE, path.read_text(encoding="utf-8"), theme), encoding="utf-8")


class ChineseReferences(AuthorYearReferenceStyle):
    """Citations by author and year in Chinese sentences."""

    def __init__(self) -> None:
        super().__init__(person=PersonStyle(sep="、", sep2=" 和 ", last_sep="、", other=" 等"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    register_plugin("sphinxcontrib.bibtex.style.referencing", "chinese", ChineseReferences)
    app.add_transform(SourcesOfTitles)
    app.add_transform(TitlesOfSolutions)
    app.add_transform(FormulasApart)
    for transform in (LabelsOfFolds, WordsInFormulas, WordsInTables, CaptionsOfParts, Terms):
        app.add_transform(transform)
    for folder in app.config.locale_dirs if app.config.language != "en" else ():
        app.add_message_catalog("booktheme", folder)
    app.connect("builder-inited", order_index)
    app.connect("builder-inited", bring_words)
    app.connect("build-finished", write_words)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def main() -> int:
    """The command line: what the Makefile calls around jupyter-book."""
    parser = argparse.ArgumentParser(prog="website/translation.py")
    parser.add_argument("command", choices=("extract", "pseudo", "configure", "update"))
    parser.add_argument("--whole", action="store_true", help="fail if anything is left to translate")
    parser.add_argument("--templates", type=Path, default=ROOT / "_build" / "gettext")
    parser.add_argument("--locale", type=Path, default=ROOT / "locale")
    parser.add_argument("--language", default=PSEUDO)
    options = parser.parse_args()
    try:
        return _do(options)
    except FileNotFoundError as error:
        print(f"make: {error}", file=sys.stderr)
        return 1


def _do(options: argparse.Namespace) -> int:
    if options.command == "extract":
        extract_own(options.templates)
        print(f"{len(list(options.templates.rglob('*.pot')))} catalogues in {options.templates}")
    elif options.command == "pseudo":
        print(f"{make_pseudo(options.templates, options.locale)} messages in {options.locale / PSEUDO}")
    elif options.command == "update":
        left = update(options.templates, options.locale, options.language)
        for name, (empty, fuzzy) in left.items():
            print(f"{name}: {empty} to translate, {fuzzy} to look at")
        return int(options.whole and bool(left))
    else:
        compile_catalogues(options.locale, options.language)
        print(configuration(options.language, options.locale.resolve()), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
