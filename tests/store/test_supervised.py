"""A complete daemon on a real database survives and reports an exception in any thread or task."""

import asyncio
import ctypes
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import structlog
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, generate_latest

from schedd.api.daemon_tasks import lifespan
from schedd.engine import EngineSettings
from schedd.features.notices.daemon_settings import NotifySettings
from schedd.features.notices.notifier import Notifier
from schedd.policy.site import site_policy
from schedd.service.access.callers import Callers
from schedd.service.access.tokens import Tokens
from schedd.service.cluster.clock import SystemClock
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.notifications.webhook_secrets import Webhook
from schedd.service.read.cluster_gauges import ClusterGauges
from schedd.service.settings.daemon import StoreSettings, WebhookSettings
from schedd.store import Leadership
from schedd.store import lease as leases
from schedd.supervision import WorkRecord
from tests.conftest import ROOT
from tests.ports import free_port
from tests.service.planner_harness import event_id, job, node
from tests.store.postgres import PostgresServer
from tests.waits import WAIT_S

LEASE = 2.0
NOT_OURS = ("asyncio_", "AnyIO worker thread", "checkpoint", "history", "MainThread", "daemon of the test")
"""Threads of asyncio's and Starlette's pools, which pass errors to their callers; or of the journal."""


def wait_until(condition: Callable[[], object], turn: Callable[[], object] = lambda: None) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        turn()
        time.sleep(0.01)


def _is_waiting(thread: int) -> bool:
    """Whether a thread waits for an event. In a request to the database, an error from outside would become
    one of the database, which its work survives by itself.
    """
    frame = sys._current_frames().get(thread)
    return frame is not None and frame.f_code.co_filename == threading.__file__


