"""The decision log: written by the engine's thread, read by adapters with long polls."""

import asyncio
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Final

from schedd.service.cluster.thread_signal import ThreadSignal
from schedd.wire import (
    Alert,
    AwaitedDecision,
    Decision,
    DecisionOutcome,
    Event,
    JobDeleted,
    JobEnded,
    JobStarted,
    Run,
    Snapshot,
    Switch,
    TransferDecision,
    WriteAttributes,
)


@dataclass(frozen=True, slots=True)
class DecisionPage:
    """Decisions in order; continue reading at ``last``.

    ``missed``: the reader has missed dropped decisions, or its position is unknown.
    """

    decisions: tuple[Decision, ...]
    last: str
    missed: bool


@dataclass(frozen=True, slots=True)
class _Delivery:
    """Decisions in (``begin``, ``last``] that a reader got with the reply to request ``number``."""

    number: int
    begin: str
    last: str


MAX_DEFERRAL_S: Final = 0.5  # maximum time for which a poll leaves decisions to a reply in progress


class DecisionLog:
    """Open decisions by increasing id.

    A run or transfer decision leaves the log with its outcome, or with the start or end of the job; a
    published start with a newer one, or with the start or end of its job; an alert after ``alerts`` newer
    ones. The log is therefore about as long as the number of jobs. Beyond ``most`` decisions the oldest are
    dropped, and late readers get ``missed``. ``last`` is the last id of earlier logs, which readers may know.
    """

    def __init__(self, most: int = 200_000, alerts: int = 1_000, last: str = "") -> None:
        self._most = most
        self._alerts: deque[str] = deque()
        self._most_alerts = alerts
        self._lock = threading.Lock()
        self._ids: list[str] = []
        self._items: list[Decision | None] = []
        self._live = 0
        self._of_job: dict[tuple[str, str], str] = {}
        self._dropped = ""
        self._last = last
        self._signal = ThreadSignal()
        self._numbers = count(1)
        self._pending_replies: dict[str, set[int]] = {}
        self._delivered: dict[str, _Delivery] = {}

    # ---- the engine's thread --------------------------------------------------------------------

    def acknowledge(self, events: Iterable[Event]) -> None:
        """Drop the decisions that these events complete."""
        with self._lock:
            for event in events:
                if isinstance(event, DecisionOutcome):
                    self._drop_id(event.decision_id)
                elif isinstance(event, JobStarted | JobEnded | JobDeleted):
                    self._drop("run", event.job_id)
                    self._drop("write_attributes", event.job_id)
                elif isinstance(event, Snapshot):
                    there = {job.id for job in event.jobs if job.state not in ("R", "E", "C")}
                    for kind, about in list(self._of_job):
                        if kind in ("run", "write_attributes") and about not in there:
                            self._drop(kind, about)

    def append(self, decisions: Iterable[Decision]) -> None:
        """Append new decisions with increasing ids, and wake the waiting readers."""
        with self._lock:
            before = self._last
            for decision in decisions:
                if isinstance(decision, Run):
                    self._drop("write_attributes", decision.job_id)
                if not isinstance(decision, Alert):
                    self._drop(*_subject(decision))
                    self._of_job[_subject(decision)] = decision.id
                else:
                    self._alerts.append(decision.id)
                    if len(self._alerts) > self._most_alerts:
                        self._drop_id(self._alerts.popleft())
                self._ids.append(decision.id)
                self._items.append(decision)
                self._live += 1
                # After a restart the first are older than the last that readers may know.
                self._last = max(self._last, decision.id)
            self._trim()
        if self._last != before:
            self._signal.notify()

    def close(self) -> None:
        """Wake all waiting readers for good."""
        self._signal.close()

    # ---- readers --------------------------------------------------------------------------------

    @property
    def last_id(self) -> str:
        """The highest decision id; empty before the first."""
        return self._last

    def page_after(self, place: str, most: int = 1_000) -> DecisionPage:
        """Return up to ``most`` decisions after ``place`` (an id; empty: from the beginning).

        An unknown id comes from an earlier life of the daemon: then the reader starts again at the beginning.
        """
        with self._lock:
            foreign = place > self._last
            begin = 0 if foreign else bisect_right(self._ids, place)
            found: list[Decision] = []
            last = "" if foreign else place
            for i in range(begin, len(self._ids)):
                item = self._items[i]
                if item is None:
                    continue
                if len(found) == most:
                    break
                found.append(item)
                last = item.id
            else:
                last = self._last
            missed = foreign or (bool(place) and place < self._dropped)
            return DecisionPage(tuple(found), last, missed)

    async def wait_for_page(
        self, place: str, seconds: float, most: int = 1_000, reader: str = ""
    ) -> DecisionPage:
        """Return a page as soon as there are decisions, or after ``seconds`` of real time.

        Decisions that ``reader`` gets by the reply to a later request (``reply_pending``) are left out. An
        earlier request may be of a former process of the reader, which does not get the reply.
        """
        begun = next(self._numbers)
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        deferred_to: float | None = None
        with self._signal.subscribe() as signalled:
            while True:
                signalled.clear()
                delivered = self._delivered.get(reader)
                if delivered is not None and delivered.number > begun and place == delivered.begin:
                    place = delivered.last
                page, now = self.page_after(place, most), clock()
                if page.missed or now >= deadline or self._signal.closed:
                    return page
                until = deadline
                if not page.decisions:
                    deferred_to = None
                elif max(self._pending_replies.get(reader, ()), default=0) < begun:
                    return page
                else:
                    # The other reply has them in a moment; not much later, lest it waits for something else.
                    deferred_to = deferred_to or now + MAX_DEFERRAL_S
                    if now >= deferred_to:
                        return page
                    until = min(deadline, deferred_to)
                with suppress(TimeoutError):
                    await asyncio.wait_for(signalled.wait(), until - now)

    # ---- replies to events, in the event loop ----------------------------------------------------

    @contextmanager
    def reply_pending(self, reader: str) -> Iterator[int]:
        """Mark a reply with new decisions to ``reader`` as in progress within the block; yield its request's
        number.
        """
        number = next(self._numbers)
        if not reader:
            yield number
            return
        pending = self._pending_replies.setdefault(reader, set())
        pending.add(number)
        try:
            yield number
        finally:
            pending.discard(number)
            if not pending:
                self._pending_replies.pop(reader, None)
            self._signal.notify()

    def page_for_reply(self, reader: str, number: int, place: str, most: int) -> DecisionPage | None:
        """Return the decisions after ``place`` for the reply to request ``number`` of ``reader``, whose
        waiting poll continues after them; None if the position is unknown.

        A reader that does not get the reply polls again from its own position. An unnamed reader has no poll.
        """
        page = self.page_after(place, most)
        if page.missed:
            return None
        if reader and page.last != place:
            self._delivered[reader] = _Delivery(number, place, page.last)
        return page

    def __len__(self) -> int:
        return self._live

    # ---- with the lock held ---------------------------------------------------------------------

    def _drop(self, kind: str, job_id: str) -> None:
        decision_id = self._of_job.get((kind, job_id))
        if decision_id is not None:
            self._drop_id(decision_id)

    def _drop_id(self, decision_id: str) -> None:
        i = bisect_right(self._ids, decision_id) - 1
        if i < 0 or self._ids[i] != decision_id:
            return
        item = self._items[i]
        if item is None:
            return
        self._items[i] = None
        self._live -= 1
        if not isinstance(item, Alert) and self._of_job.get(_subject(item)) == item.id:
            del self._of_job[_subject(item)]

    def _trim(self) -> None:
        if self._live > self._most:
            live = [item.id for item in self._items if item is not None]
            oldest = live[: self._live - self._most + self._most // 10]
            for decision_id in oldest:
                self._drop_id(decision_id)
            self._dropped = oldest[-1]
        if len(self._ids) > 2 * self._live + 1_000:
            self._compact()

    def _compact(self) -> None:
        kept = [item for item in self._items if item is not None]
        self._items = list(kept)
        self._ids = [item.id for item in kept]


def _subject(decision: Run | WriteAttributes | AwaitedDecision) -> tuple[str, str]:
    """Return (type, subject): of two decisions with the same one, only the newer counts."""
    if isinstance(decision, Switch):
        return decision.type, decision.node
    return decision.type, decision.transfer if isinstance(decision, TransferDecision) else decision.job_id
