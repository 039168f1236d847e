"""Take the pictures of docs/users/dashboard.md from a demo, into docs/images/: all, or the named ones."""

import io
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx2
from PIL import Image
from playwright.sync_api import Browser, Page, StorageState, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.dashboard.browser import HOW, chromium  # noqa: E402  (not installed)

TO = ROOT / "docs" / "images"
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
PLAYED_S = 100
PATIENCE_MS = 240_000
"""A busy machine needs long for a page."""
WHAT_IF = "what-if?nodes=1&ppn=8&walltime=12:00:00"


@contextmanager
def demo(*options: str, played: float = PLAYED_S) -> Iterator[tuple[str, Callable[[], str]]]:
    """Run a demo for ``played`` seconds; yield its login link, and a function that returns its output."""
    with tempfile.TemporaryFile("w+") as out:
        command = [sys.executable, "-m", "schedd.cli.main", "demo", "--port", "0", *options]
        process = subprocess.Popen(command, stdout=out, cwd=ROOT)
        try:
            while " started " not in (said := _read(out)):
                time.sleep(0.5)
            time.sleep(played)
            yield re.findall(r"http\S+/enter\S+", said)[0], lambda: _read(out)
        finally:
            process.terminate()
            process.wait()


def _read(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def visit(page: Page, address: str) -> None:
    """Open a page. Raises RuntimeError unless it is answered with success."""
    answer = page.goto(address)
    if answer is None or not answer.ok:
        raise RuntimeError(f"{address}: {answer.status if answer is not None else 'no answer'}")


def save_picture(page: Page, name: str, *, whole: bool = False) -> None:
    """Save a picture of the page after its answers came and its charts were drawn."""
    if sys.argv[1:] and name not in sys.argv[1:]:
        return
    page.wait_for_timeout(800)
    page.wait_for_function("() => !document.querySelector('[data-later]')")  # answers that come later
    for chart in page.locator(".plot[data-figure]").all():
        chart.wait_for()
        page.wait_for_function("chart => chart.dataset.ready", arg=chart.element_handle())
    shot = Image.open(io.BytesIO(page.screenshot(full_page=whole)))
    shot.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(TO / f"{name}.png", optimize=True)
    print(f"{name}.png")


def open_window(
    browser: Browser, base: str, state: StorageState, size: dict[str, int], scheme: str
) -> Iterator[Page]:
    """Yield a page in a new browser window of this size."""
    context = browser.new_context(
        storage_state=state, viewport=size, color_scheme=scheme, timezone_id="Europe/Prague"
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(base)
    yield page
    context.close()


def choose_jobs(api: str) -> tuple[str, str]:
    """Return the late planned job with most moves, and the ended job with the longest history."""
    planned = httpx2.get(f"{api}jobs?state=planned&limit=1000&fields=id", timeout=60).json()["jobs"][-8:]
    histories = [httpx2.get(f"{api}jobs/{one['id']}/history", timeout=60).json() for one in planned]
    ended = [httpx2.get(f"{api}jobs/{number}/history", timeout=60).json() for number in range(1, 80)]
    past = max((one for one in ended if one.get("past")), key=lambda one: len(one["past"]["moments"]))
    return max(histories, key=lambda one: len(one["changes"]))["job"], past["job"]


def make_reservation(api: str, token: str) -> None:
    """Make a reservation of all nodes for the calendar, besides those of the demo."""
    now = httpx2.get(api.rstrip("/"), timeout=60).json()["as_of"] // 3600 * 3600
    headers = {"Authorization": f"Bearer {token}"}
    start = now + 4 * 86_400
    body = {"start": start, "end": start + 30 * 3600, "everywhere": True, "reason": "cooling"}
    httpx2.put(f"{api}reservations/maintenance", json=body, headers=headers).raise_for_status()


def preview_weights(page: Page) -> None:
    """Preview other weights on the page."""
    page.get_by_text("Try other weights").click()
    weights = page.locator("#weights")
    weights.get_by_label("wait max", exact=True).fill("3")
    weights.get_by_label("size", exact=True).fill("0.5")
    weights.get_by_role("button", name="Preview").click()
    page.wait_for_selector("#weighed")


def main() -> int:
    """Take all pictures."""
    path = chromium()
    if path is None:
        print(HOW, file=sys.stderr)
        return 1
    TO.mkdir(exist_ok=True)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with demo("--nodes", "40", "--speed", "120") as (link, said), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        context = browser.new_context()
        context.set_default_timeout(PATIENCE_MS)
        context.new_page().goto(link)
        state = context.storage_state()
        base = link.partition("/enter")[0] + "/demo/"
        api = base.replace("/dashboard/", "/v1/clusters/")
        job, over = choose_jobs(api)
        make_reservation(api, re.findall(r"^ +admin +(\S+)$", said(), re.MULTILINE)[0])
        pages = {name: name for name in ("plan", "queue", "nodes", "calendar", "plan-metrics", "admin")}
        pages |= {"submit": "submit", "mailbox": "mailbox"}
        pages |= {"what-if": WHAT_IF, "job": f"jobs/{job}", "past": f"jobs/{over}"}
        whole = {"plan-metrics", "admin", "calendar", "job", "past"}
        for page in open_window(browser, f"{base}plan", state, DESKTOP, "light"):
            for name, path_ in pages.items():
                visit(page, base + path_)
                if name == "admin":
                    preview_weights(page)
                save_picture(page, name, whole=name in whole)
        for page in open_window(browser, f"{base}plan", state, DESKTOP, "dark"):
            page.select_option("#colour", "user")
            save_picture(page, "plan-dark")
        for page in open_window(browser, f"{base}plan", state, PHONE, "light"):
            for name in ("plan", "job", "what-if"):
                visit(page, base + pages[name])
                save_picture(page, f"{name}-phone", whole=True)
        for page in open_window(browser, f"{base}queue", state, PHONE, "dark"):
            for name in ("queue", "nodes", "admin"):
                visit(page, base + pages[name])
                save_picture(page, f"{name}-phone")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
