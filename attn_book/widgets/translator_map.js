// The map of a translation, a table whose rows show one by one, and small maps of the heads to choose by.

// `point` hears of the cell under the pointer, [row, column], and of null when it has left.
function makeMap(listen, point) {
  const board = make("div", { class: "attn-board", role: "table", "aria-label": TEXT.map });
  const box = make("div", { class: "attn-scroll" }, board);
  const line = make("svg", { class: "attn-trace", "aria-hidden": true });
  let [rows, columns, cells] = [[], [], []];

  const rowOf = (...children) => make("div", { class: "attn-line", role: "row" }, ...children);
  const heading = (role, name, token) => make("div", { class: `attn-${name}`, role }, make("span", {}, shown(token)));

  // A row for each word of the translation, a column for each of the sentence: what is seen of it comes later.
  function fill(source, target) {
    columns = source.map((token) => heading("columnheader", "column", token));
    rows = target.map((token) => heading("rowheader", "row", token));
    const number = () => make("span", { class: "attn-unseen" });
    cells = target.map(() => source.map(() => make("div", { class: "attn-square", role: "cell" }, number())));
    const corner = make("div", { class: "attn-corner", role: "columnheader" });
    corner.append(make("span", {}, TEXT.across), make("span", {}, TEXT.down));
    board.replaceChildren(rowOf(corner, ...columns), ...rows.map((row, t) => rowOf(row, ...cells[t])));
    board.style.setProperty("--attn-columns", source.length);
  }

  // The first `count` rows, coloured by their weights, `top` the darkest.
  function draw(weights, count, top, ramp) {
    cells.forEach((squares, t) => {
      squares[0].parentElement.classList.toggle("attn-later", t >= count);
      squares.forEach((square, s) => {
        square.style.backgroundColor = ramp[Math.round((255 * weights[t][s]) / top)];
        square.firstChild.textContent = hundredths(weights[t][s]);
      });
    });
  }

  function mark(t, s) {
    rows.forEach((row, k) => row.classList.toggle("attn-on", k === t));
    columns.forEach((column, k) => column.classList.toggle("attn-on", k === s));
  }

  // A line from a word along its row to the cell of its greatest weight, and up to the word that it attends to.
  function trace(t, s) {
    mark(t, s);
    line.remove();
    if (t < 0) return;
    const [row, square, column] = [rows[t], cells[t][s], columns[s]];
    const [x, y] = [square.offsetLeft + square.offsetWidth / 2, square.offsetTop + square.offsetHeight / 2];
    const [left, top] = [row.offsetLeft + row.offsetWidth - 6, column.offsetTop + column.offsetHeight - 3];
    const path = make("path", { d: `M${left} ${y}H${x - 6}Q${x} ${y} ${x} ${y - 6}V${top}`, pathLength: 1 });
    line.replaceChildren(path, make("circle", { cx: x, cy: top, r: 3.5 }));
    board.append(line);
  }

  // Cells as large as the width allows, within reason; what does not fit scrolls inside its box.
  function layout(width, isPrinted) {
    line.remove();
    const longest = Math.max(...columns.map(({ firstChild }) => firstChild.offsetWidth));
    const fits = (tail) => Math.floor((width - rows[0].offsetWidth - tail) / columns.length);
    const slanted = fits(longest * Math.SQRT1_2);
    const isSlanted = slanted >= 20;
    const size = isSlanted ? Math.min(slanted, 26) : Math.max(isPrinted ? 9 : 16, Math.min(fits(0), 19));
    const [tail, head] = isSlanted ? [longest * Math.SQRT1_2, longest * Math.SQRT1_2] : [0, longest];
    const lengths = { size, head: Math.max(34, Math.ceil(head) + 14), tail: Math.ceil(tail) };
    for (const [name, length] of Object.entries(lengths)) board.style.setProperty(`--attn-${name}`, `${length}px`);
    board.style.setProperty("--attn-angle", isSlanted ? "-45deg" : "-90deg");
    box.classList.toggle("attn-small", size < 16);
    // What scrolls is in reach of the keys.
    const attributes = { tabindex: 0, role: "region", "aria-label": TEXT.map };
    for (const [name, value] of Object.entries(attributes)) {
      if (box.scrollWidth > box.clientWidth) box.setAttribute(name, value);
      else box.removeAttribute(name);
    }
  }

  listen(board, "pointerover", ({ target }) => {
    const square = target.closest(".attn-square");
    const t = square ? cells.findIndex((squares) => squares.includes(square)) : -1;
    point(t < 0 ? null : [t, cells[t].indexOf(square)]);
  });
  listen(board, "pointerleave", ({ pointerType }) => pointerType === "mouse" && point(null));
  return { box, fill, draw, mark, trace, layout };
}

// For each of the model's heads a small map to show in the large one, and a box that switches the head off.
function makeHeads(names, listen, show, turn) {
  const views = [TEXT.all, ...names].map((name, k) => {
    const input = make("input", { type: "radio", name: "view", value: k - 1, "aria-label": TEXT.show(name) });
    const canvas = make("canvas", { "aria-hidden": true });
    const label = make("label", { class: "attn-view" }, input, canvas, make("span", { class: "attn-said" }, name));
    listen(input, "change", () => show(k - 1));
    if (!k) return { input, canvas, label, item: make("div", { class: "attn-head" }, label) };
    const check = make("input", { type: "checkbox", name: "head", value: k - 1, "aria-label": TEXT.use(name) });
    const state = make("span", { class: "attn-state" });
    listen(check, "change", () => turn(k - 1, check.checked));
    const toggle = make("label", { class: "attn-switch" }, check, state);
    return { input, canvas, label, check, state, item: make("div", { class: "attn-head" }, label, toggle) };
  });
  const group = make("div", { class: "attn-heads", role: "group", "aria-label": TEXT.heads });
  group.append(...views.map(({ item }) => item));
  const box = make("form", { class: "attn-survey" }, group); // a form keeps apart the copies on a page
  box.hidden = !names.length;

  // `mapOf` gives the weights that a view shows, −1 for the mean; the greatest of each map is its darkest.
  function draw(mapOf, count, off, chosen, ramp) {
    views[0].label.lastChild.textContent = off.size ? TEXT.mean : TEXT.all;
    views.forEach(({ input, canvas, label, check, state, item }, k) => {
      input.checked = chosen === k - 1;
      label.classList.toggle("attn-chosen", input.checked);
      item.classList.toggle("attn-off", off.has(k - 1));
      if (check) check.checked = !off.has(k - 1);
      if (state) state.textContent = off.has(k - 1) ? TEXT.off : TEXT.on;
      paint(canvas, mapOf(k - 1), count, ramp);
    });
  }
  return { box, draw };
}

// A pixel for each weight, drawn larger all at once.
function paint(canvas, rows, count, ramp) {
  const [height, width] = [rows.length, rows[0].length];
  [canvas.width, canvas.height] = [width, height];
  const side = Math.max(2, Math.min(6, 58 / Math.max(height, width)));
  Object.assign(canvas.style, { width: `${width * side}px`, height: `${height * side}px` });
  const top = Math.max(...rows.flatMap((row) => [...row])) || 1;
  const pixels = new ImageData(width, height);
  rows.forEach((row, t) => {
    row.forEach((weight, s) => {
      const colour = ramp[t < count ? Math.round((255 * weight) / top) : 0];
      pixels.data.set(colour, 4 * (t * width + s));
    });
  });
  canvas.getContext("2d").putImageData(pixels, 0, 0);
}

