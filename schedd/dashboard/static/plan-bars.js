// From the columns of a plan to what is drawn: bars on the cpus of each node, the load of groups, texts in wide bars.

import { lanes } from "./lanes.js";

export const GAP = 0.08;

// Bars of all jobs on the shown rows. `thin`: rows of few pixels touch each other. `at`: seconds to the chart's time.
export function layOut(plan, thin, at) {
  const perNode = plan.nodes.name.map(() => []);
  const { job, node, cpus } = plan.shares;
  for (let i = 0; i < job.length; i++) perNode[node[i]].push([job[i], cpus[i]]);
  const gap = thin ? 0 : GAP;
  const boxes = new Map();
  const { start, length } = plan.jobs;
  perNode.forEach((shares, n) => {
    const row = plan.nodes.row[n];
    const size = plan.nodes.cpus[n];
    const unit = (1 - 2 * gap) / Math.max(1, size);
    shares.sort((a, b) => start[a[0]] - start[b[0]]);
    const runs = lanes(shares.map(([j, c]) => [start[j], start[j] + length[j], c]), size);
    shares.forEach(([j], i) => {
      let of = boxes.get(j);
      if (!of) boxes.set(j, (of = []));
      for (const [a, b] of runs[i]) {
        const top = row + gap + a * unit;
        const last = of.at(-1);
        // What touches is one bar: there are far fewer to draw.
        if (last && Math.abs(last[1] - top) < 1e-9) last[1] = row + gap + b * unit;
        else of.push([top, row + gap + b * unit]);
      }
    });
  });
  const out = { job: [], left: [], right: [], top: [], bottom: [] };
  const place = new Map();
  for (let j = 0; j < start.length; j++) {
    const all = boxes.get(j) ?? [];
    if (all.length) place.set(j, all[0]);
    for (const [top, bottom] of all) {
      out.job.push(j);
      out.left.push(at(start[j]));
      out.right.push(at(start[j] + length[j]));
      out.top.push(top);
      out.bottom.push(bottom);
    }
  }
  return { ...out, place };
}

// The load of each group as steps within its row.
export function loads(plan, at) {
  const out = { left: [], right: [], top: [], bottom: [], group: [], used: [] };
  plan.groups.forEach((group, g) => {
    const floor = group.row + 1 - GAP;
    const unit = (1 - 2 * GAP) / Math.max(1, group.cpus);
    group.time.forEach((time, i) => {
      const used = Math.min(group.used[i], group.cpus);
      if (!used) return;
      const last = out.left.length - 1;
      if (last >= 0 && out.group[last] === g && out.right[last] === at(time) && out.used[last] === used) {
        out.right[last] = at(group.time[i + 1] ?? time);
        return;
      }
      out.used.push(used);
      out.left.push(at(time));
      out.right.push(at(group.time[i + 1] ?? time));
      out.top.push(floor - used * unit);
      out.bottom.push(floor);
      out.group.push(g);
    });
  });
  return out;
}

// Forecasts in the rows of their bars: from the likely start to the 90 % time.
export function bands(plan, bars, of, at) {
  const out = { left: [], right: [], top: [], bottom: [] };
  const { expected, expected_by: by } = plan.jobs;
  bars.job.forEach((j, i) => {
    if (expected[j] === null || by[j] === null || !of(j)) return;
    out.left.push(at(expected[j]));
    out.right.push(at(by[j]));
    out.top.push(bars.top[i]);
    out.bottom.push(bars.bottom[i]);
  });
  return out;
}

const dark = (fill) => {
  const hex = /^#(..)(..)(..)$/.exec(fill);
  if (!hex) return true;
  const [r, g, b] = hex.slice(1).map((two) => (parseInt(two, 16) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b < 0.2;
};

const MOST = 400;
const LETTER = 6.6;

// Texts of the bars that are wide and high enough in what the chart shows.
export function texts(bars, words, fills, { start, end, now, wide, rowHigh }) {
  const [light, ink] = [0, 1].map(() => ({ x: [], y: [], text: [] }));
  let count = 0;
  const perPixel = (end - start) / Math.max(1, wide);
  for (let i = 0; i < bars.job.length && count < MOST; i++) {
    const left = Math.max(bars.left[i], start), right = Math.min(bars.right[i], end);
    if (right <= left || (bars.bottom[i] - bars.top[i]) * rowHigh < 12) continue;
    const room = Math.floor(((right - left) / perPixel - 8) / LETTER);
    const text = words(bars.job[i]).find((one) => one.length <= room);
    if (!text) continue;
    // The line of now would cross a text that begins just before it.
    const width = (text.length * LETTER + 8) * perPixel;
    const from = left < now && now < left + width && now + width <= right ? now : left;
    const out = dark(fills[bars.job[i]]) ? light : ink;
    count++;
    out.x.push(from + 4 * perPixel);
    out.y.push((bars.top[i] + bars.bottom[i]) / 2);
    out.text.push(text);
  }
  return { light, dark: ink };
}

// A colour for each of any number of users or queues: the largest have those of the palette.
export function colours(palette, of, count) {
  const load = new Array(count).fill(0);
  for (const n of of) if (n !== null) load[n]++;
  const order = load.map((_, n) => n).sort((a, b) => load[b] - load[a]);
  const hue = (i) => {
    const part = (k) => {
      const at = (k + i * 137.508 / 30) % 12;
      return Math.round(255 * (0.52 - 0.24 * Math.max(-1, Math.min(at - 3, 9 - at, 1)))).toString(16).padStart(2, "0");
    };
    return `#${part(0)}${part(8)}${part(4)}`;
  };
  const chosen = new Map(order.map((n, i) => [n, palette[i] ?? hue(i)]));
  return { order, of: (n) => chosen.get(n) };
}
