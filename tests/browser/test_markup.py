"""Markup in every text that a widget takes stays text, in whatever state it is put."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from attn_book import widgets
from attn_book.data import Vocab
from attn_book.widgets.translator import SENTENCE
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq
from tests.book.built_site import ROOT
from tests.browser.reader import DRIVE
from tests.browser.walks import painter

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
# What is wrong with it in any of the states that it is driven through.
SEE = f"""() => {{
  window.faults ??= new Set();
  for (const one of ({FAULTS})()) faults.add(one);
}}"""


def as_words(texts):
    """The texts as words of a translator, which blanks part."""
    return [text for text in (text.replace(" ", "/") for text in texts) if text.split() == [text]]


def heatmaps():
    weights = torch.eye(len(MARKUP)).expand(1, 2, -1, -1)
    yield widgets.AttentionHeatmap(weights, MARKUP, MARKUP, title=MARKUP[0])
    small = torch.full((1, 1, 1, 1), 1.0)
    yield widgets.AttentionHeatmap({name: [small] for name in MARKUP[:-2]}, ["a"], ["b"], title=MARKUP[2])


def masked_words():
    for texts in (MARKUP[:9], MARKUP[9:18], MARKUP[18:]):
        other = [MARKUP[(MARKUP.index(text) + 1) % len(MARKUP)] for text in texts]
        said = [([(one, 0.6), (two, 0.3)], 1, 0.6) for one, two in zip(texts, other, strict=True)]
        weights = [torch.full((len(texts), 2, 2, len(texts)), 1 / len(texts))]
        explorer = widgets.MaskedWordExplorer([texts], [said], weights)
        explorer.guesses = [[0, 0, MARKUP[0]], [0, 1, MARKUP[3]]]
        yield explorer


def smoothers():
    for one, two in zip(MARKUP[::2], [*MARKUP[1::2], MARKUP[0]], strict=True):
        yield widgets.KernelSmoother([1, 2, 5], [3, 1, 2], x_label=one, y_label=two)


def patches():
    picture, row = np.zeros((1, 4, 4, 3)), torch.full((len(MARKUP), 4), 0.25)
    told = {"queries": [MARKUP], "answers": ["".join(MARKUP)], "title": MARKUP[0]}
    yield widgets.PatchAttentionExplorer(picture, [row], patch_size=2, **told)
    layers = {text: [torch.full((1, 2, 4, 4), 0.25)] for text in MARKUP[:-2]}
    yield widgets.PatchAttentionExplorer(picture, [layers], patch_size=2)


def quizzes():
    """Questions of two options each, of which the driver takes the wrong one: so all that there is shows."""
    pairs = list(zip(MARKUP, MARKUP[1:] + MARKUP[:1], strict=True))
    options = [[{"text": t, "right": t == one, "why": f"why {t}"} for t in (one, two)] for one, two in pairs]
    yield widgets.Quiz([{"question": text, "options": both} for text, both in zip(MARKUP, options, strict=True)])
    code = [{"text": f"`{text}`", "right": k == 0, "why": f"`{text}`"} for k, text in enumerate(MARKUP[:6])]
    yield widgets.Quiz([{"question": "`${h()}` `<b id=evil>`", "options": code}])


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
        source, target = Vocab([words[k : k + 4]]), Vocab([[f"{word}!" for word in words[k : k + 4]]])
        yield widgets.Translator.of(untrained(source, target), source, target, " ".join(words[k : k + 4]))


def painters():
    words = as_words(MARKUP)
    for k in range(0, len(words), 8):
        yield painter(*words[k : k + 8])


KINDS = {
    "AttentionHeatmap": heatmaps,
    "AttentionPatternExplorer": lambda: [widgets.AttentionPatternExplorer("hash")],
    "KernelSmoother": smoothers,
    "MaskedWordExplorer": masked_words,
    "OnlineSoftmaxStepper": lambda: [widgets.OnlineSoftmaxStepper(step=1)],
    "PagedCacheExplorer": lambda: [widgets.PagedCacheExplorer(step=8)],
    "PatchAttentionExplorer": patches,
    "PositionalEncodingExplorer": lambda: [widgets.PositionalEncodingExplorer()],
    "Quiz": quizzes,
    "TextToImage": painters,
    "Translator": translators,
}
# A quiz asks all that it has; a translator, which works at each step, has a button for each of sixty words.
MOST = dict.fromkeys(KINDS, 30) | {"Quiz": 100, "Translator": 10}
each_kind = pytest.mark.parametrize("kind", KINDS)


def test_the_table_has_every_widget():
    assert {*widgets.__all__} - {"StaticWidget"} == set(KINDS)


@each_kind
def test_markup_is_text_in_every_state(show, kind):
    for widget in KINDS[kind]():
        with show(PRELUDE + widget.static_html(), reduced_motion="reduce") as page:
            page.locator(".attn-card").wait_for()
            for _ in range(2):  # one control may bring another
                used, _ = page.evaluate(DRIVE, [MARKUP[:20:3], MOST[kind], SEE])
            assert used > 1 and page.evaluate("[...faults]") == []


@pytest.mark.parametrize(
    ("kind", "safe", "unsafe", "scripts"),
    [
        ("Quiz", "element.append(...children)", "element.innerHTML += children.map((c) => c.outerHTML ?? c)", True),
        ("AttentionHeatmap", "\\u003c", "<", True),
        ("Quiz", "&quot;", '"', False),
    ],
)
def test_what_is_no_text_is_noticed(browser, kind, safe, unsafe, scripts):
    widget = next(KINDS[kind]())
    body = PRELUDE + widget.static_html()
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

.. recorded-translator:: translator.json

   Another <svg onload=h() id=evil>.
"""


def test_what_the_books_extension_takes_from_files_and_pages_is_text(browser, tmp_path):
    source, target = Vocab([[*SENTENCE.split(), *as_words(MARKUP)]]), Vocab([as_words(MARKUP)])
    exported = widgets.Translator.of(untrained(source, target), source, target).exported
    files = {"conf.py": CONF, "index.rst": INDEX}
    files |= {"translator.json": json.dumps(exported)}
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", str(tmp_path), str(tmp_path / "out")]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'website'}{os.pathsep}{ROOT}"}
    subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    page = browser.new_page()
    page.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    page.add_init_script("window.h = window.alert = window.confirm = window.prompt = () => { window.hit = true; };")
    page.goto((tmp_path / "out" / "index.html").as_uri())
    assert page.locator(".attn-card").count() == 1
    # A page is called what its author calls it.
    assert [fault for fault in page.evaluate(FAULTS) if not fault.startswith("title: ")] == []
    said = page.locator("body").evaluate("e => e.textContent")
    assert "Another <svg onload=h() id=evil>." in said
    page.close()
