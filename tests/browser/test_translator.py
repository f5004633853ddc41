"""The translator in a page: what is typed, what comes word by word, what is forced, searched, drawn, switched off."""

import itertools
import re

import numpy as np
import pytest
import torch

from attn_book.data import Batches, Pair, Vocab
from attn_book.train import fit
from attn_book.translation import translate
from attn_book.widgets.exported import dequantised
from attn_book.widgets.translator import Translator, read_words
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq
from attn_core.transformer import Transformer, TransformerConfig
from tests.browser.page import press, slide, texts

pytestmark = pytest.mark.browser

NOUNS = {"cat": "chat", "Dog": "chien", "<b>&\"x'": "</script>"}
ADJECTIVES = {"small": "petit", "shy": "timide", "old": "vieux", "": ""}
VERBS = {"sleeps": "dort", "sees": "voit", "does not sing": "ne chante pas"}
PAIRS = [
    Pair(tuple(f"the {a} {n} {v} .".split()), tuple(f"le {noun} {adjective} {verb} .".split()))
    for (n, noun), (a, adjective), (v, verb) in itertools.product(NOUNS.items(), ADJECTIVES.items(), VERBS.items())
]
SOURCE, TARGET = Vocab(p.source for p in PAIRS), Vocab(p.target for p in PAIRS)
SENTENCE = "the small cat does not sing ."


@pytest.fixture(scope="session")
def model():
    """A Transformer that has learnt the few sentences there are, with the weights that a page gets."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"model_dim": 16, "num_heads": 2, "num_layers": 2, "feed_forward_dim": 32, "dropout": 0.0}
    trained = Transformer(TransformerConfig(len(TARGET), source_vocab_size=len(SOURCE), norm_first=True, **sizes))
    fit(trained, Batches(PAIRS, SOURCE, TARGET, batch_size=18, seed=0), epochs=40, learning_rate=1e-2, progress=False)
    return dequantised(trained).eval()


@pytest.fixture(scope="session")
def widget(model):
    return Translator.of(model, SOURCE, TARGET, SENTENCE)


def recurrent():
    """Bahdanau's model, untrained: it never ends."""
    torch.manual_seed(0)
    encoder = Encoder(len(SOURCE), embed_dim=8, hidden_dim=8)
    decoder = BahdanauDecoder(len(TARGET), embed_dim=8, hidden_dim=8, memory_dim=16)
    model = Seq2Seq(encoder, decoder)
    with torch.no_grad():
        model.decoder.output.logits.bias[Vocab.EOS] = -9.0
    return model.eval()


@pytest.fixture
def page(show, widget):
    """The widget, for a reader who asks for less motion."""
    with show(widget.static_html(), reduced_motion="reduce") as opened:
        unfold(opened)
        yield opened


def unfold(page):
    """Open what holds the settings and the numbers."""
    page.locator(".attn-more").evaluate_all("all => all.forEach((more) => { more.open = true; })")


def words(page):
    return texts(page, ".attn-word .attn-token")


def field(page):
    return page.locator("input[name=sentence]")


def write(page, text):
    field(page).fill("")
    field(page).press_sequentially(text)


def weights(page):
    """The map as it is read aloud, a row of numbers for each word that shows."""
    rows = page.locator("[role=row]:has([role=cell]):not(.attn-later)").all()
    return np.array(
        [[float(text.lstrip("<")) for text in row.locator("[role=cell]").all_text_contents()] for row in rows]
    )


def expected(model, sentence, **options):
    (found,) = translate(model, [sentence.split()], SOURCE, TARGET, max_length=60, **options)
    return [*found.words, "<eos>"]


def logits(model, sentence, words):
    """What may follow the words of a translation, as log-probabilities."""
    source = torch.tensor([[*SOURCE.encode(sentence.split()), Vocab.EOS]])
    before = torch.tensor([[Vocab.BOS, *(TARGET.encode(words) if words else [])]])
    with torch.no_grad():
        return model(source, torch.tensor([source.shape[1]]), before)[0].log_softmax(-1)


