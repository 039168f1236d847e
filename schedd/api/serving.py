"""Running the daemon: listen, get ready, tell the service manager, end cleanly."""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI

from schedd.api.app import Lifespan, create_app
from schedd.service.askers import Askers
from schedd.service.clock import Clock
from schedd.service.clusters import Clusters
from schedd.service.durable import Durable
from schedd.service.notify import notify, watchdog_interval
from schedd.service.settings import Settings
from schedd.service.tokens import Tokens
from schedd.store import StoreError

__all__ = ["ListenError", "listen", "serve"]

_log = structlog.get_logger(__name__)
_GRACE_S = 10
"""For how long requests under way may go on when the daemon ends."""
_MOST_CONNECTIONS = 1_024
_TOKENS_S = 2.0
"""Seconds between two looks at the store's tokens: so soon one that was revoked counts no more."""


class ListenError(OSError):
    """The address cannot be listened on."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises ListenError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        server = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(f"cannot listen on {host}: {error}") from None
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(address)
        server.listen(_MOST_CONNECTIONS)
    except OSError as error:
        server.close()
        raise ListenError(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return server


def serve(settings: Settings, tokens: Tokens, clock: Clock, server: socket.socket) -> bool:
    """Serve on ``server`` until SIGTERM or SIGINT; True when it ended cleanly.

    The port answers at once; all but the health checks answer 503 until the kernels are compiled.
    """
    durable = Durable(settings.store) if settings.store.url != "memory" else None
    clusters = Clusters({name: one.engine for name, one in settings.clusters.items()}, clock, durable=durable)
    failed: list[BaseException] = []

    def give_up(error: BaseException) -> None:
        _log.critical("cannot get ready", exc_info=error)
        failed.append(error)
        running.should_exit = True

    tokens.complete = durable is None
    askers = Askers(tokens, settings.auth, settings.limits)
    app = create_app(
        clusters,
        askers,
        max_body=settings.server.max_body_mib << 20,
        root=settings.server.root,
        lifespan=_lifespan(clusters, askers, give_up),
    )
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    host, port = server.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}{settings.server.root}"
    _log.info("listening", url=url, clusters=list(settings.clusters))
    running = _Server(config, clusters)
    with _one_signal(running):
        running.run([server])
    _log.info("stopped")
    return not failed


class _Server(uvicorn.Server):
    """Lets long polls end before it waits for its connections."""

    def __init__(self, config: uvicorn.Config, clusters: Clusters) -> None:
        super().__init__(config)
        self._clusters = clusters

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        _log.info("stopping")
        with contextlib.suppress(OSError):
            notify("STOPPING=1")
        self._clusters.end_polls()
        await super().shutdown(sockets)


@contextlib.contextmanager
def _one_signal(server: uvicorn.Server) -> Iterator[None]:
    """Uvicorn raises the signal that ended it once more when it is done: that one is to do nothing."""

    def ignore(_number: int, _frame: FrameType | None) -> None:
        server.should_exit = True  # one that comes before uvicorn listens to signals

    before = {number: signal.signal(number, ignore) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _lifespan(clusters: Clusters, askers: Askers, give_up: Callable[[BaseException], None]) -> Lifespan:
    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(_tend(clusters, give_up)),
            asyncio.create_task(_keep_tokens(clusters, askers)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(clusters.stop)

    return lifespan


async def _keep_tokens(clusters: Clusters, askers: Askers) -> None:
    """Know the store's tokens. While it fails, those that are known go on to count."""
    said = ""
    while clusters.durable is not None:
        if clusters.durable.opened.is_set():
            try:
                askers.tokens.keep(await asyncio.to_thread(clusters.durable.store.tokens))
                said = ""
            except StoreError as error:
                if str(error) != said:
                    said = str(error)
                    _log.error("the tokens cannot be read", why=said)
        await asyncio.sleep(_TOKENS_S if askers.tokens.complete else 0.05)


async def _tend(clusters: Clusters, give_up: Callable[[BaseException], None]) -> None:
    """Get ready, say so, and keep the service manager informed for as long as the planners work."""
    try:
        await _aside(clusters.start)
        _log.info("ready")
        notify("READY=1", "STATUS=ready")
        interval = watchdog_interval()
        while interval is not None:
            if not any(loop.failure or loop.busy_for > interval for loop in clusters):
                notify("WATCHDOG=1")
            await asyncio.sleep(interval / 3)
    except Exception as error:  # nobody awaits this task before the end
        give_up(error)


async def _aside(call: Callable[[], None]) -> None:
    """Let ``call`` run in a thread that need not end before the process does: compiling takes a while."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            call()
        except BaseException as raised:  # told to who waits
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(tell, error)

    threading.Thread(target=run, name="start", daemon=True).start()
    await done
