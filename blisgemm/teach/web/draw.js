// Pictures in SVG: matrices, registers, packed buffers, curves. Knows: rectangles. Does not know: what comes next.
const SVG = "http://www.w3.org/2000/svg";

/** Make an SVG element. */
function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Make an HTML element. */
function html(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Empty a drawing but for its name, and set its size. */
function clean(svg, width, height) {
  const name = svg.querySelector("title");
  svg.replaceChildren(name);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
}

const place = (element, x, y, width, height) => {
  for (const [key, value] of Object.entries({ x, y, width: Math.max(0, width), height: Math.max(0, height) })) element.setAttribute(key, value);
};

/** Stripes for what is being packed, one pattern an operand. */
function stripes(letter) {
  const pattern = shape("pattern", { id: `stripes-${letter}`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)", class: letter });
  pattern.append(shape("line", { x1: 1.5, y1: 0, x2: 1.5, y2: 6, class: "packing", "stroke-width": 3 }));
  return pattern;
}

const LAYERS = 8;

/** The three matrices, B above C and A to its left, so that rows and columns meet. */
class Matrices {
  constructor(svg) {
    this.svg = svg;
  }

  /** Draw what stays: the matrices, the cuts between blocks. */
  start(facts) {
    const { m, n, k, cuts } = facts;
    const room = 480, gap = 34, left = 26, top = 24;
    const scale = (room - gap) / Math.max(k + n, k + m);
    this.scale = scale;
    this.at = { a: [left, top + k * scale + gap], b: [left + k * scale + gap, top], c: [left + k * scale + gap, top + k * scale + gap] };
    this.size = { a: [k, m], b: [n, k], c: [n, m] };
    this.svg.parentElement.classList.toggle("corner", Math.min(k / (k + n), k / (k + m)) > 0.4);
    clean(this.svg, left + (k + n) * scale + gap + 4, top + (k + m) * scale + gap + 6);
    const defs = shape("defs", {});
    defs.append(...["a", "b"].map(stripes));
    this.svg.append(defs);
    this.parts = {};
    for (const letter of ["a", "b", "c"]) {
      const [x, y] = this.at[letter], [columns, rows] = this.size[letter];
      const group = shape("g", { class: letter });
      group.append(shape("rect", { x, y, width: columns * scale, height: rows * scale, class: "whole" }));
      this.parts[`${letter}-done`] = shape("g", {});
      group.append(this.parts[`${letter}-done`]);
      const [across, down] = { a: ["p", "i"], b: ["j", "p"], c: ["j", "i"] }[letter];
      let lines = "";
      for (let at = cuts[across]; cuts[across] && at < columns; at += cuts[across]) lines += `M${x + at * scale},${y}v${rows * scale}`;
      for (let at = cuts[down]; cuts[down] && at < rows; at += cuts[down]) lines += `M${x},${y + at * scale}h${columns * scale}`;
      group.append(shape("path", { d: lines, class: "cuts", "stroke-width": 1 }));
      for (const role of ["block", "now"]) group.append((this.parts[`${letter}-${role}`] = shape("rect", { class: role })));
      const name = `${letter.toUpperCase()}  ${rows} × ${columns}`;
      group.append(shape("text", { x, y: y - 7, "font-size": 15, "font-weight": 600 }, name));
      this.svg.append(group);
    }
    const [ax, ay] = this.at.a, [bx, by] = this.at.b;
    this.svg.append(
      shape("text", { x: ax - 16, y: ay + 14, "font-size": 14, class: "soft" }, "i"),
      shape("text", { x: bx - 16, y: by + 14, "font-size": 14, class: "soft" }, "p"),
    );
    this.passes = new Map();
    this.drawn = -1;
  }

  /** Place one rectangle, in elements; none where it is empty. */
  put(part, letter, row, rowEnd, column, columnEnd, least = 0) {
    const [x, y] = this.at[letter], s = this.scale;
    const empty = row >= rowEnd || column >= columnEnd;
    const least_ = empty ? 0 : least;
    place(this.parts[part], x + column * s, y + row * s, empty ? 0 : Math.max(least_, (columnEnd - column) * s), empty ? 0 : Math.max(least_, (rowEnd - row) * s));
  }

  /** Shade what C has got so far, in up to LAYERS layers along p: C darkens as its sums grow. */
  shade(columns, step, terms) {
    if (step < this.drawn) {
      this.parts["c-done"].replaceChildren();
      this.passes.clear();
      this.drawn = -1;
    }
    const [x, y] = this.at.c, s = this.scale;
    const changed = new Set();
    for (let index = this.drawn + 1; index <= step; index++) {
      if (columns.kind[index] !== 2) continue;
      const layer = Math.floor((LAYERS * columns.p0[index]) / terms);
      if (!this.passes.has(layer)) {
        const share = Math.max(1 / LAYERS, (columns.p1[index] - columns.p0[index]) / terms);
        const path = shape("path", { class: "done", "fill-opacity": 0.5 * share });
        this.parts["c-done"].append(path);
        this.passes.set(layer, { path, d: "" });
      }
      const pass = this.passes.get(layer);
      pass.d += `M${x + columns.j0[index] * s},${y + columns.i0[index] * s}h${(columns.j1[index] - columns.j0[index]) * s}v${(columns.i1[index] - columns.i0[index]) * s}h${(columns.j0[index] - columns.j1[index]) * s}z`;
      changed.add(pass);
    }
    for (const pass of changed) pass.path.setAttribute("d", pass.d);
    this.drawn = step;
  }

  /** Show one step. */
  show(columns, step, terms) {
    const at = (name) => columns[name][step];
    this.put("a-block", "a", at("I0"), at("I1"), at("P0"), at("P1"));
    this.put("b-block", "b", at("P0"), at("P1"), at("J0"), at("J1"));
    this.put("c-block", "c", at("I0"), at("I1"), at("J0"), at("J1"));
    const kind = at("kind");
    for (const letter of ["a", "b"]) this.parts[`${letter}-now`].setAttribute("style", kind < 2 ? `fill:url(#stripes-${letter})` : "");
    this.put("a-now", "a", at("i0"), at("i1"), at("p0"), kind === 1 ? at("p0") : at("p1"), 1.5);
    this.put("b-now", "b", at("p0"), at("p1"), at("j0"), kind === 0 ? at("j0") : at("j1"), 1.5);
    this.put("c-now", "c", at("i0"), at("i1"), at("j0"), kind < 2 ? at("j0") : at("j1"), 1.5);
    this.shade(columns, step, terms);
  }
}

/** Draw the vector registers: sums of the micro-tile, the row of B above them, the broadcast of A beside. */
function drawRegisters(svg, kernel, rows, columns) {
  const { mr, nr, lanes, row_vectors: vectors } = kernel;
  const cell = Math.max(5, Math.min(18, 400 / (nr + 3))), tall = Math.max(7, Math.min(18, 170 / mr)), gap = 5;
  const x0 = cell + 14, y0 = tall + 10;
  clean(svg, Math.max(420, x0 + nr * cell + vectors * gap + 2), y0 + mr * (tall + 2) + 2);
  const lane = (x, y, letter, on, height = tall) => shape("rect", { x, y, width: cell - 1, height, rx: 1, class: letter, fill: on ? "var(--own)" : "none", stroke: on ? "var(--own)" : "var(--edge)" });
  for (let j = 0; j < nr; j++) {
    const x = x0 + j * cell + Math.floor(j / lanes) * gap;
    svg.append(lane(x, 1, "b", j < columns));
    for (let i = 0; i < mr; i++) svg.append(lane(x, y0 + i * (tall + 2), "c", i < rows && j < columns));
  }
  for (let i = 0; i < mr; i++) svg.append(lane(1, y0 + i * (tall + 2), "a", i < rows));
}

/** Draw the packed buffers with what has been put into them: micro-panels side by side. */
function drawBuffers(svg, facts, held) {
  const { mr, nr, mc, nc, kc, half } = facts;
  const rows = [["b", nc, nr, held.b0, held.b1, held.J0], ["a", mc, mr, held.a0, held.a1, held.I0]].slice(0, half ? 1 : 2);
  const longest = Math.max(...rows.map((row) => row[1])), wide = 420, scale = (wide - 26) / longest;
  const tall = 30;
  clean(svg, wide, rows.length * (tall + 8));
  rows.forEach(([letter, extent, step, from, to, base], index) => {
    const y = index * (tall + 8) + 1;
    svg.append(shape("text", { x: 0, y: y + 20, "font-size": 15, "font-weight": 600 }, letter === "a" ? "Ã" : "B̃"));
    for (let at = 0; at < extent; at += step) {
      const width = Math.min(step, extent - at) * scale;
      const filled = Math.max(0, Math.min(to - base, at + step) - Math.max(from - base, at));
      const group = shape("g", { class: letter });
      const gap = width > 4 ? 1 : 0;
      group.append(shape("rect", { x: 26 + at * scale, y, width: width - gap, height: tall, class: "whole", "stroke-width": gap ? 1 : 0 }));
      if (filled > 0) group.append(shape("rect", { x: 26 + at * scale, y, width: Math.min(filled * scale, width - gap), height: tall, fill: "var(--own)" }));
      svg.append(group);
    }
  });
}

const DASHES = ["none", "8 4", "2 3"];

/** A short piece of a chart's line, for its legend. */
function lineKey(order, colour) {
  const key = shape("svg", { viewBox: "0 0 28 8", class: "line-key", "aria-hidden": "true" });
  key.append(shape("line", { x1: 0, x2: 28, y1: 4, y2: 4, stroke: colour, "stroke-width": 2.5, "stroke-dasharray": DASHES[order] }));
  return key;
}

/** Draw misses so far against the steps, one line a level, each to its own height, and where we are. */
function drawCurve(svg, curves) {
  const wide = 600, tall = 120;
  clean(svg, wide, tall);
  svg.append(shape("path", { d: `M0,${tall}H${wide}M0,0V${tall}`, stroke: "var(--edge)", fill: "none" }));
  curves.forEach(({ values, colour }, order) => {
    const top = Math.max(1, values[values.length - 1]), last = Math.max(1, values.length - 1);
    const stride = Math.max(1, Math.floor(values.length / 600));
    let d = "";
    for (let index = 0; index < values.length; index += stride) d += `${d ? "L" : "M"}${((index / last) * wide).toFixed(1)},${(tall - (values[index] / top) * (tall - 4)).toFixed(1)}`;
    d += `L${wide},${(tall - (values[values.length - 1] / top) * (tall - 4)).toFixed(1)}`;
    svg.append(shape("path", { d, fill: "none", stroke: colour, "stroke-width": 2, "vector-effect": "non-scaling-stroke", "stroke-dasharray": DASHES[order] }));
  });
  const cursor = shape("line", { x1: 0, x2: 0, y1: 0, y2: tall, class: "cursor", "stroke-width": 1.5 });
  svg.append(cursor);
  return (step, last) => {
    const x = last ? (step / last) * wide : 0;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
  };
}
