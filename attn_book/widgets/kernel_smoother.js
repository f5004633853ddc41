// Kernel regression on the page: the points, the weighted average at every query, and the weights at one of them.

const TEXT = {
  title: say("Kernel regression: a weighted average of the points"),
  bandwidth: say("bandwidth h"), query: say("query q"), // the sliders
  point: say("point"), weight: say("attention weight"), curve: say("weighted average"), // what the marks are
  read: (query, terms, output) =>
    say("At the query {query}, the weighted average is {terms} ≈ {output}.", { query, terms, output }),
  drawing: (count, bandwidth) =>
    say("{count} points, and their weighted average at every query, with bandwidth {bandwidth}", { count, bandwidth }),
  bars: (query, most) =>
    say("The attention weight of each point at the query {query}; the largest is {most}", { query, most }),
};

const TRAITS = ["x", "y", "bandwidth", "query", "x_label", "y_label"];
const SHARES = [1 / 500, 5]; // the bandwidths that the slider reaches, as shares of the range of x
const STEPS = { bandwidth: 100, query: 200 };
const ROOM = [24, 12, 8, 46]; // at the top, right, bottom and left of the points
const UNDER = [24, 12, 38, 46]; // and of the bars
const TERMS = 3;

// As many decimals as a range of numbers needs.
const decimals = (low, high) => within(2 - Math.floor(Math.log10(high - low || 1)), 0, 6);

function settle(raw) {
  const [low, high] = [Math.min(...raw.x), Math.max(...raw.x)];
  const reach = SHARES.map((share) => share * (high - low));
  return { ...raw, bandwidth: within(raw.bandwidth, ...reach), query: within(raw.query, low, high), low, high, reach };
}

// The softmax of the Gaussian scores, and the average of the values that it weighs.
function pool({ x, y, bandwidth }, query) {
  const scores = x.map((key) => -(((query - key) / bandwidth) ** 2) / 2);
  const highest = Math.max(...scores);
  const bumps = scores.map((score) => Math.exp(score - highest));
  const total = sum(bumps);
  const weights = bumps.map((bump) => bump / total);
  return { weights, output: sum(weights.map((weight, i) => weight * y[i])) };
}

