// The same weights as arcs beside the map, where a wide card would be empty: from each query to the keys that it reads.

const LEAST = 110; // pixels between two columns of words, below which there are no arcs

// `point` hears of the cell [query, key] of the arc under the pointer, or of null; `keep` of a query that is clicked.
function makeArcs(listen, target, source, linked, point, keep) {
  const box = make("svg", { class: "attn-arcs", "aria-hidden": true });
  const label = (token, side) => make("text", { class: `attn-${side}` }, shown(token));
  const [queries, keys] = [target.map((token) => label(token, "from")), source.map((token) => label(token, "to"))];
  const lit = make("path", { class: "attn-arc attn-lit" });
  let [left, right, weights] = [0, 0, []];
  let [fromY, toY] = [[], []];

  // Its height is at each share of its way a smoothstep between those of its ends, so the nearest arc is easily found.
  function arc(t, s) {
    const [a, b, third] = [fromY[t], toY[s], (right - left) / 3];
    return `M${left} ${a}C${left + third} ${a} ${right - third} ${b} ${right} ${b}`;
  }

  // Beside a map whose rows are `size` high and begin at `top`, where there is `room`; `words` are the widths of the columns.
  function layout(room, size, top, words) {
    const width = Math.min(room, 380);
    const isShown = Math.max(target.length, source.length) <= 24 && width >= words[0] + words[1] + LEAST;
    box.toggleAttribute("hidden", !isShown);
    if (!isShown) return;
    [left, right] = [words[0], width - words[1]];
    const span = Math.max(target.length * size, source.length * 16);
    const start = Math.max(0, top + (target.length * size - span) / 2);
    fromY = target.map((_, t) => top + (t + 0.5) * size);
    toY = source.map((_, s) => start + ((s + 0.5) * span) / source.length);
    queries.forEach((text, t) => [["x", left - 6], ["y", fromY[t] + 4]].forEach((at) => text.setAttribute(...at)));
    keys.forEach((text, s) => [["x", right + 6], ["y", toY[s] + 4]].forEach((at) => text.setAttribute(...at)));
    const height = Math.ceil(Math.max(top + target.length * size, start + span)) + 2;
    for (const [name, value] of Object.entries({ width, height })) box.setAttribute(name, value);
  }

  // Rows of shares of the greatest weight, from 0 to 1, of which those of a row that is kept stand out.
  function draw(rows, kept) {
    if (box.hasAttribute("hidden")) return;
    weights = rows;
    const arcs = rows.flatMap((row, t) =>
      row.flatMap((share, s) => {
        const opacity = (kept < 0 || kept === t ? 1 : 0.15) * (0.15 + 0.85 * share);
        const truth = linked.has(t * source.length + s) ? [make("path", { class: "attn-arc attn-true", d: arc(t, s) })] : [];
        const style = { "stroke-width": 0.6 + 3.4 * share, "stroke-opacity": opacity };
        return share < 0.02 ? truth : [...truth, make("path", { class: "attn-arc", d: arc(t, s), ...style })];
      }),
    );
    box.replaceChildren(...arcs, lit, ...queries, ...keys);
  }

  function mark(t, s) {
    lit.setAttribute("d", t >= 0 && s >= 0 && fromY.length ? arc(t, s) : "");
    queries.forEach((text, i) => text.classList.toggle("attn-on", i === t));
    keys.forEach((text, i) => text.classList.toggle("attn-on", i === s));
  }

  // The arc that passes nearest, at most 12 pixels away; of two that cross, that of the greater weight.
  function nearest(event) {
    const { x, y } = box.getBoundingClientRect();
    const at = within((event.clientX - x - left) / (right - left), 0, 1);
    const part = at * at * (3 - 2 * at);
    let [found, least] = [null, 12];
    weights.forEach((row, t) =>
      row.forEach((share, s) => {
        const far = Math.abs(fromY[t] + part * (toY[s] - fromY[t]) - (event.clientY - y)) - 3 * share;
        if (share >= 0.02 && far < least) [found, least] = [[t, s], far];
      }),
    );
    return found;
  }
  for (const event of ["pointermove", "pointerdown"]) listen(box, event, (over) => point(nearest(over)));
  listen(box, "pointerleave", ({ pointerType }) => pointerType === "mouse" && point(null));
  listen(box, "click", (event) => nearest(event) && keep(nearest(event)[0]));
  return { box, layout, draw, mark };
}
