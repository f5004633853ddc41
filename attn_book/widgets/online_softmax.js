// Online softmax on the page: the scores in their tiles, what is kept before and after each, and how it came about.

function draw({ model, listen, signal }) {
  const { state, put } = stateOf(model, TRAITS, settle);

  // What is on the page, from top to bottom.
  const panel = (name, ...children) => part("panel", part("name", TEXT[name]), ...children);
  const error = make("output", { class: "attn-error", id: `attn-${Math.random()}`, "aria-live": "polite" });
  const fields = ROWS.map((name) => {
    const silent = { autocomplete: "off", spellcheck: "false", "data-lm-suppress-shortcuts": "true" };
    const named = { name, "aria-label": TEXT[name], "aria-describedby": error.id };
    const input = make("input", { type: "text", ...named, ...silent });
    listen(input, "input", () => typed(name));
    listen(input, "keydown", (event) => event.stopPropagation()); // a notebook has keys of its own
    const label = make("label", { class: "attn-field" }, make("span", {}, TEXT[name]), input);
    return { name, input, label, known: "" };
  });
  const slider = (name, min) => {
    const input = make("input", { type: "range", min, step: 1, name, "aria-label": TEXT[name] });
    const value = span("value");
    return { input, value, label: make("label", { class: "attn-slider" }, make("span", {}, TEXT[name]), input, value) };
  };
  const [tile, step] = [slider("tile", 1), slider("step", 0)];
  const goals = { first: () => 0, back: (s) => s.step - 1, next: (s) => s.step + 1, last: (s) => s.tiles };
  const buttons = Object.entries(goals).map(([name, goal]) => {
    const main = name === "next" ? " attn-main" : "";
    const button = make("button", { type: "button", class: `attn-button${main}`, name }, TEXT[name]);
    listen(button, "click", () => put({ step: goal(state()) }));
    return { button, goal };
  });
  const moves = make("div", { class: "attn-moves", role: "group", "aria-label": TEXT.moves });
  moves.append(...buttons.map(({ button }) => button));
  const read = make("output", { class: "attn-read", "aria-live": "polite" });
  const [cells, kept, check, naively] = [part("cells"), part("kept"), part("check"), part("note")];
  const key = (name) => make("span", { class: "attn-key" }, span(`sample attn-${name}`), TEXT[name]);
  const legend = part("legend", ...["now", "old", "coming", "ghost"].map(key));
  const rows = make("tbody");
  const heads = TEXT.columns.map((name) => make("th", { scope: "col" }, name));
  const table = part("steps", make("table", {}, make("thead", {}, make("tr", {}, ...heads)), rows));
  const shifts = [100, -100].map((by) => {
    const name = TEXT.shift(by > 0 ? `+ ${by}` : `− ${-by}`);
    const button = make("button", { type: "button", class: "attn-button" }, name);
    listen(button, "click", () => can(by) && put({ scores: state().scores.map((x) => Number((x + by).toFixed(9))) }));
    return { by, button };
  });
  const root = card(
    "online",
    TEXT.title,
    part("title", TEXT.title),
    part("typed", ...fields.map(({ label }) => label), error),
    part("sliders", tile.label, step.label),
    moves,
    read,
    cells,
    legend,
    panel("kinds", kept),
    panel("table", table),
    part("ends", panel("check", check), panel("naive", part("moves", ...shifts.map(({ button }) => button)), naively)),
  );

  const write = (number) => (Number.isNaN(number) ? TEXT.undefined : rounded(number));
  const can = (by) => state().scores.every((x) => Math.abs(x + by) <= LIMIT);
  const able = (button, is) => button.setAttribute("aria-disabled", !is);

  // What is typed becomes the state as soon as both rows fit; until then the last that did stays.
  function typed() {
    const drafts = fields.map(({ input }) => parse(input.value));
    const [x, v] = drafts.map(({ numbers }) => numbers);
    if (x && v && x.length !== v.length) drafts[1].error = TEXT.uneven(v.length, x.length);
    const wrong = drafts.flatMap(({ error }, k) => (error ? [TEXT.wrong(TEXT[ROWS[k]], error)] : []));
    error.textContent = wrong.length ? inOne(...wrong, TEXT.kept) : "";
    fields.forEach(({ input }, k) => input.setAttribute("aria-invalid", Boolean(drafts[k].error)));
    if (!wrong.length) put({ scores: x, values: v });
  }

  // A row that was changed elsewhere is written anew into its field; one that says the same is left as it was typed.
  function follow(s) {
    let anew = false;
    for (const field of fields) {
      const now = String(s[field.name]);
      if (now !== field.known && now !== String(parse(field.input.value).numbers)) {
        field.input.value = s[field.name].map((number) => minus(String(number))).join(", ");
        anew = true;
      }
      field.known = now;
    }
    if (anew) typed();
    Object.assign(tile.input, { max: s.scores.length });
    Object.assign(step.input, { max: s.tiles });
    tile.input.value = s.tile;
    step.input.value = s.step;
    tile.value.textContent = s.tile;
    step.value.textContent = TEXT.position(s.step, s.tiles);
    step.input.setAttribute("aria-valuetext", step.value.textContent);
    for (const { button, goal } of buttons) able(button, goal(s) >= 0 && goal(s) <= s.tiles && goal(s) !== s.step);
    for (const { by, button } of shifts) able(button, can(by));
  }

  // A bar is as high as its share of ℓ. It shrinks when the maximum rises; an outline keeps the height it had before.
  function drawCells({ scores, values, step: at }, steps) {
    const [before, now] = [steps[at - 1], steps[at]];
    const holder = scores.indexOf(now.maximum);
    const tall = (name, share, from) => {
      const bar = span(name);
      bar.style.height = `${100 * share}%`;
      bar.style.setProperty("--attn-from", `${100 * from}%`);
      return bar;
    };
    const entry = (i, k) => {
      const [x, v] = [plain(scores[i]), plain(values[i])];
      const [weight, old] = [now, before ?? now].map(({ maximum }) => Math.exp(scores[i] - maximum));
      const room = span("room");
      if (k < at && now.factor < 1) room.append(tall("ghost", old, old));
      if (k <= at) room.append(tall("weight", weight, k < at ? old : 0));
      if (i === holder) room.append(span("flag", TEXT.highest));
      const label = k <= at ? TEXT.cell(x, v, rounded(weight)) : TEXT.unreadCell(x, v);
      return make("span", { class: "attn-entry", role: "img", "aria-label": label }, room, span("x", x), span("v", v));
    };
    const groups = steps.slice(1).map(({ first, end }, k) => {
      const entries = Array.from({ length: end - first }, (_, i) => entry(first + i, k + 1));
      const when = k + 1 === at ? "now" : k < at ? "old" : "coming";
      return part(`tile attn-${when}`, span("under", TEXT.group(k + 1)), part("entries", ...entries));
    });
    const names = ["height", "score", "value"].map((name) => make("span", {}, TEXT[name]));
    cells.style.setProperty("--attn-count", scores.length);
    cells.replaceChildren(part("margin", ...names), ...groups);
  }

  // What is kept: its name, before and after, and how the one came from the other, in the reader's numbers.
  function drawKept(before, now) {
    const said = (piece) => piece.dataset?.said ?? piece.textContent ?? piece;
    const power = (x, m, name = "fresh") => {
      const piece = make("span", { class: `attn-${name}` }, "e", make("sup", {}, `${plain(x)} − ${inner(m)}`));
      piece.dataset.said = `e^(${plain(x)} − ${inner(m)})`;
      return piece;
    };
    const quantity = (name, symbol, from, to, ...pieces) => {
      const text = name === "maximum" ? plain : write;
      const [was, is] = [from, to].map((number) =>
        number === undefined ? make("span") : make("span", { "data-value": number }, text(number)),
      );
      const spoken = pieces.length ? { role: "math", "aria-label": pieces.map(said).join("") } : {};
      const equation = make("div", { class: "attn-equation", ...spoken }, ...pieces);
      const change = part("change", was, span("arrow", from === undefined ? "" : "→"), is);
      return part("quantity", part("symbol", symbol, span("under", TEXT[name])), change, equation);
    };
    const { maximum: m, factor, total, weighted, output, x = [], v = [], added = [] } = now;
    if (!before) {
      kept.replaceChildren(
        quantity("maximum", "m", undefined, m),
        quantity("factor", "c", undefined, factor),
        quantity("total", "ℓ", undefined, total),
        quantity("weighted", "o", undefined, weighted),
        quantity("output", "o / ℓ", undefined, output),
      );
      return;
    }
    const correction = () => span("factor", rounded(factor));
    const join = (row, piece) => row.flatMap((number, k) => [...(k ? [" + "] : []), ...piece(number, k)]);
    const result = rounded(output);
    const bold = (text) => make("b", {}, text);
    // was × c + (the tile's own) = … + … = is
    const scaled = (was, is, own, terms) => {
      const middle = `) = ${rounded(was * factor)} + ${inner(own, rounded)} = `;
      return [`${rounded(was)} × `, correction(), " + (", ...terms, middle, bold(rounded(is))];
    };
    const terms = join(x, (score) => [power(score, m)]);
    const weighed = join(x, (score, k) => [power(score, m), ` × ${inner(v[k])}`]);
    const greatest = `max(${[before.maximum, ...x].map(plain).join(", ")}) = `;
    kept.replaceChildren(
      quantity("maximum", "m", before.maximum, m, greatest, bold(plain(m))),
      quantity("factor", "c", undefined, factor, power(before.maximum, m, "factor"), " = ", bold(correction())),
      quantity("total", "ℓ", before.total, total, ...scaled(before.total, total, added[0], terms)),
      quantity("weighted", "o", before.weighted, weighted, ...scaled(before.weighted, weighted, added[1], weighed)),
      quantity("output", "o / ℓ", before.output, output, `${rounded(weighted)} / ${rounded(total)} = `, bold(result)),
    );
  }

  // The steps to come have their rows already, without numbers.
  function drawTable({ step: at }, steps) {
    const line = ({ first, end, maximum, factor, total, weighted, output }, k) => {
      const numbers = [factor, total, weighted, output].map((number) => [number, write(number)]);
      const all = [[maximum, plain(maximum)], ...numbers];
      const places = all.map(([number, text]) => (k > at ? make("td") : make("td", { "data-value": number }, text)));
      const which = make("td", {}, k ? TEXT.range(first + 1, end) : TEXT.undefined);
      const when = k === at ? "now" : k < at ? "old" : "coming";
      return make("tr", { class: `attn-${when}` }, make("th", { scope: "row" }, String(k)), which, ...places);
    };
    rows.replaceChildren(...steps.map(line));
  }

  function compare(s, now) {
    const exact = softmax(s);
    const line = (name, number) => {
      return part("line", make("span", {}, name), make("b", { "data-value": number }, rounded(number, 9)));
    };
    const lines = [line(TEXT.online, now.output), line(TEXT.whole, exact), line(TEXT.difference, now.output - exact)];
    check.replaceChildren(...(s.step === s.tiles ? lines : [TEXT.later]));
    const plainly = naive(s);
    const near = Math.abs(plainly.output - exact) <= 1e-4 * Math.max(...s.values.map(Math.abs));
    const why = near ? TEXT.works : Number.isFinite(plainly.total + plainly.weighted) ? TEXT.under : TEXT.over;
    const sums = TEXT.sums(...["total", "weighted", "output"].map((name) => rounded(plainly[name])));
    naively.textContent = inOne(sums, why);
    for (const name of ["total", "weighted", "output"]) naively.dataset[name] = plainly[name];
  }

  function tell({ step: at, tiles, tile: size }, before, now) {
    const m = plain(now.maximum);
    let said = TEXT.start(size);
    if (at === 1) said = TEXT.begin(m);
    else if (at) said = now.factor === 1 ? TEXT.stays(m) : TEXT.rises(plain(before.maximum), m, rounded(now.factor));
    read.textContent = at === tiles ? inOne(said, TEXT.done) : said;
  }

  function show(s, steps) {
    const [before, now] = [steps[s.step - 1], steps[s.step]];
    drawCells(s, steps);
    drawKept(before, now);
    drawTable(s, steps);
    compare(s, now);
    tell(s, before, now);
  }

  // Each part is as high as the highest of all steps, so that nothing moves while a reader steps. Paper is not stepped.
  function reserve(s, steps) {
    const parts = [read, cells, kept, table, check];
    for (const box of parts) box.style.minHeight = "";
    if (isPrinted()) return;
    const heights = steps.map((_, step) => {
      show({ ...s, step }, steps);
      return parts.map((box) => box.getBoundingClientRect().height);
    });
    parts.forEach((box, k) => (box.style.minHeight = `${Math.max(...heights.map((row) => row[k]))}px`));
  }

  let reserved = ""; // the numbers that room is reserved for
  let reserving;

  // Other numbers show at once; to measure all their steps takes longer, and waits until the reader's hand rests.
  function update() {
    const s = state();
    const steps = run(s);
    follow(s);
    show(s, steps);
    const numbers = JSON.stringify([s.scores, s.values, s.tile]);
    clearTimeout(reserving);
    if (numbers !== reserved) reserving = setTimeout(() => signal.aborted || layout(), 100);
  }

  function layout() {
    const s = state();
    reserve(s, run(s));
    reserved = JSON.stringify([s.scores, s.values, s.tile]);
    update();
  }

  // All that was read stays read in tiles of another size; else as many whole tiles as fit into it.
  listen(tile.input, "input", () => {
    const [s, size] = [state(), Number(tile.input.value)];
    const whole = s.step === s.tiles ? MOST : Math.floor((s.step * s.tile) / size);
    put({ tile: size, step: whole });
  });
  listen(step.input, "input", () => put({ step: Number(step.input.value) }));
  listen(moves, "keydown", (event) => {
    const way = { ArrowLeft: -1, ArrowRight: 1, Home: -MOST, End: MOST }[event.key];
    if (!way || event.ctrlKey || event.altKey || event.metaKey) return;
    put({ step: state().step + way });
    event.preventDefault();
  });

  return { root, traits: TRAITS, update, layout };
}

export default { render: mount(draw) };