function draw({ model, listen }) {
  const { state, put } = stateOf(model, TRAITS, settle);
  const slider = (name) => {
    const input = make("input", { type: "range", min: 0, max: STEPS[name], step: 1, name, "aria-label": TEXT[name] });
    const value = span("value");
    listen(input, "input", () => put({ [name]: meant(name, input.value / STEPS[name]) }));
    return { input, value, label: make("label", { class: "attn-slider" }, make("span", {}, TEXT[name]), input, value) };
  };
  const [bandwidth, query] = [slider("bandwidth"), slider("query")];
  const [points, bars] = [make("svg", { role: "img" }), make("svg", { role: "img" })];
  const plot = part("plot", points, bars);
  const read = make("output", { class: "attn-read", "aria-live": "polite" });
  const key = (name) => span("key", span(`sample attn-${name}`), TEXT[name]);
  const root = card(
    "smoother",
    TEXT.title,
    part("bar", span("title", TEXT.title), part("legend", ...["point", "weight", "curve", "query"].map(key))),
    part("sliders", bandwidth.label, query.label),
    plot,
    read,
  );

  let over = null; // the query that is pointed at
  let width = 320;

  // What a slider stands for at a share of its length: the bandwidth grows by factors.
  function meant(name, share) {
    const { low, high, reach } = state();
    if (name === "query") return low + share * (high - low);
    return within(Number((reach[0] * (reach[1] / reach[0]) ** share).toPrecision(3)), ...reach);
  }

  function follow(s, show) {
    const place = Math.log(s.bandwidth / s.reach[0]) / Math.log(s.reach[1] / s.reach[0]);
    bandwidth.input.value = Math.round(STEPS.bandwidth * place);
    bandwidth.value.textContent = String(Number(s.bandwidth.toPrecision(3)));
    query.input.value = Math.round((STEPS.query * (s.query - s.low)) / (s.high - s.low));
    query.value.textContent = show(s.query);
    for (const { input, value } of [bandwidth, query]) input.setAttribute("aria-valuetext", value.textContent);
  }

  // How far the points and the bars reach to the sides.
  const across = ({ low, high }) => [low - 0.03 * (high - low), high + 0.03 * (high - low)];

  function drawPoints(s, at, { weights, output }) {
    const [height, lowest, highest] = [260, Math.min(...s.y), Math.max(...s.y)];
    const spare = 0.1 * (highest - lowest) || 1;
    const reach = [lowest - spare, highest + spare];
    const { x, y, path, dot, text } = sketch(points, width, height, ROOM, across(s), reach);
    for (const v of ticks(...reach, 5)) {
      path([[across(s)[0], v], [across(s)[1], v]], "attn-zero");
      text(ROOM[3] - 6, y(v) + 4, minus(String(v)), "end");
    }
    s.x.forEach((key, i) => dot(key, s.y[i], "attn-share", 20 * Math.sqrt(weights[i])));
    s.x.forEach((key, i) => dot(key, s.y[i], "attn-point", 3));
    path([[at, reach[0]], [at, reach[1]]], "attn-query");
    const places = Array.from({ length: 2 * width + 1 }, (_, k) => s.low + (k / (2 * width)) * (s.high - s.low));
    path(places.map((place) => [place, pool(s, place).output]), "attn-curve");
    dot(at, output, "attn-output", 5);
    text(0, 12, say(s.y_label), "start");
    points.setAttribute("aria-label", TEXT.drawing(s.x.length, bandwidth.value.textContent));
  }

  function drawBars(s, at, { weights }, show) {
    const height = 142;
    const { x, y, path, text } = sketch(bars, width, height, UNDER, across(s), [0, 1]);
    for (const v of [0, 0.5, 1]) {
      path([[across(s)[0], v], [across(s)[1], v]], "attn-zero");
      text(UNDER[3] - 6, y(v) + 4, String(v), "end");
    }
    for (const v of ticks(...across(s))) text(x(v), height - UNDER[2] + 14, minus(String(v)));
    path([[at, 0], [at, 1]], "attn-query");
    s.x.forEach((key, i) => (path([[key, 0], [key, weights[i]]], "attn-stem").dataset.value = weights[i]));
    text(0, 12, TEXT.weight, "start");
    text(x(across(s)[1]), height - 6, say(s.x_label), "end");
    bars.setAttribute("aria-label", TEXT.bars(show(at), hundredths(Math.max(...weights))));
  }

  // The sum, by its greatest terms.
  function tell(s, at, { weights, output }, show) {
    const digits = decimals(Math.min(...s.y), Math.max(...s.y));
    const value = (number) => fixed(number, digits);
    const order = weights.map((_, i) => i).sort((i, j) => weights[j] - weights[i]);
    const first = order.slice(0, TERMS).filter((i, k) => k === 0 || weights[i] >= 0.005);
    const terms = first.map((i) => `${hundredths(weights[i])} × ${s.y[i] < 0 ? `(${value(s.y[i])})` : value(s.y[i])}`);
    if (1 - sum(first.map((i) => weights[i])) >= 0.005) terms.push("…");
    read.textContent = TEXT.read(show(at), terms.join(" + "), value(output));
    read.dataset.value = output;
  }

  function update() {
    const s = state();
    const at = over === null ? s.query : within(over, s.low, s.high);
    const pooled = pool(s, at);
    const show = (number) => fixed(number, decimals(s.low, s.high));
    follow(s, show);
    drawPoints(s, at, pooled);
    drawBars(s, at, pooled, show);
    tell(s, at, pooled, show);
  }

  function layout() {
    width = Math.max(200, Math.floor(plot.clientWidth) || 320);
    update();
  }

  // A mouse shows the weights where it points; a click or a finger chooses the query, and so does dragging.
  const pointed = (event) => {
    const { left, width: wide } = plot.getBoundingClientRect();
    const [start, end] = across(state());
    return start + ((((event.clientX - left) / wide) * width - ROOM[3]) / (width - ROOM[1] - ROOM[3])) * (end - start);
  };
  listen(plot, "pointerdown", (event) => plot.setPointerCapture(event.pointerId));
  listen(plot, "click", (event) => put({ query: pointed(event) }));
  listen(plot, "pointermove", (event) => {
    if (event.pointerType === "mouse") over = pointed(event);
    if (event.buttons & 1) put({ query: pointed(event) });
    update();
  });
  listen(plot, "pointerleave", () => {
    over = null;
    update();
  });

  return { root, traits: TRAITS, update, layout };
}

export default { render: mount(draw) };
