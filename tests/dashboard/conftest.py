"""A daemon on a port of loopback with a little cluster, and a real Chromium that looks at its dashboard."""

import asyncio
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    expect,
)

from schedd.api.app import create_app
from schedd.dashboard import add_dashboard
from schedd.engine import EngineSettings
from schedd.service.access.callers import Callers
from schedd.service.access.roles import Bearer
from schedd.service.access.tokens import Tokens
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.settings.auth import AuthSettings
from schedd.service.warmup import warm_up
from schedd.store import Role
from schedd.wire import Event
from tests.dashboard.running_browser import RunningBrowser
from tests.service.planner_harness import StillClock, T, job, node
from tests.waits import WAIT_S

ROLES: tuple[Role, ...] = get_args(Role)
WAIT_MS = int(1000 * WAIT_S)
expect.set_options(timeout=WAIT_MS)  # the library's 5 s are too few for a busy machine


def token(role: str) -> str:
    return f"the-token-of-the-{role}"


def tokens() -> Tokens:
    """A token for each role; the user is ann."""
    names = {"user": "ann"}
    entries = [
        (Bearer(names.get(role, f"our-{role}"), role), hashlib.sha256(token(role).encode()).digest())
        for role in ROLES
    ]
    return Tokens(entries)


@dataclass
class DashboardSite:
    """The daemon behind the dashboard, with requests and events of a test."""

    url: str
    app: FastAPI
    clock: StillClock
    opened: list["UserWindow"] = field(default_factory=list)

    @property
    def loop(self) -> PlanLoop:
        clusters: Clusters = self.app.state.clusters
        return clusters["main"]

    def submit(self, *events: Event) -> None:
        """Submit events to the planner."""
        self.loop.submit(events).result(WAIT_S)

    def get_json(self, path: str, role: str = "admin", **options: Any) -> Any:
        """Return the API's response to a client with this role."""
        headers = {"Authorization": f"Bearer {token(role)}"}
        answer = httpx2.get(f"{self.url}/v1/clusters/main{path}", headers=headers, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post_json(self, path: str, question: Any, role: str = "admin") -> Any:
        """Post a body and return the API's response."""
        headers = {"Authorization": f"Bearer {token(role)}"}
        answer = httpx2.post(f"{self.url}/v1/clusters/main{path}", headers=headers, json=question)
        assert answer.status_code == 200, answer.text
        return answer.json()


class UserWindow:
    """A browser window of one user; collects the errors in it."""

    def __init__(self, site: DashboardSite, context: BrowserContext) -> None:
        self.site = site
        self.context = context
        self.page: Page = context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.wrong: list[str] = []
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("request", self._note_request)

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.wrong.append(f"console: {message.text}")

    def _note_request(self, request: Request) -> None:
        if not request.url.startswith((self.site.url, "data:", "blob:", "about:")):
            self.wrong.append(f"asked {request.url}")

    def log_in(self, role: str) -> None:
        """Log in with a token, as the login form does."""
        # The first login loads all pages, which takes long on a busy machine.
        form = {"token": token(role)}
        answer = httpx2.post(f"{self.site.url}/dashboard/login", data=form)
        session = answer.cookies["schedd_session"]
        self.context.add_cookies(
            [{"name": "schedd_session", "value": session, "url": f"{self.site.url}/dashboard"}]
        )

    def open_page(self, path: str) -> Page:
        self.page.goto(f"{self.site.url}/dashboard/main/{path}")
        return self.page


@pytest.fixture(scope="module")
def browser(running_browser: RunningBrowser) -> Iterator[Browser]:
    """The Chromium. Its library's event loop counts as running only within modules that use it: the tests of
    other modules run loops of their own.
    """
    asyncio._set_running_loop(running_browser.loop)
    yield running_browser.browser
    asyncio._set_running_loop(None)


@pytest.fixture(scope="session")
def server() -> Iterator[tuple[str, FastAPI]]:
    """One application on one port for all tests; each puts its own clusters behind it."""
    warm_up()
    app = create_app(Clusters({}, StillClock()), Callers(tokens()))
    add_dashboard(app)
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, ws="none", lifespan="off", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}", app
    running.should_exit = True
    thread.join(WAIT_S)


@pytest.fixture
def site(server: tuple[str, FastAPI], request: pytest.FixtureRequest) -> Iterator[DashboardSite]:
    """A cluster of two nodes up and one down; five jobs of two users; two of them can run at once.

    Its parameter, where a test gives one, is the cluster's settings.
    """
    url, app = server
    clock = StillClock()
    clusters = Clusters({"main": getattr(request, "param", EngineSettings(slack="900"))}, clock)
    clusters.start(warm=False)
    app.state.clusters = clusters
    app.state.callers = Callers(tokens(), AuthSettings(others="none"))
    found = DashboardSite(url, app, clock)
    found.loop.record_adapter_request()
    found.submit(
        node("n1"),
        node("n2"),
        node("n3", state="down"),
        *(job(f"{i}.server", user="ann" if i % 2 else "bob", mem="2gb") for i in range(1, 6)),
    )
    yield found
    for window in found.opened:
        window.context.close()
    clusters.stop()
    for window in found.opened:
        assert window.wrong == []


@pytest.fixture
def open_window(browser: Browser, site: DashboardSite) -> Callable[..., UserWindow]:
    """Opens windows: ``open_window("user")`` is logged in with a token of that role."""

    def opened(role: str | None = None, **options: Any) -> UserWindow:
        context = browser.new_context(timezone_id="Europe/Prague", **options)
        found = UserWindow(site, context)
        site.opened.append(found)
        if role is not None:
            found.log_in(role)
        return found

    return opened


__all__ = ["DashboardSite", "T", "UserWindow", "token"]
