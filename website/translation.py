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
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx_exercise.nodes import exercise_subtitle

from attn_book.widgets.base import prose_of

ROOT = Path(__file__).resolve().parent.parent
WIDGETS = ROOT / "attn_book" / "widgets"
FIGURES = ROOT / "chapters" / "figures"
PSEUDO = "xx"
WORDS = "words.js"
# A widget in a stored output: which of its traits hold prose, and its state.
STORED = re.compile(r'data-attn-said="([\w ]+)">.*?<script type="application/json">(.*?)</script>', re.DOTALL)
SETTINGS = (
    ("html", "extra_footer"),
    ("sphinx", "config", "notfound_context", "title"),
    ("sphinx", "config", "notfound_context", "body"),
    ("sphinx", "config", "nb_code_prompt_show"),
    ("sphinx", "config", "nb_code_prompt_hide"),
)
EXERCISE = re.compile(r"^```\{exercise-start\} (.+)$", re.MULTILINE)
LABEL = re.compile(r"(<text\b[^>]*>)([^<]*[^\W\d_]{2,}[^<]*)(</text>)")


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


def cell_messages() -> Iterator[tuple[str, str]]:
    """What Sphinx does not extract: titles of exercises, since it extracts after they were numbered, alternative texts,
    since it extracts without outputs, and the labels of folded code, which are no text of a page."""
    for path in sorted((ROOT / "chapters").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            texts = EXERCISE.findall("".join(cell["source"]))
            shown = cell["metadata"].get("mystnb", {})
            texts += filter(None, (shown.get("image", {}).get("alt"), shown.get("code_prompt_show")))
            for text in texts:
                yield text, f"chapters/{path.name}"


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
    """Write our catalogues beside those that Sphinx has written, and what Sphinx leaves out into that of the chapters.

    Raises:
        FileNotFoundError: Sphinx has written none there.
    """
    chapters = folder / "chapters.pot"
    with chapters.open("rb") as file:
        pages = read_po(file)
    for text, place in cell_messages():
        pages.add(text, locations=[(place, 0)])
    with chapters.open("wb") as file:
        write_po(file, pages)
    widgets = [*widget_messages(), *stored_messages()]
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    own = {"widgets": iter(widgets), "figures": figure_messages(), "settings": setting_messages(settings)}
    for name, messages in own.items():
        with (folder / f"{name}.pot").open("wb") as file:
            write_po(file, catalogue(messages), omit_header=True)


def make_pseudo(templates: Path, locale: Path) -> int:
    """Translate every message into a language that anyone can check, each in a pair of brackets; how many there are."""
    target = locale / PSEUDO / "LC_MESSAGES"
    target.mkdir(parents=True, exist_ok=True)
    count = 0
    for path in sorted(templates.glob("*.pot")):
        with path.open("rb") as file:
            made = read_po(file)
        for message in made:
            if message.id:
                message.string = f"⟦{message.id}⟧"
                count += 1
        with (target / f"{path.stem}.mo").open("wb") as compiled:
            write_mo(compiled, made)
    return count


def compile_catalogues(locale: Path, language: str) -> None:
    """Compile what translators have written. Sphinx would do it for the pages; our own catalogues it does not know.

    Raises:
        FileNotFoundError: there are no catalogues of this language.
    """
    folder = locale / language / "LC_MESSAGES"
    if not language or not folder.is_dir():
        raise FileNotFoundError(f"language: expected catalogues in {folder}, got no such folder")
    for path in folder.glob("*.po"):
        with path.open("rb") as file, path.with_suffix(".mo").open("wb") as compiled:
            write_mo(compiled, read_po(file))


def translations(locale: Path, language: str, name: str) -> dict[str, str]:
    """A compiled catalogue as a table; empty where there is none."""
    path = locale / language / "LC_MESSAGES" / f"{name}.mo"
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        table: dict[Any, str] = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    return {key: value for key, value in table.items() if key and value}


def translated_figure(svg: str, words: dict[str, str]) -> str:
    """A drawing with its words in another language."""
    return LABEL.sub(
        lambda found: found[1] + escape(words.get(unescape(found[2]), unescape(found[2]))) + found[3],
        svg,
    )


def configuration(language: str, locale: Path) -> str:
    """The book's settings for a translated build, as YAML."""
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    words = translations(locale, language, "settings")
    for path in SETTINGS:
        held = _held(settings, path[:-1])
        held[path[-1]] = words.get(held[path[-1]], held[path[-1]])
    settings["sphinx"]["config"].update(language=language, locale_dirs=[str(locale)])
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


class LabelsOfFolds(SphinxTransform):
    """Translates the labels of folded code."""

    default_priority = 30

    def apply(self, **kwargs: Any) -> None:
        """Replace each label that the catalogue of the chapters has."""
        if self.config.language == "en" or not self.config.locale_dirs:
            return
        words = translations(Path(self.config.locale_dirs[0]), self.config.language, "chapters")
        for cell in self.document.findall(nodes.container):
            for name in ("prompt_show", "prompt_hide"):
                if name in cell:
                    cell[name] = words.get(cell[name], cell[name])


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
        path.write_text(translated_figure(path.read_text(encoding="utf-8"), labels), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_transform(SourcesOfTitles)
    app.add_transform(TitlesOfSolutions)
    app.add_transform(LabelsOfFolds)
    app.connect("builder-inited", bring_words)
    app.connect("build-finished", write_words)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def main() -> int:
    """The command line: what the Makefile calls around jupyter-book."""
    parser = argparse.ArgumentParser(prog="website/translation.py")
    parser.add_argument("command", choices=("extract", "pseudo", "configure"))
    parser.add_argument("--templates", type=Path, default=ROOT / "_build" / "gettext")
    parser.add_argument("--locale", type=Path, default=ROOT / "locale")
    parser.add_argument("--language", default=PSEUDO)
    options = parser.parse_args()
    try:
        _do(options)
    except FileNotFoundError as error:
        print(f"make: {error}", file=sys.stderr)
        return 1
    return 0


def _do(options: argparse.Namespace) -> None:
    if options.command == "extract":
        extract_own(options.templates)
        print(f"{len(list(options.templates.glob('*.pot')))} catalogues in {options.templates}")
    elif options.command == "pseudo":
        print(f"{make_pseudo(options.templates, options.locale)} messages in {options.locale / PSEUDO}")
    else:
        compile_catalogues(options.locale, options.language)
        print(configuration(options.language, options.locale.resolve()), end="")


if __name__ == "__main__":
    sys.exit(main())
