// The chart of the plan: bars on the cpus of each node, and below it the cpus in use.

import { Chart, colour, failed, shown, unshown } from "./charts.js";
import { lanes } from "./lanes.js";
import { span, words, zone } from "./times.js";

const PALETTE = ["#3b7fb8", "#d98c3f", "#4a9e6b", "#b45a8a", "#8a7cc2", "#a8873a", "#4fa5ad", "#c0605c", "#6f8f3d", "#7d8794"];
const SLACKS = [["late", "promise at risk"], [900, "under 15 min"], [7200, "under 2 h"], [Infinity, "2 h and more"], [null, "no promise"]];
const STATES = ["running", "starting", "planned"];
const HIDDEN = "another user's job";
const GAP = 0.08;
const $ = (id) => document.getElementById(id);
const box = $("plan");
let chart, plan, bars, etag = "", picked = null, first = true;

// ---- from columns to bars ---------------------------------------------------------------------------

function layOut() {
  const wanted = $("only").value.trim().toLowerCase();
  const rows = plan.nodes.name.map((name, i) => (name.toLowerCase().includes(wanted) ? i : -1)).filter((i) => i >= 0);
  const row = new Map(rows.map((node, i) => [node, i]));
  const perNode = new Map(rows.map((node) => [node, []]));
  const { job, node, cpus } = plan.shares;
  for (let i = 0; i < job.length; i++) perNode.get(node[i])?.push([job[i], cpus[i]]);
  const gap = thin(rows.length) ? 0 : GAP;
  const boxes = new Map();
  const { start, length } = plan.jobs;
  for (const [node, shares] of perNode) {
    const r = row.get(node);
    const size = plan.nodes.cpus[node];
    const unit = (1 - 2 * gap) / Math.max(1, size);
    const runs = lanes(shares.map(([j, c]) => [start[j], start[j] + length[j], c]), size);
    shares.forEach(([j], i) => {
      let of = boxes.get(j);
      if (!of) boxes.set(j, (of = []));
      for (const [a, b] of runs[i]) {
        const top = r + gap + a * unit;
        const last = of.at(-1);
        // What touches is one bar: there are far fewer to draw.
        if (last && Math.abs(last[1] - top) < 1e-9) last[1] = r + gap + b * unit;
        else of.push([top, r + gap + b * unit]);
      }
    });
  }
  const out = { job: [], left: [], right: [], top: [], bottom: [] };
  for (const [j, all] of boxes) {
    for (const [top, bottom] of all) {
      out.job.push(j);
      out.left.push(at(start[j]));
      out.right.push(at(start[j] + length[j]));
      out.top.push(top);
      out.bottom.push(bottom);
    }
  }
  const place = new Map([...boxes].filter(([, all]) => all.length).map(([j, all]) => [j, all[0]]));
  bars = { ...out, rows, row, place };
}

// Rows of few pixels touch each other and have no outlines.
const height = (rows) => (box.clientWidth < 560 ? 360 : Math.min(620, Math.max(260, 26 * rows + 40)));
const thin = (rows) => (height(rows) - 40) / Math.max(1, rows) < 10;

const at = (seconds) => shown((plan.base + seconds) * 1000);

function draw() {
  layOut();
  outline();
  paint();
  const { rows, row } = bars;
  const end = at(Math.max(horizon() * 3, 400 * 86400));
  const spans = { left: [], right: [], top: [], bottom: [] };
  const block = (into, node, from, to) => {
    if (!row.has(node)) return;
    into.left.push(from); into.right.push(to); into.top.push(row.get(node)); into.bottom.push(row.get(node) + 1);
  };
  plan.nodes.state.forEach((state, node) => { if (state !== "up") block(spans, node, at(0), end); });
  chart.fill("rows_away", spans);
  const kept = { left: [], right: [], top: [], bottom: [] };
  for (const one of plan.reservations) {
    for (const node of one.nodes) block(kept, node, at(one.start), one.end === null ? end : at(one.end));
  }
  chart.fill("reserved", kept);
  marks();
  use();
  labels();
  for (const model of chart.models) if (model.type === "Span") model.location = at(0);
  const count = plan.left_out;
  $("left-out").textContent = count ? `${count} jobs that start later are not drawn.` : "";
}

