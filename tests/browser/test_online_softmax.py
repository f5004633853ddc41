"""Online softmax in a page: its numbers against Python's, what a reader may type, its controls."""

import numpy as np
import pytest
import torch

from attn_book.widgets import OnlineSoftmaxStepper
from tests.browser.page import numbers, read, text

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
        assert read(page) == "The first tile: its maximum is 3, and there are no earlier sums to correct."
        assert spoken(page) == [
            "max(−∞, 2, 3) = 3",
            "e^(−∞ − 3) = 0",
            "0 × 0 + (e^(2 − 3) + e^(3 − 3)) = 0 + 1.368 = 1.368",
            "0 × 0 + (e^(2 − 3) × 4 + e^(3 − 3) × (−5)) = 0 + (−3.528) = −3.528",
            "−3.528 / 1.368 = −2.580",
        ]
        click(page, "next")
        said = "The maximum stays 3: the sums so far need no correction (c = 1), and the tile is added."
        assert read(page) == f"{said} All scores are read: o / ℓ is the output."
        assert spoken(page)[1:3] == [
            "e^(3 − 3) = 1.000",
            "1.368 × 1.000 + (e^(1 − 3) + e^(−1 − 3)) = 1.368 + 0.1537 = 1.522",
        ]


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
)  # fmt: skip
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


def test_nothing_moves_on_paper(show):
    with show(html(range(8), range(8)), reduced_motion="no-preference") as page:
        moving = "document.querySelector('.attn-online').getAnimations({ subtree: true }).length"
        click(page, "next")
        assert page.evaluate(moving)
        page.emulate_media(media="print")
        assert not page.evaluate(moving)


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
