// Sinusoidal positions, computed in the page: the matrix, a pair of its columns on a circle and as curves, and the dot
// products of its rows.

const TEXT = {
  title: say("Sinusoidal positions"),
  sine: say("sine"), cosine: say("cosine"), first: "i", second: "i + δ", // what the marks are
  dim: say("dimensions d"), length: say("positions n"), base: say("wavelength base"), // the sliders
  position: say("position i"), offset: say("offset δ"), pair: say("column pair j"),
  matrix: say("The matrix PE, row by row"),
  circle: (j) => say("Pair {j} on the unit circle", { j }),
  curves: (j) => say("Pair {j} over position", { j }),
  products: say("p(i) · p(i + δ) over offset δ"),
  down: say("position ↓"), dimensions: say("dimension →"), positions: say("position →"), // axes
  offsets: say("offset δ →"), sines: say("sine →"), cosines: say("↑ cosine"),
  column: (c) => say("column {c}", { c }),
  upTo: (greatest) => say("{greatest} value", { greatest }),
  rotation: say("rotation"),
  grid: say("The matrix PE: a row for each position, a column for each dimension"),
  cell: (i, c, wave, omega, value, length) => {
    const values = { i, c, wave, omega, value, length };
    return say("PE[{i}, {c}] = {wave}({omega} · {i}) = {value}; wavelength {length}\u00a0positions", values);
  },
  degrees: (values) => say("ω·δ = {omega} · {delta} = {angle} rad ({size}°).", values),
  turns: (values) => say("ω·δ = {omega} · {delta} = {angle} rad ({size} turns).", values),
  steady: say("If you move i, both points turn, and the angle between them stays the same."),
  alone: (c) => say("Column {c} is the last of an odd number: a sine without a cosine.", { c }),
  line: say("It moves on a line, so no rotation maps one position to another."),
  outside: (i) => say("Position {i} is outside the matrix.", { i }),
  frequency: (omega, length) =>
    say("ω = {omega} rad per position: one turn takes {length}\u00a0positions.", { omega, length }),
  product: (i, k, value) => say("p({i}) · p({k}) = {value}.", { i, k, value }),
  level: say("It depends on δ alone: if you move i, the curve does not change."),
  uneven: say("The last sine of an odd number of columns has no cosine, so the curve changes with i."),
  drawing: (name, said) => say("{name}. {said}", { name, said }),
};

const LIMITS = { dim: [2, 256], length: [8, 256], base: [2, 100_000] };
const ENCODING = ["dim", "length", "base"];
const TRAITS = [...ENCODING, "position", "column", "offset"];
// From 2 to 100,000, ten steps to a factor of ten.
const BASES = Array.from({ length: 48 }, (_, k) => Number((10 ** ((k + 3) / 10)).toPrecision(2)));
const TURN = 2 * Math.PI;
// The room that a drawing leaves for its numbers: top, right, bottom, left.
const MATRIX = [34, 20, 12, 30];
const CURVE = [8, 20, 34, 30];

const short = (value) => (value >= 1000 ? grouped(Math.round(value)) : value.toPrecision(4));

// What the traits say, each within what the others leave to it.
function settle(raw) {
  const s = { ...raw };
  for (const name of ENCODING) s[name] = within(s[name], ...LIMITS[name]);
  s.position = within(s.position, 0, s.length - 1);
  s.column = within(s.column, 0, s.dim - 1);
  s.offset = within(s.offset, 1 - s.length, s.length - 1);
  return s;
}

// The encodings of all positions that an offset can reach, 1 − n to 2n − 2.
function encode({ dim, length, base }) {
  const omega = (c) => base ** ((-2 * Math.floor(c / 2)) / dim);
  const values = new Float64Array((3 * length - 2) * dim);
  const index = (i, c) => (i + length - 1) * dim + c;
  for (let c = 0; c < dim; c++) {
    const [wave, frequency] = [c % 2 ? Math.cos : Math.sin, omega(c)];
    for (let i = 1 - length; i <= 2 * length - 2; i++) values[index(i, c)] = wave(i * frequency);
  }
  const product = (i, k) => {
    let sum = 0;
    for (let c = 0; c < dim; c++) sum += values[index(i, c)] * values[index(k, c)];
    return sum;
  };
  return { omega, product, at: (i, c) => values[index(i, c)] };
}