function paint() {
  const colours = colourOf();
  const fits = finder();
  const dim = colour("load0");
  const fill = plan.jobs.start.map((_, j) => (fits(j) ? colours.of(j) : dim));
  const { job, left, right, top, bottom } = bars;
  chart.fill("bars", { job, left, right, top, bottom, fill: job.map((j) => fill[j]) });
  legend(colours.legend);
  pick(picked, false);
}

// Whether a job fits what is to be found.
function finder() {
  const find = $("find").value.trim().toLowerCase();
  const { id, user, queue } = plan.jobs;
  return (j) => !find || [id[j], plan.users[user[j]], plan.queues[queue[j]]].some((text) => text?.toLowerCase().includes(find));
}

function colourOf() {
  const { state, user, queue, start, promised } = plan.jobs;
  const by = $("colour").value;
  if (by === "state") {
    const known = STATES.map(colour);
    return { of: (j) => known[state[j]], legend: STATES.map((name, i) => [known[i], name]) };
  }
  if (by === "slack") {
    const ramp = [colour("bad"), "#d98c3f", "#c9b458", "#4a9e8a", colour("edge")];
    const level = (j) => {
      if (promised[j] === null || state[j] === 0) return 4;
      const left = promised[j] - start[j];
      return left < 0 ? 0 : left < 900 ? 1 : left < 7200 ? 2 : 3;
    };
    return { of: (j) => ramp[level(j)], legend: ramp.map((c, i) => [c, SLACKS[i][1]]) };
  }
  const [of, names] = by === "user" ? [user, plan.users] : [queue, plan.queues];
  const load = new Map();
  of.forEach((n) => { if (n !== null) load.set(n, (load.get(n) ?? 0) + 1); });
  const most = [...load.keys()].sort((a, b) => load.get(b) - load.get(a)).slice(0, PALETTE.length - 1);
  const chosen = new Map(most.map((n, i) => [n, PALETTE[i]]));
  const rest = PALETTE.at(-1);
  const legend = most.map((n) => [chosen.get(n), names[n]]);
  if (load.size > most.length) legend.push([rest, "others"]);
  if (of.includes(null)) legend.push([colour("edge"), "of other users"]);
  return { of: (j) => (of[j] === null ? colour("edge") : chosen.get(of[j]) ?? rest), legend };
}

function legend(entries) {
  const more = [];
  if (plan.nodes.state.some((state) => state !== "up")) more.push([colour("away"), "down or draining", true]);
  if (plan.reservations.length) more.push([colour("reserved"), "reserved", true]);
  if ($("marks").checked) more.push([colour("ink"), "promised: no later than", false, true]);
  $("legend").replaceChildren(...[...entries, ...more].map(([fill, text, hatched, mark]) => {
    const item = document.createElement("li");
    const sign = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    sign.setAttribute("aria-hidden", "true");
    const shape = document.createElementNS(sign.namespaceURI, hatched ? "path" : "rect");
    if (hatched) { shape.setAttribute("d", "M0 12L12 0M-4 6L6 -4M4 16L18 2"); shape.setAttribute("stroke", fill); }
    else { shape.setAttribute("width", mark ? 3 : 14); shape.setAttribute("x", mark ? 6 : 0); shape.setAttribute("height", 12); shape.setAttribute("fill", fill); }
    sign.append(shape);
    item.append(sign, text);
    return item;
  }));
}

// Where each planned job's promise ends; of the picked job also the way to it.
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
  if ($("marks").checked) promised.forEach((_, j) => mark(j));
  else if (picked) mark(jobOf(picked));
  chart.fill("promises", lines);
  chart.fill("slack", way);
}

