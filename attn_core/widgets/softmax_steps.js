// Online softmax on the reader's own numbers: what is said of them, how they are read and written, and the steps.

const TEXT = {
  title: "Online softmax, step by step",
  scores: "scores x", values: "values v", tile: "tile size", step: "step", // what the reader sets
  first: "First", back: "Back", next: "Next tile", last: "Last", moves: "Steps",
  position: (step, tiles) => `${step} of ${tiles}`,
  wrong: (name, what) => `${name}: ${what}`,
  kept: " Shown are the last numbers that fit.",
  none: "expected a number at least.",
  unread: (text, k) => `“${text}”, the ${ordinal(k)} entry, is not a number.`,
  beyond: (text, k) => `${text}, the ${ordinal(k)} entry, is not between −1000 and 1000.`,
  many: (count) => `${count} numbers; there is room for 24.`,
  uneven: (count, scores) => `${count} for ${scores} scores; each score needs a value.`,
  cells: "The scores, tile by tile",
  group: (k) => `tile ${k}`,
  score: "x", value: "v", height: "eˣ⁻ᵐ",
  cell: (x, v, weight) => `score ${x}, value ${v}${weight === null ? ", not read yet" : `, e^(x − m) = ${weight}`}`,
  highest: "m", undefined: "–",
  now: "read in this step", old: "read before", coming: "to come", ghost: "height before this step",
  start: (size) => `Nothing is read yet: no maximum, and both sums are 0. “${TEXT.next}” reads the first ${size}.`,
  begin: (m) => `The first tile: its maximum is ${m}, and there is nothing yet to correct.`,
  rises: (from, to, factor) =>
    `The maximum rises from ${from} to ${to}: both sums so far shrink by the factor c = ${factor}, then the tile is added.`,
  stays: (m) => `The maximum stays ${m}: the sums so far need no correction (c = 1), and the tile is added.`,
  done: " All scores are read: o / ℓ is the output.",
  kinds: "What is kept, before and after this step",
  maximum: "maximum", factor: "factor", total: "sum", weighted: "weighted sum", output: "output so far",
  table: "The steps so far",
  columns: ["step", "scores", "m", "c", "ℓ", "o", "o / ℓ"],
  range: (first, end) => (first === end ? `${first}` : `${first}–${end}`),
  check: "Check: softmax in one go",
  online: "online, tile by tile", whole: "all scores at once", difference: "difference",
  later: "After the last tile, the output is compared with that of softmax over all scores at once.",
  naive: "Without the maximum, in float32",
  sums: (total, weighted, output) => `Σ eˣ = ${total} and Σ eˣ·v = ${weighted} give ${output}. `,
  works: "For these scores that is right. Add 100 to each: softmax stays the same, and this does not.",
  over: "eˣ is beyond the greatest float32, 3.4 × 10³⁸, for x above 88.7; less the maximum, no power exceeds e⁰ = 1.",
  under: "eˣ is too small for float32 here and is rounded off; less the maximum, the greatest power is e⁰ = 1.",
  shift: (by) => `${by} to every score`,
};

const MOST = 24;
const LIMIT = 1000;
const ROWS = ["scores", "values"];
const TRAITS = [...ROWS, "tile", "step"];

const ordinal = (k) => `${k}${k > 3 && k < 21 ? "th" : (["th", "st", "nd", "rd"][k % 10] ?? "th")}`;
const minus = (text) => (Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−"));
const plain = (value) => (Number.isFinite(value) ? minus(String(Number(value.toFixed(3)))) : "−∞");
const inner = (value, text = plain) => (value < 0 ? `(${text(value)})` : text(value));
const superscript = (text) => text.replace(/./g, (sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]);

// A number in some significant digits, or decimals below 1; a very large or small one with its power of ten.
function shown(value, digits = 4) {
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

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

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

