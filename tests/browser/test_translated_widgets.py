"""Widgets in a translated book: every text is the catalogue's, in all their states, and what it holds stays text.

The catalogue sets each message between ⟦ and ⟧, with gaps for the values. So what stands outside of these was not said,
and has to be data: a token, a number, a symbol.
"""

import json
import re
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from attn_book.data import Vocab
from attn_book.widgets import (
    AttentionHeatmap,
    AttentionPatternExplorer,
    KernelSmoother,
    MaskedWordExplorer,
    OnlineSoftmaxStepper,
    PagedCacheExplorer,
    PatchAttentionExplorer,
    PositionalEncodingExplorer,
    Quiz,
    Translator,
)
from attn_book.widgets.exported import export_translator
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq
from attn_core.transformer import Transformer, TransformerConfig
from tests.widgets.said import catalogue, extracted

pytestmark = pytest.mark.browser

GAP = re.compile(r"\{\w+\}")
WORD = re.compile(r"[^\W\d_]{2,}")
# What is drawn on a canvas is no text of the page: it is kept here.
RECORD = """<script>
  window.drawn = [];
  for (const name of ["fillText", "strokeText"]) {
    CanvasRenderingContext2D.prototype[name] = (text) => drawn.push(String(text));
  }
</script>"""
COLLECT = """() => {
  const said = ["aria-label", "aria-valuetext", "aria-description", "aria-roledescription", "aria-placeholder",
                "title", "placeholder", "alt", "label"];
  const texts = [];
  const attributes = [];
  for (const card of document.querySelectorAll(".attn-static")) {
    const walk = document.createTreeWalker(card, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      if (!walk.currentNode.parentElement.closest("script, style")) texts.push(walk.currentNode.data);
    }
    for (const e of card.querySelectorAll("*")) {
      for (const name of said) if (e.hasAttribute(name)) attributes.push(`${name}: ${e.getAttribute(name)}`);
      if (e.matches("input[type=button], input[type=submit]")) attributes.push(`value: ${e.value}`);
    }
  }
  return [texts, attributes, drawn];
}"""


def marked(message):
    """A message between the signs, which leave out its gaps: the values must speak for themselves."""
    return f"⟦{GAP.sub(lambda gap: f'⟧{gap[0]}⟦', message)}⟧"


def page_of(widget, words):
    """The widget as a translated page has it, the catalogue before it."""
    held = json.dumps(words).replace("<", "\\u003c")
    return f"<script>var attentionBookWords = {held};</script>{RECORD}{widget.static_html()}"


def outside(texts):
    """What of each text stands outside the signs, which may open in one and close in another, and how deep it ends."""
    depth, found = 0, []
    for text in texts:
        rest = ""
        for letter in text:
            depth += (letter == "⟦") - (letter == "⟧")
            rest += letter if depth == 0 and letter != "⟧" else " "
        found.append(rest)
    return found, depth


def untold(texts, data):
    """The texts of which some word is neither the catalogue's nor data; those, too, whose gaps were left open."""
    rests, depth = outside(texts)
    assert depth == 0, texts
    words = [{word for word in WORD.findall(rest) if word.isalpha()} for rest in rests]  # and no raised digits
    bad = [text for text, found in zip(texts, words, strict=True) if found - data]
    return bad + [text for text in texts if GAP.search(text) and text not in data]


@contextmanager
def translated(show, widget, data, seen, **options):
    """A page with the widget, and what checks it as it stands and keeps what was seen."""
    words = {**catalogue(marked), **{text: f"⟦{text}⟧" for text in widget.said()}}
    with show(page_of(widget, words), **options) as page:

        def check():
            texts, attributes, drawn = page.evaluate(COLLECT)
            assert untold(texts, data) == []
            # Their names are the page's own.
            assert [text for text in [*attributes, *drawn] if untold([text.split(": ", 1)[-1]], data)] == []
            seen.extend([*texts, *attributes, *drawn])

        yield page, check


def unseen(kind, seen):
    """The messages of a widget that stood on none of its pages."""
    everything = "\n".join(seen)
    filled = {text: ".*".join(re.escape(f"⟦{part}⟧") for part in GAP.split(text)) for text in extracted(str(kind._esm))}
    return {text for text, pattern in filled.items() if not re.search(pattern, everything)}


