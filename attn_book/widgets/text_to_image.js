// A caption is typed, and the model paints it here: from noise, step by step, with a map for each word of the caption.

const TEXT = {
  title: say("A painter that runs in this page"),
  caption: say("Caption"), paint: say("Paint"), samples: say("or try"), suggestions: say("Words that begin like this"),
  unknown: (words, known) => {
    const values = { words: words.map((word) => say("“{word}”", { word })).join(", "), count: known.length };
    const told =
      words.length > 1
        ? say("{words} are not among the {count} words that this model knows.", values)
        : say("{words} is not among the {count} words that this model knows.", values);
    return inOne(told, say("It knows: {list}.", { list: known.join(", ") }));
  },
  long: (count) => say("A caption has at most {count} words.", { count }),
  noise: say("Noise, before the first step"),
  noisy: (step, steps) => say("After step {step} of {steps}", { step, steps }),
  predicted: say("The picture that the model predicts from it"),
  predictedBefore: (step) => say("What the model predicted in step {step}", { step }),
  step: say("step"), guidance: say("guidance"), seed: say("noise"), block: say("maps of"),
  each: say("all blocks"), one: (block) => say("block {block}", { block }),
  times: (factor) => `×${factor}`,
  keep: say("Keep the places: use the attention weights of the last picture"),
  words: say("The caption’s words: where each patch attends to them, and their weight"),
  word: (word, weight) => say("{word}, at most {weight}: lay its map over the picture", { word, weight }),
  factor: (word) => say("Weight of “{word}”", { word }),
  hint: say("Press a word to lay its map over the picture. The number is its greatest weight; × multiplies its weights."),
  laid: (word, weight) => say("Bright patches attend to “{word}”; the greatest weight is {weight}.", { word, weight }),
  done: (values) =>
    say("Painted “{caption}” in {steps} steps and {seconds} s, with noise {seed} and guidance {guidance}.", values),
  kept: (caption) => say("It kept the places of “{caption}” for its first {steps} steps.", { caption, steps: KEPT }),
  lost: (caption) => say("It could not keep the places of “{caption}”, which has another number of words.", { caption }),
};

// Captions to try are in the model's language, and stay in it. The second differs from the first in one word.
const SAMPLES = [
  "a red circle left of a blue square",
  "a green circle left of a blue square",
  "a pink star above an orange bar",
  "a yellow triangle below a purple cross",
  "a cyan ring",
];
// Steps of a painting, and those that use the weights of the last one if its places are kept; words of a caption. The
// first and the last as in text_to_image.py.
const [STEPS, KEPT, LONGEST] = [20, 12, 12];
const FACTORS = [0, 1, 2, 4];
const [VEIL, VEIL_SHARE] = [[16, 18, 26], 0.82]; // the colour over what does not attend to a word, and how much of it

