"""Online softmax in a page: its numbers against Python's, what a reader may type, its controls, its looks."""

from importlib import resources

import numpy as np
import pytest
import torch

from attn_book.widgets import OnlineSoftmaxStepper

pytestmark = pytest.mark.browser

LARGE = [i * 37 % 50 / 0.07 - 300 for i in range(24)]
STATES = [
    {},
    {"scores": [102.5, 101, 103, -7.25, 100], "values": [1, -2.5, 3, 4, 1000], "tile": 1},
    {"scores": LARGE, "values": [i * -40.5 for i in range(24)], "tile": 5},
    {"scores": [-1000, 3, -1000], "values": [5, 6, -7], "tile": 3},
    {"scores": [-999.125] * 24, "values": [-999.125] * 24, "tile": 1},
]
each_state = pytest.mark.parametrize("state", STATES, ids=lambda state: f"{len(state.get('scores', [0] * 8))} scores")


def html(*args, **state):
    return OnlineSoftmaxStepper(*args, **{"step": 0, **state}).static_html()


def text(page, selector, nth=0):
    return page.locator(selector).nth(nth).inner_text().replace("\u00a0", " ")


def numbers(page, selector):
    return page.locator(selector).evaluate_all("all => all.map((e) => Number(e.dataset.value))")


def click(page, name):
    page.locator(f"button[name={name}]").click()


def values(page):
    return {name: int(page.locator(f"input[name={name}]").input_value()) for name in ("tile", "step")}


def spoken(page):
    """The arithmetic as it is read aloud: row by row."""
    return page.locator(".attn-equation[role=math]").evaluate_all("all => all.map((e) => e.ariaLabel)")


@each_state
def test_every_step_has_the_numbers_of_python(show, state):
    widget = OnlineSoftmaxStepper(**state, step=0)
    steps = widget.steps()
    with show(widget.static_html()) as page:
        for done, step in enumerate(steps, 1):
            click(page, "next")
            table = np.reshape(numbers(page, "tbody td[data-value]"), (done + 1, 5))
            assert page.locator("tbody tr").count() == len(steps) + 1, "those to come have their rows"
            np.testing.assert_allclose(table[1:], steps[:done], rtol=1e-12, atol=1e-300)
            kept = numbers(page, ".attn-change > :last-child")
            np.testing.assert_allclose(kept, step, rtol=1e-12, atol=1e-300)
            if done > 1:
                before = steps[done - 2]
                expected = [before.maximum, before.total, before.weighted, before.output]
                np.testing.assert_allclose(numbers(page, ".attn-change > :first-child[data-value]"), expected, 1e-12)
            # A bar is as high as its weight.
            heights = page.locator(".attn-weight").evaluate_all("all => all.map((e) => parseFloat(e.style.height))")
            weights = np.exp(np.array(widget.scores[: done * widget.tile]) - step.maximum)
            np.testing.assert_allclose(np.array(heights) / 100, weights, atol=1e-6)
        assert values(page)["step"] == len(steps)
        exact = torch.softmax(torch.tensor(widget.scores).double(), 0) @ torch.tensor(widget.values).double()
        online, whole, difference = numbers(page, ".attn-check b")
        assert whole == pytest.approx(exact.item(), rel=1e-12) and online == pytest.approx(steps[-1].output)
        assert difference == online - whole


@each_state
def test_what_float32_gives_without_the_maximum(show, state):
    widget = OnlineSoftmaxStepper(**state)
    x, v = np.array(widget.scores, np.float32), np.array(widget.values, np.float32)
    with np.errstate(all="ignore"), show(widget.static_html()) as page:
        powers = np.exp(x)
        shown = page.locator(".attn-note").evaluate(
            "e => ['total', 'weighted', 'output'].map(k => String(Number(e.dataset[k])))"
        )
        expected = [powers.sum(), (powers * v).sum(), (powers * v).sum() / powers.sum()]
        np.testing.assert_allclose([float(n.replace("Infinity", "inf")) for n in shown], expected, rtol=1e-5)
        said = text(page, ".attn-note")
        right = np.isclose(expected[2], widget.steps()[-1].output, rtol=1e-3)
        assert ("This is right" in said) == right
        assert ("larger than the largest float32" in said) == (x.max() > 88.73)
        assert ("too small" in said) == (x.max() < -90)


