"""Mounts the dashboard in the daemon: its sessions at once, its pages at the first request.

The pages, their templates and charts take a second of processor time to load. A daemon that starts, perhaps
after a crash, must start jobs first.
"""

import threading
from collections.abc import Callable, Sequence

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from schedd.dashboard.paths import DASHBOARD_PATH, dashboard_path
from schedd.dashboard.sessions import Sessions


class LazyApplication:
    """An ASGI application that ``make`` creates at the first request, outside the event loop."""

    def __init__(self, make: Callable[[], FastAPI]) -> None:
        self._make = make
        self._made: FastAPI | None = None
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks."""
        made = self._made
        if made is None:
            made = await run_in_threadpool(self.load)
        await made(scope, receive, send)

    def load(self) -> FastAPI:
        """Return the application; of several threads one makes it. What failed is tried again."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made


def add_dashboard(app: FastAPI, page_modules: Sequence[str] = ()) -> Sessions:
    """Serve the dashboard of ``app``'s clusters under ``/dashboard``, and lead there from the root.

    ``page_modules`` are names of further modules with pages, which have what the module ``page`` of a feature
    has, and templates in the folder ``templates`` next to them.
    """
    sessions = app.state.sessions = Sessions()
    app.state.page_modules = tuple(page_modules)

    def make() -> FastAPI:
        # Loaded with the first request: a start does without Jinja and the pages.
        from schedd.dashboard.app import make_pages  # noqa: PLC0415

        return make_pages(app)

    app.mount(DASHBOARD_PATH, LazyApplication(make))

    @app.get(DASHBOARD_PATH, include_in_schema=False)
    @app.get("/", include_in_schema=False)
    async def _(request: Request) -> Response:
        return RedirectResponse(f"{dashboard_path(request)}{DASHBOARD_PATH}/", 303)

    return sessions
