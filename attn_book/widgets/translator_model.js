// A trained translator, run in the page: both models of the book, on the weights that exported.py wrote, and the
// searches for a sentence. Nothing here knows of the page. Vectors are Float32Arrays; sums are taken in float64.

const NORM_EPSILON = 1e-5; // what PyTorch's layer norm adds to the variance
const SHOWN = 5; // so many of the most probable words are kept for each step

// An exported translator, ready to run. Ids are places in `source.words` and `target.words`.
function openTranslator(exported) {
  const open = new Map([["bahdanau", openBahdanau], ["transformer", openTransformer]]).get(exported.kind);
  expect("kind", open, "bahdanau or transformer", exported.kind);
  const arrays = new Map(Object.entries(exported.weights).map(([name, stored]) => [name, unpack(stored)]));
  const [source, target] = [exported.source, exported.target].map(openVocabulary);
  const { pad, bos, eos, unk } = target;
  const inner = open(exported, arrays);

  // Reads the source, to which <eos> is added. What comes back serves any number of sentences.
  function encode(ids) {
    expect("ids", ids.length > 0, "at least one word", "none");
    ids.forEach((id) => expectId("ids", id, source.words));
    return inner.encode([...ids, source.eos]);
  }
  // The state before the first word. `off` holds the places in `heads` of those that are switched off: they go on
  // looking, so that their weights can be drawn, but pass on nothing.
  function start(memory, off = new Set()) {
    return { ...inner.start(memory), memory, off };
  }
  // Reads one word, <bos> first, and says what may follow. The state that it is given stays as it is.
  function step(state, id) {
    expectId("id", id, target.words);
    const { logits, weights, ...changed } = inner.step(state, id);
    return { state: { ...state, ...changed }, logits, weights };
  }
  return { kind: exported.kind, source, target, heads: inner.heads, pad, bos, eos, unk, encode, start, step };
}

function openVocabulary(words) {
  const ids = new Map(words.map((word, id) => [word, id]));
  const [pad, bos, eos, unk] = ["<pad>", "<bos>", "<eos>", "<unk>"].map((word) => ids.get(word));
  return { words, ids, pad, bos, eos, unk };
}

function expect(name, fits, expected, got) {
  if (!fits) throw new Error(`${name}: expected ${expected}, got ${got}`);
}

function expectId(name, id, words) {
  const fits = Number.isInteger(id) && id >= 0 && id < words.length;
  expect(name, fits, `whole numbers from 0 to ${words.length - 1}`, id);
}

function expectSize(name, size) {
  expect(name, Number.isInteger(size) && size >= 1, "a whole number of at least 1", size);
}

// ---- Weights. A vector is stored as it is, a matrix as whole numbers from −127 to 127 and a scale for each row. ----

function unpack({ values, codes, scales }) {
  if (values !== undefined) return new Float32Array(bytesOf(values).buffer);
  return { codes: new Int8Array(bytesOf(codes).buffer), scales: new Float32Array(bytesOf(scales).buffer) };
}

const columnsOf = ({ codes, scales }) => codes.length / scales.length;

// One row of a matrix, such as a word's embedding.
function rowOf(matrix, row) {
  const size = columnsOf(matrix);
  return Float32Array.from(matrix.codes.subarray(row * size, (row + 1) * size), (code) => code * matrix.scales[row]);
}

// A linear layer of the model, by its name: a matrix times a vector, plus a bias where there is one.
function linear(arrays, name, end = "") {
  const [{ codes, scales }, bias] = [arrays.get(`${name}weight${end}`), arrays.get(`${name}bias${end}`)];
  return (x) => {
    const out = new Float32Array(scales.length);
    for (let row = 0, at = 0; row < out.length; row++) {
      let sum = 0;
      for (let k = 0; k < x.length; k++) sum += codes[at++] * x[k];
      out[row] = sum * scales[row] + (bias ? bias[row] : 0); // the scale comes last, once for a row
    }
    return out;
  };
}

// ---- What both models compute with ----

function dot(x, y, from, end) {
  let sum = 0;
  for (let k = from; k < end; k++) sum += x[k] * y[k];
  return sum;
}

const add = (x, y) => x.map((value, k) => value + y[k]);
const sigmoid = (x) => 1 / (1 + Math.exp(-x));