def test_the_arithmetic_is_written_in_the_readers_numbers(show):
    with show(html([2, 3, 1, -1], [4, -5, 0.5, 0], tile=2, step=1)) as page:
        assert text(page, ".attn-read") == "The first tile: its maximum is 3, and there are no earlier sums to correct."
        assert spoken(page) == [
            "max(−∞, 2, 3) = 3",
            "e^(−∞ − 3) = 0",
            "0 × 0 + (e^(2 − 3) + e^(3 − 3)) = 0 + 1.368 = 1.368",
            "0 × 0 + (e^(2 − 3) × 4 + e^(3 − 3) × (−5)) = 0 + (−3.528) = −3.528",
            "−3.528 / 1.368 = −2.580",
        ]
        click(page, "next")
        said = "The maximum stays 3: the sums so far need no correction (c = 1), and the tile is added."
        assert text(page, ".attn-read") == f"{said} All scores are read: o / ℓ is the output."
        assert spoken(page)[1:3] == [
            "e^(3 − 3) = 1.000",
            "1.368 × 1.000 + (e^(1 − 3) + e^(−1 − 3)) = 1.368 + 0.1537 = 1.522",
        ]
        page.locator("input[name=scores]").fill("2 1 3 1")
        assert text(page, ".attn-read").startswith(
            "The maximum rises from 2 to 3: both sums so far shrink by the factor"
        )
        assert spoken(page)[1:3] == [
            "e^(2 − 3) = 0.3679",
            "1.368 × 0.3679 + (e^(3 − 3) + e^(1 − 3)) = 0.5032 + 1.135 = 1.639",
        ]
        assert text(page, ".attn-equation", 1) == "e2 − 3 = 0.3679"


def test_an_outline_keeps_the_height_from_which_a_bar_shrank(show):
    with show(html([2, 1, 3, 1], [1, 2, 3, 4], tile=2, step=2)) as page:
        ghosts = page.locator(".attn-entry .attn-ghost").evaluate_all(
            "all => all.map((e) => parseFloat(e.style.height))"
        )
        np.testing.assert_allclose(ghosts, [100, 100 * np.exp(-1)], rtol=1e-5)
        assert page.locator(".attn-tile .attn-flag").count() == 1
        assert page.locator(".attn-entry:has(.attn-flag)").get_attribute("aria-label").startswith("score 3, value 3")
        assert page.locator(".attn-tile.attn-now").count() == page.locator(".attn-tile.attn-old").count() == 1
        page.locator("input[name=scores]").fill("3 1 3 1")
        assert page.locator(".attn-entry .attn-ghost").count() == 0, "nothing shrinks where the maximum stays"


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("scores", "2, one, 3, 1", "scores x: “one”, the 2nd entry, is not a number."),
        ("scores", "2 1 0x3 1", "scores x: “0x3”, the 3rd entry, is not a number."),
        ("scores", "2 1 Infinity 1", "scores x: Infinity, the 3rd entry, is not between −1000 and 1000."),
        ("values", "1 2 3 1001", "values v: 1001, the 4th entry, is not between −1000 and 1000."),
        ("values", " , ", "values v: expected at least one number."),
        ("scores", "1 " * 25, "scores x: 25 numbers; there is room for 24."),
        ("scores", "1 2 3", "values v: 4 for 3 scores; each score needs a value."),
        ("values", "1 2 3 4 5", "values v: 5 for 4 scores; each score needs a value."),
    ],
)
def test_what_does_not_fit_is_named_and_changes_nothing(show, name, typed, said):
    with show(html([2, 1, 3, 1], [1, 2, 3, 4], tile=2, step=2)) as page:
        before = page.locator("table").inner_text()
        field = page.locator(f"input[name={name}]")
        field.fill(typed)
        assert text(page, ".attn-error") == f"{said} The last valid numbers are still shown."
        at_fault = page.locator("input[aria-invalid=true]")
        assert at_fault.get_attribute("name") == ("scores" if said.startswith("scores") else "values")
        assert at_fault.get_attribute("aria-describedby") == page.locator(".attn-error").get_attribute("id")
        assert page.locator("table").inner_text() == before
        click(page, "back")
        assert field.input_value() == typed, "what is being typed stays while the steps go on"
        field.fill("4; −3\t2.5 1e0")
        assert text(page, ".attn-error") == "" and page.locator("input[aria-invalid=true]").count() == 0
        row = [
            entry.split(",")[name == "values"]
            for entry in page.locator(".attn-entry").evaluate_all("all => all.map((e) => e.ariaLabel)")
        ]
        assert [cell.split()[1] for cell in row] == ["4", "−3", "2.5", "1"]


