// What images under attention say and look like: words, pixels, a veil over each patch, outlines.

const TEXT = {
  images: say("Image"), image: (i) => say("image {i}", { i }),
  queries: say("Query"), classToken: say("class token"), patch: (patch) => say("patch {patch}", { patch }),
  ofClassToken: say("The class token"), ofPatch: (patch) => say("Patch {patch}", { patch }), // a query in a sentence
  play: say("Play"), pause: say("Pause"), step: say("Next word"),
  layer: say("layer"), layerOf: (name, layer, last) => say("{name}, layer {layer} of 0 to {last}", { name, layer, last }),
  heads: say("This query in each head"), mean: say("mean"), head: (head) => say("head {head}", { head }),
  grid: say("Patches, row by row"),
  place: (patch, row, column) => say("patch {patch} (row {row}, column {column})", { patch, row, column }),
  quoted: (word) => say("“{word}”", { word }),
  percent: (share) => `${(100 * share).toFixed(1)}\u00a0%`,
  tag: (weight, rank) => `${weight} · #${rank}`,
  reads: (query, place, weight, rank, all) =>
    say("{query} → {place}: weight {weight}, rank {rank} of {all}.", { query, place, weight, rank, all }),
  greatest: (query, list) =>
    list.length > 1
      ? say("{query} attends most to patches {patches}.", { query, patches: list.join(", ") })
      : say("{query} attends most to patch {patch}.", { query, patch: list[0] }),
  entry: (r, weight) => `${r}\u00a0(${weight})`,
  alike: (query, count, all, weight) =>
    say("{query} gives its largest weight, {weight}, to {count} of {all} patches.", { query, count, all, weight }),
  nothing: (query) => say("{query} gives the patches no weight.", { query }),
  together: (share) => say("All patches together: {share}\u00a0%.", { share }),
  hint: say("Point at a patch, or move over the patches with the arrow keys."),
  choose: say("A click or Enter makes it the query."),
  zero: "0", most: say("largest weights"), asking: say("the query"),
};

// As in patch_attention.py. The picture is the same on light and dark pages, and so is what is drawn on it.
const [VEIL, VEIL_SHARE, OUTLINED] = ["16 18 26", 0.65, 3];
const GREATEST = [["#ffffff", 4, []], ["#d9680f", 2, []]];
const ASKING = [["#000000", 3.5, []], ["#ffffff", 2, [4, 3]]];
const [LARGE, SMALL, PAUSE] = [384, 56, 1200]; // pixels of the picture and of small ones; milliseconds for a word

const ranked = (row, r) => 1 + row.filter((weight) => weight > row[r]).length;

// A side in pixels times a whole number where there is room for it, so that pixels stay squares.
const fit = (side, room) => (room >= side ? Math.floor(room / side) : room / side);

// The image, each pixel `scale` wide, with each patch under a veil that is the thinner, the greater its weight.
function paint(view, source, scale, size, row = []) {
  const dots = Math.max(1, devicePixelRatio || 1);
  const [width, height] = [source.width * scale, source.height * scale];
  const [wide, high] = [Math.round(width * dots), Math.round(height * dots)];
  if (view.width !== wide || view.height !== high) [view.width, view.height] = [wide, high];
  Object.assign(view.style, { width: `${width}px`, height: `${height}px` });
  const pen = view.getContext("2d");
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.imageSmoothingEnabled = scale * dots < 1;
  pen.drawImage(source, 0, 0, wide, high);
  const [across, top] = [source.width / size, Math.max(...row) || 1];
  row.forEach((weight, r) => {
    const edges = [r % across, Math.floor(r / across)].map((k, axis) => {
      const [length, count] = axis ? [high, source.height / size] : [wide, across];
      return [Math.round((k * length) / count), Math.round(((k + 1) * length) / count)];
    });
    const [[left, right], [above, below]] = edges;
    pen.fillStyle = `rgb(${VEIL} / ${VEIL_SHARE * (1 - weight / top)})`;
    pen.fillRect(left, above, right - left, below - above);
  });
  pen.setTransform(dots, 0, 0, dots, 0, 0);
  return pen;
}

// Around the patch in column x and row y, `step` wide: lines [colour, width, dashes], one upon the other.
function outline(pen, x, y, step, lines) {
  for (const [colour, wide, dashes] of lines) {
    Object.assign(pen, { strokeStyle: colour, lineWidth: wide });
    pen.setLineDash(dashes);
    pen.strokeRect(x * step + 2, y * step + 2, step - 4, step - 4);
  }
}