def test_the_first_sentence_stands_translated(page, widget, model):
    example = widget.exported["example"]
    assert (
        words(page)
        == example["words"]
        == expected(model, SENTENCE)
        == [*"le chat petit ne chante pas .".split(), "<eos>"]
    )
    assert field(page).input_value() == SENTENCE
    assert texts(page, ".attn-column span") == example["source"] and texts(page, ".attn-row span") == example["words"]
    np.testing.assert_allclose(weights(page), example["weights"], atol=0.011)
    (facts,) = texts(page, ".attn-facts")
    mean = logits(model, SENTENCE, example["words"][:-1])[range(8), TARGET.encode(example["words"][:-1]) + [2]].mean()
    assert re.fullmatch(r"7 words in (\d+|less than 1) ms\. Log-probability, mean .*: −(\d\.\d{3})\.", facts)
    assert float(facts[-6:-1]) == pytest.approx(-mean.item(), abs=0.0006)


def test_a_sentence_is_typed_and_translated(page, model):
    write(page, "the old Dog sees .")
    assert words(page) == expected(model, SENTENCE), "until it is sent, the first stays"
    field(page).press("Enter")
    assert words(page) == expected(model, "the old Dog sees .") == ["le", "chien", "vieux", "voit", ".", "<eos>"]
    write(page, "The SMALL cat doesn’t sing.")
    press(page, "Translate")
    assert words(page) == expected(model, SENTENCE) and texts(page, ".attn-column span") == [*SENTENCE.split(), "<eos>"]
    assert field(page).input_value() == "The SMALL cat doesn’t sing."


def options(page):
    """The words on offer, and the one that Enter would take."""
    box, active = field(page), field(page).get_attribute("aria-activedescendant")
    chosen = page.locator("[role=option][aria-selected=true]")
    assert box.get_attribute("aria-expanded") == str(page.locator("[role=option]").count() > 0).lower()
    assert (chosen.get_attribute("id") if chosen.count() else None) == active
    return texts(page, "[role=listbox] [role=option]"), chosen.inner_text() if active else None


def test_words_are_offered_as_they_are_typed(page):
    assert page.locator("[role=listbox]").get_attribute("id") == field(page).get_attribute("aria-controls")
    write(page, "the s")
    offered, active = options(page)
    assert sorted(offered) == ["sees", "shy", "sing", "sleeps", "small"] and active is None
    assert offered == [word for word in SOURCE.tokens if word.startswith("s")], "the frequent ones first"
    for key, active in [("Down", 0), ("Down", 1), ("Up", 0), ("Up", None), ("Up", 4), ("Down", None)]:
        field(page).press(f"Arrow{key}")
        assert options(page) == (offered, None if active is None else offered[active])
    field(page).press("Escape")
    assert options(page) == ([], None) and field(page).input_value() == "the s"
    field(page).press("ArrowDown")
    assert options(page) == (offered, None), "an arrow opens it again"
    field(page).press("ArrowDown")
    field(page).press("Enter")
    assert field(page).input_value() == f"the {offered[0]} " and options(page) == ([], None)
    field(page).press_sequentially("D")
    assert sorted(options(page)[0]) == ["Dog", "does"], "capitals or not"
    page.locator("[role=option]", has_text="Dog").click()
    assert field(page).input_value() == f"the {offered[0]} Dog "