def walk(show, widget, states, data=(), seen=None, **options):
    """Drive a widget from state to state, each of which is checked."""
    seen = [] if seen is None else seen
    with translated(show, widget, set(data), seen, **options) as (page, check):
        check()
        for _ in states(page):
            check()
    return seen


def press(page, name, **options):
    page.locator("button", has_text=name).locator("visible=true").first.click(**options)


SOURCE, TARGET = "zaa zbb".split(), "zcc zdd".split()
MAPS = torch.tensor([[[[0.9, 0.1], [0.3, 0.7]]] * 2] * 2)


def test_heatmap(show):
    def states(page):
        box = page.locator(".attn-area").bounding_box()
        for share in (0.2, 0.8):
            page.mouse.move(box["x"] + share * box["width"], box["y"] + 0.2 * box["height"])
            yield
        page.locator(".attn-row").first.click()
        page.mouse.move(1, 1)
        yield
        page.locator("input[name=layer]").press("ArrowRight")
        page.locator(".attn-view").nth(1).click()
        yield

    maps = {"Reading a word": [MAPS[:1]], "Reading on": [MAPS[1:]]}
    widget = AttentionHeatmap(maps, SOURCE, TARGET, links=[(0, 0)], title="Where it looks")
    seen = walk(show, widget, states, SOURCE + TARGET)
    assert {"⟦Where it looks⟧", "⟦Reading a word⟧", "⟦Reading on⟧"} <= set(seen)
    walk(show, AttentionHeatmap(MAPS, SOURCE, TARGET, title=""), states, SOURCE + TARGET, seen)
    assert unseen(AttentionHeatmap, seen) == set()


PATTERNS = [
    ({"pattern": "full"}, ()),
    ({"pattern": "full", "causal": True}, ()),
    ({"pattern": "window", "dilation": 3}, ()),
    ({"pattern": "window", "window": 0, "causal": True}, ()),
    *[({"pattern": "global", "window": w, "global_tokens": g}, ("Home",)) for w in (0, 2) for g in (1, 2)],
    ({"pattern": "hash", "n": 96, "num_buckets": 2, "bucket_size": 32, "rounds": 4}, ("ArrowDown",)),
    ({"pattern": "hash", "n": 16, "rounds": 1, "causal": True, "num_buckets": 16}, ("Home", *["ArrowDown"] * 15)),
    ({"pattern": "hash", "n": 16, "num_buckets": 16, "query": 0}, ("ArrowDown",) * 15),
    ({"pattern": "slots", "slots": 1, "n": 16}, ()),
    ({"pattern": "slots"}, ()),
]


def missing_one():
    """A setting in which hashing misses a single heavy pair."""
    for seed in range(2000):
        widget = AttentionPatternExplorer("hash", 16, num_buckets=4, rounds=3, seed=seed)
        if ((widget.weights() >= 2 / 15) & ~widget.pairs()).sum() == 1:
            return {"pattern": "hash", "n": 16, "num_buckets": 4, "rounds": 3, "seed": seed}
    raise AssertionError("no seed misses a single pair")


def test_patterns(show):
    seen = []
    for state, keys in [*PATTERNS, (missing_one(), ())]:

        def states(page, keys=keys):
            for key in (*keys, "PageDown", "End"):
                page.locator(".attn-cell").press(key)
                yield

        walk(show, AttentionPatternExplorer(**state), states, seen=seen)

    def chosen(page):
        for value in ("slots", "hash", "global", "window", "full"):
            page.locator(f"input[value={value}]").check(force=True)
            yield

    walk(show, AttentionPatternExplorer(causal=True), chosen, seen=seen)
    # All the patterns have fewer scores than full attention at some length that is counted.
    assert unseen(AttentionPatternExplorer, seen) == {"No fewer scores than full attention up to n\u00a0=\u00a0{n}."}


TOKENS = ["zaa", "zbb", "zcc", "zdd", "."]
SAID = [
    None,
    ([("zbb", 0.6), ("zxx", 0.3)], 1, 0.6),
    ([("zxx", 0.6), ("zcc", 0.3)], 2, 0.3),
    ([("zxx", 0.6), ("zyy", 0.3)], 9, 0.01),
    None,
]


