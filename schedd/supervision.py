"""Supervised background work: all threads of a daemon, and all its asyncio tasks that belong to no request.

An exception never ends such work silently. It is logged, counted and shown as a failure, and the work starts
again after a wait that doubles with each failure in a row. Nothing else may create a thread or a task:
`tests/test_background_work.py` compares the code with this rule.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

import structlog

from schedd.error_text import describe_error

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)

FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 30.0
SHOWN_S: Final = 60.0  # a failure stays visible for these seconds after the restart
_STEADY_S: Final = 30.0  # seconds without a failure after which the next one counts as the first in a row
_UNREADY_AFTER: Final = 3  # failures in a row after which restarted work still counts as failing
_NO_MEMORY_WAIT_S: Final = 0.25


class WorkRecord:
    """State of one piece of background work. Any thread may read it.

    ``needed``: the daemon cannot do its work while this fails; readiness shows it.
    """

    def __init__(self, name: str, cluster: str, *, needed: bool, clock: Callable[[], float]) -> None:
        self.name = name
        self.cluster = cluster
        self.needed = needed
        self.failures = 0  # number since the start of the process
        self.down = False  # whether the work failed and was not restarted yet
        self._clock = clock
        self._why = ""
        self._in_a_row = 0
        self._begun = self._failed = 0.0

    @property
    def recent(self) -> bool:
        """Whether the work failed recently, or is down."""
        return self.down or (self.failures > 0 and self._clock() - self._failed < SHOWN_S)

    @property
    def failing(self) -> bool:
        """Whether the work is down, or fails repeatedly."""
        return self.down or (self._in_a_row >= _UNREADY_AFTER and self.recent)

    @property
    def text(self) -> str:
        """Description of a recent failure, for users; empty if there is none."""
        if not self.recent:
            return ""
        state = "is down" if self.down else "was started again"
        count = "1 failure" if self.failures == 1 else f"{self.failures} failures"
        return f"{self.name}: {self._why}; it {state} ({count})"

    def begin(self) -> None:
        """Note a start."""
        self._begun = self._clock()
        self.down = False

    def fail(self, error: BaseException) -> float:
        """Note a failure; returns the wait before the next start, in seconds.

        Never raises: the process may have no memory left.
        """
        now = self._clock()
        self.failures += 1
        self._in_a_row = 1 if now - self._begun >= _STEADY_S else self._in_a_row + 1
        self._failed = now
        self.down = True
        self._why = "an error without a description"
        with suppress(BaseException):
            self._why = describe_error(error)
        wait = min(LONGEST_WAIT_S, FIRST_WAIT_S * float(2 ** min(self._in_a_row - 1, 16)))
        with suppress(BaseException):
            about = {"cluster": self.cluster} if self.cluster else {}
            _log.error(
                "background work failed", work=self.name, **about, again_in=round(wait, 1), exc_info=error
            )
        return wait

    def note(self, error: BaseException) -> None:
        """Note a failure of work that is not restarted."""
        self.fail(error)
        self.down = False


class SupervisedThread:
    """A thread that starts its work again when it raises; it ends when the work returns, or after ``end``."""

    def __init__(self, record: WorkRecord, work: Callable[[], None], title: str) -> None:
        self.record = record
        self._work = work
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=title, daemon=True)

    @property
    def ident(self) -> int | None:
        """The thread's identifier; None before it was started."""
        return self._thread.ident

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        """Return whether the work runs, or waits for its restart."""
        return self._thread.is_alive()

    def end(self) -> None:
        """Do not start the work again."""
        self._ended.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread after its work was stopped; do nothing if it was never started."""
        self.end()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                if self._ran():
                    return
            except BaseException:
                time.sleep(_NO_MEMORY_WAIT_S)

    def _ran(self) -> bool:
        """Whether the work ended by itself."""
        wait = 0.0
        try:
            self.record.begin()
            self._work()
        except BaseException as error:
            if self._ended.is_set():
                return True
            wait = self.record.fail(error)
        else:
            return True
        self._ended.wait(wait)
        return False


class ThreadedWork:
    """Base class of work in a separate supervised thread, which calls ``run``."""

    def __init__(self, supervisor: "Supervisor", name: str, *, cluster: str = "") -> None:
        self._thread = supervisor.thread(name, self.run, cluster=cluster)
        self._failures = self._thread.record

    def run(self) -> None:
        """Work until stopped."""
        raise NotImplementedError

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread's end; the work must be stopped before."""
        self._thread.join(timeout)

    def is_alive(self) -> bool:
        """Whether the work goes on, or waits for its restart."""
        return self._thread.is_alive()


class PeriodicWork:
    """Base class of work that is repeated in a separate supervised thread: ``run_step``, then a wait of
    ``period_s`` seconds, until stopped.

    ``wait_first``: the first step also follows a wait.
    """

    def __init__(
        self,
        supervisor: "Supervisor",
        name: str,
        period_s: float,
        *,
        cluster: str = "",
        wait_first: bool = False,
    ) -> None:
        self._period_s = period_s
        self._wait_first = wait_first
        self._stopping = threading.Event()
        self._thread = supervisor.thread(name, self._run_steps, cluster=cluster)

    def run_step(self) -> None:
        """Do the work that is due. An exception is handled like one of any supervised thread."""
        raise NotImplementedError

    def next_wait_s(self) -> float:
        """Return the seconds until the next step."""
        return self._period_s

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Request the end of the thread, after the present step."""
        self._stopping.set()
        self._thread.end()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread, which must be requested before."""
        self._thread.join(timeout)

    def stop(self) -> None:
        """End the thread, after the present step."""
        self.end()
        self.join()

    def _run_steps(self) -> None:
        if self._wait_first:
            self._stopping.wait(self.next_wait_s())
        while not self._stopping.is_set():
            self.run_step()
            self._stopping.wait(self.next_wait_s())


