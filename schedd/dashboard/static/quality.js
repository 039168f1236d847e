// How far off the told starts were, as points over time.

import { Chart, colour, failed, shown } from "./charts.js";

const box = document.getElementById("errors");

function dress(chart) {
  chart.glyph("errors").setv({ fill_color: colour("running"), line_color: null, fill_alpha: 0.45 });
  chart.named("zero").line_color = colour("edge");
}

try {
  const { start, told } = JSON.parse(document.getElementById("errors-data").textContent);
  const chart = await Chart.in(box);
  chart.redress = () => dress(chart);
  dress(chart);
  const late = start.map((actual, i) => (actual - told[i]) / 3600);
  chart.span("x", start.map((moment) => shown(moment * 1000)));
  chart.span("y", [0, ...late]);
  chart.fill("errors", { start: start.map((moment) => shown(moment * 1000)), late });
  box.dataset.ready = "yes";
} catch (error) {
  failed(box, error);
}
