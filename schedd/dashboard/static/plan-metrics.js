// How the criteria of the plan went, as a line; how far off the published starts were, as points over time.

import { Chart, colour, failed, shown } from "./charts.js";

const APART_MS = 10000;
const LEAST_MS = 600_000;
const UNITS = { s: "hours", jobs: "jobs", 1: " " };

// ---- criteria over time -----------------------------------------------------------------------------

const worth = document.getElementById("worth");
const chosen = document.getElementById("criterion");
const back = document.getElementById("back");
const none = document.getElementById("worth-none");
let chart, found, asked = 0;

function draw() {
  const unit = found.units[chosen.value];
  const scale = unit === "s" ? 1 / 3600 : 1;
  const values = found.values[chosen.value];
  // Where there is no value the line has a gap.
  const time = found.time.map((moment) => shown(moment * 1000));
  const value = values.map((one) => (one === null ? NaN : one * scale));
  const known = value.filter((one) => !Number.isNaN(one));
  none.hidden = known.length > 0;
  worth.hidden = !known.length;
  worth.dataset.points = known.length;
  if (!known.length) return;
  chart.named("unit").axis_label = UNITS[unit];
  chart.span("x", time, LEAST_MS);
  chart.span("y", known);
  chart.fill("values", { time, value });
  // A search stands where the line is at its moment.
  const marks = found.searches.map((moment) => shown(moment * 1000)).filter((moment) => moment >= time[0] && moment <= time.at(-1));
  chart.fill("searches", { time: marks, value: marks.map((moment) => value[time.findLastIndex((one) => one <= moment)]) });
}

async function ask() {
  asked = Date.now();
  const answer = await fetch(`${worth.dataset.columns}?seconds=${back.value}`);
  if (!answer.ok) throw new Error(`what the plan was worth: ${answer.status}`);
  found = await answer.json();
  draw();
}

function dressWorth() {
  chart.glyph("values").line_color = colour("link");
  chart.glyph("points").setv({ fill_color: colour("link"), line_color: null });
  chart.glyph("searches").setv({ fill_color: colour("starting"), line_color: colour("card") });
}

try {
  chart = await Chart.in(worth);
  chart.redress = dressWorth;
  dressWorth();
  await ask();
  chart.letZoom("x", draw);
  chosen.addEventListener("change", () => { chart.zoomed = false; draw(); });
  back.addEventListener("change", () => { chart.zoomed = false; ask(); });
  document.addEventListener("schedd:shown", () => { if (Date.now() - asked > APART_MS) ask().catch(() => {}); });
  worth.dataset.ready = "yes";
} catch (error) {
  failed(worth, error);
}

// ---- published and actual starts -------------------------------------------------------------------------

const box = document.getElementById("errors");

function dressErrors(points) {
  points.glyph("errors").setv({ fill_color: colour("running"), line_color: null, fill_alpha: 0.45 });
  points.named("zero").line_color = colour("edge");
}

if (box) {
  try {
    const { start, published } = JSON.parse(document.getElementById("errors-data").textContent);
    const points = await Chart.in(box);
    points.redress = () => dressErrors(points);
    dressErrors(points);
    const late = start.map((actual, i) => (actual - published[i]) / 3600);
    const times = start.map((moment) => shown(moment * 1000));
    const spread = () => { points.span("x", times, LEAST_MS); points.span("y", [0, ...late]); };
    spread();
    points.fill("errors", { start: times, late });
    points.letZoom("x", spread);
    box.dataset.ready = "yes";
  } catch (error) {
    failed(box, error);
  }
}
