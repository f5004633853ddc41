"""The explorer of attention patterns in a page: its pairs, its counts, its words, its controls, its looks."""

import io
import json
import re
from contextlib import contextmanager
from importlib import resources

import numpy as np
import pytest
import torch
from PIL import Image

from attn_book.widgets import AttentionPatternExplorer
from attn_core import LSHAttention, SlidingWindow, attention
from tests.widgets.test_attention_pattern import HASHES, WINDOWS, meeting

pytestmark = pytest.mark.browser

TRAITS = sorted(AttentionPatternExplorer().trait_names(static=True))
STATES = [
    {"pattern": "full", "n": 33, "causal": True},
    {"pattern": "window", "window": 3, "dilation": 2},
    {"pattern": "global", "n": 47, "global_tokens": 3},
    {"pattern": "hash", "n": 50, "rounds": 3},
    {"pattern": "slots", "n": 33, "slots": 7},
]
each_state = pytest.mark.parametrize("state", STATES, ids=lambda state: state["pattern"])


def html(**state):
    return AttentionPatternExplorer(**state).static_html()


@contextmanager
def module(show):
    """A page in which the widget's functions can be called."""
    script = str(AttentionPatternExplorer._esm).replace("export default", "const widget =")
    with show(f"<script>{script}</script>") as page:
        yield page


def settings(**state):
    """All traits, as the page has them."""
    widget = AttentionPatternExplorer(**state)
    return {name: getattr(widget, name) for name in TRAITS}


def look(page, s):
    """Why each query reads each key, as the page computes it, and the rest that it gives."""
    plain = "({ why, missed = [], ...rest }) => ({ ...rest, why: [...why], missed: [...missed] })"
    found = page.evaluate(f"s => ({plain})(look(s))", s)
    return np.array(found.pop("why")).reshape(s["n"], -1), found


def text(page, selector):
    return page.locator(selector).first.inner_text().replace("\u00a0", " ")


def slide(page, name, value):
    page.locator(f"input[name={name}]").fill(str(value))


def choose(page, pattern):
    page.locator(f"input[value={pattern}]").check(force=True)


def point(page, i, n):
    box = page.locator(".attn-area").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + (i + 0.5) * box["height"] / n)


def unit(angles):
    angles = 2 * np.pi * torch.tensor(angles, dtype=torch.float64)
    return torch.stack((angles.cos(), angles.sin()), -1)[None, None]


def test_windows_hold_the_pairs_of_sliding_window(show):
    with module(show) as page:
        for n, window, dilation in WINDOWS:
            for causal in (False, True):
                s = settings(pattern="window", n=n, window=window, dilation=dilation, causal=causal)
                expected = SlidingWindow(window, 0 if causal else window, dilation=dilation).allowed(n, n).numpy()
                why, found = look(page, s)
                assert ((why > 0) == expected).all()
                assert found["pairs"] == page.evaluate("s => scores(s)", s) == expected.sum()


def test_global_tokens_have_rows_and_columns(show):
    with module(show) as page:
        for n, window, dilation in WINDOWS:
            for shared in (0, 1, 5, 16):
                s = settings(
                    pattern="global", n=n, window=window, dilation=dilation, global_tokens=shared, causal=False
                )
                why, found = look(page, {**s, "causal": True})  # which this pattern leaves be
                allowed = SlidingWindow(window, dilation=dilation).allowed(n, n)
                expected = [
                    [3 if i < shared or j < shared else 2 if allowed[i, j] else 0 for j in range(n)] for i in range(n)
                ]
                assert why.tolist() == expected
                assert found["pairs"] == page.evaluate("s => scores(s)", s) == np.count_nonzero(expected)


def test_full_attention_and_slots_read_all(show):
    with module(show) as page:
        for causal in (False, True):
            why, found = look(page, settings(pattern="full", n=17, causal=causal))
            assert ((why > 0) == (np.tri(17) if causal else np.ones((17, 17)))).all()
        why, found = look(page, {**settings(pattern="slots", n=30, slots=7), "causal": True})
        assert why.shape == (30, 7) and (why > 0).all() and found["pairs"] == 210


