"""The translator in a page: what is typed, what comes word by word, what is forced, searched, drawn, switched off."""

import itertools
import json
import re
from contextlib import contextmanager
from importlib import resources

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
MODEL = """
  window.state = STATE;
  window.told = [];
  const on = [];
  const model = {
    get: (name) => state[name],
    set(name, value) {
      if (state[name] === value) return;
      state[name] = value;
      told.push([name, value]);
      on.filter(([event]) => event === 'change:' + name).forEach(([, f]) => f());
    },
    save_changes: () => {},
    on: (event, f) => on.push([event, f]),
    off: (event, f) => on.splice(on.findIndex(([e, g]) => e === event && g === f), 1),
  };
  window.model = model;
  window.listening = on;
  window.stop = widget.render({ model, el: document.querySelector('#here') });
"""
# The widget lays itself out anew in the frame after its room has changed.
FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


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


@contextmanager
def live(show, widget, **options):
    """The widget beside a model that can be asked what it holds, as with a kernel."""
    state = {name: getattr(widget, name) for name in widget.trait_names(static=True)}
    script = str(widget._esm).replace("export default", "const widget =")
    with show(f'<style>{widget._css}</style><div id="here"></div><script>{script}</script>', **options) as page:
        page.add_script_tag(content=MODEL.replace("STATE", json.dumps(state).replace("<", "\\u003c")))
        unfold(page)
        yield page


def texts(page, selector):
    return [text.replace("\u00a0", " ") for text in page.locator(selector).locator("visible=true").all_inner_texts()]


def words(page):
    return texts(page, ".attn-word .attn-token")


def field(page):
    return page.locator("input[name=sentence]")


def write(page, text):
    field(page).fill("")
    field(page).press_sequentially(text)


def press(page, name, **options):
    page.get_by_role("button", name=name, exact=True).click(**options)


def slide(page, name, value):
    page.locator(f"input[name={name}]").fill(str(value))


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


def test_a_word_shows_how_sure_the_model_is(page, model):
    found = logits(model, SENTENCE, words(page)[:-1]).exp()
    shares = [found[t, id].item() for t, id in enumerate([*TARGET.encode(words(page)[:-1]), Vocab.EOS])]
    styles = page.locator(".attn-word").evaluate_all("all => all.map((e) => +e.style.getPropertyValue('--attn-share'))")
    np.testing.assert_allclose(styles, shares, atol=1e-4)
    labels = page.locator(".attn-word").evaluate_all("all => all.map((e) => e.ariaLabel.replace('\u00a0', ' '))")
    assert labels[0].startswith("le, ") and all(label.endswith(" %") for label in labels)


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
    field(page).press_sequentially("sin")
    field(page).press("ArrowDown")
    field(page).press("Tab")
    assert field(page).input_value() == f"the {offered[0]} Dog sing " and options(page) == ([], None)
    field(page).press_sequentially("zz")
    assert options(page) == ([], None)


def test_a_word_is_completed_in_the_midst_of_a_sentence(page):
    write(page, "the sm cat sleeps .")
    for _ in range(len(" cat sleeps .")):
        field(page).press("ArrowLeft")
    field(page).press("ArrowDown")
    field(page).press("ArrowDown")
    field(page).press("Enter")
    assert field(page).input_value() == "the small cat sleeps ."
    assert field(page).evaluate("e => e.selectionStart") == len("the small ")


def test_tab_leaves_the_field_and_enter_translates_where_nothing_is_chosen(page, model):
    write(page, "the old cat sees")
    field(page).press("Enter")
    assert words(page)[:3] == ["le", "chat", "vieux"] and field(page).input_value() == "the old cat sees"
    field(page).press_sequentially(" s")
    assert options(page)[0]
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Translate" and options(page) == ([], None)


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


def test_nothing_is_sent_where_nothing_is_typed(page, model):
    for text in ("", "   "):
        field(page).fill(text)
        field(page).press("Enter")
        assert words(page) == expected(model, SENTENCE) and texts(page, ".attn-unknown") == []
        assert page.get_by_role("button", name="Translate").get_attribute("aria-disabled") == "true"


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


