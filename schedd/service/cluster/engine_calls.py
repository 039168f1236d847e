"""Engine calls with error handling and a time limit."""

import ctypes
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from schedd.engine import Engine, Outcome
from schedd.error_text import describe_error
from schedd.service.cluster.errors import PlannerStopped
from schedd.store import EventBatch, StoreError
from schedd.supervision import SupervisedThread, Supervisor
from schedd.wire import Event, Snapshot

_LOOK_S = 0.2
_STARVED_FACTOR: Final = 10
"""A call may last this many times its limit of processor time while it waits: the machine is busy, or out of
memory. Time in which the watching thread did not run either does not count: the process was stopped."""
_ENDS_S = 10.0  # time that an interrupted call may take to end
_JUMPS = 100  # iterations of an empty loop, during which Python delivers an asynchronous exception
_EACH_S = 0.002  # extra time per known job, and per job and node of a server snapshot


class EngineCallFailed(Exception):
    """The engine raised an exception on a batch, or did not return; the engine must be discarded.

    ``batch`` has as many ``calls`` as succeeded before. ``job`` and ``step`` are what the engine was working
    on, empty if unknown, or if the call hardly got processor time (``starved``): then it is not their fault.
    ``late``: it did not return in time.
    """

    def __init__(
        self,
        engine: Engine,
        batch: EventBatch,
        call: int,
        error: BaseException,
        seconds: float,
        *,
        starved: bool = False,
    ) -> None:
        self.late = isinstance(error, _CallTimedOut)
        self.why = describe_error(error)
        if self.late:
            self.why = f"it did not return within {seconds:.0f} s of processor time"
        if starved:
            most = _STARVED_FACTOR * seconds
            self.why = f"it did not return within {most:.0f} s, for most of which it got no processor time"
        self.batch = replace(batch, calls=call)
        self.engine = engine
        self.job, self.step = ("", "") if starved else (engine.state.at_job, engine.state.at_step)
        super().__init__(f"the planner could not handle batch {batch.number} of events: {self.why}")


class _CallTimedOut(BaseException):
    """Raised asynchronously in the calling thread. A BaseException, so that no error handler catches it."""


class CallWatchdog:
    """Interrupts calls that take too long with an exception in the calling thread; it cannot interrupt a
    kernel.

    The limit counts the processor time of the calling thread: on a busy machine, or in a process that was
    suspended, a call is not slow by itself. ``starved`` is set if the last interrupted call mostly waited.
    ``limit_factor`` multiplies the time limit. It grows after each timeout, so that a long but finite call
    succeeds in the end.
    """

    def __init__(self, supervisor: Supervisor | None = None, cluster: str = "") -> None:
        self.limit_factor = 1
        self._supervisor = supervisor or Supervisor()
        self._cluster = cluster
        self._lock = threading.Lock()
        self._cpu_until = self._fired = self._waits_left = self._looked = 0.0
        self._cpu_clock = 0
        self.starved = False
        self._whose = 0
        self._ended = threading.Event()
        self._thread: SupervisedThread | None = None

    @property
    def is_watching(self) -> bool:
        """Whether a call is within its limit or has just been interrupted."""
        if self._fired:
            return time.monotonic() < self._fired + _ENDS_S
        return bool(self._cpu_until)

    @contextmanager
    def time_limit(self, seconds: float) -> Iterator[None]:
        """Limit the block to this many seconds of processor time; 0: no limit."""
        if not seconds:
            yield
            return
        if self._thread is None:
            self._thread = self._supervisor.thread("time limits", self._run, cluster=self._cluster)
            self._thread.start()
        self._whose = threading.get_ident()
        self._fired, self.starved = 0.0, False
        self._cpu_clock = time.pthread_getcpuclockid(self._whose)
        self._waits_left, self._looked = _STARVED_FACTOR * seconds, time.monotonic()
        try:
            self._cpu_until = time.thread_time() + seconds
            yield
        finally:
            with suppress(_CallTimedOut):
                with self._lock:
                    self._cpu_until = 0.0
                if self._fired:
                    # The exception may still be pending, and is caught here. To revoke it (by None) would
                    # leave
                    # Python 3.11 looking for it for ever: a thread that is profiled then never returns.
                    for _ in range(_JUMPS):
                        pass
            self._fired = 0.0

    def end(self) -> None:
        """Stop the thread."""
        self._ended.set()
        if self._thread is not None:
            self._thread.end()

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            with self._lock:
                if self._cpu_until and not self._fired and self._is_late():
                    self._fired = time.monotonic()
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(self._whose), ctypes.py_object(_CallTimedOut)
                    )

    def _is_late(self) -> bool:
        """Whether the call has used up its processor time, or waited far longer."""
        before, self._looked = self._looked, time.monotonic()
        self._waits_left -= min(self._looked - before, 2 * _LOOK_S)
        if time.clock_gettime(self._cpu_clock) > self._cpu_until:
            return True
        self.starved = self._waits_left < 0
        return self.starved


def call_engine(
    engine: Engine, batch: EventBatch, events: Sequence[Event], number: int, watch: CallWatchdog
) -> Outcome:
    """Let the engine handle ``events``, as call ``number`` (from 0) of a batch. Raises EngineCallFailed.

    With ``validate``, a violated invariant is raised unchanged.
    """
    settings = engine.state.settings
    size = len(engine.state.records) + sum(
        len(event.jobs) + len(event.nodes) for event in events if isinstance(event, Snapshot)
    )
    seconds = watch.limit_factor * (settings.batch_limit + _EACH_S * size) if settings.batch_limit else 0
    try:
        with watch.time_limit(seconds):
            return engine.handle(events, batch.now)
    except (Exception, _CallTimedOut) as error:
        if settings.validate_ and isinstance(error, AssertionError):
            raise
        raise EngineCallFailed(engine, batch, number, error, seconds, starved=watch.starved) from error


@contextmanager
def attribute_errors(engine: Engine, batch: EventBatch) -> Iterator[None]:
    """Raise errors of the block, which processes the results of ``batch``, as EngineCallFailed.

    StoreError and PlannerStopped pass through.
    """
    try:
        yield
    except (StoreError, PlannerStopped):
        raise
    except Exception as error:
        raise EngineCallFailed(engine, batch, max(0, batch.calls - 1), error, 0) from error


def restart_from_state(engine: Engine, batch: EventBatch) -> tuple[Engine, bytes]:
    """Return a new engine from the state of an engine that confined an error, and that state as bytes.

    Raises EngineCallFailed if the state is inconsistent.
    """
    try:
        new = engine.gone_on()
    except Exception as error:
        engine.state.at_job = next(iter(engine.state.diverged))
        raise EngineCallFailed(engine, batch, max(0, batch.calls - 1), error, 0) from error
    assert isinstance(new.base, bytes)
    return new, new.base
