"""The explorer of attention patterns in a page: its pairs and counts against Python's, its words, its controls."""

import re

import numpy as np
import pytest

from attn_book.widgets import AttentionPatternExplorer
from tests.browser.conftest import state_of
from tests.browser.page import cell, choose, numbers, pixels, read, slide, text
from tests.widgets.test_attention_pattern import HASHES, WINDOWS, meeting

pytestmark = pytest.mark.browser

STATES = [
    {"pattern": "full", "n": 33, "causal": True},
    {"pattern": "window", "window": 3, "dilation": 2},
    {"pattern": "global", "n": 47, "global_tokens": 3},
    {"pattern": "hash", "n": 50, "rounds": 3},
    {"pattern": "slots", "n": 33, "slots": 7},
]
each_state = pytest.mark.parametrize("state", STATES, ids=lambda state: state["pattern"])
# A window, and tokens that are global beside it, at each of these sizes.
SIZES = [dict(zip(("n", "window", "dilation"), sizes, strict=True)) for sizes in WINDOWS]


def html(**state):
    return AttentionPatternExplorer(**state).static_html()


def look(page, s):
    """Why each query reads each key, as the page computes it, and the rest that it gives."""
    plain = "({ why, missed = [], ...rest }) => ({ ...rest, why: [...why], missed: [...missed] })"
    found = page.evaluate(f"s => ({plain})(look(s))", s)
    return np.array(found.pop("why")).reshape(s["n"], -1), found


@pytest.mark.parametrize("causal", [False, True])
def test_python_and_the_page_agree(live, causal):
    """Python's pairs, buckets and weights are compared with the package's mechanisms in tests/widgets."""
    states = [{"pattern": "full", "n": 17}, {"pattern": "slots", "n": 30, "slots": 7}]
    states += [{"pattern": pattern, "global_tokens": 5, **sizes} for pattern in ("window", "global") for sizes in SIZES]
    states += [{"pattern": "hash", **changes} for changes in HASHES]
    with live(AttentionPatternExplorer()) as page:
        for state in states:
            widget = AttentionPatternExplorer(**state, causal=causal and state["pattern"] not in ("global", "slots"))
            s, n = state_of(widget), widget.n
            why, found = look(page, s)
            pairs = widget.pairs()
            assert ((why > 0) == pairs).all() and found["pairs"] == pairs.sum()
            if widget.pattern == "global":
                assert (why[:5] == 3).all() and (why[:, :5] == 3).all() and (why[5:, 5:] < 3).all()
            if widget.pattern == "hash":
                assert [row["buckets"] for row in found["rounds"]] == widget.buckets().tolist()
                assert page.evaluate("n => directions(n)", n) == widget.directions().tolist()
                held = (widget.weights() * pairs).sum(1)
                np.testing.assert_allclose([*found["held"], found["mean"]], [*held, held.mean()], atol=1e-9)
                seen = np.arange(n) if causal else np.full(n, n - 1)
                heavy = widget.weights() >= 2 / np.maximum(seen, 1)[:, None]
                assert (np.reshape(found["missed"], (n, n)) == (heavy & ~pairs)).all()
                # A pair has the colour of the bucket in the first round that lets it meet; one alone has its own.
                expected = np.where(np.eye(n, dtype=bool) & pairs, 4, 0)
                for row in widget.buckets()[::-1]:
                    met = meeting([row.tolist()], widget.bucket_size, causal) & ~np.eye(n, dtype=bool)
                    expected = np.where(met, 5 + row[:, None], expected)
                assert (why == expected).all()
            for length in (1, 16, 65, 1000, 65_536):
                assert page.evaluate("([s, n]) => scores(s, n)", [s, length]) == widget.scores(length)


