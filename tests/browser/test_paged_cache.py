"""The explorer of a paged cache in a page: its allocator, its controls, its looks."""

import json
import random
from contextlib import contextmanager
from importlib import resources

import numpy as np
import pytest

from attn_book.widgets import PagedCacheExplorer
from attn_book.widgets.paged_cache import EXAMPLE
from attn_core.cache import BlockTables, OutOfBlocks

pytestmark = pytest.mark.browser

SIZES = ("block_size", "num_blocks")
MODEL = """
  window.state = STATE;
  window.told = [];
  const on = [];
  const model = {
    get: (name) => state[name],
    set(name, value) {
      state[name] = value;
      on.filter(([event]) => event === 'change:' + name).forEach(([, f]) => f());
    },
    save_changes: () => told.push({...state}),
    on: (event, f) => on.push([event, f]),
    off: (event, f) => on.splice(on.findIndex(([e, g]) => e === event && g === f), 1),
  };
  window.model = model;
  window.listening = on;
  window.stop = widget.render({ model, el: document.querySelector('#here') });
"""


@contextmanager
def live(show, widget, **options):
    """The widget beside a model that can be asked what it holds, as with a kernel."""
    state = {name: getattr(widget, name) for name in widget.trait_names(static=True)}
    script = str(widget._esm).replace("export default", "const widget =")
    with show(f'<style>{widget._css}</style><div id="here"></div><script>{script}</script>', **options) as page:
        page.add_script_tag(content=MODEL.replace("STATE", json.dumps(state)))
        yield page


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def said(page):
    return page.locator(".attn-read").inner_text()


def texts(page, selector):
    return [text.replace("\u00a0", " ") for text in page.locator(selector).all_inner_texts()]


def allocate(events, block_size, num_blocks):
    """What the package's allocator does with the events: its tables, references, fillings, copies."""
    tables, numbers, preempted, copies = BlockTables(num_blocks, block_size), {}, {}, []

    def append(number, tokens):
        try:
            copies.extend(tables.append(number, tokens).copies)
        except OutOfBlocks:
            return False
        return True

    for action, *names in events:
        if action == "start" or (action == "resume" and names[0] in preempted):
            number = tables.add_sequence()
            if append(number, names[1] if action == "start" else preempted[names[0]]):
                numbers[names[0]] = number
                preempted.pop(names[0], None)
            else:
                tables.free(number)
        elif action == "decode":
            for number in numbers.values():
                append(number, 1)
        elif names[0] in numbers:
            if action == "grow":
                append(numbers[names[0]], names[1] if names[1:] else 1)
            elif action == "fork":
                numbers[names[1]] = tables.fork(numbers[names[0]])
            else:
                if action == "preempt":
                    preempted[names[0]] = tables.length(numbers[names[0]])
                tables.free(numbers.pop(names[0]))
        elif action == "end":
            preempted.pop(names[0], None)
    return {
        "requests": [[name, tables.length(number), tables.table(number)] for name, number in numbers.items()],
        "preempted": [[name, length] for name, length in preempted.items()],
        "references": [tables.references(block) for block in range(num_blocks)],
        "used": tables.filled_slots,
        "free": tables.free_blocks,
        "copies": [list(copy) for copy in copies],
    }


def story(generator):
    """Events at random that can happen in this order if the pool is large enough."""
    there, outside, names, events = [], [], iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), []
    for _ in range(generator.randint(1, 40)):
        action = generator.choice(["start", "grow", "grow", "decode", "decode", "fork", "fork", "end", "preempt"])
        name = generator.choice(there) if there else None
        if outside and generator.random() < 0.3:
            name = outside.pop(generator.randrange(len(outside)))
            events.append([generator.choice(["resume", "resume", "end"]), name])
            if events[-1][0] == "resume":
                there.append(name)
            continue
        if action == "decode":
            events.append(["decode"])
        elif action == "start" or name is None:
            new = next(names, None)
            if new:
                there.append(new)
                events.append(["start", new, generator.randint(1, 20)])
        elif action == "fork":
            new = next(names, None)
            if new:
                there.append(new)
                events.append(["fork", name, new])
        else:
            chunk = [generator.randint(1, 9)] if action == "grow" and generator.random() < 0.5 else []
            events.append([action, name, *chunk])
            if action in ("end", "preempt"):
                there.remove(name)
            if action == "preempt":
                outside.append(name)
    return events


