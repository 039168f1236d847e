// What takes long, such as an answer or the smaller requests, is requested after the page.

import { show } from "./live.js";

let later, asked = "";
while ((later = document.querySelector("[data-later]")) && later.dataset.later !== asked) {
  asked = later.dataset.later;
  const answer = await fetch(asked, { headers: { Accept: "text/html" } }).catch(() => null);
  if (answer?.ok) show(await answer.text());
  else later.textContent = "This could not be computed now. Reload the page to try again.";
}
