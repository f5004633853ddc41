// What attention patterns say for themselves: names, rows in sentences, counts and sizes.

const inPercent = (share) => `${Number((100 * share).toPrecision(share < 0.1 ? 2 : 3))}\u00a0%`;

const TEXT = {
  title: say("Attention patterns: which pairs are computed"),
  patterns: say("Pattern"),
  full: say("Full attention"), window: say("Sliding window"), global: say("Window + global tokens"),
  hash: say("Hashed buckets"), slots: say("Learned slots"),
  under: {
    full: say("all pairs"), window: say("the nearest"), global: say("Longformer"), hash: say("Reformer"),
    slots: say("Linformer"),
  },
  // The sliders.
  n: say("sequence length n"), near: say("tokens on each side"), dilation: say("dilation"), global_tokens: say("global tokens"),
  num_buckets: say("number of buckets"), bucket_size: say("chunk size"), rounds: say("hashing rounds"), many: say("number of slots k"),
  causal: say("causal"),
  never: {
    global: say("never causal: a global token reads all tokens, later ones too"),
    slots: say("never causal: each slot mixes all keys, later ones too"),
  },
  matrix: (pairs, all) => {
    const values = { pairs: grouped(pairs), all: grouped(all), share: inPercent(pairs / all) };
    return say("Pairs read: {pairs} of {all} ({share})", values);
  },
  slotMatrix: (n, slots) =>
    say("Queries by slots: {n} × {slots} = {scores} scores", { n, slots, scores: grouped(n * slots) }),
  grid: say("Queries, row by row"),
  down: say("query ↓"), keys: say("key →"), slotAxis: say("slot →"), square: say("n × n: never computed"),
  legend: {
    all: say("read"), near: say("in the window"), global: say("global row or column"),
    bucket: say("in one bucket, in its colour"), alone: say("alone: reads itself"),
    missed: say("missed: heavy in full attention"), slot: say("a mixture of all keys"),
  },
  // A row of the matrix: which keys its query reads, and how many of all. `one` where a single key is listed.
  globalRow: (query, all) => say("Query {query} is a global token and reads all keys: {all} of {all}.", { query, all }),
  some: (values, one) =>
    one
      ? say("Query {query} reads key {keys}: {count} of {all}.", values)
      : say("Query {query} reads keys {keys}: {count} of {all}.", values),
  withOneGlobal: (values, one) =>
    one
      ? say("Query {query} reads key {keys} and the global token {shared}: {count} of {all}.", values)
      : say("Query {query} reads keys {keys} and the global token {shared}: {count} of {all}.", values),
  withGlobals: (values, one) =>
    one
      ? say("Query {query} reads key {keys} and the global tokens {shared}: {count} of {all}.", values)
      : say("Query {query} reads keys {keys} and the global tokens {shared}: {count} of {all}.", values),
  lone: (values) =>
    say("Query {query} ({buckets}) meets no other token, so it reads itself: 1 of {all}.", values),
  first: (values) =>
    say("Query {query} ({buckets}) has no token before it, and reads itself: 1 of {all}.", values),
  hashed: (values, one) =>
    one
      ? say(
          "Query {query} ({buckets}) reads key {keys}: {count} of {all}, with {held} of its weight in full attention.",
          values,
        )
      : say(
          "Query {query} ({buckets}) reads keys {keys}: {count} of {all}, with {held} of its weight in full attention.",
          values,
        ),
  bucket: (buckets) =>
    buckets.length === 1
      ? say("bucket {bucket}", { bucket: buckets[0] })
      : say("buckets {buckets}", { buckets: buckets.join(", ") }),
  mixed: (query, slots, all) =>
    slots === 1
      ? say("Query {query} reads slot 0, each a mixture of all {all} keys.", { query, all })
      : say("Query {query} reads slots 0 to {last}, each a mixture of all {all} keys.", { query, last: slots - 1, all }),
  run: (first, last) => say("{first} to {last}", { first, last }),
  steps: (first, last, step) => say("{first} to {last} in steps of {step}", { first, last, step }),
  others: (keys, count) => say("{keys} and {count} others", { keys, count }),
  circle: say("The tokens on a circle, cut into buckets"),
  ring: (buckets) => say("Each ring is a round: the circle, turned at random, cut into {buckets} buckets.", { buckets }),
  sorted: (chunk) =>
    say(
      "Then the tokens are sorted by bucket, and cut into chunks of {chunk}; a query meets its bucket in its own chunk and the one before.",
      { chunk },
    ),
  sortedCausal: (chunk) =>
    say("Then the tokens are sorted by bucket; a query meets the last {chunk} before it in its own.", { chunk }),
  round: (k) => say("round {k}, sorted", { k }),
  again: say("Draw new hashes"),
  seed: (seed) => say("seed {seed}", { seed }),
  held: (share) =>
    say("On average, the computed pairs hold {share} of the weight of full attention.", { share }),
  missed: (count) =>
    count === 1
      ? say("Missed: 1 pair with at least twice the mean weight of the row.")
      : say("Missed: {count} pairs with at least twice the mean weight of the row.", { count: grouped(count) }),
  measure: say("(Full attention here: softmax of {scale} · cosine over the other tokens.)", { scale: SCALE }),
  cost: say("Cost: the number of scores"),
  table: say("Scores computed, at the length shown and at a long one"),
  scores: say("scores"), part: say("share of n²"), bytes: say("as float32"),
  from: (length, causal) => {
    const n = grouped(length);
    return causal
      ? say("Fewer scores than causal full attention from n\u00a0=\u00a0{n} on.", { n })
      : say("Fewer scores than full attention from n\u00a0=\u00a0{n} on.", { n });
  },
  nowhere: say("No fewer scores than full attention up to n\u00a0=\u00a0{n}.", { n: grouped(LONGEST) }),
  itself: say("All other patterns are compared with it."),
  honest: {
    full: say("A count of scores is not a time."),
    window: say("A count of scores is not a time: the window must still be cut into tiles."),
    global: say(
      "A count of scores is not a time: the window is cut into tiles, and global tokens have projections of their own.",
    ),
    hash: inOne(
      say("The count includes both chunks of each token and round, with tokens of other buckets."),
      say("A count of scores is not a time: hashing and sorting come on top."),
    ),
    slots: say("A count of scores is not a time: mixing the keys and the values into slots comes on top."),
  },
  charted: (name, count, n) =>
    say("Scores against the length n, both axes logarithmic. {name}: {count} at {n}.", { name, count, n }),
  axes: [say("length n →"), say("↑ scores")],
  notCausal: (name) => say("{name} (not causal)", { name }),
};

