// What moved since one last looked, and a notice of the browser when a promise is at risk. What was seen is
// kept in this browser alone.

import { localText, span } from "./times.js";

const box = document.getElementById("notify");
const key = box ? `schedd:mine:${box.dataset.cluster}:${box.dataset.user}` : "";

function kept(of) {
  try { return JSON.parse(localStorage.getItem(of) ?? "null"); } catch { return null; }
}

function keep(of, value) {
  try { localStorage.setItem(of, JSON.stringify(value)); } catch { /* nothing may be kept here: then nothing is compared */ }
}

const rows = () => [...document.querySelectorAll("#mine tbody tr")];
const now = () => Object.fromEntries(rows().map((row) => [row.dataset.key, { start: row.dataset.start ? Number(row.dataset.start) : null, state: row.dataset.state }]));

const before = key ? kept(key) : null;

function difference(row) {
  if (!before) return "";
  const was = before.jobs[row.dataset.key];
  if (!was) return "more" in box.dataset ? "" : "new"; // a page with some of the jobs does not know which are new
  const start = row.dataset.start ? Number(row.dataset.start) : null;
  if (was.state !== row.dataset.state) return `was ${was.state}`;
  if (was.start === start || row.dataset.state === "running") return "";
  if (was.start === null) return "start known now";
  if (start === null) return "start not known any more";
  if (Math.abs(start - was.start) < 60) return "";
  return `${span(start - was.start)} ${start > was.start ? "later" : "earlier"}`;
}

let announced = new Set();
function compare() {
  for (const row of rows()) row.querySelector(".moved").textContent = difference(row);
  const risky = rows().filter((row) => row.dataset.risk !== undefined);
  if (kept(`${key}:notify`) && globalThis.Notification?.permission === "granted") {
    for (const row of risky.filter((one) => !announced.has(one.dataset.key))) {
      const start = row.cells[2].querySelector(".headline")?.textContent ?? "Start not known";
      new Notification(`Job ${row.dataset.key}: promise at risk`, { body: `${start}: ${localText(row.dataset.risk)}`, tag: row.dataset.key });
    }
  }
  announced = new Set(risky.map((row) => row.dataset.key));
  document.title = document.title.replace(/^\(\d+ at risk\) /, "");
  if (risky.length) document.title = `(${risky.length} at risk) ${document.title}`;
}

function offer() {
  if (!globalThis.Notification || !globalThis.isSecureContext) return;
  box.hidden = false;
  const on = kept(`${key}:notify`) && Notification.permission === "granted";
  const denied = Notification.permission === "denied";
  const button = document.getElementById("notify-on");
  button.hidden = denied;
  button.textContent = on ? "Stop notices in this browser" : "Notify me in this browser when a promise is at risk";
  document.getElementById("notify-said").textContent = denied ? "This browser does not allow notices of this page." : on ? "You get a notice while this page is open." : "";
}

if (key) {
  document.getElementById("notify-on").addEventListener("click", async () => {
    const on = kept(`${key}:notify`) && Notification.permission === "granted";
    keep(`${key}:notify`, !on && (await Notification.requestPermission()) === "granted");
    offer();
    compare();
  });
  addEventListener("pagehide", () => keep(key, { jobs: now(), at: Date.now() }));
  document.addEventListener("schedd:shown", compare);
  compare();
  offer();
}
document.querySelector("form.filter select")?.addEventListener("change", (event) => event.target.form.submit());