def test_the_page_allocates_as_the_package_does(show):
    generator = random.Random(0)
    cases = [(story(generator), generator.choice([1, 2, 4, 8, 16]), generator.randint(1, 24)) for _ in range(400)]
    expected = [allocate(*case) for case in cases]
    assert sum(len(case["copies"]) for case in expected) > 300 and sum(case["free"] == 0 for case in expected) > 50
    assert sum(len(case["preempted"]) for case in expected) > 50
    assert PagedCacheExplorer(cases[0][0]), "the widget takes such events"
    with live(show, PagedCacheExplorer()) as page:
        found = page.evaluate(
            """(cases) => cases.map((events) => {
                 const { requests, preempted, references, filled, free, copies } = replay(...events);
                 return {
                   requests: [...requests].map(([name, { length, table }]) => [name, length, table]),
                   preempted: [...preempted],
                   references, used: filled.reduce((a, b) => a + b, 0), free: free.length, copies,
                 };
               })""",
            cases,
        )
    for case, one, other in zip(cases, found, expected, strict=True):
        assert one == other, case


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_each_step_of_the_example_is_drawn(show, block_size):
    num_blocks = 96 // block_size
    with show(PagedCacheExplorer(block_size=block_size, num_blocks=num_blocks, step=0).static_html()) as page:
        for step in range(1, len(EXAMPLE) + 1):
            press(page, "Next")
            held = allocate(EXAMPLE[:step], block_size, num_blocks)
            assert texts(page, ".attn-steps") == [f"step {step} of {len(EXAMPLE)}"]
            assert texts(page, ".attn-chip") == [name for name, *_ in held["requests"] + held["preempted"]]
            assert texts(page, ".attn-length") == [
                *(f"{length} tokens" for _, length, _ in held["requests"]),
                *(f"{length} tokens, preempted" for _, length in held["preempted"]),
            ]
            assert texts(page, ".attn-entry") == [
                f"{i}→{block}" for _, _, table in held["requests"] for i, block in enumerate(table)
            ]
            drawn = page.locator(".attn-block").evaluate_all(
                """all => all.map((e) => [e.querySelector('.attn-number').textContent,
                     e.querySelector('.attn-owners').textContent, e.querySelector('.attn-badge')?.textContent ?? '',
                     e.querySelectorAll('.attn-full').length, e.querySelectorAll('.attn-slot').length])"""
            )
            owners = [
                "".join(name for name, _, table in held["requests"] if block in table) for block in range(num_blocks)
            ]
            shared = [str(count) if count > 1 else "" for count in held["references"]]
            assert [row[:3] for row in drawn] == [[str(b), owners[b], shared[b]] for b in range(num_blocks)]
            assert sum(row[3] for row in drawn) == held["used"] and {row[4] for row in drawn} == {block_size}
            reserved = (num_blocks - held["free"]) * block_size
            assert texts(page, ".attn-said")[0].startswith(f"{held['used']} of {reserved} reserved slots hold a token")
        assert page.get_by_role("button", name="Next").get_attribute("aria-disabled") == "true"


def test_the_example_tells_what_happens(show):
    with show(PagedCacheExplorer(step=0).static_html()) as page:
        assert said(page) == "All blocks are free, and there are no requests."
        told = []
        for _ in EXAMPLE:
            press(page, "Next")
            told.append(said(page))
    assert told[0] == "A arrives with 7 tokens and gets blocks 0, 1."
    assert told[3] == (
        "B: one token more, in block 4.\n"
        "A: one token more. The last block was full, so block 5 is taken from the free ones."
    )
    assert told[4] == "C forks from A: both now have blocks 0, 1, 5. Nothing is copied."
    assert told[5] == "C: one token more. Block 5 is shared by 2, so it is first copied to block 6."
    assert told[8] == "B ends. Free again: blocks 2, 3, 4, 7."
    assert told[9] == "A ends. Free again: block 5. Others still have blocks 0, 1."
    assert told[13].startswith("F is preempted. Free again: ")
    assert told[13].endswith(" Its keys and values are gone, and its text of 19 tokens is kept.")
    assert told[14].startswith("D: 4 tokens more. Block")
    assert told[16].startswith("F is resumed: the model reads its 19 tokens again, and they go to ")


