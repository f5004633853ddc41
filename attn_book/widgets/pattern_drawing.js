// The drawings of attention patterns: the matrix, the tokens on their circle, the scores over the length.

const TURN = 2 * Math.PI;
const HUES = 8;
const DASHES = { full: "", window: "7 4", global: "9 3 2 3", hash: "2 3", slots: "14 4" };
const POWERS = { 2: "10²", 4: "10⁴", 6: "10⁶", 8: "10⁸" };

const hue = (bucket) => `attn-hue-${bucket % HUES}`;

// A drawing begun anew, and what draws on it.
function sketch(drawing, width, height) {
  const add = (tag, attributes, ...said) => drawing.appendChild(make(tag, attributes, ...said));
  drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
  drawing.replaceChildren();
  return {
    add,
    path: (points, name, more = {}) => {
      const d = "M" + points.map(([x, y]) => `${x.toFixed(2)} ${y.toFixed(2)}`).join("L");
      return add("path", { d, class: name, ...more });
    },
    text: (x, y, said, anchor = "middle", name = "attn-tick") =>
      add("text", { x, y, "text-anchor": anchor, class: name }, said),
  };
}

// The colours of the matrix, by the names that the style has for them.
function inksOf(root) {
  const style = getComputedStyle(root);
  const names = ["all", "near", "global", "alone", "unread", "ink", ...Array.from({ length: HUES }, (_, k) => `hue-${k}`)];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--attn-${name}`).trim()]));
}

// The cells read, each in the colour of its reason, with rings where a heavy pair is missed.
function paintMatrix(canvas, ink, side, rows, { columns, why, missed }) {
  const ratio = window.devicePixelRatio || 1;
  const pixels = Math.round(side * ratio);
  const cell = pixels / Math.max(rows, columns);
  const names = { [ALL]: "all", [NEAR]: "near", [GLOBAL]: "global", [ALONE]: "alone" };
  const inks = Array.from({ length: 32 }, (_, code) => ink[names[code] ?? `hue-${(code - FIRST) % HUES}`]);
  const edge = (k) => Math.round(k * cell);
  const gap = cell >= 5 * ratio ? Math.round(ratio) : 0;
  Object.assign(canvas, { width: edge(columns), height: edge(rows) });
  const paper = canvas.getContext("2d");
  paper.fillStyle = ink.unread;
  paper.fillRect(0, 0, canvas.width, canvas.height);
  why.forEach((code, k) => {
    const [i, j] = [Math.floor(k / columns), k % columns];
    const [x, y] = [edge(j), edge(i)];
    if (code !== UNREAD) {
      paper.fillStyle = inks[code];
      paper.fillRect(x, y, edge(j + 1) - x - gap, edge(i + 1) - y - gap);
    } else if (missed?.[k]) {
      paper.strokeStyle = ink.ink;
      paper.lineWidth = Math.max(1, 0.12 * cell);
      paper.beginPath();
      paper.arc(x + (cell - gap) / 2, y + (cell - gap) / 2, Math.max(1, 0.22 * cell), 0, TURN);
      paper.stroke();
    }
  });
  return { wide: (side * columns) / Math.max(rows, columns), high: (side * rows) / Math.max(rows, columns) };
}

// The axes of the matrix: every few queries downwards, every few keys across.
function drawAxes(drawing, width, height, [left, top], { wide, high }, rows, columns, names) {
  const { path, text } = sketch(drawing, width, height);
  const step = (count) => [1, 2, 4, 8, 16].find((size) => count / size <= 8);
  for (let i = 0; i < rows; i += step(rows)) text(left - 6, top + ((i + 0.5) * high) / rows + 4, i, "end");
  const many = step(columns * Math.max(1, 120 / wide));
  for (let j = 0; j < columns; j += many ?? 16) text(left + ((j + 0.5) * wide) / columns, top - 6, j);
  text(left, top - 21, names[0], "start");
  text(left + Math.max(wide, 110), top - 21, names[1], "end");
  if (columns >= rows) return;
  // Beside slots, the square that is never filled.
  const [right, bottom] = [left + high, top + high];
  path([[left + wide, top], [right, top], [right, bottom], [left + wide, bottom]], "attn-guide");
  text((left + wide + right) / 2, (top + bottom) / 2, names[2]);
}

// Tokens on a circle, around it a ring of sectors for each round, the first innermost; below, the tokens as sorted.
function drawCircle(drawing, width, s, { rounds, why, missed }, label) {
  const [ring, middle] = [15, Math.min(width / 2, 150)];
  const radius = middle - 4 - ring * rounds.length - 9;
  const strip = 2 * middle + 8;
  const { add, path, text } = sketch(drawing, width, strip + 34 * rounds.length);
  const spot = (turn, r) => [width / 2 + r * Math.sin(TURN * turn), middle - r * Math.cos(TURN * turn)];
  const arc = (from, to, r) => Array.from({ length: 97 }, (_, k) => spot(from + ((to - from) * k) / 96, r));
  path(arc(0, 1, radius), "attn-zero");
  rounds.forEach(({ turn }, k) => {
    const [low, high] = [radius + 9 + ring * k, radius + 9 + ring * (k + 1) - 2];
    for (let bucket = 0; bucket < s.num_buckets; bucket++) {
      const [from, to] = [bucket / s.num_buckets - turn, (bucket + 1) / s.num_buckets - turn];
      const round = [...arc(from, to, low), ...arc(to, from, high)];
      path([...round, round[0]], `attn-sector ${hue(bucket)}`);
      const [x, y] = spot((from + to) / 2, (low + high) / 2);
      text(x, y + 3.7, bucket, "middle", "attn-bucket");
    }
  });
  const { n, query } = s;
  const kind = (j) => {
    if (j === query) return "attn-query";
    if (why[query * n + j] !== UNREAD) return "attn-taken";
    return missed[query * n + j] ? "attn-missed" : "attn-other";
  };
  const [angles, size] = [directions(n), Math.min(4, radius / 24)];
  const order = { "attn-other": 0, "attn-missed": 1, "attn-taken": 2, "attn-query": 3 };
  for (const j of [...angles.keys()].sort((a, b) => order[kind(a)] - order[kind(b)])) {
    const [cx, cy] = spot(angles[j], radius);
    add("circle", { cx, cy, r: j === query ? 1.5 * size : size, class: `${kind(j)} ${hue(rounds[0].buckets[j])}` });
  }
  const [wide, chunk] = [width / n, Math.min(s.bucket_size, n)];
  rounds.forEach(({ buckets, order: sorted }, k) => {
    const y = strip + 34 * k + 12;
    text(0, y - 3, label(k + 1), "start");
    sorted.forEach((token, place) => {
      const box = { x: (place * wide).toFixed(2), y, width: Math.max(1, wide - 0.7).toFixed(2), height: 12 };
      add("rect", { ...box, class: `attn-place ${kind(token)} ${hue(buckets[token])}` });
      if (place % chunk === 0) path([[place * wide, y - 1], [place * wide, y + 16]], "attn-cut");
      if (token !== query) return;
      const at = (place + 0.5) * wide;
      path([[at, y + 13], [at - 4, y + 19], [at + 4, y + 19], [at, y + 13]], "attn-pointer");
    });
  });
}

// Scores over the length, both by powers; the chosen pattern bold and named, full attention beside it.
function drawChart(drawing, width, s, names, axes, from) {
  const [height, left, right, top, bottom] = [218, 30, 14, 18, 34];
  const { path, text } = sketch(drawing, width, height);
  const x = (n) => left + ((Math.log2(n) - 6) / 10) * (width - left - right);
  const y = (count) => height - bottom - ((Math.log10(count) - 1.5) / 8.2) * (height - top - bottom);
  for (const [power, said] of Object.entries(POWERS)) {
    path([[left, y(10 ** power)], [width - right, y(10 ** power)]], "attn-zero");
    text(left - 5, y(10 ** power) + 4, said, "end");
  }
  for (const n of [64, 512, 4096, 32_768]) {
    path([[x(n), height - bottom], [x(n), height - bottom + 4]], "attn-zero");
    text(x(n), height - bottom + 16, grouped(n));
  }
  text(width - right, height - 3, axes[0], "end");
  text(0, 10, axes[1], "start");
  if (from > 64) {
    path([[x(from), top], [x(from), height - bottom]], "attn-guide");
    text(x(from) + 5, height - bottom - 5, `n = ${grouped(from)}`, "start");
  }
  const lengths = Array.from({ length: 41 }, (_, k) => Math.round(2 ** (6 + k / 4)));
  for (const pattern of [...PATTERNS.filter((name) => name !== s.pattern), s.pattern]) {
    const chosen = pattern === s.pattern;
    const points = lengths.map((n) => [x(n), y(scores(s, n, pattern))]);
    const look = { "stroke-dasharray": DASHES[pattern], "data-pattern": pattern };
    path(points, chosen ? "attn-line attn-chosen" : "attn-line", look);
  }
  const name = (pattern, n, py) =>
    text(x(n), py, names[pattern], "end", pattern === s.pattern ? "attn-point attn-chosen" : "attn-point");
  name("full", 1024, y(scores(s, 1024, "full")) - 10);
  if (s.pattern === "full") return;
  // The chosen line is named above its end, or below all lines where another one is in the way.
  const begin = width - right - 7.4 * names[s.pattern].length;
  const there = 2 ** (6 + (10 * (begin - left)) / (width - left - right));
  const at = (n) => PATTERNS.filter((other) => other !== s.pattern).map((other) => y(scores(s, n, other)));
  const above = y(scores(s, LONGEST)) - 9;
  const free = at(LONGEST).every((py) => Math.abs(py - above + 3) > 13) && y(scores(s, there, "full")) < above - 14;
  const lowest = Math.max(...at(there), y(scores(s, there)));
  name(s.pattern, LONGEST, free ? above : Math.min(lowest + 16, height - bottom - 4));
}
