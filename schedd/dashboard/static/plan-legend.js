// What the colours of the chart mean, which jobs are sought, and the legend that says so.

import { colour } from "./charts.js";
import { colours } from "./plan-bars.js";
import { view } from "./plan-view.js";

const PALETTE = ["#3b7fb8", "#d98c3f", "#4a9e6b", "#b45a8a", "#8a7cc2", "#a8873a", "#4fa5ad", "#c0605c", "#6f8f3d", "#7d8794"];
const SLACKS = ["at risk", "under 15 min", "under 2 h", "2 h and more", "no promise"];
export const STATES = ["running", "starting", "planned", "ended"];
export const ENDED = 3;
const LEGEND = 12;
// Whether a job fits what is to be found. What is wholly so goes before what contains it: user1 is not user16.
export function finder(plan) {
  const find = view.find.trim().toLowerCase();
  if (!find) return () => true;
  const { id, user, queue } = plan.jobs;
  const names = (j) => [id[j], id[j]?.split(".")[0], plan.users[user[j]], plan.queues[queue[j]]].map((text) => text?.toLowerCase());
  const whole = plan.jobs.id.some((_, j) => names(j).includes(find)) || plan.found_whole;
  return (j) => (whole ? names(j).includes(find) : names(j).some((text) => text?.includes(find)));
}

export function colourOf(plan) {
  const { state, user, queue, start, promised } = plan.jobs;
  if (view.colour === "state") {
    const known = STATES.map(colour);
    return { of: (j) => known[state[j]], legend: STATES.map((name, i) => [known[i], name]).filter((_, i) => i !== ENDED || state.includes(ENDED)) };
  }
  if (view.colour === "slack") {
    const ramp = [colour("bad"), "#d98c3f", "#c9b458", "#4a9e8a", colour("edge")];
    const level = (j) => {
      if (promised[j] === null || state[j] === 0) return 4;
      const left = promised[j] - start[j];
      return left < 0 ? 0 : left < 900 ? 1 : left < 7200 ? 2 : 3;
    };
    return { of: (j) => ramp[level(j)], legend: ramp.map((c, i) => [c, SLACKS[i]]) };
  }
  const [of, names] = view.colour === "user" ? [user, plan.users] : [queue, plan.queues];
  const chosen = colours(PALETTE, of, names.length);
  const entries = chosen.order.map((n) => [chosen.of(n), names[n], { find: names[n] }]);
  if (of.includes(null)) entries.push([colour("edge"), "of other users"]);
  return { of: (j) => (of[j] === null ? colour("edge") : chosen.of(of[j])), legend: entries };
}

let all = false;
// `sought(name)`: a user or queue of the legend was chosen. `signs`: which of the lines and bands are drawn.
export function legend(plan, entries, sought, signs) {
  const more = [];
  if (plan.nodes.state.some((state) => state !== "up")) more.push([colour("away"), "down or draining", { hatched: true }]);
  const kept = [...new Set(plan.reservations.filter((one) => one.nodes.length).map((one) => one.name.split("@")[0]))];
  if (kept.length) more.push([colour("reserved"), `reserved: ${kept.slice(0, 3).join(", ")}${kept.length > 3 ? ` and ${kept.length - 3} more` : ""}`, { hatched: true }]);
  if (plan.groups.length) more.push([colour("running"), "cpus in use of a group"]);
  if (signs.promised) more.push([colour("ink"), "promise: starts at the latest", { mark: true }]);
  if (signs.way) more.push([colour("ink"), "from the planned start to the promise", { dotted: true }]);
  if (signs.banded) more.push([colour("ink"), "likely start, to the 90 % time", { lined: true }]);
  const few = all ? entries : entries.slice(0, LEGEND);
  const items = [...few, ...more].map(([fill, text, how = {}]) => {
    const item = document.createElement("li");
    const sign = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    sign.setAttribute("aria-hidden", "true");
    const shape = document.createElementNS(sign.namespaceURI, how.hatched || how.lined || how.dotted ? "path" : "rect");
    if (how.hatched) { shape.setAttribute("d", "M0 12L12 0M-4 6L6 -4M4 16L18 2"); shape.setAttribute("stroke", fill); }
    else if (how.dotted) { shape.setAttribute("d", "M0 6H14"); shape.setAttribute("stroke", fill); shape.setAttribute("stroke-dasharray", "2 2"); shape.setAttribute("stroke-width", 2); }
    else if (how.lined) { shape.setAttribute("d", "M1 0V12M4 0V12M7 0V12M10 0V12M13 0V12"); shape.setAttribute("stroke", fill); }
    else { shape.setAttribute("width", how.mark ? 3 : 14); shape.setAttribute("x", how.mark ? 6 : 0); shape.setAttribute("height", 12); shape.setAttribute("fill", fill); }
    sign.append(shape);
    if (how.find === undefined) { item.append(sign, text); return item; }
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet";
    button.setAttribute("aria-pressed", String(view.find === how.find));
    button.append(sign, text);
    button.addEventListener("click", () => sought(view.find === how.find ? "" : how.find));
    item.append(button);
    return item;
  });
  if (entries.length > LEGEND) {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet";
    button.textContent = all ? "show fewer" : `and ${entries.length - LEGEND} more`;
    button.addEventListener("click", () => { all = !all; legend(plan, entries, sought, signs); });
    item.append(button);
    items.splice(few.length, 0, item);
  }
  const list = document.getElementById("legend");
  list.classList.toggle("long", all);
  list.replaceChildren(...items);
}