def test_the_memory_of_both_schemes_is_drawn_to_one_scale(show):
    with show(PagedCacheExplorer(step=8).static_html()) as page:
        assert texts(page, ".attn-said") == [
            "40 of 48 reserved slots hold a token: 83 %. Sharing saves 8 slots.",
            "34 of 96 reserved slots hold a token: 35 %. With 32 slots each, 3 fit at a time: no room for D.",
        ]
        widths = page.locator(".attn-strip").evaluate_all(
            "all => all.map((e) => [...e.children].map((c) => [c.className, parseFloat(c.style.width) * 0.96]))"
        )
        full, rest = "attn-full", "attn-rest"
        expected = [
            [(full, 2), (full, 8), (full, 13), (full, 3), (full, 14), (rest, 8)],
            [(full, 10), (rest, 22), (full, 13), (rest, 19), (full, 11), (rest, 21)],
        ]
        for found, wanted in zip(widths, expected, strict=True):
            assert [(name, pytest.approx(width, abs=1e-3)) for name, width in found] == wanted
        page.locator("input[name=reserve]").fill("24")
        assert "With 24 slots each, 4 fit at a time." in texts(page, ".attn-said")[1]
        page.locator("input[name=reserve]").fill("5")
        assert "With 14 slots each, 6 fit at a time." in texts(page, ".attn-said")[1], "as many as the longest has"


def test_a_reader_serves_requests(show):
    widget = PagedCacheExplorer([], step=0)
    with live(show, widget) as page:
        page.locator("input[name=prompt]").fill("6")
        press(page, "New request")
        press(page, "fork A")
        press(page, "+1 token for B")
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


def test_where_blocks_run_out_nothing_is_lost(show):
    widget = PagedCacheExplorer([["start", "A", 8], ["start", "B", 7]], num_blocks=4)
    with live(show, widget) as page:
        press(page, "New request")
        press(page, "New request")
        assert (
            said(page)
            == "No room for C: blocks needed: 2, free: 0. It waits until another request ends; nothing is lost."
        )
        assert len(page.evaluate("state.events")) == 3, "a try that failed gives way to the next"
        press(page, "+1 token for A")
        assert said(page) == "A: no block is free. The next token waits until another request ends; nothing is lost."
        press(page, "+1 token for each")
        assert said(page).splitlines() == [
            "B: one token more, in block 3.",
            "A: no block is free. The next token waits until another request ends; nothing is lost.",
        ]
        assert page.evaluate("state.events.slice(2)") == [["decode"]]
        assert texts(page, ".attn-entry") == ["0→0", "1→1", "0→2", "1→3"]
        press(page, "end A")
        press(page, "New request")
        assert said(page) == "C arrives with 7 tokens and gets blocks 0, 1."


def test_a_reader_preempts_a_request_for_the_chunk_of_another(show):
    widget = PagedCacheExplorer([["start", "A", 8], ["start", "B", 7]], num_blocks=4)
    with live(show, widget) as page:
        press(page, "4 tokens more for A")
        assert said(page) == "A: no block is free. The next token waits until another request ends; nothing is lost."
        press(page, "preempt B")
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "end B", "the focus stays"
        press(page, "4 tokens more for A")
        assert texts(page, ".attn-length") == ["12 tokens", "7 tokens, preempted"]
        press(page, "resume B")
        assert said(page).startswith("No room for B: blocks needed: 2, free: 1.")
        press(page, "end A")
        press(page, "resume B")
        assert texts(page, ".attn-length") == ["7 tokens"]
        press(page, "preempt B")
        press(page, "end B")
        assert texts(page, ".attn-chip") == []
        widget.set_state({name: page.evaluate(f"state.{name}") for name in ("events", "step")})
    assert widget.step == len(widget.events) == 8


