// Which keys each query reads under a pattern, why, and how many scores that takes: no picture yet.

const PATTERNS = ["full", "window", "global", "hash", "slots"];
const LIMITS = {
  n: [16, 96], window: [0, 32], dilation: [1, 8], global_tokens: [0, 16],
  num_buckets: [2, 16], bucket_size: [2, 32], rounds: [1, 4], slots: [1, 32], seed: [0, 9999],
};
const CAUSAL = ["full", "window", "hash"]; // the patterns that can leave out what comes later
const LONGEST = 65_536;
// Of the tokens on the circle: how sharp the softmax is, and in how many clusters they lie.
const [SCALE, CLUSTERS, SPREAD, TOKENS] = [16, 6, 0.05, 7];
// Why a query reads a key; from FIRST on, since they share that bucket. A bucket has one of HUES colours.
const [UNREAD, ALL, NEAR, GLOBAL, ALONE, FIRST] = [0, 1, 2, 3, 4, 5];

const causalOf = ({ pattern, causal }) => causal && CAUSAL.includes(pattern);

// Numbers from 0 to 1, the same here and in Python.
function random(seed) {
  let state = seed;
  const draw = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
  for (let k = 0; k < 3; k++) draw(); // else neighbouring seeds begin alike
  return draw;
}

// The tokens' directions, in turns: in clusters around the circle.
function directions(n) {
  const draw = random(TOKENS);
  const centres = Array.from({ length: CLUSTERS }, (_, k) => (k + 0.6 * draw()) / CLUSTERS);
  return Array.from({ length: n }, () => centres[Math.floor(draw() * CLUSTERS)] + SPREAD * (draw() + draw() - 1));
}

// Each round turns the circle and cuts it into equal sectors. Then tokens are sorted by bucket, and by position within.
function hash({ n, num_buckets: count, rounds, seed }) {
  const [angles, draw] = [directions(n), random(seed)];
  return Array.from({ length: rounds }, () => {
    const turn = draw();
    const buckets = angles.map((angle) => Math.floor((angle + turn - Math.floor(angle + turn)) * count));
    const order = [...buckets.keys()].sort((i, j) => buckets[i] - buckets[j] || i - j);
    const rank = Array(n);
    order.forEach((token, place) => (rank[token] = place));
    return { turn, buckets, order, rank };
  });
}

// Whether query i sees key j in a round. Under causality chunks do not count: they depend on later tokens.
function meets({ buckets, rank }, i, j, chunk, causal) {
  if (buckets[i] !== buckets[j] || i === j) return false;
  if (causal) return rank[i] > rank[j] && rank[i] - rank[j] <= chunk;
  const apart = Math.floor(rank[i] / chunk) - Math.floor(rank[j] / chunk);
  return apart === 0 || apart === 1;
}

// The matrix row by row: for each query and key why it is read, and for hashes what full attention would give.
function look(s) {
  const { pattern, n, window, dilation, global_tokens: shared, slots } = s;
  const causal = causalOf(s);
  const columns = pattern === "slots" ? slots : n;
  const rounds = pattern === "hash" ? hash(s) : [];
  const why = new Uint8Array(n * columns);
  const near = (i, j) => {
    const distance = Math.abs(i - j);
    return distance <= window * dilation && distance % dilation === 0 ? NEAR : UNREAD;
  };
  const reason = {
    full: () => ALL,
    slots: () => ALL,
    window: near,
    global: (i, j) => (i < shared || j < shared ? GLOBAL : near(i, j)),
    hash(i, j) {
      const round = rounds.find((each) => meets(each, i, j, Math.min(s.bucket_size, n), causal));
      return round ? FIRST + round.buckets[i] : UNREAD;
    },
  }[pattern];
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < columns; j++) why[i * columns + j] = causal && j > i ? UNREAD : reason(i, j);
    const row = why.subarray(i * columns, (i + 1) * columns);
    if (pattern === "hash" && row.every((code) => code === UNREAD)) row[i] = ALONE;
  }
  const pairs = why.reduce((total, code) => total + (code !== UNREAD), 0);
  return { columns, why, pairs, rounds, ...(pattern === "hash" ? compare(n, why, causal) : {}) };
}

// Full attention to all others: how much of each row's weight the pairs read hold, and which heavy pairs they miss.
function compare(n, why, causal) {
  const angles = directions(n);
  const [held, missed] = [Array(n).fill(0), new Uint8Array(n * n)];
  for (let i = 0; i < n; i++) {
    const others = [...angles.keys()].filter((j) => (causal ? j < i : j !== i));
    const powers = others.map((j) => Math.exp(SCALE * (Math.cos(2 * Math.PI * (angles[i] - angles[j])) - 1)));
    const total = powers.reduce((sum, power) => sum + power, 0);
    if (!others.length) held[i] = 1; // the first token has itself alone, here as there
    others.forEach((j, k) => {
      if (why[i * n + j] !== UNREAD) held[i] += powers[k] / total;
      else if (powers[k] / total >= 2 / others.length) missed[i * n + j] = 1;
    });
  }
  return { held, missed, mean: held.reduce((sum, share) => sum + share, 0) / n };
}

// The pairs of a window, counted: n on the diagonal, and n − k · dilation on the k-th line beside it.
function countNear(n, { window, dilation }, causal) {
  const lines = Math.max(0, Math.min(window, Math.floor((n - 1) / dilation)));
  return n + (causal ? 1 : 2) * (lines * n - (dilation * lines * (lines + 1)) / 2);
}

// How many scores a pattern computes at length n. Hashing scores both chunks in each round, other buckets included.
function scores(s, n = s.n, pattern = s.pattern) {
  const causal = causalOf({ ...s, pattern });
  const rest = Math.max(0, n - s.global_tokens);
  return {
    full: () => (causal ? (n * (n + 1)) / 2 : n * n),
    window: () => countNear(n, s, causal),
    global: () => n * n - rest * rest + countNear(rest, s, false),
    hash: () => s.rounds * n * 2 * Math.min(s.bucket_size, n),
    slots: () => n * s.slots,
  }[pattern]();
}

// The length from which on a pattern computes fewer scores than full attention (causal as it is); null where none.
function crossing(s) {
  const full = { ...s, pattern: "full", causal: causalOf(s) };
  const fewer = (n) => scores(s, n) < scores(full, n);
  let [low, high] = [0, LONGEST]; // what is fewer at a length is fewer at all longer ones
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (fewer(middle)) high = middle;
    else low = middle;
  }
  return fewer(high) ? high : null;
}
