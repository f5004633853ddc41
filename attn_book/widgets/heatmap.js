// One attention map on a canvas, its tokens as text beside it, and what it takes to read a weight by pointer or keys;
// above it, where a layer has several heads, a small map of each to choose by.

const TRAITS = ["layer", "head", "row"];
const THEMES = {
  light: { ramp: ["#f4f3f8", "#cfc8ea", "#9c8bd2", "#6547ad", "#321474"], mark: "#d9680f", paper: "#ffffff" },
  dark: { ramp: ["#23252f", "#403a6b", "#6b5bb0", "#a48fe6", "#e9e2ff"], mark: "#ff9d3d", paper: "#16181d" },
};

function unpack(text, bits) {
  const bytes = bytesOf(text);
  if (bits === 8) return bytes;
  const view = new DataView(bytes.buffer);
  return Uint16Array.from({ length: bytes.length / 2 }, (_, i) => view.getUint16(2 * i, true));
}

function draw({ model, el, listen }) {
  const [source, target] = ["source", "target"].map((name) => model.get(name));
  const layers = model.get("layers").map((name) => say(name));
  const title = say(model.get("title"));
  const heads = model.get("heads");
  const codes = unpack(model.get("codes"), model.get("bits"));
  const top = 2 ** model.get("bits") - 1;
  const scale = model.get("scale");
  const linked = new Set(model.get("links").map(([s, t]) => t * source.length + s));
  const limits = { layer: layers.length, head: heads };
  const { put } = stateOf(model, TRAITS);

  // What is on the page, from top to bottom.
  const choosers = part("choosers");
  const columns = source.map((token) => span("column", shown(token)));
  // Enter in the grid does what a row's button does, so that Tab need not stop at each.
  const button = { type: "button", class: "attn-row", tabindex: -1 };
  const rows = target.map((token) => make("button", button, shown(token)));
  const corner = part("corner", make("span", {}, say("key →")), make("span", {}, say("query ↓")));
  const canvas = make("canvas", { "aria-hidden": true });
  const hover = part("hover");
  // A grid of which only the cell in hand is in the document; it moves, and a live region says what it holds.
  const gridName = say("Weights: a row for each query, a column for each key");
  const counts = { "aria-rowcount": target.length, "aria-colcount": source.length };
  const cell = make("div", { class: "attn-cell", role: "gridcell", tabindex: 0 });
  const line = make("div", { class: "attn-line", role: "row" }, cell);
  const grid = make("div", { class: "attn-grid", role: "grid", "aria-label": gridName, ...counts }, line);
  const area = part("area", canvas, hover, grid);
  const board = part("board", part("columns", corner, ...columns), part("rows", ...rows), area);
  const read = make("output", { class: "attn-read", "aria-live": "polite" });
  const legend = part("legend", span("key", "0", span("ramp"), say("{weight} weight", { weight: hundredths(scale) })));
  if (linked.size) legend.append(span("key", span("mark"), say("true alignment")));
  const arcs = makeArcs(listen, target, source, linked, point, keep);
  const gallery = make("div", { class: "attn-gallery", role: "radiogroup", "aria-label": say("head") });
  const named = title || say("Attention");
  const root = card(
    "heatmap",
    say("{title}: heatmap of attention weights", { title: named }),
    part("bar", span("title", title), choosers),
    ...(heads > 1 ? [gallery] : []),
    part("views", part("scroll", board), arcs.box),
    part("foot", read, legend),
  );

  const index = (name) => within(model.get(name), 0, limits[name] - 1);
  const kept = () => (model.get("row") < target.length ? model.get("row") : -1);
  const start = () => (index("layer") * heads + index("head")) * target.length * source.length;
  const weight = (t, s) => (codes[start() + t * source.length + s] / top) * scale;

  const last = layers.length - 1;
  // A layer has a number, or a module's path with one. Others, such as several models, are maps with names of their own.
  const areLayers = model.get("layers").every((name) => /layer|^[\w.]*\b\d+\b[\w.]*$/i.test(name));
  const which = areLayers ? say("layer") : say("map");
  const slide = make("input", { type: "range", min: 0, max: last, step: 1, name: "layer", "aria-label": which });
  const layerName = span("value");
  layerName.style.minWidth = `${Math.min(16, Math.max(...layers.map((name) => name.length)))}ch`;
  listen(slide, "input", () => put({ layer: Number(slide.value) }));
  if (last) choosers.append(make("label", { class: "attn-chooser" }, make("span", {}, which), slide, layerName));
  function follow() {
    slide.value = index("layer");
    layerName.textContent = layers[index("layer")];
    const values = { name: layerName.textContent, layer: slide.value, last };
    slide.setAttribute("aria-valuetext", areLayers ? say("{name}, layer {layer} of 0 to {last}", values) : values.name);
  }

  // Radio buttons: one stop for Tab, and the arrows choose.
  const together = `attn-${Math.random()}`; // other widgets on the page have groups of their own
  const views = Array.from({ length: heads > 1 ? heads : 0 }, (_, head) => {
    const name = say("head {head}", { head });
    const button = make("input", { type: "radio", name: together, value: head, "aria-label": name });
    const view = make("canvas", { "aria-hidden": true });
    const label = make("label", { class: "attn-view" }, button, view, make("span", {}, name));
    listen(button, "change", () => put({ head }));
    gallery.append(label);
    return { label, button, view };
  });

  let size = 24;
  let ramps = {};
  let theme = "light";
  let at = [Math.max(0, kept()), 0];
  let over = null;

  function paint() {
    const dots = Math.max(1, devicePixelRatio || 1);
    const [width, height] = [source.length * size, target.length * size];
    if (canvas.width !== Math.round(width * dots) || canvas.height !== Math.round(height * dots)) {
      [canvas.width, canvas.height] = [Math.round(width * dots), Math.round(height * dots)];
    }
    const pen = canvas.getContext("2d");
    const { mark, paper } = THEMES[theme];
    const ramp = (ramps[theme] ??= colours(THEMES[theme].ramp).map((bytes) => `rgb(${bytes.slice(0, 3)})`));
    const gap = size >= 16 ? 2 : size >= 6 ? 1 : 0;
    const first = start();
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.clearRect(0, 0, width, height);
    for (let t = 0, i = first; t < target.length; t++) {
      pen.globalAlpha = kept() < 0 || kept() === t ? 1 : 0.22;
      for (let s = 0; s < source.length; s++, i++) {
        pen.fillStyle = ramp[Math.round((codes[i] / top) * 255)];
        pen.fillRect(s * size + gap / 2, t * size + gap / 2, size - gap, size - gap);
      }
    }
    const thick = size >= 20 ? 2.5 : 1.5;
    for (const i of linked) {
      const [t, s] = [Math.floor(i / source.length), i % source.length];
      pen.globalAlpha = kept() < 0 || kept() === t ? 1 : 0.35;
      for (const [colour, inset, pixels] of [[paper, gap / 2 + thick + 0.5, 1], [mark, gap / 2 + thick / 2, thick]]) {
        pen.strokeStyle = colour;
        pen.lineWidth = pixels;
        pen.strokeRect(s * size + inset, t * size + inset, size - 2 * inset, size - 2 * inset);
      }
    }
    pen.globalAlpha = 1;
    arcs.draw(target.map((_, t) => source.map((_, s) => codes[first + t * source.length + s] / top)), kept());
  }

  // The small maps: which of them is chosen, and, where layer or theme are others than before, all of them anew.
  let surveyed = "";
  function survey() {
    views.forEach(({ label, button }, head) => {
      button.checked = head === index("head");
      label.classList.toggle("attn-chosen", button.checked);
    });
    const dots = Math.max(1, devicePixelRatio || 1);
    const key = [index("layer"), theme, dots].join();
    if (surveyed === key) return;
    surveyed = key;
    // Pixels for a cell: 72 for the longer side, and up to 96 where otherwise a long thin map could not be seen.
    const [few, many] = [source.length, target.length].sort((a, b) => a - b);
    const room = Math.max(72, Math.min(96, (18 * many) / few)) / many;
    const side = room < 1 ? room : Math.min(24, Math.floor(room));
    const step = Math.max(1, Math.round(side * dots));
    const ramp = colours(THEMES[theme].ramp);
    const cells = new ImageData(source.length, target.length); // a pixel for a cell, drawn larger all at once
    const pixels = make("canvas");
    [pixels.width, pixels.height] = [source.length, target.length];
    views.forEach(({ view }, head) => {
      [view.width, view.height] = [source.length * step, target.length * step];
      Object.assign(view.style, { width: `${source.length * side}px`, height: `${target.length * side}px` });
      const pen = view.getContext("2d");
      const first = (index("layer") * heads + head) * target.length * source.length;
      for (let i = 0; i < target.length * source.length; i++) {
        cells.data.set(ramp[Math.round((codes[first + i] / top) * 255)], 4 * i);
      }
      pixels.getContext("2d").putImageData(cells, 0, 0);
      Object.assign(pen, { imageSmoothingEnabled: false, strokeStyle: THEMES[theme].mark, lineWidth: dots });
      pen.drawImage(pixels, 0, 0, view.width, view.height);
      for (const i of side < 5 ? [] : linked) {
        const [x, y] = [(i % source.length) * step, Math.floor(i / source.length) * step];
        pen.strokeRect(x + dots / 2, y + dots / 2, step - dots, step - dots);
      }
    });
  }

  // What is being read: the cell under the pointer, else the one the keys are at, else the row that is kept.
  const reading = () => over ?? (cell.matches(":focus-visible:not(.attn-pointed)") ? at : [kept(), -1]);

  function tell() {
    const [t, s] = reading();
    read.classList.toggle("attn-hint", t < 0);
    if (s >= 0) read.textContent = sentence(t, s);
    else if (t >= 0) {
      const best = source.map((_, i) => i).sort((a, b) => weight(t, b) - weight(t, a)).slice(0, 3);
      read.textContent = `${shown(target[t])} → ${best.map((i) => `${shown(source[i])} ${hundredths(weight(t, i))}`).join(", ")}`;
    } else read.textContent = say("Point at a cell or use the arrow keys; Enter keeps a row.");
  }

  function sentence(t, s) {
    const values = { target: shown(target[t]), source: shown(source[s]), weight: hundredths(weight(t, s)) };
    return linked.has(t * source.length + s)
      ? say("{target} → {source}: {weight}, true alignment", values)
      : say("{target} → {source}: {weight}", values);
  }

  function mark() {
    const [t, s] = reading();
    columns.forEach((label, i) => label.classList.toggle("attn-on", i === s));
    rows.forEach((label, i) => {
      label.classList.toggle("attn-on", i === t);
      label.classList.toggle("attn-off", kept() >= 0 && i !== kept() && i !== t);
      label.setAttribute("aria-pressed", i === kept());
    });
    hover.hidden = !over;
    for (const [box, [y, x]] of [[hover, over ?? [0, 0]], [cell, at]]) {
      Object.assign(box.style, { left: `${x * size}px`, top: `${y * size}px`, width: `${size}px`, height: `${size}px` });
    }
    line.setAttribute("aria-rowindex", at[0] + 1);
    cell.setAttribute("aria-colindex", at[1] + 1);
    cell.setAttribute("aria-selected", at[0] === kept());
    cell.setAttribute("aria-label", sentence(...at));
    arcs.mark(t, s);
    tell();
  }

  function update() {
    follow();
    paint();
    survey();
    mark();
  }

  // Cells as large as the width allows, within reason; what does not fit scrolls inside the widget.
  function layout() {
    theme = root.dataset.theme;
    const most = Math.max(source.length, target.length);
    root.classList.toggle("attn-small", most > 24);
    const least = isPrinted() || most > 128 ? 4 : most <= 24 ? 16 : 12; // paper does not scroll
    const label = Math.max(...rows.map((row) => row.offsetWidth), corner.offsetWidth);
    const tokens = Math.max(...columns.map((column) => column.offsetWidth));
    const width = Math.min(el.clientWidth || 640, isPrinted() ? 660 : Infinity) - 32;
    const slope = (wide) => (wide >= 20 ? Math.PI / 4 : Math.PI / 2);
    const room = (wide) => width - label - tokens * Math.cos(slope(wide)) - 4;
    size = Math.max(least, Math.min(most <= 6 ? 44 : 32, Math.floor(room(32) / source.length)));
    const angle = slope(size);
    root.classList.toggle("attn-dense", size < 9);
    const set = (name, value) => root.style.setProperty(name, value);
    set("--attn-size", `${size}px`);
    set("--attn-label", `${label}px`);
    set("--attn-angle", `${-angle}rad`);
    const [head, tail] = [Math.ceil(tokens * Math.sin(angle)) + 12, Math.ceil(tokens * Math.cos(angle))];
    set("--attn-head", `${head}px`);
    set("--attn-tail", `${tail}px`);
    set("--attn-wide", `${label + source.length * size + tail + 32}px`);
    const inside = root.clientWidth - 30; // of the card, which may be narrower than its place
    arcs.layout(inside - label - source.length * size - tail - 24, size, Math.max(34, head), [label, tokens + 10]);
    columns.forEach((column, i) => (column.style.left = `${(i + 0.5) * size}px`));
    Object.assign(canvas.style, { width: `${source.length * size}px`, height: `${target.length * size}px` });
    update();
    // As many small maps to a line as fit, then as few as take no more lines, so that the last is not almost empty.
    const widest = Math.max(1, ...views.map(({ label: { offsetWidth } }) => offsetWidth)) + 8;
    const lines = Math.ceil(heads / Math.max(1, Math.floor((gallery.clientWidth + 8) / widest)));
    set("--attn-views", Math.ceil(heads / lines));
  }

  function locate(event) {
    const box = area.getBoundingClientRect();
    const [t, s] = [Math.floor((event.clientY - box.top) / size), Math.floor((event.clientX - box.left) / size)];
    return t >= 0 && s >= 0 && t < target.length && s < source.length ? [t, s] : null;
  }

  function keep(t) {
    put({ row: kept() === t ? -1 : t });
  }

  function point(next) {
    if (String(next) === String(over)) return;
    over = next;
    mark();
  }
  listen(area, "pointermove", (event) => point(locate(event)));
  listen(area, "pointerdown", (event) => {
    over = locate(event);
    mark();
  });
  listen(area, "pointerleave", (event) => {
    if (event.pointerType !== "mouse") return; // a finger that lifts leaves what it read
    over = null;
    mark();
  });
  listen(area, "click", (event) => {
    const place = locate(event);
    if (!place) return;
    at = place;
    cell.classList.add("attn-pointed");
    cell.focus({ preventScroll: true });
    keep(at[0]);
  });
  rows.forEach((row, t) => listen(row, "click", () => keep(t)));
  listen(cell, "focus", mark);
  listen(cell, "blur", () => {
    cell.classList.remove("attn-pointed");
    mark();
  });
  listen(cell, "keydown", (event) => {
    const [t, s] = at;
    const end = [target.length - 1, source.length - 1];
    const moves = {
      ArrowUp: [t - 1, s],
      ArrowDown: [t + 1, s],
      ArrowLeft: [t, s - 1],
      ArrowRight: [t, s + 1],
      Home: event.ctrlKey ? [0, 0] : [t, 0],
      End: event.ctrlKey ? end : [t, end[1]],
    };
    if (event.altKey || event.metaKey) return;
    cell.classList.remove("attn-pointed");
    if (event.key === "Enter" || event.key === " ") keep(t);
    else if (event.key === "Escape" && kept() >= 0) put({ row: -1 });
    else if (moves[event.key]) {
      at = moves[event.key].map((value, i) => Math.max(0, Math.min(value, end[i])));
      over = null;
      mark();
      cell.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else return;
    event.preventDefault();
    event.stopPropagation(); // a notebook has keys of its own
  });

  return { root, traits: TRAITS, update, layout };
}

export default { render: mount(draw) };