def test_letters_are_used_again_only_when_free(show):
    with live(show, PagedCacheExplorer([["start", "A", 1]], num_blocks=30)) as page:
        page.locator("input[name=prompt]").fill("1")
        start = page.get_by_role("button", name="New request")
        for _ in range(24):
            start.click()
        press(page, "fork A")
        assert texts(page, ".attn-chip") == list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        assert start.get_attribute("aria-disabled") == "true"
        start.click(force=True)
        press(page, "fork A")
        assert page.evaluate("state.events.length") == 26, "no letter is left"
        for letter in "TCK":
            press(page, f"end {letter}")
        for letter in "CKT":
            start.click()
            assert texts(page, ".attn-chip")[-1] == letter
        PagedCacheExplorer(page.evaluate("state.events"), num_blocks=30)


def test_another_size_of_blocks_cuts_the_same_memory(show):
    with live(show, PagedCacheExplorer(step=13)) as page:
        slider = page.locator("input[name=size]")
        for at, (size, blocks) in enumerate([(1, 96), (2, 48), (4, 24), (8, 12), (16, 6)], 1):
            slider.fill(str(at))
            assert [page.evaluate(f"state.{name}") for name in SIZES] == [size, blocks]
            assert page.locator(".attn-block").count() == blocks
            assert slider.get_attribute("aria-valuetext") == ("1 slot" if size == 1 else f"{size} slots")
        slider.fill("3")
        press(page, "Start over")
        assert [page.evaluate(f"state.{name}") for name in (*SIZES, "step")] == [4, 24, 0]
    with show(PagedCacheExplorer(num_blocks=3).static_html()) as page:
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


def test_keys_do_all_that_a_pointer_does(show):
    with show(PagedCacheExplorer(step=7).static_html(), width=760) as page:
        names = ["Back", "Next", "Start over"]
        for name in names:
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.textContent") == name
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Tab")
        for key, block in [("ArrowRight", 1), ("ArrowDown", 9), ("End", 23), ("ArrowRight", 23), ("ArrowUp", 15)]:
            page.keyboard.press(key)
            assert lit(page)[0] == [block] and page.evaluate("document.activeElement.dataset.block") == str(block)
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Home")
        assert lit(page) == ([0], ["A", "C"])
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.ariaLabel") == "+1 token for A"
        assert lit(page) == ([0, 1, 5], ["A"])
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.ariaLabel") == "+1 token for A", "the focus stays"
        assert texts(page, ".attn-length")[0] == "11 tokens"
        page.locator("[data-name=B] button").last.press("Enter")
        assert page.evaluate("document.activeElement.ariaLabel") == "end C", "it goes to the row that took its place"
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.textContent") == "New request"
        page.get_by_role("button", name="Back").press("Enter")
        assert texts(page, ".attn-chip") == ["A"] and page.evaluate("document.activeElement.textContent") == "Back"


def test_a_kernel_hears_each_change_once_and_is_drawn_once(show):
    with live(show, PagedCacheExplorer(step=2)) as page:
        press(page, "Next")
        assert [change["step"] for change in page.evaluate("told")] == [3]
        page.evaluate("() => { const f = replay; window.drawn = 0; replay = (...x) => { drawn++; return f(...x); }; }")
        page.evaluate("() => { model.set('step', 5); model.set('reserve', 24); }")
        page.wait_for_function("document.querySelector('.attn-steps').textContent.startsWith('step 5')")
        assert texts(page, ".attn-chip") == ["A", "B", "C"] and page.evaluate("drawn") == 1
        assert page.evaluate("[listening.length > 0, (stop(), listening.length), here.children.length]") == [True, 0, 0]