function draw({ model, listen }) {
  const { state, put } = stateOf(model, TRAITS, settle);

  // What is on the page: a title with the marks' names, and four panels of sliders, a drawing and a note.
  const keyed = (...children) => span("key", ...children);
  const marks = ["sine", "cosine", "first", "second", "offset"].map((name) =>
    keyed(span(`sample attn-${name}`), TEXT[name]),
  );
  const panels = part("panels");
  const sliders = {};
  const panel = (...names) => {
    const [head, plot, note] = ["name", "plot", "note"].map((name) => part(name));
    const drawing = make("svg", { role: "img" });
    const rows = names.map((name) => {
      const input = make("input", { type: "range", step: 1, name, "aria-label": TEXT[name] });
      const output = span("value");
      listen(input, "input", () => put(meant(name, Number(input.value))));
      sliders[name] = { input, output };
      return make("label", { class: "attn-slider" }, make("span", {}, TEXT[name]), input, output);
    });
    plot.append(drawing);
    panels.append(part("panel", head, ...rows, plot, note));
    return { head, plot, drawing, note };
  };
  const [matrix, circle] = [panel(...ENCODING), panel("position", "offset", "pair")];
  const [curves, products] = [panel(), panel()];
  const canvas = make("canvas", { "aria-hidden": true });
  const hover = part("hover");
  // A grid of which only the cell in hand is in the document; it moves, and a live region says what it holds.
  const cell = make("div", { class: "attn-cell", role: "gridcell", tabindex: 0, "aria-selected": true });
  const row = make("div", { role: "row" }, cell);
  const grid = make("div", { role: "grid", "aria-label": TEXT.grid }, row);
  const area = part("area", canvas, hover, grid);
  const read = make("output", { class: "attn-read", "aria-live": "polite" });
  matrix.head.append(TEXT.matrix);
  matrix.drawing.setAttribute("role", "none");
  matrix.drawing.setAttribute("aria-hidden", true);
  matrix.plot.append(area);
  matrix.note.append(keyed("−1", span("ramp"), TEXT.upTo(1)), read);
  const [after, rotation, before] = ["attn-bracket", "attn-bracket attn-square", "attn-bracket"].map((name, k) => {
    const cells = Array.from({ length: k === 1 ? 4 : 2 }, () => make("span"));
    return { cells, box: make("div", { class: name }, ...cells), under: span("under") };
  });
  const factors = [after, rotation, before].map(({ box, under }) => part("factor", box, under));
  factors.splice(1, 0, span("equals", "="));
  const equation = make("div", { class: "attn-equation", role: "math" }, ...factors);
  circle.plot.append(equation);
  const root = card(
    "explorer",
    TEXT.title,
    part("bar", span("title", TEXT.title), part("legend", ...marks)),
    panels,
  );

  let over = null;
  let width = 320;
  let known = null;
  let encoding = null;
  let ramp = null; // the colours, once the widget is on the page

  // What a slider at `value` stands for.
  function meant(name, value) {
    if (name === "base") return { base: BASES[value] };
    return name === "pair" ? { column: 2 * value + (state().column % 2) } : { [name]: value };
  }

  function follow({ dim, length, base, position, offset, column }) {
    const places = {
      dim: [...LIMITS.dim, dim],
      length: [...LIMITS.length, length],
      base: [0, BASES.length - 1, Math.round(10 * Math.log10(base)) - 3, grouped(base)],
      position: [0, length - 1, position],
      offset: [1 - length, length - 1, offset],
      pair: [0, Math.ceil(dim / 2) - 1, Math.floor(column / 2)],
    };
    for (const [name, [min, max, value, text]] of Object.entries(places)) {
      const { input, output } = sliders[name];
      Object.assign(input, { min, max });
      input.value = value;
      output.textContent = text ?? fixed(value);
      input.setAttribute("aria-valuetext", output.textContent);
    }
  }

  function paint({ dim, length }) {
    const image = new ImageData(dim, length);
    for (let k = 0; k < dim * length; k++) {
      image.data.set(ramp[Math.round((encoding.at(Math.floor(k / dim), k % dim) + 1) * 127.5)], 4 * k);
    }
    [canvas.width, canvas.height] = [dim, length];
    canvas.getContext("2d").putImageData(image, 0, 0);
  }

  function drawMatrix({ dim, length, position, start, paired, second, seen }) {
    const [top, right, bottom, left] = MATRIX;
    const [wide, high] = [width - left - right, 272];
    const { x, y, path, dot, text } = sketch(matrix.drawing, width, high + top + bottom, MATRIX, [0, dim], [length, 0]);
    text(0, top - 20, TEXT.down, "start");
    text(width - right, top - 20, TEXT.dimensions, "end");
    for (const c of ticks(0, dim - 1)) text(x(c + 0.5), top - 6, c);
    for (const i of ticks(0, length - 1)) text(left - 6, y(i + 0.5) + 4, i, "end");
    // The pair is marked below its columns, the two positions beside their rows.
    const [below, beside] = [length * (1 + 6 / high), dim * (1 + 11 / wide)];
    path([[start, below], [start + 1, below]], "attn-tab attn-sine");
    if (paired) path([[start + 1, below], [start + 2, below]], "attn-tab attn-cosine");
    path([[beside, position + 0.5], [beside, within(second + 0.5, 0, length)]], "attn-offset");
    if (seen) dot(beside, second + 0.5, "attn-second");
    dot(beside, position + 0.5, "attn-first");
    Object.assign(area.style, { left: `${left}px`, top: `${top}px`, width: `${wide}px`, height: `${high}px` });
  }

  function drawCircle({ length, position, offset, start, paired, omega, angle, second, seen }) {
    const reach = Math.min(104, width / 2 - 44);
    const [height, sides] = [2 * reach + 48, width / 2 - reach];
    const { x, y, dot, path, text } = sketch(circle.drawing, width, height, [24, sides, 24, sides], [-1, 1], [-1, 1]);
    // Position 0 stands at the top, and positions go round as a clock's hand does. A sine alone moves on a line.
    const spot = (turn, r = 1) => [r * Math.sin(turn), paired ? r * Math.cos(turn) : 0];
    const [from, to] = [omega * position, omega * second];
    const round = Array.from({ length: 91 }, (_, k) => (k * Math.PI) / 45);
    path([[-1, 0], [1, 0]], "attn-zero");
    [TEXT.sines, TEXT.column(start)].forEach((said, k) => text(width, height - 17 + 13 * k, said, "end"));
    if (paired) {
      path([[0, -1], [0, 1]], "attn-zero");
      path(round.map((turn) => spot(turn)), "attn-zero");
      [TEXT.cosines, TEXT.column(start + 1)].forEach((said, k) => text(0, 10 + 13 * k, said, "start"));
    }
    for (let i = 0; i < length; i++) dot(...spot(omega * i), "attn-trail", 1.6);
    if (paired) {
      // Each turn is drawn a little further out. Of more than three the first are left out; the note has the number.
      const left = angle - Math.sign(angle) * TURN * Math.max(0, Math.floor(Math.abs(angle) / TURN) - 3);
      const out = (turn, aside = 0) => spot(from + turn, 0.34 + aside + 0.11 * Math.abs(turn / TURN));
      const arc = Array.from({ length: 181 }, (_, k) => out((left * k) / 180));
      if (Math.abs(left) < TURN) path([[0, 0], ...arc, [0, 0]], "attn-sector");
      path(arc, "attn-offset");
      const back = left - Math.sign(left) * 0.24;
      if (Math.abs(left) > 0.3) path([out(back, -0.07), out(left), out(back, 0.07)], "attn-offset");
    } else {
      path([spot(from), spot(to)], "attn-offset");
      for (const end of [-1, 1]) text(x(1.1 * end), y(0) + 4, fixed(end));
    }
    // Where the two points are near each other, the second's name stands inside.
    const near = Math.abs(Math.sin(angle / 2)) < 0.12;
    for (const [turn, name, r, aside] of [[to, "second", near ? 0.82 : 1.18, -0.16], [from, "first", 1.14, 0.16]]) {
      if (paired) path([[0, 0], spot(turn)], "attn-hand");
      dot(...spot(turn), `attn-${name}`);
      const [a, b] = paired ? spot(turn, r) : [Math.sin(turn), aside];
      text(x(a), y(b) + 4, TEXT[name], "middle", "attn-point");
    }
    const turns = angle / TURN;
    const [size, turned] = Math.abs(turns) < 1 ? [fixed(360 * turns, 1), TEXT.degrees] : [fixed(turns, 2), TEXT.turns];
    const values = { omega: short(omega), delta: fixed(offset), angle: fixed(angle, 3), size };
    const said = paired ? [turned(values), TEXT.steady] : [TEXT.alone(start), TEXT.line];
    if (!seen) said.push(TEXT.outside(fixed(second)));
    label(circle, TEXT.circle(start / 2), inOne(...said));
    equation.style.visibility = paired ? "" : "hidden";
    if (paired) equate(start, angle, position, second);
  }

  // p(i + δ) = R p(i), in numbers.
  function equate(start, angle, position, second) {
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    const point = (i) => [encoding.at(i, start), encoding.at(i, start + 1)];
    const parts = [
      [after, `p(${fixed(second)})`, point(second)],
      [rotation, TEXT.rotation, [cos, sin, -sin, cos]],
      [before, `p(${position})`, point(position)],
    ];
    const [left, ...right] = parts.map(([{ cells, under }, name, values]) => {
      under.textContent = name;
      cells.forEach((place, k) => (place.textContent = fixed((place.dataset.value = values[k]), 3)));
      return `${name} (${cells.map((place) => place.textContent).join(", ")})`;
    });
    equation.setAttribute("aria-label", `${left} = ${right.join(" × ")}`);
  }

  function drawCurves({ dim, length, position, start, omega, second, seen }) {
    const [height, end] = [150, length - 1];
    const { x, y, text, dot, path } = sketch(curves.drawing, width, height, CURVE, [0, end], [-1.1, 1.1]);
    for (const v of [-1, 0, 1]) {
      path([[0, v], [end, v]], "attn-zero");
      text(x(0) - 6, y(v) + 4, fixed(v), "end");
    }
    for (const i of ticks(0, end)) text(x(i), y(-1.1) + 15, i);
    text(x(end), height - 3, TEXT.positions, "end");
    path([[position, -1.1], [within(second, 0, end), -1.1]], "attn-offset");
    const rows = [[second, "second"], [position, "first"]].slice(seen ? 0 : 1);
    for (const [i] of rows) path([[i, -1.1], [i, 1.1]], "attn-guide");
    const places = Array.from({ length: 2 * width + 1 }, (_, k) => (k / (2 * width)) * end);
    const dense = (TURN * (x(1) - x(0))) / omega < 16 ? "attn-dense" : "";
    const waves = [[Math.sin, "sine", start], [Math.cos, "cosine", start + 1]].filter(([, , c]) => c < dim);
    for (const [wave, name] of waves) path(places.map((i) => [i, wave(omega * i)]), `attn-wave attn-${name} ${dense}`);
    for (const [i, name] of rows) for (const [, , c] of waves) dot(i, encoding.at(i, c), `attn-${name}`);
    label(curves, TEXT.curves(start / 2), TEXT.frequency(short(omega), short(TURN / omega)));
  }

  function drawProducts({ dim, length, position, offset, second }) {
    const [height, end] = [150, length - 1];
    const offsets = Array.from({ length: 2 * end + 1 }, (_, k) => k - end);
    const values = offsets.map((step) => encoding.product(position, position + step));
    const value = values[offset + end];
    const [low, high] = [Math.min(0, ...values), Math.max(0.1, ...values)];
    const reach = [low - 0.06 * (high - low), high + 0.06 * (high - low)];
    const { x, y, text, dot, path } = sketch(products.drawing, width, height, CURVE, [-end, end], reach);
    path([[-end, 0], [end, 0]], "attn-zero");
    for (const v of ticks(low, high, 4)) text(x(-end) - 6, y(v) + 4, minus(String(v)), "end");
    for (const v of ticks(-end, end)) text(x(v), y(reach[0]) + 15, fixed(v));
    text(x(end), height - 3, TEXT.offsets, "end");
    path(offsets.map((step, k) => [step, values[k]]), "attn-wave attn-product");
    path(reach.map((v) => [offset, v]), "attn-guide attn-offset");
    dot(offset, value, "attn-first attn-offset");
    const said = TEXT.product(position, fixed(second), fixed(value, 3));
    label(products, TEXT.products, inOne(said, dim % 2 ? TEXT.uneven : TEXT.level));
    products.note.dataset.value = value;
  }

  function label({ head, note, drawing }, name, said) {
    head.textContent = name;
    note.textContent = said;
    drawing.setAttribute("aria-label", TEXT.drawing(name, said));
  }

  function sentence(i, c) {
    const [omega, wave] = [encoding.omega(c), c % 2 ? "cos" : "sin"];
    return TEXT.cell(i, c, wave, short(omega), fixed(encoding.at(i, c), 4), short(TURN / omega));
  }

  function mark({ dim, length, position, column }) {
    const [i, c] = over ?? [position, column];
    hover.hidden = !over;
    for (const [box, y, x] of [[hover, i, c], [cell, position, column]]) {
      Object.assign(box.style, { left: `${((x + 0.5) / dim) * 100}%`, top: `${((y + 0.5) / length) * 100}%` });
      Object.assign(box.style, { width: `max(9px, ${100 / dim}%)`, height: `max(9px, ${100 / length}%)` });
    }
    grid.setAttribute("aria-rowcount", length);
    grid.setAttribute("aria-colcount", dim);
    row.setAttribute("aria-rowindex", position + 1);
    cell.setAttribute("aria-colindex", column + 1);
    cell.setAttribute("aria-label", sentence(position, column));
    read.textContent = sentence(i, c);
    read.dataset.value = encoding.at(i, c);
  }

  function update() {
    const s = state();
    const key = [...ENCODING.map((name) => s[name]), root.dataset.theme].join();
    if (known !== key) {
      known = key;
      over = null;
      encoding = encode(s);
      paint(s);
    }
    const start = s.column - (s.column % 2);
    const omega = encoding.omega(start);
    const second = s.position + s.offset;
    const seen = second >= 0 && second < s.length;
    const all = { ...s, start, paired: start + 1 < s.dim, omega, angle: omega * s.offset, second, seen };
    for (const draw of [follow, drawMatrix, drawCircle, drawCurves, drawProducts, mark]) draw(all);
  }

  function layout() {
    ramp = rampOf(root);
    width = Math.max(200, Math.floor(matrix.plot.clientWidth) || 320);
    update();
  }

  // A click chooses, and so does a pointer that moves while it presses.
  const choose = (box, pick) => {
    listen(box, "pointerdown", (event) => box.setPointerCapture(event.pointerId));
    listen(box, "pointermove", (event) => event.buttons & 1 && put(pick(event)));
    listen(box, "click", (event) => put(pick(event)));
  };
  const cellAt = (event) => {
    const { left, top, width: wide, height } = area.getBoundingClientRect();
    const { dim, length } = state();
    const [i, c] = [((event.clientY - top) / height) * length, ((event.clientX - left) / wide) * dim].map(Math.floor);
    return [within(i, 0, length - 1), within(c, 0, dim - 1)];
  };
  // How far along its axis a curve is pointed at, from 0 to 1.
  const along = (event) => {
    const { left, width: wide } = event.currentTarget.getBoundingClientRect();
    return (((event.clientX - left) / wide) * width - CURVE[3]) / (width - CURVE[1] - CURVE[3]);
  };
  choose(area, (event) => {
    const [position, column] = cellAt(event);
    return { position, column };
  });
  choose(curves.drawing, (event) => ({ position: Math.round(along(event) * (state().length - 1)) }));
  choose(products.drawing, (event) => ({ offset: Math.round((2 * along(event) - 1) * (state().length - 1)) }));
  listen(area, "pointermove", (event) => {
    if (event.pointerType !== "mouse") return;
    over = cellAt(event);
    mark(state());
  });
  listen(area, "pointerleave", () => {
    over = null;
    mark(state());
  });
  listen(area, "click", () => cell.focus({ preventScroll: true }));
  listen(cell, "keydown", (event) => {
    const { position, column, length, dim } = state();
    const moves = {
      ArrowUp: { position: position - 1 },
      ArrowDown: { position: position + 1 },
      ArrowLeft: { column: column - 1 },
      ArrowRight: { column: column + 1 },
      PageUp: { position: position - 10 },
      PageDown: { position: position + 10 },
      Home: event.ctrlKey ? { position: 0, column: 0 } : { column: 0 },
      End: event.ctrlKey ? { position: length - 1, column: dim - 1 } : { column: dim - 1 },
    };
    if (event.altKey || event.metaKey || !moves[event.key]) return;
    over = null;
    put(moves[event.key]);
    event.preventDefault();
    event.stopPropagation(); // a notebook has keys of its own
  });

  return { root, traits: TRAITS, update, layout };
}

export default { render: mount(draw) };
