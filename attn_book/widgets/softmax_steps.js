// Online softmax on the reader's own numbers: what is said of them, how they are read and written, and the steps.

const TEXT = {
  title: say("Online softmax, step by step"),
  // What the reader sets.
  scores: say("scores x"), values: say("values v"), tile: say("tile size"), step: say("tiles read"),
  first: say("First"), back: say("Back"), next: say("Next tile"), last: say("Last"), moves: say("Steps"),
  position: (step, tiles) => say("{step} of {tiles}", { step, tiles }),
  wrong: (name, what) => say("{name}: {what}", { name, what }),
  kept: say("The last valid numbers are still shown."),
  none: say("expected at least one number."),
  unread: (text, k) => say("“{text}”, the {place} entry, is not a number.", { text, place: ordinal(k) }),
  beyond: (text, k) => say("{text}, the {place} entry, is not between −1000 and 1000.", { text, place: ordinal(k) }),
  many: (count) => say("{count} numbers; there is room for 24.", { count }),
  uneven: (count, scores) => say("{count} for {scores} scores; each score needs a value.", { count, scores }),
  group: (k) => say("tile {k}", { k }),
  score: "x", value: "v", height: "eˣ⁻ᵐ",
  unreadCell: (x, v) => say("score {x}, value {v}, not read yet", { x, v }),
  cell: (x, v, weight) => say("score {x}, value {v}, e^(x − m) = {weight}", { x, v, weight }),
  highest: "m", undefined: "–",
  now: say("read in this step"), old: say("read before"), coming: say("to come"),
  ghost: say("height before this step"),
  start: (size) => {
    const values = { next: TEXT.next, size };
    return say("No tile is read yet: there is no maximum, and both sums are 0. “{next}” reads the first {size}.", values);
  },
  begin: (m) => say("The first tile: its maximum is {m}, and there are no earlier sums to correct.", { m }),
  rises: (from, to, factor) => {
    const values = { from, to, factor };
    return say(
      "The maximum rises from {from} to {to}: both sums so far shrink by the factor c = {factor}, then the tile is added.",
      values,
    );
  },
  stays: (m) =>
    say("The maximum stays {m}: the sums so far need no correction (c = 1), and the tile is added.", { m }),
  done: say("All scores are read: o / ℓ is the output."),
  kinds: say("Running values before and after this step"),
  maximum: say("maximum"), factor: say("factor"), total: say("sum"), weighted: say("weighted sum"),
  output: say("output so far"),
  table: say("The steps"),
  columns: [say("step"), say("scores"), "m", "c", "ℓ", "o", "o / ℓ"],
  range: (first, end) => (first === end ? `${first}` : `${first}–${end}`),
  check: say("Check: softmax over all scores at once"),
  online: say("online, tile by tile"), whole: say("all scores at once"), difference: say("difference"),
  later: say("After the last tile, the output is compared with that of softmax over all scores at once."),
  naive: say("Without subtracting the maximum, in float32"),
  sums: (total, weighted, output) =>
    say("Σ eˣ = {total} and Σ eˣ·v = {weighted} give {output}.", { total, weighted, output }),
  works: say("This is right for these scores. Add 100 to every score: the softmax does not change, but this result does."),
  over: say(
    "For x above 88.7, eˣ is larger than the largest float32, 3.4 × 10³⁸. With the maximum subtracted, no power exceeds e⁰ = 1.",
  ),
  under: say("Here eˣ is too small for float32 and loses its digits. With the maximum subtracted, the largest power is e⁰ = 1."),
  shift: (by) => say("{by} to every score", { by }),
};

const MOST = 24;
const LIMIT = 1000;
const ROWS = ["scores", "values"];
const TRAITS = [...ROWS, "tile", "step"];

// English needs four forms up to the 24th.
function ordinal(k) {
  const last = k > 3 && k < 21 ? 0 : k % 10;
  if (last === 1) return say("{k}st", { k });
  if (last === 2) return say("{k}nd", { k });
  return last === 3 ? say("{k}rd", { k }) : say("{k}th", { k });
}

const plain = (value) => (Number.isFinite(value) ? minus(String(Number(value.toFixed(3)))) : "−∞");
const inner = (value, text = plain) => (value < 0 ? `(${text(value)})` : text(value));
const superscript = (text) => text.replace(/./g, (sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]);

// A number in some significant digits, or decimals below 1; a very large or small one with its power of ten.
function rounded(value, digits = 4) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  const size = Math.abs(value);
  if (size === 0 || (size >= 1e-3 && size < 1e6)) {
    if (size < 1) return size ? minus(value.toFixed(digits)) : "0";
    const text = value.toPrecision(digits);
    return minus(text.includes("e") ? value.toFixed(0) : text);
  }
  const [head, power] = value.toExponential(2).split("e");
  return `${minus(head)} × 10${superscript(power.replace("+", ""))}`;
}

// Numbers out of what was typed, or what is wrong with it.
function parse(text) {
  const entries = text.split(/[\s,;]+/).filter(Boolean);
  if (!entries.length) return { error: TEXT.none };
  if (entries.length > MOST) return { error: TEXT.many(entries.length) };
  const numbers = entries.map((entry) => Number(entry.replace("−", "-")));
  const unread = numbers.findIndex((number, k) => Number.isNaN(number) || /[xob]/i.test(entries[k]));
  if (unread >= 0) return { error: TEXT.unread(entries[unread], unread + 1) };
  const beyond = numbers.findIndex((number) => Math.abs(number) > LIMIT);
  if (beyond >= 0) return { error: TEXT.beyond(entries[beyond], beyond + 1) };
  return { numbers };
}

// What is kept before the first tile and after each.
function run({ scores, values, tile }) {
  const steps = [{ maximum: -Infinity, factor: NaN, total: 0, weighted: 0, output: NaN, end: 0 }];
  for (let first = 0; first < scores.length; first += tile) {
    const before = steps.at(-1);
    const [x, v] = [scores, values].map((row) => row.slice(first, first + tile));
    const maximum = Math.max(before.maximum, ...x);
    const factor = Math.exp(before.maximum - maximum);
    const weights = x.map((score) => Math.exp(score - maximum));
    const added = [sum(weights), sum(weights.map((weight, k) => weight * v[k]))];
    const total = before.total * factor + added[0];
    const weighted = before.weighted * factor + added[1];
    const end = first + x.length;
    steps.push({ maximum, factor, total, weighted, output: weighted / total, x, v, added, first, end });
  }
  return steps;
}

function softmax({ scores, values }) {
  const m = Math.max(...scores);
  const weights = scores.map((x) => Math.exp(x - m));
  return sum(weights.map((weight, k) => weight * values[k])) / sum(weights);
}

// Every number rounded to float32, and no maximum subtracted.
function naive({ scores, values }) {
  const round = Math.fround;
  const add = (total, number) => round(total + number);
  const powers = scores.map((x) => round(Math.exp(round(x))));
  const products = powers.map((power, k) => round(power * round(values[k])));
  const [total, weighted] = [powers, products].map((row) => row.reduce(add, 0));
  return { total, weighted, output: round(weighted / total) };
}

function settle(raw) {
  const tile = Math.max(1, Math.min(raw.tile, raw.scores.length));
  const tiles = Math.ceil(raw.scores.length / tile);
  return { ...raw, tile, tiles, step: Math.max(0, Math.min(raw.step, tiles)) };
}