@pytest.mark.parametrize("causal", [False, True])
def test_hashes_let_meet_whom_lsh_attention_does(show, causal):
    with module(show) as page:
        for changes in HASHES:
            s = settings(pattern="hash", causal=causal, **changes)
            why, found = look(page, s)
            buckets = [row["buckets"] for row in found["rounds"]]
            expected = meeting(buckets, s["bucket_size"], causal)
            assert ((why > 0) == expected).all() and found["pairs"] == expected.sum()
            # LSHAttention itself, with these buckets: each value is its token's own axis, so the output has the pairs.
            layer = LSHAttention(bucket_size=s["bucket_size"], num_buckets=s["num_buckets"], rounds=s["rounds"])
            layer.hash = lambda _, buckets=buckets: torch.tensor(buckets)[None]
            q = unit(page.evaluate("n => directions(n)", s["n"]))
            out = layer(q, q, torch.eye(s["n"], dtype=q.dtype)[None, None], causal=causal)
            assert ((out[0, 0].numpy() > 0) == expected).all()
            # A pair has the colour of the bucket in the first round that lets it meet; one that is alone has its own.
            for i, j in zip(*expected.nonzero(), strict=True):
                alone = [4] if i == j else []
                assert why[i, j] == [*alone, *(5 + row[i] for row in buckets if meets(row, s, i, j, causal))][0]


def meets(row, s, i, j, causal):
    return meeting([row], s["bucket_size"], causal)[i, j]


@pytest.mark.parametrize("causal", [False, True])
def test_held_weight_and_missed_pairs_are_those_of_full_attention(show, causal):
    with module(show) as page:
        for changes in HASHES:
            s = settings(pattern="hash", causal=causal, **changes)
            n = s["n"]
            why, found = look(page, s)
            q, mask = unit(page.evaluate("n => directions(n)", n)), ~torch.eye(n, dtype=torch.bool)
            mask[0, 0] = causal  # the first token has only itself
            weights = attention(q, q, torch.eye(n, dtype=q.dtype)[None, None], mask=mask, causal=causal, scale=16)
            weights = weights[0, 0].numpy()
            held = (weights * (why > 0)).sum(1)
            np.testing.assert_allclose(found["held"], held, atol=1e-9)
            assert found["mean"] == pytest.approx(held.mean())
            seen = np.arange(n) if causal else np.full(n, n - 1)
            heavy = weights >= 2 / np.maximum(seen, 1)[:, None]
            assert (np.reshape(found["missed"], (n, n)) == (heavy & (why == 0))).all()


def test_python_and_the_page_agree(show):
    with module(show) as page:
        for state in [*STATES, *({"pattern": "hash", "causal": True, **changes} for changes in HASHES)]:
            widget = AttentionPatternExplorer(**state)
            s = {name: getattr(widget, name) for name in TRAITS}
            why, found = look(page, s)
            assert ((why > 0) == widget.pairs()).all()
            if widget.pattern == "hash":
                assert [row["buckets"] for row in found["rounds"]] == widget.buckets().tolist()
                assert page.evaluate("n => directions(n)", widget.n) == widget.directions().tolist()
            for n in (1, 16, 65, 1000, 65_536):
                assert page.evaluate("([s, n]) => scores(s, n)", [s, n]) == widget.scores(n)