def test_more_numbers_are_taken_once_both_rows_have_them(show):
    with show(html([2, 1], [3, 4], tile=2, step=1)) as page:
        page.locator("input[name=scores]").fill("2, 1, 5")
        assert page.locator(".attn-entry").count() == 2 and "2 for 3 scores" in text(page, ".attn-error")
        page.locator("input[name=values]").fill("3, 4, 6")
        assert page.locator(".attn-entry").count() == 3 and text(page, ".attn-error") == ""
        page.locator("input[name=scores]").fill("7")
        page.locator("input[name=values]").fill("8")
        assert page.locator(".attn-entry").count() == 1 and values(page) == {"tile": 1, "step": 1}
        assert numbers(page, ".attn-change > :last-child") == [7, 0, 1, 8, 8]


def test_tiles_of_another_size_keep_what_was_read(show):
    with show(html(range(8), range(8), tile=2, step=3)) as page:
        tile = page.locator("input[name=tile]")
        for size, step in [(1, 6), (4, 1), (5, 0), (2, 0)]:
            tile.fill(str(size))
            assert values(page) == {"tile": size, "step": step}
        click(page, "last")
        outputs = []
        for size, step in [(8, 1), (3, 3), (1, 8)]:
            tile.fill(str(size))
            assert values(page) == {"tile": size, "step": step}
            outputs.append(numbers(page, ".attn-check b")[0])
        np.testing.assert_allclose(outputs, outputs[0], rtol=1e-12)


def test_a_hundred_more_changes_nothing_but_what_is_naive(show):
    with show(html([2, 1, 3.1], [3, 4, 5], tile=1, step=3)) as page:
        more, less = (page.get_by_role("button", name=f"{sign} 100 to every score") for sign in "+−")
        output = numbers(page, ".attn-check b")[0]
        more.click()
        assert page.locator("input[name=scores]").input_value() == "102, 101, 103.1"
        assert numbers(page, ".attn-check b")[0] == pytest.approx(output)
        assert "Σ eˣ = ∞ and Σ eˣ·v = ∞ give NaN. For x above 88.7, eˣ is larger than the largest" in text(
            page, ".attn-note"
        )
        less.click()
        assert page.locator("input[name=scores]").input_value() == "2, 1, 3.1"
        less.click(click_count=2)
        assert "Σ eˣ = 0 and Σ eˣ·v = 0 give NaN. Here eˣ is too small" in text(page, ".attn-note")
        for _ in range(9):
            less.click(force=True)
        assert page.locator("input[name=scores]").input_value() == "−998, −999, −996.9"
        assert less.get_attribute("aria-disabled") == "true", "−1000 is the least"