@pytest.mark.parametrize("causal", [False, True])
def test_the_crossing_is_where_scores_fall_below_full_attention(live, causal):
    cases = [
        {"pattern": "window", "window": 32},
        {"pattern": "window", "window": 5, "dilation": 3},
        {"pattern": "global", "window": 32, "global_tokens": 16},
        {"pattern": "hash", "rounds": 4, "bucket_size": 32},
        {"pattern": "hash", "rounds": 1, "bucket_size": 2},
        {"pattern": "slots", "slots": 32},
    ]
    with live(AttentionPatternExplorer()) as page:
        for case in cases:
            widget = AttentionPatternExplorer(**case)
            widget.causal = causal
            halved = causal and case["pattern"] in ("window", "hash")
            full = [n * (n + 1) // 2 if halved else n * n for n in range(1200)]
            above = [n for n in range(1, 1200) if widget.scores(n) >= full[n]]
            assert page.evaluate("s => crossing(s)", state_of(widget)) == above[-1] + 1
        assert page.evaluate("s => crossing(s)", state_of(AttentionPatternExplorer("full"))) is None


@each_state
def test_the_page_counts_what_it_shows(show, state):
    widget = AttentionPatternExplorer(**state)
    with show(widget.static_html()) as page:
        assert numbers(page, ".attn-matrix .attn-name") == [widget.pairs().sum()]
        cost = page.locator(".attn-cost")
        assert [int(cost.get_attribute(f"data-{name}")) for name in ("scores", "far")] == [
            widget.scores(),
            widget.scores(65_536),
        ]
        cells = page.locator(".attn-cost td").all_inner_texts()[1:]
        assert cells[:2] == [f"{widget.scores():,}", f"{widget.scores(65_536):,}"]
        for cell, share in zip(cells[2:4], (widget.scores() / widget.n**2, widget.scores(65_536) / 2**32), strict=True):
            assert float(cell.replace("\u00a0%", "")) == pytest.approx(100 * share, rel=0.05)
        for cell, count in zip(cells[4:], (widget.scores(), widget.scores(65_536)), strict=True):
            number, unit_name = cell.split("\u00a0")
            power = ["B", "KiB", "MiB", "GiB"].index(unit_name)
            assert float(number) * 1024**power == pytest.approx(4 * count, rel=0.01)
        assert "not a time" in text(page, ".attn-cost .attn-note")
        # The drawn lines end at their counts: the vertical axis has 8.2 powers of ten from 10^1.5 on.
        for name in ("full", "window", "global", "hash", "slots"):
            other = AttentionPatternExplorer(**{**state, "causal": False, "pattern": name})
            other.causal = widget._causal()
            x, y = map(float, page.locator(f"path[data-pattern={name}]").get_attribute("d").split("L")[-1].split())
            height = 218 - 34 - 18
            assert y == pytest.approx(218 - 34 - (np.log10(other.scores(65_536)) - 1.5) / 8.2 * height, abs=0.01)
        assert page.locator("path.attn-chosen[data-pattern]").get_attribute("data-pattern") == widget.pattern


@pytest.mark.parametrize(
    ("state", "row", "said"),
    [
        ({"n": 64}, 17, "Query 17 reads keys 13 to 21: 9 of 64."),
        ({"dilation": 3}, 0, "Query 0 reads keys 0 to 12 in steps of 3: 5 of 64."),
        ({"window": 0}, 5, "Query 5 reads key 5: 1 of 64."),
        ({"window": 1, "causal": True}, 5, "Query 5 reads keys 4, 5: 2 of 64."),
        ({"pattern": "global"}, 17, "Query 17 reads keys 13 to 21 and the global tokens 0, 1: 11 of 64."),
        ({"pattern": "global", "global_tokens": 1}, 9, "Query 9 reads keys 5 to 13 and the global token 0: 10 of 64."),
        ({"pattern": "global"}, 1, "Query 1 is a global token and reads all keys: 64 of 64."),
        ({"pattern": "full", "causal": True}, 17, "Query 17 reads keys 0 to 17: 18 of 64."),
        ({"pattern": "slots"}, 17, "Query 17 reads slots 0 to 7, each a mixture of all 64 keys."),
    ],
)  # fmt: skip
def test_a_row_is_told_in_words(show, state, row, said):
    with show(html(query=row, **state)) as page:
        assert read(page) == said
        assert page.locator(".attn-cell").get_attribute("aria-label") == said
        page.locator(".attn-cell").press("ArrowDown")
        assert read(page) != said
        page.mouse.move(*cell(page, row, 0, (64, 1)))
        assert read(page) == said
        page.mouse.move(1, 1)
        assert read(page) != said


def test_every_row_of_hashes_names_the_keys_it_reads(show):
    widget = AttentionPatternExplorer("hash", 40, causal=True, num_buckets=16, query=0)
    pairs, buckets, weights = widget.pairs(), widget.buckets(), widget.weights()
    with show(widget.static_html()) as page:
        for i in range(40):
            said = read(page)
            assert f"Query {i} (buckets {buckets[0, i]}, {buckets[1, i]})" in said
            keys = pairs[i].nonzero()[0]
            if keys.tolist() == [i]:
                assert ("has no token before it" if i == 0 else "meets no other token") in said
            else:
                named = said.split("keys " if len(keys) > 1 else "key ")[1].split(":")[0]
                found = [range(int(a), int(b or a) + 1) for a, b in re.findall(r"(\d+)(?: to (\d+))?", named)]
                assert [j for run in found for j in run] == keys.tolist()
                share = 100 * (weights[i] * pairs[i]).sum()
                assert float(said.split("with ")[1].split(" %")[0]) == pytest.approx(share, rel=0.01)
            assert page.locator(".attn-hashes circle.attn-taken").count() == len(set(keys) - {i})
            page.locator(".attn-cell").press("ArrowDown")


@each_state
def test_the_matrix_has_a_colour_for_each_reason(live, state):
    widget = AttentionPatternExplorer(**state)
    with live(widget) as page:
        why, _ = look(page, state_of(widget))
        image = pixels(page, ".attn-area canvas")
        # Cells are as wide as they are high, and begin at whole pixels.
        rows, columns = (np.floor(np.arange(n) * image.shape[0] / why.shape[0] + 0.5).astype(int) for n in why.shape)
        drawn = image[np.ix_(rows, columns)]

        def colour(code):
            name = {0: "unread", 1: "all", 2: "near", 3: "global", 4: "alone"}.get(code) or f"hue-{(code - 5) % 8}"
            style = "(e, name) => getComputedStyle(e).getPropertyValue(`--attn-${name}`).trim()"
            found = page.locator(".attn-card").evaluate(style, name)
            return [int(found[i : i + 2], 16) for i in (1, 3, 5)]

        for code in np.unique(why):
            assert (drawn[why == code] == colour(code)).all(), code


def test_only_the_controls_that_matter_are_shown(show):
    shown = {
        "full": ["n", "causal"],
        "window": ["n", "window", "dilation", "causal"],
        "global": ["n", "window", "dilation", "global_tokens", "causal"],
        "hash": ["n", "num_buckets", "bucket_size", "rounds", "causal"],
        "slots": ["n", "slots", "causal"],
    }
    with show(html(causal=True)) as page:
        for pattern, names in shown.items():
            choose(page, "pattern", pattern)
            visible = page.locator(".attn-controls input:visible").evaluate_all("all => all.map((e) => e.name)")
            assert visible == names
            causal = page.locator("input[name=causal]")
            never = pattern in ("global", "slots")
            assert causal.is_disabled() == never and causal.is_checked() != never
            assert text(page, ".attn-never").startswith("never causal: ") == never
            assert page.locator(".attn-hashes").is_visible() == (pattern == "hash")
        for name, value in {"n": 31, "slots": 5}.items():
            slide(page, name, value)
        assert text(page, ".attn-matrix .attn-name") == "Queries by slots: 31 × 5 = 155 scores"


def test_a_click_takes_a_row_in_hand(show):
    with show(html()) as page:
        page.mouse.move(*cell(page, 40, 0, (64, 1)))
        assert page.locator(".attn-hover").is_visible()
        page.mouse.down()
        page.mouse.up()
        page.mouse.move(1, 1)
        assert read(page).startswith("Query 40 ") and page.locator(".attn-hover").is_hidden()
        assert page.locator(".attn-cell").evaluate("e => e === document.activeElement")