function concat(...vectors) {
  const out = new Float32Array(sum(vectors.map((x) => x.length)));
  let at = 0;
  for (const x of vectors) {
    out.set(x, at);
    at += x.length;
  }
  return out;
}

function logSoftmax(x) {
  let [top, sum] = [-Infinity, 0];
  for (let k = 0; k < x.length; k++) top = Math.max(top, x[k]);
  for (let k = 0; k < x.length; k++) sum += Math.exp(x[k] - top);
  const rest = top + Math.log(sum);
  return x.map((value) => value - rest);
}

const softmax = (x) => logSoftmax(x).map(Math.exp);

// The mean of the values, by weight, in the entries from `from` to `end`; the other entries of `out` stay.
function putMean(out, weights, values, from, end) {
  for (let k = from; k < end; k++) {
    let sum = 0;
    for (let s = 0; s < values.length; s++) sum += weights[s] * values[s][k];
    out[k] = sum;
  }
}

// ---- Bahdanau's model: a GRU reads both ways, and another asks, before each word, what it has read. ----

// A step of PyTorch's GRU, whose reset gate acts after the product.
function gru(arrays, name, end = "") {
  const [input, hidden] = ["ih", "hh"].map((side) => linear(arrays, name, `_${side}${end}`));
  return (x, last) => {
    const [a, b, size] = [input(x), hidden(last), last.length];
    return last.map((old, k) => {
      const reset = sigmoid(a[k] + b[k]);
      const update = sigmoid(a[size + k] + b[size + k]);
      const fresh = Math.tanh(a[2 * size + k] + reset * b[2 * size + k]);
      return fresh + update * (old - fresh);
    });
  };
}

function openBahdanau(_, arrays) {
  const [forwards, backwards] = ["_l0", "_l0_reverse"].map((end) => gru(arrays, "encoder.rnn.", end));
  const cell = gru(arrays, "decoder.cells.0.");
  const parts = ["first", "score.query", "score.key", "score.energy", "output.hidden", "output.logits"];
  const [first, query, key, energy, known, logits] = parts.map((part) => linear(arrays, `decoder.${part}.`));
  const [sourceWords, targetWords] = ["encoder", "decoder"].map((side) => arrays.get(`${side}.embedding.weight`));
  const zeros = new Float32Array(arrays.get("encoder.rnn.bias_hh_l0").length / 3); // three gates

  // The states after each word, in reading order.
  function read(cell, words) {
    let state = zeros;
    return words.map((word) => (state = cell(word, state)));
  }
  function encode(ids) {
    const words = ids.map((id) => rowOf(sourceWords, id));
    const left = read(forwards, words);
    const right = read(backwards, [...words].reverse()).reverse();
    const states = left.map((state, k) => concat(state, right[k]));
    return { states, keys: states.map(key), final: concat(left.at(-1), right[0]) };
  }
  function step({ hidden: last, memory }, id) {
    const asked = query(last);
    const weights = softmax(Float32Array.from(memory.keys, (each) => energy(add(asked, each).map(Math.tanh))[0]));
    const context = new Float32Array(memory.final.length);
    putMean(context, weights, memory.states, 0, context.length);
    const word = rowOf(targetWords, id);
    const hidden = cell(concat(word, context), last);
    const pairs = known(concat(hidden, context, word));
    const greater = pairs.subarray(pairs.length / 2).map((_, k) => Math.max(pairs[2 * k], pairs[2 * k + 1]));
    return { hidden, logits: logits(greater), weights: [weights] };
  }
  return { heads: [], encode, start: ({ final }) => ({ hidden: first(final).map(Math.tanh) }), step };
}

// ---- The Transformer ----

function layerNorm(arrays, name) {
  const [gain, bias] = [arrays.get(`${name}weight`), arrays.get(`${name}bias`)];
  return (x) => {
    const mean = sum(x) / x.length;
    const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
    const spread = Math.sqrt(variance + NORM_EPSILON);
    return x.map((value, k) => ((value - mean) / spread) * gain[k] + bias[k]);
  };
}

// A word as a vector: its embedding times √C, plus its position, which is learned or made of sines and cosines.
function wordAt(matrix, learned, base) {
  const size = columnsOf(matrix);
  const wave = (place, k) => Math[k % 2 ? "cos" : "sin"](place / base ** ((k - (k % 2)) / size));
  return (id, place) => {
    const room = learned ? learned.scales.length : Infinity;
    expect("length", place < room, `at most ${room} positions, as the model has learned`, place + 1);
    const position = learned && rowOf(learned, place);
    return rowOf(matrix, id).map((value, k) => value * Math.sqrt(size) + (position?.[k] ?? wave(place, k)));
  };
}

