"""Prints the book into one PDF: all pages as one, set by Chromium, widgets as they print."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import attn_core

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "_build" / "singlehtml" / "index.html"
TARGET = ROOT / "_build" / f"attention-book-{attn_core.__version__}.pdf"
FOOTER = (
    '<div style="width: 100%; font-size: 8px; color: #5b6070; text-align: center">'
    '<span class="pageNumber"></span></div>'
)
# Pages are ready when formulas are set, fonts and pictures are there, and every widget has run; folds are opened,
# because paper has none. What a notebook sets up and imports stays folded, and is not printed.
READY = r"""async () => {
  await window.MathJax?.startup?.promise;
  await document.fonts.ready;
  const setsUp = (fold) => /^(#.*\n)?(import |from |if "google)/.test(fold.querySelector("pre")?.textContent ?? "");
  for (const fold of document.querySelectorAll("details")) fold.open = !setsUp(fold);
  for (const image of document.images) image.loading = "eager";
  await Promise.all([...document.images].map((image) => image.decode().catch(() => null)));
  const waiting = () => document.querySelectorAll(".attn-static .attn-picture").length;
  for (let tries = 0; waiting() && tries < 100; tries++) await new Promise((done) => setTimeout(done, 300));
  return waiting();
}"""


def chromium() -> str:
    """The browser on this machine.

    Raises:
        FileNotFoundError: there is none.
    """
    names = (
        [os.environ["CHROMIUM"]] if os.environ.get("CHROMIUM") else ["chromium", "chromium-browser", "google-chrome"]
    )
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        raise FileNotFoundError(f"the PDF needs Chromium; looked for {', '.join(names)}")
    return found


def print_book(page: Path, target: Path) -> None:
    """Open the one page that holds the book, and print it.

    Raises:
        FileNotFoundError: there is no Chromium.
        RuntimeError: a widget shows the picture that stands for it, and does not start.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        context = browser.new_context(offline=True, color_scheme="light")
        sheet = context.new_page()
        sheet.set_default_timeout(600_000)
        sheet.goto(page.as_uri(), wait_until="load")
        waiting = sheet.evaluate(READY)
        if waiting:
            raise RuntimeError(f"{waiting} widgets did not start")
        sheet.emulate_media(media="print")
        sheet.pdf(
            path=target,
            format="A4",
            scale=0.85,
            margin={"top": "18mm", "bottom": "18mm", "left": "16mm", "right": "16mm"},
            print_background=True,
            display_header_footer=True,
            header_template="<span></span>",
            footer_template=FOOTER,
            outline=True,
            tagged=True,
        )
        browser.close()


def shrink(path: Path) -> None:
    """Compress what Chromium writes as plain text: the tags for screen readers are two thirds of the file."""
    import pikepdf

    with pikepdf.open(path, allow_overwriting_input=True) as document:
        document.save(path, object_stream_mode=pikepdf.ObjectStreamMode.generate)


def main(arguments: Sequence[str]) -> int:
    """Print the book, or the page that is named."""
    page, target = map(Path, arguments) if arguments else (PAGE, TARGET)
    try:
        print_book(page, target)
        shrink(target)
    except (FileNotFoundError, RuntimeError) as error:
        print(f"make: {error}", file=sys.stderr)
        return 1
    print(f"The book on paper: {target}, {target.stat().st_size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
