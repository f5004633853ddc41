"""Walks: for each kind of widget some widgets, and for each of these the states that a reader takes it through.

Together they show every text that the kind has to say. Buttons are found by a part of their name, since a translated
page puts signs around it. What is data, and no text of the page, is a word such as zaa.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from attn_book.data import Vocab
from attn_book.painter import Painter
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
    StaticWidget,
    TextToImage,
    Translator,
)
from attn_book.widgets.exported import export_translator
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq
from attn_core.transformer import Transformer, TransformerConfig


class Walk(NamedTuple):
    """A widget, how it is driven, and the words in it that are data."""

    widget: StaticWidget
    drive: Callable[[Any], Iterator[None]] = lambda page: iter(())
    data: tuple[str, ...] = ()
    motion: str = "reduce"


def _press(page, name, **options):
    page.locator("button", has_text=name).locator("visible=true").first.click(**options)


def _fill(*values):
    """Set inputs, one after another."""

    def drive(page):
        for name, value in values:
            page.locator(f"input[name={name}]").fill(str(value))
            yield

    return drive


def random_weights(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).mul(1.5).softmax(-1)


SOURCE, TARGET = ("zaa", "zbb"), ("zcc", "zdd")
MAPS = torch.tensor([[[[0.9, 0.1], [0.3, 0.7]]] * 2] * 2)
# No page is as wide as these together, and hardly one as each of them.
LONG = ("W" * 40, "internationalization" * 2, *"abcdefghijkl")


def heatmaps():
    def drive(page):
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
    titled = AttentionHeatmap(maps, SOURCE, TARGET, links=[(0, 0)], title="Where it looks")
    yield Walk(titled, drive, SOURCE + TARGET)
    yield Walk(AttentionHeatmap(MAPS, SOURCE, TARGET, title=""), drive, SOURCE + TARGET)
    layers = {f"decoder.layers.{k}.{'long' * 9}": [random_weights(1, 12, 64, 64, seed=k)] for k in range(2)}
    yield Walk(AttentionHeatmap(layers, (LONG * 5)[:64], (LONG * 5)[:64]), drive, (*LONG, *layers))


PATTERNS = [
    ({"pattern": "hash"}, ("ArrowDown",)),
    ({"pattern": "full"}, ()),
    ({"pattern": "full", "causal": True}, ()),
    ({"pattern": "window", "dilation": 3}, ()),
    ({"pattern": "window", "window": 0, "causal": True}, ()),
    *[({"pattern": "global", "window": w, "global_tokens": g}, ("Home",)) for w in (0, 2) for g in (1, 2)],
    ({"pattern": "hash", "n": 96, "num_buckets": 2, "bucket_size": 32, "rounds": 4}, ("ArrowDown",)),
    ({"pattern": "hash", "n": 16, "rounds": 1, "causal": True, "num_buckets": 16}, ("Home", *["ArrowDown"] * 15)),
    ({"pattern": "hash", "n": 16, "num_buckets": 16, "query": 0}, ("ArrowDown",) * 15),
    ({"pattern": "hash", "n": 16, "num_buckets": 4, "rounds": 3, "seed": 7}, ()),  # it misses a single heavy pair
    ({"pattern": "slots", "slots": 1, "n": 16}, ()),
    ({"pattern": "slots"}, ()),
]


def patterns():
    for state, keys in PATTERNS:

        def drive(page, keys=keys):
            for key in (*keys, "PageDown", "End"):
                page.locator(".attn-cell").press(key)
                yield

        yield Walk(AttentionPatternExplorer(**state), drive)

    def choose(page):
        for value in ("slots", "hash", "global", "window", "full"):
            page.locator(f"input[value={value}]").check(force=True)
            yield

    yield Walk(AttentionPatternExplorer(causal=True), choose)


TOKENS = ("zaa", "zbb", "zcc", "zdd", ".")
SAID = [
    None,
    ([("zbb", 0.6), ("zxx", 0.3)], 1, 0.6),
    ([("zxx", 0.6), ("zcc", 0.3)], 2, 0.3),
    ([("zxx", 0.6), ("zyy", 0.3)], 9, 0.01),
    None,
]


def masked_words():
    def guess(page, place, word):
        page.locator(f"[data-place='{place}']").click()
        yield
        page.locator("input[name=guess]").fill(word)
        page.locator("input[name=guess]").press("Enter")
        yield

    def drive(page):
        yield from guess(page, 1, "zbb")
        for name in ("layer", "head"):
            page.locator(f"input[name={name}][value='1']").check()
            yield
        yield from guess(page, 2, "zcc")
        yield from guess(page, 3, "zyy")
        _press(page, "Start over")
        yield from guess(page, 1, "zww")
        _press(page, "Start over")
        for place in (1, 3):
            page.locator(f"[data-place='{place}']").click()
            _press(page, "Show without")
            yield
        _press(page, "Next word")
        yield

    widget = MaskedWordExplorer([TOKENS] * 2, [SAID] * 2, [random_weights(5, 2, 3, 5)] * 2)
    yield Walk(widget, drive, (*TOKENS, "zxx", "zyy", "zww"))
    count = len(LONG)
    said = [([(word * 2 if len(word) == 1 else word + "x", 0.5), ("V" * 41, 0.4)], 2000, 0.001) for word in LONG]
    wide = MaskedWordExplorer([LONG] * 12, [[None, *said[1:]]] * 12, [torch.ones(count, 12, 12, count) / count] * 12)
    yield Walk(wide, lambda page: guess(page, 1, "V" * 60), (*LONG, *(word[0] for each in said for word in each[0])))


def smoothers():
    def drive(page):
        for key in ("End", "Home"):
            page.locator("input[name=bandwidth]").press(key)
            yield

    yield Walk(KernelSmoother([1, 2, 5], [3, 1, 2], x_label="zaa", y_label="zbb"), drive)


def steppers():
    def drive(page):
        for _ in range(4):
            page.locator("button[name=next]").click()
            yield
        wrong = [("values", f"{'1 ' * k}{one}{' 1' * (7 - k)}") for k in range(4) for one in ("zz", "1001")]
        yield from _fill(("scores", " , "), ("scores", "1 " * 25), ("scores", "1 2 3"), *wrong)(page)
        for name in ("values", "scores"):
            page.locator(f"input[name={name}]").fill("1 " * 8)
        for by in ("+ 100", "− 100", "− 100", "− 100"):
            _press(page, by)
            yield

    yield Walk(OnlineSoftmaxStepper(step=0), drive, ("zz", "max", "NaN", "eˣ"))
    wide = OnlineSoftmaxStepper([-999.125] * 24, [-999.125] * 24, tile=1)
    yield Walk(wide, _fill(("step", 24), ("tile", 5)), ("max", "NaN", "eˣ"))


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
    ([["start", name, 24] for name in "ABCD"], {"block_size": 1, "num_blocks": 96, "reserve": 64}),
]


def caches():
    def drive(page):
        forward = page.locator("button", has_text="Next")
        while forward.get_attribute("aria-disabled") == "false":
            forward.dispatch_event("click")
            yield
            for selector in ("[data-block='0']", "[data-block='2']", "[data-name='B']"):
                if page.locator(selector).count():
                    page.locator(selector).first.dispatch_event("pointerover")
                    yield
        for name in ("New request", "+1 token for each"):
            _press(page, name)
            yield

    for events, options in [(None, {}), *STORIES]:
        # Requests have letters, which stand together where they share.
        yield Walk(PagedCacheExplorer(events, **options, step=0), drive, ("AB", "BA", "EF", "AC"))


def patches():
    def read(page):
        page.locator(".attn-area").hover(position={"x": 5, "y": 5})
        yield
        page.mouse.move(1, 1)
        for option in page.locator(".attn-queries input").all():
            option.check(force=True)
            yield

    def ask(page):
        yield from read(page)
        page.locator(".attn-area").click(position={"x": 5, "y": 5})
        yield
        page.mouse.move(1, 1)
        yield

    def play(page):
        page.locator("input[name=layer]").press("End")
        yield from read(page)
        page.locator(".attn-play").click()
        page.locator(".attn-images input").last.check(force=True)
        yield

    pictures = torch.rand(2, 8, 8, 3, generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([[0.25] * 4, [0, 0, 0, 0], [0, 0.5, 0, 0], [0.4, 0.3, 0.2, 0.1]]).expand(2, 2, 2, 4, 4)
    words, answers = [["zaa", "zbb", "zcc", "zdd"]] * 2, ["It is so.", "It is not."]
    widget = PatchAttentionExplorer(pictures, rows, patch_size=4, queries=words, answers=answers, title="What is seen")
    for motion in ("reduce", "no-preference"):
        yield Walk(widget, play, tuple(words[0]), motion)
    yield Walk(PatchAttentionExplorer(pictures, random_weights(2, 5, 4), patch_size=4), ask)
    large = torch.rand(1, 48, 48, 3, generator=torch.Generator().manual_seed(1))
    yield Walk(PatchAttentionExplorer(large, random_weights(1, 2, 12, 65, 64), patch_size=6), ask)


def positions():
    def drive(page):
        page.locator(".attn-cell").press("ArrowDown")
        yield
        values = [("offset", -40), ("position", 3), ("dim", 7), ("pair", 3), ("length", 8), ("base", 100)]
        yield from _fill(*values)(page)

    yield Walk(PositionalEncodingExplorer(), drive, ("cos", "sin"))
    yield Walk(PositionalEncodingExplorer(256, 256), data=("cos", "sin"))


def quizzes():
    def drive(page):
        for number in (0, 1):
            page.locator("form").nth(number).get_by_role("radio").first.check()
            yield
            page.locator("form").nth(number).get_by_role("button").click()
            yield
        _press(page, "Start again")
        yield

    options = [{"text": f"The `{k}` one", "right": k == "zaa", "why": f"As `{k}` is."} for k in ("zaa", "zbb")]
    asked = {"What of `{q}`?": options, "Who of `{q}`?": options[::-1]}
    yield Walk(Quiz([{"question": text, "options": choice} for text, choice in asked.items()]), drive, ("{q}",))
    wide = [
        {"text": f"`{'code' * 30}`", "right": True, "why": "M" * 90},
        {"text": "w" * 90, "right": False, "why": "1"},
    ]
    yield Walk(Quiz([{"question": f"`{'W' * 90}` or {'w' * 90}?", "options": wide}] * 2), drive)


# A clock that stands still, or that jumps: what the translator says of its own speed.
CLOCKS = ["performance.now = () => 0;", "let now = 0; performance.now = () => (now += 5);"]


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


def translators():
    def force(page, place, id):
        page.locator(f"[data-place='{place}']").click()
        yield
        page.locator(f".attn-option[data-id='{id}']").click()
        yield

    def drive(page, clock):
        page.evaluate(clock)
        page.locator(".attn-more summary").click()
        _press(page, "Translate")
        yield
        _press(page, "Next word")
        yield
        page.locator("[role=cell]").first.dispatch_event("pointerover")
        yield
        yield from force(page, 0, 4)
        yield from force(page, 1, Vocab.EOS)
        if page.locator("input[name=head]").count():
            page.locator("input[name=head]").first.uncheck()
            yield
        yield from _fill(("beam", 1), ("temperature", 3), ("beam", 2), ("beam", 0))(page)
        for typed in ("zww", "zww zvv", "z"):
            page.locator("input[name=sentence]").fill(typed)
            yield
            page.locator("input[name=sentence]").press("Enter")
            yield

    data = ("zaa", "zww", "zvv", "eos", "bos", "pad", "unk")
    for model, vocab in models():
        widget = Translator(export_translator(model, vocab, vocab), "zaa")
        for clock in CLOCKS:
            yield Walk(widget, lambda page, clock=clock: drive(page, clock), data)
    vocab = Vocab([LONG])
    torch.manual_seed(0)
    sizes = {"model_dim": 8, "num_heads": 4, "num_layers": 3, "feed_forward_dim": 8}
    wide = Translator.of(Transformer(TransformerConfig(len(vocab), **sizes)), vocab, vocab, " ".join(LONG))
    yield Walk(wide, _fill(("sentence", "V" * 60 + " W")), (*data, *LONG, "v" * 60))


def painter(*words: str) -> TextToImage:
    """A small model never trained, all of whose parameters differ from zero, with a caption of all that it knows."""
    vocab = Vocab([words])
    torch.manual_seed(0)
    model = Painter(len(vocab), dim=8, num_heads=2, num_layers=2, patch_size=8)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.3)
    return TextToImage.of(model, vocab, " ".join(words))


def painters():
    def paint(page, caption):
        page.locator("input[name=sentence]").fill(caption)
        _press(page, "Paint")
        page.locator(".attn-told:not(:empty)").wait_for()
        yield

    def drive(page):
        yield from paint(page, "zaa zbb")
        page.locator(".attn-look").first.click()
        yield
        page.locator("select").first.select_option("4")
        page.locator(".attn-told:not(:empty)").wait_for()
        yield from _fill(("step", 12), ("block", 1))(page)
        page.locator("input[name=keep]").check()
        for caption in ("zbb zbb", "zaa"):
            yield from paint(page, caption)
        for typed in ("zww", "zww zvv", "z", "zaa " * 13):
            page.locator("input[name=sentence]").fill(typed)
            yield
            page.locator("input[name=sentence]").press("Enter")
            yield

    yield Walk(painter("zaa", "zbb"), drive, ("zaa", "zbb", "zww", "zvv"))
    yield Walk(painter(*LONG[:5]), data=(*LONG, "or"))


WALKS = {
    "AttentionHeatmap": heatmaps,
    "AttentionPatternExplorer": patterns,
    "KernelSmoother": smoothers,
    "MaskedWordExplorer": masked_words,
    "OnlineSoftmaxStepper": steppers,
    "PagedCacheExplorer": caches,
    "PatchAttentionExplorer": patches,
    "PositionalEncodingExplorer": positions,
    "Quiz": quizzes,
    "TextToImage": painters,
    "Translator": translators,
}


def sample(kind: str) -> StaticWidget:
    """One widget of a kind."""
    return next(WALKS[kind]()).widget
