"""Markup in every text that a widget takes stays text, in whatever state it is put."""

import json
import os
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import torch

from attn_book import widgets
from attn_book.data import Vocab
from attn_book.widgets.base import StaticWidget
from attn_book.widgets.translator import SENTENCE
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq
from tests.book.built_site import ROOT
from tests.browser.reader import DRIVE

pytestmark = pytest.mark.browser

# What would run calls h(), and what would be an element has the id "evil". Most are so short that no widget cuts them.
MARKUP = [
    "<img src=x onerror=h()>",
    "<svg onload=h() id=evil>",
    "</script><script>h()</script>",
    "<script id=evil>h()//",
    '"><b id=evil>',
    "'><b id=evil>",
    '" onfocus="h()',
    "</style><b id=evil>",
    "<a id=evil href=x>",
    "<base id=evil href=x:>",
    "javascript:h()",
    "<!--",
    "]]>",
    "&amp;&lt;b&gt;&#60;i>",
    "\\u003cb id=evil>",
    "$& $1 $' $$",
    "{name} {title} {word}",
    "{target} {source} {k}",
    "${h()}",
    "__proto__",
    "a\u2028h()",
    "\u202elive\u202c",
    "nul\0<b id=evil>",
    "half\ud83d",
    "\udc00<b id=evil>",
]
# In front of all else: what a dialog would be is noticed too.
PRELUDE = """<script>
  function h() { window.hit = true; }
  window.alert = window.confirm = window.prompt = h;
</script>"""
# What is wrong with a page that holds widgets: their own pictures, styles and scripts are known.
FAULTS = """() => {
  const own = ".attn-picture, .attn-static > style, .attn-static > script";
  const found = window.hit ? ["a script of the markup ran"] : [];
  if (document.title !== "t") found.push(`title: ${document.title}`);
  const strange = "#evil, [src^='x'], [href], base, iframe, object, embed, link, img, script, style";
  for (const root of document.querySelectorAll(".attn-static, #here")) {
    for (const e of root.querySelectorAll("*")) {
      if (e.matches(strange) && !e.matches(own)) found.push(`element: ${e.outerHTML.slice(0, 99)}`);
      for (const { name, value } of e.attributes) {
        if (/^on/i.test(name) || /^(href|src|action|formaction)$/i.test(name) && /^\\s*javascript:/i.test(value)) {
          found.push(`attribute: ${name}=${value.slice(0, 99)}`);
        }
      }
    }
  }
  for (const e of document.querySelectorAll("#evil, [src^='x']")) found.push(`somewhere: ${e.outerHTML.slice(0, 99)}`);
  return found;
}"""
# What a page says, kept with what is wrong with it.
SEE = f"""() => {{
  const card = document.querySelector(".attn-card");
  window.said ??= new Set();
  window.faults ??= new Set();
  const names = ["aria-label", "aria-valuetext", "title", "placeholder", "value"];
  for (const e of [card, ...card.querySelectorAll("*")]) {{
    for (const name of names) if (e.hasAttribute(name)) said.add(e.getAttribute(name));
    // Between backticks is code: the whole of such a text is in an element.
    if (!e.childElementCount || e.matches("legend, label, p, span")) said.add(e.textContent);
    for (const node of e.childNodes) if (node.nodeType === 3) said.add(node.data);
  }}
  for (const one of ({FAULTS})()) faults.add(one);
}}"""
# Which of the texts stand nowhere: in full, or as `shown` makes it of a token.
UNSAID = """() => {
  const wanted = JSON.parse(document.getElementById("wanted").textContent);
  return wanted.filter((ways) => ![...said].some((text) => ways.some((way) => text.includes(way))));
}"""


def data(name, value):
    """A value for the page's scripts."""
    return f'<script type="application/json" id="{name}">{json.dumps(value).replace("<", chr(92) + "u003c")}</script>'


def shown(text):
    """A token as widgets write it: without control characters, 24 characters at most."""
    plain = "".join(" " if unicodedata.category(letter)[0] == "C" else letter for letter in text)
    return plain if len(plain) <= 24 else f"{plain[:23]}…"


def as_words(texts):
    """The texts as words of a translator, which blanks part: a tag's parts may as well stand between slashes."""
    return [text for text in (text.replace(" ", "/") for text in texts) if text.split() == [text]]


def split(size):
    return [MARKUP[k : k + size] for k in range(0, len(MARKUP), size)]


