// The page at work: which setting is shown, which step, and what the keys and buttons do.
const find = (id) => document.getElementById(id);
const matrices = new Matrices(find("matrices"));
const SPEEDS = [1, 2, 4, 8, 15, 30, 60, 120, 240, 480, 960]; // steps a second
const LEVEL_COLOURS = ["var(--l1)", "var(--l2)", "var(--l3)"];

const state = { rung: null, blocks: {}, setting: null, step: 0, playing: false, speed: 3, moveCursor: () => {}, spoken: 0, asked: 0 };

const steps = () => state.setting.steps;
const lastStep = () => steps().length - 1;
const span = (from, to) => (to - from === 1 ? `${from}` : `${from}:${to}`);

/** Say a step in words. */
function stepWords(step) {
  const { columns } = steps();
  const at = (name) => columns[name][step];
  const i = span(at("i0"), at("i1")), j = span(at("j0"), at("j1")), p = span(at("p0"), at("p1"));
  if (at("kind") === 0) return `Pack A[${i}, ${p}] into Ã`;
  if (at("kind") === 1) return `Pack B[${p}, ${j}] into B̃`;
  if (at("p0") === at("p1")) return `C[${i}, ${j}] = 0`;
  if (!steps().kernel) return `C[${i}, ${j}] += A[${i}, ${p}] · B[${p}, ${j}]`;
  const calls = at("calls") > 1 ? `${grouped(at("calls"))} calls of the microkernel` : "Microkernel";
  return `${calls}: C[${i}, ${j}] += A[${i}, ${p}] · B[${p}, ${j}]`;
}

function showLoops() {
  const body = find("loops").tBodies[0];
  body.replaceChildren(
    ...steps().loops.map((loop, depth) => html("tr", {}, html("th", { scope: "row" }, loop.name), html("td", { class: "value", id: `loop-${depth}` }), html("td", { class: "note-cell" }, loop.what))),
  );
}

/** Write the numbers of one step. */
function showStep() {
  const data = steps(), { columns } = data, step = state.step;
  const at = (name) => columns[name][step];
  matrices.show(columns, step, data.terms);
  const words = stepWords(step);
  find("step-text").textContent = words;
  find("matrices-name").textContent = `A is ${data.m} by ${data.k}, B ${data.k} by ${data.n}, C ${data.m} by ${data.n}. ${words}`;
  data.loops.forEach((loop, depth) => {
    const where = loop.column ? at(loop.column) : -1;
    find(`loop-${depth}`).textContent = where < 0 ? `all ${loop.extent}` : `${where} of ${loop.extent} by ${loop.step}`;
  });
  showRegisters(data, at);
  showHeld(step);
  if (data.packs) {
    const held = { a0: at("a0"), a1: at("a1"), b0: at("b0"), b1: at("b1"), I0: at("I0"), J0: at("J0") };
    drawBuffers(find("buffers"), data.blocks, held);
    const a = data.blocks.half ? "A is read as it lies." : held.a1 > held.a0 ? `Ã holds rows ${held.a0}:${held.a1} of A.` : "Ã is empty.";
    find("buffers-text").textContent = `${held.b1 > held.b0 ? `B̃ holds columns ${held.b0}:${held.b1} of B` : "B̃ is empty"}; ${a}`;
    find("buffers-name").textContent = find("buffers-text").textContent;
  }
  showCounts(step);
  find("seek").value = step;
  find("seek").setAttribute("aria-valuetext", `step ${step + 1} of ${data.length}: ${words}`);
  find("position").textContent = `${grouped(step + 1)} / ${grouped(data.length)}`;
  state.moveCursor(step, lastStep());
  speak(words);
}

/** Tell readers that listen, at most every two seconds while playing. */
function speak(words) {
  const now = performance.now();
  if (state.playing && now - state.spoken < 2000) return;
  state.spoken = now;
  find("live").textContent = `Step ${state.step + 1} of ${steps().length}. ${words}`;
}

/** Show what the vector registers hold. */
function showRegisters(data, at) {
  const { kernel } = data, name = find("registers-name"), text = find("registers-text");
  find("registers").hidden = !kernel;
  if (!kernel) {
    text.textContent = "No tile: an element of A, one of B and a sum at a time.";
    return;
  }
  const multiplying = at("kind") === 2;
  const rows = multiplying ? Math.min(at("i1") - at("i0"), kernel.mr) : 0, wide = multiplying ? Math.min(at("j1") - at("j0"), kernel.nr) : 0;
  drawRegisters(find("registers"), kernel, rows, wide);
  const sums = kernel.chains > 1 ? `${rows} × ${wide} elements, ${kernel.chains} sums each` : `${rows} × ${wide} sums`;
  name.textContent = multiplying ? `${sums} in registers` : "No sums in registers while packing";
  const terms = at("calls") === 1 ? `while p goes from ${at("p0")} to ${at("p1") - 1}` : "at a time";
  text.textContent = `${multiplying ? `${sums} ${terms}.` : "No sums are held while packing."} Vector registers: ${kernel.register_account}.`;
}

const operandClass = (name) => ({ A: "a", B: "b", C: "c", "packed A": "a", "packed B": "b" })[name] || "other";
const operandName = (name) => ({ "packed A": "Ã", "packed B": "B̃" })[name] || name;