function draw({ model, listen, signal }) {
  const engine = openPainter(model.get("exported"));
  const words = engine.words.slice(4).sort(); // the special tokens come first
  const ids = new Map(words.map((word) => [word, engine.words.indexOf(word)]));

  // What is on the page, from top to bottom.
  const output = (name) => make("output", { class: `attn-${name}`, "aria-live": "polite" });
  const button = (text, press, name = "") => {
    const box = make("button", { type: "button", class: `attn-button ${name}` }, text);
    listen(box, "click", press);
    return box;
  };
  // A slider says at once what it stands at, by `move`, and acts, by `set`, once it is let go.
  const slider = (name, attributes, move, set = () => {}) => {
    const input = make("input", { type: "range", name, ...attributes, "aria-label": TEXT[name] });
    const value = span("value");
    listen(input, "input", () => move(Number(input.value)));
    listen(input, "change", () => set());
    const follow = (at, text) => {
      [input.value, value.textContent] = [at, text];
      input.setAttribute("aria-valuetext", text);
    };
    return { box: make("label", { class: "attn-slider" }, make("span", {}, TEXT[name]), input, value), input, follow };
  };
  const canvas = () => make("canvas", { role: "img" });
  const view = (name) => {
    const [picture, told] = [canvas(), make("figcaption", {})];
    return { picture, told, box: make("figure", { class: `attn-${name}` }, picture, told) };
  };
  const field = makeField(words, listen, () => updateField(), () => send());
  const label = make("label", {}, span("name", TEXT.caption), field.box);
  const asked = part("asked", label, button(TEXT.paint, () => send(), "attn-main"));
  const wrong = output("unknown");
  const samples = part("samples", span("hint", TEXT.samples));
  const printed = make("p", { class: "attn-printed" });
  const [large, beside] = [view("large"), view("beside")];
  const step = slider("step", { min: 0, max: STEPS, step: 1 }, (k) => show(k));
  const strip = make("div", { class: "attn-words", role: "group", "aria-label": TEXT.words });
  const reading = output("read");
  const again = () => start(run.words);
  const guidance = slider("guidance", { min: 1, max: 6, step: 0.5 }, (to) => change({ guidance: to }), again);
  const seed = slider("seed", { min: 1, max: 40, step: 1 }, (to) => change({ seed: to }), again);
  const block = slider("block", { min: 0, max: engine.layers, step: 1 }, (to) => change({ block: to - 1 }));
  const keep = make("input", { type: "checkbox", name: "keep" });
  const keeping = make("label", { class: "attn-switch" }, keep, make("span", {}, TEXT.keep));
  const told = output("told");
  const root = card(
    "painter",
    TEXT.title,
    part("bar", span("title", TEXT.title)),
    asked, wrong, samples, printed,
    part("views", large.box, beside.box),
    step.box, told, strip, reading,
    part("settings", guidance.box, seed.box, block.box, keeping),
  );

  const settings = { guidance: 2, seed: 2, block: -1, chosen: -1 };
  let run = null; // what is painted: its words, factors, states, predictions and weights
  let last = null; // the last that was painted to the end
  let [at, given] = [0, ""]; // the step that shows, and the caption as it was given
  let ramp = null; // the colours, once the widget is on the page
  let isSeen = false;
  const still = matchMedia("(prefers-reduced-motion: reduce)");

  // A live region is read aloud whenever it is written to.
  const tell = (element, text) => element.textContent === text || (element.textContent = text);
  // As read_caption in text_to_image.py: what is not known as it stands is written small.
  const pieces = () => field.input.value.split(/\s+/u).filter(Boolean);
  const typed = () => pieces().map((word) => (ids.has(word) ? word : word.toLowerCase()));
  const strangers = () => [...new Set(typed())].filter((word) => !ids.has(word));
  const spoken = (list) => list.map(shown).join(" ");

  function updateField(isSent = false) {
    const alone = strangers().filter((word) => isSent || !field.isUnfinished(word));
    const isLong = typed().length > LONGEST;
    tell(wrong, alone.length ? TEXT.unknown(alone.map(shown), words.map(shown)) : isLong ? TEXT.long(LONGEST) : "");
    field.input.setAttribute("aria-invalid", alone.length > 0 || isLong);
  }

  // A painting of these words, which has not begun. The words of the same caption keep their factors.
  function begin(list) {
    const isSame = run?.words.join(" ") === list.join(" ");
    const factors = isSame ? run.factors : [1, ...list.map(() => 1)]; // <bos> comes first
    const from = keep.checked && last ? last : null;
    const source = from?.words.length === list.length ? from : null;
    const noise = noiseOf(settings.seed, engine.patches * engine.pixels);
    const steps = painting(engine, {
      ids: list.map((word) => ids.get(word)), noise, steps: STEPS, guidance: settings.guidance, factors: [...factors],
      kept: (k) => (k < KEPT ? source?.weights[k] : undefined),
    });
    const seen = { states: [noise], found: [], weights: [], seconds: 0 };
    run = { words: list, factors, used: [...factors], from, source, steps, ...seen };
    at = 0;
    if (!isSame) fill();
    tell(told, "");
  }

  // Goes on with the step, as far as its next pause, and says whether there was anything left.
  function advance() {
    const began = performance.now();
    const { value, done } = run.steps.next();
    run.seconds += (performance.now() - began) / 1000;
    if (value) {
      run.found.push(value.found);
      run.weights.push(value.weights);
      run.states.push(value.next);
    }
    return !done;
  }

  function finish() {
    last = run;
    show(STEPS);
    const { seed, guidance } = settings;
    const values = { caption: spoken(run.words), steps: STEPS, seconds: run.seconds.toFixed(1), seed, guidance };
    const parts = [TEXT.done(values)];
    if (run.source) parts.push(TEXT.kept(spoken(run.source.words)));
    else if (run.from) parts.push(TEXT.lost(spoken(run.from.words)));
    tell(told, inOne(...parts));
  }

  // Paints these words, and shows each step unless it is to be quiet. The browser may do something else at each pause;
  // another painting ends this one.
  async function start(list, isQuiet = false) {
    begin(list);
    update();
    const own = run;
    for (;;) {
      await new Promise((go) => setTimeout(go));
      if (own !== run || signal.aborted) return;
      const known = own.found.length;
      if (!advance()) return finish();
      if (own.found.length > known && !isQuiet) show(own.found.length);
    }
  }

  // Takes what is typed as the caption.
  function send() {
    if (!typed().length || typed().length > LONGEST || strangers().length) return updateField(true);
    given = field.input.value;
    updateField();
    start(typed(), still.matches);
    model.set("caption", given);
    model.save_changes();
  }

  function show(k) {
    at = Math.min(k, run.states.length - 1);
    update();
  }
  function change(changes) {
    Object.assign(settings, changes);
    update();
  }

  function followCaption() {
    if (model.get("caption") === given) return;
    given = field.input.value = model.get("caption");
    updateField();
    if (isSeen) start(typed());
    else begin(typed());
  }

  // For each word of the caption its map, to press, and what its weights are multiplied by.
  function fill() {
    settings.chosen = -1;
    strip.replaceChildren(
      ...run.words.map((word, k) => {
        const press = make("button", { type: "button", class: "attn-look", "data-place": k, "aria-pressed": false });
        press.append(span("token", shown(word)), make("canvas", { "aria-hidden": true }), span("value"));
        listen(press, "click", () => change({ chosen: settings.chosen === k ? -1 : k }));
        const select = make("select", { name: "factor", "aria-label": TEXT.factor(shown(word)) });
        select.append(...FACTORS.map((factor) => make("option", { value: factor }, TEXT.times(factor))));
        select.value = run.factors[k + 1];
        listen(select, "change", () => {
          run.factors[k + 1] = Number(select.value);
          again();
        });
        return part("word", press, select);
      }),
    );
    printed.textContent = spoken(run.words);
  }

  // The pixels of patches, from −1 to 1, each darker the less weight its patch gives the chosen word.
  function paintPicture(target, patches, map) {
    const [size, across] = [engine.patch, Math.sqrt(engine.patches)];
    const side = size * across;
    const [image, top] = [new ImageData(side, side), map && (Math.max(...map) || 1)];
    for (let y = 0; y < side; y++) {
      for (let x = 0; x < side; x++) {
        const patch = Math.floor(y / size) * across + Math.floor(x / size);
        const veil = map ? VEIL_SHARE * (1 - map[patch] / top) : 0;
        for (let c = 0; c < 3; c++) {
          const place = patch * engine.pixels + (c * size + (y % size)) * size + (x % size);
          const value = 127.5 * (1 + within(patches[place], -1, 1));
          image.data[4 * (y * side + x) + c] = value * (1 - veil) + VEIL[c] * veil;
        }
        image.data[4 * (y * side + x) + 3] = 255;
      }
    }
    [target.width, target.height] = [side, side];
    target.getContext("2d").putImageData(image, 0, 0);
  }

  // A pixel for each patch, from no weight to the greatest of this map.
  function paintMap(target, map) {
    const [side, top] = [Math.sqrt(map.length), Math.max(...map) || 1];
    const image = new ImageData(side, side);
    map.forEach((weight, k) => image.data.set(ramp[Math.round((255 * weight) / top)], 4 * k));
    [target.width, target.height] = [side, side];
    target.getContext("2d").putImageData(image, 0, 0);
  }

  function update() {
    if (!ramp) return; // it is not on the page yet
    step.follow(at, `${at}`);
    guidance.follow(settings.guidance, `${settings.guidance}`);
    seed.follow(settings.seed, `${settings.seed}`);
    block.follow(settings.block + 1, settings.block < 0 ? TEXT.each : TEXT.one(settings.block + 1));
    large.told.textContent = at ? TEXT.noisy(at, STEPS) : TEXT.noise;
    beside.told.textContent = at && at === run.found.length ? TEXT.predictedBefore(at) : TEXT.predicted;
    for (const { picture, told } of [large, beside]) picture.setAttribute("aria-label", told.textContent);
    const { chosen } = settings;
    [...strip.children].forEach((word, k) => word.firstChild.setAttribute("aria-pressed", k === chosen));
    if (!run.found.length) {
      paintPicture(large.picture, run.states[0]);
      beside.picture.width = large.picture.width; // empties it
      return;
    }
    const looked = Math.min(at, run.found.length - 1); // after the last step, what was seen in it
    const maps = mapsOf(engine, run.weights[looked], run.used, settings.block).slice(1);
    const tops = maps.map((map) => hundredths(Math.max(...map)));
    paintPicture(large.picture, run.states[at], maps[chosen]);
    paintPicture(beside.picture, run.found[looked], maps[chosen]);
    [...strip.children].forEach(({ firstChild: press }, k) => {
      const [, small, value] = press.children;
      paintMap(small, maps[k]);
      value.textContent = tops[k];
      press.setAttribute("aria-label", TEXT.word(shown(run.words[k]), tops[k]));
    });
    reading.classList.toggle("attn-hint", chosen < 0);
    reading.textContent = chosen < 0 ? TEXT.hint : TEXT.laid(shown(run.words[chosen]), tops[chosen]);
  }

  // When it is first seen, it paints, so that a reader meets a picture and not noise.
  const seen = new IntersectionObserver(
    ([{ isIntersecting }]) => {
      if (!isIntersecting) return;
      seen.disconnect();
      isSeen = true;
      if (run.states.length === 1) start(run.words, still.matches);
    },
    { threshold: 0.3 },
  );
  signal.addEventListener("abort", () => seen.disconnect());

  function layout() {
    ramp = rampOf(root);
    followCaption(); // it may have changed before the widget came onto the page
    // Paper shows a picture, and cannot wait for one that is painted step by step.
    if (isPrinted() && run.states.length <= STEPS) {
      begin(run.words);
      while (advance());
      finish();
    }
    update();
    if (!isSeen) seen.observe(root);
  }

  for (const text of new Set([model.get("caption"), ...SAMPLES])) {
    if (!text.split(/\s+/u).every((word) => ids.has(word))) continue;
    const sample = () => {
      field.input.value = text;
      send();
    };
    samples.append(button(text, sample));
  }
  return { root, traits: ["caption"], update: followCaption, layout };
}

export default { render: mount(draw) };
