// A month of reservations, in the reader's zone. The month is in the address.

import { utc } from "./times.js";

const MOST = 4;
const timeZone = utc ? "UTC" : undefined;
const parts = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", day: "2-digit", timeZone });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone });
const titled = new Intl.DateTimeFormat("en-GB", { month: "long", year: "numeric", timeZone: "UTC" });
const weekday = new Intl.DateTimeFormat("en-GB", { weekday: "short", timeZone: "UTC" });
const whole = new Intl.DateTimeFormat("en-GB", { weekday: "long", day: "numeric", month: "long", timeZone: "UTC" });

// A day is named by its date in the reader's zone, and reckoned with as midnight UTC of that date.
const dayOf = (seconds) => Date.parse(`${parts.format(seconds * 1000)}T00:00Z`);
const DAY = 86_400_000;
const now = Date.parse(document.querySelector("#pulse time")?.getAttribute("datetime") ?? "") / 1000 || Date.now() / 1000;
const monthOf = (day) => new Date(day).toISOString().slice(0, 7);
const first = monthOf(dayOf(now));
const begin = (month) => Date.parse(`${month}-01T00:00Z`);
const moved = (month, by) => { const at = new Date(begin(month)); at.setUTCMonth(at.getUTCMonth() + by); return monthOf(at); };

const table = document.getElementById("days");
const [before, today, after] = ["before", "today", "after"].map((id) => document.getElementById(id));
const open = new Set();
const wanted = new URLSearchParams(location.search).get("month") ?? "";
let month = /^\d{4}-(0[1-9]|1[0-2])$/.test(wanted) && wanted > first ? wanted : first;
let last = first;

const made = (name, props = {}, ...children) => {
  const found = Object.assign(document.createElement(name), props);
  found.append(...children);
  return found;
};

const push = (days, day, one) => days.set(day, [...(days.get(day) ?? []), one]);

// What of the windows falls on which day: its words, and whether it goes on over midnight.
function byDay(windows, from, until) {
  const days = new Map();
  for (const one of windows) {
    const starts = dayOf(one.start);
    if (one.end === null) { // once, where it begins or the month does
      const day = Math.max(starts, from, dayOf(now));
      if (day <= until) push(days, day, { ...one, words: day === starts ? `${clock.format(one.start * 1000)}, no end:` : "no end:" });
      continue;
    }
    const ends = dayOf(one.end - 1);
    for (let day = Math.max(starts, from); day <= Math.min(ends, until); day += DAY) {
      const since = day === starts ? clock.format(one.start * 1000) : "00:00";
      const till = day === ends ? clock.format(one.end * 1000) : "24:00";
      const words = since === "00:00" && (till === "24:00" || till === "00:00") ? "all day" : `${since}–${till === "00:00" ? "24:00" : till}`;
      push(days, day, { ...one, words });
    }
  }
  return days;
}

function entry(one) {
  const link = made("a", { href: `#r-${encodeURIComponent(one.name)}`, className: one.kept ? "window kept" : "window", title: [one.name, one.where, one.reason].filter(Boolean).join(" · ") });
  link.append(made("span", { className: "hours", textContent: one.words }), ` ${one.name}`);
  return made("li", {}, link);
}

function cell(day, inside, found) {
  const at = made("td", { className: inside ? "" : "outside" });
  if (day === dayOf(now)) at.setAttribute("aria-current", "date");
  if (!found.length) at.classList.add("free");
  at.append(made("span", { className: "sr" }, whole.format(day)), made("span", { className: "number", textContent: new Date(day).getUTCDate() }), made("span", { className: "long", textContent: whole.format(day) }));
  at.children[1].ariaHidden = at.children[2].ariaHidden = "true";
  if (found.length) {
    const shown = open.has(day) ? found : found.slice(0, MOST);
    const list = made("ul", {}, ...shown.map(entry));
    at.append(list);
    if (shown.length < found.length) {
      const more = made("button", { type: "button", className: "quiet", textContent: `${found.length - shown.length} more` });
      more.addEventListener("click", () => {
        open.add(day);
        list.replaceChildren(...found.map(entry));
        list.children[MOST].firstChild.focus();
        more.remove();
      });
      at.append(more);
    }
  }
  return at;
}

function draw() {
  const windows = JSON.parse(document.getElementById("windows").textContent);
  const ends = windows.map((one) => monthOf(dayOf(one.start)));
  last = [first, month, ...ends].sort().at(-1);
  const from = begin(month);
  const until = begin(moved(month, 1)) - DAY;
  const monday = from - ((new Date(from).getUTCDay() + 6) % 7) * DAY;
  const days = byDay(windows, monday, until + 6 * DAY);
  document.getElementById("month").textContent = titled.format(from);
  table.tHead.rows[0].replaceChildren(...Array.from({ length: 7 }, (_, i) => made("th", { scope: "col", textContent: weekday.format(monday + i * DAY) })));
  const weeks = [];
  for (let week = monday; week <= until; week += 7 * DAY) {
    weeks.push(made("tr", {}, ...Array.from({ length: 7 }, (_, i) => {
      const day = week + i * DAY;
      return cell(day, day >= from && day <= until, (days.get(day) ?? []).sort((a, b) => a.start - b.start));
    })));
  }
  table.tBodies[0].replaceChildren(...weeks);
  const some = [...days.keys()].some((day) => day >= from && day <= until);
  document.getElementById("no-days").hidden = some || !windows.length; // the list below says that there are none
  table.dataset.some = some ? "yes" : "";
  document.getElementById("no-days").dataset.beside = days.size ? "yes" : "";
  before.disabled = month <= first;
  today.disabled = month === first;
  after.disabled = month >= last;
  table.dataset.ready = "yes";
}

function go(to) {
  month = to;
  open.clear();
  const address = new URL(location);
  if (month === first) address.searchParams.delete("month");
  else address.searchParams.set("month", month);
  history.replaceState(null, "", address);
  draw();
}

before.addEventListener("click", () => go(moved(month, -1)));
after.addEventListener("click", () => go(moved(month, 1)));
today.addEventListener("click", () => go(first));
let known = document.getElementById("windows").textContent;
document.addEventListener("schedd:shown", () => {
  const news = document.getElementById("windows").textContent;
  if (news !== known) { known = news; draw(); } // else the focus stays where it is
});
draw();