def luminance(colour):
    parts = np.array([float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_ground(show, theme):
    grounds = {".attn-read": ".attn-read", ".attn-chip": ".attn-chip", ".attn-badge": ".attn-badge"}
    with show(PagedCacheExplorer(step=8).static_html(), theme=theme) as page:
        page.locator("[data-name=C]").hover()

        def value(selector, part):
            return luminance(page.locator(selector).first.evaluate(f"e => getComputedStyle(e).{part}"))

        def contrast(ink, ground):
            return (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05)

        paper = value(".attn-card", "backgroundColor")
        assert (paper < 0.1) == (theme == "dark")
        names = ("name", "note", "said", "number", "owners", "length", "entry", "logical", "steps", "legend", "slider")
        for part in names:
            assert contrast(value(f".attn-{part}", "color"), paper) >= 4.5, part
        for part in (".attn-read", ".attn-badge"):
            assert contrast(value(part, "color"), value(grounds[part], "backgroundColor")) >= 4.5, part
        ground = value(".attn-request.attn-on", "backgroundColor")
        assert contrast(value(".attn-request.attn-on .attn-length", "color"), ground) >= 4.5
        assert contrast(value(".attn-request.attn-on .attn-logical", "color"), ground) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_fault(show, theme):
    package = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed: make test-browser")
    axe = (resources.files(package) / "axe.min.js").read_text(encoding="utf-8")
    for state in ({"step": 0}, {"step": 8}, {"step": 13, "block_size": 1, "num_blocks": 96}):
        with show(f"<main><h1>t</h1>{PagedCacheExplorer(**state).static_html()}</main>", theme=theme) as page:
            page.locator(".attn-block").first.focus()
            page.evaluate(axe)
            rules = {"target-size": {"enabled": True}}
            found = page.evaluate("rules => axe.run('html', {rules}).then((found) => found.violations)", rules)
            assert not found, [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found]


LONG = [["start", name, 24] for name in "ABCD"] + [["fork", "A", "E"], ["fork", "A", "F"], ["fork", "A", "G"]]


@pytest.mark.parametrize("media", ["screen", "print"])
@pytest.mark.parametrize("block_size", [1, 2, 4, 16])
def test_nothing_leaves_a_narrow_screen(show, block_size, media):
    for events in (None, LONG):
        widget = PagedCacheExplorer(events, block_size=block_size, num_blocks=96 // block_size, reserve=64)
        for width in (300, 320, 332):
            check_width(show, widget, width, media)


def check_width(show, widget, width, media):
    with show(widget.static_html(), width=width) as page:
        page.emulate_media(media=media)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        edge = page.locator(".attn-card").evaluate("e => e.getBoundingClientRect().right")
        inside = "all => all.map((e) => [e.className, e.getBoundingClientRect().right])"
        assert [part for part in page.locator(".attn-card *").evaluate_all(inside) if part[1] > edge - 5] == []
        over = page.locator(".attn-head, .attn-slider, .attn-request, .attn-entry").evaluate_all(
            "all => all.filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.innerText)"
        )
        assert over == []


def test_follows_the_theme_and_prints_light_and_without_controls(show):
    with show(PagedCacheExplorer(step=8).static_html()) as page:
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        page.wait_for_selector(".attn-card[data-theme=dark]")
        page.emulate_media(media="print")
        page.wait_for_selector(".attn-card[data-theme=light]")
        assert page.locator(".attn-card").evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator(".attn-card button:visible, .attn-card input:visible, .attn-hint:visible").count() == 0
        assert page.locator(".attn-entry:visible").count() == 14


def test_copies_on_a_page_are_independent(show):
    with show(PagedCacheExplorer().static_html() + PagedCacheExplorer().static_html()) as page:
        page.get_by_role("button", name="Next").nth(1).click()
        assert texts(page, ".attn-steps") == ["step 6 of 17", "step 7 of 17"]


def test_without_scripts_the_picture_stands(show, drawn):
    with show(PagedCacheExplorer(step=8).static_html(), java_script_enabled=False) as page:
        image = page.locator(".attn-picture")
        assert image.is_visible() and image.bounding_box()["width"] > 100
        assert "C, 11 tokens, has blocks 0, 1, 6" in image.get_attribute("alt")


def test_a_notebook_does_not_see_the_keys_that_walk(show):
    with show(PagedCacheExplorer().static_html()) as page:
        page.evaluate("() => { window.seen = []; document.addEventListener('keydown', (e) => seen.push(e.key)); }")
        page.locator(".attn-block").first.focus()
        for key in ("ArrowRight", "End", "Escape"):
            page.keyboard.press(key)
        assert lit(page)[0] == [23] and page.evaluate("seen") == ["Escape"]
        down = "e => e.dispatchEvent(new KeyboardEvent('keydown', {key: KEY, bubbles: true, cancelable: true}))"
        first = page.locator(".attn-block").first
        assert [first.evaluate(down.replace("KEY", repr(key))) for key in ("ArrowUp", "a")] == [False, True], "scrolls"
