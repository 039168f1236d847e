"""Running the daemon: its port and its socket, until a signal ends it cleanly."""

import asyncio
import contextlib
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI

from schedd.api.acceptor import Acceptor, descriptor_limit, descriptors_in_use
from schedd.api.app import create_app
from schedd.api.connection_slots import ConnectionSlots
from schedd.api.connections import KEEP_ALIVE_S, ServerConnection
from schedd.api.daemon_tasks import lifespan
from schedd.api.listening_sockets import close_unix_socket, log_certificate_fault
from schedd.api.self_probe import SelfProbe
from schedd.api.settings_reload import SettingsReloader
from schedd.dashboard import add_dashboard
from schedd.service.access.callers import Callers
from schedd.service.access.identity import IdentityProvider
from schedd.service.access.tokens import Tokens
from schedd.service.cluster.clock import ClusterClock
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.cluster.incidents import IncidentFiles
from schedd.service.clusters import Clusters
from schedd.service.daemon_services import daemon_services
from schedd.service.notifications.webhook_secrets import Webhook
from schedd.service.settings.file import Settings
from schedd.service.systemd_notify import notify
from schedd.store import StoreError
from schedd.store.default_location import state_folder

_log = structlog.get_logger(__name__)
_THREAD_SWITCH_S = 0.001
"""Interval in seconds between switches of Python threads: the planner waits for it again and again."""
_SHUTDOWN_GRACE_S = 10  # for how long requests under way may go on when the daemon ends


@dataclass(frozen=True, slots=True)
class DaemonExtension:
    """Endpoints and pages that only some daemons have, such as the demo's. ``page_modules`` are names of
    modules with pages of the dashboard.
    """

    add_routes: Callable[[FastAPI], None]
    page_modules: tuple[str, ...] = ()


def serve(
    settings: Settings,
    tokens: Tokens,
    clock: ClusterClock,
    server: socket.socket,
    *,
    local: socket.socket | None = None,
    tls: ssl.SSLContext | None = None,
    read: Callable[[], Settings] | None = None,
    path: Path | None = None,
    login_keys: Mapping[str, bytes] | None = None,
    keys_last: bool = False,
    hooks: Sequence[Webhook] = (),
    oidc: IdentityProvider | None = None,
    extension: DaemonExtension | None = None,
) -> bool:
    """Serve on ``server``, with ``tls`` if given, and on the UNIX socket ``local``, until SIGTERM or SIGINT;
    True after a clean end.

    On SIGHUP the settings are read again by ``read``, from the file ``path``. ``hooks`` are called with
    planned starts that moved.
    The port answers at once; all requests but the health checks get 503 until the kernels are compiled. The
    first request for ``/dashboard/enter?key=KEY`` with one of ``login_keys`` is logged in to the dashboard as
    the holder of the token with that SHA-256; with ``keys_last``, later requests are, too. ``extension`` adds
    endpoints and pages.
    """
    sys.setswitchinterval(_THREAD_SWITCH_S)
    durable = DaemonStore(settings.store) if settings.store.url != "memory" else None
    folder = settings.store.incidents or (state_folder() / "incidents" if durable is not None else None)
    clusters = Clusters(
        {name: one.engine for name, one in settings.clusters.items()},
        clock,
        durable=durable,
        incidents=IncidentFiles(folder) if folder is not None else None,
        plan_metrics_every=settings.store.plan_metrics_every,
    )
    clusters.supervisor.watch_threads()
    failed: list[BaseException] = []

    def abort_startup(error: BaseException) -> None:
        if isinstance(error, StoreError):
            _log.critical("cannot get ready", why=str(error))
        else:
            _log.critical("cannot get ready", exc_info=error)
        failed.append(error)
        running.should_exit = True

    tokens.complete = durable is None
    callers = Callers(tokens, settings.auth, settings.limits, oidc)
    reload = SettingsReloader(settings, read or (lambda: settings), clusters, callers, tls, path)
    services = daemon_services(settings, clusters)
    slots = ConnectionSlots(descriptor_limit(), descriptors_in_use)
    probe = SelfProbe(
        server, tls=tls is not None, on_open=slots.own_addresses.add, on_close=slots.own_addresses.discard
    )
    app = create_app(
        clusters,
        callers,
        max_body=settings.server.max_body_mib << 20,
        root=settings.server.root,
        lifespan=lifespan(
            clusters, callers, reload, abort_startup, hooks, services, probe, reload.watch_files
        ),
        services=services,
    )
    if extension is not None:
        extension.add_routes(app)
    sessions = add_dashboard(app, extension.page_modules if extension is not None else ())
    for key, digest in (login_keys or {}).items():
        sessions.admit(key, digest, lasting=keys_last)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=partial(  # type: ignore[arg-type]
            ServerConnection,
            limits=lambda: callers.limits,
            slots=slots,
            failures=clusters.supervisor.record("connections"),
        ),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=_SHUTDOWN_GRACE_S,
        ssl_context_factory=(lambda _config, _default: tls) if tls is not None else None,
    )
    host, port = server.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    url = f"{'https' if tls is not None else 'http'}://{shown}:{port}{settings.server.root}"
    where = {"socket": local.getsockname()} if local is not None else {}
    _log.info("listening", url=url, **where, clusters=list(settings.clusters))
    if tls is not None:
        log_certificate_fault(tls, settings.server)
    if (
        not tokens
        and local is None
        and not settings.auth.munge
        and oidc is None
        and settings.auth.anonymous == "none"
    ):
        _log.warning(
            "no request can be authenticated yet: create a token with `schedd token create`,"
            " or set server.socket"
        )
    running = _DaemonServer(config, clusters, probe, local, slots.most_descriptors)
    with _absorb_repeated_signals(running):
        running.run([server])
    _log.info("stopped")
    return not failed


class _DaemonServer(uvicorn.Server):
    """Accepts connections by itself; lets long polls end before it waits for its connections."""

    def __init__(
        self,
        config: uvicorn.Config,
        clusters: Clusters,
        probe: SelfProbe,
        local: socket.socket | None,
        most_descriptors: int,
    ) -> None:
        super().__init__(config)
        self._clusters = clusters
        self._probe = probe
        self._local = local
        self._most = most_descriptors
        self._acceptors: list[Acceptor] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])

        def connection() -> asyncio.Protocol:
            return self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )

        supervisor, most = self._clusters.supervisor, self._most
        for one in sockets or ():
            self._acceptors.append(
                Acceptor(one, connection, supervisor, tls=self.config.ssl, most_descriptors=most)
            )
        if self._local is not None:
            self._acceptors.append(Acceptor(self._local, connection, supervisor, most_descriptors=most))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        _log.info("stopping")
        with contextlib.suppress(OSError):
            notify("STOPPING=1")
        self._probe.end()
        self._clusters.end_polls()
        for acceptor in self._acceptors:
            await acceptor.close()
        if self._local is not None:
            close_unix_socket(self._local)
        await super().shutdown(sockets)


@contextlib.contextmanager
def _absorb_repeated_signals(server: uvicorn.Server) -> Iterator[None]:
    """Uvicorn raises the signal that ended it once more at its end: that one is ignored. So is a request to
    reload before the daemon handles it.
    """

    def ignore(_number: int, _frame: FrameType | None) -> None:
        server.should_exit = True  # one that comes before uvicorn handles signals

    before = {number: signal.signal(number, ignore) for number in (signal.SIGTERM, signal.SIGINT)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
