"""Every chapter with its widgets and folds in use: nothing fails, and nothing is asked of another host."""

import pytest

from tests.book import built_site as site

pytestmark = pytest.mark.browser

# In each widget, and in the text around them, three controls of each kind: the first, one halfway and the last. Links
# lead away and are left alone.
DRIVE = """async () => {
  const inputs = ["radio", "checkbox", "range", "number", "text"].map((type) => `input[type=${type}]`);
  const kinds = ["summary", "button", "[role=tab]", ".sd-tab-label", "[role=gridcell]", "[role=option]",
                 "select", "textarea", ...inputs];
  const cards = [...document.querySelectorAll(".attn-card")];
  const text = document.querySelector("article, main");
  const tell = (e, ...types) => types.forEach((type) => e.dispatchEvent(new Event(type, { bubbles: true })));
  const pause = () => new Promise((done) => setTimeout(done, 15));
  const write = (e, value) => {
    e.value = value;
    tell(e, "input", "change");
  };
  let used = 0;
  async function use(e) {
    used += 1;
    e.focus({ preventScroll: true });
    if (e.matches("input[type=range]")) [e.min, e.max].forEach((value) => write(e, value));
    else if (e.matches("select")) [...e.options].slice(0, 3).forEach(({ value }) => write(e, value));
    else if (e.matches("input[type=number]")) write(e, "1");
    else if (e.matches("textarea, input[type=text]")) {
      write(e, "the cat does not read .");
      if (e.form?.checkValidity()) e.form.requestSubmit();
    } else {
      for (const key of ["ArrowRight", "ArrowDown", "Enter"]) {
        e.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
      }
      if (e.isConnected) e.click();
    }
    await pause();
  }
  for (const root of [text, ...cards]) {
    for (const kind of kinds) {
      const own = root === text ? null : root;
      const all = () => [...root.querySelectorAll(kind)].filter((e) => e.closest(".attn-card") === own);
      const count = all().length;
      for (const at of new Set([0, Math.floor(count / 2), count - 1])) {
        const e = all()[at]; // what was pressed may have made others of the rest
        if (e && !e.disabled) await use(e);
      }
    }
  }
  return [used, cards.length];
}"""
HANDLERS = """() => [...document.querySelectorAll("*")]
    .filter((e) => [...e.attributes].some(({ name }) => /^on/i.test(name)))
    .map((e) => e.outerHTML.slice(0, 100))"""


def drive(page):
    """Use the page's widgets and folds; how many controls were used, and how many widgets there are."""
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    used = page.evaluate(DRIVE)
    page.wait_for_load_state("networkidle")
    return used


@pytest.mark.parametrize("path", ["index.html", *site.chapters()])
def test_nothing_fails_and_nothing_is_fetched_from_elsewhere_when_all_is_used(visit, path):
    seen = visit(path)
    used, cards = drive(seen.page)
    widgets = len(site.parsed(path).select(".attn-static"))
    assert cards == widgets and used >= 3 * widgets
    assert seen.wrong == [] and len(seen.page.context.pages) == 1
    assert seen.page.url.endswith(path)
    assert seen.page.evaluate(HANDLERS) == []


@pytest.mark.parametrize(
    "act",
    [
        "fetch('https://example.org/a').catch(() => 0)",
        "new Image().src = '//example.org/a.png'",
        "navigator.sendBeacon('https://example.org/')",
        "window.open('https://example.org/')",
        "throw new Error('a')",
    ],
)
def test_what_only_a_control_does_is_noticed(visit, act):
    seen = visit("notation.html")
    seen.page.evaluate(
        "act => { const b = document.createElement('button'); document.querySelector('article').append(b);"
        "b.addEventListener('click', new Function(act)); }",
        act,
    )
    assert seen.wrong == []
    drive(seen.page)
    assert seen.wrong or len(seen.page.context.pages) == 2


def test_the_buttons_that_had_inline_handlers_work(visit):
    seen = visit(site.chapters()[0])
    page = seen.page
    page.evaluate("() => { window.print = () => { window.printed = (window.printed ?? 0) + 1; }; }")
    page.locator(".dropdown-download-buttons button").first.click()
    page.locator(".btn-download-pdf-button").click()
    assert page.evaluate("window.printed") == 1
    page.keyboard.press("Escape")
    for is_full in ("true", "false"):
        page.locator(".btn-fullscreen-button").click()
        page.wait_for_function(f"Boolean(document.fullscreenElement) === {is_full}")
    assert seen.wrong == []
