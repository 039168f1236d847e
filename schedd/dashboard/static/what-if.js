// Smaller requests take several times as long as the answer, so the page requests them after it.

import { show } from "./live.js";

const later = document.querySelector("[data-later]");
if (later) {
  const answer = await fetch(later.dataset.later, { headers: { Accept: "text/html" } }).catch(() => null);
  if (answer?.ok) show(await answer.text());
  else later.textContent = "Smaller requests could not be tried now. Reload the page to try again.";
}
