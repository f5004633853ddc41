import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

from attn_book.widgets import AttentionHeatmap

pytestmark = pytest.mark.browser

SOURCE, TARGET = "the black cat .".split(), "le chat noir".split()
# No mirror image of itself, so that rows taken for columns show.
LINKS = [(0, 0), (2, 1), (3, 2)]
WEIGHTS = (
    torch.tensor(
        [
            [[0.7, 0.1, 0.2, 0], [0.02, 0.04, 0.93, 0.01], [0.1, 0.8, 0.1, 0]],
            [[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.002, 0.008, 0.24, 0.75]],
        ]
    ).expand(3, 2, 3, 4)
    * torch.tensor([1, 0.5, 0.25])[:, None, None, None]
)
HOSTILE = "</script><img src=x onerror=\"document.title='hit'\">"


def heatmap(**changes):
    arguments = {"weights": WEIGHTS, "source": SOURCE, "target": TARGET, "links": LINKS, **changes}
    return AttentionHeatmap(arguments.pop("weights"), arguments.pop("source"), arguments.pop("target"), **arguments)


def cell(page, t, s, widget=0):
    """The middle of a cell, from the top left corner of the drawing."""
    box = page.locator(".attn-area").nth(widget).bounding_box()
    shape = (len(TARGET), len(SOURCE))
    return {"x": (s + 0.5) * box["width"] / shape[1], "y": (t + 0.5) * box["height"] / shape[0]}


def reading(page, widget=0):
    return page.locator(".attn-read").nth(widget).inner_text()


def picture(locator):
    return np.asarray(Image.open(io.BytesIO(locator.screenshot())).convert("RGB")).astype(int)


def slide(page, name, value, widget=0):
    page.locator(f"input[name={name}]").nth(widget).evaluate(
        "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})) }", str(value)
    )


def choose(page, head, widget=0):
    page.locator(".attn-heatmap").nth(widget).locator(".attn-view").nth(head).click()