function bytes(size) {
  const power = Math.min(3, Math.floor(Math.log2(size) / 10));
  const count = grouped(Number((size / 1024 ** power).toPrecision(3)));
  if (power === 0) return say("{count}\u00a0B", { count });
  if (power === 1) return say("{count}\u00a0KiB", { count });
  return power === 2 ? say("{count}\u00a0MiB", { count }) : say("{count}\u00a0GiB", { count });
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
  const short = (run) => (run.length > 2 ? [[TEXT.run(run[0], run.at(-1)), run.length]] : run.map((k) => [k, 1]));
  const said = runs.flatMap(short);
  if (said.length < 12) return said.map(([text]) => text).join(", ");
  const rest = said.slice(10).reduce((count, [, size]) => count + size, 0);
  return TEXT.others(said.slice(0, 10).map(([text]) => text).join(", "), rest);
}

// A row in a sentence.
function sentence({ pattern, n, slots, global_tokens: shared, causal }, { why, columns, rounds, held }, i) {
  if (pattern === "slots") return TEXT.mixed(i, slots, n);
  if (pattern === "global" && i < shared) return TEXT.globalRow(i, n);
  const row = why.subarray(i * columns, (i + 1) * columns);
  const those = (fits) => [...row.keys()].filter((j) => fits(row[j]));
  const [global, keys] = [those((code) => code === GLOBAL), those((code) => code !== UNREAD && code !== GLOBAL)];
  const values = { query: i, keys: list(keys), shared: list(global), count: global.length + keys.length, all: n };
  const how = global.length === 0 ? TEXT.some : global.length === 1 ? TEXT.withOneGlobal : TEXT.withGlobals;
  if (pattern !== "hash") return how(values, keys.length === 1);
  values.buckets = TEXT.bucket(rounds.map((round) => round.buckets[i]));
  if (row[i] === ALONE) return (causal && i === 0 ? TEXT.first : TEXT.lone)(values);
  return TEXT.hashed({ ...values, held: inPercent(held[i]) }, keys.length === 1);
}
