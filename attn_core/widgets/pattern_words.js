// What attention patterns say for themselves: names, rows in sentences, counts and sizes.

const grouped = (value) => value.toLocaleString("en-US");

const TEXT = {
  title: "Which pairs are looked at",
  patterns: "Pattern",
  full: "Full attention", window: "Sliding window", global: "Window + global tokens", hash: "Hashed buckets",
  slots: "Learned slots",
  under: { full: "all pairs", window: "the nearest", global: "Longformer", hash: "Reformer", slots: "Linformer" },
  n: "length n", near: "tokens on each side", dilation: "dilation", global_tokens: "global tokens", // the sliders
  num_buckets: "buckets", bucket_size: "chunk (bucket size)", rounds: "rounds", many: "slots k",
  causal: "causal",
  never: {
    global: "never causal: a global token reads all tokens, later ones too",
    slots: "never causal: each slot mixes all keys, later ones too",
  },
  matrix: (pairs, all) => `Pairs read: ${grouped(pairs)} of ${grouped(all)}`,
  slotMatrix: (n, slots) => `Queries by slots: ${n} × ${slots} = ${grouped(n * slots)} scores`,
  share: (pairs, all) => ` (${percent(pairs / all)})`,
  grid: "Queries, row by row",
  down: "query ↓", keys: "key →", slotAxis: "slot →", square: "n × n: never computed",
  legend: {
    all: "read", near: "in the window", global: "global row or column", bucket: "in one bucket, in its colour",
    alone: "alone: reads itself", missed: "missed: heavy in full attention", slot: "a mixture of all keys",
  },
  hint: "Point at a row, or walk through the rows with the arrow keys.",
  all: (i, keys, n) => `Query ${i} reads ${keys}: ${n} of ${n}.`,
  some: (i, keys, count, n) => `Query ${i} reads ${keys}: ${count} of ${n}.`,
  globalRow: (i, n) => `Query ${i} is a global token and reads all keys: ${n} of ${n}.`,
  key: "key", keysOf: "keys", shared: "global token", sharedMany: "global tokens",
  lone: (i, buckets, n) => `Query ${i} (${buckets}) meets no other token, so it reads itself: 1 of ${n}.`,
  first: (i, buckets, n) => `Query ${i} (${buckets}) has no token before it, and reads itself: 1 of ${n}.`,
  hashed: (i, buckets, keys, count, n, held) =>
    `Query ${i} (${buckets}) reads ${keys}: ${count} of ${n}, with ${held} of its weight in full attention.`,
  bucket: (buckets) => (buckets.length === 1 ? `bucket ${buckets[0]}` : `buckets ${buckets.join(", ")}`),
  mixed: (i, k, n) =>
    `Query ${i} reads ${k === 1 ? "slot 0" : `slots 0 to ${k - 1}`}, each a mixture of all ${n} keys.`,
  steps: (first, last, step) => `${first} to ${last} in steps of ${step}`,
  others: (count) => `${count} others`,
  circle: "The tokens on a circle, cut into buckets",
  circleSaid: (rounds, buckets, chunk) =>
    `Each ring is a round: the circle, turned at random, cut into ${buckets} buckets. Then the tokens are sorted by ` +
    `bucket, and cut into chunks of ${chunk}; a query meets its bucket in its own chunk and the one before.`,
  causalSaid: (rounds, buckets, chunk) =>
    `Each ring is a round: the circle, turned at random, cut into ${buckets} buckets. Then the tokens are sorted by ` +
    `bucket; a query meets the last ${chunk} before it in its own.`,
  round: (k) => `round ${k}, sorted`,
  again: "Draw other hashes",
  seed: (seed) => `seed ${seed}`,
  held: (share, missed) =>
    `Of the weight that full attention gives, the pairs looked at hold ${share} on average. ` +
    `Missed: ${grouped(missed)} ${missed === 1 ? "pair" : "pairs"} with at least twice the mean weight of the row. ` +
    `(Full attention here: softmax of ${SCALE} · cosine over the other tokens.)`,
  cost: "What it costs: scores computed",
  table: "Scores computed, at the length shown and at a long one",
  scores: "scores", part: "share of n²", bytes: "as float32",
  from: (n, causal) =>
    `Fewer scores than ${causal ? "causal " : ""}full attention from n\u00a0=\u00a0${grouped(n)} on.`,
  nowhere: `No fewer scores than full attention up to n\u00a0=\u00a0${grouped(65_536)}.`,
  itself: "All others are measured against it.",
  honest: {
    full: "A count of scores is not a time.",
    window: "A count of scores is not a time: rows of neighbours must still be cut into tiles.",
    global:
      "A count of scores is not a time: the window is cut into tiles, and global tokens have projections of their own.",
    hash:
      "Counted are both chunks of each token and round, tokens of other buckets too. A count of scores is not " +
      "a time: hashing and sorting come on top.",
    slots: "A count of scores is not a time: mixing the keys and the values into slots comes on top.",
  },
  chart: "Scores over the length n, both axes by powers",
  charted: (name, count, n) => `${TEXT.chart}. ${name}: ${count} at ${n}.`,
  axes: ["length n →", "↑ scores"],
  notCausal: (name) => `${name} (not causal)`,
};

