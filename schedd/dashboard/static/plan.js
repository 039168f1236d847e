// The chart of the plan: bars on the cpus of each node, and below it the cpus in use. The daemon sends the rows that
// are looked at, and all of them in short; what is looked at stands in the address.

import { Chart, colour, failed, shown } from "./charts.js";
import { Minimap } from "./minimap.js";
import { about, many, tip } from "./plan-about.js";
import { bands, layOut, loads, texts } from "./plan-bars.js";
import { ENDED, colourOf, finder, legend } from "./plan-legend.js";
import { keep, opened, query, toggle, view } from "./plan-view.js";
import { utc } from "./times.js";

const $ = (id) => document.getElementById(id);
const box = $("plan");
let chart, plan, bars, map, etag = "", asked = "", picked = null, first = true, fills = [];

const height = (rows) => (box.clientWidth < 560 ? 360 : Math.min(620, Math.max(260, 26 * rows + 40)));
const rowHigh = () => (height(plan.count) - 40) / Math.max(1, plan.count);
const at = (seconds) => shown((plan.base + seconds) * 1000);
const far = () => at(Math.max(plan.horizon * 3, 400 * 86400));

// ---- what is drawn ------------------------------------------------------------------------------------

function draw() {
  bars = layOut(plan, rowHigh() < 10, at);
  outline();
  paint();
  const end = far();
  const spans = { left: [], right: [], top: [], bottom: [] };
  const block = (into, row, from, to) => {
    into.left.push(from); into.right.push(to); into.top.push(row); into.bottom.push(row + 1);
  };
  plan.nodes.state.forEach((state, n) => { if (state !== "up") block(spans, plan.nodes.row[n], at(0), end); });
  chart.fill("rows_away", spans);
  const kept = { left: [], right: [], top: [], bottom: [] };
  for (const one of plan.reservations) {
    for (const n of one.nodes) block(kept, plan.nodes.row[n], at(one.start), one.end === null ? end : at(one.end));
  }
  chart.fill("reserved", kept);
  const steps = loads(plan, at);
  chart.fill("loads", { ...steps, fill: steps.left.map(() => colour("running")) });
  use();
  labels();
  groups();
  said();
  for (const model of chart.models) if (model.type === "Span") model.location = at(0);
}

function paint() {
  const by = colourOf(plan);
  const fits = finder(plan);
  const dim = colour("load0");
  fills = plan.jobs.start.map((_, j) => (fits(j) ? by.of(j) : dim));
  const { job, left, right, top, bottom } = bars;
  chart.fill("bars", { job, left, right, top, bottom, fill: job.map((j) => fills[j]) });
  pick(picked, false);
  marks();
  inBars();
}

function chooseName(name) {
  $("find").value = name;
  sought();
}

// Where each planned job's promise ends, of the picked job also the way to it; and when jobs are expected to start.
function marks() {
  const lines = { x: [], y0: [], y1: [] };
  const way = { x0: [], x1: [], y: [] };
  const { promised, state, start } = plan.jobs;
  const mark = (j) => {
    const place = bars.place.get(j);
    if (!place || promised[j] === null || state[j] === 0) return;
    lines.x.push(at(promised[j])); lines.y0.push(place[0]); lines.y1.push(place[1]);
    if (j === jobOf(picked)) { way.x0.push(at(start[j])); way.x1.push(at(promised[j])); way.y.push((place[0] + place[1]) / 2); }
  };
  if (view.marks) promised.forEach((_, j) => mark(j));
  else if (picked) mark(jobOf(picked));
  chart.fill("promises", lines);
  chart.fill("slack", way);
  const own = plan.users.indexOf(box.dataset.own);
  const banded = (j) => j === jobOf(picked) || (own >= 0 && plan.jobs.user[j] === own);
  const found = bands(plan, bars, banded, at);
  chart.fill("expected", found);
  legend(plan, colourOf(plan).legend, chooseName, { promised: lines.x.length > 0, way: way.y.length > 0, banded: found.left.length > 0 });
}