def heatmaps():
    weights = torch.eye(len(MARKUP)).expand(1, 2, -1, -1)
    yield widgets.AttentionHeatmap(weights, MARKUP, MARKUP, title=MARKUP[0]), MARKUP
    small, names = torch.full((1, 1, 1, 1), 1.0), MARKUP[:-2]  # a layer's name is never cut
    layers = widgets.AttentionHeatmap({name: [small] for name in names}, ["a"], ["b"], title=MARKUP[2])
    yield layers, [MARKUP[0], MARKUP[-3]]  # the first and the last: a slider goes to its ends


def patterns():
    for text in MARKUP:
        with pytest.raises(ValueError, match="pattern: expected one of"):
            widgets.AttentionPatternExplorer(text)
    yield widgets.AttentionPatternExplorer("hash"), []


def masked_words():
    for texts in split(9):
        other = [MARKUP[(MARKUP.index(text) + 1) % len(MARKUP)] for text in texts]
        said = [([(one, 0.6), (two, 0.3)], 1, 0.6) for one, two in zip(texts, other, strict=True)]
        weights = [torch.full((len(texts), 2, 2, len(texts)), 1 / len(texts))]
        explorer = widgets.MaskedWordExplorer([texts], [said], weights)
        explorer.guesses = [[0, 0, MARKUP[0]], [0, 1, MARKUP[3]]]
        yield explorer, [*texts, *other]


def smoothers():
    for one, two in zip(MARKUP[::2], [*MARKUP[1::2], MARKUP[0]], strict=True):
        yield widgets.KernelSmoother([1, 2, 5], [3, 1, 2], x_label=one, y_label=two), [one, two]


def softmax():
    yield widgets.OnlineSoftmaxStepper(step=1), []


def caches():
    for text in MARKUP:
        with pytest.raises(ValueError, match="events"):
            widgets.PagedCacheExplorer([("start", text, 3)])
        with pytest.raises(ValueError, match="events"):
            widgets.PagedCacheExplorer([(text,)])
    yield widgets.PagedCacheExplorer(step=8), []


def patches():
    picture, row = np.zeros((1, 4, 4, 3)), torch.full((len(MARKUP), 4), 0.25)
    for answers, titles in [("".join(MARKUP[:12]), MARKUP[0]), ("".join(MARKUP[12:]), MARKUP[4])]:
        told = {"queries": [MARKUP], "answers": [answers], "title": titles}
        yield widgets.PatchAttentionExplorer(picture, [row], patch_size=2, **told), [*MARKUP, titles, answers]
    layers = {text: [torch.full((1, 2, 4, 4), 0.25)] for text in (MARKUP[0], MARKUP[4], MARKUP[2])}
    yield widgets.PatchAttentionExplorer(picture, [layers], patch_size=2), [MARKUP[0], MARKUP[2]]


def positions():
    yield widgets.PositionalEncodingExplorer(), []


def quizzes():
    """Questions of two options each, of which the driver takes the wrong one: so all that there is shows."""
    pairs = list(zip(MARKUP, MARKUP[1:] + MARKUP[:1], strict=True))
    options = [[{"text": t, "right": t == one, "why": f"why {t}"} for t in (one, two)] for one, two in pairs]
    questions = [{"question": text, "options": both} for text, both in zip(MARKUP, options, strict=True)]
    yield widgets.Quiz(questions), [*MARKUP, *(f"why {text}" for text in MARKUP)]
    code = [{"text": f"`{text}`", "right": k == 0, "why": f"`{text}`"} for k, text in enumerate(MARKUP[:6])]
    yield widgets.Quiz([{"question": "`${h()}` `<b id=evil>`", "options": code}]), [*MARKUP[:6], "${h()} <b id=evil>"]


def untrained(source, target):
    """A model that never ends, and writes no special token."""
    torch.manual_seed(0)
    encoder = Encoder(len(source), embed_dim=8, hidden_dim=8)
    decoder = BahdanauDecoder(len(target), embed_dim=8, hidden_dim=8, memory_dim=16)
    with torch.no_grad():
        decoder.output.logits.bias[: len(Vocab.SPECIALS)] = -9.0
    return Seq2Seq(encoder, decoder).eval()


def translators():
    """With so few words that all of them are offered at each step."""
    words = as_words(MARKUP)
    for k in range(0, len(words), 4):
        said, written = words[k : k + 4], [f"{word}!" for word in words[k : k + 4]]
        source, target = Vocab([said]), Vocab([written])
        widget = widgets.Translator.of(untrained(source, target), source, target, " ".join(said))
        yield widget, [*said, *written]


