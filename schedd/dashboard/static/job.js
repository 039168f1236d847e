// How one job's planned start moved until now, as a line.

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
  const planned = document.querySelector("#answer.planned") && document.querySelector("#pulse time");
  const now = Math.max(planned ? shown(Date.parse(planned.dateTime)) : 0, time.at(-1) ?? 0);
  chart.fill("since", time.length ? { time: [time.at(-1), now], start: [start.at(-1), start.at(-1)] } : { time: [], start: [] });
  const promised = Number(document.getElementById("history").dataset.promised) * 1000;
  const line = promised && time.length ? { time: [time[0], now], start: [shown(promised), shown(promised)] } : { time: [], start: [] };
  chart.span("x", [...time, now], LEAST_MS);
  chart.span("y", [...start, ...line.start], LEAST_MS);
  chart.fill("promise", line);
}

function dress() {
  chart.glyph("moves").line_color = chart.glyph("since").line_color = colour("link");
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