@pytest.mark.parametrize("text", TEXTS)
def test_a_sentence_becomes_the_words_that_python_makes_of_it(show, widget, text):
    with live(show, widget) as page:
        for known in (set(SOURCE.tokens), set(), {"n't"}):
            found = page.evaluate(
                "([text, known]) => readWords(text, (word) => known.includes(word))", [text, sorted(known)]
            )
            assert found == read_words(text, known)


def test_samples_are_those_whose_words_are_known(show, page, model):
    assert texts(page, ".attn-samples button") == [SENTENCE]
    write(page, "the cat sleeps .")
    page.locator(".attn-samples button").click()
    assert words(page) == expected(model, SENTENCE) and field(page).input_value() == SENTENCE
    vocab = Vocab(["the owl drank soup because it was hot . a king".split()])
    other = Transformer(TransformerConfig(len(vocab), model_dim=8, num_heads=1, num_layers=1, feed_forward_dim=8))
    with show(Translator.of(other, vocab, vocab, "a king .").static_html(), reduced_motion="reduce") as opened:
        assert texts(opened, ".attn-samples button") == ["a king .", "the owl drank the soup because it was hot ."]


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


def test_a_step_brings_one_word(page, model):
    whole = expected(model, SENTENCE)
    for count in (1, 2):
        press(page, "Next word")
        assert words(page) == whole[:count]
        assert page.locator("output.attn-unseen").inner_text() == "", "said when it is whole"
    for _ in whole[2:]:
        press(page, "Next word")
    assert words(page) == whole and page.locator("output.attn-unseen").inner_text() == f"Translation: {' '.join(whole)}"
    write(page, "the cat sees .")
    press(page, "Next word")
    assert words(page) == ["le"], "what is typed is translated first"


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


def test_the_end_can_be_forced_and_another_sentence_forgets_it(page, model):
    page.locator("[data-place='6']").click()
    ids = page.locator(".attn-option").evaluate_all("all => all.map((e) => +e.dataset.id)")
    if Vocab.EOS not in ids:  # it is likely enough behind some word
        page.locator("[data-place='7']").click()
    page.locator(f".attn-option[data-id='{Vocab.EOS}']").click()
    assert words(page)[-1] == "<eos>" and page.locator(".attn-forced").inner_text().startswith("<eos>")
    write(page, "the cat sees .")
    press(page, "Translate")
    assert words(page) == expected(model, "the cat sees .") and page.locator(".attn-forced").count() == 0


@pytest.mark.parametrize("size", [2, 5])
def test_a_beam_finds_what_python_finds(page, model, size):
    slide(page, "beam", size - 1)
    assert texts(page, ".attn-how") == [
        f"Beam search keeps the {size} most likely beginnings. Beam search and sampling cannot be combined."
    ]
    some = [p.source[::-1] for p in PAIRS] + [p.source for p in PAIRS]
    single, several = (translate(model, some, SOURCE, TARGET, beam_size=k, max_length=60) for k in (1, size))
    at = next(k for k, (one, other) in enumerate(zip(single, several, strict=True)) if one.words != other.words)
    for sentence in (" ".join(some[at]), SENTENCE):
        write(page, sentence)
        field(page).press("Enter")
        assert words(page) == expected(model, sentence, beam_size=size)
    assert page.locator("input[name=beam]").get_attribute("aria-valuetext") == str(size)


def test_a_draw_is_seeded_and_excludes_a_search(page, model):
    whole = expected(model, SENTENCE)
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
    press(page, "Translate")
    assert words(page) == drawn[-1], "and each is the same again"
    slide(page, "temperature", 1)
    assert texts(page, ".attn-slider .attn-value") == ["1", "0.5"]
    slide(page, "beam", 1)
    assert texts(page, ".attn-slider .attn-value") == ["2", "off"]
    assert texts(page, ".attn-how")[0].endswith(
        "The temperature is off again: beam search and sampling cannot be combined."
    )
    slide(page, "beam", 0)
    assert words(page) == whole and texts(page, ".attn-how") == ["Each word is the most likely one."]
    assert texts(page, ".attn-settings button") == []