// Cpus in use from now on: what starts and ends, added up.
function use() {
  const change = new Map([[0, 0]]);
  const { job, node, cpus } = plan.shares;
  const { start, length } = plan.jobs;
  job.forEach((j, i) => {
    if (!bars.row.has(node[i])) return;
    const from = Math.max(0, start[j]);
    change.set(from, (change.get(from) ?? 0) + cpus[i]);
    const to = start[j] + length[j];
    change.set(to, (change.get(to) ?? 0) - cpus[i]);
  });
  const moments = [...change.keys()].sort((a, b) => a - b);
  let sum = 0;
  const time = [], levels = [];
  for (const moment of moments) {  // a step: the old level up to this moment, the new one from it on
    time.push(at(moment), at(moment));
    levels.push(sum, (sum += change.get(moment)));
  }
  const all = bars.rows.reduce((n, i) => n + (plan.nodes.state[i] === "up" ? plan.nodes.cpus[i] : 0), 0);
  chart.fill("use", { time, zero: levels.map(() => 0), cpus: levels });
  chart.fill("capacity", { time: [at(0), at(Math.max(horizon() * 3, 400 * 86400))], cpus: [all, all] });
  chart.named("use_range").setv({ start: 0, end: Math.max(1, all, ...levels) * 1.08 });
}

function labels() {
  const { rows } = bars;
  for (const axis of chart.models) {
    if (axis.type === "DatetimeAxis") axis.ticker.desired_num_ticks = Math.max(4, Math.floor(box.clientWidth / 130));
  }
  const high = height(rows.length);
  const figure = chart.named("chart");
  figure.height = high;
  const each = Math.max(1, Math.ceil(rows.length / Math.max(1, Math.floor((high - 40) / 15))));
  const shownRows = rows.map((node, i) => [i + 0.5, plan.nodes.name[node]]).filter((_, i) => i % each === 0);
  chart.named("row_ticks").ticks = shownRows.map(([y]) => y);
  chart.named("row_axis").major_label_overrides = new Map(shownRows.map(([y, name]) => [y, name.length > 10 ? `…${name.slice(-9)}` : name]));
  chart.named("rows").setv({ start: Math.max(1, rows.length), end: 0 });
}

// ---- what part of time is shown ----------------------------------------------------------------------

function horizon() {
  const { start, length } = plan.jobs;
  let last = 3600;
  for (let j = 0; j < start.length; j++) last = Math.max(last, start[j] + length[j]);
  return last;
}

function look(seconds) {
  const to = seconds || horizon() * 1.03;
  chart.named("times").setv({ start: at(-0.04 * to), end: at(to) });
  for (const button of document.querySelectorAll("[data-hours]")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.hours) * 3600 === seconds));
  }
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

// ---- one job -------------------------------------------------------------------------------------------

const jobOf = (id) => (id === null ? -1 : plan.jobs.id.indexOf(id));

function about(j) {
  const { id, user, queue, state, start, length, promised } = plan.jobs;
  const time = (seconds) => words((plan.base + seconds) * 1000);
  const lines = [id[j] ?? HIDDEN];
  if (id[j] !== null) lines.push(`${plan.users[user[j]]}, queue ${plan.queues[queue[j]] || "–"}`);
  let cpus = 0, nodes = 0;
  plan.shares.job.forEach((of, i) => { if (of === j) { cpus += plan.shares.cpus[i]; nodes++; } });
  lines.push(`${cpus} cpus on ${nodes} ${nodes === 1 ? "node" : "nodes"}, for ${span(length[j])}`);
  lines.push(state[j] === 0 ? `runs since ${time(start[j])}` : `${STATES[state[j]]}: ${time(start[j])}`);
  if (promised[j] !== null && state[j] !== 0) lines.push(`promised: no later than ${time(promised[j])}`);
  return lines;
}

function tip(j, event) {
  const box = $("tip");
  box.hidden = j < 0;
  if (j < 0) return;
  const [head, ...lines] = about(j);
  const name = document.createElement("b");
  name.textContent = head;
  box.replaceChildren(name, ...lines.flatMap((line, i) => (i ? [document.createElement("br"), line] : [line])));
  const { offsetWidth: w, offsetHeight: h } = box;
  box.style.left = `${Math.max(4, Math.min(event.x + 14, innerWidth - w - 8))}px`;
  box.style.top = `${event.y + 18 + h > innerHeight ? event.y - h - 12 : event.y + 18}px`;
}

