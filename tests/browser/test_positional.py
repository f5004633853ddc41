"""The explorer of sinusoidal positions in a page: its numbers, its controls, its looks."""

import io
from importlib import resources

import numpy as np
import pytest
import torch
from PIL import Image

from attn_book.widgets import PositionalEncodingExplorer
from attn_core.positions import sinusoidal

pytestmark = pytest.mark.browser

SLIDERS = ("dim", "length", "base", "position", "offset", "pair")
# Sizes even and odd, offsets that stay in the table and leave it at either end.
STATES = [
    {},
    {"dim": 7, "length": 12, "base": 10, "position": 11, "column": 5, "offset": 8},
    {"dim": 255, "length": 30, "base": 100_000, "position": 3, "column": 128, "offset": -29},
    {"dim": 256, "length": 256, "base": 2, "position": 250, "column": 1, "offset": -17},
    {"dim": 2, "length": 8, "base": 12_345, "column": 0, "offset": 0},
]
each_state = pytest.mark.parametrize("state", STATES, ids=lambda state: f"dim{state.get('dim', 32)}")


def html(**state):
    return PositionalEncodingExplorer(**state).static_html()


def rows(widget, positions):
    """Encodings of any positions, those below 0 too: sine is odd, cosine even."""
    table = sinusoidal(600, widget.dim, base=widget.base, dtype=torch.float64).numpy()
    sign = np.where(np.arange(widget.dim) % 2, 1, -1)
    return np.array([table[i] if i >= 0 else table[-i] * sign for i in positions])


def numbers(page, selector):
    return page.locator(selector).evaluate_all("all => all.map((e) => Number(e.dataset.value))")


def text(page, selector, nth=0):
    return page.locator(selector).nth(nth).inner_text().replace("\u00a0", " ")


def slide(page, name, value):
    page.locator(f"input[name={name}]").fill(str(value))


def values(page):
    return {name: float(page.locator(f"input[name={name}]").input_value()) for name in SLIDERS}


def point(page, place, selector=".attn-area"):
    """Where a cell (row, column, rows, columns) is on the page."""
    box = page.locator(selector).bounding_box()
    i, c, length, dim = place
    return box["x"] + (c + 0.5) * box["width"] / dim, box["y"] + (i + 0.5) * box["height"] / length


def picture(locator):
    return np.asarray(Image.open(io.BytesIO(locator.screenshot())).convert("RGB")).astype(int)


@each_state
def test_every_cell_pointed_at_has_the_value_of_the_package(show, state):
    widget = PositionalEncodingExplorer(**state)
    with show(widget.static_html()) as page:
        generator = np.random.default_rng(0)
        size = [widget.length, widget.dim]
        for i, c in [(0, 0), (size[0] - 1, size[1] - 1), *generator.integers(0, size, (8, 2))]:
            page.mouse.move(*point(page, (i, c, widget.length, widget.dim)))
            assert numbers(page, ".attn-read")[0] == pytest.approx(widget.table()[i, c], abs=1e-9)
            assert text(page, ".attn-read").startswith(f"PE[{i}, {c}] = {'cos' if c % 2 else 'sin'}(")
        page.mouse.move(1, 1)
        assert numbers(page, ".attn-read")[0] == pytest.approx(widget.table()[widget.position, widget.column], abs=1e-9)


def test_a_cell_is_told_with_its_frequency_and_its_wavelength(show):
    with show(html()) as page:
        said = "PE[10, 6] = sin(0.1778 · 10) = 0.9786; wavelength 35.33 positions"
        label = page.locator(".attn-cell").get_attribute("aria-label").replace("\u00a0", " ")
        assert text(page, ".attn-read") == label == said
        slide(page, "pair", 15)
        assert text(page, ".attn-read").endswith("= 0.0018; wavelength 35,333 positions")


@each_state
def test_the_rotation_is_by_the_offset_times_the_frequency(show, state):
    widget = PositionalEncodingExplorer(**state)
    start = widget.column // 2 * 2
    pair = slice(start, start + 2)
    with show(widget.static_html()) as page:
        for offset in (widget.offset, 0, 1, 1 - widget.length):
            slide(page, "offset", offset)
            angle = offset / widget.base ** (start / widget.dim)
            block = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
            at = rows(widget, [widget.position, widget.position + offset])[:, pair]
            shown = numbers(page, ".attn-bracket span")
            np.testing.assert_allclose(shown, [*at[1], *block.flatten(), *at[0]], atol=1e-9)
            assert [float(t.replace("−", "-")) for t in page.locator(".attn-bracket span").all_inner_texts()] == (
                pytest.approx(shown, abs=5.1e-4)
            )


