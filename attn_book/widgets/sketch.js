// Curves and points on axes, in SVG.

const fixed = (value, digits = 0) => minus(value.toFixed(digits));

// Round numbers on an axis, at most so many.
function ticks(low, high, most = 6) {
  const power = 10 ** Math.floor(Math.log10((high - low) / most));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size * most >= high - low);
  const [first, last] = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
  return Array.from({ length: last - first + 1 }, (_, k) => Number(((first + k) * step).toPrecision(6)));
}

// A drawing begun anew: its scales, and what draws by them. `edge` is the room at the top, right, bottom and left.
function sketch(drawing, width, height, [top, right, bottom, left], [x0, x1], [y0, y1]) {
  const x = (value) => left + ((value - x0) / (x1 - x0)) * (width - left - right);
  const y = (value) => height - bottom - ((value - y0) / (y1 - y0)) * (height - top - bottom);
  const line = (points) => "M" + points.map(([a, b]) => `${x(a).toFixed(2)} ${y(b).toFixed(2)}`).join("L");
  const add = (tag, attributes, ...said) => {
    const element = make(tag, attributes, ...said);
    drawing.append(element);
    return element;
  };
  drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
  drawing.replaceChildren();
  return {
    x,
    y,
    path: (points, name) => add("path", { d: line(points), class: name }),
    dot: (a, b, name, r = 4.5) => add("circle", { cx: x(a), cy: y(b), r, class: name }),
    text: (px, py, said, anchor = "middle", name = "attn-tick") =>
      add("text", { x: px, y: py, "text-anchor": anchor, class: name }, said),
  };
}