// Cpus in use from now on, of all nodes that fit.
function use() {
  const time = [], levels = [];
  let sum = 0;
  plan.use.time.forEach((moment, i) => {  // a step: the old level up to this moment, the new one from it on
    time.push(at(moment), at(moment));
    levels.push(sum, (sum = plan.use.used[i]));
  });
  chart.fill("use", { time, zero: levels.map(() => 0), cpus: levels });
  chart.fill("capacity", { time: [at(0), far()], cpus: [plan.capacity, plan.capacity] });
  chart.named("use_range").setv({ start: 0, end: Math.max(1, plan.capacity, ...plan.use.used) * 1.08 });
}

const short = (name) => (name.length > 9 ? `${name.slice(0, 8)}…` : name);

function labels() {
  for (const axis of chart.models) {
    if (axis.type !== "DatetimeAxis") continue;
    axis.ticker.desired_num_ticks = Math.max(4, Math.floor(box.clientWidth / 130));
    axis.formatter.days = box.clientWidth < 560 ? "%d %b" : "%a %d %b"; // a day must not touch the hours beside it
  }
  const high = height(plan.count);
  chart.named("chart").height = high;
  const each = Math.max(1, Math.ceil(plan.count / Math.max(1, Math.floor((high - 40) / 15))));
  const names = [
    ...plan.nodes.name.map((name, n) => [plan.nodes.row[n], name.length > 10 ? `…${name.slice(-9)}` : name]),
    ...plan.groups.map((group) => [group.row, `${group.open ? "▾" : "▸"} ${short(group.name.replace(`${view.group}=`, ""))}`]),
  ].filter(([row]) => row % each === 0 || plan.groups.some((group) => group.row === row));
  chart.named("row_ticks").ticks = names.map(([row]) => row + 0.5);
  chart.named("row_axis").major_label_overrides = new Map(names.map(([row, name]) => [row + 0.5, name]));
  chart.named("rows").setv({ start: Math.max(1, plan.count), end: 0 });
  const bar = $("rows-bar");
  const hidden = plan.rows <= plan.count;
  bar.hidden = hidden;
  if (!hidden) {
    bar.firstElementChild.style.height = `${Math.min(1e6, (bar.clientHeight || 500) * plan.rows / plan.count)}px`;
    placeBar();
  }
  inBars();
}

// The colour of a bar that is not selected, as it is painted over the card.
const FADED = 0.35; // as in bokeh_figures.py
const blends = new Map();
function faded(fill) {
  const card = colour("card");
  const key = fill + card;
  if (blends.has(key)) return blends.get(key);
  const [a, b] = [fill, card].map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  const mix = a.map((one, i) => Math.round(FADED * one + (1 - FADED) * b[i]).toString(16).padStart(2, "0"));
  blends.set(key, `#${mix.join("")}`);
  return blends.get(key);
}

// The texts in bars, of what is in sight now.
function inBars() {
  if (!bars) return;
  const times = chart.named("times");
  const { id, user } = plan.jobs;
  const fits = finder(plan);
  const of = (j) => {
    if (id[j] === null || !fits(j)) return []; // the labels of jobs that are dimmed would hide those that were found
    const number = id[j].split(".")[0];
    return [`${number} ${plan.users[user[j]]}`, number];
  };
  const chosen = jobOf(picked);
  const seen = chosen < 0 ? fills : fills.map((fill, j) => (j === chosen ? fill : faded(fill)));
  const found = texts(bars, of, seen, { start: times.start, end: times.end, now: at(0), wide: box.clientWidth - 84, rowHigh: rowHigh() });
  for (const [ink, columns] of Object.entries(found)) chart.fill(`${ink}_texts`, columns);
}

// Groups as buttons, for those who do not point at rows.
function groups() {
  $("groups").hidden = !plan.groups.length;
  const focused = document.activeElement?.dataset?.group;
  $("groups").replaceChildren(...plan.groups.map((group) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.group = group.name;
    button.setAttribute("aria-expanded", String(group.open));
    button.textContent = `${group.name}: ${group.nodes} ${group.nodes === 1 ? "node" : "nodes"}, ${group.cpus ? Math.round(100 * group.used[0] / group.cpus) : 0} % in use`;
    button.addEventListener("click", () => open(group.name));
    item.append(button);
    return item;
  }));
  if (focused !== undefined) [...$("groups").querySelectorAll("button")].find((one) => one.dataset.group === focused)?.focus();
}

