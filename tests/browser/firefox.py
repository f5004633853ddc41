"""Firefox, driven through WebDriver BiDi, which it speaks itself; Playwright drives no Firefox but its own."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import websocket

# Nothing leaves this machine, for every other host is behind a proxy that is not there; and nothing moves by itself, so
# that what is to be clicked stands still.
PREFERENCES = {
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "ui.prefersReducedMotion": 1,
}
KEYS = {"Enter": "\ue007", "Home": "\ue011", "ArrowLeft": "\ue012", "ArrowRight": "\ue014", "ArrowDown": "\ue015"}
EVENTS = ["browsingContext.load", "log.entryAdded", "network"]
CALL = "async (text, ...own) => JSON.stringify(await (%s)(...own, ...JSON.parse(text)))"
# Five frames after the last change in an element.
QUIET = """element => new Promise((done) => {
  let left = 5;
  const seen = new MutationObserver(() => { left = 5; });
  seen.observe(element, { attributes: true, childList: true, subtree: true });
  const next = () => (left-- ? requestAnimationFrame(next) : done());
  next();
})"""
PATIENCE = 120  # seconds, far more than anything takes


class Firefox:
    """A Firefox with one page at a time. Its address is in `loaded`, and what goes wrong there in `wrong`."""

    def __init__(self, path: str, profile: Path) -> None:
        lines = "".join(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in PREFERENCES.items())
        (profile / "user.js").write_text(lines, encoding="utf-8")
        command = [path, "--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port=0"]
        self._log = (profile / "log").open("w")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        self.own, self.wrong, self.loaded = "about:", [], ""  # type: str, list[str], str
        self._asked, self._page = 0, ""
        try:
            address = self.until(lambda: re.search(r"listening on (ws://\S+)", (profile / "log").read_text()))[1]
            self._socket = websocket.create_connection(f"{address}/session", timeout=PATIENCE, suppress_origin=True)
            self.ask("session.new", capabilities={})
            self.ask("session.subscribe", events=EVENTS)
        except BaseException:
            self._process.kill()
            raise

    def close(self) -> None:
        """End it."""
        self._socket.close()
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._log.close()

    def until(self, happens: Any) -> Any:
        """Wait until a function gives something, and give it."""
        end = time.monotonic() + PATIENCE
        while not (found := happens()):
            assert time.monotonic() < end and self._process.poll() is None, "Firefox does not answer"
            time.sleep(0.02)
        return found

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and give its result; what happens on the page before it is there is kept."""
        self._asked += 1
        self._socket.send(json.dumps({"id": self._asked, "method": method, "params": parameters}))
        while (answer := json.loads(self._socket.recv())).get("id") != self._asked:
            self._keep(answer["method"], answer["params"])
        assert answer["type"] == "success", answer
        result: dict[str, Any] = answer["result"]
        return result

    def _keep(self, event: str, what: dict[str, Any]) -> None:
        address = what.get("request", {}).get("url", "")
        if what.get("source", what)["context"] != self._page:  # a page that was left, whose failures come late
            return
        if event == "browsingContext.load":
            self.loaded = what["url"]
        elif event == "log.entryAdded" and what["level"] == "error":
            self.wrong.append(what["text"])
        elif event == "network.fetchError" and what["errorText"] != "NS_BINDING_ABORTED":  # which is to leave a page
            self.wrong.append(f"failed: {address}")
        elif event == "network.responseCompleted" and what["response"]["status"] >= 400:
            self.wrong.append(f"{what['response']['status']}: {address}")
        elif event == "network.beforeRequestSent" and not address.startswith((self.own, "data:", "blob:")):
            self.wrong.append(f"another host: {address}")

    def open(self, site: str, path: str) -> None:
        """Open a page of a site in a tab of its own and wait until it has loaded. What it asks of others is wrong."""
        # In the first tab, the field for addresses has the focus.
        self._page = self.ask("browsingContext.create", type="tab")["context"]
        self.own, self.wrong = site, []
        self.ask("browsingContext.navigate", context=self._page, url=site + path, wait="complete")

    def evaluate(self, function: str, *arguments: Any, on: Any = None) -> Any:
        """What a JavaScript function returns, for these arguments and before them an element."""
        own = [] if on is None else [on]
        answer = self.ask(
            "script.callFunction",
            functionDeclaration=CALL % function,
            arguments=[{"type": "string", "value": json.dumps(arguments)}, *own],
            target={"context": self._page},
            awaitPromise=True,
        )
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]
        return json.loads(answer["result"].get("value", "null"))

    def find(self, selector: str, within: Element | None = None) -> list[Element]:
        """The elements of the page, or in one of them, that fit."""
        start = {} if within is None else {"startNodes": [within.node]}
        locator = {"type": "css", "value": selector}
        nodes = self.ask("browsingContext.locateNodes", context=self._page, locator=locator, **start)["nodes"]
        return [Element(self, {"sharedId": node["sharedId"]}) for node in nodes]

    def act(self, kind: str, *actions: dict[str, Any]) -> None:
        """Move the pointer, or press keys."""
        device = {"type": kind, "id": kind, "actions": list(actions)}
        self.ask("input.performActions", context=self._page, actions=[device])


class Element:
    """An element of the page."""

    def __init__(self, browser: Firefox, node: dict[str, Any]) -> None:
        self.browser, self.node = browser, node

    def evaluate(self, function: str, argument: Any = None) -> Any:
        """What a JavaScript function of the element returns."""
        return self.browser.evaluate(function, argument, on=self.node)

    def show(self) -> None:
        """Scroll to it, and wait until nothing in it has changed for a while."""
        self.evaluate("e => e.scrollIntoView({ block: 'center', behavior: 'instant' })")
        self.evaluate(QUIET)

    def point(self, *then: dict[str, Any]) -> None:
        """Move the pointer to its middle, and go on from there."""
        origin = {"type": "element", "element": self.node}
        self.browser.act("pointer", {"type": "pointerMove", "x": 0, "y": 0, "origin": origin}, *then)

    def click(self) -> None:
        """Click in its middle."""
        self.point(*({"type": f"pointer{way}", "button": 0} for way in ("Down", "Up")))

    def press(self, key: str) -> None:
        """Press a key while it has the focus."""
        self.evaluate("e => e.focus()")
        self.browser.act("key", *({"type": f"key{way}", "value": KEYS[key]} for way in ("Down", "Up")))
