// Times in the reader's own zone. Pages say them in UTC, for those without scripts.

const plain = new Intl.DateTimeFormat("en-GB", {
  weekday: "short", day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23",
});
const full = new Intl.DateTimeFormat("en-GB", {
  dateStyle: "full", timeStyle: "long", hourCycle: "h23",
});
export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

export const words = (ms) => plain.format(ms).replace(",", "");

export function localise(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const moment = Date.parse(element.getAttribute("datetime"));
    element.textContent = words(moment);
    element.title = full.format(moment);
  }
}

export function span(seconds) {
  const s = Math.abs(Math.trunc(seconds));
  const two = (big, small, per, unit) => `${Math.floor(s / big)} ${per}` + (s % big >= small ? ` ${Math.floor((s % big) / small)} ${unit}` : "");
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  return s < 86400 ? two(3600, 60, "h", "min") : two(86400, 3600, "d", "h");
}
