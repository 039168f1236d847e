"""What the daemon does beside answering: getting ready, telling the service manager, knowing the tokens."""

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import httpx2
import structlog
from fastapi import FastAPI

from schedd.api.app import Lifespan
from schedd.service.access.askers import Askers
from schedd.service.clusters import Clusters
from schedd.service.notify import notify, watchdog_interval
from schedd.service.outward.notices import Desk
from schedd.service.outward.webhooks import Hook, follow
from schedd.store import StoreError

__all__ = ["lifespan", "works"]

_log = structlog.get_logger(__name__)
_TOKENS_S = 2.0
"""Seconds between two looks at the store's tokens: so soon one that was revoked counts no more."""
_WAITING_S = 2.0
_EXTEND_US = 60_000_000
"""For how long, from each such word on, the service manager is to wait for a daemon without a database."""


def lifespan(
    clusters: Clusters,
    askers: Askers,
    reload: Callable[[], Awaitable[None]],
    give_up: Callable[[BaseException], None],
    hooks: Sequence[Hook] = (),
    desks: Sequence[Desk] = (),
) -> Lifespan:
    """From the first moment to the last: ``reload`` is called on SIGHUP, ``give_up`` when nothing helps."""

    @contextlib.asynccontextmanager
    async def lived(_: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        reloads: set[asyncio.Future[None]] = set()

        def reloading() -> None:
            task = asyncio.ensure_future(reload())
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        if threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGHUP, reloading)
        tasks = [
            asyncio.create_task(_tend(clusters, give_up)),
            asyncio.create_task(_keep_tokens(clusters, askers)),
            *([asyncio.create_task(_tell_hooks(clusters, hooks))] if hooks else []),
            *(asyncio.create_task(desk.follow()) for desk in desks),
        ]
        try:
            yield
        finally:
            going = (*tasks, *reloads)
            for task in going:
                task.cancel()
            await asyncio.gather(*going, return_exceptions=True)
            await asyncio.to_thread(clusters.stop)

    return lived


async def _tell_hooks(clusters: Clusters, hooks: Sequence[Hook]) -> None:
    """Tell each hook of the moves in each cluster that it wants."""
    async with httpx2.AsyncClient(follow_redirects=False) as client:
        await asyncio.gather(
            *(
                follow(loop, hook, client)
                for loop in clusters
                for hook in hooks
                if not hook.settings.clusters or loop.name in hook.settings.clusters
            )
        )


async def _keep_tokens(clusters: Clusters, askers: Askers) -> None:
    """Know the store's tokens. While it fails, those that are known go on to count."""
    while clusters.durable is not None:
        if clusters.durable.opened.is_set():
            with contextlib.suppress(StoreError):  # it is told by who asks
                askers.tokens.keep(await asyncio.to_thread(clusters.durable.tokens))
        await asyncio.sleep(_TOKENS_S if askers.tokens.complete else 0.05)


async def _tend(clusters: Clusters, give_up: Callable[[BaseException], None]) -> None:
    """Get ready, say so, and keep the service manager informed for as long as the planners work."""
    try:
        begun = time.monotonic()
        await _get_ready(clusters)
        if not clusters.ready:  # it was told to end before it was
            return
        _log.info("ready", seconds=round(time.monotonic() - begun, 1))
        notify("READY=1", "STATUS=ready")
        interval = watchdog_interval()
        while interval is not None:
            if works(clusters, interval):
                notify("WATCHDOG=1")
            await asyncio.sleep(interval / 3)
    except Exception as error:  # nobody awaits this task before the end
        give_up(error)


async def _get_ready(clusters: Clusters) -> None:
    """Start the planners. Without a database that takes as long as the database does, which is no reason to
    be killed by the service manager.
    """
    starting = asyncio.create_task(_aside(clusters.start))
    try:
        while not (await asyncio.wait({starting}, timeout=_WAITING_S))[0]:
            if why := clusters.waits_for:
                notify(f"STATUS=waiting: {why}", f"EXTEND_TIMEOUT_USEC={_EXTEND_US}")
        await starting
    finally:
        starting.cancel()


def works(clusters: Clusters, interval: float) -> bool:
    """Whether no planner stopped for an error or is at one piece of work for longer than ``interval``."""
    return not any(loop.failure or loop.busy_for > interval for loop in clusters)


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
