// The map of nodes is one stop of the Tab key: in it the arrow keys go from node to node.

const map = document.getElementById("map");
const links = () => [...map.querySelectorAll("a")];

let chosen = null;
function rove(link) {
  const all = links();
  chosen = all.includes(link) ? link : all[0];
  for (const one of all) one.tabIndex = one === chosen ? 0 : -1;
}

// The one above or below: the nearest of the nearest row in that direction.
function beyond(from, down) {
  const here = from.getBoundingClientRect();
  let best, least = Infinity;
  for (const link of links()) {
    const box = link.getBoundingClientRect();
    const rows = down ? box.top - here.top : here.top - box.top;
    const far = rows * 1000 + Math.abs(box.left - here.left);
    if (rows > 1 && far < least) [best, least] = [link, far];
  }
  return best;
}

if (map) {
  rove();
  document.addEventListener("schedd:shown", () => rove(chosen));
  map.addEventListener("focusin", (event) => rove(event.target));
  map.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const all = links();
    const i = all.indexOf(event.target);
    const steps = {
      ArrowRight: () => all[i + 1], ArrowLeft: () => all[i - 1], Home: () => all[0], End: () => all.at(-1),
      ArrowDown: () => beyond(event.target, true), ArrowUp: () => beyond(event.target, false),
    };
    if (i < 0 || !(event.key in steps)) return;
    event.preventDefault();
    steps[event.key]()?.focus();
  });
}