def test_words_that_the_model_does_not_know_are_named(page, model):
    count = len(SOURCE) - 4
    write(page, "the zebra slee")
    assert texts(page, ".attn-unknown") == [f"“zebra” is not among the {count} words that this model knows."]
    assert field(page).get_attribute("aria-invalid") == "true", "and what may yet become a word is not"
    field(page).press("Enter")
    assert texts(page, ".attn-unknown") == [f"“zebra”, “slee” are not among the {count} words that this model knows."]
    assert words(page) == expected(model, SENTENCE), "the last translation stays"
    assert texts(page, ".attn-earlier") == [f"Below: the translation of “{SENTENCE}”."]
    square = page.locator(".attn-square").first
    assert square.evaluate("e => getComputedStyle(e).filter") == "grayscale(1)"
    for name in ("Translate", "Next word"):
        assert page.get_by_role("button", name=name).get_attribute("aria-disabled") == "true"
        press(page, name, force=True)
    page.locator("[data-place='1']").click(force=True)
    assert words(page) == expected(model, SENTENCE) and texts(page, ".attn-option") == []
    write(page, "<eos> <unk> <img src=x onerror=alert(1)>")
    assert "“<eos>”" not in texts(page, ".attn-unknown")[0] and "“eos”" in texts(page, ".attn-unknown")[0]
    write(page, "the cat sleeps .")
    assert texts(page, ".attn-unknown") == [] and field(page).get_attribute("aria-invalid") == "false"
    press(page, "Translate")
    assert words(page) == expected(model, "the cat sleeps .") and texts(page, ".attn-earlier") == []
    assert square.evaluate("e => getComputedStyle(e).filter") == "none"


TEXTS = [
    SENTENCE,
    "The cat doesn't sleep.",
    "don’t! I can't; he's, we'll — o'clock, aujourd'hui",
    "l'homme qu'il donne-m'en est-ce",
    "10,000 3.5: 7 a_b x-y--z ... .. «é» ﬁ e\u0301 \u00adsoft\u200b",
    "<b>&\"x' <b>&\"x'. Dog dog <eos>",
    "n't  N'T\tisn't n'tx",
    "ça l’été d'Été rock'n'roll 'tis dogs'",
]


def test_a_sentence_becomes_the_words_that_python_makes_of_it(live, widget):
    with live(widget) as page:
        for text, known in itertools.product(TEXTS, (set(SOURCE.tokens), set(), {"n't"})):
            read = "([text, known]) => readWords(text, (word) => known.includes(word))"
            assert page.evaluate(read, [text, sorted(known)]) == read_words(text, known)


def test_the_translation_and_its_map_grow_word_by_word(show, widget, model):
    whole = expected(model, "the old cat sleeps .")
    with show(widget.static_html(), apart=True) as page:
        assert words(page) == expected(model, SENTENCE), "at first it is there"
        unfold(page)
        page.clock.install(time=0)
        page.clock.pause_at(60_000)
        write(page, "the old cat sleeps .")
        press(page, "Translate")
        for count in range(1, len(whole) + 1):
            assert words(page) == whole[:count] and len(weights(page)) == count
            assert texts(page, ".attn-row span") == whole[:count]
            assert bool(page.locator(".attn-facts").inner_text()) == (count == len(whole))
            page.clock.run_for(160)
        assert words(page) == whole
        press(page, "Translate")
        page.clock.run_for(170)
        press(page, "Next word")
        assert words(page) == whole[:3]
        page.clock.run_for(1000)
        assert words(page) == whole[:3], "who steps is not overtaken"
        page.locator("[data-place='1']").click()
        assert words(page) == whole, "to look at a word is to have seen them all"


def alternatives(page):
    rows = page.locator(".attn-option").locator("visible=true")
    return [text.replace("\u00a0", " ") for text in rows.evaluate_all("all => all.map((e) => e.ariaLabel)")]


