// One job of the chart in words, and the box beside the pointer that has them.

import { STATES, ENDED } from "./plan-legend.js";
import { span, words } from "./times.js";

const HIDDEN = "another user's job";

export const many = (n, one, more) => `${n.toLocaleString("en-GB")} ${n === 1 ? one : more}`;

// Lines about the job at an index of the plan's columns; its id first.
export function about(plan, j) {
  const { id, user, queue, state, start, length, promised, expected, expected_by: by } = plan.jobs;
  const time = (seconds) => words((plan.base + seconds) * 1000);
  const lines = [id[j] ?? HIDDEN];
  if (id[j] !== null) lines.push(`${plan.users[user[j]]}, queue ${plan.queues[queue[j]] || "–"}`);
  let cpus = 0, nodes = 0;
  plan.shares.job.forEach((of, i) => { if (of === j) { cpus += plan.shares.cpus[i]; nodes++; } });
  const kind = plan.nodes.name.length === plan.all_nodes ? "node" : "shown node"; // what is on other rows is not known here
  lines.push(`${many(cpus, "cpu", "cpus")} on ${many(nodes, kind, `${kind}s`)}, for ${span(length[j])}`);
  if (state[j] === ENDED) lines.push(`ran from ${time(start[j])} to ${time(start[j] + length[j])}`);
  else lines.push(state[j] === 0 ? `running since ${time(start[j])}` : `${STATES[state[j]]}: ${time(start[j])}`);
  const parts = [];
  if (expected[j] !== null) parts.push((expected[j] > 0 ? `Likely ${time(expected[j])}` : "Any time now") + (by[j] === null ? "" : ` (90 % by ${time(by[j])})`));
  if (promised[j] > 0 && state[j] !== 0) parts.push(`${parts.length ? "at" : "At"} the latest ${time(promised[j])}`);
  if (parts.length) lines.push(parts.join(", "));
  return lines;
}

// Shows them beside the pointer; hides the box for an index below 0.
export function tip(plan, j, event) {
  const box = document.getElementById("tip");
  box.hidden = j < 0;
  if (j < 0) return;
  const [head, ...lines] = about(plan, j);
  const name = document.createElement("b");
  name.textContent = head;
  box.replaceChildren(name, ...lines.flatMap((line, i) => (i ? [document.createElement("br"), line] : [line])));
  const { offsetWidth: w, offsetHeight: h } = box;
  box.style.left = `${Math.max(4, Math.min(event.x + 14, innerWidth - w - 8))}px`;
  box.style.top = `${event.y + 18 + h > innerHeight ? event.y - h - 12 : event.y + 18}px`;
}