function open(name) {
  toggle(name);
  look();
}

function said() {
  for (const one of [box, $("minimap")]) one.classList.toggle("unused", !plan.rows); // no axes around nothing
  const parts = [];
  if (!plan.all_nodes) parts.push("No nodes yet: the chart comes with the adapter's first snapshot");
  else if (!plan.matching) parts.push(`No node matches “${view.nodes}”. Try a name, n[001-020], a pattern such as gpu*, a property or a state.`);
  else parts.push(plan.matching < plan.all_nodes ? `${plan.matching.toLocaleString("en-GB")} of ${many(plan.all_nodes, "node", "nodes")}` : many(plan.all_nodes, "node", "nodes"));
  if (plan.rows > plan.count) parts.push(`rows ${plan.first + 1} to ${plan.first + plan.count} of ${plan.rows.toLocaleString("en-GB")}`);
  if (view.find && !plan.found.length) parts.push(`no job, user or queue matches “${view.find}”`);
  else if (view.find) parts.push(`${plan.found.length >= 500 ? "500 or more" : plan.found.length} matching ${plan.found.length === 1 ? "job" : "jobs"}`);
  if (plan.left_out) parts.push(`${many(plan.left_out, "job", "jobs")} that start later are not drawn`);
  $("said").textContent = parts.filter(Boolean).join(" · ");
}

// ---- what part is shown -------------------------------------------------------------------------------

const frame = () => {
  const times = chart.named("times");
  const whole = at(plan.horizon) - at(0);
  return {
    left: Math.max(0, (times.start - at(0)) / whole), right: Math.min(1, (times.end - at(0)) / whole),
    top: plan.first / Math.max(1, plan.rows), bottom: (plan.first + plan.count) / Math.max(1, plan.rows),
  };
};

let moving = 0, read = 0;
function moved() {
  // The texts go along with their bars; which of them are wide enough is looked at ten times a second.
  read ||= setTimeout(() => { read = 0; inBars(); }, 100);
  if (moving) return;
  moving = requestAnimationFrame(() => {
    moving = 0;
    map.look(frame());
    const times = chart.named("times");
    const [from, to] = [times.start, times.end].map((x) => Math.round((x - at(0)) / 1000) + plan.base);
    view.from = from;
    view.to = to;
    keep();
    for (const button of document.querySelectorAll("[data-hours]")) {
      const seconds = Number(button.dataset.hours) * 3600 || plan.horizon * 1.03;
      button.setAttribute("aria-pressed", String(Math.abs(to - plan.base - seconds) < 5 && Math.abs(plan.base - from - past(seconds)) < 5));
    }
  });
}

// A little of what was before, too: more of it where it is drawn.
const past = (seconds) => Math.round((plan.jobs.state.includes(ENDED) ? 0.12 : 0.04) * seconds);

function lookAt(seconds) {
  const to = seconds || plan.horizon * 1.03;
  chart.named("times").setv({ start: at(-past(to)), end: at(to) });
}

function zoom(factor) {
  const times = chart.named("times");
  const anchor = Math.min(Math.max(at(0), times.start), times.end);
  times.setv({ start: anchor - (anchor - times.start) * factor, end: anchor + (times.end - anchor) * factor });
}

function move(part) {
  const times = chart.named("times");
  const by = (times.end - times.start) * part;
  times.setv({ start: times.start + by, end: times.end + by });
}

function scroll(rows) {
  const to = Math.max(0, Math.min(view.first + rows, plan.rows - plan.count));
  if (to !== view.first) { view.first = to; look(); }
}

function zoomRows(factor) {
  const count = Math.max(4, Math.min(200, Math.round(view.count * factor)));
  if (count === view.count) return;
  view.first = Math.max(0, Math.round(plan.first + (plan.count - count) / 2));
  view.count = count;
  look();
}

