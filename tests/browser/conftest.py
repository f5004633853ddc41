import base64
import functools
import http.server
import itertools
import os
import shutil
import threading
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import pytest

from attn_book.widgets.base import StaticWidget
from tests.book import built_site as site

# A page under test may not reach anything, and neither may the browser on its own account.
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
# Milliseconds: on a busy machine a large page may take ten times as long as its few seconds.
TIMEOUT = 60_000
# A widget is drawn again in the first frame, when its width is known: what was found before is no more on the page.
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
# A widget beside a model, as with a kernel, whose changes the page is to `receive`: `told` is what the page sends back,
# `listening` who hears of changes.
MODEL = """state => {
  const on = [];
  let isNew = false;
  const receive = (name, value) => {
    state[name] = value;
    on.filter(([event]) => event === `change:${name}`).forEach(([, f]) => f());
  };
  const model = {
    get: (name) => state[name],
    set(name, value) {
      isNew ||= state[name] !== value;
      if (state[name] !== value) receive(name, value);
    },
    save_changes() {
      if (isNew) told.push({ ...state });
      isNew = false;
    },
    on: (event, f) => on.push([event, f]),
    off: (event, f) => on.splice(on.findIndex(([e, g]) => e === event && g === f), 1),
  };
  Object.assign(window, { state, receive, told: [], listening: on, el: document.createElement("div") });
  window.stop = widget.render({ model, el });
}"""
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="session")
def browser():
    """Chromium, from the path in CHROMIUM or as the system has it."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("no Chromium found: install it, or set CHROMIUM to its path")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield chromium
        chromium.close()


def report(page, own, wrong):
    """Keep in `wrong` what fails on a page, but for leaving it, and what it asks of any address but its `own`."""
    page.set_default_timeout(TIMEOUT)
    page.on("request", lambda r: None if r.url.startswith(own) else wrong.append(f"another host: {r.url}"))
    page.on("requestfailed", lambda one: one.failure == "net::ERR_ABORTED" or wrong.append(f"failed: {one.url}"))
    page.on("response", lambda answer: wrong.append(f"{answer.status}: {answer.url}") if answer.status >= 400 else None)
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))


@pytest.fixture(scope="session")
def lend(browser):
    """Give a page for a while, and what goes wrong on it: a used one where there is one, which is ten times as cheap.

    It is blank, of the size and media asked for, and nothing is stored. One whose clock is to be changed, which lasts,
    is taken `apart`; after an error, and where it opened another, a page is used no more.
    """
    idle = defaultdict(list)

    @contextmanager
    def lent(own, *, width, height=900, theme="light", reduced_motion="null", apart=False, **options):
        free = idle[own, *options.items()]
        if apart or not free:
            page, wrong = browser.new_context(**options).new_page(), []
            report(page, own, wrong)
        else:
            page, wrong = free.pop()
            wrong.clear()
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(media="null", color_scheme=theme, reduced_motion=reduced_motion)
        page.mouse.move(0, 0)
        yield page, wrong
        page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        alone = page.context.pages == [page]
        page.goto("about:blank")
        if apart or not alone:
            page.context.close()
        else:
            free.append((page, wrong))

    return lent


@pytest.fixture(autouse=True)
def pixel(request, monkeypatch):
    """In place of what matplotlib draws, which takes long and makes way where scripts run. Not beside `drawn`."""
    if "drawn" not in request.fixturenames:
        for kind in StaticWidget.__subclasses__():
            monkeypatch.setattr(kind, "picture", lambda widget: PIXEL)


@pytest.fixture
def drawn():
    """For tests that look at the picture."""


@pytest.fixture
def show(lend, tmp_path):
    """Open HTML as a page of its own, the network blocked; at the end, no request left it and no error was logged."""
    bad = []
    number = itertools.count()

    @contextmanager
    def opened(body, *, width=900, theme="light", **options):
        with lend(("file:", "data:", "blob:"), width=width, theme=theme, **options) as (page, wrong):
            # What the book's theme says of itself: a data-theme on the page.
            path = tmp_path / f"page{next(number)}.html"
            path.write_text(
                f'<!doctype html><html lang="en" data-theme="{theme}"><meta charset="utf-8"><title>t</title>'
                '<meta name="viewport" content="width=device-width, initial-scale=1">'
                "<style>html[data-theme=dark]{background:#14181e;color:#ced6dd}body{margin:8px}</style>"
                f"<body>{body}</body></html>",
                encoding="utf-8",
            )
            page.goto(path.as_uri())
            if options.get("java_script_enabled", True):
                page.evaluate(DRAWN)
            yield page
        bad.extend(wrong)

    yield opened
    assert bad == []


def state_of(widget):
    """What a page is given of a widget."""
    return {name: getattr(widget, name) for name in widget.trait_names(static=True)}


@pytest.fixture
def detached(show):
    """Render a widget beside a model, in an element that is not yet on the page. Its functions can be called."""

    @contextmanager
    def opened(widget, state=None, **options):
        script = str(widget._esm).replace("export default", "var widget =")
        with show(f"<style>{widget._css}</style><script>{script}</script>", **options) as page:
            page.evaluate(MODEL, state or state_of(widget))
            yield page

    return opened


@pytest.fixture
def live(detached):
    """The same on the page."""

    @contextmanager
    def opened(widget, **options):
        with detached(widget, **options) as page:
            page.evaluate(f"() => {{ document.body.append(el); return ({DRAWN})(); }}")
            yield page

    return opened


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def translate_path(self, path):
        """The page for addresses that lead nowhere names everything by its path on the site's host."""
        return super().translate_path("/" + path.removeprefix(site.base()) if path.startswith(site.base()) else path)


@pytest.fixture(scope="session")
def address():
    """The built site, served on this machine alone."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site.HTML)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture
def visit(lend, address):
    """Opens a page; gives it with all that went wrong: requests elsewhere, failed requests, errors."""
    with ExitStack() as held:

        def go(path, *, width=1280, **options):
            page, wrong = held.enter_context(lend((address, "data:", "blob:"), width=width, **options))
            page.goto(address + path, wait_until="load")
            return SimpleNamespace(page=page, wrong=wrong)

        yield go


def pytest_collection_modifyitems(items):
    """The longest first, so that no process waits at the end for one test of another."""
    items.sort(key=lambda item: ("test_jupyter" not in item.nodeid, "wide_window" not in item.nodeid))
