"""Waiting for the planner's thread, but not for ever; and for the database, which may be gone."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from schedd.api.problems import ProblemError
from schedd.engine import published_record
from schedd.service.cluster.deliveries import DeliveryResult
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.questions.plan_fork import PlanFork
from schedd.store import StoreError
from schedd.wire import Event

_T = TypeVar("_T")
REPEAT_HINT: Final = "send the same request again: nothing is done twice"


@dataclass
class PlannerTimeouts:
    """Real seconds that a request waits for the planner's thread. Tests set longer ones."""

    early: float = 0.01
    """After this time events are stored without the planner, and acknowledged."""
    early_behind: float = 0.003
    """The same while other events wait for the planner."""
    fork: float = 0.5
    """After this time an older copy of the plan is used."""
    read: float = 2.0
    change: float = 10.0
    events: float = 25.0
    search: float = 55.0
    page: float = 0.3
    """After this time a page is shown without the answer to its question, and requests it."""


TIMEOUTS: Final = PlannerTimeouts()


async def get_plan_fork(cluster: PlanLoop, job: str = "") -> PlanFork:
    """A copy of the plan to put questions to: an older one where the planner is busy for long, if that has
    the ``job`` of the question.

    Raises ProblemError.
    """
    older = cluster.last_fork
    try:
        found = await await_planner(cluster, cluster.fork(), TIMEOUTS.fork, "ask again in a moment")
    except ProblemError:
        if older is None or (job and published_record(older.published, job) is None):
            raise
        found = older
    found.note_halt(cluster.published)
    return found


async def await_planner(cluster: PlanLoop, future: "Future[_T]", seconds: float, hint: str) -> _T:
    """Wait for the planner's result, at most ``seconds`` of real time. Raises ProblemError, and the planner's
    error.

    After a timeout the planner still handles the request.
    """
    waiting = asyncio.wrap_future(future)
    done, _ = await asyncio.wait((waiting,), timeout=seconds)
    if not done:
        # The result, or its error, is no longer needed.
        waiting.add_done_callback(lambda late: late.cancelled() or late.exception())
        what = _no_database(cluster) or "the planner is busy with something else"
        raise ProblemError("not-ready", what, hint=hint, headers={"Retry-After": "2"})
    return waiting.result()


async def await_planner_or_storage(
    cluster: PlanLoop, events: Sequence[Event], body: bytes, seconds: float, hint: str
) -> DeliveryResult | None:
    """Submit events and wait until the planner has handled them, or, if it is busy, until ``body``, which has
    them, is stored; None: it is stored.

    While the planner is far behind, nothing is stored. Raises ProblemError, and the planner's error.
    """
    early = TIMEOUTS.early_behind if cluster.pending else TIMEOUTS.early
    future = cluster.submit(events)
    if not cluster.has_database:
        return await await_planner(cluster, future, seconds, hint)
    until = time.monotonic() + seconds
    waiting, keeping = asyncio.wrap_future(future), None
    waiting.add_done_callback(lambda late: late.cancelled() or late.exception())  # it may come too late
    while keeping is None and time.monotonic() < until:
        await asyncio.wait((waiting,), timeout=early)
        if waiting.done():
            break
        keeping = cluster.store_delivery(body, len(events), future)
    if keeping is not None:
        stored = asyncio.wrap_future(keeping)
        left = max(0.0, until - time.monotonic())
        await asyncio.wait((waiting, stored), timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done() and stored.done() and stored.result():
            return None
    return await await_planner(cluster, future, max(0.0, until - time.monotonic()), hint)


async def submit_events(
    cluster: PlanLoop, events: Sequence[Event], shown_by: str = "", *, order: bool = False
) -> DeliveryResult:
    """Hand the events of an action to the planner and wait for their outcome; ``shown_by`` is what shows it
    after a timeout, empty for a request that can be repeated.

    Raises ProblemError, and the planner's error.
    """
    hint = f"it is done as soon as the planner is free; GET {shown_by} to see whether it was"
    outcome = cluster.submit(events, order=order)
    try:
        return await await_planner(cluster, outcome, TIMEOUTS.change, hint if shown_by else REPEAT_HINT)
    except ProblemError as error:
        error.pending = outcome
        raise


async def call_planner_or_cancel(cluster: PlanLoop, ask: "Callable[[], Future[_T]]", undone: str) -> _T:
    """Wait for the planner's result as long as for a change; after a timeout the call is cancelled.

    ``undone`` names the act that was not done. Raises ProblemError, and what the planner raised.
    """
    hint = "repeat it when that is over"
    if why := _no_database(cluster):
        raise ProblemError("not-ready", f"{undone}: {why}", hint=hint, headers={"Retry-After": "5"})
    future = ask()
    done, _ = await asyncio.wait((asyncio.wrap_future(future),), timeout=TIMEOUTS.change)
    if not done:
        if future.cancel():
            raise ProblemError(
                "not-ready",
                f"{undone}: the planner is busy with something else for {cluster.busy_for:.0f} s",
                hint=hint,
                headers={"Retry-After": "2"},
            )
        why = _no_database(cluster) or "the planner still works on it"
        pending = ProblemError(
            "not-ready",
            f"{undone} yet: {why}",
            hint="it will be as soon as the planner continues",
            headers={"Retry-After": "2"},
        )
        pending.pending = future
        raise pending
    return future.result()


def _no_database(cluster: PlanLoop) -> str:
    return f"the database is unavailable: {cluster.trouble}" if cluster.trouble else ""


@contextmanager
def database_errors() -> Iterator[None]:
    """Raises ProblemError where the database fails within."""
    try:
        yield
    except StoreError as error:
        raise ProblemError(
            "not-ready", f"database unavailable: {error}", headers={"Retry-After": "5"}
        ) from None