def test_moving_the_position_turns_both_points_and_leaves_the_angle(show):
    with show(html()) as page:
        seen = []
        for position in (10, 0, 40):
            slide(page, "position", position)
            shown = numbers(page, ".attn-bracket span")
            seen.append((shown[2:6], text(page, ".attn-note", 1), page.locator(".attn-wave").last.get_attribute("d")))
            angle = [position * 10_000 ** (-6 / 32), (position + 7) * 10_000 ** (-6 / 32)]
            expected = [wave(at) for at in reversed(angle) for wave in (np.sin, np.cos)]
            assert shown[:2] + shown[6:] == pytest.approx(expected)
            # The first pair of drawn points: sine across, cosine upwards, from the middle of the circle.
            dots = page.locator(".attn-plot").nth(1).locator("circle:not(.attn-trail)")
            at = np.array(dots.evaluate_all("all => all.map((e) => [e.cx.baseVal.value, e.cy.baseVal.value])"))
            middle = np.array([page.locator(".attn-plot svg").nth(1).evaluate("e => e.viewBox.baseVal.width") / 2, 128])
            expected = [[np.sin(a), -np.cos(a)] for a in reversed(angle)]
            np.testing.assert_allclose((at - middle) / 104, expected, atol=1e-6)
        assert seen[0] == seen[1] == seen[2]
        steady = "If you move i, both points turn, and the angle between them stays the same."
        assert seen[0][1] == f"ω·δ = 0.1778 · 7 = 1.245 rad (71.3°). {steady}"
        slide(page, "offset", -40)
        slide(page, "position", 3)
        assert "−7.113 rad (−1.13 turns)" in text(page, ".attn-note", 1)
        assert text(page, ".attn-note", 1).endswith("Position −37 is outside the matrix.")


@each_state
def test_products_are_those_of_the_encodings(show, state):
    widget = PositionalEncodingExplorer(**state)
    with show(widget.static_html()) as page:
        for offset in (widget.offset, 0, 5, -5, widget.length - 1):
            slide(page, "offset", offset)
            one, two = rows(widget, [widget.position, widget.position + offset])
            assert numbers(page, ".attn-note")[3] == pytest.approx(one @ two, abs=1e-6)
        assert ("depends on δ alone" in text(page, ".attn-note", 3)) == (widget.dim % 2 == 0)
        assert ("changes with i" in text(page, ".attn-note", 3)) == (widget.dim % 2 == 1)


def test_the_last_column_of_an_odd_size_has_no_partner(show):
    with show(html(dim=7, column=5, base=10)) as page:
        assert page.locator(".attn-equation").is_visible() and page.locator(".attn-wave.attn-cosine").count() == 1
        curve = page.locator(".attn-product").get_attribute("d")
        slide(page, "position", 20)
        assert page.locator(".attn-product").get_attribute("d") != curve, "its sine alone depends on the position"
        slide(page, "pair", 3)
        assert page.locator(".attn-equation").is_hidden() and page.locator(".attn-wave.attn-cosine").count() == 0
        assert text(page, ".attn-note", 1).startswith("Column 6 is the last of an odd number: a sine without a cosine.")
        assert text(page, ".attn-read").startswith("PE[20, 6] = sin(")
        slide(page, "dim", 8)
        assert page.locator(".attn-equation").is_visible()


def test_keys_drive_every_control(show):
    with show(html()) as page:
        for name in SLIDERS:
            before = values(page)
            page.keyboard.press("Tab")
            if name == "position":  # the matrix comes between
                assert page.locator(".attn-cell").evaluate("e => e === document.activeElement")
                page.keyboard.press("Tab")
            focused = page.locator(f"input[name={name}]")
            assert focused.evaluate("e => e === document.activeElement && getComputedStyle(e).outlineStyle") == "solid"
            page.keyboard.press("ArrowRight")
            assert values(page) == {**before, name: before[name] + 1}
        assert page.locator("input[name=base]").get_attribute("aria-valuetext") == "13,000"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement === document.body"), "no other stop"
        page.locator("input[name=length]").press("Home")
        page.locator("input[name=dim]").press("Home")
        assert values(page) == {"dim": 2, "length": 8, "base": 38, "position": 7, "offset": 7, "pair": 0}


def test_keys_walk_the_matrix(show):
    with show(html(dim=9, length=30)) as page:
        cell = page.locator(".attn-cell")

        def press(keys, position, column):
            for key in keys.split():
                cell.press(key)
            place = cell.evaluate("e => e.parentElement.ariaRowIndex"), cell.get_attribute("aria-colindex")
            assert place == (str(position + 1), str(column + 1))
            assert text(page, ".attn-read").startswith(f"PE[{position}, {column}] =")
            assert values(page)["position"] == position and values(page)["pair"] == column // 2

        press("ArrowDown ArrowRight", 11, 7)
        press("ArrowUp ArrowUp ArrowLeft", 9, 6)
        press("PageDown PageDown", 29, 6)
        press("PageUp End ArrowRight", 19, 8)
        press("Control+Home ArrowLeft ArrowUp", 0, 0)
        press("Control+End", 29, 8)
        press("Home", 29, 0)
        focus = cell.evaluate("e => getComputedStyle(e).boxShadow")
        cell.blur()
        assert cell.evaluate("e => getComputedStyle(e).boxShadow") != focus