@pytest.mark.parametrize("causal", [False, True])
def test_the_crossing_is_where_scores_fall_below_full_attention(show, causal):
    cases = [
        {"pattern": "window", "window": 32},
        {"pattern": "window", "window": 5, "dilation": 3},
        {"pattern": "global", "window": 32, "global_tokens": 16},
        {"pattern": "hash", "rounds": 4, "bucket_size": 32},
        {"pattern": "hash", "rounds": 1, "bucket_size": 2},
        {"pattern": "slots", "slots": 32},
    ]
    with module(show) as page:
        for case in cases:
            s = {**settings(**case), "causal": causal}
            widget = AttentionPatternExplorer(**case)
            widget.causal = causal
            halved = causal and case["pattern"] in ("window", "hash")
            full = [n * (n + 1) // 2 if halved else n * n for n in range(1200)]
            above = [n for n in range(1, 1200) if widget.scores(n) >= full[n]]
            assert page.evaluate("s => crossing(s)", s) == above[-1] + 1
        assert page.evaluate("s => crossing(s)", settings(pattern="full")) is None
        assert page.evaluate("s => crossing(s)", settings(pattern="hash", rounds=4, bucket_size=32)) == 257


@each_state
def test_the_page_counts_what_it_shows(show, state):
    widget = AttentionPatternExplorer(**state)
    with show(widget.static_html()) as page:
        assert int(page.locator(".attn-matrix .attn-name").get_attribute("data-value")) == widget.pairs().sum()
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
        dashes = page.locator("path[data-pattern]").evaluate_all(
            "all => all.map((e) => getComputedStyle(e).strokeDasharray)"
        )
        assert len(set(dashes)) == 5


def test_the_crossing_is_said_in_words(show):
    with show(html(pattern="slots", slots=32)) as page:
        assert text(page, ".attn-crossed") == "Fewer scores than full attention from n = 33 on."
        choose(page, "hash")
        slide(page, "rounds", 4)
        assert text(page, ".attn-crossed") == "Fewer scores than full attention from n = 65 on."
        assert page.locator(".attn-cost .attn-guide").count() == 1
        page.locator("input[name=causal]").check()
        assert text(page, ".attn-crossed") == "Fewer scores than causal full attention from n = 128 on."
        choose(page, "full")
        assert text(page, ".attn-crossed") == "All other patterns are compared with it."


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
)
def test_a_row_is_told_in_words(show, state, row, said):
    with show(html(query=row, **state)) as page:
        assert text(page, ".attn-read") == said
        assert page.locator(".attn-cell").get_attribute("aria-label") == said
        page.locator(".attn-cell").press("ArrowDown")
        assert text(page, ".attn-read") != said
        point(page, row, 64)
        assert text(page, ".attn-read") == said
        page.mouse.move(1, 1)
        assert text(page, ".attn-read") != said


def test_every_row_of_hashes_names_the_keys_it_reads(show):
    widget = AttentionPatternExplorer("hash", 40, causal=True, num_buckets=16, query=0)
    pairs, buckets, weights = widget.pairs(), widget.buckets(), widget.weights()
    with show(widget.static_html()) as page:
        for i in range(40):
            said = text(page, ".attn-read")
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


def test_long_lists_are_cut_short(show):
    with module(show) as page:
        said = page.evaluate("list([0, 2, 4, 8, 9, 10, 20, 22, 23, 30, 31, 40, 50, 52, 53, 54, 60])")
        assert said == "0, 2, 4, 8 to 10, 20, 22, 23, 30, 31, 40 and 5 others"
        assert page.evaluate("list([3, 5])") == "3, 5"


def picture(locator):
    return np.asarray(Image.open(io.BytesIO(locator.screenshot())).convert("RGB")).astype(int)


