// A sentence with a word hidden: the reader guesses it, then sees what the model says, and where the blank looks.

const TRAITS = ["sentence", "position", "layer", "head", "guesses"];
const OPTIONS = 4; // of the model's words to choose from, beside the true one

function draw({ model, listen }) {
  const given = ["sentences", "predictions", "layers", "heads"];
  const [sentences, predictions, layers, heads] = given.map((name) => model.get(name));
  const codes = bytesOf(model.get("codes"));
  const hideable = predictions.map((entries) => entries.flatMap((entry, i) => (entry ? [i] : [])));
  const places = hideable.flatMap((all, s) => all.map((i) => [s, i]));
  const { state, put } = stateOf(model, TRAITS);

  // What is on the page, from top to bottom.
  const button = (text, press) => {
    const box = make("button", { type: "button", class: "attn-button" }, text);
    listen(box, "click", () => box.getAttribute("aria-disabled") === "true" || press());
    return box;
  };
  // Radio buttons in a form, so that copies on a page have groups of their own.
  const chooser = (name, values, said, others = {}) => {
    const inputs = values.map((value) => make("input", { type: "radio", name, value }));
    for (const input of inputs) listen(input, "change", () => put({ [name]: Number(input.value), ...others }));
    const label = (input, k) => make("label", { class: "attn-choice" }, input, span("chip", said(values[k])));
    const chips = inputs.map(label);
    const group = make("div", { class: "attn-choices", role: "radiogroup", "aria-label": TEXT[name] }, ...chips);
    const box = make("form", { class: "attn-chooser" }, make("span", { "aria-hidden": true }, TEXT[name]), group);
    box.hidden = values.length < 2;
    return { box, follow: (chosen) => inputs.forEach((input) => (input.checked = Number(input.value) === chosen)) };
  };
  const numbered = (count) => Array.from({ length: count }, (_, k) => k);
  const meaned = (count) => (count > 1 ? [-1, ...numbered(count)] : [0]);
  const orMean = (k) => (k < 0 ? TEXT.mean : k);
  const choosers = {
    sentence: chooser("sentence", numbered(sentences.length), (s) => s + 1, { position: -1 }),
    layer: chooser("layer", meaned(layers), orMean),
    head: chooser("head", meaned(heads), orMean),
  };
  const tally = span("tally");
  const words = make("div", { class: "attn-words", role: "group", "aria-label": TEXT.words });
  const looks = make("output", { class: "attn-note", "aria-live": "polite" });
  const attention = part("attention", choosers.layer.box, choosers.head.box, looks);
  const read = make("output", { class: "attn-read", "aria-live": "polite" });
  const quiet = { autocomplete: "off", autocapitalize: "none", spellcheck: false };
  const typed = make("input", { type: "text", name: "guess", required: "", ...quiet });
  const send = make("button", { class: "attn-button attn-main" }, TEXT.send);
  const form = make("form", { class: "attn-typed" }, make("label", {}, make("span", {}, TEXT.guess), typed), send);
  const options = make("div", { class: "attn-options", role: "group", "aria-label": TEXT.options });
  const reveal = button(TEXT.reveal, () => take(null));
  const asking = part("panel attn-asking", form, part("note", TEXT.options), options, reveal);
  const bars = make("ol", { class: "attn-bars", role: "list", "aria-label": TEXT.candidates });
  const outside = part("note");
  const told = part("panel attn-told", part("name", TEXT.candidates), bars, outside);
  const [next, again] = [button(TEXT.next, hideNext), button(TEXT.again, () => put({ guesses: [], position: -1 }))];
  const root = card(
    "masked",
    TEXT.title,
    part("bar", span("title", TEXT.title), tally),
    choosers.sentence.box,
    words,
    attention,
    read,
    asking,
    told,
    part("acts", next, again),
  );

  let [at, jump] = [0, false]; // the word that the keys are at, and whether it is to have the focus

  const guessed = (s, i) => state().guesses.find(([sentence, position]) => sentence === s && position === i);
  const isRight = ([s, i, guess]) => guess !== null && plain(guess) === plain(sentences[s][i]);
  const modelIsRight = ([s, i]) => predictions[s][i][1] === 1;

  function take(guess) {
    const { sentence, position, guesses } = state();
    typed.value = "";
    if (position >= 0 && !guessed(sentence, position)) put({ guesses: [...guesses, [sentence, position, guess]] });
  }

  // The first word not yet guessed after the one on show, in this sentence or another.
  function following() {
    const { sentence, position } = state();
    const here = places.findIndex(([s, i]) => s === sentence && i > position);
    const first = here < 0 ? places.findIndex(([s]) => s > sentence) : here;
    const order = first < 0 ? places : [...places.slice(first), ...places.slice(0, first)];
    return order.find(([s, i]) => !guessed(s, i) && !(s === sentence && i === position));
  }

  function hideNext() {
    const [sentence, position] = following();
    [at, jump] = [position, true];
    put({ sentence, position });
  }

  // Weights from the hidden word to each token: of one head, or the mean of the heads that are meant.
  function weights({ sentence, position, layer, head }) {
    const length = sentences[sentence].length;
    const before = places.slice(0, places.findIndex(([s, i]) => s === sentence && i === position));
    const start = before.reduce((sum, [s]) => sum + layers * heads * sentences[s].length, 0);
    const meant = numbered(layers * heads).filter((cell) => {
      const [l, h] = [Math.floor(cell / heads), cell % heads];
      return layer < 0 || (l === layer && (head < 0 || h === head));
    });
    const row = (k) => meant.reduce((sum, cell) => sum + codes[start + cell * length + k], 0) / meant.length / 255;
    return sentences[sentence].map((_, k) => row(k));
  }

  function drawWords({ sentence, position }, row) {
    const tokens = sentences[sentence];
    const held = jump || words.contains(words.getRootNode().activeElement);
    const top = row && Math.max(...row);
    if (!hideable[sentence].includes(at)) at = hideable[sentence].includes(position) ? position : hideable[sentence][0];
    const boxes = tokens.map((token, i) => {
      const isHidden = i === position;
      const text = isHidden && !row ? TEXT.blank : shown(token);
      const share = row ? percent(row[i]) : "";
      const line = make("span", { class: "attn-line", "aria-hidden": true });
      const tag = predictions[sentence][i] ? "button" : "span";
      const word = make(tag, {}, span("token", text), line, span("weight", share));
      word.className = `attn-word${isHidden ? " attn-blank" : ""}`;
      if (row) word.style.setProperty("--attn-share", row[i] / top);
      if (tag === "span") return word;
      word.type = "button";
      word.dataset.place = i;
      word.tabIndex = i === at ? 0 : -1;
      word.setAttribute("aria-pressed", isHidden);
      const answer = isHidden ? TEXT.answer(text, share) : TEXT.looked(text, share);
      word.setAttribute("aria-label", row ? answer : isHidden ? TEXT.hiddenWord(i + 1, tokens.length) : text);
      return word;
    });
    words.replaceChildren(...boxes);
    if (held) boxes[at].focus({ preventScroll: true });
    jump = false;
  }

  function drawOptions({ sentence, position }) {
    const first = predictions[sentence][position][0].slice(0, OPTIONS).map(([word]) => word);
    const all = [...new Set([...first, sentences[sentence][position]])].sort((a, b) => a.localeCompare(b));
    const attributes = { type: "button", class: "attn-button" };
    options.replaceChildren(...all.map((word) => make("button", { ...attributes, "data-word": word }, shown(word))));
  }

  function drawBars({ sentence, position }, guess) {
    const [candidates, rank, probability] = predictions[sentence][position];
    const truth = sentences[sentence][position];
    const known = candidates.some(([word]) => word === truth);
    const rows = candidates.map(([word, p], k) => [word, p, k + 1]);
    if (!known) rows.push([truth, probability, rank]);
    bars.replaceChildren(
      ...rows.map(([word, p, place]) => {
        const tags = [
          ...(word === truth ? [span("tag attn-truth", `✓ ${TEXT.truth}`)] : []),
          ...(guess !== null && plain(word) === plain(guess) ? [span("tag", TEXT.yours)] : []),
          ...(place > candidates.length ? [span("tag", TEXT.rank(place))] : []),
        ];
        const bar = make("span", { class: "attn-room", "aria-hidden": true }, span("fill"));
        bar.firstChild.style.width = `${100 * p}%`;
        const row = make("li", {}, span("candidate", shown(word), " ", ...tags), bar, span("value", percent(p)));
        row.classList.toggle("attn-true", word === truth);
        return row;
      }),
    );
    const isThere = guess === null || rows.some(([word]) => plain(word) === plain(guess));
    outside.textContent = isThere ? "" : TEXT.outside(shown(guess), candidates.length);
  }

  function verdict({ sentence, position }, guess) {
    const one = [sentence, position, guess];
    const [word, best] = [sentences[sentence][position], predictions[sentence][position][0][0][0]].map(shown);
    if (guess === null) return modelIsRight(one) ? TEXT.modelAlone(word) : TEXT.modelWrong(word, best);
    const whose = isRight(one) ? (modelIsRight(one) ? "both" : "you") : modelIsRight(one) ? "model" : "neither";
    return TEXT[whose](word, best, shown(guess));
  }

  function drawLooks(s, row) {
    const order = row.map((_, i) => i).sort((a, b) => row[b] - row[a]).slice(0, 3);
    const tokens = sentences[s.sentence];
    const most = order.map((i) => TEXT.most(i === s.position ? TEXT.blank : shown(tokens[i]), percent(row[i])));
    const whose = s.layer < 0 ? TEXT.all : s.head < 0 ? TEXT.layerMean : TEXT.one;
    looks.textContent = inOne(whose(most.join(", "), s.layer, s.head), TEXT.darker);
  }

  function update() {
    const s = state();
    // What there is only one of is meant, whatever the trait says.
    if (layers === 1) s.layer = 0;
    if (heads === 1) s.head = 0;
    const answer = guessed(s.sentence, s.position);
    const row = answer ? weights(s) : null;
    const counted = s.guesses.filter(([, , guess]) => guess !== null);
    const active = root.getRootNode().activeElement;
    for (const [name, { follow }] of Object.entries(choosers)) follow(s[name]);
    choosers.head.box.hidden = heads < 2 || s.layer < 0;
    tally.textContent = counted.length
      ? TEXT.tally(counted.filter(isRight).length, counted.filter(modelIsRight).length, counted.length)
      : "";
    drawWords(s, row);
    asking.hidden = s.position < 0 || Boolean(answer);
    attention.hidden = told.hidden = !answer;
    if (!asking.hidden) drawOptions(s);
    if (answer) drawBars(s, answer[2]);
    if (answer) drawLooks(s, row);
    read.textContent = answer ? verdict(s, answer[2]) : s.position < 0 ? TEXT.choose : TEXT.ask;
    read.classList.toggle("attn-hint", !answer);
    next.setAttribute("aria-disabled", !following());
    again.setAttribute("aria-disabled", !s.guesses.length);
    if (asking.hidden && asking.contains(active)) next.focus({ preventScroll: true });
  }

  listen(words, "click", (event) => {
    const place = event.target.closest("[data-place]")?.dataset.place;
    if (place === undefined) return;
    at = Number(place);
    jump = true;
    put({ position: at === model.get("position") ? -1 : at });
  });
  listen(words, "keydown", (event) => {
    const all = hideable[model.get("sentence")];
    const ends = { Home: -all.length, End: all.length };
    const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, ...ends }[event.key];
    if (event.ctrlKey || event.altKey || event.metaKey || !by) return;
    const to = all[Math.max(0, Math.min(all.length - 1, all.indexOf(at) + by))];
    words.querySelector(`[data-place="${at}"]`).tabIndex = -1;
    words.querySelector(`[data-place="${to}"]`).tabIndex = 0;
    at = to;
    words.querySelector(`[data-place="${to}"]`).focus();
    event.preventDefault();
  });
  listen(options, "click", ({ target }) => target.dataset.word !== undefined && take(target.dataset.word));
  listen(typed, "keydown", (event) => event.stopPropagation()); // a notebook has keys of its own
  listen(root, "submit", (event) => {
    event.preventDefault();
    if (event.target === form && typed.value.trim()) take(typed.value.trim());
  });

  return { root, traits: TRAITS, update };
}

export default { render: mount(draw) };