function pick(id, said = true) {
  const j = jobOf(id);
  picked = j < 0 ? null : id;
  const chosen = [];
  if (j >= 0) bars.job.forEach((of, i) => { if (of === j) chosen.push(i); });
  chart.source("bars").selected.indices = chosen;
  if (!said) return;
  marks();
  const line = $("picked");
  line.hidden = j < 0;
  if (j < 0) return;
  const link = document.createElement("a");
  link.href = box.dataset.jobs + encodeURIComponent(id);
  link.textContent = id;
  line.replaceChildren(link, `: ${about(j).slice(1).join(" · ")}`);
}

// The next job that fits, by start, for those who do not point at bars.
function next() {
  const { id, start, length } = plan.jobs;
  const fits = finder();
  const found = [...bars.place.keys()].filter((j) => id[j] !== null && fits(j)).sort((a, b) => start[a] - start[b] || a - b);
  if (!found.length) return pick(null);
  const j = found[(found.indexOf(jobOf(picked)) + 1) % found.length];
  const times = chart.named("times");
  const [from, to] = [at(start[j]), at(start[j] + length[j])];
  if (from > times.end || to < times.start) move((from - times.start) / (times.end - times.start) - 0.1);
  pick(id[j]);
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

async function load() {
  const answer = await fetch(box.dataset.columns, { headers: etag ? { "If-None-Match": etag } : {} });
  if (answer.status === 304 || answer.redirected) return;
  if (!answer.ok) throw new Error(`the plan: ${answer.status}`);
  etag = answer.headers.get("ETag") ?? "";
  const before = plan?.base;
  plan = await answer.json();
  draw();
  if (first) look(Math.min(86400, horizon() * 1.03) === 86400 ? 86400 : 0);
  else if (plan.base !== before) move((at(0) - shown(before * 1000)) / (chart.named("times").end - chart.named("times").start));
  first = false;
  box.dataset.generation = plan.generation;
}

function dress() {
  const [card, ink, running, planned, away, reserved, edge] = ["card", "ink", "running", "planned", "away", "reserved", "edge"].map(colour);
  const hatch = (name, of) => chart.glyph(name).setv({ fill_color: of, fill_alpha: 0.12, hatch_color: of, hatch_alpha: 0.7, line_color: of });
  hatch("away", away);
  hatch("reserved", reserved);
  chart.glyph("promises").line_color = ink;
  chart.glyph("slack").line_color = ink;
  chart.glyph("use").setv({ fill_color: running, fill_alpha: 0.35 });
  chart.glyph("capacity").line_color = edge;
  if (plan) { outline(); paint(); }
}

function outline() {
  const [card, ink] = [colour("card"), colour("ink")];
  const bare = thin(bars.rows.length);
  for (const glyph of ["glyph", "nonselection_glyph", "selection_glyph"]) {
    const line = glyph === "selection_glyph" ? ink : bare ? null : card;
    chart.named("bars", "GlyphRenderer")[glyph]?.setv?.({ line_color: line });
  }
}

function wire() {
  for (const id of ["colour", "find"]) $(id).addEventListener("input", paint);
  $("find").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); next(); } });
  $("only").addEventListener("input", draw);
  $("marks").addEventListener("change", () => { marks(); paint(); });
  for (const button of document.querySelectorAll("[data-hours]")) button.addEventListener("click", () => look(Number(button.dataset.hours) * 3600));
  $("in").addEventListener("click", () => zoom(0.6));
  $("out").addEventListener("click", () => zoom(1 / 0.6));
  const keys = { ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: () => look(0), Escape: () => pick(null) };
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  addEventListener("keydown", (event) => { if (event.key === "Escape") tip(-1); });
  const source = chart.source("bars");
  let pointer = { x: 0, y: 0 };
  let over = -1;
  box.addEventListener("pointermove", (event) => { pointer = { x: event.clientX, y: event.clientY }; if (over >= 0) tip(over, pointer); }, true);
  box.addEventListener("pointerleave", () => { over = -1; tip(-1); });
  source.inspect.connect(() => {
    const [i] = source.inspected.indices;
    over = i === undefined ? -1 : source.data.job[i];
    tip(over, pointer);
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
  document.addEventListener("schedd:shown", follow);
  addEventListener("resize", labels);
}

try {
  chart = await Chart.in(box);
  chart.redress = dress;
  dress();
  await load();
  wire();
  box.dataset.ready = "yes";
} catch (error) {
  failed(box, error);
}
