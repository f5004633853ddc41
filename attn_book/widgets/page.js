// What all widgets share. It stands in front of each one's own code: in a static page a module has only itself.

// What is said in English goes through here. A translated book brings its words in a plain object, from the English to
// its own; what it lacks stays as it is. `{name}` is replaced by a value, once: values are not looked into again.
function say(text, values = {}) {
  const words = globalThis.attentionBookWords ?? {};
  const found = Object.hasOwn(words, text) ? String(words[text]) : text;
  return found.replace(/\{(\w+)\}/g, (whole, name) => (Object.hasOwn(values, name) ? values[name] : whole));
}

// A page says which theme it wears, or its text does by being light.
function themeOf(element) {
  const { documentElement: html, body } = document;
  const said = html.dataset.theme ?? html.getAttribute("theme");
  if (said === "dark" || said === "light") return said;
  if (body?.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false" ? "dark" : "light";
  const [r, g, b] = getComputedStyle(element).color.match(/[\d.]+/g).map(Number);
  return 0.21 * r + 0.72 * g + 0.07 * b > 128 ? "dark" : "light";
}

// 256 colours along a line through the stops: red, green, blue and opacity, from 0 to 255.
function colours(stops) {
  const points = stops.map((stop) => [1, 3, 5].map((at) => parseInt(stop.slice(at, at + 2), 16)));
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (points.length - 1);
    const low = Math.min(Math.floor(at), points.length - 2);
    return [...points[low].map((value, c) => Math.round(value + (at - low) * (points[low + 1][c] - value))), 255];
  });
}

// The colours that a widget's style names for its least to its greatest number. Only what is on the page has a style.
function rampOf(root) {
  const stops = getComputedStyle(root).getPropertyValue("--attn-stops").split(",");
  return colours(stops.map((stop) => stop.trim()));
}

// Lay out what is on the page, and again whenever the room, the theme or the medium changes, until the signal. A notebook
// renders what it has not put on the page yet, and takes away what is scrolled out of view: until it comes, or comes back,
// it has neither style nor size. An element that comes gets a size, which is what the observer hears of.
function layOut(el, layout, signal) {
  const draw = () => el.isConnected && layout();
  const resized = new ResizeObserver(draw);
  const themed = new MutationObserver(draw);
  draw();
  resized.observe(el);
  for (const page of [document.documentElement, document.body]) {
    themed.observe(page, { attributeFilter: ["class", "data-theme", "theme", "data-jp-theme-light"] });
  }
  for (const query of ["print", "(prefers-color-scheme: dark)"]) {
    matchMedia(query).addEventListener("change", draw, { signal });
  }
  signal.addEventListener("abort", () => [resized, themed].forEach((observer) => observer.disconnect()));
}

// What moves a slider or chooses a radio button goes no further: a notebook would move to another of its cells. Notebook 7
// takes keys before they arrive here, but for those whose target has an attribute.
function keepKeys(root, signal) {
  const isKept = ({ key, ctrlKey, altKey, metaKey }) =>
    !ctrlKey && !altKey && !metaKey && /^(Arrow|Page|Home|End)/.test(key);
  const claim = (event) => {
    const [{ target }, mark] = [event, "data-lm-suppress-shortcuts"];
    if (!isKept(event) || !root.contains(target) || target.hasAttribute(mark)) return;
    target.setAttribute(mark, "true");
    setTimeout(() => target.removeAttribute(mark));
  };
  window.addEventListener("keydown", claim, { capture: true, signal });
  root.addEventListener("keydown", (event) => isKept(event) && event.stopPropagation(), { signal });
}

