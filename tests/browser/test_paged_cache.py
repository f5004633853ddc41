"""The explorer of a paged cache in a page: its allocator against the package's, what is drawn and told, controls."""

import random
from contextlib import suppress

import pytest

from attn_book.widgets import PagedCacheExplorer
from attn_book.widgets.paged_cache import EXAMPLE, _read_events
from tests.browser.page import press, read, texts

pytestmark = pytest.mark.browser

SIZES = ("block_size", "num_blocks")


def held(widget):
    """What the package's allocator holds after the widget's events."""
    tables, numbers, preempted = widget._replay()
    return {
        "requests": [[name, tables.length(number), tables.table(number)] for name, number in numbers.items()],
        "preempted": [list(one) for one in preempted.items()],
        "references": [tables.references(block) for block in range(widget.num_blocks)],
        "used": tables.filled_slots,
        "free": tables.free_blocks,
    }


def story(generator):
    """Events at random that can happen in this order if the pool is large enough."""
    events = []
    for _ in range(60):
        name, new, tokens = generator.choice("ABCDE"), generator.choice("ABCDE"), generator.randint(1, 20)
        alone = [[action, name] for action in ("grow", "end", "preempt", "resume")]
        sized = [[action, name, tokens] for action in ("start", "grow")]
        event = generator.choice([["decode"], ["fork", name, new], *alone, *sized])
        with suppress(ValueError):  # which an event that cannot happen raises
            events = _read_events([*events, event])
    return events


def test_the_page_allocates_as_the_package_does(live):
    generator = random.Random(0)
    widget, cases, expected = PagedCacheExplorer(), [], []
    for _ in range(400):
        events = story(generator)
        sizes = {"block_size": generator.choice([1, 2, 4, 8, 16]), "num_blocks": generator.randint(1, 24)}
        widget.set_state({**sizes, "events": events, "step": len(events)})
        cases.append([events, *sizes.values()])
        expected.append(held(widget))
    assert sum(max(case["references"]) > 1 for case in expected) > 25
    assert sum(case["free"] == 0 for case in expected) > 25 < sum(case["preempted"] != [] for case in expected)
    with live(widget) as page:
        found = page.evaluate(
            """(cases) => cases.map((events) => {
                 const { requests, preempted, references, filled, free } = replay(...events);
                 return {
                   requests: [...requests].map(([name, { length, table }]) => [name, length, table]),
                   preempted: [...preempted],
                   references, used: filled.reduce((a, b) => a + b, 0), free: free.length,
                 };
               })""",
            cases,
        )
    for case, one, other in zip(cases, found, expected, strict=True):
        assert one == other, case


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_each_step_of_the_example_is_drawn(show, block_size):
    num_blocks = 96 // block_size
    widget = PagedCacheExplorer(block_size=block_size, num_blocks=num_blocks, step=0)
    with show(widget.static_html()) as page:
        for step in range(1, len(EXAMPLE) + 1):
            press(page, "Next")
            widget.step = step
            now = held(widget)
            assert texts(page, ".attn-steps") == [f"step {step} of {len(EXAMPLE)}"]
            assert texts(page, ".attn-chip") == [name for name, *_ in now["requests"] + now["preempted"]]
            assert texts(page, ".attn-length") == [
                *(f"{length} tokens" for _, length, _ in now["requests"]),
                *(f"{length} tokens, preempted" for _, length in now["preempted"]),
            ]
            assert texts(page, ".attn-entry") == [
                f"{i}→{block}" for _, _, table in now["requests"] for i, block in enumerate(table)
            ]
            drawn = page.locator(".attn-block").evaluate_all(
                """all => all.map((e) => [e.querySelector('.attn-number').textContent,
                     e.querySelector('.attn-owners').textContent, e.querySelector('.attn-badge')?.textContent ?? '',
                     e.querySelectorAll('.attn-full').length, e.querySelectorAll('.attn-slot').length])"""
            )
            owners = [
                "".join(name for name, _, table in now["requests"] if block in table) for block in range(num_blocks)
            ]
            shared = [str(count) if count > 1 else "" for count in now["references"]]
            assert [row[:3] for row in drawn] == [[str(b), owners[b], shared[b]] for b in range(num_blocks)]
            assert sum(row[3] for row in drawn) == now["used"] and {row[4] for row in drawn} == {block_size}
            reserved = (num_blocks - now["free"]) * block_size
            assert texts(page, ".attn-said")[0].startswith(f"{now['used']} of {reserved} reserved slots hold a token")
        assert page.get_by_role("button", name="Next").get_attribute("aria-disabled") == "true"


