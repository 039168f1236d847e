// The whole plan in a strip: rows from top to bottom, time from now on, the darker the fuller. What the chart shows
// is framed. Dragging over it chooses rows and times; a click brings what is there into the chart.

import { colour } from "./charts.js";

export class Minimap {
  // `chosen(part)`: parts of the whole between 0 and 1: {left, right, top, bottom}.
  constructor(canvas, chosen) {
    this.canvas = canvas;
    this.chosen = chosen;
    this.frame = null;
    this.drag = null;
    canvas.addEventListener("pointerdown", (event) => this.begin(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.end(event));
    canvas.addEventListener("pointercancel", () => { this.drag = null; this.mark(); });
  }

  draw(map, frame) {
    this.map = map;
    this.frame = frame;
    this.paint();
  }

  look(frame) {
    this.frame = frame;
    this.mark();
  }

  // The rows are painted on a canvas of their own: while the chart is moved only the frame changes.
  paint() {
    const { canvas, map } = this;
    if (!map) return;
    const [wide, high] = [canvas.clientWidth, canvas.clientHeight];
    const ratio = devicePixelRatio || 1;
    this.rows = document.createElement("canvas");
    for (const one of [canvas, this.rows]) [one.width, one.height] = [Math.round(wide * ratio), Math.round(high * ratio)];
    [this.ink, this.back] = [colour("ink"), colour("card")];
    const context = this.rows.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const shades = [0, 1, 2, 3, 4].map((i) => colour(`load${i}`));
    const rowHigh = high / Math.max(1, map.rows.length);
    map.rows.forEach((row, i) => {
      const step = wide / row.length;
      for (let from = 0; from < row.length;) {
        let to = from + 1;
        while (to < row.length && row[to] === row[from]) to++;
        context.fillStyle = shades[Math.ceil(Number(row[from]) * 4 / 9)];
        context.fillRect(from * step, i * rowHigh, (to - from) * step + 0.5, rowHigh + 0.5);
        from = to;
      }
    });
    this.mark();
  }

  mark() {
    const { canvas, rows } = this;
    if (!rows?.width || !rows.height) return;
    const context = canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(rows, 0, 0);
    const frame = this.drag ? this.dragged() : this.frame;
    if (!frame) return;
    const ratio = canvas.width / Math.max(1, canvas.clientWidth);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const [wide, high] = [canvas.clientWidth, canvas.clientHeight];
    const [x, y] = [frame.left * wide, frame.top * high];
    const [across, down] = [Math.max(4, (frame.right - frame.left) * wide - 2), Math.max(4, (frame.bottom - frame.top) * high - 2)];
    // The frame has a margin in the card's colour: its own is too near to that of full rows in the dark.
    for (const [ink, broad] of [[this.back, 5], [this.ink, 2]]) {
      context.strokeStyle = ink;
      context.lineWidth = broad;
      context.strokeRect(x + 1, y + 1, across, down);
    }
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const part = (value, size) => Math.min(1, Math.max(0, value / Math.max(1, size)));
    return { x: part(event.clientX - box.left, box.width), y: part(event.clientY - box.top, box.height) };
  }

  begin(event) {
    if (event.button || !this.map) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { from: this.at(event), to: this.at(event) };
  }

  move(event) {
    if (!this.drag) return;
    this.drag.to = this.at(event);
    this.mark();
  }

  end(event) {
    if (!this.drag) return;
    this.drag.to = this.at(event);
    let part = this.dragged();
    this.drag = null;
    const { width, height } = this.canvas.getBoundingClientRect();
    if ((part.right - part.left) * width < 4 && (part.bottom - part.top) * height < 4 && this.frame) {
      const [wide, high] = [this.frame.right - this.frame.left, this.frame.bottom - this.frame.top];
      part = { left: part.left - wide / 2, right: part.left + wide / 2, top: part.top - high / 2, bottom: part.top + high / 2 };
    }
    this.chosen(part);
  }

  dragged() {
    const { from, to } = this.drag;
    return { left: Math.min(from.x, to.x), right: Math.max(from.x, to.x), top: Math.min(from.y, to.y), bottom: Math.max(from.y, to.y) };
  }
}
