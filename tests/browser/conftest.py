import functools
import http.server
import os
import shutil
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.book import built_site as site

# A page under test may not reach anything, and neither may the browser on its own account.
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


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


@pytest.fixture
def show(browser, tmp_path):
    """Open HTML as a page of its own, the network blocked; at the end, no request left it and no error was logged."""
    bad = []

    @contextmanager
    def opened(body, *, width=900, height=900, theme="light", **options):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme, **options)
        page = context.new_page()
        page.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
        page.on("request", lambda r: bad.append(r.url) if not r.url.startswith(("file:", "data:", "blob:")) else None)
        page.on("console", lambda m: bad.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: bad.append(str(error)))
        # What the book's theme says of itself: a data-theme on the page.
        path = tmp_path / "page.html"
        path.write_text(
            f'<!doctype html><html lang="en" data-theme="{theme}"><meta charset="utf-8"><title>t</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            "<style>html[data-theme=dark]{background:#14181e;color:#ced6dd}body{margin:8px}</style>"
            f"<body>{body}</body></html>",
            encoding="utf-8",
        )
        page.goto(path.as_uri())
        yield page
        context.close()

    yield opened
    assert bad == []


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
def visit(browser, address):
    """Opens a page; gives it with all that went wrong: requests elsewhere, failed requests, errors."""
    contexts = []

    def go(path, *, width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page, wrong = context.new_page(), []

        def route(request):
            if request.request.url.startswith((address, "data:", "blob:")):
                request.continue_()
            else:
                wrong.append(f"another host: {request.request.url}")
                request.abort()

        page.route("**/*", route)
        page.on("requestfailed", lambda request: wrong.append(f"failed: {request.url}"))
        page.on(
            "response", lambda answer: wrong.append(f"{answer.status}: {answer.url}") if answer.status >= 400 else None
        )
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(address + path, wait_until="load")
        return SimpleNamespace(page=page, wrong=wrong)

    yield go
    for context in contexts:
        context.close()