def test_a_reader_serves_requests(live):
    widget = PagedCacheExplorer([], step=0)
    with live(widget) as page:
        page.locator("input[name=prompt]").fill("6")
        press(page, "New request")
        press(page, "fork A")
        press(page, "+1 token for B")
        assert read(page) == "B: one token more. Block 1 is shared by 2, so it is first copied to block 2."
        press(page, "+1 token for each")
        press(page, "end A")
        press(page, "New request")
        events = [["start", "A", 6], ["fork", "A", "B"], ["grow", "B"], ["decode"], ["end", "A"], ["start", "C", 6]]
        assert page.evaluate("state.events") == events and page.evaluate("state.step") == len(events)
        press(page, "Back")
        press(page, "Back")
        press(page, "fork A")
        events = [*events[:4], ["fork", "A", "C"]]
        assert page.evaluate("state.events") == events, "an own action takes the place of what was undone"
        sent = page.evaluate("told")
    for sizes in sent:
        widget.set_state(sizes)
    assert widget.events == events and widget.step == 5


def test_where_blocks_run_out_nothing_is_lost(live):
    widget = PagedCacheExplorer([["start", "A", 8], ["start", "B", 7]], num_blocks=4)
    with live(widget) as page:
        press(page, "New request")
        press(page, "New request")
        assert (
            read(page)
            == "No room for C: blocks needed: 2, free: 0. It waits until another request ends; nothing is lost."
        )
        assert len(page.evaluate("state.events")) == 3, "a try that failed gives way to the next"
        press(page, "+1 token for A")
        assert read(page) == "A: no block is free. The next token waits until another request ends; nothing is lost."
        press(page, "+1 token for each")
        assert read(page).splitlines() == [
            "B: one token more, in block 3.",
            "A: no block is free. The next token waits until another request ends; nothing is lost.",
        ]
        assert page.evaluate("state.events.slice(2)") == [["decode"]]
        assert texts(page, ".attn-entry") == ["0→0", "1→1", "0→2", "1→3"]
        press(page, "end A")
        press(page, "New request")
        assert read(page) == "C arrives with 7 tokens and gets blocks 0, 1."


def test_another_size_of_blocks_cuts_the_same_memory(live):
    with live(PagedCacheExplorer(step=13)) as page:
        slider = page.locator("input[name=size]")
        for at, (size, blocks) in enumerate([(1, 96), (2, 48), (4, 24), (8, 12), (16, 6)], 1):
            slider.fill(str(at))
            assert [page.evaluate(f"state.{name}") for name in SIZES] == [size, blocks]
            assert page.locator(".attn-block").count() == blocks
            assert slider.get_attribute("aria-valuetext") == ("1 slot" if size == 1 else f"{size} slots")
        slider.fill("3")
        press(page, "Start over")
        assert [page.evaluate(f"state.{name}") for name in (*SIZES, "step")] == [4, 24, 0]
    with live(PagedCacheExplorer(num_blocks=3)) as page:
        assert page.locator("input[name=size]").get_attribute("max") == "3", "12 slots are not cut into eights"


def lit(page):
    blocks = page.locator(".attn-block.attn-on .attn-number").all_inner_texts()
    return [int(block) for block in blocks], texts(page, ".attn-request.attn-on .attn-chip")


def test_pointing_shows_what_belongs_together(show):
    with show(PagedCacheExplorer(step=7).static_html()) as page:
        assert lit(page) == ([], [])
        page.locator("[data-name=C]").hover()
        assert lit(page) == ([0, 1, 6], ["C"])
        note = page.locator(".attn-note").first
        assert note.inner_text() == (
            "C’s last token is number 10: logical block ⌊10 / 4⌋ = 2 is block 6, and 10 mod 4 = 2 its slot."
        )
        page.locator(".attn-block").nth(1).hover()
        assert lit(page) == ([1], ["A", "C"])
        assert texts(page, ".attn-entry.attn-on") == ["1→1", "1→1"]
        assert note.inner_text() == "Block 1 holds tokens 4 to 7 of A, C: 4 of 4 slots."
        page.locator(".attn-entry").nth(2).hover()
        assert lit(page) == ([5], ["A"])
        page.locator(".attn-block").nth(20).hover()
        assert lit(page) == ([20], []) and note.inner_text() == "Block 20 is free."
        page.mouse.move(1, 1)
        assert lit(page) == ([], [])


CLIPPED = "all => all.filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent)"
GAPS = """all => all.flatMap((input) => {
  const [label, own, value] = [input.previousSibling, input, input.nextSibling].map((e) => e.getBoundingClientRect());
  return own.top < label.bottom ? [own.left - label.right, value.left - own.right] : [value.left - label.right];
})"""


@pytest.mark.parametrize("width", [900, 375])
def test_letters_stand_clear_of_colours_and_labels_of_sliders(show, width):
    events = [["start", "A", 12], *(["fork", "A", name] for name in "CD")]
    with show(PagedCacheExplorer(events, step=3).static_html(), width=width) as page:
        letters = page.locator(".attn-owners:not(:empty), .attn-letters")
        assert set(letters.all_inner_texts()) == {"ACD"} and letters.evaluate_all(CLIPPED) == []
        paper = page.locator(".attn-letters").evaluate("e => getComputedStyle(e).backgroundColor")
        assert paper == "rgb(255, 255, 255)", "not the colours of three requests"
        assert min(page.locator(".attn-slider input").evaluate_all(GAPS)) >= 10
