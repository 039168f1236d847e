"""Daemon of a federation: its port, its log, and a thread for each cluster, until a signal ends it."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import structlog
import uvicorn
from fastapi import FastAPI

from schedd.api.connections import KEEP_ALIVE_S
from schedd.federation.api import bags, balance, bookings, coallocations
from schedd.federation.api.app import create_app
from schedd.federation.api.pages.routes import add_pages
from schedd.federation.api.users import FederationUsers
from schedd.federation.event_log import FederationLog
from schedd.federation.settings import FederationSettings
from schedd.federation.state.federation_state import FederationState
from schedd.federation.workers.bag_worker import BagWorker
from schedd.federation.workers.booking_worker import BookingWorker
from schedd.federation.workers.cluster_worker import ClusterWorker
from schedd.federation.workers.coallocation_worker import CoAllocationWorker
from schedd.service.access.tokens import Tokens, read_token_file
from schedd.service.garbage_collector import GarbageCollectorTuning
from schedd.service.systemd_notify import notify
from schedd.store import Role, StoreError
from schedd.supervision import PeriodicWork, Supervisor, run_in_thread
from schedd.wire.settings_file import SettingsFiles, read_token

_log = structlog.get_logger(__name__)
_POLL_S = 0.5
_JOIN_TIMEOUT_S = 5.0
_FILE_CHECK_S = 15.0
FEDERATION_ROUTES: Final[tuple[Callable[[FastAPI], None], ...]] = (
    balance.router.add_to,
    coallocations.router.add_to,
    bags.router.add_to,
    bookings.router.add_to,
    add_pages,
)
"""Functions that add the routes, except those of jobs and clusters."""
_ROLES: Final[tuple[Role, ...]] = ("user", "reader", "admin")
"""The other roles of a daemon's tokens have no meaning in a federation."""


def load_tokens(settings: FederationSettings) -> Tokens:
    """Return the callers with access to the federation. Raises SettingsError."""
    path = settings.server.token_file
    return Tokens(read_token_file(path, _ROLES) if path is not None else ())


def load_member_tokens(settings: FederationSettings) -> dict[str, str]:
    """Return the federation's own token for each cluster. Raises SettingsError."""
    return {
        name: read_token(one.token_file, f"clusters.{name}.token_file")
        for name, one in settings.clusters.items()
    }


class SettingsFilesWatch(PeriodicWork):
    """Checks that the settings file, and the files that it names, can still be read: a restart needs them."""

    def __init__(self, files: SettingsFiles, app: FastAPI, supervisor: Supervisor) -> None:
        super().__init__(supervisor, "settings files", _FILE_CHECK_S, wait_first=True)
        self._files = files
        self._app = app

    def run_step(self) -> None:
        why = self._files.problem
        if why and why != self._app.state.settings_trouble:
            _log.error("files of the settings cannot be read", why=why)
        self._app.state.settings_trouble = why


def run_federation(
    settings: FederationSettings,
    tokens: Tokens,
    own: dict[str, str],
    server: socket.socket,
    federation_users: FederationUsers | None = None,
    clock: Callable[[], float] = time.time,
    path: Path | None = None,
) -> bool:
    """Serve until SIGTERM or SIGINT; True when it ended cleanly. ``clock`` is that of the clusters, ``path``
    the settings file.

    The port answers at once; all but ``/healthz`` answers 503 until this daemon leads and has read its log.
    """
    stopping = threading.Event()
    supervisor = Supervisor()
    supervisor.watch_threads()
    failed: list[BaseException] = []
    app: FastAPI

    def work() -> None:
        try:
            _lead_federation(settings, own, app, stopping, supervisor, clock)
        except BaseException as error:
            _log.critical("the federation ends", why=str(error), exc_info=not isinstance(error, StoreError))
            failed.append(error)
        finally:
            if not stopping.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        supervisor.watch_loop(asyncio.get_running_loop())
        worker = run_in_thread("federation", work)
        watch.start()
        yield
        watch.end()
        stopping.set()
        await asyncio.wrap_future(worker)

    app = create_app(tokens, life, federation_users, settings.server.request_rate)
    watch = SettingsFilesWatch(SettingsFiles(path, settings), app, supervisor)
    for add_routes in FEDERATION_ROUTES:
        add_routes(app)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=10,
    )
    host, port = server.getsockname()[:2]
    _log.info("listening", url=f"http://{host}:{port}", clusters=list(settings.clusters))
    running = uvicorn.Server(config)
    with contextlib.suppress(KeyboardInterrupt):
        running.run([server])
    _log.info("stopped")
    return not failed


def _lead_federation(
    settings: FederationSettings,
    own: dict[str, str],
    app: FastAPI,
    stopping: threading.Event,
    supervisor: Supervisor,
    clock: Callable[[], float],
) -> None:
    """Wait until this daemon leads, then work until it must stop or another daemon leads."""
    log = FederationLog(settings.store.url, settings.store.named, settings.store.lease, supervisor)
    peers: list[ClusterWorker] = []
    garbage = GarbageCollectorTuning()
    try:
        while not log.leadership.try_acquire():
            leader = log.read_leader()
            if app.state.leader != leader:
                _log.info("standing by: another daemon leads", leader=leader)
                app.state.leader = leader
            if stopping.wait(_POLL_S):
                return
        app.state.leader = ""
        federation = FederationState(settings, log, own, clock)
        garbage.begin()  # it tracks the records of all jobs: a full collection would delay every decision
        _log.info(
            "leading",
            term=log.leadership.term,
            jobs=len(federation.jobs.by_id),
            open=len(federation.jobs.open),
        )
        ending = threading.Event()
        peers = [ClusterWorker(name, federation, own[name], ending) for name in settings.clusters]
        keepers = (
            CoAllocationWorker(federation, own, ending, clock),
            BagWorker(federation, ending, clock),
            BookingWorker(federation, ending, clock),
        )
        for thread in (*peers, *keepers):
            thread.start()
        app.state.federation = federation
        with contextlib.suppress(OSError):
            notify("READY=1")
        while not stopping.wait(_POLL_S):
            if log.leadership.lost_reason:
                raise StoreError(f"another daemon leads: {log.leadership.lost_reason}")
    finally:
        garbage.end()
        app.state.federation = None
        if peers:
            ending.set()
            for thread in (*peers, *keepers):
                thread.join(_JOIN_TIMEOUT_S)
        log.close()