class SupervisedTask:
    """An asyncio task that starts its work again when it raises; it ends when the work returns."""

    def __init__(
        self, record: WorkRecord, work: Callable[[], Awaitable[None]], title: str, *, again: bool
    ) -> None:
        self.record = record
        self._work = work
        self._title = title
        self._again = again
        self._ended = False
        self._loop = asyncio.get_running_loop()
        self.task: asyncio.Task[None]
        self._start()

    def cancel(self) -> None:
        self._ended = True
        self.task.cancel()

    async def ended(self) -> None:
        """Wait for the task's end."""
        await asyncio.gather(self.task, return_exceptions=True)

    def _start(self) -> None:
        if not self._ended:
            self.task = self._loop.create_task(self._run(), name=self._title)
            self.task.add_done_callback(self._check)

    def _check(self, task: asyncio.Task[None]) -> None:
        """Start the task again if it ended by an error in the handling of an error."""
        if self._ended or task.cancelled() or task.exception() is None or not self._again:
            return
        self._loop.call_later(_NO_MEMORY_WAIT_S, self._start)

    async def _run(self) -> None:
        while True:
            try:
                self.record.begin()
                await self._work()
            except (GeneratorExit, KeyboardInterrupt, SystemExit):
                raise
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if self._ended or task is None or task.cancelling():
                    raise
                wait = self.record.fail(error)  # the work awaited another, cancelled task
            except BaseException as error:
                wait = self.record.fail(error)
            else:
                return
            if not self._again:
                self.record.down = False
                return
            await asyncio.sleep(wait)


class Supervisor:
    """All background work of one daemon. Thread-safe; tasks are created in the event loop's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[tuple[str, str], WorkRecord] = {}

    def thread(
        self, name: str, work: Callable[[], None], *, cluster: str = "", needed: bool = False
    ) -> SupervisedThread:
        """Return a thread that is not started yet."""
        return SupervisedThread(self.record(name, cluster, needed=needed), work, _title(name, cluster))

    def task(
        self, name: str, work: Callable[[], Awaitable[None]], *, cluster: str = "", needed: bool = False
    ) -> SupervisedTask:
        """Start an endless task in the running event loop."""
        record = self.record(name, cluster, needed=needed)
        return SupervisedTask(record, work, _title(name, cluster), again=True)

    def once(self, name: str, work: Callable[[], Awaitable[None]], *, cluster: str = "") -> SupervisedTask:
        """Start a task that is not started again when it fails."""
        return SupervisedTask(self.record(name, cluster), work, _title(name, cluster), again=False)

    def record(self, name: str, cluster: str = "", *, needed: bool = False) -> WorkRecord:
        """Return the record of this work; work of the same name shares a record."""
        with self._lock:
            found = self._records.get((cluster, name))
            if found is None:
                found = WorkRecord(name, cluster, needed=needed, clock=self._clock)
                self._records[cluster, name] = found
            return found

    @property
    def records(self) -> list[WorkRecord]:
        with self._lock:
            return list(self._records.values())

    def trouble(self, cluster: str) -> str:
        """Return the recent failures of the cluster's and the daemon's work; empty if there are none."""
        return "; ".join(filter(None, (one.text for one in self._records_for(cluster))))

    def unready(self, cluster: str) -> str:
        """Return the failing needed work of the cluster or the daemon; empty if there is none."""
        return "; ".join(one.text for one in self._records_for(cluster) if one.needed and one.failing)

    def _records_for(self, cluster: str) -> Iterator[WorkRecord]:
        return (one for one in self.records if one.cluster in ("", cluster))

    def watch_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note errors in callbacks and in tasks that are not awaited."""
        record = self.record("event loop")

        def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            error = context.get("exception") or RuntimeError(str(context.get("message")))
            if isinstance(error, OSError):  # a connection broke: any client can cause that
                _log.info("a connection failed", why=repr(error))
            else:
                record.note(error)

        loop.set_exception_handler(handle)

    def watch_threads(self) -> None:
        """Note errors that end threads created by other code."""
        record = self.record("other threads")

        def handle(args: threading.ExceptHookArgs) -> None:
            if args.exc_value is not None:
                record.note(args.exc_value)

        threading.excepthook = handle


def run_in_thread(name: str, call: Callable[[], _T]) -> "Future[_T]":
    """Call ``call`` in a separate thread, which does not delay the end of the process.

    Returns a future with its result or its exception, whichever it is.
    """
    answer: Future[_T] = Future()

    def run() -> None:
        answer.set_running_or_notify_cancel()  # from here on it cannot be cancelled
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return answer


def _title(name: str, cluster: str) -> str:
    return f"{name} {cluster}" if cluster else name
