// How one job's planned start moved, as a line.

import { Chart, colour, failed, shown } from "./charts.js";

const LEAST_MS = 600_000; // shorter spans would be labelled in milliseconds
const box = document.getElementById("chart");
let chart;

function moves() {
  const rows = [...document.querySelectorAll("#moves tbody tr")].map((row) =>
    [row.cells[0], row.cells[2]].map((cell) => Date.parse(cell.querySelector("time")?.getAttribute("datetime") ?? "")));
  return rows.filter(([, to]) => !Number.isNaN(to)).reverse();
}

function draw() {
  const found = moves();
  const time = found.map(([when]) => shown(when));
  const start = found.map(([, to]) => shown(to));
  chart.fill("moves", { time, start });
  const promised = Number(document.getElementById("history").dataset.promised) * 1000;
  const line = promised && time.length ? { time: [time[0], time.at(-1)], start: [shown(promised), shown(promised)] } : { time: [], start: [] };
  chart.span("x", time, LEAST_MS);
  chart.span("y", [...start, ...line.start], LEAST_MS);
  chart.fill("promise", line);
}

function dress() {
  chart.glyph("moves").line_color = colour("link");
  chart.glyph("points").setv({ fill_color: colour("link"), line_color: colour("card") });
  chart.glyph("promise").line_color = colour("bad");
}

if (box) {
  try {
    chart = await Chart.in(box);
    chart.redress = dress;
    dress();
    draw();
    chart.letZoom("x", draw);
    document.addEventListener("schedd:shown", draw);
    box.dataset.ready = "yes";
  } catch (error) {
    failed(box, error);
  }
}
