// Keeps the page up to date. The daemon says over server-sent events that its plan is a newer one; the page then
// asks for itself and takes over the parts that are marked `data-part`. A page of no cluster has no events and is
// loaded every `data-every` milliseconds.

import { morph } from "./morph.js";
import { localise, utc, zone } from "./times.js";

const APART_MS = 2000;
// A daemon that hangs and a network that is cut say nothing: within a minute the page says so.
const AT_LEAST_MS = Number(document.body.dataset.every) || 35000;
const TIMEOUT_MS = 15000;
let asked = 0;
let waiting = 0;
let turn = 0;

export function show(text) {
  const news = new DOMParser().parseFromString(text, "text/html");
  if (news.body.dataset.here !== document.body.dataset.here) return location.reload(); // it is another page by now
  localise(news);
  for (const part of document.querySelectorAll("[data-part]")) {
    const found = news.getElementById(part.id);
    if (found) morph(part, document.importNode(found, true));
  }
  document.dispatchEvent(new Event("schedd:shown"));
}

// Whether the page shows what was asked for.
export async function refresh(address = document.body.dataset.refresh ?? location.href) {
  asked = Date.now();
  const mine = ++turn;
  const stop = new AbortController();
  const late = setTimeout(() => stop.abort(), TIMEOUT_MS);
  try {
    const answer = await fetch(address, { headers: { Accept: "text/html" }, redirect: "manual", signal: stop.signal });
    if (answer.type === "opaqueredirect") return away("Your session has ended. Reload the page to log in.");
    if (answer.ok && mine === turn) show(await answer.text());
    away(answer.ok ? "" : answer.status === 404 ? "This no longer exists." : `The daemon returned an error (${answer.status}). This page may be out of date.`);
    return answer.ok;
  } catch {
    if (mine === turn) away("Connection to the daemon lost. This page may be out of date.");
    return false;
  } finally {
    clearTimeout(late);
  }
}

function away(words) {
  const sign = document.getElementById("away");
  if (!sign) return;
  if (sign.textContent !== words) sign.textContent = words;
  sign.hidden = !words;
  lost(Boolean(words));
}

// The dot in the head says the same as the banner.
let before = null;
function lost(now) {
  const pulse = document.getElementById("pulse");
  if (!pulse || now === (before !== null)) return;
  const [dot, text] = pulse.querySelectorAll("span");
  if (now) {
    before = [dot.className, text.textContent];
    dot.className = "dot bad";
    text.textContent = "Not live";
  } else {
    if (text.textContent === "Not live") [dot.className, text.textContent] = before;
    before = null;
  }
}

function soon() {
  if (waiting || document.hidden) return;
  waiting = setTimeout(() => { waiting = 0; refresh(); }, Math.max(0, asked + APART_MS - Date.now()));
}

function listen() {
  const stream = new EventSource(document.body.dataset.live);
  let first = true;
  let broken = false;
  stream.addEventListener("plan", (event) => {
    if (!first || event.data !== document.body.dataset.state) soon(); // something may have come before the stream
    first = false;
  });
  stream.addEventListener("error", () => {
    broken = true;
    if (stream.readyState !== EventSource.CLOSED) return away("Connection to the daemon lost. This page may be out of date.");
    soon(); // refused: the session is over, or there are too many pages; the page asks by itself meanwhile
    setTimeout(listen, 15000);
  });
  stream.addEventListener("open", () => { if (broken) soon(); broken = false; });
  addEventListener("pagehide", () => stream.close(), { once: true });
  addEventListener("pageshow", (event) => { if (event.persisted) listen(); }, { once: true });
}

// Escape closes a menu, and who opened it is where he was; so does a click
// elsewhere, or leaving it with Tab.
for (const menu of document.querySelectorAll(".menu")) {
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  menu.addEventListener("focusout", (event) => { if (event.relatedTarget && !menu.contains(event.relatedTarget)) menu.open = false; });
  document.addEventListener("pointerdown", (event) => { if (!menu.contains(event.target)) menu.open = false; });
}

localise(document);
document.querySelector("nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
// Times that the reader writes are of the zone in which times are shown.
for (const field of document.querySelectorAll("input[data-zone]")) field.value = zone;
const note = document.getElementById("zone");
if (note) note.textContent = utc ? "times: UTC" : `times: local (${zone})`;
document.documentElement.classList.add("scripted");
document.addEventListener("visibilitychange", soon);
setInterval(() => { if (Date.now() - asked > AT_LEAST_MS) soon(); }, 5000);
if (document.body.dataset.live) listen();
