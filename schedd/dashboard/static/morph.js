// Brings an element to what a newer one of the same page says, touching only what differs: what has the focus
// keeps it, and nothing flickers. Children with data-key (or id) keep their identity when they move.

export function morph(from, to) {
  const active = document.activeElement;
  match(from, to);
  // What is moved in the document loses the focus.
  if (active !== document.activeElement && from.contains(active)) active.focus({ preventScroll: true });
}

const keyOf = (node) => (node.nodeType === 1 ? node.dataset.key || node.id || null : null);
const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

function match(from, to) {
  if (from.nodeType !== 1) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  children(from, to);
}

function children(from, to) {
  const keyed = new Map();
  for (const child of from.children) {
    const key = keyOf(child);
    if (key) keyed.set(key, child);
  }
  // What is gone goes first: else all behind it would be moved.
  const stays = new Set([...to.children].map(keyOf));
  for (const [key, child] of keyed) if (!stays.has(key)) child.remove();
  let here = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const key = keyOf(wanted);
    let found = key ? keyed.get(key) : null;
    if (!found && here && alike(here, wanted)) found = here;
    if (found && alike(found, wanted)) {
      if (found === here) here = here.nextSibling;
      else from.insertBefore(found, here);
      match(found, wanted);
    } else {
      from.insertBefore(document.importNode(wanted, true), here);
    }
  }
  while (here) {
    const next = here.nextSibling;
    here.remove();
    here = next;
  }
}
