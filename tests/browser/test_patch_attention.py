"""Attention over patches in a page: what it says against NumPy, and its controls by pointer, finger and keys."""

import pytest
import torch

from attn_book.corpus import draw_scenes
from attn_book.widgets.patch_attention import PatchAttentionExplorer

pytestmark = pytest.mark.browser

DRAWN = draw_scenes(3, seed=3)
PICTURES = DRAWN.images.permute(0, 2, 3, 1)
LENGTHS = [len(caption) for caption in DRAWN.captions]
ANSWERS = ["It says: <b>one</b>.\nTrue: two & three.", "", "Yes."]


def random_weights(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).mul(1.5).softmax(-1)


def captioner(*, layers=2, heads=3, **options):
    weights = [random_weights(layers, heads, length, 36, seed=i) for i, length in enumerate(LENGTHS)]
    given = {"patch_size": 8, "queries": DRAWN.captions, "answers": ANSWERS, **options}
    return weights, PatchAttentionExplorer(PICTURES, weights, **given)


def transformer(*, class_token=True, patch_size=8, heads=4, images=3, **options):
    patches = (48 // patch_size) ** 2
    weights = random_weights(images, 2, heads, patches + class_token, patches + class_token)[..., int(class_token) :]
    return weights, PatchAttentionExplorer(PICTURES[:images], weights, patch_size=patch_size, **options)


def html(widget):
    return widget.static_html()


def choose(page, group, value):
    page.locator(f".attn-{group} input[value='{value}']").check(force=True)


def chosen(page, group):
    return page.locator(f".attn-{group} .attn-chosen").inner_text()


def said(page):
    return page.locator(".attn-read").inner_text().replace("\u00a0", " ")


def percent(weight):
    return f"{100 * weight:.1f} %"


def place(page, patch, size=8):
    """The middle of a patch in the picture, as a position within it."""
    step = page.locator(".attn-area canvas").bounding_box()["width"] * size / 48
    return {"x": (patch % (48 // size) + 0.5) * step, "y": (patch // (48 // size) + 0.5) * step}


def test_rows_with_ties_and_without_weight_say_so(show):
    weights = torch.tensor([[0.25] * 4, [0, 0, 0, 0], [0, 0.5, 0, 0], [0.4, 0.3, 0.2, 0.1]])
    widget = PatchAttentionExplorer(PICTURES[:1], [weights], patch_size=24, queries=[["all", "no", "one", "four"]])
    with show(html(widget)) as page:
        found = []
        for query in range(4):
            choose(page, "queries", query)
            found.append((said(page), page.locator(".attn-whole").inner_text().replace("\u00a0", " ")))
    assert found == [
        ("“all” gives its largest weight, 25.0 %, to 4 of 4 patches.", ""),
        ("“no” gives the patches no weight.", "All patches together: 0 %."),
        ("“one” attends most to patch 1 (50.0 %).", "All patches together: 50 %."),
        ("“four” attends most to patches 0 (40.0 %), 1 (30.0 %), 2 (20.0 %).", ""),
    ]


def test_the_pointer_and_the_keys_read_a_patch(show):
    weights, widget = captioner(layers=1, heads=1, query=2)
    row = weights[0][0, 0, 2].numpy()

    def reading(r):
        rank = 1 + (row > row[r]).sum()
        word = DRAWN.captions[0][2]
        text = f"“{word}” → patch {r} (row {r // 6}, column {r % 6}): weight {percent(row[r])}, rank {rank} of 36."
        return text, f"{percent(row[r])} · #{rank}"

    with show(html(widget)) as page:
        area, cell, tag = (page.locator(f".attn-{name}") for name in ("area", "cell", "tag"))
        at_rest = said(page)
        assert tag.is_hidden()
        for patch in (0, 5, 14, 30, 35):
            area.hover(position=place(page, patch))
            assert (said(page), tag.inner_text().replace("\u00a0", " ")) == reading(patch)
            box, around = tag.bounding_box(), area.bounding_box()
            assert around["x"] <= box["x"] and box["x"] + box["width"] <= around["x"] + around["width"] + 0.5
        page.mouse.move(1, 1)
        assert said(page) == at_rest and tag.is_hidden()
        cell.focus()
        keys = {"ArrowRight": 1, "ArrowDown": 7, "ArrowLeft": 6, "ArrowUp": 0, "End": 5, "Control+End": 35, "Home": 30}
        for key, patch in keys.items():
            page.keyboard.press(key)
            assert (said(page), tag.inner_text().replace("\u00a0", " ")) == reading(patch)
            assert cell.get_attribute("aria-label").replace("\u00a0", " ") == reading(patch)[0]
            assert page.locator("[role=row]").get_attribute("aria-rowindex") == str(patch // 6 + 1)
            assert cell.get_attribute("aria-colindex") == str(patch % 6 + 1)
            middle = cell.bounding_box()
            found = {"x": middle["x"] + middle["width"] / 2, "y": middle["y"] + middle["height"] / 2}
            box = area.bounding_box()
            assert {k: found[k] - box[k] for k in found} == pytest.approx(place(page, patch), abs=1)
        page.keyboard.press("ArrowLeft")
        assert said(page) == reading(30)[0], "the edge holds"
        page.keyboard.press("Enter")
        assert chosen(page, "queries") == DRAWN.captions[0][2], "a caption's queries are its words"


def test_a_patch_becomes_the_query_by_click_and_by_enter(show):
    weights, widget = transformer(head=0)
    with show(html(widget)) as page:
        assert said(page).startswith("The class token attends most") and chosen(page, "queries") == "class token"
        page.locator(".attn-area").click(position=place(page, 20))
        page.mouse.move(1, 1)
        best = int(weights[0][0, 0, 21].argmax())
        assert said(page).startswith(f"Patch 20 attends most to patches {best} (")
        assert chosen(page, "queries") == "patch 20"
        assert page.locator(".attn-cell").get_attribute("aria-selected") == "true"
        page.keyboard.press("ArrowDown")
        assert page.locator(".attn-cell").get_attribute("aria-selected") == "false"
        for key in ("Enter", "ArrowUp", " "):
            page.keyboard.press(key)
        assert chosen(page, "queries") == "patch 20"
        page.locator(".attn-queries input:checked").press("ArrowLeft")
        assert chosen(page, "queries") == "class token"
        page.keyboard.press("ArrowRight")
        assert chosen(page, "queries") == "patch 20", "the last one is kept"
        choose(page, "images", 1)
        assert chosen(page, "queries") == "patch 20"
    _, widget = transformer(class_token=False, patch_size=6)
    with show(html(widget)) as page:
        page.locator(".attn-area").click(position=place(page, 63, 6))
        assert said(page).startswith("Patch 63 → patch 63 (row 7, column 7)")
        assert page.locator(".attn-queries label").count() == 1


def test_a_finger_reads_and_lets_go(show):
    _, widget = captioner()
    with show(html(widget), has_touch=True) as page:
        at_rest = said(page)
        page.locator(".attn-area").tap(position=place(page, 9))
        assert "patch 9 (row 1, column 3)" in said(page)
        choose(page, "queries", 1)
        choose(page, "queries", 0)
        assert said(page) == at_rest


def test_play_steps_through_the_words_and_pauses(show):
    _, widget = captioner()
    words = DRAWN.captions[0]
    with show(html(widget), apart=True) as page:
        page.clock.install(time=0)
        page.reload()
        page.clock.pause_at(60_000)
        play = page.locator(".attn-play")
        play.click()
        assert (chosen(page, "queries"), play.inner_text()) == (words[1], "Pause")
        page.clock.run_for(1300)
        assert chosen(page, "queries") == words[2]
        play.click()
        page.clock.run_for(9000)
        assert (page.locator(".attn-queries input:checked").input_value(), play.inner_text()) == ("2", "Play")
        play.click()
        choose(page, "queries", 0)
        page.clock.run_for(9000)
        assert (page.locator(".attn-queries input:checked").input_value(), play.inner_text()) == ("0", "Play")
        play.click()
        page.clock.run_for(1200 * len(words))
        last = str(len(words) - 1)
        assert (page.locator(".attn-queries input:checked").input_value(), play.inner_text()) == (last, "Play")
        play.click()
        assert (page.locator(".attn-queries input:checked").input_value(), play.inner_text()) == ("0", "Pause")
        choose(page, "images", 1)
        assert play.inner_text() == "Play"


def test_less_motion_is_a_step_for_each_press(show):
    _, widget = captioner(image=1, query=LENGTHS[1] - 2)
    with show(html(widget), reduced_motion="reduce", apart=True) as page:
        page.clock.install(time=0)
        page.reload()
        page.clock.pause_at(60_000)
        play = page.locator(".attn-play")
        for query in (LENGTHS[1] - 1, 0, 1):
            play.press("Enter")
            page.clock.run_for(5000)
            assert page.locator(".attn-queries input:checked").input_value() == str(query)
            assert play.inner_text() == "Next word"


def test_tab_reaches_every_control_and_shows_it(show):
    _, widget = captioner()
    with show(html(widget)) as page:
        order = []
        for _ in range(6):
            page.keyboard.press("Tab")
            order.append(page.evaluate("document.activeElement.name || document.activeElement.className"))
            ring = "e => [e, e.parentElement].some((e) => getComputedStyle(e).outlineStyle === 'solid')"
            shadow = "e => getComputedStyle(e).boxShadow !== 'none'"
            here = page.locator(":focus")
            assert here.evaluate(ring) or here.evaluate(shadow), order
        assert order == ["images", "queries", "attn-button attn-play", "attn-cell", "layer", "heads"]
        page.keyboard.press("ArrowRight")
        assert chosen(page, "heads") == "head 0"
        page.locator("input[name=layer]").press("End")
        assert page.locator("input[name=layer]").get_attribute("aria-valuetext") == "1, layer 1 of 0 to 1"


def test_a_notebook_does_not_see_the_keys_meant_for_it(show):
    _, widget = transformer()
    with show(html(widget)) as page:
        page.evaluate("() => { window.seen = []; document.addEventListener('keydown', (e) => seen.push(e.key)); }")
        page.locator(".attn-cell").focus()
        for key in ("ArrowDown", "Enter", " ", "End", "Escape"):
            page.keyboard.press(key)
        for name in ("layer", "heads", "images", "queries"):
            page.locator(f"input[name={name}]").first.press("ArrowRight")
        assert page.evaluate("seen") == ["Escape"]


def test_words_and_answers_are_text(show):
    evil = "<img src=x onerror=alert(1)>"
    words, answers = [[evil, " ", "\u202e", "x" * 40]], [f"{evil}\n&amp;"]
    weights = [random_weights(4, 4)]
    widget = PatchAttentionExplorer(PICTURES[:1], weights, patch_size=24, queries=words, answers=answers, title=evil)
    with show(html(widget)) as page:
        assert page.locator("img").count() == 0
        texts = page.locator(".attn-queries .attn-said").all_inner_texts()
        assert texts == ["<img src=x onerror=aler…", "␣", "␣", "x" * 23 + "…"]
        assert page.locator(".attn-answer").inner_text() == answers[0]
        assert page.locator(".attn-title").inner_text() == evil


def test_copies_on_a_page_are_independent(show):
    _, widget = captioner()
    with show(html(widget) * 2) as page:
        page.locator(".attn-heads input[value='2']").nth(1).check(force=True)
        page.locator(".attn-queries input[value='3']").nth(0).check(force=True)
        assert page.locator(".attn-heads .attn-chosen").all_inner_texts() == ["mean", "head 2"]
        values = page.locator(".attn-queries input:checked").evaluate_all("all => all.map((e) => e.value)")
        assert values == ["3", "0"]


def test_what_is_set_from_python_is_drawn_and_the_view_ends(show):
    _, widget = captioner()
    script = str(widget._esm).replace("export default", "const widget =")
    state = {name: getattr(widget, name) for name in widget.trait_names(static=True)}
    with show(f'<style>{widget._css}</style><div id="here"></div><script>{script}</script>') as page:
        seen = page.evaluate(
            """async (state) => {
                 const [on, told] = [[], []];
                 const model = {
                   get: (name) => state[name],
                   set: (name, value) => { state[name] = value; },
                   save_changes: () => told.push(1),
                   on: (event, f) => on.push([event, f]),
                   off: (event, f) => on.splice(on.findIndex(([e, g]) => e === event && g === f), 1),
                 };
                 const el = document.querySelector('#here');
                 const stop = widget.render({ model, el });
                 Object.assign(state, { image: 2, layer: 1, head: 1, query: 99 });
                 on.forEach(([, f]) => f());
                 await null;
                 const found = [...el.querySelectorAll('input:checked, input[type=range]')].map((e) => e.value);
                 el.querySelector('.attn-play').click();
                 const query = state.query;
                 stop();
                 await new Promise((done) => setTimeout(done, 1300));
                 return [found, query, state.query, told.length, on.length, el.children.length];
               }""",
            state,
        )
        assert seen == [["2", str(LENGTHS[2] - 1), "1", "1"], 0, 0, 1, 0, 0]
