"""Groups of a federation at work: taken, looked at, taken back."""

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
"""So often it is looked at once what follows from what was decided."""


class CoAllocationOperations:
    """All groups. Thread-safe. ``take`` keeps events with a turn held, and does what follows."""

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
        """Why no start was found for groups that have none."""
        self.gap_searches = {"asked": 0, "found": 0}
        """Since this daemon leads: how often plans were asked whether a waiting group could end earlier, and
        how often it could. Local jobs have their choice of each hole first."""

    @property
    def wakeup(self) -> threading.Event:
        """Rung when a group, or what is seen of a cluster, has changed."""
        return self._record.coallocation_wakeup

    @property
    def _coallocations(self) -> CoAllocations:
        return self._record.coallocations

    def submit(
        self, owner: str, parts: tuple[Mapping[str, Any], ...], options: Mapping[str, Any], key: str = ""
    ) -> CoAllocation:
        """Takes a group; with a ``key`` that was used before, it is that group. Raises StoreError."""
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
        """Its owner does not want it any more. Raises StoreError and KeyError."""
        with self._lock.request():
            if not self._coallocations[group].over and not self._coallocations[group].cancelled:
                self._commit([CoAllocationCancelled(job=group, time=self._now(), by=by)])
            return self._coallocations[group]

    def advance(self, name: str, looks: Mapping[str, ClusterView]) -> CoAllocation:
        """What is seen becomes events, and what follows is decided; the group then. Raises StoreError."""
        with self._lock.request():
            now = self._now()
            self._commit(observe_components(self._coallocations[name], self.rules, looks, now))
            for _ in range(_MAX_STEPS):
                events = decide(self._coallocations[name], self.rules, looks, now)
                if not self._commit(events):
                    break
            return self._coallocations[name]

    def commit(self, events: Sequence[CoAllocationEvent]) -> None:
        """What came of a request; what does not fit any more is dropped. Raises StoreError."""
        with self._lock.request():
            for event in events:
                try:
                    self._coallocations.check(event)
                except ImpossibleError as error:
                    _log.info("too late", group=event.job, what=event.type, why=str(error))
                else:
                    self._commit([event])

    def refuse_component(self, group: str, copy: int, text: str) -> None:
        """A cluster's schedd refuses a part's job as it is. Raises StoreError."""
        self.commit([ComponentRefused(job=group, time=self._now(), copy=copy, text=text)])
