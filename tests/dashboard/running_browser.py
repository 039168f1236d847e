"""Chromium for all tests of one process."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.dashboard.browser import HOW, chromium

__all__ = ["RunningBrowser", "run_browser"]


@dataclass(frozen=True)
class RunningBrowser:
    """A Chromium and the event loop of the library that controls it."""

    browser: Browser
    loop: asyncio.AbstractEventLoop


@contextmanager
def run_browser() -> Iterator[RunningBrowser]:
    """Run a Chromium. Its library's event loop counts as running only after `browser` has set it."""
    path = chromium()
    if path is None:
        pytest.fail(HOW)
    arguments = ["--disable-gpu", "--disable-background-networking", "--no-first-run", "--disable-sync"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # Chromium has none for root
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=arguments)
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield RunningBrowser(found, loop)
        asyncio._set_running_loop(loop)
        found.close()
