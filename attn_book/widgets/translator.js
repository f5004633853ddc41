// A sentence is typed, and the model translates it here: word by word, with its attention; words can be forced.

// Tokens of a translation; milliseconds between two words that appear, and where a line runs from each to where it looks.
const [LONGEST, PAUSE, TRACED] = [60, 160, 560];
const SEEN = "attention book, the translator has written"; // in a tab, the first translation is written once

function draw({ model, el, listen, signal }) {
  const engine = openTranslator(model.get("exported"));
  const { source, target } = engine;
  const special = [source.pad, source.bos, source.eos, source.unk];
  const words = source.words.filter((_, id) => !special.includes(id));
  const known = new Set(words);
  const still = matchMedia("(prefers-reduced-motion: reduce)");

  // What is on the page, from top to bottom.
  const output = (name) => make("output", { class: `attn-${name}`, "aria-live": "polite" });
  const button = (text, press, name = "") => {
    const box = make("button", { type: "button", class: `attn-button ${name}` }, text);
    listen(box, "click", () => box.getAttribute("aria-disabled") === "true" || press());
    return box;
  };
  const slider = (name, max, set) => {
    const input = make("input", { type: "range", name, min: 0, max, step: 1, "aria-label": TEXT[name] });
    const value = span("value");
    listen(input, "input", () => set(Number(input.value)));
    const follow = (at, text) => {
      [input.value, value.textContent] = [at, text];
      input.setAttribute("aria-valuetext", text);
    };
    return { box: make("label", { class: "attn-slider" }, make("span", {}, TEXT[name]), input, value), follow };
  };
  const field = makeField(words, listen, () => updateField(), () => send(play));
  const [translate, step] = [button(TEXT.translate, () => send(play), "attn-main"), button(TEXT.step, stepOn)];
  const form = part("asked", make("label", {}, span("name", TEXT.sentence), field.box), translate, step);
  const unknown = output("unknown");
  const samples = part("samples", span("hint", TEXT.samples));
  const beam = slider("beam", 4, (k) => search({ beam: k + 1, temperature: 0 }, settings.temperature ? TEXT.widened : ""));
  const heat = slider("temperature", 11, (k) =>
    search({ beam: 1, temperature: k && (k + 4) / 10 }, settings.beam > 1 ? TEXT.drawn : ""),
  );
  const again = button(TEXT.again, () => search({ seed: settings.seed + 1 }, ""));
  const how = output("how");
  const settled = part("settings", beam.box, heat.box, again, how);
  const printed = make("p", { class: "attn-printed" });
  const earlier = part("earlier");
  const line = makeWords(listen, { point: (t) => read(t < 0 ? null : [t, -1]), toggle, choose });
  const facts = span("facts");
  const undo = button(TEXT.undo, () => force([], new Set(), Math.min(...chosen)));
  const map = makeMap(listen, (cell) => read(cell));
  const reading = output("read");
  const scale = span("scale");
  const legend = part("legend", span("key", "0", span("ramp"), scale));
  const heads = makeHeads(engine.heads, listen, show, turn);
  const spoken = output("unseen");
  const more = make("details", { class: "attn-more" }, make("summary", {}, TEXT.more), settled, facts);
  const root = card(
    "translator",
    TEXT.title,
    part("bar", span("title", TEXT.title), span("kind", TEXT.kinds[engine.kind])),
    part("work", form, unknown, samples, printed, earlier, line.line, line.others, undo, more),
    part("seen", reading, part("columns", part("chart", map.box, legend), heads.box)), spoken,
  );

  const settings = { beam: 1, temperature: 0, seed: 1, view: -1, off: new Set(), why: "" };
  let [given, said] = ["", []]; // the sentence that is translated, as it was given and in words
  let [forced, chosen] = [[], new Set()]; // the first tokens, as they are to be; the places of those that the reader chose
  let [translation, written, took] = [null, [], 0]; // the translation, its tokens with <eos>, and the milliseconds it took
  let [revealed, timer] = [0, 0]; // how much of it shows, and what brings the next word
  let ramp = null; // the colours, once the widget is on the page
  let pointed = null; // the cell, or as [word, −1] the word, that the pointer or the focus is at
  let [open, jump] = [-1, -1]; // the word whose alternatives show, and the one that is to have the focus
  let [isDue, isTraced] = [Boolean(model.get("writes")), false]; // the first sentence is to be written; it is being written

  // A live region is read aloud whenever it is written to.
  const tell = (element, text) => element.textContent === text || (element.textContent = text);
  const typed = () => readWords(field.input.value, (word) => known.has(word));
  const strangers = () => [...new Set(typed().filter((word) => !known.has(word)))];
  const isStale = () => typed().join(" ") !== said.join(" ");
  const named = (t) => shown(target.words[written[t]]);

  // Decode the sentence anew, from the words that are forced; then show it, by `reveal`, after its first `from` words.
  function decode(reveal, from) {
    const { beam, temperature, seed, off } = settings;
    const options = { off, forced, maxLength: LONGEST }; // of beams, the mean per token counts: the engine's usual way
    if (temperature) options.pick = drawing(temperature, seed);
    const began = performance.now();
    const memory = engine.encode(said.map((word) => source.ids.get(word)));
    if (beam > 1) [translation] = beamSearch(engine, memory, { ...options, beamSize: beam });
    else translation = greedy(engine, memory, options);
    took = performance.now() - began;
    written = translation.finished ? [...translation.tokens, engine.eos] : translation.tokens;
    [revealed, open, isTraced, pointed] = [from, -1, false, null];
    map.fill([...said, "<eos>"].map(shown), written.map((_, t) => named(t)));
    fit();
    reveal();
  }

  // Take what is typed as the sentence.
  function send(reveal) {
    if (!typed().length || strangers().length) return updateField(true);
    [given, said] = [field.input.value, typed()];
    [forced, chosen] = [[], new Set()];
    decode(reveal, 0);
    model.set("sentence", given);
    model.save_changes();
    updateField();
  }

  function followSentence() {
    if (model.get("sentence") === given) return;
    field.input.value = model.get("sentence");
    send(all);
  }

  // All at once; the next word; word after word, but for those who ask for less motion.
  function all() {
    clearTimeout(timer);
    revealed = written.length;
    update();
  }
  function one() {
    clearTimeout(timer);
    revealed = Math.min(revealed + 1, written.length);
    update();
  }
  function play() {
    if (still.matches) return all();
    one();
    if (revealed < written.length) timer = setTimeout(play, PAUSE);
  }
  // Write the first sentence once, when it comes into view; whatever the reader does shows all of it at once.
  function begin() {
    isDue = false;
    try {
      if (sessionStorage.getItem(SEEN)) return;
      sessionStorage.setItem(SEEN, "yes");
    } catch {} // a browser may forbid it
    [revealed, isTraced] = [0, true];
    trace();
  }
  function trace() {
    if (!isTraced) return;
    if (revealed === written.length) return finish();
    one();
    runLine();
    timer = setTimeout(trace, TRACED);
  }
  function runLine() {
    const row = weightsOf(settings.view)[revealed - 1];
    map.trace(revealed - 1, row.indexOf(Math.max(...row)));
  }
  function finish() {
    isDue = false;
    if (!isTraced) return;
    isTraced = false;
    map.trace(-1);
    all();
  }
  const inView = new IntersectionObserver(([{ isIntersecting }]) => isDue && isIntersecting && begin());
  for (const event of ["pointerdown", "keydown"]) window.addEventListener(event, finish, { capture: true, signal });
  for (const event of ["pointermove", "focusin", "input"]) root.addEventListener(event, finish, { capture: true, signal });

  function stepOn() {
    if (isStale()) return send(one);
    if (revealed === written.length) revealed = 0;
    open = -1;
    one();
  }

  // The first tokens are to be these; the reader has chosen those at `places`.
  function force(tokens, places, from) {
    [forced, chosen, jump] = [tokens, places, Math.max(0, from - 1)];
    decode(play, from);
  }
  function choose(t, id) {
    const before = [...chosen].filter((place) => place < t);
    force([...written.slice(0, t), id], new Set([...before, t]), t + 1);
  }

  function show(view) {
    settings.view = view;
    update();
  }
  // What is set acts at once, unless another sentence is being typed. `why` says what else had to change.
  function search(changes, why) {
    Object.assign(settings, { why, ...changes });
    if (isStale()) update();
    else decode(all, 0);
  }
  function turn(head, isOn) {
    const off = new Set(settings.off);
    if (isOn) off.delete(head);
    else off.add(head);
    search({ off }, settings.why);
  }

  // The weights of a head; or, as −1, the mean of the heads that are on: rows of the map.
  function weightsOf(view) {
    if (view >= 0) return translation.weights.map((heads) => heads[view]);
    return translation.weights.map((heads) => {
      const on = heads.filter((_, head) => !settings.off.has(head));
      return heads[0].map((_, s) => on.reduce((sum, row) => sum + row[s], 0) / Math.max(1, on.length));
    });
  }

  // The field's own line, and whether what stands below belongs to what stands in it.
  function updateField(isSent = false) {
    const wrong = strangers();
    for (const offer of samples.querySelectorAll("button")) offer.hidden = offer.textContent === field.input.value;
    const alone = wrong.filter((word) => isSent || !field.isUnfinished(word));
    tell(unknown, alone.length ? TEXT.unknown(alone.map(shown), words.length) : "");
    field.input.setAttribute("aria-invalid", alone.length > 0);
    for (const press of [translate, step]) press.setAttribute("aria-disabled", wrong.length > 0 || !typed().length);
    const stale = isStale();
    // Words that are drawn anew would lose the click or the focus that they are just getting.
    if (root.classList.contains("attn-stale") === stale) return;
    root.classList.toggle("attn-stale", stale);
    earlier.textContent = stale ? TEXT.earlier(said.map(shown).join(" ")) : "";
    if (!stale) return update();
    open = -1;
    all();
  }

  function drawWords() {
    const options = { count: revealed, open, isStale: isStale(), goTo: jump };
    const listed = written.map((id, t) => {
      return { text: named(t), share: Math.exp(translation.logProbs[t]), forced: chosen.has(t), end: id === engine.eos };
    });
    line.draw(listed, options);
    const candidates = open < 0 ? [] : translation.candidates[open];
    const option = ({ id, p }) => ({ id, p, text: shown(target.words[id]), taken: id === written[open] });
    line.offer(open < 0 ? "" : named(open), candidates.map(option));
    jump = -1;
  }

  function drawFacts() {
    const count = translation.tokens.length;
    const mean = translation.logProbs.reduce((sum, one) => sum + one, 0) / translation.logProbs.length;
    const parts = [TEXT.took(count, took), TEXT.likely(mean.toFixed(3).replace("-", "−"))];
    if (!translation.finished) parts.push(TEXT.cut(count));
    const isWhole = revealed === written.length;
    facts.textContent = isWhole ? inOne(...parts) : "";
    undo.hidden = !chosen.size || isStale();
    tell(spoken, isWhole ? TEXT.spoken(written.map((_, t) => named(t)).join(" ")) : "");
  }

  function drawSettings() {
    const { beam: size, temperature, seed, why } = settings;
    beam.follow(size - 1, `${size}`);
    heat.follow(temperature && Math.round(10 * temperature) - 4, temperature ? temperature.toFixed(1) : TEXT.none);
    again.hidden = !temperature;
    const way = temperature ? TEXT.drawing(seed) : size > 1 ? TEXT.search(size) : TEXT.likeliest;
    tell(how, why || temperature || size > 1 ? inOne(way, why || TEXT.either) : way);
  }

  function update() {
    if (!ramp) return; // it is not on the page yet
    const weights = weightsOf(settings.view);
    const top = Math.max(...weights.flatMap((row) => [...row])) || 1;
    printed.textContent = said.map(shown).join(" ");
    drawWords();
    drawFacts();
    drawSettings();
    map.draw(weights, revealed, top, ramp.map((bytes) => `rgb(${bytes.slice(0, 3)})`));
    heads.draw(weightsOf, revealed, settings.off, settings.view, ramp);
    scale.textContent = TEXT.greatest(hundredths(top));
    read(pointed);
  }

  // What a cell holds, or the greatest weights of a row; else how to read them.
  function read(cell) {
    pointed = cell;
    const [t, s] = cell && cell[0] < revealed ? cell : [open, -1];
    map.mark(t, s);
    reading.classList.toggle("attn-hint", t < 0);
    if (t < 0) return (reading.textContent = TEXT.hint);
    const row = [...weightsOf(settings.view)[t]];
    const name = (k) => (k < said.length ? shown(said[k]) : "<eos>");
    const best = s < 0 ? row.map((_, k) => k).sort((a, b) => row[b] - row[a]).slice(0, 3) : [s];
    reading.textContent = TEXT.reads(named(t), best.map((k) => TEXT.looked(name(k), hundredths(row[k]))).join(", "));
  }

  // The map stands beside the words where there is room for both.
  function fit() {
    const width = Math.min(el.clientWidth || 640, isPrinted() ? 660 : Infinity) - 34;
    const isWide = width >= 780 && !engine.heads.length;
    root.classList.toggle("attn-wide", isWide);
    map.layout(isWide ? (width - 28) / 2 : width, isPrinted());
  }
  // On a phone the map comes first, then what one may try.
  function arrange() {
    const isNarrow = matchMedia("(max-width: 576px)").matches;
    if (isNarrow === (more.parentNode === root)) return; // to move it would lose the focus
    if (isNarrow) return root.append(samples, more);
    printed.before(samples);
    undo.after(more);
  }

  function layout() {
    ramp = rampOf(root);
    arrange();
    followSentence(); // it may have changed before the widget came onto the page
    fit();
    update();
    if (isPrinted() || still.matches) finish();
    const { top, bottom } = line.line.getBoundingClientRect();
    if (isDue && bottom > 0 && top < innerHeight) begin();
    else if (isDue) inView.observe(line.line);
    else if (isTraced) runLine();
  }

  // Show what else may stand in the place of a word, or no longer.
  function toggle(t) {
    if (isStale()) return;
    clearTimeout(timer);
    [jump, revealed, open] = [t, written.length, open === t ? -1 : t];
    update();
  }
  listen(heads.box, "submit", (event) => event.preventDefault());

  field.input.value = model.get("sentence");
  for (const text of new Set([model.get("sentence"), ...SAMPLES])) {
    if (!readWords(text, (word) => known.has(word)).every((word) => known.has(word))) continue;
    samples.append(
      button(text, () => {
        field.input.value = text;
        send(play);
        translate.focus({ preventScroll: true }); // this one hides
      }),
    );
  }
  send(all);
  signal.addEventListener("abort", () => [clearTimeout(timer), inView.disconnect()]);
  return { root, traits: ["sentence"], update: followSentence, layout };
}

export default { render: mount(draw) };
