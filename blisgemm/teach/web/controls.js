// The choices: order of access, blocks, keys. Knows: which settings there are. Does not know: what a step shows.

/** Show the setting that is chosen now, at the same part of its way. */
async function choose(restart = false) {
  const asked = ++state.asked;
  const share = state.setting && !restart ? state.step / Math.max(1, lastStep()) : 0;
  let setting;
  try {
    setting = await loadSetting(state.rung, state.blocks);
  } catch (error) {
    find("failure").textContent = `This setting cannot be shown: ${error.message}`;
    return;
  }
  if (asked !== state.asked) return; // another choice came meanwhile
  find("failure").textContent = "";
  state.setting = setting;
  const data = steps();
  matrices.start(data);
  showLoops();
  makeLevels();
  makeCounts();
  showBlocks();
  find("packed").hidden = !data.packs;
  find("seek").max = lastStep();
  find("notes").textContent = data.notes.join(" ");
  find("notes").hidden = !data.notes.length;
  showCompare();
  seek(Math.round(share * lastStep()));
  document.body.dataset.setting = setting.key;
}

/** Return the setting of an order of access that goes with the blocks set now, if it is known. */
const settingOf = (rung) => settings.get(settingKey(rung, state.blocks));

function showCompare() {
  const levels = steps().counted.levels;
  find("compare").tHead.replaceChildren(html("tr", {}, html("th", { scope: "col" }, "Order"), html("th", { scope: "col" }, "steps"), ...levels.map((name) => html("th", { scope: "col" }, `${name} misses`)), html("th", { scope: "col" }, "to and from memory")));
  find("compare").tBodies[0].replaceChildren(
    ...model.rungs.map((rung) => {
      const setting = settingOf(rung);
      const cells = setting ? [grouped(setting.steps_count), ...setting.totals.map(grouped), bytesText(setting.memory_bytes)] : [...levels, "", ""].map(() => "…");
      return html("tr", rung === state.rung ? { class: "current" } : {}, html("th", { scope: "row" }, rung.name), ...cells.map((cell, index) => html("td", { id: `total-${rung.key}-${index}` }, cell)));
    }),
  );
}

/** Write the blocks that the loops really go by: mc and nc in whole micro-panels, none larger than the matrix asks for. */
function showBlocks() {
  for (const axis of model.axes) {
    const chosen = state.blocks[axis.name], real = state.rung.axes.includes(axis.name) ? steps().blocks[axis.name] : chosen;
    find(`value-${axis.name}`).textContent = real;
    find(`slider-${axis.name}`).setAttribute("aria-valuetext", `${axis.name} ${real}`);
  }
}

function chooseRung(rung) {
  state.rung = rung;
  for (const button of find("rungs").children) button.setAttribute("aria-pressed", String(button.dataset.rung === rung.key));
  find("rung-idea").textContent = rung.idea;
  for (const axis of model.axes) find(`slider-${axis.name}`).disabled = !rung.axes.includes(axis.name) || axis.values.length < 2;
  find("sliders-note").textContent = rung.axes.length ? model.sliders_note : "This order has no blocks to choose.";
  return choose();
}

function makeSliders() {
  for (const axis of model.axes) {
    state.blocks[axis.name] = axis.values[axis.start];
    const slider = html("input", { type: "range", id: `slider-${axis.name}`, min: 0, max: axis.values.length - 1, step: 1, value: axis.start });
    const output = html("output", { id: `value-${axis.name}`, for: slider.id });
    slider.addEventListener("input", () => {
      state.blocks[axis.name] = axis.values[slider.value];
      choose();
    });
    const label = html("label", { for: slider.id }, axis.name, " ");
    label.append(html("span", {}, axis.what));
    find("sliders").append(label, slider, output);
  }
}

/** Keys, wherever the focus does not use them itself. */
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || find("help").open) return;
  const target = event.target;
  const owns = { ArrowLeft: "range", ArrowRight: "range", Home: "range", End: "range", PageUp: "range", PageDown: "range", " ": "button" };
  const ownsKey = owns[event.key] === "range" ? target.type === "range" && target.id !== "seek" : owns[event.key] === "button" && (target.localName === "button" || target.localName === "a");
  if (ownsKey) return;
  const actions = {
    " ": () => setPlaying(!state.playing),
    ArrowRight: () => seek(state.step + 1),
    ArrowLeft: () => seek(state.step - 1),
    PageDown: () => seekBlock(1),
    PageUp: () => seekBlock(-1),
    Home: () => seek(0),
    End: () => seek(lastStep()),
    "+": () => setSpeed(state.speed + 1),
    "-": () => setSpeed(state.speed - 1),
    "?": () => find("help").showModal(),
  };
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
}

function start() {
  find("subtitle").textContent = model.subtitle;
  find("source").textContent = model.source;
  for (const rung of model.rungs) {
    const button = html("button", { type: "button", "data-rung": rung.key, "aria-pressed": "false" }, rung.name);
    button.addEventListener("click", () => chooseRung(rung));
    find("rungs").append(button);
  }
  makeSliders();
  const clicks = { first: () => seek(0), last: () => seek(lastStep()), back: () => seek(state.step - 1), forward: () => seek(state.step + 1), "block-back": () => seekBlock(-1), "block-forward": () => seekBlock(1), play: () => setPlaying(!state.playing), "help-open": () => find("help").showModal() };
  for (const [id, action] of Object.entries(clicks)) find(id).addEventListener("click", action);
  find("seek").addEventListener("input", () => seek(Number(find("seek").value)));
  find("speed").max = SPEEDS.length - 1;
  find("speed").addEventListener("input", () => setSpeed(Number(find("speed").value)));
  setSpeed(state.speed);
  document.addEventListener("keydown", onKey);
  return chooseRung(model.rungs.find((rung) => rung.key === model.start));
}

const fail = (words) => (find("failure").textContent = `The page has failed: ${words}`);
window.addEventListener("error", (event) => fail(event.message));
window.addEventListener("unhandledrejection", (event) => fail(event.reason.message));
start().then(() => (document.body.dataset.ready = "yes"));