def test_masked_word(show):
    def guess(page, place, word):
        page.locator(f"[data-place='{place}']").click()
        yield
        page.locator("input[name=guess]").fill(word)
        page.locator("input[name=guess]").press("Enter")
        yield

    def states(page):
        yield from guess(page, 1, "zbb")
        for name, value in (("layer", 1), ("head", 1)):
            page.locator(f"input[name={name}][value='{value}']").check()
            yield
        yield from guess(page, 2, "zcc")
        yield from guess(page, 3, "zyy")
        press(page, "⟦Start over")
        yield from guess(page, 1, "zww")
        press(page, "⟦Start over")
        for place in (1, 3):
            page.locator(f"[data-place='{place}']").click()
            press(page, "⟦Show without")
            yield
        press(page, "⟦Next word")
        yield

    weights = torch.randn(5, 2, 3, 5, generator=torch.Generator().manual_seed(0)).softmax(-1)
    widget = MaskedWordExplorer([TOKENS] * 2, [SAID] * 2, [weights] * 2)
    seen = walk(show, widget, states, [*TOKENS, "zxx", "zyy", "zww"])
    assert unseen(MaskedWordExplorer, seen) == set()


def test_kernel_smoother(show):
    def states(page):
        page.locator("input[name=bandwidth]").press("End")
        yield

    widget = KernelSmoother([1, 2, 5], [3, 1, 2], x_label="zaa", y_label="zbb")
    seen = walk(show, widget, states)
    assert {"⟦zaa⟧", "⟦zbb⟧"} <= set(seen) and unseen(KernelSmoother, seen) == set()


def test_online_softmax(show):
    def states(page):
        for _ in range(4):
            page.locator("button[name=next]").click()
            yield
        for name, typed in (
            ("scores", " , "),
            ("scores", "1 " * 25),
            ("scores", "1 2 3"),
            *[("values", f"{'1 ' * k}{wrong}{' 1' * (7 - k)}") for k in range(4) for wrong in ("zz", "1001")],
        ):
            page.locator(f"input[name={name}]").fill(typed)
            yield
        page.locator("input[name=values]").fill("1 " * 8)
        page.locator("input[name=scores]").fill("1 " * 8)
        for by in ("+ 100", "− 100", "− 100", "− 100"):
            press(page, by)
            yield

    seen = walk(show, OnlineSoftmaxStepper(step=0), states, ["zz", "max", "NaN", "eˣ"])
    assert unseen(OnlineSoftmaxStepper, seen) == set()


STORIES = [
    (
        [["start", "A", 1], ["fork", "A", "B"], ["grow", "B"], ["end", "A"], ["start", "C", 3], ["end", "C"]],
        {"num_blocks": 6, "reserve": 1},
    ),
    (
        [["start", "A", 1], ["fork", "A", "B"], ["decode"], ["end", "B"]],
        {"num_blocks": 1, "block_size": 1, "reserve": 1},
    ),
    ([["start", "A", 9], ["grow", "A"], ["start", "B", 2], ["decode"]], {"num_blocks": 2, "reserve": 4}),
    ([["start", "A", 9], ["fork", "A", "B"], ["grow", "B"], ["end", "A"], ["end", "B"]], {}),
    ([["start", "A", 1], ["fork", "A", "B"], ["preempt", "A"], ["grow", "B", 2], ["grow", "B", 9]], {}),
    (None, {}),
]


def test_paged_cache(show):
    def states(page):
        while page.get_by_role("button", name="⟦Next⟧", exact=True).get_attribute("aria-disabled") == "false":
            press(page, "⟦Next⟧")
            yield
            for selector in ("[data-block='0']", "[data-block='2']", "[data-name='B']"):
                for place in page.locator(selector).all()[:1]:
                    place.hover()
                    yield
        press(page, "⟦New request")
        yield
        press(page, "⟦+1 token for each")
        yield

    seen = []
    for events, options in STORIES:
        widget = PagedCacheExplorer(events, **options, step=0)
        # Requests have letters, which stand together where they share.
        walk(show, widget, states, ["AB", "BA", "EF", "AC"], seen)
    assert unseen(PagedCacheExplorer, seen) == set()


