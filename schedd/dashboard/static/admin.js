// Moments in forms are of the zone in which the page shows times: seconds since the epoch go along with them.

import { utc } from "./times.js";

for (const form of document.querySelectorAll("form[data-moments]")) {
  form.addEventListener("submit", () => {
    for (const field of form.querySelectorAll('input[type="datetime-local"]')) {
      const name = `${field.name}_seconds`;
      let seconds = form.elements[name];
      if (!seconds) {
        seconds = document.createElement("input");
        seconds.type = "hidden";
        seconds.name = name;
        form.append(seconds);
      }
      seconds.value = field.value ? String(Math.round(new Date(field.value + (utc ? "Z" : "")) / 1000)) : "";
    }
  });
}