def test_draws_follow_the_sharpened_probabilities(show, widget):
    """With logits log 1 to log 4, a temperature T draws in proportion to 1, 2, 3 and 4 to the power of 1 / T."""
    with live(show, widget) as page:
        for temperature in (0.5, 1.0, 1.5):
            script = (
                """t => Array.from({ length: 8000 }, (_, k) => drawing(t, 1 + (k >> 3))([.1, .2, .3, .4], k % 8))"""
            )
            drawn = np.bincount(page.evaluate(script, temperature), minlength=4) / 8000
            shares = np.arange(1, 5) ** (1 / temperature)
            np.testing.assert_allclose(drawn, shares / shares.sum(), atol=0.02)


def test_what_is_drawn_before_a_forced_word_stays(page):
    slide(page, "temperature", 11)
    for _ in range(5):
        before = words(page)
        place = min(2, len(before) - 1)
        take(page, place, rank=0)
        assert words(page)[:place] == before[:place]
        press(page, "Sample again")
        assert words(page)[:place] == before[:place], "and a new draw keeps what is forced"
        press(page, "Undo forced words")
        press(page, "Sample again")


def test_one_head_or_the_mean_is_shown(page, model, widget):
    names = ["layer 1 head 1", "layer 1 head 2", "layer 2 head 1", "layer 2 head 2"]
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


def test_heads_can_be_switched_off(page, model):
    found = {}
    for name in ("layer 1 head 1", "layer 1 head 2", "layer 2 head 1", "layer 2 head 2"):
        page.get_by_label(f"{name} on").uncheck()
        found[name] = (words(page), *texts(page, ".attn-facts"))
    assert len({facts[-7:] for _, facts in found.values()}) > 1, "another translation, or another probability"
    assert texts(page, ".attn-said")[0] == "mean of those on" and not weights(page).any()
    assert texts(page, ".attn-state") == ["off"] * 4
    page.get_by_label("layer 2 head 1 on").check()
    mean = weights(page)
    page.get_by_label("show layer 2 head 1").check()
    np.testing.assert_allclose(weights(page), mean, atol=1e-9)
    for name in found:
        page.get_by_label(f"{name} on").check()
    assert words(page) == expected(model, SENTENCE)


def test_a_switched_off_head_finds_nothing(page, model):
    """The same as a model whose projection reads zeros in that head's place."""
    page.get_by_label("layer 1 head 2 on").uncheck()
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


@pytest.mark.parametrize("width", [840, 900, 1200])
def test_pointing_at_a_word_moves_nothing_where_the_map_stands_beside_it(show, width):
    """A height that changes moves what stands below, and a click there is lost."""
    widget = Translator.of(recurrent(), SOURCE, TARGET, "the cat sleeps .")
    with show(widget.static_html(), width=width, reduced_motion="reduce") as page:
        assert page.locator(".attn-wide").count() == 1
        height = "document.querySelector('.attn-translator').getBoundingClientRect().height"
        before = page.evaluate(height)
        page.locator(".attn-word").first.hover()
        page.evaluate(FRAMES)
        assert page.locator(".attn-read:not(.attn-hint)").count() == 1 and page.evaluate(height) == before


def test_the_map_is_read_by_pointer(page):
    assert texts(page, ".attn-read")[0].startswith("Point at a cell")
    page.locator("[role=row]:nth-child(3) [role=cell]").nth(2).hover()
    held = f"{weights(page)[1, 2]:.2f}"
    assert texts(page, ".attn-read") == [f"chat → cat {held}"]
    assert texts(page, ".attn-on") == ["cat", "chat"]
    page.locator("[data-place='1']").hover()
    most = np.argsort(-weights(page)[1], kind="stable")[0]
    assert texts(page, ".attn-read")[0].startswith(f"chat → {[*SENTENCE.split(), '<eos>'][most]} ")
    page.mouse.move(1, 1)
    assert texts(page, ".attn-read")[0].startswith("Point at a cell") and texts(page, ".attn-on") == []