let barAt = 0;
function placeBar() {
  const bar = $("rows-bar");
  const room = bar.scrollHeight - bar.clientHeight;
  barAt = Math.round(room * plan.first / Math.max(1, plan.rows - plan.count));
  bar.scrollTop = barAt;
  bar.setAttribute("aria-valuemax", Math.max(0, plan.rows - plan.count));
  bar.setAttribute("aria-valuenow", plan.first);
}

function chosen(part) {
  const whole = at(plan.horizon) - at(0);
  const [left, right] = [Math.max(-0.02, part.left), Math.max(part.left + 0.002, part.right)];
  chart.named("times").setv({ start: at(0) + left * whole, end: at(0) + right * whole });
  const rows = Math.max(4, Math.min(200, Math.round((part.bottom - part.top) * plan.rows)));
  if (plan.rows > 4) {
    view.count = rows;
    view.first = Math.max(0, Math.min(Math.round(part.top * plan.rows), plan.rows - rows));
  }
  look();
}

// ---- one job -------------------------------------------------------------------------------------------

const jobOf = (id) => (id === null ? -1 : plan.jobs.id.indexOf(id));

function pick(id, chosenByUser = true) {
  const j = jobOf(id);
  picked = j < 0 ? null : id;
  const chosen = [];
  if (j >= 0) bars.job.forEach((of, i) => { if (of === j) chosen.push(i); });
  chart.source("bars").selected.indices = chosen;
  if (!chosenByUser) return;
  view.job = picked ?? "";
  keep();
  marks();
  inBars();
  const line = $("picked");
  line.hidden = j < 0;
  if (j < 0) return;
  const link = document.createElement("a");
  link.href = box.dataset.jobs + encodeURIComponent(id);
  link.textContent = id;
  line.replaceChildren(link, `: ${about(plan, j).slice(1).join(" · ")}`);
}

function inSight(j) {
  const { start, length } = plan.jobs;
  const times = chart.named("times");
  const [from, to] = [at(start[j]), at(start[j] + length[j])];
  if (from > times.end || to < times.start) move((from - times.start) / (times.end - times.start) - 0.1);
}

// The next job that fits, by start, for those who do not point at bars; it may be on rows that are not shown.
async function next() {
  const { id, start } = plan.jobs;
  const fits = finder(plan);
  let found = plan.found;
  if (plan.found_for !== view.find) {
    found = [...bars.place.keys()].filter((j) => id[j] !== null && fits(j)).sort((a, b) => start[a] - start[b] || a - b).map((j) => [id[j]]);
  }
  if (!found.length) return pick(null);
  const to = found[(found.findIndex(([one]) => one === picked) + 1) % found.length][0];
  if (!bars.place.has(jobOf(to))) {
    view.job = to;
    await look();
  }
  const j = jobOf(to);
  if (j < 0) return pick(null);
  inSight(j);
  pick(to);
}

// Enter in the field Find, also before the plan is there: one step after the other.
let steps = Promise.resolve();
function findNext() {
  steps = steps.then(async () => {
    await drawn;
    clearTimeout(typing);
    if (plan.found_for !== view.find) await look();
    await next();
  }).catch(() => {});
}

// From six in the evening, or now, until eight in the morning by the reader's clock.
function tonight() {
  const now = new Date(plan.base * 1000);
  const clock = (days, hour) => {
    const day = new Date(now);
    if (utc) day.setUTCHours(hour + 24 * days, 0, 0, 0);
    else day.setHours(hour + 24 * days, 0, 0, 0);
    return day.getTime();
  };
  const night = (utc ? now.getUTCHours() : now.getHours()) < 8;
  const from = night ? now.getTime() : Math.max(now.getTime(), clock(0, 18));
  chart.named("times").setv({ start: shown(from - 600000), end: shown(clock(night ? 0 : 1, 8)) });
}

// ---- life ------------------------------------------------------------------------------------------------

// A large plan is drawn anew less often: a tenth of the time at most goes into that.
let due = 0, waiting = 0;
function follow() {
  if (waiting) return;
  waiting = setTimeout(async () => {
    waiting = 0;
    const began = Date.now();
    await load().catch(() => {});
    due = Date.now() + 9 * (Date.now() - began);
  }, Math.max(0, due - Date.now()));
}

