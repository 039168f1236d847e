"""Background tasks of the daemon: becoming ready, service manager, the store's tokens."""

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

import structlog
from fastapi import FastAPI

from schedd.api.app import Lifespan
from schedd.api.self_probe import SelfProbe
from schedd.service.access.callers import Callers
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.daemon_services import DaemonService
from schedd.service.notifications.webhook_secrets import Webhook
from schedd.service.systemd_notify import notify, watchdog_interval
from schedd.store import StoreError
from schedd.supervision import SupervisedTask, run_in_thread

_log = structlog.get_logger(__name__)
_TOKEN_REFRESH_S = 2.0
"""Interval in seconds between two reads of the store's tokens; a revoked token is valid until then."""
_STATUS_INTERVAL_S = 2.0
_PROBE_INTERVAL_S = 15.0  # between two requests of the daemon to itself where no watchdog says how often
_EXTEND_TIMEOUT_US = 60_000_000
"""For how long, from each such word on, the service manager is to wait for a daemon without a database."""


def lifespan(
    clusters: Clusters,
    callers: Callers,
    reload: Callable[[], Awaitable[None]],
    give_up: Callable[[BaseException], None],
    hooks: Sequence[Webhook] = (),
    services: Sequence[DaemonService] = (),
    probe: SelfProbe | None = None,
    watch_files: Callable[[], Awaitable[None]] | None = None,
) -> Lifespan:
    """From the first moment to the last: ``reload`` is called on SIGHUP, ``give_up`` when nothing helps.

    ``watch_files`` runs until the end. The service manager's watchdog is fed when ``probe`` was answered.
    """

    @contextlib.asynccontextmanager
    async def lived(_: FastAPI) -> AsyncIterator[None]:
        loop, work = asyncio.get_running_loop(), clusters.supervisor
        work.watch_loop(loop)
        tasks: list[SupervisedTask] = []

        def reloading() -> None:
            tasks[:] = [task for task in tasks if not task.task.done()]
            tasks.append(work.once("settings", reload))

        if threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGHUP, reloading)
        tasks += (
            work.once("start", partial(_start_planners, clusters, give_up)),
            work.task("watchdog", partial(_feed_watchdog, clusters, probe)),
            *([work.task("settings files", watch_files)] if watch_files is not None else []),
            work.task("tokens", partial(_refresh_tokens, clusters, callers), needed=True),
            *(work.task(service.title, service.follow, cluster=service.cluster) for service in services),
            *(
                work.task(f"webhook {number}", partial(_run_webhook, cluster, hook), cluster=cluster.name)
                for cluster in clusters
                for number, hook in enumerate(hooks, start=1)
                if not hook.settings.clusters or cluster.name in hook.settings.clusters
            ),
        )
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                await task.ended()
            await asyncio.to_thread(clusters.stop)

    return lived


async def _run_webhook(cluster: PlanLoop, hook: Webhook) -> None:
    """Call a hook with the moves in a cluster."""
    # An HTTP client is large, and most daemons have no webhook.
    import httpx2  # noqa: PLC0415

    from schedd.service.notifications.webhooks import run_webhook  # noqa: PLC0415

    async with httpx2.AsyncClient(follow_redirects=False) as client:
        await run_webhook(cluster, hook, client)


async def _refresh_tokens(clusters: Clusters, callers: Callers) -> None:
    """Keep the store's tokens current. While reading fails, the known ones stay valid."""
    while clusters.durable is not None:
        if clusters.durable.opened.is_set():
            with contextlib.suppress(StoreError):  # reported by the caller
                callers.tokens.set_stored(await asyncio.to_thread(clusters.durable.tokens))
        await asyncio.sleep(_TOKEN_REFRESH_S if callers.tokens.complete else 0.05)


async def _start_planners(clusters: Clusters, give_up: Callable[[BaseException], None]) -> None:
    """Become ready and report it to the service manager; a daemon that cannot become ready ends."""
    try:
        begun = time.monotonic()
        await _await_planners(clusters)
        if not clusters.ready:  # stopped before it was ready
            return
        _log.info("ready", seconds=round(time.monotonic() - begun, 1))
        notify("READY=1", "STATUS=ready")
    except Exception as error:
        give_up(error)
        raise


async def _feed_watchdog(clusters: Clusters, probe: SelfProbe | None) -> None:
    """Report to the service manager at intervals that the daemon works, while its planners work and it
    answers a request over its own socket. Raises ProbeFailed.
    """
    interval = watchdog_interval()
    every = _PROBE_INTERVAL_S if interval is None else interval / 4
    while True:
        await asyncio.sleep(every)
        if probe is not None:
            await probe.check(every)
        if interval is not None and clusters.ready and planners_work(clusters, interval):
            notify("WATCHDOG=1")


async def _await_planners(clusters: Clusters) -> None:
    """Start the planners. Without a database that takes as long as the database does, which is no reason to
    be killed by the service manager.
    """
    # In a thread that need not end before the process does: compiling takes a while.
    starting = asyncio.wrap_future(run_in_thread("start", clusters.start))
    while not (await asyncio.wait({starting}, timeout=_STATUS_INTERVAL_S))[0]:
        if why := clusters.startup_trouble:
            notify(f"STATUS=waiting: {why}", f"EXTEND_TIMEOUT_USEC={_EXTEND_TIMEOUT_US}")
    await starting


def planners_work(clusters: Clusters, interval: float) -> bool:
    """Whether no planner stopped for an error or is at one piece of work for longer than ``interval``."""
    return not any(loop.failure or loop.busy_for > interval for loop in clusters)
