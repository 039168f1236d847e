"""Operations on co-allocations: submit, advance, cancel."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from schedd.federation.coallocation.coallocations import CoAllocation, CoAllocations
from schedd.federation.coallocation.decisions import (
    ClusterView,
    CoAllocationRules,
    decide,
    observe_components,
)
from schedd.federation.coallocation.events import (
    CoAllocationCancelled,
    CoAllocationEvent,
    CoAllocationSubmitted,
    ComponentRefused,
)
from schedd.federation.events import FederationEvent
from schedd.federation.routing.jobs import ImpossibleError
from schedd.federation.state.logged_state import LoggedState
from schedd.federation.state.priority_lock import PriorityLock

__all__ = ["CoAllocationOperations"]

_log = structlog.get_logger(__name__)
_MAX_STEPS: Final = 4
"""Maximum decision steps in one call."""


class CoAllocationOperations:
    """Operations on co-allocations. Thread-safe. ``commit`` stores and applies events while the lock
    is held.
    """

    def __init__(
        self,
        rules: CoAllocationRules,
        record: LoggedState,
        lock: PriorityLock,
        commit: Callable[[Sequence[FederationEvent]], Sequence[FederationEvent]],
        now: Callable[[], int],
    ) -> None:
        self.rules = rules
        self._record = record
        self._lock = lock
        self._commit = commit
        self._now = now
        self.notes: dict[str, str] = {}
        """Reasons for the missing start, by co-allocation."""
        self.gap_searches = {"asked": 0, "found": 0}
        """Counts since this daemon leads: searches for an earlier end of a waiting co-allocation, and
        successful ones.

        Local jobs can use each gap first.
        """

    @property
    def wakeup(self) -> threading.Event:
        """Set when a co-allocation or a cluster's state has changed."""
        return self._record.coallocation_wakeup

    @property
    def _coallocations(self) -> CoAllocations:
        return self._record.coallocations

    def submit(
        self, owner: str, parts: tuple[Mapping[str, Any], ...], options: Mapping[str, Any], key: str = ""
    ) -> CoAllocation:
        """Submit a co-allocation. Return the existing one for a known ``key``. Raises StoreError."""
        with self._lock.request():
            known = self._coallocations.by_key.get((owner, key)) if key else None
            if known is not None:
                return self._coallocations[known]
            event = CoAllocationSubmitted(
                job=str(self._record.number + 1),
                time=self._now(),
                owner=owner,
                parts=parts,
                options=options,
                key=key,
            )
            self._commit([event])
            return self._coallocations[event.job]

    def cancel(self, group: str, by: str) -> CoAllocation:
        """Cancel the co-allocation. Raises StoreError and KeyError."""
        with self._lock.request():
            if not self._coallocations[group].over and not self._coallocations[group].cancelled:
                self._commit([CoAllocationCancelled(job=group, time=self._now(), by=by)])
            return self._coallocations[group]

    def advance(self, name: str, looks: Mapping[str, ClusterView]) -> CoAllocation:
        """Apply the observed cluster states and decide the next steps. Return the new state. Raises
        StoreError.
        """
        with self._lock.request():
            now = self._now()
            self._commit(observe_components(self._coallocations[name], self.rules, looks, now))
            for _ in range(_MAX_STEPS):
                events = decide(self._coallocations[name], self.rules, looks, now)
                if not self._commit(events):
                    break
            return self._coallocations[name]

    def commit(self, events: Sequence[CoAllocationEvent]) -> None:
        """Store the events that follow from a request; outdated events are dropped. Raises StoreError."""
        with self._lock.request():
            for event in events:
                try:
                    self._coallocations.check(event)
                except ImpossibleError as error:
                    _log.info("outdated event dropped", group=event.job, what=event.type, why=str(error))
                else:
                    self._commit([event])

    def refuse_component(self, group: str, copy: int, text: str) -> None:
        """Store that a cluster's schedd refuses a component job. Raises StoreError."""
        self.commit([ComponentRefused(job=group, time=self._now(), copy=copy, text=text)])
