"""What a reader does to a page of the site, and what axe-core finds wrong with it."""

from importlib import resources

import pytest

# axe reads no MathML: to it, a table's heading that is a formula is empty. A screen reader reads the formula.
CONFIGURE = "axe.configure({rules: [{id: 'empty-table-header', selector: 'th:not(:has(math))'}]})"
CHECK = """([within, options]) =>
  axe.run(within, {resultTypes: ["violations"], preload: false, ...options}).then(found => found.violations)"""
# The thousands of coloured words of a page's code come in some ten colours: the longest of each is kept in each block,
# since axe-core does not judge a single letter.
THIN = """() => {
  for (const block of document.querySelectorAll("pre")) {
    const known = new Set();
    const words = [...block.querySelectorAll("span:not(:has(*))")];
    for (const word of words.sort((a, b) => b.textContent.length - a.textContent.length)) {
      const colour = `${word.className} in ${word.parentElement.className}`;
      if (known.has(colour)) word.replaceWith(word.textContent);
      known.add(colour);
    }
    block.normalize();
  }
}"""
# In each widget, and in the text around them, some controls of each kind, among them the first and the last; `see` is
# called after each. Links lead away and are left alone.
DRIVE = """async ([texts, most, see]) => {
  const look = eval(see);
  const inputs = ["radio", "checkbox", "range", "number", "text"].map((type) => `input[type=${type}]`);
  const kinds = ["summary", "button:not(.theme-switch-button)", "[role=tab]", ".sd-tab-label", "[role=gridcell]",
                 "[role=option]", "select", "textarea", ...inputs];
  const cards = [...document.querySelectorAll(".attn-card")];
  const text = document.querySelector("article, main");
  const tell = (e, ...types) => types.forEach((type) => e.dispatchEvent(new Event(type, { bubbles: true })));
  async function write(e, values) {
    for (const value of values.filter(() => e.isConnected)) {
      e.value = value;
      tell(e, "input", "change");
      if (e.matches("textarea, input[type=text]") && e.form?.checkValidity()) e.form.requestSubmit();
      await new Promise(requestAnimationFrame);
      look();
    }
  }
  let used = 0;
  async function use(e) {
    used += 1;
    e.focus({ preventScroll: true });
    if (e.matches("input[type=range]")) await write(e, [e.min, e.max]);
    else if (e.matches("select")) await write(e, [...e.options].slice(0, most).map(({ value }) => value));
    else if (e.matches("input[type=number]")) await write(e, ["1"]);
    else if (e.matches("textarea, input[type=text]")) await write(e, texts);
    else {
      tell(e, "pointerover", "pointermove");
      for (const key of ["ArrowRight", "ArrowDown", "Enter"]) {
        e.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
      }
      if (e.isConnected) e.click();
    }
    await new Promise(requestAnimationFrame);
    look();
  }
  for (const root of [text, ...cards].filter(Boolean)) {
    for (const kind of kinds) {
      const own = root === text ? null : root;
      const all = () => [...root.querySelectorAll(kind)].filter((e) => e.closest(".attn-card") === own);
      const count = all().length;
      const places = Array.from({ length: most }, (_, k) => Math.floor((k * (count - 1)) / (most - 1)));
      for (const at of new Set(places)) {
        const e = all()[at]; // what was pressed may have made others of the rest
        if (e?.checkVisibility() && !e.disabled) await use(e);
      }
    }
  }
  return [used, cards.length];
}"""
HANDLERS = """() => [...document.querySelectorAll("*")]
    .filter((e) => [...e.attributes].some(({ name }) => /^on/i.test(name)))
    .map((e) => e.outerHTML.slice(0, 100))"""

BROKEN = """async () => {  // those too that wait until they are near
  const images = [...document.images].filter((image) => !image.hidden);
  await Promise.all(images.map((image) => Object.assign(image, { loading: "eager" }).decode().catch(() => null)));
  return images.filter((image) => !image.naturalWidth).map((image) => `a broken picture: ${image.src.slice(0, 100)}`);
}"""
FORMULAS = """() => {
  const bad = "article .math:not(:has(mjx-container)), mjx-merror, [data-mjx-error]";
  return [...document.querySelectorAll(bad)].map((e) => `a formula: ${e.outerHTML.slice(0, 100)}`);
}"""


def drive(page):
    """Use the page's widgets and folds; how many controls were used, and how many widgets there are."""
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    used = page.evaluate(DRIVE, [["the cat does not read ."], 3, "() => 0"])
    # A dialog stays until it is closed, and then its button has the focus, and a tooltip.
    page.keyboard.press("Escape")
    leave(page)
    page.wait_for_load_state("networkidle")
    return used


def leave(page):
    """Point at nothing, and wait until no tooltip is there: it fades, and would be read half transparent."""
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")
    page.wait_for_function("!document.querySelector('.tooltip')")


def scroll_through(page):
    """Down and up again, so that what loads when it is seen has loaded."""
    page.evaluate(
        """async () => {
             for (let y = 0; y < document.body.scrollHeight; y += 700) {
               scrollTo(0, y);
               await new Promise(requestAnimationFrame);
             }
             scrollTo(0, 0);
           }"""
    )
    page.wait_for_function("[...document.images].every((image) => image.complete || !image.checkVisibility())")
    page.wait_for_selector("[data-attn-model] .attn-picture", state="detached")


def unfold(page):
    """Open all that is folded, use every widget, and wait until the page has settled."""
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    page.evaluate("document.querySelectorAll('.toggle-button-hidden').forEach(button => button.click())")
    assert page.locator(".toggle-hidden").count() == 0
    for slide in page.locator(".attn-static input[type=range]").all():
        slide.press("End")
    for cell in page.locator(".attn-static [role=gridcell]").all():
        cell.press("ArrowRight")
        cell.press("Enter")
    page.evaluate("() => window.MathJax?.startup?.promise")
    settle(page)


def settle(page):
    """Wait for what fades, and for the theme, which lets keys reach what scrolls a while after each change of the page.

    It does so for all at once: so when it has for a mark of ours, it has for the rest.
    """
    page.evaluate("document.querySelector('#main-content').append(document.createElement('pre'))")
    page.wait_for_selector("#main-content > pre[tabindex]", state="attached")
    page.evaluate("document.querySelector('#main-content > pre').remove()")
    page.evaluate("() => Promise.all(document.getAnimations().map(animation => animation.finished))")


def theme(page):
    return page.evaluate("document.documentElement.dataset.theme")


def turn_dark(page):
    """Light, dark and automatic take turns."""
    for _ in range(3):
        if theme(page) != "dark":
            page.locator("button.theme-switch-button:visible").first.click()
    leave(page)
    settle(page)


def read_axe():
    """The source of axe-core, as a package bundles it."""
    package = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed: make test-browser")
    return (resources.files(package) / "axe.min.js").read_text(encoding="utf-8")


def faults(page, within="html", **options):
    """What axe-core finds wrong with a page as it stands, a text for each element."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(read_axe())
        page.evaluate(CONFIGURE)
    return [
        f"{rule['id']} ({rule['impact']}) on {page.url}: {rule['help']}\n  {element['target']}\n  {element['html']}"
        for rule in page.evaluate(CHECK, [within, options])
        for element in rule["nodes"]
    ]
