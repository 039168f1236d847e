// Lists answer while one types: the address follows the form, and the page takes over what it says. Chosen columns
// and dense rows are kept in this browser, for addresses that do not name them.

import { refresh } from "./live.js";

const APART_MS = 150;
const KEPT = "schedd:queue";
const form = document.querySelector("form[data-filter]");
const columns = form?.elements.columns;
let waiting = 0;

function address() {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value) query.set(name, value);
  const text = query.toString();
  return form.action + (text ? `?${text}` : "");
}

function go() {
  const wanted = address();
  if (wanted === location.href) return;
  history.replaceState(null, "", wanted);
  said(refresh());
}

// What is shown is not what was asked for while the daemon is away.
async function said(done) {
  const list = document.getElementById("list");
  const old = document.getElementById("not-searched");
  if ((await done) !== false) { old?.remove(); return; }
  if (old || !list) return;
  const words = document.createElement("p");
  words.id = "not-searched";
  words.className = "alert bad";
  words.textContent = "Not searched: the daemon does not answer. The list below is the last one that was read.";
  list.before(words);
}

// ---- columns -------------------------------------------------------------------------------------------

const boxes = () => [...form.querySelectorAll("[data-column]")];

function chosen() {
  const names = boxes().filter((box) => box.checked).map((box) => box.dataset.column).join(",");
  columns.value = names === columns.dataset.usual ? "" : names;
  try { localStorage.setItem(KEPT, JSON.stringify({ columns: columns.value, dense: form.elements.dense.checked })); } catch { /* nothing may be kept here */ }
}

function recall() {
  const named = new URLSearchParams(location.search);
  if (named.has("columns") || named.has("dense")) return;
  let kept = null;
  try { kept = JSON.parse(localStorage.getItem(KEPT) ?? "null"); } catch { return; }
  if (!kept || (!kept.columns && !kept.dense)) return;
  columns.value = String(kept.columns ?? "");
  form.elements.dense.checked = Boolean(kept.dense);
  if (columns.value) for (const box of boxes()) box.checked = columns.value.split(",").includes(box.dataset.column);
  go();
}

if (form) {
  form.addEventListener("input", (event) => {
    if (columns && (event.target.dataset.column || event.target.name === "dense")) chosen();
    clearTimeout(waiting);
    waiting = setTimeout(go, event.target.type === "search" ? APART_MS : 0);
  });
  form.addEventListener("submit", (event) => { event.preventDefault(); go(); });
  if (columns) recall();
}

// Tabs, sorting and "show more" stay on the page too; the form learns what they chose.
document.getElementById("list")?.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || link.pathname !== location.pathname || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.replaceState(null, "", link.href);
  const query = new URL(link.href).searchParams;
  for (const name of ["state", "sort", "down"]) {
    const value = query.get(name);
    let field = form.elements[name];
    if (!field && value) {
      field = document.createElement("input");
      field.type = "hidden";
      field.name = name;
      form.append(field);
    }
    if (field) field.value = value ?? "";
  }
  if (!query.size) form.reset();
  said(refresh());
});