@pytest.mark.parametrize("theme", ["light", "dark"])
@each_state
def test_the_matrix_has_the_colours_of_its_reasons(show, state, theme):
    widget = AttentionPatternExplorer(**state)
    with module(show) as page:
        why, found = look(page, {name: getattr(widget, name) for name in TRAITS})
    with show(widget.static_html(), theme=theme) as page:
        # Of each cell its first pixel, and whether all the others are like it: a missed pair's ring is drawn inside.
        cells = page.locator(".attn-area canvas").evaluate(
            """(e, [rows, columns]) => {
                 const { data } = e.getContext('2d').getImageData(0, 0, e.width, e.height);
                 const hex = (x, y) => [0, 1, 2].map((c) =>
                   data[4 * (y * e.width + x) + c].toString(16).padStart(2, '0')).join('');
                 const edge = (k) => Math.round((k * e.height) / rows);
                 const gap = e.height / rows >= 5 ? 1 : 0;
                 return Array.from({ length: rows * columns }, (_, k) => {
                   const [i, j] = [Math.floor(k / columns), k % columns];
                   const seen = new Set();
                   for (let y = edge(i); y < edge(i + 1) - gap; y++)
                     for (let x = edge(j); x < edge(j + 1) - gap; x++) seen.add(hex(x, y));
                   return ['#' + hex(edge(j), edge(i)), seen.size === 1];
                 });
               }""",
            list(why.shape),
        )

        def colour(name):
            style = "(e, name) => getComputedStyle(e).getPropertyValue(`--attn-${name}`).trim()"
            return page.locator(".attn-card").evaluate(style, name)

        names = {0: "unread", 1: "all", 2: "near", 3: "global", 4: "alone"}
        inks = {code: colour(names.get(code) or f"hue-{(code - 5) % 8}") for code in range(21)}
        assert [cell for cell, _ in cells] == [inks[code] for code in why.flatten()]
        assert [not plain for _, plain in cells] == [bool(one) for one in found["missed"] or [0] * why.size]


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
            choose(page, pattern)
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


def test_other_hashes_are_drawn(show):
    with show(html(pattern="hash")) as page:
        seen = []
        for seed in range(4):
            widget = AttentionPatternExplorer("hash", seed=seed)
            assert text(page, ".attn-seed") == f"seed {seed}"
            held = page.locator(".attn-held")
            assert float(held.get_attribute("data-value")) == pytest.approx(
                (widget.weights() * widget.pairs()).sum(1).mean()
            )
            seen.append(page.locator(".attn-hashes svg").inner_html())
            page.get_by_role("button", name="Draw new hashes").click()
        assert len(set(seen)) == 4


def test_the_circle_has_its_tokens_in_the_sectors_of_their_buckets(show):
    widget = AttentionPatternExplorer("hash", 30, num_buckets=6, rounds=1)
    with show(widget.static_html()) as page:
        dots = page.locator(".attn-hashes circle").evaluate_all(
            "all => all.map((e) => [e.cx.baseVal.value, e.cy.baseVal.value, e.getAttribute('class')])"
        )
        sectors = page.locator(".attn-hashes .attn-sector").evaluate_all(
            "all => all.map((e) => [e.getAttribute('class'), e.getAttribute('d')])"
        )
        assert len(dots) == 30 and len(sectors) == 6
        middle = np.mean([[float(p) for p in d[1:].split("L")[k].split()] for _, d in sectors for k in range(97)], 0)
        for x, y, name in dots:
            turn = np.arctan2(x - middle[0], middle[1] - y) / (2 * np.pi) % 1
            (inside,) = [
                kind for kind, d in sectors if within(turn, [turn_of(p, middle) for p in d[1:].split("L")[:97]])
            ]
            assert inside.split()[-1] == name.split()[-1]
        strip = page.locator(".attn-hashes rect").evaluate_all(
            "all => all.map((e) => e.getAttribute('class').split(' ').at(-1))"
        )
        assert strip == [f"attn-hue-{bucket}" for bucket in sorted(widget.buckets()[0])]


def turn_of(point, middle):
    x, y = map(float, point.split())
    return np.arctan2(x - middle[0], middle[1] - y) / (2 * np.pi) % 1


def within(turn, arc):
    return (turn - arc[0]) % 1 < (arc[-1] - arc[0]) % 1


