// Brings an element to what a newer one of the same page says, touching only what differs: what has the focus
// keeps it, and nothing flickers. Children with data-key (or id) keep their identity when they move.

const keyOf = (node) => (node.nodeType === 1 ? node.dataset.key || node.id || null : null);
const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

export function morph(from, to) {
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
  let here = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const key = keyOf(wanted);
    let found = key ? keyed.get(key) : null;
    if (!found && here && alike(here, wanted)) found = here;
    if (found && alike(found, wanted)) {
      if (found === here) here = here.nextSibling;
      else from.insertBefore(found, here);
      morph(found, wanted);
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