// Each head reads its own part of the vectors; one that is switched off finds zeros.
function attend(query, { keys, values }, count, isOff = () => false) {
  const [mixed, size] = [new Float32Array(query.length), query.length / count];
  const weights = Array.from({ length: count }, (_, head) => {
    const [from, end] = [head * size, (head + 1) * size];
    const row = softmax(Float32Array.from(keys, (key) => dot(query, key, from, end) / Math.sqrt(size)));
    if (!isOff(head)) putMean(mixed, row, values, from, end);
    return row;
  });
  return { mixed, weights };
}

function openTransformer({ layers: depth, heads: count, norm_first: normFirst, base }, arrays) {
  const norm = (name) => layerNorm(arrays, `${name}norm.`);
  const endNorm = (stack) => (normFirst ? norm(stack) : (x) => x);
  // Add & norm around a sublayer: what goes into it, and what leaves with its findings.
  function addNorm(name) {
    const normed = norm(name);
    return normFirst ? { enter: normed, leave: add } : { enter: (x) => x, leave: (x, change) => normed(add(x, change)) };
  }
  const projections = (name) =>
    Object.fromEntries(["query", "key", "value", "out"].map((part) => [part, linear(arrays, `${name}${part}.`)]));
  function feedForward(name) {
    const [hidden, out] = ["hidden", "out"].map((part) => linear(arrays, `${name}feed_forward.${part}.`));
    const { enter, leave } = addNorm(`${name}add_feed_forward.`);
    return (x) => leave(x, out(hidden(enter(x)).map((value) => Math.max(value, 0))));
  }
  const layers = (stack, open) => Array.from({ length: depth }, (_, k) => open(`${stack}.layers.${k}.`));
  const words = (side, matrix) => wordAt(matrix, arrays.get(`${side}_embedding.positions.weight`), base);

  const own = (name) => ({ ...projections(`${name}attention.`), ...addNorm(`${name}add_attention.`) });
  const cross = (name) => ({ ...projections(`${name}cross_attention.`), ...addNorm(`${name}add_cross.`) });
  const encoder = layers("encoder", (name) => ({ own: own(name), forward: feedForward(name) }));
  const decoder = layers("decoder", (name) => ({ own: own(name), cross: cross(name), forward: feedForward(name) }));
  const [endEncoder, endDecoder] = [endNorm("encoder."), endNorm("decoder.")];
  const tokens = (side) => arrays.get(`${side}_embedding.tokens.weight`);
  const targetWord = words("target", tokens("target"));
  const sourceWord = words("source", tokens("source") ?? tokens("target")); // what both share is stored once
  const logits = linear(arrays, "target_embedding.tokens.");

  // Each decoder layer's keys and values of what the encoder makes of the source.
  function encode(ids) {
    let xs = ids.map(sourceWord);
    for (const { own, forward } of encoder) {
      const inputs = xs.map(own.enter);
      const read = { keys: inputs.map(own.key), values: inputs.map(own.value) };
      const changes = inputs.map((input) => own.out(attend(own.query(input), read, count).mixed));
      xs = xs.map((x, k) => forward(own.leave(x, changes[k])));
    }
    xs = xs.map(endEncoder);
    return decoder.map(({ cross }) => ({ keys: xs.map(cross.key), values: xs.map(cross.value) }));
  }
  const start = () => ({ caches: decoder.map(() => ({ keys: [], values: [] })) });

  function step({ caches: before, memory, off }, id) {
    let x = targetWord(id, before[0].keys.length);
    const [caches, weights] = [[], []];
    decoder.forEach(({ own, cross, forward }, k) => {
      const input = own.enter(x);
      const cache = { keys: [...before[k].keys, own.key(input)], values: [...before[k].values, own.value(input)] };
      x = own.leave(x, own.out(attend(own.query(input), cache, count).mixed));
      const looked = attend(cross.query(cross.enter(x)), memory[k], count, (head) => off.has(k * count + head));
      x = forward(cross.leave(x, cross.out(looked.mixed)));
      caches.push(cache);
      weights.push(...looked.weights);
    });
    return { caches, logits: logits(endDecoder(x)), weights };
  }
  const named = (k) => {
    return say("layer {layer} head {head}", { layer: Math.floor(k / count), head: k % count });
  };
  const heads = Array.from({ length: depth * count }, (_, k) => named(k));
  return { heads, encode, start, step };
}

