// A trained painter, run in the page on the weights that exported.py wrote. Nothing here knows of the page.

const FREQUENCIES = 32; // the time is given to the model as so many sines and as many cosines
const STARTS = 1; // the id of <bos>, which stands before every caption and alone is the empty one

function expectThat(name, fits, expected, got) {
  if (!fits) throw new Error(`${name}: expected ${expected}, got ${got}`);
}

// An exported painter, ready to run. Ids are places in `words`.
function openPainter({ patch, heads, layers, dim, words, weights }) {
  const arrays = new Map(Object.entries(weights).map(([name, stored]) => [name, numbersOf(stored)]));
  const [pixels, patches] = [3 * patch ** 2, arrays.get("positions").length / dim];
  const dense = (name) => denseLayer(arrays.get(`${name}.weight`), arrays.get(`${name}.bias`));
  const norm = (name) => (x) => normalise(x, dim, arrays.get(`${name}.weight`), arrays.get(`${name}.bias`));
  const projections = (name) => {
    const [query, key, value, out] = ["query", "key", "value", "out"].map((part) => dense(`${name}.${part}`));
    const read = (x) => ({ keys: key(x), values: value.flipped(x) });
    return { query, read, out };
  };
  const feedForward = (name) => {
    const [hidden, out] = ["hidden", "out"].map((part) => dense(`${name}.feed_forward.${part}`));
    return (x) => out(hidden(x).map((value) => Math.max(value, 0)));
  };
  const layer = "caption.stack.layers.0";
  const captioned = { ...projections(`${layer}.attention`), forward: feedForward(layer), end: norm("caption.stack.norm") };
  const [before, between] = ["attention", "feed_forward"].map((part) => norm(`${layer}.add_${part}.norm`));
  const blocks = Array.from({ length: layers }, (_, k) => ({
    own: projections(`blocks.${k}.attention`),
    cross: projections(`blocks.${k}.cross_attention`),
    forward: feedForward(`blocks.${k}`),
    time: arrays.get(`blocks.${k}.time`),
  }));
  const [inward, outward, end] = [dense("inward"), dense("outward"), norm("norm")];
  const [early, late, modulation] = ["time.0", "time.2", "modulation"].map(dense);

  // What every block reads of a caption, given as ids: its keys and values, which serve all steps.
  function read(ids) {
    for (const id of ids) {
      const fits = Number.isInteger(id) && id >= 0 && id < words.length;
      expectThat("ids", fits, `whole numbers from 0 to ${words.length - 1}`, id);
    }
    const tokens = [STARTS, ...ids];
    const embedded = arrays.get("caption.embedding.tokens.weight");
    let x = new Float32Array(tokens.length * dim);
    tokens.forEach((id, place) => {
      for (let k = 0; k < dim; k++) {
        const angle = place / 10_000 ** ((k - (k % 2)) / dim);
        x[place * dim + k] = embedded[id * dim + k] * Math.sqrt(dim) + (k % 2 ? Math.cos(angle) : Math.sin(angle));
      }
    });
    const input = before(x);
    x = plus(x, captioned.out(attention(captioned.query(input), captioned.read(input), dim, heads).mixed));
    x = captioned.end(plus(x, captioned.forward(between(x))));
    return { tokens: tokens.length, blocks: blocks.map(({ cross }) => cross.read(x)) };
  }

  // For each block, what the time scales and shifts its vectors by.
  function momentOf(time) {
    expectThat("time", time >= 0 && time <= 1, "a number from 0 to 1", time);
    const angles = Array.from({ length: FREQUENCIES }, (_, k) => 100 * time * Math.exp((-Math.log(1000) * k) / FREQUENCIES));
    const waves = Float32Array.from([...angles.map(Math.sin), ...angles.map(Math.cos)]);
    const shared = modulation(late(early(waves).map(silu)).map(silu));
    return blocks.map((block) => {
      const changes = plus(shared, block.time);
      const [scale, shift, gate, scale2, shift2, gate2] = [0, 1, 2, 3, 4, 5].map((k) =>
        changes.subarray(k * dim, (k + 1) * dim),
      );
      const scales = [scale, scale2].map((part) => part.map((value) => 1 + value));
      return { scales, shifts: [shift, shift2], gates: [gate, gate2] };
    });
  }

  // The clean patches as far as the model can tell from noisy ones, and where each patch looked in the caption: for each
  // block, head and patch a row of weights, one for each token. `factors`, one for each token, multiply a token's weight
  // beside the others; the weights that are returned are those before that. `kept` are such weights to be used instead.
  // It pauses after each block, so that a page can do something else before the next.
  function* predict(noisy, moment, memory, { factors, kept } = {}) {
    expectThat("noisy", noisy.length === patches * pixels, `${patches * pixels} numbers`, noisy.length);
    const size = heads * patches * memory.tokens;
    if (factors) expectThat("factors", factors.length === memory.tokens, `${memory.tokens} numbers`, factors.length);
    if (kept) expectThat("kept", kept.length === layers * size, `${layers * size} weights`, kept.length);
    const seen = new Float32Array(layers * size);
    let x = plus(inward(noisy), arrays.get("positions"));
    for (const [k, { own, cross, forward }] of blocks.entries()) {
      const { scales, shifts, gates } = moment[k];
      const input = normalise(x, dim, scales[0], shifts[0]);
      x = plus(x, own.out(attention(own.query(input), own.read(input), dim, heads).mixed), gates[0]);
      const given = kept?.subarray(k * size, (k + 1) * size);
      const looked = attention(cross.query(normalise(x, dim)), memory.blocks[k], dim, heads, { factors, given });
      seen.set(looked.weights, k * size);
      x = plus(x, cross.out(looked.mixed));
      x = plus(x, forward(normalise(x, dim, scales[1], shifts[1])), gates[1]);
      yield;
    }
    return { found: outward(end(x)), weights: seen };
  }
  return { words, patch, patches, pixels, heads, layers, read, momentOf, predict };
}

