// What of the plan is looked at, and the address that says so: rows, times, filters, colour and the chosen job.

const USUAL = { first: 0, count: 36, nodes: "", group: "", open: "", find: "", job: "", colour: "state", marks: false, from: null, to: null };
const NUMBERS = new Set(["first", "count", "from", "to"]);
const SENT = ["first", "count", "nodes", "group", "open", "find", "job"];

export const view = read();

function read() {
  const found = { ...USUAL };
  for (const [name, text] of new URLSearchParams(location.search)) {
    if (!(name in USUAL)) continue;
    if (typeof USUAL[name] === "boolean") found[name] = text === "1";
    else if (!NUMBERS.has(name)) found[name] = text;
    else if (/^\d{1,12}$/.test(text)) found[name] = Number(text);
  }
  found.count = Math.min(200, Math.max(1, found.count));
  found.first = Math.min(1e7, found.first);
  for (const [name, most] of [["nodes", 400], ["find", 400], ["group", 400], ["job", 400], ["open", 4000]]) found[name] = found[name].slice(0, most);
  if (!["state", "user", "queue", "slack"].includes(found.colour)) found.colour = "state";
  const groups = document.getElementById("group");
  if (groups && ![...groups.options].some((one) => one.value === found.group)) Object.assign(found, { group: "", open: "" });
  return found;
}

// The query of plan.json for what is looked at.
export function query() {
  const sent = new URLSearchParams();
  for (const name of SENT) if (view[name] !== USUAL[name]) sent.set(name, view[name]);
  return sent.size ? `?${sent}` : "";
}

let waiting = 0;
export function keep() {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    const kept = new URLSearchParams();
    for (const [name, value] of Object.entries(view)) {
      if (value !== USUAL[name]) kept.set(name, value === true ? "1" : value);
    }
    history.replaceState(null, "", kept.size ? `?${kept}` : location.pathname);
  }, 150);
}

export const opened = () => (view.open ? view.open.split("|") : []);
export function toggle(group) {
  const now = new Set(opened());
  if (!now.delete(group)) now.add(group);
  view.open = [...now].join("|");
}