// ---- Searches. A path is a beginning of a sentence; it knows the path that it went on from. ----

// The places of the greatest entries, the greatest first.
function largest(x, count) {
  const places = [];
  x.forEach((value, place) => {
    if (places.length === count && !(value > x[places[count - 1]])) return;
    const before = places.findIndex((other) => value > x[other]);
    places.splice(before < 0 ? places.length : before, 0, place);
    places.length = Math.min(places.length, count);
  });
  return places;
}

const begin = (model, memory, off) => ({ id: model.bos, state: model.start(memory, off), score: 0, length: 0 });

// What may follow a path: the state after it, how probable each word is, and where the model looked.
function look(model, path) {
  const { state, logits, weights } = model.step(path.state, path.id);
  const logProbs = logSoftmax(logits);
  const probabilities = logProbs.map(Math.exp);
  const candidates = largest(probabilities, SHOWN).map((id) => ({ id, p: probabilities[id] }));
  return { state, logProbs, probabilities, weights, candidates };
}

// The path with one word more.
function extend(model, path, seen, id) {
  expectId("id", id, model.target.words);
  const [logProb, { state, weights, candidates }] = [seen.logProbs[id], seen];
  const score = path.score + logProb;
  return { before: path, id, state, weights, candidates, logProb, score, length: path.length + 1 };
}

// A path's words without <eos>, and what was seen at each step, that of <eos> included.
function sentence(model, path) {
  const steps = [];
  for (let each = path; each.before; each = each.before) steps.unshift(each);
  const [tokens, logProbs, weights, candidates] = ["id", "logProb", "weights", "candidates"].map((name) =>
    steps.map((each) => each[name]),
  );
  const finished = tokens.at(-1) === model.eos;
  return { tokens: finished ? tokens.slice(0, -1) : tokens, logProbs, weights, candidates, finished };
}

// One word after the other: those that are forced, then what `pick` takes, given the probabilities and the step.
function greedy(model, memory, { off, forced = [], maxLength = 100, pick = (p) => largest(p, 1)[0] } = {}) {
  expectSize("maxLength", maxLength);
  let path = begin(model, memory, off);
  do {
    const seen = look(model, path);
    path = extend(model, path, seen, forced[path.length] ?? pick(seen.probabilities, path.length));
  } while (path.id !== model.eos && path.length < maxLength);
  return sentence(model, path);
}

// The sentences that end among the likeliest `beamSize` beginnings, the best first: by log-probability divided by
// length (<eos> counted) to the power of `lengthPenalty`. The search ends where no beginning can overtake the best.
function beamSearch(model, memory, options = {}) {
  const { off, forced = [], maxLength = 100, beamSize = 4, lengthPenalty = 1 } = options;
  expectSize("maxLength", maxLength);
  expectSize("beamSize", beamSize);
  expect("lengthPenalty", lengthPenalty >= 0 && lengthPenalty < Infinity, "a number of at least 0", lengthPenalty);
  const worth = ({ score, length }) => score / length ** lengthPenalty;
  const isEnded = ({ id }) => id === model.eos;
  let beams = [begin(model, memory, off)];
  let ended = [];
  for (let length = 0; length < maxLength && beams.length; length++) {
    // <eos> may follow each beam once, so twice as many candidates always leave `beamSize` that go on.
    const next = beams.flatMap((path) => {
      const seen = look(model, path);
      const ids = length < forced.length ? [forced[length]] : largest(seen.logProbs, 2 * beamSize);
      return ids.map((id) => extend(model, path, seen, id));
    });
    next.sort((a, b) => b.score - a.score);
    ended = [...ended, ...next.slice(0, beamSize).filter(isEnded)].sort((a, b) => worth(b) - worth(a));
    beams = next.slice(0, 2 * beamSize).filter((path) => !isEnded(path)).slice(0, beamSize);
    // Scores only fall: divided by the greatest length, one is the most that its path can still reach.
    if (ended.length && beams.length && worth(ended[0]) >= worth({ score: beams[0].score, length: maxLength })) break;
  }
  return (ended.length ? ended : beams).slice(0, beamSize).map((path) => sentence(model, path));
}