def test_all_is_done_by_keys(page, model):
    field(page).focus()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type("the cat sees .")
    page.keyboard.press("Enter")
    assert words(page) == expected(model, "the cat sees .")
    seen = []
    for _ in range(4):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.name || document.activeElement.textContent"))
    assert seen[:2] == ["Translate", "Next word"]
    assert page.evaluate("document.activeElement.dataset.place") == "0"
    for key, place in [
        ("ArrowRight", 1),
        ("End", 4),
        ("ArrowRight", 4),
        ("Home", 0),
        ("ArrowLeft", 0),
        ("ArrowDown", 1),
    ]:
        page.keyboard.press(key)
        assert page.evaluate("+document.activeElement.dataset.place") == place
        assert page.locator(".attn-word[tabindex='0']").count() == 1
    assert texts(page, ".attn-read")[0].startswith("chat → ")
    page.keyboard.press("Enter")
    for _ in range(2):
        page.keyboard.press("Tab")
    word = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Enter")
    assert words(page)[1] in word and page.locator(".attn-forced").count() == 1
    assert page.evaluate("document.activeElement.dataset.place") == "1"


def test_tokens_that_are_markup_are_text(page, model):
    sentence = "the old <b>&\"x' sleeps ."
    write(page, sentence)
    field(page).press("Enter")
    assert words(page) == expected(model, sentence) and "</script>" in words(page)
    page.locator("[data-place='1']").click()
    assert any(text.startswith("</script>, ") for text in alternatives(page))
    assert page.locator(".attn-card b, .attn-card img, .attn-card script").count() == 0
    assert texts(page, ".attn-row span")[1] == "</script>" and texts(page, ".attn-column span")[2] == "<b>&\"x'"


def test_a_kernel_hears_the_sentence_and_is_heard(show, widget, model):
    with live(show, widget, reduced_motion="reduce") as page:
        assert page.evaluate("told") == [], "to show it changes nothing"
        write(page, "the zebra sleeps .")
        field(page).press("Enter")
        write(page, "The cat sleeps.")
        field(page).press("Enter")
        assert page.evaluate("told") == [["sentence", "The cat sleeps."]]
        kernel = Translator(widget.exported, SENTENCE)
        kernel.set_state({"sentence": page.evaluate("state.sentence")})
        assert kernel.sentence == "The cat sleeps."
        page.evaluate("model.set('sentence', 'the old Dog sees .')")
        assert (
            words(page) == expected(model, "the old Dog sees .") and field(page).input_value() == "the old Dog sees ."
        )
        assert page.evaluate("[listening.length > 0, (stop(), listening.length), here.children.length]") == [True, 0, 0]


def test_a_notebook_does_not_see_the_keys_that_walk_or_type(page):
    page.evaluate("() => { window.seen = []; document.addEventListener('keydown', (e) => seen.push(e.key)); }")
    field(page).press_sequentially("dd0 b")
    page.locator("[data-place='0']").evaluate("e => e.focus()")
    for key in ("ArrowRight", "End", "ArrowLeft"):
        page.keyboard.press(key)
    page.locator("input[name=beam]").press("ArrowRight")
    assert page.evaluate("seen") == []


def test_copies_on_a_page_are_independent(show, widget):
    with show(widget.static_html() * 2, reduced_motion="reduce") as page:
        page.get_by_label("show layer 1 head 1").last.check()
        checked = page.locator("input[name=view]:checked").evaluate_all("all => all.map((e) => e.value)")
        assert checked == ["-1", "0"]
        field(page).last.fill("the cat sees .")
        field(page).last.press("Enter")
        assert page.locator(".attn-words").nth(0).inner_text() != page.locator(".attn-words").nth(1).inner_text()
        ids = page.locator("[role=listbox]").evaluate_all("all => all.map((e) => e.id)")
        assert len(set(ids)) == 2


