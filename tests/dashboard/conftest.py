"""A daemon on a port of loopback with a little cluster, and a real Chromium that looks at its dashboard."""

import hashlib
import os
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
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

from schedd.api.app import create_app
from schedd.dashboard import add_dashboard
from schedd.engine import EngineSettings
from schedd.service.access.callers import Callers
from schedd.service.access.roles import Bearer, Role
from schedd.service.access.tokens import Tokens
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.settings.file import AuthSettings
from schedd.service.warmup import warm_up
from schedd.wire import Event
from tests.dashboard.browser import HOW, chromium
from tests.service.planner_harness import StillClock, T, job, node

ROLES: tuple[Role, ...] = get_args(Role)
WAIT_MS = 60_000


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
class Site:
    """The daemon that the browser talks to, and what a test sends to it."""

    url: str
    app: FastAPI
    clock: StillClock
    opened: list["Look"] = field(default_factory=list)

    @property
    def loop(self) -> PlanLoop:
        clusters: Clusters = self.app.state.clusters
        return clusters["main"]

    def happen(self, *events: Event) -> None:
        """Let the planner handle these."""
        self.loop.submit(events).result(30)

    def ask(self, path: str, role: str = "admin", **options: Any) -> Any:
        """The API's answer, as a client with a token of this role gets it."""
        headers = {"Authorization": f"Bearer {token(role)}"}
        answer = httpx2.get(f"{self.url}/v1/clusters/main{path}", headers=headers, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def put(self, path: str, question: Any, role: str = "admin") -> Any:
        """The API's answer to a question that is posted."""
        headers = {"Authorization": f"Bearer {token(role)}"}
        answer = httpx2.post(f"{self.url}/v1/clusters/main{path}", headers=headers, json=question)
        assert answer.status_code == 200, answer.text
        return answer.json()


class Look:
    """A browser window of one user, with the errors in it."""

    def __init__(self, site: Site, context: BrowserContext) -> None:
        self.site = site
        self.context = context
        self.page: Page = context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.wrong: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.wrong.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.site.url, "data:", "blob:", "about:")):
            self.wrong.append(f"asked {request.url}")

    def log_in(self, role: str) -> None:
        """As the form does it, which has tests of its own."""
        answer = httpx2.post(f"{self.site.url}/dashboard/login", data={"token": token(role)})
        session = answer.cookies["schedd_session"]
        self.context.add_cookies(
            [{"name": "schedd_session", "value": session, "url": f"{self.site.url}/dashboard"}]
        )

    def go(self, path: str) -> Page:
        self.page.goto(f"{self.site.url}/dashboard/main/{path}")
        return self.page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        pytest.fail(HOW)
    arguments = ["--disable-gpu", "--disable-background-networking", "--no-first-run", "--disable-sync"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # Chromium has none for root
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=arguments)
        yield found
        found.close()


@pytest.fixture(scope="module")
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
    thread.join(20)


@pytest.fixture
def site(server: tuple[str, FastAPI], request: pytest.FixtureRequest) -> Iterator[Site]:
    """A cluster of two nodes up and one down; five jobs of two users, of which two can run at once.

    Its parameter, where a test gives one, is the cluster's settings.
    """
    url, app = server
    clock = StillClock()
    clusters = Clusters({"main": getattr(request, "param", EngineSettings(slack=900))}, clock)
    clusters.start(warm=False)
    app.state.clusters = clusters
    app.state.callers = Callers(tokens(), AuthSettings(others="none"))
    found = Site(url, app, clock)
    found.happen(
        node("n1"),
        node("n2"),
        node("n3", state="down"),
        *(job(f"{i}.server", user="ann" if i % 2 else "bob", mem="2gb") for i in range(1, 6)),
    )
    yield found
    for look in found.opened:
        look.context.close()
    clusters.stop()
    for look in found.opened:
        assert look.wrong == []


@pytest.fixture
def look(browser: Browser, site: Site) -> Callable[..., Look]:
    """Opens windows: ``look("user")`` is logged in with a token of that role."""

    def opened(role: str | None = None, **options: Any) -> Look:
        context = browser.new_context(timezone_id="Europe/Prague", **options)
        found = Look(site, context)
        site.opened.append(found)
        if role is not None:
            found.log_in(role)
        return found

    return opened


__all__ = ["Look", "Site", "T", "token"]