KINDS = {
    "AttentionHeatmap": heatmaps,
    "AttentionPatternExplorer": patterns,
    "KernelSmoother": smoothers,
    "MaskedWordExplorer": masked_words,
    "OnlineSoftmaxStepper": softmax,
    "PagedCacheExplorer": caches,
    "PatchAttentionExplorer": patches,
    "PositionalEncodingExplorer": positions,
    "Quiz": quizzes,
    "Translator": translators,
}
# A quiz asks all that it has; a translator, which works at each step, has a button for each of sixty words.
MOST = dict.fromkeys(KINDS, 30) | {"Quiz": 100, "Translator": 10}
each_kind = pytest.mark.parametrize("kind", KINDS)


def in_page(widget):
    """The widget as a page without a kernel has it."""
    return PRELUDE + widget.static_html()


def ways(text):
    """What may stand for a text: all of it, or what a widget makes of a token."""
    return [text, shown(text)]


def test_the_table_has_every_widget():
    assert {name for name in widgets.__all__ if name != "StaticWidget"} == set(KINDS)
    own = [kind for kind in StaticWidget.__subclasses__() if kind.__module__.startswith("attn_book.")]
    assert {kind.__name__ for kind in own} == set(KINDS)


@each_kind
def test_markup_is_text_in_every_state(show, kind):
    for widget, texts in KINDS[kind]():
        body = in_page(widget) + data("wanted", [ways(text) for text in texts])
        with show(body, reduced_motion="reduce") as page:
            page.locator(".attn-card").wait_for()
            page.evaluate(SEE)
            for _ in range(2):  # one control may bring another
                used, _ = page.evaluate(DRIVE, [MARKUP[:20:3], MOST[kind], SEE])
            assert used > 1 and page.evaluate("[...faults]") == []
            assert page.evaluate(UNSAID) == []


@pytest.mark.parametrize(
    ("kind", "safe", "unsafe", "scripts"),
    [
        ("Quiz", "element.append(...children)", "element.innerHTML += children.map((c) => c.outerHTML ?? c)", True),
        ("AttentionHeatmap", "\\u003c", "<", True),
        ("Quiz", "&quot;", '"', False),
    ],
)
def test_what_is_no_text_is_noticed(browser, kind, safe, unsafe, scripts):
    widget, _ = next(KINDS[kind]())
    body = in_page(widget)
    assert safe in body
    page = browser.new_page(java_script_enabled=scripts)
    page.set_content(f"<!doctype html><title>t</title><body>{body.replace(safe, unsafe)}</body>")
    page.wait_for_function(f"({FAULTS})().length > 0")
    page.close()


# A book of one page, with markup wherever our extension takes a text from: files of data, and the page's title.
CONF = f"""extensions = ["site_extension"]
smartquotes = False
html_theme = "sphinx_book_theme"
html_baseurl = "https://example.org/"
templates_path = [{str(ROOT / "website" / "templates")!r}]
"""
INDEX = """
<img src=x onerror=h()> & more
==============================

.. recorded-heatmap:: heatmap.json

   A caption <b id=evil>.

.. recorded-translator:: translator.json

   Another <svg onload=h() id=evil>.
"""


def test_what_the_books_extension_takes_from_files_and_pages_is_text(browser, tmp_path):
    weights = np.eye(len(MARKUP)).tolist()
    shown = {"title": MARKUP[2], "source": MARKUP, "target": MARKUP, "weights": weights, "links": [[0, 0]]}
    source, target = Vocab([[*SENTENCE.split(), *as_words(MARKUP)]]), Vocab([as_words(MARKUP)])
    exported = widgets.Translator.of(untrained(source, target), source, target).exported
    files = {"conf.py": CONF, "index.rst": INDEX}
    files |= {"heatmap.json": json.dumps(shown), "translator.json": json.dumps(exported)}
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", str(tmp_path), str(tmp_path / "out")]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'website'}{os.pathsep}{ROOT}"}
    subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    page = browser.new_page()
    page.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    page.add_init_script("window.h = window.alert = window.confirm = window.prompt = () => { window.hit = true; };")
    page.goto((tmp_path / "out" / "index.html").as_uri())
    assert page.locator(".attn-card").count() == 2
    # A page is called what its author calls it.
    assert [fault for fault in page.evaluate(FAULTS) if not fault.startswith("title: ")] == []
    said = page.locator("body").evaluate("e => e.textContent")
    for text in (MARKUP[2], MARKUP[0], "A caption <b id=evil>.", "Another <svg onload=h() id=evil>."):
        assert text in said
    page.close()