@pytest.mark.parametrize("touch", [False, True])
def test_pointer_and_finger_drive_every_control(show, touch):
    with show(html(), height=1000, has_touch=touch) as page:
        press = page.touchscreen.tap if touch else page.mouse.click
        for name in SLIDERS:
            box = page.locator(f"input[name={name}]").bounding_box()
            assert box["height"] >= 24
            before = values(page)[name]
            press(box["x"] + 0.9 * box["width"], box["y"] + box["height"] / 2)
            assert values(page)[name] != before
        for name, value in {"dim": 20, "length": 40, "offset": 0}.items():
            slide(page, name, value)
        press(*point(page, (12, 5, 40, 20)))
        assert text(page, ".attn-read").startswith("PE[12, 5] =")
        assert values(page)["position"] == 12 and values(page)["pair"] == 2
        # The drawings below leave 30 pixels at their left and 20 at their right.
        for nth, name, share, value in [(2, "position", 20 / 39, 20), (3, "offset", 59 / 78, 20)]:
            box = page.locator(".attn-plot svg").nth(nth).bounding_box()
            press(box["x"] + 30 + share * (box["width"] - 50), box["y"] + 50)
            assert values(page)[name] == value


def test_dragging_goes_on_choosing(show):
    with show(html(dim=20, length=40)) as page:
        page.mouse.move(*point(page, (3, 4, 40, 20)))
        page.mouse.down()
        page.mouse.move(*point(page, (30, 15, 40, 20)), steps=4)
        assert values(page)["position"] == 30 and values(page)["pair"] == 7
        page.mouse.move(*point(page, (99, 99, 40, 20)))
        assert values(page)["position"] == 39 and values(page)["pair"] == 9
        page.mouse.up()
        page.mouse.move(*point(page, (0, 0, 40, 20)))
        assert values(page)["position"] == 39


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_matrix_has_the_colours_of_its_values(show, theme):
    widget = PositionalEncodingExplorer(6, 10, column=5, position=9)
    with show(widget.static_html(), theme=theme) as page:
        stops = page.locator(".attn-card").evaluate("e => getComputedStyle(e).getPropertyValue('--attn-stops')")
        stops = np.array([[int(stop.strip()[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops.split(",")])
        assert (stops[3].mean() < 60) == (theme == "dark"), "zero is near the paper"
        image = picture(page.locator(".attn-area"))
        height, width = image.shape[:2]
        for i, c in np.ndindex(9, 5):
            value = (widget.table()[i, c] + 1) / 2
            expected = [np.interp(value, np.linspace(0, 1, 7), stops[:, channel]) for channel in range(3)]
            found = image[int((i + 0.5) * height / 10), int((c + 0.5) * width / 6)]
            np.testing.assert_allclose(found, expected, atol=3)


def luminance(colour):
    parts = np.array([float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_marks_stand_out_from_their_ground(show, theme):
    with show(html(), theme=theme) as page:
        ground = luminance(page.locator(".attn-card").evaluate("e => getComputedStyle(e).backgroundColor"))

        def contrast(selector, part):
            colour = luminance(page.locator(selector).first.evaluate(f"e => getComputedStyle(e).{part}"))
            return (max(colour, ground) + 0.05) / (min(colour, ground) + 0.05)

        for selector in (".attn-name", ".attn-note", ".attn-read", ".attn-slider", ".attn-under", ".attn-legend"):
            assert contrast(selector, "color") >= 4.5, selector
        for selector in (".attn-tick", ".attn-point"):
            assert contrast(selector, "fill") >= 4.5, selector
        for selector in ("path.attn-sine", "path.attn-cosine", "path.attn-offset", ".attn-hand", ".attn-product"):
            assert contrast(selector, "stroke") >= 3, selector


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_fault(show, theme):
    package = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed: make test-browser")
    axe = (resources.files(package) / "axe.min.js").read_text(encoding="utf-8")
    for state in STATES[:2]:
        with show(f"<main><h1>t</h1>{html(**state)}</main>", theme=theme) as page:
            page.locator(".attn-cell").focus()
            page.evaluate(axe)
            rules = {"target-size": {"enabled": True}}
            found = page.evaluate("rules => axe.run('html', {rules}).then((found) => found.violations)", rules)
            assert not found, [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found]


@pytest.mark.parametrize("key", [None, "Home", "End"])
def test_a_narrow_screen_folds_to_one_column_and_does_not_scroll_sideways(show, key):
    with show(html(offset=-7), width=320) as page:
        for name in SLIDERS if key else ():
            page.locator(f"input[name={name}]").press(key)
        assert page.evaluate("document.documentElement.scrollWidth") == 320
        right = page.locator(".attn-card").evaluate("e => e.getBoundingClientRect().right - 15")
        inside = "all => all.map((e) => [e.getAttribute('class'), e.getBoundingClientRect().right])"
        over = [part for part in page.locator(".attn-panel *").evaluate_all(inside) if part[1] > right + 1]
        assert not over
        lefts = page.locator(".attn-panel").evaluate_all("all => all.map((e) => e.getBoundingClientRect().left)")
        assert len(set(lefts)) == 1


def test_a_wide_screen_has_two_even_columns(show):
    with show(html(), width=720) as page:
        boxes = page.locator(".attn-panel").evaluate_all("all => all.map((e) => e.getBoundingClientRect().toJSON())")
        assert boxes[0]["left"] == boxes[2]["left"] < boxes[1]["left"] == boxes[3]["left"]
        assert boxes[0]["top"] == boxes[1]["top"] < boxes[2]["top"] == boxes[3]["top"]
        assert len({box["width"] for box in boxes}) == 1


def test_follows_the_theme_and_prints_light(show):
    with show(html()) as page:
        root, area = page.locator(".attn-card"), page.locator(".attn-area")
        light = picture(area)
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        page.wait_for_selector(".attn-card[data-theme=dark]")
        # Half of the values lie near zero, and zero is near the paper.
        assert picture(area).min() < 50 and light.max() > 240 and (picture(area) != light).mean() > 0.9
        page.emulate_media(media="print")
        page.wait_for_selector(".attn-card[data-theme=light]")
        assert root.evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
        assert (picture(area) == light).all()


def test_copies_on_a_page_are_independent(show):
    with show(html() + html()) as page:
        page.locator("input[name=position]").nth(1).fill("20")
        assert [text(page, ".attn-read", nth)[:7] for nth in (0, 1)] == ["PE[10, ", "PE[20, "]


def test_without_scripts_the_picture_stands(show, drawn):
    with show(html(), java_script_enabled=False) as page:
        image = page.locator(".attn-picture")
        assert image.is_visible() and image.bounding_box()["width"] > 100
        assert "PE[10, 6] = 0.979" in image.get_attribute("alt")


def test_one_change_of_several_traits_is_drawn_and_told_once(show):
    """As a kernel would see it: what no longer fits is sent with the size that made it so."""
    widget = PositionalEncodingExplorer(column=31)
    script = str(widget._esm).replace("export default", "const widget =")
    state = {name: getattr(widget, name) for name in widget.trait_names(static=True)}
    style = widget._css.read_text(encoding="utf-8") if hasattr(widget._css, "read_text") else str(widget._css)
    with show(f'<style>{style}</style><div id="here"></div><script>{script}</script>') as page:
        told, left = page.evaluate(
            """async (state) => {
                 const [on, told] = [[], []];
                 const model = {
                   get: (name) => state[name],
                   set(name, value) {
                     if (state[name] === value) return;
                     state[name] = value;
                     on.filter(([event]) => event === 'change:' + name).forEach(([, f]) => f());
                   },
                   save_changes: () => told.push({...state}),
                   on: (event, f) => on.push([event, f]),
                   off: (event, f) => on.splice(on.findIndex(([e, g]) => e === event && g === f), 1),
                 };
                 const el = document.querySelector('#here');
                 const stop = widget.render({ model, el });
                 const slide = el.querySelector('[name=dim]');
                 slide.value = 9;
                 slide.dispatchEvent(new Event('input'));
                 await null;
                 const during = [on.length > 0, el.querySelector('.attn-read').textContent.slice(0, 9)];
                 stop();
                 return [told, [...during, on.length, el.children.length]];
               }""",
            state,
        )
        assert told == [{**state, "dim": 9, "column": 8}]
        assert left == [True, "PE[10, 8]", 0, 0]
        widget.set_state(told[0])
        assert widget.column == 8


def test_a_notebook_does_not_see_the_keys_that_move_a_slider(show):
    with show(PositionalEncodingExplorer().static_html()) as page:
        page.evaluate("() => { window.seen = []; document.addEventListener('keydown', (e) => seen.push(e.key)); }")
        slider = page.locator(".attn-slider input").first
        before = slider.input_value()
        slider.focus()
        for key in ("ArrowRight", "PageUp", "Escape"):
            page.keyboard.press(key)
        assert slider.input_value() != before and page.evaluate("seen") == ["Escape"]
