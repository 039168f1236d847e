// What all charts need: a figure from the daemon put into the page, colours from the style sheet, the reader's zone.

import { utc } from "./times.js";

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Bokeh writes times as UTC: what it gets is shifted so that it reads as the reader's clock.
const shifts = new Map();
export function shown(ms) {
  if (utc) return ms;
  const hour = Math.floor(ms / 3600000);
  let shift = shifts.get(hour);
  if (shift === undefined) shifts.set(hour, (shift = new Date(ms).getTimezoneOffset() * 60000));
  return ms - shift;
}
export class Chart {
  static async in(element) {
    const [answer] = await Promise.all([fetch(element.dataset.figure), ready()]);
    if (!answer.ok) throw new Error(`the figure: ${answer.status}`);
    const item = await answer.json();
    element.replaceChildren();
    const views = await Bokeh.embed.embed_item(item, element);
    quiet(element);
    for (const view of views.roots) everyFrame(view);
    const root = [...views.roots][0].model;
    return new Chart(root, element);
  }

  constructor(root, element) {
    this.root = root;
    this.element = element;
    this.models = [...root.references()];
    for (const model of this.models) {
      // Not fewer: of a single label Bokeh says the year alone.
      if (model.type === "DatetimeTicker" && element.clientWidth < 560) model.desired_num_ticks = 4;
    }
    this.dress();
    const redress = () => { this.dress(); this.redress?.(); };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redress);
    document.addEventListener("schedd:theme", redress);
  }

  named(name, type) {
    return this.models.find((model) => model.name === name && (!type || model.type === type));
  }

  source(name) {
    return this.named(name, "ColumnDataSource");
  }

  glyph(name) {
    return this.named(name, "GlyphRenderer").glyph;
  }

  // Lets the reader zoom by dragging over a time; a double click shows all again, by `redraw`.
  letZoom(range, redraw) {
    const zoomed = () => { this.zoomed ||= !this.spanning; };
    const { start, end } = this.named(range).properties;
    start.change.connect(zoomed);
    end.change.connect(zoomed);
    this.element.addEventListener("dblclick", () => { this.zoomed = false; redraw(); });
  }

  // Lets the range of an axis hold all values, with a little air; it is not shorter than `least`. What the reader
  // zoomed into stays.
  span(name, values, least = 0) {
    if (this.zoomed) return;
    this.spanning = true;
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const air = Math.max((high - low || 1) * 0.05, (least - (high - low)) / 2);
    this.named(name).setv({ start: low - air, end: high + air });
    this.spanning = false;
  }

  fill(name, data) {
    this.source(name).data = data;
  }

  dress() {
    const [soft, line, ink] = ["soft", "line", "ink"].map(colour);
    const font = getComputedStyle(document.body).fontFamily;
    for (const model of this.models) {
      if (model.type.endsWith("Axis")) {
        model.setv({ major_label_text_color: soft, axis_label_text_color: soft, major_label_text_font: font });
      }
      if (model.type === "Grid") model.grid_line_color = line;
      if (model.type === "Span") model.line_color = ink;
    }
  }
}

// The Tab key has nothing to do within a chart; Bokeh's canvases would be stops without a name.
function quiet(element) {
  for (const one of element.querySelectorAll("*")) if (one.shadowRoot) quiet(one.shadowRoot);
  for (const one of element.querySelectorAll("[tabindex]")) one.tabIndex = -1;
}

// Bokeh measures the sixtieth of a second between two paints in whole milliseconds, and so leaves out one frame in three.
function everyFrame(view) {
  for (const child of view.child_views ?? []) everyFrame(child);
  if (!view.throttled_paint) return;
  let request = 0, painted = () => {};
  view.throttled_paint = () => new Promise((resolve) => {
    if (request) return resolve();
    painted = resolve;
    request = requestAnimationFrame(() => {
      request = 0;
      if (!view.is_destroyed) view.repaint();
      painted();
    });
  });
  view.throttled_paint.stop = () => { cancelAnimationFrame(request); request = 0; painted(); };
}

function ready() {
  if (globalThis.Bokeh) return null;
  return new Promise((resolve, reject) => {
    const script = document.querySelector('script[src$="/bokeh.js"]');
    script.addEventListener("load", resolve, { once: true });
    script.addEventListener("error", () => reject(new Error("the script of the chart could not be loaded")), { once: true });
  });
}

export function failed(element, error) {
  const words = document.createElement("p");
  words.className = "empty";
  words.textContent = `The chart cannot be drawn (${error.message}). The tables have the same numbers.`;
  element.replaceChildren(words);
}
