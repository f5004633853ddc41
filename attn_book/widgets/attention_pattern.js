// Patterns of approximate attention: which keys each query reads and why, and the scores that takes as the text grows.

const TRAITS = ["pattern", "causal", ...Object.keys(LIMITS), "query"];
const CONTROLS = {
  full: [], window: ["window", "dilation"], global: ["window", "dilation", "global_tokens"],
  hash: ["num_buckets", "bucket_size", "rounds"], slots: ["slots"],
};
const NAMED = { window: "near", slots: "many" }; // what a slider is called where a pattern has the trait's name
const LEGEND = {
  full: ["all"], window: ["near"], global: ["near", "global"], hash: ["bucket", "alone", "missed"], slots: ["slot"],
};
const ROOM = [30, 36]; // left of the matrix, and above it

function draw({ model, listen }) {
  const { state, put } = stateOf(model, TRAITS, (s) => ({ ...s, query: within(s.query, 0, s.n - 1) }));

  // What is on the page: the controls, then the matrix, the circle of the hashes, and the cost.
  const choices = PATTERNS.map((pattern) => {
    const input = make("input", { type: "radio", name: "pattern", value: pattern });
    listen(input, "change", () => put({ pattern }));
    const chip = span("chip", TEXT[pattern], " ", span("under", TEXT.under[pattern]));
    return { input, label: make("label", { class: "attn-choice" }, input, chip) };
  });
  // A form, so that copies on a page have radio buttons of their own.
  const group = make("div", { class: "attn-choices", role: "radiogroup", "aria-label": TEXT.patterns });
  group.append(...choices.map(({ label }) => label));
  const form = make("form", {}, group);
  listen(form, "submit", (event) => event.preventDefault());
  const sliders = Object.entries(LIMITS).filter(([name]) => name !== "seed").map(([name, [min, max]]) => {
    const step = name === "num_buckets" ? 2 : 1;
    const text = TEXT[NAMED[name] ?? name];
    const input = make("input", { type: "range", name, min, max, step, "aria-label": text });
    const value = span("value");
    listen(input, "input", () => put({ [name]: Number(input.value) }));
    return { name, input, value, box: make("label", { class: "attn-slider" }, make("span", {}, text), input, value) };
  });
  const causal = make("input", { type: "checkbox", name: "causal" });
  const never = span("never");
  listen(causal, "change", () => put({ causal: causal.checked }));
  const causalBox = part("causal", make("label", {}, causal, TEXT.causal), never);
  const [axes, canvas] = ["svg", "canvas"].map((tag) => make(tag, { "aria-hidden": true }));
  const [matrixName, hover] = [part("name"), part("hover")];
  // A grid of which only the row in hand is in the document; it moves, and a live region says what it reads.
  const cell = make("div", { class: "attn-cell", role: "gridcell", tabindex: 0, "aria-selected": true });
  const row = make("div", { role: "row" }, cell);
  const grid = make("div", { role: "grid", "aria-label": TEXT.grid }, row);
  const area = part("area", canvas, hover, grid);
  const read = make("output", { class: "attn-read", "aria-live": "polite" });
  const legend = part("legend");
  const heldNote = part("note attn-held");
  const matrix = part("panel attn-matrix", matrixName, part("plot", axes, area), legend, read, heldNote);
  const circle = make("svg", { role: "img", "aria-label": TEXT.circle });
  const [circleNote, seed] = [part("note"), span("seed")];
  const again = make("button", { type: "button", class: "attn-button" }, TEXT.again);
  listen(again, "click", () => put({ seed: (state().seed + 1) % 10_000 }));
  const hashes = part("panel attn-hashes", part("name", TEXT.circle), part("plot", circle), part("acts", again, seed));
  hashes.append(circleNote);
  const [chart, table] = [make("svg", { role: "img" }), make("table", { "aria-label": TEXT.table })];
  const [crossed, honest, names] = [part("crossed"), part("note"), part("legend")];
  const cost = part("panel attn-cost", part("name", TEXT.cost), part("sides", part("side", table, crossed, honest)));
  cost.lastChild.append(part("side", part("plot", chart), names));
  const root = card(
    "pairs",
    TEXT.title,
    part("bar", span("title", TEXT.title)),
    form,
    part("controls", ...sliders.map(({ box }) => box), causalBox),
    part("panels", matrix, hashes, cost),
  );

  let [over, width, known, seen, size] = [null, 320, null, null, null];
  let ink = null; // the colours, once the widget is on the page

  function follow(s) {
    for (const { input } of choices) input.checked = input.value === s.pattern;
    for (const { name, input, value, box } of sliders) {
      box.hidden = name !== "n" && !CONTROLS[s.pattern].includes(name);
      input.value = s[name];
      value.textContent = s[name];
    }
    causal.checked = causalOf(s);
    causal.disabled = !CAUSAL.includes(s.pattern);
    never.textContent = TEXT.never[s.pattern] ?? "";
    seed.textContent = TEXT.seed(s.seed);
  }

  function drawMatrix(s) {
    const side = Math.min(width - ROOM[0] - 2, 360);
    size = paintMatrix(canvas, ink, side, s.n, seen);
    const place = { left: ROOM[0], top: ROOM[1], width: size.wide, height: size.high };
    for (const [name, value] of Object.entries(place)) area.style[name] = `${value}px`;
    const names = [TEXT.down, s.pattern === "slots" ? TEXT.slotAxis : TEXT.keys, TEXT.square];
    drawAxes(axes, width, ROOM[1] + size.high + 4, ROOM, size, s.n, seen.columns, names);
    const all = s.n * seen.columns;
    matrixName.textContent = s.pattern === "slots" ? TEXT.slotMatrix(s.n, s.slots) : TEXT.matrix(seen.pairs, all);
    matrixName.dataset.value = seen.pairs;
    const keys = LEGEND[s.pattern].filter((name) => name !== "alone" || seen.why.includes(ALONE));
    legend.replaceChildren(...keys.map((name) => span("key", span(`sample attn-${name}`), TEXT.legend[name])));
  }

  function drawCost(s) {
    const cells = (tag, first, ...rest) => {
      const head = make("th", { scope: tag === "th" ? "col" : "row" }, first);
      return make("tr", {}, head, ...rest.map((text) => make(tag, tag === "th" ? { scope: "col" } : {}, text)));
    };
    const lengths = [s.n, LONGEST];
    const counts = lengths.map((n) => scores(s, n));
    const shares = counts.map((count, k) => inPercent(count / lengths[k] ** 2));
    const head = cells("th", "", ...lengths.map((n) => `n = ${grouped(n)}`));
    head.firstChild.replaceWith(make("td"));
    const sizes = counts.map((count) => bytes(4 * count));
    const rows = [[TEXT.scores, counts.map(grouped)], [TEXT.part, shares], [TEXT.bytes, sizes]];
    table.replaceChildren(head, ...rows.map(([name, values]) => cells("td", name, ...values)));
    const from = s.pattern === "full" ? 0 : crossing(s);
    crossed.textContent = from === 0 ? TEXT.itself : from === null ? TEXT.nowhere : TEXT.from(from, causalOf(s));
    Object.assign(cost.dataset, { scores: counts[0], far: counts[1], from: from ?? "" });
    honest.textContent = TEXT.honest[s.pattern];
    const wide = chart.parentElement.clientWidth || width;
    drawChart(chart, wide, s, TEXT, TEXT.axes, from);
    chart.setAttribute("aria-label", TEXT.charted(TEXT[s.pattern], grouped(counts[1]), grouped(LONGEST)));
    const samples = PATTERNS.map((pattern) => {
      const line = make("path", { d: "M0 5H34", "stroke-dasharray": DASHES[pattern], class: "attn-line" });
      const other = causalOf(s) && !CAUSAL.includes(pattern);
      const key = span("key", make("svg", { viewBox: "0 0 34 10", width: 34, height: 10, "aria-hidden": true }, line));
      key.append(other ? TEXT.notCausal(TEXT[pattern]) : TEXT[pattern]);
      if (pattern === s.pattern) [line.classList.add("attn-chosen"), key.classList.add("attn-bold")];
      return key;
    });
    names.replaceChildren(...samples);
  }

  function drawHashes(s) {
    const shown = { ...s, query: over ?? s.query };
    drawCircle(circle, circle.parentElement.clientWidth || width, shown, seen, TEXT.round);
    const missed = seen.missed.reduce((total, one) => total + one, 0);
    heldNote.textContent = inOne(TEXT.held(inPercent(seen.mean)), TEXT.missed(missed), TEXT.measure);
    Object.assign(heldNote.dataset, { value: seen.mean, missed });
    const sorted = causalOf(s) ? TEXT.sortedCausal : TEXT.sorted;
    circleNote.textContent = inOne(TEXT.ring(s.num_buckets), sorted(Math.min(s.bucket_size, s.n)));
  }

  function mark(s) {
    hover.hidden = over === null;
    for (const [box, i] of [[hover, over ?? 0], [cell, s.query]]) {
      Object.assign(box.style, { left: 0, width: "100%", top: `${(100 * i) / s.n}%`, height: `${100 / s.n}%` });
    }
    grid.setAttribute("aria-rowcount", s.n);
    row.setAttribute("aria-rowindex", s.query + 1);
    cell.setAttribute("aria-label", sentence(s, seen, s.query));
    read.textContent = sentence(s, seen, over ?? s.query);
    if (s.pattern === "hash") drawHashes(s);
  }

  function update() {
    const s = state();
    const key = [JSON.stringify({ ...s, query: 0 }), root.dataset.theme, width].join();
    if (known !== key) {
      known = key;
      over = null;
      seen = look(s);
      heldNote.hidden = hashes.hidden = s.pattern !== "hash";
      root.dataset.pattern = s.pattern;
      for (const draw of [follow, drawMatrix, drawCost]) draw(s);
    }
    mark(s);
  }

  function layout() {
    ink = inksOf(root);
    width = Math.max(200, Math.floor(matrix.clientWidth) || 320);
    update();
  }

  const rowAt = (event) => {
    const { top, height } = area.getBoundingClientRect();
    return within(Math.floor(((event.clientY - top) / height) * state().n), 0, state().n - 1);
  };
  const point = (i) => {
    over = i;
    mark(state());
  };
  listen(area, "pointermove", (event) => event.pointerType === "mouse" && over !== rowAt(event) && point(rowAt(event)));
  listen(area, "pointerleave", () => point(null));
  listen(area, "click", (event) => {
    put({ query: rowAt(event) });
    cell.focus({ preventScroll: true });
  });
  listen(cell, "keydown", (event) => {
    const by = { ArrowUp: -1, ArrowDown: 1, PageUp: -8, PageDown: 8, Home: -LIMITS.n[1], End: LIMITS.n[1] }[event.key];
    if (event.ctrlKey || event.altKey || event.metaKey || !by) return;
    over = null;
    put({ query: state().query + by });
    mark(state());
    event.preventDefault();
    event.stopPropagation(); // a notebook has keys of its own
  });

  return { root, traits: TRAITS, update, layout };
}

export default { render: mount(draw) };
