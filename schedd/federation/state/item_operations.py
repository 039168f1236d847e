"""Operations that co-allocations, bags and bookings share."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import structlog

from schedd.federation.events import FederationEvent, ItemCancelled
from schedd.federation.items import FederationItem, ImpossibleError, Items
from schedd.federation.state.logged_state import LoggedState
from schedd.federation.state.priority_lock import PriorityLock

_log = structlog.get_logger(__name__)
_ItemT = TypeVar("_ItemT", bound=FederationItem[Any])
CommitFunction = Callable[[Sequence[FederationEvent]], Sequence[FederationEvent]]


class ItemOperations(Generic[_ItemT]):
    """Operations on the items of one kind. Thread-safe.

    ``commit`` stores and applies events while the lock is held; it returns the applied events.
    """

    def __init__(
        self,
        items: Items[_ItemT],
        wakeup: threading.Event,
        record: LoggedState,
        lock: PriorityLock,
        commit: CommitFunction,
        now: Callable[[], int],
    ) -> None:
        self._items = items
        self.wakeup = wakeup  # set when an item has changed
        self._record = record
        self._lock = lock
        self._commit = commit
        self._now = now
        self.notes: dict[str, str] = {}  # reasons for waiting, by item

    def cancel(self, name: str, by: str) -> _ItemT:
        """Cancel the item; nothing changes if it is over. Raises StoreError and KeyError."""
        with self._lock.request():
            if not self._items[name].over and not self._items[name].cancelled:
                self._commit([ItemCancelled(job=name, time=self._now(), by=by)])
            return self._items[name]

    def commit(self, events: Sequence[FederationEvent]) -> None:
        """Store events of one item that follow from a request. The first event that does not apply any more,
        and all after it, are dropped. Raises StoreError.
        """
        with self._lock.request():
            item: _ItemT | None = None
            found: list[FederationEvent] = []
            for event in events:
                try:
                    item = self._items.state_after(event, item or self._items.by_id.get(event.job))
                except ImpossibleError as error:
                    _log.info("outdated event dropped", item=event.job, what=event.type, why=str(error))
                    break
                found.append(event)
            if found:
                self._commit(found)

    def _submit(self, make: Callable[[str, int], FederationEvent]) -> _ItemT:
        """Store the submission by ``make`` for the next number and present time. The lock is held."""
        event = make(str(self._record.number + 1), self._now())
        self._commit([event])
        return self._items[event.job]
