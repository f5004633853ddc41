// Attention over the patches of images: an image, dimmed where the query in hand gives little weight; the query is a
// word of a caption, a patch or a class token.

const TRAITS = ["image", "layer", "head", "query"];

function draw({ model, el, listen, signal }) {
  const names = ["height", "width", "patch_size", "heads", "queries", "lengths", "bits"];
  const [height, width, size, heads, queries, lengths, bits] = names.map((name) => model.get(name));
  const [layers, answers] = ["layers", "answers"].map((name) => model.get(name).map((text) => say(text)));
  const title = say(model.get("title"));
  const [codes, pixels, packed] = ["codes", "pixels", "tops"].map((name) => bytesOf(model.get(name)));
  const [tops, fine] = [packed, codes].map(({ buffer }) => new DataView(buffer));
  const share = (i) => (bits === 8 ? codes[i] / 255 : fine.getUint16(2 * i, true) / 65535);
  const [across, down] = [width / size, height / size]; // patches
  const patches = across * down;
  const captions = queries.some((words) => words.length);
  const limits = { image: lengths.length, layer: layers.length, head: heads };

  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const { state, put } = stateOf(model, TRAITS, (raw) => {
    const s = { ...raw };
    for (const [name, end] of Object.entries(limits)) s[name] = within(s[name], name === "head" ? -1 : 0, end - 1);
    return { ...s, query: within(s.query, 0, lengths[s.image] - 1) };
  });

  // What is on the page, from top to bottom.
  // Radio buttons: one stop for Tab, and the arrows choose. Their form keeps apart the copies on a page.
  const group = (name, press) => {
    const box = make("div", { class: `attn-choices attn-${name}`, role: "radiogroup", "aria-label": TEXT[name] });
    const form = make("form", {}, box);
    listen(form, "submit", (event) => event.preventDefault());
    listen(box, "change", (event) => {
      over = null; // what a finger has read before
      press(Number(event.target.value));
    });
    const option = (value, text, ...before) => {
      const input = make("input", { type: "radio", name, value, "aria-label": text });
      return make("label", { class: "attn-choice" }, input, ...before, span("said", text));
    };
    const choose = (value) => box.querySelectorAll("input").forEach((input) => {
      input.checked = Number(input.value) === value;
      input.parentElement.classList.toggle("attn-chosen", input.checked);
    });
    return { box, form, option, choose };
  };
  const small = () => make("canvas", { "aria-hidden": true });
  const images = group("images", (image) => halt(() => put({ image })));
  const photos = lengths.map((_, i) => ({ view: small(), i }));
  images.box.append(...photos.map(({ view, i }) => images.option(i, TEXT.image(i), view)));
  const asked = group("queries", (query) => halt(() => put({ query })));
  const play = make("button", { type: "button", class: "attn-button attn-play" }, TEXT.play);
  const survey = group("heads", (head) => put({ head }));
  const views = Array.from({ length: heads > 1 ? heads + 1 : 0 }, (_, k) => ({ view: small(), head: k - 1 }));
  survey.box.append(...views.map(({ view, head }) => survey.option(head, head < 0 ? TEXT.mean : TEXT.head(head), view)));
  const slide = make("input", { type: "range", name: "layer", min: 0, max: layers.length - 1, step: 1, "aria-label": TEXT.layer });
  const layerName = span("value");
  const depth = make("label", { class: "attn-slider" }, make("span", {}, TEXT.layer), slide, layerName);
  listen(slide, "input", () => put({ layer: Number(slide.value) }));
  const [canvas, hover, tag] = [small(), part("hover"), make("div", { class: "attn-tag", "aria-hidden": true })];
  // A grid of which only the patch in hand is in the document; it moves, and a live region says what it holds.
  const cell = make("div", { class: "attn-cell", role: "gridcell", tabindex: 0 });
  const line = make("div", { role: "row" }, cell);
  const grid = make("div", { role: "grid", "aria-label": TEXT.grid, "aria-rowcount": down, "aria-colcount": across }, line);
  const area = part("area", canvas, hover, grid, tag);
  const read = make("output", { class: "attn-read", "aria-live": "polite" });
  const [whole, greatest, answer] = [span("whole"), span("most"), part("answer")];
  const keyed = (name, text) => span("key", span(`sample attn-${name}`), text);
  const legend = part("legend", span("key", TEXT.zero, span("ramp"), greatest), keyed("outlined", TEXT.most));
  if (!captions) legend.append(keyed("asking", TEXT.asking));
  legend.append(whole);
  const hint = part("hint", captions ? TEXT.hint : inOne(TEXT.hint, TEXT.choose));
  const side = part("side");
  if (layers.length > 1) side.append(depth);
  if (heads > 1) side.append(part("name", TEXT.heads), survey.form);
  if (answers.length) side.append(answer);
  const query = part("asked", part("name", TEXT.queries), asked.form);
  if (captions) query.append(play);
  const root = card(
    "patches",
    title || TEXT.grid,
    part("bar", span("title", title)), images.form, query,
    part("columns", part("panel", area, read, legend, hint), side),
  );

  const sources = photos.map(({ i }) => {
    const source = small();
    [source.width, source.height] = [width, height];
    const data = new ImageData(width, height);
    for (let p = 0, from = i * width * height * 3; p < width * height; p++, from += 3) {
      data.data.set([pixels[from], pixels[from + 1], pixels[from + 2], 255], 4 * p);
    }
    source.getContext("2d").putImageData(data, 0, 0);
    return source;
  });
  let rowsBefore = 0;
  const firsts = lengths.map((length) => (rowsBefore += length * heads * layers.length) - length * heads * layers.length);
  let [scale, over, filled, timer] = [1, null, null, 0];
  let [at, last] = [0, 0]; // the patch that the keys are at, and the one that was a query last

  // The weights of the query in hand, for one head or, as head −1, their mean.
  function rowOf({ image, layer, query }, head) {
    if (head < 0) {
      const all = Array.from({ length: heads }, (_, h) => rowOf({ image, layer, query }, h));
      return all[0].map((_, r) => sum(all.map((row) => row[r])) / heads);
    }
    const row = firsts[image] + (layer * heads + head) * lengths[image] + query;
    const top = tops.getFloat32(4 * row, true);
    return Array.from({ length: patches }, (_, r) => share(row * patches + r) * top);
  }

  const corner = (r) => [r % across, Math.floor(r / across)];
  const own = ({ image }) => lengths[image] - patches; // 1 where a class token comes before the patches
  const place = (r) => TEXT.place(r, ...corner(r).reverse());
  function nameOf(s) {
    if (captions) return TEXT.quoted(shown(queries[s.image][s.query]));
    return s.query < own(s) ? TEXT.ofClassToken : TEXT.ofPatch(s.query - own(s));
  }

  function drawQueries(s) {
    if (!captions && s.query >= own(s)) last = s.query - own(s);
    const texts = captions ? queries[s.image].map(shown) : [...(own(s) ? [TEXT.classToken] : []), TEXT.patch(last)];
    const values = captions ? texts.map((_, i) => i) : [...(own(s) ? [0] : []), last + own(s)];
    const key = JSON.stringify([texts, values]);
    if (filled !== key) {
      const held = asked.box.contains(asked.box.getRootNode().activeElement);
      asked.box.replaceChildren(...texts.map((text, i) => asked.option(values[i], text)));
      if (held) asked.box.querySelector(`[value="${s.query}"]`).focus({ preventScroll: true });
    }
    filled = key;
    asked.choose(s.query);
  }

  // What is being read: the patch under the pointer, else the one the keys are at, else the query's greatest.
  function mark(s, row) {
    const reading = over ?? (cell.matches(":focus-visible:not(.attn-pointed)") ? at : null);
    const step = size * scale;
    hover.hidden = over === null;
    tag.hidden = reading === null;
    for (const [box, r] of [[hover, over ?? 0], [cell, at]]) {
      const [left, top] = corner(r).map((k) => `${k * step}px`);
      Object.assign(box.style, { left, top, width: `${step}px`, height: `${step}px` });
    }
    const reads = (r) => TEXT.reads(nameOf(s), place(r), TEXT.percent(row[r]), ranked(row, r), patches);
    line.setAttribute("aria-rowindex", Math.floor(at / across) + 1);
    cell.setAttribute("aria-colindex", (at % across) + 1);
    cell.setAttribute("aria-selected", !captions && at === s.query - own(s));
    cell.setAttribute("aria-label", reads(at));
    const best = row.map((_, r) => r).filter((r) => row[r] > 0 && ranked(row, r) <= OUTLINED).sort((a, b) => row[b] - row[a]);
    if (reading !== null) {
      read.textContent = reads(reading);
      tag.textContent = TEXT.tag(TEXT.percent(row[reading]), ranked(row, reading));
      const [x, y] = corner(reading).map((k) => k * step);
      const left = Math.max(0, Math.min(x + (step - tag.offsetWidth) / 2, width * scale - tag.offsetWidth));
      const top = y >= tag.offsetHeight + 3 ? y - tag.offsetHeight - 3 : y + step + 3;
      Object.assign(tag.style, { left: `${left}px`, top: `${top}px` });
    } else if (!best.length) read.textContent = TEXT.nothing(nameOf(s));
    else if (best.length > OUTLINED) {
      const count = best.filter((r) => row[r] === row[best[0]]).length;
      read.textContent = TEXT.alike(nameOf(s), count, patches, TEXT.percent(row[best[0]]));
    } else read.textContent = TEXT.greatest(nameOf(s), best.map((r) => TEXT.entry(r, TEXT.percent(row[r]))));
    return best;
  }

  function update() {
    const s = state();
    const row = rowOf(s, s.head);
    images.choose(s.image);
    drawQueries(s);
    survey.choose(s.head);
    slide.value = s.layer;
    layerName.textContent = layers[s.layer];
    slide.setAttribute("aria-valuetext", TEXT.layerOf(layers[s.layer], s.layer, layers.length - 1));
    const little = fit(Math.max(width, height), SMALL);
    photos.forEach(({ view }, i) => paint(view, sources[i], little, size));
    for (const { view, head } of views) paint(view, sources[s.image], little, size, rowOf(s, head));
    const pen = paint(canvas, sources[s.image], scale, size, row);
    for (const r of mark(s, row)) outline(pen, ...corner(r), size * scale, GREATEST);
    if (!captions && s.query >= own(s)) outline(pen, ...corner(s.query - own(s)), size * scale, ASKING);
    greatest.textContent = TEXT.percent(Math.max(...row));
    const share = sum(row);
    whole.textContent = share < 0.99 ? TEXT.together(Math.round(100 * share)) : "";
    answer.textContent = answers[s.image] ?? "";
    play.textContent = timer ? TEXT.pause : still.matches ? TEXT.step : TEXT.play;
  }

  function layout() {
    const wide = Math.min(el.clientWidth || 640, isPrinted() ? 660 : Infinity) - 32;
    scale = Math.min(fit(width, Math.min(wide, LARGE)), fit(height, LARGE));
    root.style.setProperty("--attn-picture", `${width * scale}px`);
    update();
  }

  // To play is to choose one word after the other; who asks for less motion gets a step for each press.
  function halt(then = update) {
    clearTimeout(timer);
    timer = 0;
    then();
  }
  function next() {
    const { image, query } = state();
    const end = lengths[image] - 1;
    timer = !still.matches && (query >= end ? 0 : query + 1) < end ? setTimeout(next, PAUSE) : 0;
    put({ query: query >= end ? 0 : query + 1 });
  }
  listen(play, "click", () => (timer ? halt() : next()));
  signal.addEventListener("abort", () => clearTimeout(timer));

  const point = (r) => {
    over = r;
    const s = state();
    mark(s, rowOf(s, s.head));
  };
  const patchAt = (event) => {
    const box = area.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top].map((d) => Math.floor(d / (size * scale)));
    return x >= 0 && y >= 0 && x < across && y < down ? y * across + x : null;
  };
  const ask = () => (captions ? point(over) : put({ query: at + own(state()) }));
  listen(area, "pointermove", (event) => over !== patchAt(event) && point(patchAt(event)));
  listen(area, "pointerdown", (event) => point(patchAt(event)));
  // A finger that lifts leaves what it read.
  listen(area, "pointerleave", (event) => event.pointerType === "mouse" && point(null));
  listen(area, "click", (event) => {
    at = patchAt(event) ?? at;
    cell.classList.add("attn-pointed");
    cell.focus({ preventScroll: true });
    ask();
  });
  listen(cell, "focus", () => point(over));
  listen(cell, "blur", () => {
    cell.classList.remove("attn-pointed");
    point(over);
  });
  listen(cell, "keydown", (event) => {
    const [x, y] = corner(at);
    const moves = {
      ArrowUp: [x, y - 1], ArrowDown: [x, y + 1], ArrowLeft: [x - 1, y], ArrowRight: [x + 1, y],
      Home: event.ctrlKey ? [0, 0] : [0, y], End: [across - 1, event.ctrlKey ? down - 1 : y],
    };
    if (event.altKey || event.metaKey) return;
    cell.classList.remove("attn-pointed");
    if (event.key === "Enter" || event.key === " ") ask();
    else if (moves[event.key]) {
      const [column, row] = moves[event.key];
      at = Math.max(0, Math.min(row, down - 1)) * across + Math.max(0, Math.min(column, across - 1));
      point(null);
    } else return;
    event.preventDefault();
    event.stopPropagation(); // a notebook has keys of its own
  });

  listen(still, "change", () => halt());
  return { root, traits: TRAITS, update, layout };
}

export default { render: mount(draw) };