def test_keys_drive_every_control(show):
    with show(html(pattern="hash")) as page:
        for name in ("pattern", "n", "num_buckets", "bucket_size", "rounds"):
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.name") == name
            ring = "+ .attn-chip" if name == "pattern" else ""
            element = page.locator(f"input[name={name}]:focus{ring}")
            assert element.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
            if name != "pattern":
                before = int(element.input_value())
                page.keyboard.press("ArrowRight")
                assert int(element.input_value()) == before + (2 if name == "num_buckets" else 1)
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        assert page.locator("input[name=causal]").is_checked()
        page.keyboard.press("Tab")
        assert page.locator(".attn-cell").evaluate("e => e === document.activeElement")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert text(page, ".attn-seed") == "seed 1"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement === document.body"), "no other stop"
        page.locator("input[value=hash]").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("input[value=slots]").is_checked()
        page.keyboard.press("Enter")
        assert page.locator(".attn-card").get_attribute("data-pattern") == "slots", "Enter sends no form away"


def test_keys_walk_the_rows(show):
    with show(html(n=30)) as page:
        cell = page.locator(".attn-cell")
        keys = "ArrowDown ArrowUp PageDown PageDown Home ArrowUp End PageUp".split()
        for key, row in zip(keys, (16, 15, 23, 29, 0, 0, 29, 21), strict=True):
            cell.press(key)
            assert text(page, ".attn-read").startswith(f"Query {row} ")
            assert page.locator("[role=row]").get_attribute("aria-rowindex") == str(row + 1)
            area, box = page.locator(".attn-area").bounding_box(), cell.bounding_box()
            assert box["y"] - area["y"] == pytest.approx(row * area["height"] / 30, abs=0.6)
            assert box["width"] == pytest.approx(area["width"], abs=0.6)
        slide(page, "n", 18)
        assert text(page, ".attn-read").startswith("Query 17 ")
        focus = "e => getComputedStyle(e).boxShadow"
        cell.focus()
        shadow = cell.evaluate(focus)
        cell.blur()
        assert cell.evaluate(focus) != shadow


def test_a_click_takes_a_row_in_hand(show):
    with show(html()) as page:
        point(page, 40, 64)
        assert page.locator(".attn-hover").is_visible()
        page.mouse.down()
        page.mouse.up()
        page.mouse.move(1, 1)
        assert text(page, ".attn-read").startswith("Query 40 ") and page.locator(".attn-hover").is_hidden()
        assert page.locator(".attn-cell").evaluate("e => e === document.activeElement")


