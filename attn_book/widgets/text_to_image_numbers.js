// What the painter computes with. Several vectors are one Float32Array, one after another; sums are taken in float64.

const NORM_EPSILON = 1e-5; // what PyTorch's layer norm adds to the variance

// A stored weight: a vector as it is; a matrix from whole numbers and a scale for each row.
function numbersOf({ values, codes, scales }) {
  if (values !== undefined) return new Float32Array(bytesOf(values).buffer);
  const [rows, whole] = [new Float32Array(bytesOf(scales).buffer), new Int8Array(bytesOf(codes).buffer)];
  const [columns, out] = [whole.length / rows.length, new Float32Array(whole.length)];
  for (let at = 0; at < out.length; at++) out[at] = whole[at] * rows[Math.floor(at / columns)];
  return out;
}

const silu = (x) => x / (1 + Math.exp(-x));

// Adds x (rows × size) times the transpose of y (columns × size) to `out`. What is read or written begins at a place,
// and each row comes so many places after the last. Four columns at a time share each number that is read of x.
function multiply(x, y, out, [rows, columns, size], xs = [0, size], ys = [0, size], outs = [0, columns]) {
  for (let i = 0; i < rows; i++) {
    const [from, to] = [xs[0] + i * xs[1], outs[0] + i * outs[1]];
    let j = 0;
    for (; j + 3 < columns; j += 4) {
      let a = 0;
      let b = 0;
      let c = 0;
      let d = 0;
      let p = ys[0] + j * ys[1];
      let q = p + ys[1];
      let r = q + ys[1];
      let s = r + ys[1];
      for (let k = from; k < from + size; k++) {
        const value = x[k];
        a += value * y[p++];
        b += value * y[q++];
        c += value * y[r++];
        d += value * y[s++];
      }
      out[to + j] += a;
      out[to + j + 1] += b;
      out[to + j + 2] += c;
      out[to + j + 3] += d;
    }
    for (; j < columns; j++) {
      let total = 0;
      for (let k = 0, p = ys[0] + j * ys[1]; k < size; k++) total += x[from + k] * y[p + k];
      out[to + j] += total;
    }
  }
}

// A linear layer for any number of vectors. `flipped` gives its result transposed, as the mean of values needs it.
function denseLayer(weight, bias) {
  const [outs, ins] = [bias.length, weight.length / bias.length];
  const layer = (x) => {
    const [rows, out] = [x.length / ins, new Float32Array((x.length / ins) * outs)];
    for (let row = 0; row < rows; row++) out.set(bias, row * outs);
    multiply(x, weight, out, [rows, outs, ins]);
    return out;
  };
  layer.flipped = (x) => {
    const [rows, out] = [x.length / ins, new Float32Array((x.length / ins) * outs)];
    bias.forEach((value, k) => out.fill(value, k * rows, (k + 1) * rows));
    multiply(weight, x, out, [outs, rows, ins]);
    return out;
  };
  return layer;
}

// x plus a change, each entry of which the gate may scale.
function plus(x, change, gate) {
  return gate ? x.map((value, k) => value + change[k] * gate[k % gate.length]) : x.map((value, k) => value + change[k]);
}

// A layer norm of each vector, scaled and shifted where a gain and a bias are given.
function normalise(x, size, gain, bias) {
  const out = new Float32Array(x.length);
  for (let from = 0; from < x.length; from += size) {
    let [mean, variance] = [0, 0];
    for (let k = from; k < from + size; k++) mean += x[k] / size;
    for (let k = from; k < from + size; k++) variance += (x[k] - mean) ** 2 / size;
    const spread = 1 / Math.sqrt(variance + NORM_EPSILON);
    for (let k = 0; k < size; k++) {
      const value = (x[from + k] - mean) * spread;
      out[from + k] = gain ? value * gain[k] + bias[k] : value;
    }
  }
  return out;
}

// A row of weights after each was multiplied by its factor: as if the factor's logarithm had been added to the score.
function weigh(row, factors) {
  let total = 0;
  for (let t = 0; t < row.length; t++) total += row[t] *= factors[t];
  for (let t = 0; t < row.length; t++) row[t] /= total;
}

// Each head compares its own part of the vectors. Weights that are `given` are used as they are.
function attention(queries, { keys, values }, dim, heads, { factors, given } = {}) {
  const [size, rows, columns] = [dim / heads, queries.length / dim, keys.length / dim];
  const [mixed, weights] = [new Float32Array(queries.length), new Float32Array(heads * rows * columns)];
  const eachHead = (act) => Array.from({ length: heads }, (_, head) => act([head * size, dim], head * rows * columns));
  const eachRow = (x, act) => {
    for (let at = 0; at < x.length; at += columns) act(x.subarray(at, at + columns));
  };
  if (given) weights.set(given);
  else {
    eachHead((part, at) => multiply(queries, keys, weights, [rows, columns, size], part, part, [at, columns]));
    eachRow(weights, (row) => softmaxRow(row, Math.sqrt(size)));
  }
  const used = factors ? weights.slice() : weights;
  if (factors) eachRow(used, (row) => weigh(row, factors));
  eachHead((part, at) => {
    multiply(used, values, mixed, [rows, size, columns], [at, columns], [part[0] * columns, columns], part);
  });
  return { mixed, weights };
}

function softmaxRow(x, divisor) {
  let [top, total] = [-Infinity, 0];
  for (let k = 0; k < x.length; k++) top = Math.max(top, x[k]);
  for (let k = 0; k < x.length; k++) total += x[k] = Math.exp((x[k] - top) / divisor);
  for (let k = 0; k < x.length; k++) x[k] /= total;
}