class SupervisedDaemon:
    """A daemon with all its background work, in a thread of this process."""

    def __init__(self, url: str, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        away = f"http://127.0.0.1:{free_port()}"
        secret = folder / "secret"
        secret.write_text(secrets.token_hex(16))
        secret.chmod(0o600)
        self.told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.told.bind(str(folder / f"{name}.notify"))
        threading.Thread(target=self._read, name="daemon of the test: notices", daemon=True).start()
        monkeypatch.setenv("NOTIFY_SOCKET", str(folder / f"{name}.notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        self.durable = DaemonStore(StoreSettings(url=url, holder=name, lease=LEASE, watermarks=folder))
        site = {"licences": {"abaqus": {"command": ["/bin/true"], "every": 60}}}
        self.clusters = Clusters(
            {"main": EngineSettings(slack="60", site=site_policy(site))},
            SystemClock(),
            durable=self.durable,
            plan_metrics_every=0.2,
        )
        self.loop: PlanLoop = self.clusters["main"]
        self.callers = Callers(Tokens([], complete=False))
        hook = Webhook(WebhookSettings(url=away, secret_file=secret, allow=("127.0.0.1",)), b"x" * 32)
        notify = NotifySettings(relay="127.0.0.1:9", sender="schedd@example.org", domains=("example.org",))
        self.desk = Notifier(self.loop, notify, self.durable.opened_store)
        self._events = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self.gave_up: list[BaseException] = []
        self._lived = lifespan(
            self.clusters, self.callers, self._nothing, self.gave_up.append, [hook], [self.desk]
        )
        self._thread = threading.Thread(target=self._run, name="daemon of the test")

    def _read(self) -> None:
        with suppress(OSError):
            while self.told.recv(1_000):
                pass

    async def _nothing(self) -> None:
        return

    def _run(self) -> None:
        async def live() -> None:
            async with self._lived(FastAPI()):
                await self._end.wait()

        self._events.run_until_complete(live())
        self._events.close()

    def start(self) -> "SupervisedDaemon":
        self._thread.start()
        return self

    def stop(self) -> None:
        self._events.call_soon_threadsafe(self._end.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self.told.shutdown(socket.SHUT_RDWR)
        self.told.close()

    @property
    def metrics(self) -> str:
        registry = CollectorRegistry()
        registry.register(ClusterGauges(self.clusters, list(self.clusters)))
        return generate_latest(registry).decode()

    @property
    def alerts(self) -> str:
        return "".join(one.text for one in self.loop.alerts.current if one.kind == "background")

    def submit(self, *events: Any) -> None:
        self.loop.submit(events).result(WAIT_S)

    # ---- errors from outside ---------------------------------------------------------------------

    def _wake_threads(self) -> None:
        """Wake the threads that wait without a time limit: an error from outside comes when they run."""
        self.loop._inbox.wake()
        with self.loop._acknowledgements._condition:
            self.loop._acknowledgements._condition.notify()

    def fail(self, record: WorkRecord) -> None:
        """Raise MemoryError in the thread, or in the task, that does this work."""
        title = f"{record.name} {record.cluster}".strip()
        for thread in threading.enumerate():
            if thread.name == title:
                assert thread.ident is not None
                wait_until(lambda ident=thread.ident: _is_waiting(ident), self._wake_threads)  # type: ignore[misc]
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident), ctypes.py_object(MemoryError)
                )
                wait_until(lambda: record.failures, self._wake_threads)
                return
        self._events.call_soon_threadsafe(self._fail_task, title)
        wait_until(lambda: record.failures)

    def _fail_task(self, title: str) -> None:
        task = next(task for task in asyncio.all_tasks(self._events) if task.get_name() == title)
        waits: Any = task._fut_waiter  # type: ignore[attr-defined]
        if waits is None or isinstance(waits, asyncio.Task) or waits.done() or "thread" in repr(waits):
            self._events.call_later(0.01, self._fail_task, title)
        else:
            waits.set_exception(MemoryError())


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    """PostgreSQL: only there a thread renews the lease."""
    name = f"supervised{secrets.token_hex(4)}"
    yield postgres.create(name)
    postgres.drop(name)


@contextmanager
def daemon(
    url: str, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "a", *, leads: bool = True
) -> Iterator[SupervisedDaemon]:
    found = SupervisedDaemon(url, folder, name, monkeypatch).start()
    try:
        wait_until(lambda: found.clusters.ready and found.loop.is_leader is leads)
        yield found
    finally:
        found.stop()


def without_frames(_: object, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Forget a logged exception: its frames would keep what they hold, such as the lock of the database."""
    line.pop("exc_info", None)
    return line


def readiness(one: SupervisedDaemon) -> str:
    return one.clusters.failures.get("main", "")


def test_exception_in_any_thread_or_task_is_reported_and_survived(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {thread.ident for thread in threading.enumerate()}
    with structlog.testing.capture_logs([without_frames]) as said, daemon(url, tmp_path, monkeypatch) as one:
        one.submit(node("n1"), job("1"), job("2"))
        work = one.clusters.supervisor.records
        titles = {f"{record.name} {record.cluster}".strip(): record for record in work}
        threads = {
            thread.name
            for thread in threading.enumerate()
            if thread.ident not in before and not thread.name.startswith(NOT_OURS)
        }

        def own_tasks() -> set[str]:
            """Return the names of the tasks started by schedd, not those of the web server."""
            tasks = asyncio.all_tasks(one._events)
            codes = {task.get_name(): getattr(task.get_coro(), "cr_code", None) for task in tasks}
            ours = str(ROOT / "schedd")
            return {name for name, code in codes.items() if code and code.co_filename.startswith(ours)}

        assert threads <= titles.keys(), "these work without a supervisor"
        wait_until(lambda: own_tasks() <= titles.keys())
        tasks = own_tasks() & titles.keys()
        going = [titles[name] for name in sorted(threads | tasks)]
        names = {record.name for record in going}
        assert names == {
            *("plan", "searches", "expected starts", "accounts", "licences", "alternatives", "plan values"),
            *("time limits", "leadership", "lease", "alerts", "fair-share history"),
            *("tokens", "notices", "webhook 1", "watchdog", "acknowledgements"),
        }
        for record in going:
            one.fail(record)
        for record in going:
            wait_until(lambda record=record: not record.down)  # type: ignore[misc]
        again = {thread.name for thread in threading.enumerate()} | {
            task.get_name() for task in asyncio.all_tasks(one._events)
        }
        assert threads | tasks <= again
        metrics = one.metrics
        wait_until(lambda: all(record.name in one.alerts for record in going))
        for record in going:
            labels = f'cluster="{record.cluster}",work="{record.name}"'
            assert f"schedd_background_failures_total{{{labels}}} 1.0" in metrics
            assert any(
                line["event"] == "background work failed" and line["work"] == record.name for line in said
            )
        wait_until(lambda: readiness(one).startswith("no snapshot") or not readiness(one))
        one.submit(job("3"))  # it plans, stores its decisions, and leads
        assert set(one.loop.published.ids) == {"1", "2", "3"}
        assert one.loop.is_leader
        assert not one.gave_up


def test_token_revoked_after_a_failed_refresh_is_invalid(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with daemon(url, tmp_path, monkeypatch) as one:
        tokens, store = one.callers.tokens, one.durable.store
        token = store.add_token("ann", "user", 1)
        wait_until(lambda: tokens.bearer(token))
        read, errors = one.durable.tokens, [MemoryError(), ValueError("no")]

        def failing() -> Any:
            if errors:
                raise errors.pop()
            return read()

        monkeypatch.setattr(one.durable, "tokens", failing)
        wait_until(lambda: not errors)
        (kept,) = store.tokens()
        store.revoke_token(kept.id, 2)
        wait_until(lambda: tokens.bearer(token) is None)
        assert "tokens: " in one.clusters.supervisor.trouble("main")


def test_permanently_failing_token_refresh_makes_the_daemon_not_ready(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with daemon(url, tmp_path, monkeypatch) as one:

        def failing() -> Any:
            raise MemoryError

        monkeypatch.setattr(one.durable, "tokens", failing)
        wait_until(lambda: "tokens: no memory is left" in readiness(one))


@pytest.mark.usefixtures("hurried")
def test_errors_during_renewal_do_not_end_the_lease(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "LEASE", 60.0)  # a short one ends on a busy machine
    with daemon(url, tmp_path, monkeypatch) as one:
        renew, errors, renewals = leases.renew, [MemoryError(), ValueError("no")], threading.Semaphore(0)

        def failing(*of: Any) -> bool:
            if errors:
                raise errors.pop()
            renewals.release()
            return renew(*of)

        term = one.durable.lead.term
        monkeypatch.setattr(leases, "renew", failing)
        for _ in range(3):
            assert renewals.acquire(timeout=WAIT_S)
            one.submit(node(f"n{event_id()}"))
        assert one.loop.is_leader
        assert one.durable.lead.term == term


def test_permanently_failing_renewal_makes_the_daemon_not_ready(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with daemon(url, tmp_path, monkeypatch) as one:

        def failing(*_: Any) -> bool:
            raise ValueError("no")

        monkeypatch.setattr(leases, "renew", failing)
        wait_until(lambda: "lease" in readiness(one))
        wait_until(lambda: not one.loop.is_leader)
        assert "lease" in readiness(one)


def test_standby_takes_over_despite_errors_in_between(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with daemon(url, tmp_path, monkeypatch, "b") as leader:
        leader.submit(node("n1"), job("1"))
        standby = SupervisedDaemon(url, tmp_path, "a", monkeypatch).start()
        try:
            wait_until(lambda: standby.clusters.ready)
            assert not standby.loop.is_leader
            take, errors = Leadership.try_acquire, [MemoryError(), ValueError("no")]

            def failing(lead: Leadership) -> bool:
                if lead is not standby.durable.lead:
                    return False  # the daemon that released it does not acquire it again
                if errors:
                    raise errors.pop()
                return take(lead)

            monkeypatch.setattr(Leadership, "try_acquire", failing)
            wait_until(lambda: "leadership: " in readiness(standby) or not errors)
            leader.durable.lead.release()
            wait_until(lambda: standby.loop.is_leader)
            standby.submit(job("2"))
            assert set(standby.loop.published.ids) == {"1", "2"}
        finally:
            standby.stop()


def test_planner_restarts_from_the_store_after_an_error(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with daemon(url, tmp_path, monkeypatch) as one:
        one.submit(node("n1"), job("1"))
        take, errors = one.loop._inbox.next_deliveries, [MemoryError()]

        def failing() -> Any:
            if errors:
                raise errors.pop()
            return take()

        monkeypatch.setattr(one.loop._inbox, "next_deliveries", failing)
        lost = one.loop.submit([job("2")])
        assert lost.exception(WAIT_S) is not None  # the adapter sends it again
        wait_until(lambda: one.loop.alive and one.loop.is_leader)
        one.submit(job("3"))
        assert set(one.loop.published.ids) == {"1", "3"}
        assert one.loop.pending == 0
        assert "plan: no memory is left" in one.clusters.supervisor.trouble("main")
