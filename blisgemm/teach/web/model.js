// The recorded steps: what Python computed, unpacked. Knows: the form of the model. Does not know: how anything is drawn.
// No loop and no cache is worked out here: a step's numbers are looked up.
"use strict";

const model = JSON.parse(document.getElementById("model").textContent);

/** Undo base64 and gzip of one setting's JSON. */
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(plain).text());
}

/** Turn differences into running sums, in place. */
function running(differences) {
  let sum = 0;
  for (let index = 0; index < differences.length; index++) differences[index] = sum += differences[index];
  return differences;
}

/** Return the name under which a setting is kept: the order of access, and the blocks where it has any. */
function settingKey(rung, blocks) {
  return [rung.key, ...rung.axes.map((axis) => blocks[axis])].join(" ");
}

const settings = new Map(model.settings.map((setting) => [setting.key, setting]));

/** Return a setting with its steps, from this page or, where it was served, from the server that made it. */
async function loadSetting(rung, blocks) {
  const key = settingKey(rung, blocks);
  let setting = settings.get(key);
  if (!setting && model.served) {
    const query = new URLSearchParams({ rung: rung.key });
    for (const axis of rung.axes) query.set(axis, blocks[axis]);
    const answer = await fetch(`setting?${query}`);
    setting = await answer.json();
    if (!answer.ok) throw new Error(setting.error);
    settings.set(key, setting);
  }
  if (!setting) throw new Error(`no steps were recorded for ${key}`);
  if (!setting.steps) {
    const data = await unpack(setting.data);
    for (const part of ["hits", "misses", "resident"]) data[part].forEach((level) => level.forEach(running));
    for (const name of data.differences) running(data.columns[name]);
    setting.steps = data;
  }
  return setting;
}

/** Write a number with separators, as the page does everywhere. */
const grouped = (value) => Math.round(value).toLocaleString("en-US");

/** Write bytes in the unit that people use for them. */
function bytesText(count) {
  if (count >= 2 ** 20) return `${+(count / 2 ** 20).toPrecision(4)} MiB`;
  return count >= 2 ** 10 ? `${+(count / 2 ** 10).toPrecision(4)} KiB` : `${count} bytes`;
}

/** Write a share as a percentage. */
const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
