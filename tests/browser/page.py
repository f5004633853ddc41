"""What tests read from a page that holds widgets, and how they use its controls."""

import base64
import io

import numpy as np
from PIL import Image


def texts(page, selector):
    """The visible texts of the elements that fit."""
    return [text.replace("\u00a0", " ") for text in page.locator(selector).locator("visible=true").all_inner_texts()]


def text(page, selector, nth=0):
    """The text of one element."""
    return page.locator(selector).nth(nth).inner_text().replace("\u00a0", " ")


def read(page):
    """What the widget says of what is pointed at or done."""
    return text(page, ".attn-read")


def numbers(page, selector):
    """The exact numbers behind what is shown."""
    return page.locator(selector).evaluate_all("all => all.map((e) => Number(e.dataset.value))")


def press(page, name, **options):
    """Click the button of this name."""
    page.get_by_role("button", name=name, exact=True).click(**options)


def slide(page, name, value):
    """Set an input."""
    page.locator(f"input[name={name}]").fill(str(value))


def choose(page, name, value):
    """Choose one of several radio buttons, which may be hidden under what they choose."""
    page.locator(f"input[name={name}][value='{value}']").check(force=True)


def cell(page, row, column, shape, selector=".attn-area"):
    """The middle of a cell of a drawn matrix of this shape, on the page."""
    box = page.locator(selector).bounding_box()
    return box["x"] + (column + 0.5) * box["width"] / shape[1], box["y"] + (row + 0.5) * box["height"] / shape[0]


def pixels(page, selector):
    """A canvas's own pixels (height, width, 3)."""
    data = page.locator(selector).first.evaluate("e => e.toDataURL()").split(",")[1]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")).astype(int)