def test_keys_drive_every_control(show):
    with show(html()) as page:
        order = []
        for _ in range(10):
            page.keyboard.press("Tab")
            order.append(page.evaluate("document.activeElement.name || document.activeElement.textContent"))
            shows = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert shows == "solid", order
        named = ["scores", "values", "tile", "step", "first", "back", "next", "last"]
        assert order == [*named, "+ 100 to every score", "− 100 to every score"]
        step = page.locator("input[name=step]")
        for place in (step, page.locator("button[name=next]")):
            for key, reached in {"ArrowRight": 1, "End": 4, "ArrowLeft": 3, "Home": 0}.items():
                place.press(key)
                assert values(page)["step"] == reached
        for name, reached in {"next": 1, "last": 4, "back": 3, "first": 0}.items():
            page.locator(f"button[name={name}]").press("Enter")
            assert values(page)["step"] == reached
        assert step.get_attribute("aria-valuetext") == "0 of 4"
        off = [page.locator(f"button[name={name}]").get_attribute("aria-disabled") for name in named[4:]]
        assert off == ["true", "true", "false", "false"]
        click(page, "last")
        off = [page.locator(f"button[name={name}]").get_attribute("aria-disabled") for name in named[4:]]
        assert off == ["false", "false", "true", "true"]


def test_a_notebook_does_not_see_the_keys_meant_for_it(show):
    with show(html()) as page:
        page.evaluate("() => { window.seen = []; document.addEventListener('keydown', (e) => seen.push(e.key)); }")
        page.locator("input[name=scores]").press_sequentially(" 1a")
        for name in ("input[name=tile]", "button[name=next]"):
            page.locator(name).press("ArrowRight")
        page.locator("button[name=next]").press("Escape")
        assert page.evaluate("seen") == ["Escape"]


@pytest.mark.parametrize("width", [320, 560, 900])
@each_state
def test_nothing_moves_while_a_reader_steps(show, state, width):
    places = "all => all.map((e) => { const { top, bottom } = e.getBoundingClientRect(); return [top, bottom]; })"
    with show(html(**state), width=width, reduced_motion="reduce") as page:
        parts, step = page.locator(".attn-card, .attn-card > *, .attn-panel"), page.locator("input[name=step]")
        for size in (None, 1, 2):
            if size:
                page.locator("input[name=tile]").fill(str(size))
            step.fill("0")
            before = parts.evaluate_all(places)
            for k in range(1, int(step.get_attribute("max")) + 1):
                step.fill(str(k))
                np.testing.assert_allclose(parts.evaluate_all(places), before, atol=0.01)


def test_another_width_or_other_numbers_have_their_own_room(show):
    height = "e => e.getBoundingClientRect().height"
    with show(html(range(8), range(8), tile=4), width=320) as page:
        card = page.locator(".attn-card")
        narrow = card.evaluate(height)
        page.set_viewport_size({"width": 900, "height": 900})
        page.wait_for_function(f"was => ({height})(document.querySelector('.attn-card')) < was", arg=narrow)
        wide = card.evaluate(height)
        page.locator("input[name=tile]").fill("1")
        assert card.evaluate(height) > wide
        page.locator("input[name=tile]").fill("4")
        assert card.evaluate(height) == wide


def test_copies_on_a_page_are_independent(show):
    with show(html() + html()) as page:
        page.locator("button[name=next]").nth(1).click()
        assert [text(page, ".attn-value", nth) for nth in (1, 3)] == ["0 of 4", "1 of 4"]
        assert len(set(page.locator(".attn-error").evaluate_all("all => all.map((e) => e.id)"))) == 2


