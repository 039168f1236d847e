"""A Chromium of this machine, where there is one: how soon it shows the dashboard's pages."""

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_NAMES: Final = (
    "chromium-headless-shell",  # the same engine without a window's interface, which costs half of the time
    *("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome"),
    "microsoft-edge",
)
_WAIT_MS: Final = 120_000
_COUNT: Final = 120
_MOVED: Final = {"36 rows": "", "200 rows": "count=200"}
"""Parts of the plan, and how a page's address asks for them."""
_FRAMES: Final = """async (count) => {
  const [root] = [...Bokeh.index.roots];
  const models = [...root.model.references()];
  const times = models.find((one) => one.name === "times");
  const bars = models.find((one) => one.name === "bars" && one.type === "ColumnDataSource");
  const chart = root.child_views.find((one) => one.model.name === "chart");
  const repaint = chart.repaint.bind(chart);
  let painted = 0;
  chart.repaint = () => { painted++; repaint(); };
  const step = (times.end - times.start) / (2 * count);
  const moments = [];
  await new Promise((done) => {
    const frame = (now) => {
      moments.push(now);
      if (moments.length > count) return done();
      times.setv({ start: times.start + step, end: times.end + step });
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  delete chart.repaint;
  const frames = moments.slice(1).map((now, i) => now - moments[i]).sort((a, b) => a - b);
  return {
    bars: bars.data.job.length, share: painted / count,
    median: frames[Math.floor(count / 2)], most: frames[Math.floor(count * 0.95)],
  };
}"""
"""The chart is moved a little at each frame that the browser begins, half of its width in all."""

_PAINT: Final = """() => new Promise((done) => {
  const look = () => {
    const [paint] = performance.getEntriesByName("first-contentful-paint");
    if (paint) done(paint.startTime); else setTimeout(look, 20);
  };
  look();
})"""


@dataclass(frozen=True, slots=True)
class Frames:
    """From one frame to the next while the chart is moved, ms: the median, and ``most``, which 95 of 100 do
    not exceed. A browser begins at most 60 a second, so 16.7 is the least. ``share`` of the frames drew the
    chart again, with ``bars`` bars.
    """

    bars: int
    median: float
    most: float
    share: float


@dataclass(frozen=True, slots=True)
class Paints:
    """Milliseconds. ``first`` by page: until the first paint, nothing being known to the browser before;
    ``again``: of the same page once more; ``busy``: processor time of the page's main thread until the first
    paint of the first time. ``drawn``: until the chart of the plan stands, first and again; ``moved``: the
    frames while it is moved, by how much of the plan it shows.
    """

    first: dict[str, float]
    again: dict[str, float]
    busy: dict[str, float]
    drawn: tuple[float, float]
    moved: dict[str, Frames]


def chromium() -> str | None:
    """The path of the browser: $SCHEDD_CHROMIUM, else the first of its names on PATH."""
    named = os.environ.get("SCHEDD_CHROMIUM")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, _NAMES)), None)


def paints(address: str, pages: Sequence[str], headers: Mapping[str, str]) -> Paints | None:
    """Times until ``pages`` below ``address`` are shown, read with ``headers``; None without a browser."""
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415  (a daemon's host needs none)
    except ImportError:
        return None
    path = chromium()
    if path is None:
        return None
    first: dict[str, float] = {}
    again: dict[str, float] = {}
    busy: dict[str, float] = {}
    drawn: list[float] = []
    arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        for name in pages:
            context = browser.new_context(extra_http_headers=dict(headers))
            page = context.new_page()
            protocol = context.new_cdp_session(page)
            protocol.send("Performance.enable", {"timeDomain": "threadTicks"})
            for found in (first, again):
                begun = time.perf_counter()
                page.goto(f"{address}/{name}", timeout=_WAIT_MS, wait_until="commit")
                found[name] = round(_paint(page))
                if found is first:
                    busy[name] = _busy_ms(protocol)
                page.wait_for_load_state(timeout=_WAIT_MS)
                if name == "plan":
                    page.wait_for_selector("#plan[data-ready]", timeout=_WAIT_MS)
                    drawn.append(round((time.perf_counter() - begun) * 1e3))
            context.close()
        page = browser.new_context(extra_http_headers=dict(headers)).new_page()
        moved = {words: _frames(page, f"{address}/plan?{query}") for words, query in _MOVED.items()}
        browser.close()
    return Paints(first, again, busy, (drawn[0], drawn[1]), moved)


def _frames(page: Any, address: str) -> Frames:
    page.goto(address)
    page.wait_for_selector("#plan[data-ready]", timeout=_WAIT_MS)
    found = page.evaluate(_FRAMES, _COUNT)
    rounded = {name: round(float(found[name]), 1) for name in ("median", "most")}
    return Frames(int(found["bars"]), **rounded, share=round(float(found["share"]), 2))


def _busy_ms(protocol: Any) -> float:
    """Return the processor time that the page's tasks have used."""
    metrics = protocol.send("Performance.getMetrics")["metrics"]
    return round(next(float(one["value"]) for one in metrics if one["name"] == "TaskDuration") * 1e3)


def _paint(page: Any) -> float:
    return float(page.evaluate(_PAINT))