def test_without_scripts_the_picture_stands(show, widget, drawn):
    with show(widget.static_html(), java_script_enabled=False) as page:
        image = page.locator(".attn-picture")
        assert image.is_visible() and image.bounding_box()["width"] > 100
        assert f"Sentence: {SENTENCE} Translation: le chat petit" in image.get_attribute("alt")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_fault(show, widget, theme):
    package = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed: make test-browser")
    axe = (resources.files(package) / "axe.min.js").read_text(encoding="utf-8")
    body = f"<main><h1>t</h1>{widget.static_html()}</main>"
    with show(body, theme=theme, reduced_motion="reduce") as page:
        page.evaluate(axe)
        unfold(page)
        steps = [
            lambda: None,
            lambda: page.locator("[data-place='1']").click(),
            lambda: page.locator(".attn-option").nth(1).click(),
            lambda: page.get_by_label("layer 1 head 2 on").uncheck(),
            lambda: slide(page, "temperature", 3),
            lambda: (write(page, "the zebra s"), field(page).press("ArrowDown")),
            lambda: page.set_viewport_size({"width": 320, "height": 900}),
        ]
        for step in steps:
            step()
            page.evaluate(FRAMES)
            rules = {"target-size": {"enabled": True}}
            found = page.evaluate("rules => axe.run('html', {rules}).then((found) => found.violations)", rules)
            assert not found, [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found]


@pytest.mark.parametrize("media", ["screen", "print"])
def test_nothing_leaves_a_narrow_screen(show, media):
    long = ["internationalization" * 2, "W" * 40, *"abcdefghijklmnopqrstuvwxyz"]
    vocab = Vocab([long])
    torch.manual_seed(0)
    sizes = {"model_dim": 8, "num_heads": 4, "num_layers": 3, "feed_forward_dim": 8}
    model = Transformer(TransformerConfig(len(vocab), **sizes))
    html = Translator.of(model, vocab, vocab, " ".join(long)).static_html()
    for width in (300, 320, 520, 760) if media == "screen" else (520, 760):  # no paper is narrower
        with show(html, width=width, reduced_motion="reduce") as page:
            page.locator("[data-place='1']").click()
            page.locator(".attn-option").nth(1).click()
            page.locator("[data-place='1']").click()
            for step in (lambda: None, lambda page=page: write(page, "V" * 60 + " W")):
                page.emulate_media(media="screen")
                step()
                page.emulate_media(media=media)
                page.evaluate(FRAMES)
                assert page.evaluate("document.documentElement.scrollWidth") == width
                edge = page.locator(".attn-card").evaluate("e => e.getBoundingClientRect().right")
                inside = "all => all.map((e) => [e.className, e.getBoundingClientRect().right])"
                outer = page.locator(".attn-card *:not(.attn-board, .attn-board *)").evaluate_all(inside)
                assert [one for one in outer if one[1] > edge - 5] == []
                if media == "screen" and width < 700:
                    box = page.locator(".attn-scroll")
                    assert box.evaluate("e => e.scrollWidth > e.clientWidth") and box.get_attribute("tabindex") == "0"


def test_follows_the_theme_and_prints_the_sentence_its_translation_and_the_map(page, model):
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.wait_for_selector(".attn-card[data-theme=dark]")
    dark = page.locator(".attn-square").first.evaluate("e => e.style.backgroundColor")
    page.locator("[data-place='1']").click()
    page.emulate_media(media="print")
    page.wait_for_selector(".attn-card[data-theme=light]")
    assert page.locator(".attn-card").evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator(".attn-square").first.evaluate("e => e.style.backgroundColor") != dark
    assert page.locator(".attn-button:visible, .attn-card input:visible, .attn-option:visible").count() == 0
    assert texts(page, ".attn-printed") == [SENTENCE] and words(page) == expected(model, SENTENCE)
    assert texts(page, ".attn-row span") == expected(model, SENTENCE)
    assert page.locator(".attn-card").evaluate("e => getComputedStyle(e).printColorAdjust") == "exact"
    page.emulate_media(media="screen")
    write(page, "the zebra")
    page.emulate_media(media="print")
    assert texts(page, ".attn-printed") == [SENTENCE] and texts(page, ".attn-unknown, .attn-earlier") == []
    assert page.locator(".attn-square").first.evaluate("e => getComputedStyle(e).filter") == "none"
