import re

import numpy as np
import pytest

from attn_book.widgets import PagedCacheExplorer
from attn_book.widgets.paged_cache import _HUES

STATE = ("block_size", "num_blocks", "reserve", "events", "step")
STORY = [["start", "A", 5], ["fork", "A", "B"], ["grow", "B"], ["decode"], ["end", "A"]]


def state(widget):
    return {name: getattr(widget, name) for name in STATE}


def tables(widget):
    """Each request's length and block table."""
    found, numbers = widget.replay()
    return {name: (found.length(number), found.table(number)) for name, number in numbers.items()}


def test_what_finds_no_room_changes_nothing_and_what_follows_goes_on():
    story = [["start", "A", 3], ["start", "B", 9], ["grow", "B"], ["fork", "B", "C"], ["decode"], ["end", "B"]]
    widget = PagedCacheExplorer(story, num_blocks=2)
    assert tables(widget) == {"A": (4, [0])} and len(widget.replay()[0].sequences) == 1
    widget.events = [["start", "A", 4], ["start", "B", 3], *[["decode"]] * 3]
    widget.step = 5
    assert tables(widget) == {"A": (4, [0]), "B": (4, [1])}, "A waits for a block, B for one after its last slot"
    widget.num_blocks = 4
    assert tables(widget) == {"A": (7, [0, 2]), "B": (6, [1, 3])}


@pytest.mark.parametrize(
    "event",
    [
        "decode", 7, [], ["jump", "A"], ["start", "A", 3], ["start", "BB", 3], ["start", "", 3], ["start", "b", 3],
        ["start", 3, 3], ["start", [], 3], ["start", "B"], ["start", "B", 0], ["start", "B", True], ["start", "B", 2.0],
        ["start", "B", 10**9], ["grow", "B"], ["grow", "A", 0], ["grow", "A", True], ["grow", "A", 1, 1],
        ["preempt", "B"], ["resume", "A"], ["grow", []], ["fork", "B", "C"], ["fork", "A", "A"], ["end", "Z"],
        ["decode", "A"], {"decode": 1},
    ],
    ids=str,
)  # fmt: skip
def test_refuses_an_event_that_cannot_happen(event):
    with pytest.raises(ValueError, match="^events: expected"):
        PagedCacheExplorer([["start", "A", 3], event])
    widget = PagedCacheExplorer(STORY)
    for change in (lambda: setattr(widget, "events", [["start", "A", 3], event]), lambda: sent(widget, event)):
        before = state(widget)
        with pytest.raises(ValueError, match="^events: expected"):
            change()
        assert state(widget) == before


def sent(widget, event):
    """As a page would send it."""
    widget.set_state({"step": 1, "events": [["start", "A", 3], event]})


@pytest.mark.parametrize("event", [["grow", "A"], ["grow", "A", 2], ["fork", "A", "B"], ["preempt", "A"]])
def test_refuses_what_a_preempted_request_cannot_do(event):
    with pytest.raises(ValueError, match=r"^events: expected .* \['A'\] of them preempted"):
        PagedCacheExplorer([["start", "A", 3], ["preempt", "A"], event])


def test_a_preempted_request_keeps_its_text_and_comes_back_when_there_is_room():
    story = [["start", "A", 8], ["start", "B", 5], ["grow", "B", 3], ["preempt", "B"], ["decode"], ["resume", "B"]]
    widget = PagedCacheExplorer(story, num_blocks=4)
    assert tables(widget) == {"A": (9, [0, 1, 2])}, "two blocks are needed, and one is free"
    assert "Preempted: B, 8 tokens." in widget.describe()
    widget.events = [*story[:-1], ["end", "A"], ["resume", "B"]]
    widget.step = len(widget.events)
    assert tables(widget) == {"B": (8, [0, 1])} and "Preempted" not in widget.describe()
    widget.events = [*story, ["end", "B"], ["end", "A"], ["start", "B", 1]]
    widget.step = len(widget.events)
    assert tables(widget) == {"B": (1, [0])}


@pytest.mark.parametrize(("name", "value"), [("block_size", 3), ("num_blocks", 129), ("reserve", 0), ("step", 6)])
def test_limits(name, value):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        PagedCacheExplorer(STORY, **{name: value})


def test_the_step_stays_within_the_events():
    widget = PagedCacheExplorer(STORY)
    assert widget.step == 5
    widget.events = STORY[:2]
    assert widget.step == 2
    widget.set_state({"events": STORY, "step": 4})
    assert (len(widget.events), widget.step) == (5, 4)


def test_arguments_become_plain_and_are_not_kept():
    story = [("start", "A", np.int64(3)), ["grow", "A"]]
    widget = PagedCacheExplorer(iter(story), block_size=np.int64(8))
    story[1][1] = "B"
    assert widget.events == [["start", "A", 3], ["grow", "A"]]
    assert type(widget.events[0][2]) is int and type(widget.block_size) is int


def luminance(colour):
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


def test_colours_are_the_same_in_picture_and_page_and_carry_letters():
    hues = re.findall(r"--attn-hue-(\d): (#\w{6})", str(PagedCacheExplorer._css))
    assert [int(k) for k, _ in hues] == [*range(8)] * 2
    light, dark = ([hue for _, hue in hues[:8]], [hue for _, hue in hues[8:]])
    assert tuple(light) == _HUES
    assert all(1.05 / (luminance(hue) + 0.05) >= 4.5 for hue in light)
    assert all((luminance(hue) + 0.05) / (luminance("#16181d") + 0.05) >= 4.5 for hue in dark)


def test_the_example_opens_where_two_requests_share_blocks():
    tables, numbers = PagedCacheExplorer().replay()
    one, other = (tables.table(numbers[name]) for name in "AC")
    assert one[:2] == other[:2] and one[2] != other[2]
