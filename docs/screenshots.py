"""Takes the pictures of docs/dashboard.md, in docs/images/, of a demo that it starts."""

import io
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx2
from PIL import Image
from playwright.sync_api import Browser, Page, StorageState, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.dashboard.browser import HOW, chromium  # noqa: E402  (it stands beside this folder)

TO = ROOT / "docs" / "images"
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
PLAYED_S = 40
WHAT_IF = "what-if?nodes=1&ppn=8&walltime=12:00:00"


@contextmanager
def demo() -> Iterator[str]:
    """A demo that has played for a while; the link that logs in."""
    with tempfile.TemporaryFile("w+") as out:
        command = [sys.executable, "-m", "schedd.cli.main", "demo", "--port", "0"]
        process = subprocess.Popen(command, stdout=out, cwd=ROOT)
        try:
            while " started " not in (said := _read(out)):
                time.sleep(0.5)
            time.sleep(PLAYED_S)
            yield re.findall(r"http\S+/enter\S+", said)[0]
        finally:
            process.terminate()
            process.wait()


def _read(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def picture(page: Page, name: str, *, whole: bool = False) -> None:
    """What the page shows now, its charts drawn."""
    page.wait_for_timeout(800)
    for chart in page.locator(".plot[data-figure]").all():
        chart.wait_for()
        page.wait_for_function("chart => chart.dataset.ready", arg=chart.element_handle())
    shot = Image.open(io.BytesIO(page.screenshot(full_page=whole)))
    shot.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(TO / f"{name}.png", optimize=True)
    print(f"{name}.png")


def look(
    browser: Browser, base: str, state: StorageState, size: dict[str, int], scheme: str
) -> Iterator[Page]:
    """A window of this size."""
    context = browser.new_context(
        storage_state=state, viewport=size, color_scheme=scheme, timezone_id="Europe/Prague"
    )
    page = context.new_page()
    page.goto(base)
    yield page
    context.close()


def main() -> int:
    """Takes them all."""
    path = chromium()
    if path is None:
        print(HOW, file=sys.stderr)
        return 1
    TO.mkdir(exist_ok=True)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with demo() as link, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        context = browser.new_context()
        context.new_page().goto(link)
        state = context.storage_state()
        base = link.partition("/enter")[0] + "/demo/"
        api = base.replace("/dashboard/", "/v1/clusters/")
        planned = httpx2.get(f"{api}jobs?state=planned&limit=100").json()["jobs"]
        job = max(planned, key=lambda one: one["last_change"]["generation"] if one["last_change"] else 0)[
            "id"
        ]
        for page in look(browser, f"{base}plan", state, DESKTOP, "light"):
            picture(page, "plan")
            for path_, name in (
                ("queue", "queue"),
                ("nodes", "nodes"),
                (WHAT_IF, "what-if"),
                ("admin", "admin"),
            ):
                page.goto(base + path_)
                picture(page, name)
            for path_, name in ((f"jobs/{job}", "job"), ("quality", "quality")):
                page.goto(base + path_)
                picture(page, name, whole=True)
        for page in look(browser, f"{base}plan", state, DESKTOP, "dark"):
            page.select_option("#colour", "user")
            picture(page, "plan-dark")
        for page in look(browser, f"{base}plan", state, PHONE, "light"):
            picture(page, "plan-phone", whole=True)
            page.goto(f"{base}jobs/{job}")
            picture(page, "job-phone", whole=True)
        for page in look(browser, f"{base}queue", state, PHONE, "dark"):
            picture(page, "queue-phone")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