const percent = (share) => `${Number((100 * share).toPrecision(share < 0.1 ? 2 : 3))}\u00a0%`;

function bytes(count) {
  const power = Math.min(3, Math.floor(Math.log2(count) / 10));
  return `${grouped(Number((count / 1024 ** power).toPrecision(3)))}\u00a0${["B", "KiB", "MiB", "GiB"][power]}`;
}

// Numbers in words: runs, or even steps, and of many only the first.
function list(numbers) {
  const [first, step, last] = [numbers[0], numbers[1] - numbers[0], numbers.at(-1)];
  const even = numbers.length > 3 && step > 1 && numbers.every((number, k) => number === first + k * step);
  if (even) return TEXT.steps(first, last, step);
  const runs = [];
  for (const number of numbers) {
    if (runs.at(-1)?.at(-1) === number - 1) runs.at(-1).push(number);
    else runs.push([number]);
  }
  const short = (run) => (run.length > 2 ? [[`${run[0]} to ${run.at(-1)}`, run.length]] : run.map((k) => [k, 1]));
  const said = runs.flatMap(short);
  if (said.length < 12) return said.map(([text]) => text).join(", ");
  const rest = said.slice(10).reduce((count, [, size]) => count + size, 0);
  return `${said.slice(0, 10).map(([text]) => text).join(", ")} and ${TEXT.others(rest)}`;
}

// A row in a sentence.
function sentence({ pattern, n, slots, global_tokens: shared, causal }, { why, columns, rounds, held }, i) {
  if (pattern === "slots") return TEXT.mixed(i, slots, n);
  if (pattern === "global" && i < shared) return TEXT.globalRow(i, n);
  const row = why.subarray(i * columns, (i + 1) * columns);
  const those = (wanted) => [...row.keys()].filter((j) => wanted(row[j]));
  const said = (keys, one, many) => (keys.length ? [`${keys.length === 1 ? one : many} ${list(keys)}`] : []);
  const [seen, global] = [those((code) => code !== UNREAD), those((code) => code === GLOBAL)];
  const keys = said(those((code) => code !== UNREAD && code !== GLOBAL), TEXT.key, TEXT.keysOf);
  const all = [...keys, ...said(global, `the ${TEXT.shared}`, `the ${TEXT.sharedMany}`)].join(" and ");
  if (pattern !== "hash") return TEXT.some(i, all, seen.length, n);
  const buckets = TEXT.bucket(rounds.map((round) => round.buckets[i]));
  if (row[i] === ALONE) return (causal && i === 0 ? TEXT.first : TEXT.lone)(i, buckets, n);
  return TEXT.hashed(i, buckets, all, seen.length, n, percent(held[i]));
}