def test_a_word_opens_its_alternatives(page, model):
    before = expected(model, SENTENCE)
    for t in (1, 7):
        page.locator(f"[data-place='{t}']").click()
        top = logits(model, SENTENCE, before[:t])[t].exp().topk(5)
        listed = [text.rsplit(", ", 1) for text in alternatives(page)]
        assert [text for text, _ in listed] == [TARGET.tokens[id] for id in top.indices]
        for (_, share), p in zip(listed, top.values.tolist(), strict=True):
            near = {"<1 %": 0, ">99 %": 100}.get(share, share.rstrip(" %"))
            assert 100 * p == pytest.approx(float(near), abs=0.6)
        assert page.locator(".attn-option[aria-pressed=true]").get_attribute("aria-label").startswith(before[t])
        assert page.locator(".attn-word[aria-expanded=true]").get_attribute("data-place") == str(t)
        assert texts(page, ".attn-read")[0].startswith(f"{before[t]} → ")
    page.locator("[data-place='7']").click()
    assert alternatives(page) == []
    page.locator("[data-place='2']").click()
    page.keyboard.press("Escape")
    assert alternatives(page) == [] and page.evaluate("document.activeElement.dataset.place") == "2"


def take(page, t, rank):
    """Force a word that the model holds likely, and give it."""
    page.locator(f"[data-place='{t}']").click()
    word = alternatives(page)[rank].rsplit(", ", 1)[0]
    page.locator(".attn-option").nth(rank).click()
    return word


def continued(model, sentence, first):
    """The likeliest continuation of the first words of a translation."""
    found = list(first)
    while found[-1] != "<eos>" and len(found) < 60:
        found.append(TARGET.tokens[logits(model, sentence, found)[-1].argmax()])
    return found


def test_a_word_is_forced_and_decoding_goes_on_from_there(page, model):
    whole = expected(model, SENTENCE)
    second = take(page, 1, rank=1)
    forced = continued(model, SENTENCE, ["le", second])
    assert words(page) == forced != whole
    assert texts(page, ".attn-tag:not(:empty)") == ["forced"]
    mark = page.locator(".attn-forced")
    assert mark.get_attribute("data-place") == "1" and mark.get_attribute("aria-label").endswith(", forced")
    assert mark.evaluate("e => getComputedStyle(e).borderTopStyle") == "dashed"
    assert page.evaluate("document.activeElement.dataset.place") == "1"
    third = take(page, 3, rank=1)
    assert words(page) == continued(model, SENTENCE, [*forced[:3], third])
    assert [mark.get_attribute("data-place") for mark in page.locator(".attn-forced").all()] == ["1", "3"]
    assert take(page, 0, rank=0) == "le"
    assert words(page) == whole and [e.get_attribute("data-place") for e in page.locator(".attn-forced").all()] == ["0"]
    press(page, "Undo forced words")
    assert words(page) == whole and page.locator(".attn-forced").count() == 0
    assert not page.get_by_role("button", name="Undo forced words").is_visible()


def test_a_beam_finds_what_python_finds(page, model):
    slide(page, "beam", 1)
    assert texts(page, ".attn-how")[0].startswith("Beam search keeps the 2 most likely beginnings.")
    assert page.locator("input[name=beam]").get_attribute("aria-valuetext") == "2"
    for sentence in (SENTENCE, *(" ".join(pair.source[::-1]) for pair in PAIRS[:6])):
        write(page, sentence)
        field(page).press("Enter")
        assert words(page) == expected(model, sentence, beam_size=2)


def test_a_draw_is_seeded_and_excludes_a_search(page, model):
    assert texts(page, ".attn-how") == ["Each word is the most likely one."]
    slide(page, "beam", 2)
    slide(page, "temperature", 11)
    why = "The beam size is 1 again: beam search and sampling cannot be combined."
    assert texts(page, ".attn-how") == [f"Each word is sampled at random (sample 1). {why}"]
    assert texts(page, ".attn-slider .attn-value") == ["1", "1.5"]
    drawn = [words(page)]
    for seed in range(2, 8):
        press(page, "Sample again")
        assert texts(page, ".attn-how")[0].startswith(f"Each word is sampled at random (sample {seed}). Beam search")
        drawn.append(words(page))
    assert len(set(map(tuple, drawn))) > 1, "draws differ"


