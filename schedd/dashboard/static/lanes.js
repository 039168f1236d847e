// Which of a node's cpus each job is drawn on. The plan keeps counts, not cores: jobs get the lanes that are free,
// side by side where that is possible, and the same ones for as long as they run.

// `shares`: [start, end, cpus] by start. Returns for each its runs of lanes: [first, behind the last] pairs.
export function lanes(shares, cpus) {
  const until = new Array(Math.max(1, cpus)).fill(-Infinity);
  return shares.map(([start, end, wanted]) => {
    const most = Math.min(Math.max(wanted, cpus ? 0 : 1), until.length);
    if (!most) return [];
    const runs = fitting(until, start, most) ?? pieces(until, start, most);
    for (const [first, behind] of runs) until.fill(end, first, behind);
    return runs;
  });
}

// The tightest single run that is free.
function fitting(until, start, wanted) {
  let best = null;
  for (let i = 0; i < until.length; i++) {
    if (until[i] > start) continue;
    let end = i;
    while (end < until.length && until[end] <= start) end++;
    if (end - i >= wanted && (!best || end - i < best[1])) best = [i, end - i];
    i = end;
  }
  return best && [[best[0], best[0] + wanted]];
}

// Several runs; what is over-committed in reality is drawn over what is there.
function pieces(until, start, wanted) {
  const order = until.map((end, lane) => [end <= start ? -Infinity : end, lane]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const chosen = order.slice(0, wanted).map(([, lane]) => lane).sort((a, b) => a - b);
  const runs = [];
  for (const lane of chosen) {
    const last = runs.at(-1);
    if (last && last[1] === lane) last[1]++;
    else runs.push([lane, lane + 1]);
  }
  return runs;
}