// Asks for what is looked at by now, without waiting for news.
const look = () => load().catch((error) => { $("said").textContent = `The plan could not be read (${error.message}).`; });

let turn = 0, early = null;
async function load() {
  const mine = ++turn;
  const [question, find] = [query(), view.find];
  const headers = etag && asked === question ? { "If-None-Match": etag } : {};
  const answer = await (early ?? fetch(box.dataset.columns + question, { headers }));
  early = null;
  if (answer.status === 304 || answer.redirected || mine !== turn) return;
  if (!answer.ok) throw new Error(`the plan: ${answer.status}`);
  const before = plan?.base;
  const news = await answer.json();
  if (mine !== turn) return;
  [asked, etag, plan] = [question, answer.headers.get("ETag") ?? "", news];
  plan.found_for = find;
  view.first = plan.first;
  draw();
  if (first) begin();
  else if (plan.base !== before) move((at(0) - shown(before * 1000)) / (chart.named("times").end - chart.named("times").start));
  first = false;
  map.draw(plan.map, frame());
  keep();
  box.dataset.generation = plan.generation;
}

function begin() {
  if (view.from !== null && view.to > view.from) {
    chart.named("times").setv({ start: at(view.from - plan.base), end: at(view.to - plan.base) });
  } else lookAt(plan.horizon * 1.03 > 86400 ? 86400 : 0);
  if (!view.job) return;
  const j = jobOf(view.job);
  if (j < 0) { $("said").textContent += ` · ${view.job} has no place in the plan`; return; }
  inSight(j);
  pick(view.job);
}

function dress() {
  const [running, away, reserved, edge, ink] = ["running", "away", "reserved", "edge", "ink"].map(colour);
  const hatch = (name, of) => chart.glyph(name).setv({ fill_color: of, fill_alpha: 0.12, hatch_color: of, hatch_alpha: 0.7, line_color: of });
  hatch("away", away);
  hatch("reserved", reserved);
  hatch("expected", ink);
  chart.glyph("promises").line_color = ink;
  chart.glyph("slack").line_color = ink;
  chart.glyph("use").setv({ fill_color: running, fill_alpha: 0.35 });
  chart.glyph("use_edge").line_color = running;
  chart.glyph("capacity").line_color = edge;
  if (plan) { draw(); map.paint(); }
}

function outline() {
  const [card, ink] = [colour("card"), colour("ink")];
  const bare = rowHigh() < 10;
  for (const glyph of ["glyph", "nonselection_glyph", "selection_glyph"]) {
    const line = glyph === "selection_glyph" ? ink : bare ? null : card;
    chart.named("bars", "GlyphRenderer")[glyph]?.setv?.({ line_color: line });
  }
}

let typing = 0;
function sought() {
  view.find = $("find").value.trim();
  view.nodes = $("only").value.trim();
  $("mine")?.setAttribute("aria-pressed", String(view.find === box.dataset.own));
  paint();
  clearTimeout(typing);
  typing = setTimeout(() => { view.job = picked ?? ""; look(); }, 200);
}

function brushing(on) {
  const { toolbar } = chart.named("chart");
  toolbar.active_drag = toolbar.tools.find((tool) => tool.type === (on ? "BoxZoomTool" : "PanTool"));
  $("brush").setAttribute("aria-pressed", String(on));
}