def test_draws_follow_the_sharpened_probabilities(live, widget):
    """With logits log 1 to log 4, a temperature T draws in proportion to 1, 2, 3 and 4 to the power of 1 / T."""
    with live(widget) as page:
        for temperature in (0.5, 1.0, 1.5):
            script = (
                """t => Array.from({ length: 8000 }, (_, k) => drawing(t, 1 + (k >> 3))([.1, .2, .3, .4], k % 8))"""
            )
            drawn = np.bincount(page.evaluate(script, temperature), minlength=4) / 8000
            shares = np.arange(1, 5) ** (1 / temperature)
            np.testing.assert_allclose(drawn, shares / shares.sum(), atol=0.02)


def test_one_head_or_the_mean_is_shown(page, model, widget):
    names = ["layer 0 head 0", "layer 0 head 1", "layer 1 head 0", "layer 1 head 1"]
    assert texts(page, ".attn-said") == ["mean of all", *names]
    mean, heads = weights(page), []
    for name in names:
        page.get_by_label(f"show {name}").check()
        heads.append(weights(page))
        np.testing.assert_allclose(heads[-1].sum(1), 1, atol=0.06)
        assert texts(page, ".attn-scale") == [f"{heads[-1].max():.2f} attention weight"]
    np.testing.assert_allclose(np.mean(heads, axis=0), mean, atol=0.011)
    assert max(np.abs(head - mean).max() for head in heads) > 0.05
    drawn = page.locator(".attn-square").evaluate_all("all => all.map((e) => e.style.backgroundColor)")
    top = np.unravel_index(heads[-1].argmax(), heads[-1].shape)
    assert drawn[np.ravel_multi_index(top, heads[-1].shape)] == "rgb(50, 20, 116)"
    pictures = page.locator(".attn-view canvas").evaluate_all("all => all.map((e) => e.toDataURL())")
    assert len(set(pictures)) == 5


def test_a_switched_off_head_finds_nothing(page, model):
    """The same as a model whose projection reads zeros in that head's place."""
    page.get_by_label("layer 0 head 1 on").uncheck()
    cut = dequantised(model)
    with torch.no_grad():
        cut.decoder.layers[0].cross_attention.out.weight[:, 8:] = 0
    ids = [*TARGET.encode(words(page)[:-1]), Vocab.EOS]
    mean = logits(cut, SENTENCE, words(page)[:-1])[range(len(ids)), ids].mean().item()
    assert words(page) == expected(cut, SENTENCE)
    assert float(texts(page, ".attn-facts")[0][-6:-1]) == pytest.approx(-mean, abs=0.0006)


def test_a_model_without_heads_has_none_to_choose_and_one_without_an_end_is_cut(show):
    model = recurrent()
    widget = Translator.of(model, SOURCE, TARGET, "the cat sleeps .")
    with show(widget.static_html(), reduced_motion="reduce") as page:
        unfold(page)
        assert texts(page, ".attn-heads") == [] and texts(page, ".attn-kind") == [
            "recurrent, with Bahdanau’s attention"
        ]
        assert (
            words(page) == expected(dequantised(model), "the cat sleeps .")[:-1] == widget.exported["example"]["words"]
        )
        assert len(words(page)) == 60 and texts(page, ".attn-facts")[0].endswith(
            "Cut off after 60 words: no <eos> came."
        )
        np.testing.assert_allclose(weights(page), widget.exported["example"]["weights"], atol=0.011)


def test_after_the_sentence_tab_leads_to_the_words(page, model):
    field(page).focus()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type("the cat sees .")
    page.keyboard.press("Enter")
    assert words(page) == expected(model, "the cat sees .")
    for _ in range(4):
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.place") == "1"
    assert page.locator(".attn-word[tabindex='0']").count() == 1 and texts(page, ".attn-read")[0].startswith("chat → ")