def test_patch_attention(show):
    def read(page):
        page.locator(".attn-area").hover(position={"x": 5, "y": 5})
        yield
        page.mouse.move(1, 1)
        for option in page.locator(".attn-queries input").all():
            option.check(force=True)
            yield

    def asked(page):
        yield from read(page)
        page.locator(".attn-area").click(position={"x": 5, "y": 5})
        yield
        page.mouse.move(1, 1)
        yield

    def played(page):
        page.locator("input[name=layer]").press("End")
        yield from read(page)
        page.locator(".attn-play").click()
        yield

    pictures = torch.rand(2, 8, 8, 3, generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([[0.25] * 4, [0, 0, 0, 0], [0, 0.5, 0, 0], [0.4, 0.3, 0.2, 0.1]]).expand(2, 2, 2, 4, 4)
    words, answers = [["zaa", "zbb", "zcc", "zdd"]] * 2, ["It is so.", "It is not."]
    widget = PatchAttentionExplorer(pictures, rows, patch_size=4, queries=words, answers=answers, title="What is seen")
    seen = walk(show, widget, played, words[0])
    walk(show, widget, played, words[0], seen, reduced_motion="reduce")
    assert {"⟦What is seen⟧", "⟦It is so.⟧"} <= set(seen)
    weights = torch.rand(2, 5, 4, generator=torch.Generator().manual_seed(1)).softmax(-1)
    walk(show, PatchAttentionExplorer(pictures, weights, patch_size=4), asked, seen=seen)
    assert unseen(PatchAttentionExplorer, seen) == set()


def test_positional(show):
    def states(page):
        page.locator(".attn-cell").press("ArrowDown")
        yield
        for name, value in (("offset", -40), ("position", 3), ("dim", 7), ("pair", 3), ("length", 8)):
            page.locator(f"input[name={name}]").fill(str(value))
            yield

    seen = walk(show, PositionalEncodingExplorer(), states, ["cos", "sin"])
    assert unseen(PositionalEncodingExplorer, seen) == set()


def test_quiz(show):
    def states(page):
        for number, option in ((0, 0), (1, 0)):
            page.locator("form").nth(number).get_by_role("radio").nth(option).check()
            yield
            page.locator("form").nth(number).get_by_role("button").click()
            yield
        press(page, "⟦Start again")
        yield

    options = [{"text": f"The `{k}` one", "right": k == "zaa", "why": f"As `{k}` is."} for k in ("zaa", "zbb")]
    asked = {"What of `{q}`?": options, "Who of `{q}`?": options[::-1]}
    questions = [{"question": text, "options": choice} for text, choice in asked.items()]
    seen = walk(show, Quiz(questions), states, ["{q}"])
    assert unseen(Quiz, seen) == set()


# A clock that stands still, or that jumps: what the translator says of its own speed.
STILL, JUMPING = "performance.now = () => 0;", "let now = 0; performance.now = () => (now += 5);"


def models():
    """Models never trained, whose only word leaves <eos> among the likeliest five."""
    vocab = Vocab([["zaa"]])
    torch.manual_seed(0)
    sizes = {"model_dim": 8, "num_heads": 2, "num_layers": 1, "feed_forward_dim": 8}
    yield Transformer(TransformerConfig(len(vocab), **sizes)), vocab
    decoder = BahdanauDecoder(len(vocab), embed_dim=8, hidden_dim=8, memory_dim=16)
    recurrent = Seq2Seq(Encoder(len(vocab), embed_dim=8, hidden_dim=8), decoder)
    with torch.no_grad():
        recurrent.decoder.output.logits.bias[Vocab.EOS] = -9.0
    yield recurrent, vocab


@pytest.mark.parametrize("clock", [STILL, JUMPING])
def test_translator(show, clock):
    def force(page, place, id):
        page.locator(f"[data-place='{place}']").click()
        yield
        page.locator(f".attn-option[data-id='{id}']").click()
        yield

    def states(page):
        page.evaluate(clock)
        page.locator(".attn-more summary").click()
        press(page, "⟦Translate")
        yield
        press(page, "⟦Next word")
        yield
        page.locator("[role=cell]").first.hover()
        yield
        yield from force(page, 0, 4)
        yield from force(page, 1, Vocab.EOS)
        if page.locator("input[name=head]").count():
            page.locator("input[name=head]").first.uncheck()
            yield
        for name, value in (("beam", 1), ("temperature", 3), ("beam", 2), ("beam", 0)):
            page.locator(f"input[name={name}]").fill(str(value))
            yield
        for typed in ("zww", "zww zvv", "z"):
            page.locator("input[name=sentence]").fill(typed)
            yield
            page.locator("input[name=sentence]").press("Enter")
            yield

    seen = []
    for model, vocab in models():
        widget = Translator(export_translator(model, vocab, vocab), "zaa")
        walk(show, widget, states, ["zaa", "zww", "zvv", "eos", "bos", "pad", "unk"], seen, reduced_motion="reduce")
    slow = {"1 word in {ms}\u00a0ms.", "{count} words in {ms}\u00a0ms."}
    fast = {"1 word in less than 1\u00a0ms.", "{count} words in less than 1\u00a0ms."}
    assert unseen(Translator, seen) - (slow if clock == STILL else fast) == set()


HOSTILE = '<img src=x onerror="window.hit = 1"></script><i>$& $` $1 {{name} {} { {constructor} {k} ⟦'


def each_widget():
    """One of each kind, so that they stand together on a page."""
    tokens = ["zaa", "zbb"]
    weights = np.full((2, 2), 0.5)
    (model, vocab), *_ = models()
    yield AttentionHeatmap({"constructor": [MAPS[:1]], "__proto__": [MAPS[1:]]}, tokens, tokens, title="toString")
    yield AttentionPatternExplorer("hash")
    yield MaskedWordExplorer([TOKENS], [SAID], [torch.full((5, 1, 2, 5), 0.2)], position=1)
    yield KernelSmoother([1, 2, 5], [3, 1, 2], x_label="constructor", y_label="valueOf")
    yield OnlineSoftmaxStepper(step=2)
    yield PagedCacheExplorer(step=8)
    yield PatchAttentionExplorer(np.zeros((1, 4, 4, 3)), [weights.repeat(2, 1) / 2], patch_size=2, queries=[tokens])
    yield PositionalEncodingExplorer()
    options = [{"text": text, "right": text == "$&", "why": "{x}"} for text in ("$&", "valueOf")]
    yield Quiz([{"question": "{k}?", "options": options}])
    yield Translator(export_translator(model, vocab, vocab), "zaa")


@pytest.mark.parametrize("words", [None, {}, "hostile", "numbers"])
def test_what_a_catalogue_holds_is_text_and_what_it_lacks_is_english(show, words):
    held = words
    if words == "hostile":
        held = catalogue(lambda message: HOSTILE)
    elif words == "numbers":
        held = catalogue(lambda message: 3)
    for widget in each_widget():
        plain = widget.static_html()
        body = plain if held is None else page_of(widget, held)
        with show(body, reduced_motion="reduce") as page:
            card = page.locator(".attn-card")
            assert card.count() == 1 and page.locator("img, .attn-card :is(i, script)").count() == 0
            assert page.evaluate("window.hit") is None
            text = card.evaluate("e => e.textContent")
            assert ("$& $` $1" in text) == (words == "hostile") and "function" not in text
            if not held:
                assert "NaN" not in text and "undefined" not in text and "[object" not in text
    assert isinstance(widget, Translator)


def test_values_are_put_in_once_and_as_they_are(show):
    """A value that looks like a gap, or like a name of what was found, is not looked into."""
    script = str(Quiz._esm).replace("export default", "const widget =")
    body = f"<script>var attentionBookWords = {{'{{a}} of {{b}}': '{{b}} von {{a}}', one: 'eins'}};{script}</script>"
    with show(body) as page:
        asked = {
            "say('one')": "eins",
            "say('two')": "two",
            "say('constructor')": "constructor",
            "say('__proto__')": "__proto__",
            "say('{a} of {b}', { a: '{b}', b: '$& $1 {a}' })": "$& $1 {a} von {b}",
            "say('{a} of {b}', { a: 1, b: 0 })": "0 von 1",
            "say('{a}, {toString}, {c}, {}, {', { a: 'x' })": "x, {toString}, {c}, {}, {",
        }
        assert {call: page.evaluate(call) for call in asked} == asked


def test_what_is_not_said_is_found():
    assert untold(["⟦Layer ⟧3⟦ of ⟧⟦all⟧", " → ", "zaa 0.5"], {"zaa"}) == []
    assert untold(["⟦Which ", "q", " is it?⟧"], set()) == []
    assert untold(["⟦Layer⟧ of 3", "zbb", "⟦{gap}⟧"], {"zaa"}) == ["⟦Layer⟧ of 3", "zbb", "⟦{gap}⟧"]