/** Fill the bars of the levels with the lines that the simulated caches hold after this step. */
function showHeld(step) {
  const { columns, levels, counted, resident } = steps();
  levels.forEach((level, number) => {
    const bar = find(`bar-${number}`), told = [];
    let used = 0;
    counted.operands.forEach((operand, index) => {
      const lines = resident[number][index][step];
      used += lines;
      bar.children[index].style.width = `${(100 * lines) / counted.lines[number]}%`;
      if (lines) told.push(`${operandName(operand)} ${grouped(lines)}`);
    });
    const full = `${grouped(used)} of ${grouped(counted.lines[number])} lines (${percent(used / counted.lines[number])})`;
    find(`used-${number}`).textContent = full;
    find(`held-${number}`).textContent = told.join(", ") || "nothing";
    bar.setAttribute("aria-label", `${level.name}: ${full}: ${told.join(", ")}`);
    const parts = level.parts.map((part) => `${part.what} ${bytesText(columns[part.column][step])} (${percent(columns[part.column][step] / part.of)}${level.shared > 1 ? " of a core’s part" : ""})`);
    find(`meant-${number}`).textContent = parts.length ? `Meant to stay: ${parts.join(", ")}` : "";
  });
}

function makeLevels() {
  const { levels, counted } = steps();
  find("levels").replaceChildren(
    ...levels.map((level, number) =>
      html("div", { class: "level" },
        html("div", { class: "name" }, html("strong", {}, `${level.name}, ${bytesText(level.bytes)}`), html("span", { id: `used-${number}` })),
        html("div", { class: "bar", role: "img", id: `bar-${number}` }, ...counted.operands.map((name) => html("div", { class: `${operandClass(name)} ${name.startsWith("packed") ? "packed-lines" : ""}` }))),
        html("div", { class: "told" }, html("span", { id: `held-${number}` }), html("span", { id: `meant-${number}` })),
      ),
    ),
  );
}

function makeCounts() {
  const { levels, operands } = steps().counted;
  const heads = levels.flatMap((name) => [`${name} hits`, `${name} misses`]);
  find("counts").tHead.replaceChildren(html("tr", {}, html("th", { scope: "col" }, "Operand"), ...heads.map((head) => html("th", { scope: "col" }, head))));
  find("counts").tBodies[0].replaceChildren(
    ...[...operands, "all"].map((name, operand) => html("tr", {}, html("th", { scope: "row" }, html("span", { class: `swatch ${operandClass(name)} ${name.startsWith("packed") ? "packed-lines" : ""}` }), operandName(name)), ...levels.flatMap((_, level) => [html("td", { id: `hits-${level}-${operand}` }), html("td", { id: `misses-${level}-${operand}` })]))),
  );
  const curves = levels.map((name, level) => ({ name, colour: LEVEL_COLOURS[level], values: sumOf(steps().misses[level]) }));
  state.moveCursor = drawCurve(find("curve"), curves);
  const total = (curve) => `${curve.name}: ${grouped(curve.values[curve.values.length - 1])} in all`;
  find("curve-legend").replaceChildren(...curves.map((curve, order) => html("li", {}, lineKey(order, curve.colour), total(curve))));
  find("curve-name").textContent = `Misses along the steps. ${curves.map(total).join("; ")}`;
}

const sumOf = (lists) => Array.from(lists[0] || [], (_, step) => lists.reduce((sum, list) => sum + list[step], 0));

function showCounts(step) {
  const data = steps();
  data.counted.levels.forEach((_, level) => {
    let hits = 0, misses = 0;
    data.counted.operands.forEach((_, operand) => {
      const hit = data.hits[level][operand][step], miss = data.misses[level][operand][step];
      hits += hit;
      misses += miss;
      find(`hits-${level}-${operand}`).textContent = grouped(hit);
      find(`misses-${level}-${operand}`).textContent = grouped(miss);
    });
    find(`hits-${level}-${data.counted.operands.length}`).textContent = grouped(hits);
    find(`misses-${level}-${data.counted.operands.length}`).textContent = grouped(misses);
  });
  find("counts-caption").textContent = `Up to step ${grouped(step + 1)} of ${grouped(data.length)}`;
}

/** Move to a step, if there is one. */
function seek(step) {
  state.step = Math.max(0, Math.min(lastStep(), step));
  showStep();
}

/** Move to the next place where packing begins or a block changes, or back to the one before. */
function seekBlock(direction) {
  const marks = steps().marks;
  const next = direction > 0 ? marks.find((mark) => mark > state.step) : marks.findLast((mark) => mark < state.step);
  seek(next ?? (direction > 0 ? lastStep() : 0));
}

function setPlaying(playing) {
  if (playing && state.step === lastStep()) seek(0);
  state.playing = playing;
  find("play").querySelector("path").setAttribute("d", playing ? "M6 4h4v16H6zM14 4h4v16h-4z" : "M7 4v16l13-8z");
  find("play").setAttribute("aria-label", playing ? "Pause" : "Play");
  if (playing) {
    let before = performance.now(), due = 0;
    const tick = (now) => {
      if (!state.playing) return;
      due += ((now - before) * SPEEDS[state.speed]) / 1000;
      before = now;
      const whole = Math.floor(due);
      due -= whole;
      if (whole) seek(state.step + whole);
      if (state.step === lastStep()) setPlaying(false);
      else requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  } else speak(stepWords(state.step));
}

function setSpeed(speed) {
  state.speed = Math.max(0, Math.min(SPEEDS.length - 1, speed));
  find("speed").value = state.speed;
  find("speed").setAttribute("aria-valuetext", `${SPEEDS[state.speed]} steps a second`);
  find("speed-text").textContent = `${SPEEDS[state.speed]} steps/s`;
}