def chosen(page, widget=0):
    """The head that the radio buttons say, and the one that looks chosen."""
    root = page.locator(".attn-heatmap").nth(widget)
    checked = root.locator("input[type=radio]").evaluate_all("all => all.map((e) => e.checked)")
    framed = root.locator(".attn-view").evaluate_all("all => all.map((e) => e.className.includes('chosen'))")
    assert checked == framed and sum(checked) == 1
    return checked.index(True)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_draws_dark_on_light_or_light_on_dark_and_outlines_the_truth(show, theme):
    with show(heatmap().static_html(), theme=theme) as page:
        assert page.locator(".attn-picture").count() == 0
        image = picture(page.locator(".attn-area"))
        high, low = 255 * np.array([0, 1]) if theme == "dark" else 255 * np.array([1, 0])
        size = image.shape[1] // 4
        strong, weak = (image[size * t + size // 2, size * s + size // 2].mean() for t, s in [(1, 2), (1, 3)])
        assert abs(strong - low) < abs(weak - low) and abs(weak - high) < 70
        mark = {"light": (217, 104, 15), "dark": (255, 157, 61)}[theme]

        def outlined(t, s):
            part = image[size * t : size * (t + 1), size * s : size * (s + 1)]
            return bool((np.abs(part - mark).sum(-1) < 24).sum() > size)

        found = {(s, t) for t in range(3) for s in range(4) if outlined(t, s)}
        assert found == set(LINKS)


def test_choosers_change_the_drawing_and_what_is_read(show):
    with show(heatmap().static_html()) as page:
        area = page.locator(".attn-area")
        first = picture(area)
        choose(page, 1)
        assert (picture(area) != first).any()
        area.hover(position=cell(page, 0, 3))
        assert reading(page) == "le → .: 0.40"
        slide(page, "layer", 1)
        assert reading(page) == "le → .: 0.20"
        assert page.locator("input[name=layer]").get_attribute("aria-valuetext") == "1, layer 1 of 0 to 2"
        page.locator("input[name=layer]").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator(".attn-value").first.inner_text() == "2"


def test_keys_choose_a_head(show):
    with show(heatmap(head=1).static_html()) as page:
        assert chosen(page) == 1
        page.keyboard.press("Tab")  # the layer
        page.keyboard.press("Tab")
        button = page.locator(".attn-gallery input:focus")
        assert button.get_attribute("aria-label") == "head 1"
        assert page.locator(".attn-view").nth(1).evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
        page.keyboard.press("ArrowRight")
        assert chosen(page) == 0, "after the last comes the first"
        page.keyboard.press("ArrowLeft")
        assert chosen(page) == 1
        page.locator(".attn-area").hover(position=cell(page, 0, 3))
        assert reading(page) == "le → .: 0.40"
        page.keyboard.press("Tab")
        assert page.locator(".attn-cell:focus").count() == 1, "the heads are one stop"


def test_a_head_set_from_python_moves_the_mark(show):
    widget = heatmap()
    script = str(widget._esm).replace("export default", "const widget =")
    state = {name: getattr(widget, name) for name in widget.trait_names(static=True)}
    style = f"<style>{widget._css}</style>"
    with show(f'{style}<div id="here"></div><script>{script}</script>') as page:
        page.evaluate(
            """state => {
                 const on = new Map();
                 const model = {
                   get: (name) => state[name], set: (name, value) => (state[name] = value), save_changes() {}, off() {},
                   on: (event, f) => on.set(event, [...(on.get(event) ?? []), f]),
                 };
                 window.receive = (name, value) => {
                   state[name] = value;
                   for (const f of on.get('change:' + name)) f();
                 };
                 window.state = state;
                 widget.render({ model, el: document.querySelector('#here') });
               }""",
            state,
        )
        assert chosen(page) == 0
        page.evaluate("receive('head', 1)")
        assert chosen(page) == 1
        page.locator(".attn-area").hover(position=cell(page, 0, 3))
        assert reading(page) == "le → .: 0.40"
        choose(page, 0)
        assert page.evaluate("state.head") == 0


def test_small_maps_are_drawn_anew_for_another_layer_and_for_nothing_else(show):
    with show(heatmap().static_html()) as page:
        view = page.locator(".attn-view canvas").first
        holed = view.evaluate("e => { e.getContext('2d').clearRect(0, 0, 1, 1); return e.toDataURL(); }")
        choose(page, 1)
        page.locator(".attn-row").first.click()
        page.locator(".attn-area").hover(position=cell(page, 0, 3))
        assert view.evaluate("e => e.toDataURL()") == holed
        slide(page, "layer", 1)
        assert view.evaluate("e => e.getContext('2d').getImageData(0, 0, 1, 1).data[3]") == 255


def test_a_notebook_sees_its_own_keys_but_none_that_choose(show):
    with show(heatmap().static_html()) as page:
        page.evaluate("() => { window.seen = []; document.addEventListener('keydown', (e) => seen.push(e.key)); }")
        for name in ("layer", "head"):
            page.keyboard.press("Tab")
            page.evaluate("seen.length = 0")
            for key in ("ArrowRight", "ArrowDown", "Shift+Enter", "Control+ArrowUp"):
                page.keyboard.press(key)
            assert page.evaluate("seen") == ["Shift", "Enter", "Control", "ArrowUp"], name
        assert page.locator("input[name=layer]").input_value() != "0"


def test_no_chooser_where_there_is_no_choice(show):
    with show(heatmap(weights=WEIGHTS[0, 0]).static_html() + heatmap(weights=WEIGHTS[0]).static_html()) as page:
        assert page.locator(".attn-heatmap").nth(0).locator("input, .attn-gallery").count() == 0
        assert page.locator(".attn-heatmap").nth(1).locator("input").count() == 2
        assert page.locator("input[name=layer]").count() == 0


def test_layers_have_the_names_they_were_captured_under(show):
    captured = {"encoder.0": [WEIGHTS[:1, 0, None]], "encoder.1": [WEIGHTS[1:2, 0, None]]}
    with show(heatmap(weights=captured, layer=1).static_html()) as page:
        assert page.locator(".attn-value").inner_text() == "encoder.1"


@pytest.mark.parametrize(
    ("names", "label", "said"),
    [
        (["0", "1"], "layer", "1, layer 1 of 0 to 1"),
        (["encoder.layers.0.attention", "final_layer"], "layer", "final_layer, layer 1 of 0 to 1"),
        (["β = 0.1", "β = 1"], "map", "β = 1"),
        (["dot", "general"], "map", "general"),
    ],
)
def test_the_slider_is_named_for_what_it_chooses(show, names, label, said):
    with show(heatmap(weights={name: [WEIGHTS[:1, 0, None]] for name in names}, layer=1).static_html()) as page:
        slider = page.get_by_role("slider", name=label, exact=True)
        assert slider.get_attribute("aria-valuetext") == said
        assert page.locator(".attn-chooser").first.inner_text().startswith(label)


def test_pointer_reads_every_weight(show):
    widget = heatmap(layer=1, head=1)
    with show(widget.static_html()) as page:
        for t, s in np.ndindex(3, 4):
            page.locator(".attn-area").hover(position=cell(page, t, s))
            said = re.fullmatch(r"(.+) → (.+): <?([\d.]+)(, true alignment)?", reading(page))
            assert said, reading(page)
            assert said.group(1, 2) == (TARGET[t], SOURCE[s])
            assert abs(float(said[3]) - WEIGHTS[1, 1, t, s]) <= 0.005 + widget.scale / 510 + 0.004 * ("<" in said[0])
            assert bool(said[4]) == ((s, t) in LINKS)
        page.mouse.move(1, 1)
        assert reading(page).startswith("Point at a cell")


def test_keys_walk_the_grid_read_it_and_keep_a_row(show):
    with show(heatmap(weights=WEIGHTS[0, 0]).static_html()) as page:
        page.keyboard.press("Tab")
        here = page.locator(".attn-cell")
        assert here.evaluate("e => e === document.activeElement && e.matches(':focus-visible')")

        def press(keys, t, s):
            for key in keys.split():
                page.keyboard.press(key)
            place = [here.evaluate("e => e.parentElement.ariaRowIndex"), here.get_attribute("aria-colindex")]
            assert place == [str(t + 1), str(s + 1)]
            assert reading(page) == here.get_attribute("aria-label")
            assert reading(page).startswith(f"{TARGET[t]} → {SOURCE[s]}: {WEIGHTS[0, 0, t, s]:.2f}")

        press("ArrowUp ArrowLeft", 0, 0)
        press("ArrowDown ArrowRight ArrowRight", 1, 2)
        assert reading(page) == "chat → cat: 0.93, true alignment"
        press("End", 1, 3)
        press("ArrowRight", 1, 3)
        press("Home", 1, 0)
        press("Control+End", 2, 3)
        press("Control+Home", 0, 0)
        page.keyboard.press("Enter")
        pressed = page.locator(".attn-row").evaluate_all("rows => rows.map((row) => row.ariaPressed)")
        assert pressed == ["true", "false", "false"]
        page.keyboard.press("Escape")
        assert page.locator(".attn-row[aria-pressed=true]").count() == 0
        page.keyboard.press("Tab")
        assert here.evaluate("e => e !== document.activeElement"), "the grid is one stop, and lets go"


def test_a_click_keeps_a_row_and_dims_the_others(show):
    with show(heatmap(weights=WEIGHTS[0, 0], links=None).static_html()) as page:
        area = page.locator(".attn-area")
        before = picture(area)
        size = before.shape[1] // 4

        def changed(t):
            return bool((picture(area) != before)[size * t + 4 : size * (t + 1) - 4].any())

        page.locator(".attn-row").nth(1).click()
        page.mouse.move(1, 1)
        assert reading(page) == "chat → cat 0.93, black 0.04, the 0.02"
        assert [changed(t) for t in range(3)] == [True, False, True]
        area.click(position=cell(page, 1, 0))
        page.mouse.move(1, 1)
        page.locator(".attn-cell").evaluate("e => e.blur()")
        assert [changed(t) for t in range(3)] == [False, False, False]


def test_a_finger_reads_a_weight(show):
    with show(heatmap(weights=WEIGHTS[0, 0]).static_html(), has_touch=True) as page:
        page.locator(".attn-area").tap(position=cell(page, 1, 2))
        assert reading(page) == "chat → cat: 0.93, true alignment"


def test_hostile_tokens_are_text(show):
    widget = heatmap(source=[HOSTILE, "<b>", "$x$", ""], target=[HOSTILE, "&amp;", "a"], title=HOSTILE, head=1)
    with show(widget.static_html()) as page:
        assert page.locator(".attn-title").inner_text() == HOSTILE
        labels = page.locator(".attn-column").all_inner_texts()
        assert labels == [HOSTILE[:23] + "…", "<b>", "$x$", "␣"]
        page.locator(".attn-area").hover(position={"x": 5, "y": 5})
        assert reading(page).startswith("</script><img")
        assert page.locator(".attn-static img, .attn-static b").count() == 0
        assert page.title() == "t"


def test_copies_on_a_page_are_independent(show):
    text = heatmap().static_html()
    with show(text + text) as page:
        assert page.locator(".attn-heatmap").count() == 2
        choose(page, 1, widget=1)
        assert (chosen(page, 0), chosen(page, 1)) == (0, 1)
        choose(page, 0, widget=1)
        slide(page, "layer", 2, widget=1)
        assert page.locator("input[name=layer]").evaluate_all("all => all.map((e) => e.value)") == ["0", "2"]
        page.locator(".attn-area").nth(0).hover(position=cell(page, 1, 2))
        assert reading(page, 0) == "chat → cat: 0.93, true alignment"
        page.locator(".attn-area").nth(1).hover(position=cell(page, 1, 2, widget=1))
        assert reading(page, 1) == "chat → cat: 0.23, true alignment"


def test_without_scripts_the_picture_stands(show, drawn):
    with show(heatmap().static_html(), java_script_enabled=False) as page:
        image = page.locator(".attn-picture")
        assert image.is_visible() and image.bounding_box()["width"] > 100
        assert "chat → cat" in image.get_attribute("alt")


def test_follows_the_theme_and_prints_light(show):
    with show(heatmap(weights=WEIGHTS[0, 0]).static_html()) as page:
        area = page.locator(".attn-area")
        light = picture(area).mean()
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        page.wait_for_selector(".attn-heatmap[data-theme=dark]")
        assert picture(area).mean() < light - 80
        page.emulate_media(media="print")
        page.wait_for_selector(".attn-heatmap[data-theme=light]")
        assert picture(area).mean() == pytest.approx(light, abs=3)


@pytest.mark.parametrize("size", [3, 12, 64, 200])
def test_a_narrow_screen_scrolls_inside_the_widget(show, size):
    tokens = [f"word{i}" for i in range(size)]
    with show(AttentionHeatmap(torch.rand(2, size, size), tokens, tokens).static_html(), width=320) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 320
        scroll = page.locator(".attn-scroll")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Control+End")
        box, cell_box = scroll.bounding_box(), page.locator(".attn-cell").bounding_box()
        assert cell_box["x"] + cell_box["width"] <= box["x"] + box["width"] + 1
        assert page.locator(".attn-row").last.bounding_box()["x"] >= box["x"] - 1, "row labels stay in view"


def test_cleanup_leaves_nothing_behind(show):
    widget = heatmap()
    script = str(widget._esm).replace("export default", "const widget =")
    state = {name: getattr(widget, name) for name in widget.trait_names(static=True)}
    with show(f'<div id="here"></div><script>{script}</script>') as page:
        left = page.evaluate(
            """state => {
                 const on = [];
                 const model = {
                   get: (name) => state[name], set() {}, save_changes() {},
                   on: (event, f) => on.push([event, f]),
                   off: (event, f) => on.splice(on.findIndex(([e, g]) => e === event && g === f), 1),
                 };
                 const el = document.querySelector('#here');
                 const stop = widget.render({ model, el });
                 const during = [on.length, el.children.length];
                 stop();
                 return [...during.map((n) => n > 0), on.length, el.children.length];
               }""",
            state,
        )
        assert left == [True, True, 0, 0]
