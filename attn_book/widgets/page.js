// What all widgets share. A static page's module has no other files, so this one is joined with each widget's own.
// They have one scope: no two may declare the same name at their top level.

// What is said in English goes through here. A translated book brings its words in a plain object, from the English to
// its own; what it lacks stays as it is. `{name}` is replaced by a value, once: values are not looked into again.
function say(text, values = {}) {
  const words = globalThis.attentionBookWords ?? {};
  const translated = Object.hasOwn(words, text) ? String(words[text]) : text;
  return translated.replace(/\{(\w+)\}/g, (whole, name) => (Object.hasOwn(values, name) ? values[name] : whole));
}

// Sentences, one after the other as the language puts them; those that are empty are left out.
const inOne = (...sentences) =>
  sentences.filter(Boolean).reduce((first, second) => (first ? say("{first} {second}", { first, second }) : second), "");

// ---- Elements ----

// An HTML element, or one of those that SVG is drawn of, with its attributes and what it holds.
function make(tag, attributes = {}, ...children) {
  const space = ["svg", "path", "circle", "rect", "text"].includes(tag) ? "2000/svg" : "1999/xhtml";
  const element = document.createElementNS(`http://www.w3.org/${space}`, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const part = (name, ...children) => make("div", { class: `attn-${name}` }, ...children);
const span = (name, ...children) => make("span", { class: `attn-${name}` }, ...children);

// The root of a widget: its class, its name for screen readers, and what it holds. MathJax leaves it alone.
function card(name, label, ...children) {
  const attributes = { class: `attn-card attn-${name} tex2jax_ignore mathjax_ignore`, role: "group", "aria-label": label };
  return make("div", attributes, ...children);
}

// ---- Values ----

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const within = (value, low, high) => Math.max(low, Math.min(high, value));
const grouped = (value) => value.toLocaleString("en-US");
const minus = (text) => (Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−"));
const hundredths = (weight) => (weight > 0 && weight < 0.005 ? "<0.01" : weight.toFixed(2));

// A loop, since a model has a million of them.
function bytesOf(base64) {
  const letters = atob(base64);
  const bytes = new Uint8Array(letters.length);
  for (let k = 0; k < bytes.length; k++) bytes[k] = letters.charCodeAt(k);
  return bytes;
}

function percent(share) {
  if (share > 0 && share < 0.005) return "<1\u00a0%";
  return share >= 0.995 && share < 1 ? ">99\u00a0%" : `${Math.round(100 * share)}\u00a0%`;
}

// A token as it is shown: at most 24 characters, none of them invisible.
function shown(token) {
  const letters = [...token.replace(/\p{C}/gu, " ")];
  if (!letters.join("").trim()) return "␣";
  return letters.length > 24 ? letters.slice(0, 23).join("") + "…" : letters.join("");
}

// ---- Themes and colours ----

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

// Chromium counts the pages before it tells of the change of medium, and what is drawn then may push the end off paper.
let isPrinting = false;
addEventListener("beforeprint", () => (isPrinting = true));
addEventListener("afterprint", () => (isPrinting = false));
const isPrinted = () => isPrinting || matchMedia("print").matches;

// ---- The widget on the page ----

// Lay out what is on the page, and again whenever its width, the theme or the medium changes, until the signal. A notebook
// renders what it has not put on the page yet, and takes away what is scrolled out of view: until it comes, or comes back,
// it has neither style nor size. An element that comes gets a width, which is what the observer hears of. A height is the
// widget's own doing: a word that is pointed at may change it, and to draw that word anew would lose the click on it.
function layOut(el, layout, signal) {
  const draw = () => el.isConnected && layout();
  let known = 0;
  const resized = new ResizeObserver(([{ contentRect }]) => {
    const isNew = contentRect.width !== known;
    known = contentRect.width;
    if (isNew && known) draw();
  });
  // A page may hide all that is on it while it changes its theme. The width observed anew is heard of once there is one.
  const themed = new MutationObserver(() => {
    known = 0;
    resized.unobserve(el);
    resized.observe(el);
  });
  draw();
  resized.observe(el);
  for (const page of [document.documentElement, document.body]) {
    themed.observe(page, { attributeFilter: ["class", "data-theme", "theme", "data-jp-theme-light"] });
  }
  for (const event of ["beforeprint", "afterprint"]) addEventListener(event, draw, { signal });
  for (const query of ["print", "(prefers-color-scheme: dark)"]) {
    matchMedia(query).addEventListener("change", () => isPrinting || draw(), { signal });
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

// `state` reads the traits `names` of a model, and `settle` brings them within their limits. `put` changes some of them
// and tells the kernel.
function stateOf(model, names, settle = (values) => values) {
  const state = () => settle(Object.fromEntries(names.map((name) => [name, model.get(name)])));
  const put = (changes) => {
    const next = settle({ ...state(), ...changes });
    const changed = names.filter((name) => JSON.stringify(model.get(name)) !== JSON.stringify(next[name]));
    for (const name of changed) model.set(name, next[name]);
    if (changed.length) model.save_changes();
  };
  return { state, put };
}

// What a widget's module exports as `render`. `draw` builds the widget from the model; `el` is where it will go. `listen`
// adds an event listener that lives as long as the widget, and `signal` is aborted at its end. `draw` returns
//   root    the widget's outermost element;
//   traits  the names of the traits that it shows;
//   update  a function that shows them, called once for all the traits that change together;
//   layout  only where the drawing needs styles or sizes: a function that reads them and then shows everything. It is
//           called as `layOut` has it, and until its first call there is no `update`. A widget without `layout` is
//           drawn at once, and not again when only its room changes.
function mount(draw) {
  return ({ model, el }) => {
    const stop = new AbortController();
    const { signal } = stop;
    const listen = (thing, event, handler) => thing.addEventListener(event, handler, { signal });
    const { root, traits = [], update = () => {}, layout } = draw({ model, el, listen, signal });
    let [isReady, isWaiting] = [!layout, false];
    const changed = () => {
      if (isWaiting) return;
      isWaiting = true;
      queueMicrotask(() => {
        isWaiting = false;
        if (isReady && !signal.aborted) update();
      });
    };
    for (const name of traits) model.on(`change:${name}`, changed);
    if (isReady) update();
    keepKeys(root, signal);
    el.append(root);
    const layOutRoot = () => {
      root.dataset.theme = isPrinted() ? "light" : themeOf(el);
      layout?.();
      isReady = true;
    };
    layOut(el, layOutRoot, signal);
    return () => {
      stop.abort();
      for (const name of traits) model.off(`change:${name}`, changed);
      root.remove();
    };
  };
}
