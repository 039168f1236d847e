// Times in the reader's own zone, or in UTC where the reader wants that. Pages say them in UTC, for those without
// scripts. The year stands where it is not this one.

let kept = "";
try { kept = localStorage.getItem("schedd:times") ?? ""; } catch { /* nothing is kept here */ }
export const utc = kept === "UTC";
const timeZone = utc ? "UTC" : undefined;

const axis = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone });
const usual = { weekday: "short", day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone };
const plain = new Intl.DateTimeFormat("en-GB", usual);
const withYear = new Intl.DateTimeFormat("en-GB", { ...usual, year: "numeric" });
const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "long", hourCycle: "h23", timeZone });
const yearOf = new Intl.DateTimeFormat("en-GB", { year: "numeric", timeZone });

// The present time by the clock of the page's cluster or federation, which may differ from the browser's clock.
export function present() {
  const shown = Date.parse(document.querySelector("#pulse time")?.getAttribute("datetime") ?? "");
  return shown || 1000 * Number(document.body?.dataset.now ?? 0) || Date.now();
}
const thisYear = yearOf.format(present());
export const zone = utc ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone;

export const words = (ms) => (yearOf.format(ms) === thisYear ? plain : withYear).format(ms).replaceAll(",", "");

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone });
const weekday = new Intl.DateTimeFormat("en-GB", { weekday: "short", timeZone });
const day = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", day: "2-digit", timeZone });
const dayNumber = (ms) => Date.parse(day.format(ms)) / 86400000;

// `today 20:59`, `Fri 10:49` within six days, else with the date; as the commands write it.
export function near(ms, now = present()) {
  const days = dayNumber(ms) - dayNumber(now);
  if (days === 0) return `today ${clock.format(ms)}`;
  return days > 0 && days <= 6 ? `${weekday.format(ms)} ${clock.format(ms)}` : words(ms);
}

// Times in a text that was made for all readers: `2026-11-27 20:59:00 UTC`.
export const localText = (text) =>
  text.replace(/(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC/g, (_, date, hour) => words(Date.parse(`${date}T${hour}Z`)));

export function localise(root) {
  const now = present();
  for (const element of root.querySelectorAll("time[datetime]")) {
    const moment = Date.parse(element.getAttribute("datetime"));
    element.textContent = element.dataset.near === undefined ? words(moment) : near(moment, now);
    element.title = full.format(moment);
  }
  for (const element of root.querySelectorAll("text[data-moment]")) { // on the axis of a drawing
    element.textContent = axis.format(1000 * Number(element.dataset.moment)).replaceAll(",", "");
  }
  for (const element of root.querySelectorAll('[title*=" UTC"]:not(time)')) element.title = localText(element.title);
}

export function span(seconds) {
  const s = Math.abs(Math.trunc(seconds));
  const two = (big, small, per, unit) => `${Math.floor(s / big)} ${per}` + (s % big >= small ? ` ${Math.floor((s % big) / small)} ${unit}` : "");
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  return s < 86400 ? two(3600, 60, "h", "min") : two(86400, 3600, "d", "h");
}
