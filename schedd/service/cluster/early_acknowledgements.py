"""Durability of deliveries that the planner has not handled yet, so that they can be acknowledged early.

Their bodies are stored by a thread of its own, all that wait in one transaction. When their events are in the
log, they are deleted; after a crash or a takeover the next leader handles the rest, and drops known events.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from schedd.service.cluster.errors import PlannerStopped
from schedd.store import BatchJournal, NotLeader, StoreError
from schedd.supervision import Supervisor, ThreadedWork

_log = structlog.get_logger(__name__)
_TIDY_S: Final = 1.0  # time until stored deliveries without a successor are deleted
_MOST_GONE: Final = 50  # number of handled deliveries with which new ones may be stored


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """A delivery with the planner's result, and whether it was stored and can be acknowledged."""

    body: bytes
    handled: "Future[Any]"
    stored: "Future[bool]" = field(default_factory=Future)

    @property
    def is_acknowledged(self) -> bool:
        return self.stored.done() and not self.stored.cancelled() and self.stored.result()

    @property
    def is_given_up(self) -> bool:
        """Whether the planner stopped before it handled the delivery, so that the next leader must."""
        return not self.handled.cancelled() and isinstance(self.handled.exception(), PlannerStopped)


class EarlyAcknowledgements(ThreadedWork):
    """Stores deliveries in the journal of one cluster's planner. Any thread may use it."""

    def __init__(self, supervisor: Supervisor, cluster: str, journal: Callable[[], BatchJournal]) -> None:
        super().__init__(supervisor, "acknowledgements", cluster=cluster)
        self._cluster = cluster
        self._journal = journal
        self._condition = threading.Condition()
        self._requests: list[_Request] = []
        self._kept: dict[int, _Request] = {}
        self._stopping = False

    def store(self, body: bytes, handled: "Future[Any]") -> "Future[bool]":
        """Store a delivery unless it is ``handled`` before; the result says whether to acknowledge it.

        False: wait for the planner.
        """
        request = _Request(body, handled)
        with self._condition:
            if self._stopping:
                request.stored.set_result(False)
            else:
                self._requests.append(request)
                self._condition.notify()
        return request.stored

    def is_acknowledged(self, handled: "Future[Any]") -> bool:
        """Return whether the delivery with this result was acknowledged; if it is done, that is final."""
        with self._condition:
            return any(one.handled is handled and one.is_acknowledged for one in self._kept.values())

    def end(self) -> None:
        """Store no more deliveries, and end the thread."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        self.join()
        with self._condition:
            for request in self._requests:
                if request.stored.set_running_or_notify_cancel():
                    request.stored.set_result(False)
            self._requests = []

    def run(self) -> None:
        """Store requested deliveries, and delete handled ones, until stopped."""
        while True:
            with self._condition:
                if not (self._requests or self._stopping):
                    self._condition.wait(_TIDY_S if self._kept else None)
                if self._stopping:
                    return
                requests, self._requests = self._requests, []
            self._replace(requests)

    def _replace(self, requests: list[_Request]) -> None:
        """Store the requested deliveries that are not handled yet; delete the handled ones."""
        new = [one for one in requests if not one.handled.done()]
        gone = {number: one for number, one in self._kept.items() if one.handled.done()}
        if new and len(gone) < _MOST_GONE:
            gone = {}  # requests do not wait for the deletion of a few
        logged = [number for number, one in gone.items() if not (one.is_acknowledged and one.is_given_up)]
        numbers: Sequence[int] = ()
        changed = False
        try:
            if new or logged:
                numbers = self._journal().replace_deliveries([one.body for one in new], logged)
            changed = True
        except NotLeader:
            new, changed = [], True  # the next leader deletes those that are in the log
        except StoreError as error:
            if requests:
                _log.warning("deliveries wait for the planner", cluster=self._cluster, why=str(error))
        finally:
            with self._condition:
                if changed:
                    for number in gone:
                        del self._kept[number]
                    self._kept.update(zip(numbers, new, strict=True))
                stored = new if changed else []
                for one in requests:
                    if one.stored.set_running_or_notify_cancel():
                        one.stored.set_result(one in stored and not one.handled.done())