// The steps from noise to a picture, one at a time: the noisy patches, the guided prediction, the weights of the words,
// and the patches after the step. Between them stand the pauses of `predict`, which yield nothing. `kept(step)` may give
// weights of an earlier painting to use in a step.
function* painting(model, { ids, noise, steps = 20, guidance = 2, factors, kept = () => undefined }) {
  expectThat("steps", Number.isInteger(steps) && steps >= 1, "a whole number of at least 1", steps);
  expectThat("guidance", guidance >= 0, "a number of at least 0", guidance);
  const [caption, nothing] = [model.read(ids), model.read([])];
  let noisy = noise;
  for (let step = 0; step < steps; step++) {
    const moment = model.momentOf(step / steps);
    const { found: wanted, weights } = yield* model.predict(noisy, moment, caption, { factors, kept: kept(step) });
    const { found: plain } = yield* model.predict(noisy, moment, nothing);
    const found = plain.map((value, k) => value + guidance * (wanted[k] - value));
    const next = noisy.map((value, k) => value + (found[k] - value) / (steps - step));
    yield { noisy, found, weights, next };
    noisy = next;
  }
}

// Of each token the mean weight that each patch gives it, in one block or, as −1, in all of them.
function mapsOf({ heads, layers, patches }, weights, factors, block = -1) {
  const tokens = factors.length;
  const maps = factors.map(() => new Float32Array(patches));
  const [from, count] = block < 0 ? [0, heads * layers] : [block * heads, heads];
  const row = new Float32Array(tokens);
  for (let head = from; head < from + count; head++) {
    for (let p = 0; p < patches; p++) {
      row.set(weights.subarray((head * patches + p) * tokens, (head * patches + p + 1) * tokens));
      weigh(row, factors);
      for (let t = 0; t < tokens; t++) maps[t][p] += row[t] / count;
    }
  }
  return maps;
}

// Normal noise that a seed alone decides: uniform numbers of the generator mulberry32, whose state is a whole number of
// 32 bits and begins at the seed, two at a time by the formula of Box and Muller.
function noiseOf(seed, count) {
  let state = seed | 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), 1 | state);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  return Float32Array.from({ length: count }, normal);
}