function wire() {
  const typed = $("find").value.trim(); // while the plan was loaded
  for (const [id, name] of [["colour", "colour"], ["find", "find"], ["only", "nodes"], ["group", "group"]]) if ($(id)) $(id).value = view[name];
  if (typed && typed !== view.find) chooseName(typed);
  $("marks").checked = view.marks;
  $("marks").addEventListener("change", () => { view.marks = $("marks").checked; keep(); marks(); });
  $("mine")?.addEventListener("click", () => chooseName(view.find === box.dataset.own ? "" : box.dataset.own));
  $("tonight").addEventListener("click", tonight);
  $("colour").addEventListener("input", () => { view.colour = $("colour").value; keep(); paint(); });
  $("group")?.addEventListener("input", () => { Object.assign(view, { group: $("group").value, open: "", first: 0 }); look(); });
  $("find").addEventListener("input", sought);
  $("only").addEventListener("input", () => { view.first = 0; sought(); });
  for (const button of document.querySelectorAll("[data-hours]")) button.addEventListener("click", () => lookAt(Number(button.dataset.hours) * 3600));
  $("in").addEventListener("click", () => zoom(0.6));
  $("out").addEventListener("click", () => zoom(1 / 0.6));
  $("fewer").addEventListener("click", () => zoomRows(0.6));
  $("more").addEventListener("click", () => zoomRows(1 / 0.6));
  $("brush").addEventListener("click", () => brushing($("brush").getAttribute("aria-pressed") !== "true"));
  $("keys-open").addEventListener("click", () => $("keys").showModal());
  const page = () => Math.max(1, plan.count - 2);
  const keys = {
    ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15), ArrowUp: () => scroll(-1), ArrowDown: () => scroll(1),
    PageUp: () => scroll(-page()), PageDown: () => scroll(page()), Home: () => scroll(-plan.rows), End: () => scroll(plan.rows),
    "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), "[": () => zoomRows(0.6), "]": () => zoomRows(1 / 0.6),
    0: () => lookAt(0), b: () => $("brush").click(), f: () => $("find").focus(), n: () => $("only").focus(), Escape: () => pick(null),
  };
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") tip(plan, -1);
    if (event.key === "?" && !event.target.closest("input, select, textarea")) $("keys").showModal();
  });
  let scrolled = 0;
  $("rows-bar").addEventListener("scroll", () => {
    const bar = $("rows-bar");
    if (Math.abs(bar.scrollTop - barAt) < 2) return;
    clearTimeout(scrolled);
    scrolled = setTimeout(() => {
      const to = Math.round(bar.scrollTop / Math.max(1, bar.scrollHeight - bar.clientHeight) * (plan.rows - plan.count));
      if (to !== view.first) { view.first = to; look(); }
    }, 60);
  });
  pointing();
  const times = chart.named("times");
  times.properties.start.change.connect(moved);
  times.properties.end.change.connect(moved);
  document.addEventListener("schedd:shown", follow);
  addEventListener("resize", () => { labels(); map.paint(); });
  moved();
}

function pointing() {
  const source = chart.source("bars");
  let pointer = { x: 0, y: 0 };
  let over = -1;
  box.addEventListener("pointermove", (event) => { pointer = { x: event.clientX, y: event.clientY }; if (over >= 0) tip(plan, over, pointer); }, true);
  box.addEventListener("pointerleave", () => { over = -1; tip(plan, -1); });
  source.inspect.connect(() => {
    const [i] = source.inspected.indices;
    over = i === undefined ? -1 : source.data.job[i];
    tip(plan, over, pointer);
  });
  let busy = false;
  source.selected.properties.indices.change.connect(() => {
    if (busy) return;
    busy = true;
    const [i] = source.selected.indices;
    const id = i === undefined ? null : plan.jobs.id[source.data.job[i]];
    pick(id ?? null);
    busy = false;
  });
  const ofGroups = chart.source("loads");
  ofGroups.selected.properties.indices.change.connect(() => {
    const [i] = ofGroups.selected.indices;
    if (i === undefined) return;
    const name = plan.groups[ofGroups.data.group[i]].name;
    ofGroups.selected.indices = [];
    open(name);
  });
}

let ready;
const drawn = new Promise((resolve) => { ready = resolve; });
$("find").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); findNext(); } });

// The note stays over the empty chart until the plan is drawn.
const note = box.querySelector(".wait");
try {
  early = fetch(box.dataset.columns + query());
  early.catch(() => {}); // it is awaited below
  box.classList.add("loading");
  chart = await Chart.in(box);
  box.prepend(note);
  chart.redress = dress;
  map = new Minimap($("minimap"), chosen);
  dress();
  await load();
  wire();
  box.classList.remove("loading");
  note.remove();
  box.dataset.ready = "yes";
  ready();
} catch (error) {
  box.classList.remove("loading");
  failed(box, error);
}
