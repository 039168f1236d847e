"""A Chromium of this machine, where there is one: how soon it shows the dashboard's pages."""

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Paints", "chromium", "paints"]

_NAMES: Final = (
    *("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome"),
    "microsoft-edge",
)
_WAIT_MS: Final = 120_000
_STEPS: Final = """async () => {
  const times = [...[...Bokeh.index.roots][0].model.references()].find((one) => one.name === "times");
  const step = (times.end - times.start) / 100;
  const frames = [];
  for (let i = 0; i < 20; i++) {
    const began = performance.now();
    times.setv({ start: times.start + step, end: times.end + step });
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    frames.push(performance.now() - began);
  }
  return frames.sort((a, b) => a - b)[10];
}"""

_PAINT: Final = """() => new Promise((done) => {
  const look = () => {
    const [paint] = performance.getEntriesByName("first-contentful-paint");
    if (paint) done(paint.startTime); else setTimeout(look, 20);
  };
  look();
})"""


@dataclass(frozen=True, slots=True)
class Paints:
    """Milliseconds. ``first`` by page: until the first paint, nothing being known to the browser before;
    ``again``: of the same page once more. ``drawn``: until the chart of the plan stands, first and again;
    ``moved``: a step of moving it, the median of 20.
    """

    first: dict[str, float]
    again: dict[str, float]
    drawn: tuple[float, float]
    moved: float


def chromium() -> str | None:
    """The path of the browser: $SCHEDD_CHROMIUM, else the first of its names on PATH."""
    named = os.environ.get("SCHEDD_CHROMIUM")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, _NAMES)), None)


def paints(address: str, pages: Sequence[str], headers: Mapping[str, str]) -> Paints | None:
    """How soon the ``pages`` below ``address`` are shown to who sends ``headers``; None without a browser."""
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415  (a daemon's host needs none)
    except ImportError:
        return None
    path = chromium()
    if path is None:
        return None
    first: dict[str, float] = {}
    again: dict[str, float] = {}
    drawn: list[float] = []
    arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        for name in pages:
            context = browser.new_context(extra_http_headers=dict(headers))
            page = context.new_page()
            for found in (first, again):
                begun = time.perf_counter()
                page.goto(f"{address}/{name}", timeout=_WAIT_MS)
                if name == "plan":
                    page.wait_for_selector("#plan[data-ready]", timeout=_WAIT_MS)
                    drawn.append(round((time.perf_counter() - begun) * 1e3))
                found[name] = round(_paint(page))
            context.close()
        page = browser.new_context(extra_http_headers=dict(headers)).new_page()
        page.goto(f"{address}/plan")
        page.wait_for_selector("#plan[data-ready]", timeout=_WAIT_MS)
        moved = round(float(page.evaluate(_STEPS)))
        browser.close()
    return Paints(first, again, (drawn[0], drawn[1]), moved)


def _paint(page: Any) -> float:
    return float(page.evaluate(_PAINT))