def luminance(colour):
    parts = np.array([float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_marks_stand_out_from_their_ground(show, theme):
    with show(html(pattern="hash"), theme=theme) as page:

        def value(selector, part):
            return luminance(page.locator(selector).first.evaluate(f"e => getComputedStyle(e).{part}"))

        def contrast(ink, ground):
            return (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05)

        paper = value(".attn-card", "backgroundColor")
        assert (paper < 0.1) == (theme == "dark")
        for part in ("name", "note", "slider", "legend", "seed", "crossed", "bold", "under", "held"):
            assert contrast(value(f".attn-card .attn-{part}", "color"), paper) >= 4.5, part
        for part in ("tick", "point", "chosen"):
            assert contrast(value(f"text.attn-{part}", "fill"), paper) >= 4.5, part
        assert contrast(value(".attn-read", "color"), value(".attn-read", "backgroundColor")) >= 4.5
        assert contrast(value("path.attn-line", "stroke"), paper) >= 3
        for bucket in range(8):
            hue = value(f".attn-sector.attn-hue-{bucket}", "fill")
            assert contrast(hue, paper) >= 3 and contrast(value(".attn-bucket", "fill"), hue) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_fault(show, theme):
    package = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed: make test-browser")
    axe = (resources.files(package) / "axe.min.js").read_text(encoding="utf-8")
    for state in STATES:
        with show(f"<main><h1>t</h1>{html(**state)}</main>", theme=theme) as page:
            page.locator(".attn-cell").focus()
            page.evaluate(axe)
            rules = {"target-size": {"enabled": True}}
            found = page.evaluate("rules => axe.run('html', {rules}).then((found) => found.violations)", rules)
            assert not found, [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found]


@pytest.mark.parametrize("media", ["screen", "print"])
@each_state
def test_a_narrow_screen_does_not_scroll_sideways(show, state, media):
    with show(html(**state), width=320) as page:
        page.emulate_media(media=media)
        for key in ("Home", "End"):
            for slider in page.locator(".attn-controls input[type=range]:visible").all() if media == "screen" else ():
                slider.press(key)
            assert page.evaluate("document.documentElement.scrollWidth") == 320
            right = page.locator(".attn-card").evaluate("e => e.getBoundingClientRect().right - 15")
            inside = "all => all.map((e) => [e.outerHTML.slice(0, 90), e.getBoundingClientRect().right])"
            parts = ".attn-panel *, .attn-choice, .attn-controls *"
            over = [part for part in page.locator(parts).evaluate_all(inside) if part[1] > right + 4]
            assert not over


def test_follows_the_theme_and_prints_light(show):
    with show(html(pattern="hash")) as page:
        root, area = page.locator(".attn-card"), page.locator(".attn-area")
        light = picture(area)
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        page.wait_for_selector(".attn-card[data-theme=dark]")
        assert picture(area).mean() < 100 and light.mean() > 180
        page.emulate_media(media="print")
        page.wait_for_selector(".attn-card[data-theme=light]")
        assert root.evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
        assert (picture(area) == light).all() and page.locator(".attn-acts button").is_hidden()


def test_copies_on_a_page_are_independent(show):
    with show(html() + html()) as page:
        page.locator("input[value=slots]").nth(1).check(force=True)
        assert page.locator(".attn-card").evaluate_all("all => all.map((e) => e.dataset.pattern)") == [
            "window",
            "slots",
        ]
        assert page.locator("input:checked").evaluate_all("all => all.map((e) => e.value)") == ["window", "slots"]


def test_without_scripts_the_picture_stands(show, drawn):
    with show(html(), java_script_enabled=False) as page:
        image = page.locator(".attn-picture")
        assert image.is_visible() and image.bounding_box()["width"] > 100
        assert "556 pairs are read" in image.get_attribute("alt")


def test_a_kernel_hears_each_change_once_and_is_drawn_once(show):
    """What no longer fits is sent with the length that made it so."""
    widget = AttentionPatternExplorer(query=63)
    script = str(widget._esm).replace("export default", "const widget =")
    state = json.dumps({name: getattr(widget, name) for name in TRAITS})
    with show(f'<style>{widget._css}</style><div id="here"></div><script>{script}</script>') as page:
        told, left = page.evaluate(
            """async (text) => {
                 const state = JSON.parse(text);
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
                 const f = look;
                 let drawn = 0;
                 look = (s) => { drawn += 1; return f(s); };
                 const slide = el.querySelector('[name=n]');
                 slide.value = 20;
                 slide.dispatchEvent(new Event('input'));
                 await null;
                 const during = [on.length > 0, drawn, el.querySelector('.attn-read').textContent.slice(0, 8)];
                 stop();
                 return [told, [...during, on.length, el.children.length]];
               }""",
            state,
        )
        assert told == [{**json.loads(state), "n": 20, "query": 19}]
        assert left == [True, 1, "Query 19", 0, 0]
        widget.set_state(told[0])
        assert widget.query == 19


def test_a_notebook_does_not_see_the_keys_that_move_a_control(show):
    with show(html()) as page:
        page.evaluate("() => { window.seen = []; document.addEventListener('keydown', (e) => seen.push(e.key)); }")
        for selector in ("input[name=n]", "input[value=window]", ".attn-cell"):
            page.locator(selector).focus()
            for key in ("ArrowRight", "ArrowDown", "Escape"):
                page.keyboard.press(key)
        assert page.evaluate("seen") == ["Escape"] * 3