def test_what_is_set_from_python_is_drawn_and_the_view_ends(show):
    widget = OnlineSoftmaxStepper([1, 2], [3, 4])
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
                 Object.assign(state, { scores: [5, 6, 7], values: [1, 1, 1], tile: 3, step: 1 });
                 on.forEach(([, f]) => f());
                 await null;
                 const field = el.querySelector('[name=scores]').value;
                 const output = el.querySelector('.attn-quantity:last-child .attn-change').lastChild.dataset.value;
                 stop();
                 return [field, output, told.length, on.length, el.children.length];
               }""",
            state,
        )
        assert seen == ["5, 6, 7", "1", 0, 0, 0], "drawn, and nothing sent back"


def luminance(colour):
    parts = np.array([float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_bars_stand_out_from_their_ground(show, theme):
    with show(html(step=2), theme=theme) as page:

        def colour(selector, part):
            return luminance(page.locator(selector).first.evaluate(f"e => getComputedStyle(e).{part}"))

        grounds = {
            ".attn-old": colour(".attn-card", "backgroundColor"),
            ".attn-now": colour(".attn-tile.attn-now", "backgroundColor"),
        }
        for tile, ground in grounds.items():
            for bar, part in [(".attn-weight", "backgroundColor"), (".attn-room", "borderBottomColor")]:
                one, other = sorted((colour(f".attn-tile{tile} {bar}", part), ground))
                assert (other + 0.05) / (one + 0.05) >= 3, (tile, bar)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_fault(show, theme):
    package = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed: make test-browser")
    axe = (resources.files(package) / "axe.min.js").read_text(encoding="utf-8")
    for state in ({}, {"step": 2}, {**STATES[1], "step": 5}):
        with show(f"<main><h1>t</h1>{html(**state)}</main>", theme=theme, reduced_motion="reduce") as page:
            if state:
                page.locator("input[name=values]").fill("one")
            page.evaluate(axe)
            rules = {"target-size": {"enabled": True}}
            found = page.evaluate("rules => axe.run('html', {rules}).then((found) => found.violations)", rules)
            assert not found, [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found]


@each_state
def test_a_narrow_screen_does_not_scroll_sideways(show, state):
    widget = OnlineSoftmaxStepper(**state)
    for step in (0, 1, len(widget.steps())):
        widget.step = step
        with show(widget.static_html(), width=320, reduced_motion="reduce") as page:
            assert page.evaluate("document.documentElement.scrollWidth") == 320
            right = page.locator(".attn-card").evaluate("e => e.getBoundingClientRect().right - 15")
            inside = "all => all.map((e) => [e.getAttribute('class'), e.textContent, e.getBoundingClientRect().right])"
            over = [part for part in page.locator(".attn-card *").evaluate_all(inside) if part[2] > right + 1]
            assert not over


def test_follows_the_theme_and_prints_light_and_whole(show):
    with show(html(step=4)) as page:
        root = page.locator(".attn-card")
        light = root.evaluate("e => getComputedStyle(e).color")
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        page.wait_for_selector(".attn-card[data-theme=dark]")
        assert root.evaluate("e => getComputedStyle(e).color") != light
        page.emulate_media(media="print")
        page.wait_for_selector(".attn-card[data-theme=light]")
        assert root.evaluate("e => getComputedStyle(e).color") == light
        assert root.evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator("button:visible, input[type=range]:visible").count() == 0
        assert page.locator("tbody tr").count() == 5 and page.locator(".attn-check b").first.is_visible()


def test_bars_keep_still_for_those_who_ask(show):
    for motion, moves in (("reduce", "none"), ("no-preference", "attn-shrink")):
        with show(html(step=1), reduced_motion=motion) as page:
            assert page.locator(".attn-weight").first.evaluate("e => getComputedStyle(e).animationName") == moves


def test_without_scripts_the_picture_stands(show, drawn):
    with show(html(step=1), java_script_enabled=False) as page:
        image = page.locator(".attn-picture")
        assert image.is_visible() and image.bounding_box()["width"] > 100
        assert "after step 1 of 4: maximum 2, sum 1.368" in image.get_attribute("alt")
