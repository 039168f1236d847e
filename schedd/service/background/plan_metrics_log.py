"""Log of plan metrics and of searches, for one cluster."""

import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from pydantic import TypeAdapter, ValidationError

from schedd.engine import SearchReason
from schedd.optimize import SearchReport
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.questions.objectives import ObjectiveChange
from schedd.store import StoreError
from schedd.store.records import PlanMetricsSample, SearchRecord

_RUNS = 200
_DAY_OF_MINUTES = 1_440


@dataclass(frozen=True, slots=True)
class SearchRun:
    """One search and its effect.

    ``why``: see ``Due``. ``taken`` jobs of the live plan were moved, possibly fewer than the search moved,
    because the live plan changed meanwhile.
    """

    number: int
    started: int
    why: SearchReason
    generation: int
    taken: int
    report: SearchReport
    objectives: tuple[ObjectiveChange, ...] = ()
    """Objectives of the live plan before and after; empty if no job moved."""


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Searches, newest first; ``following``: continue below this number, None at the end."""

    runs: tuple[SearchRun, ...]
    following: int | None


class PlanMetricsLog(Protocol):
    """Plan metrics and searches. Any thread may call; every method may raise StoreError."""

    def record_metrics(self, found: PlanMetricsSample) -> None: ...

    def metrics(self, since: int, until: int, limit: int, every: int = 1) -> Sequence[PlanMetricsSample]:
        """Return up to ``limit`` samples in ``[since, until)``, the last one per ``every`` seconds."""
        ...

    def last_search(self) -> int:
        """Return the number of the last search; 0 before the first."""
        ...

    def record_search(self, run: SearchRun) -> None: ...

    def searches(self, limit: int, before: int | None = None) -> SearchPage:
        """Return up to ``limit`` searches, newest first; with numbers below ``before``, if given."""
        ...


class MemoryPlanMetricsLog:
    """In memory: the last 200 searches, and one day of samples at one per minute."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._evaluations: deque[PlanMetricsSample] = deque(maxlen=_DAY_OF_MINUTES)
        self._runs: deque[SearchRun] = deque(maxlen=_RUNS)

    def record_metrics(self, found: PlanMetricsSample) -> None:
        """See ``PlanMetricsLog``."""
        with self._lock:
            self._evaluations.append(found)

    def metrics(self, since: int, until: int, limit: int, every: int = 1) -> Sequence[PlanMetricsSample]:
        """See ``PlanMetricsLog``."""
        with self._lock:
            last = {one.time // every: one for one in self._evaluations if since <= one.time < until}
        return list(last.values())[:limit]

    def last_search(self) -> int:
        """See ``PlanMetricsLog``."""
        with self._lock:
            return self._runs[-1].number if self._runs else 0

    def record_search(self, run: SearchRun) -> None:
        """See ``PlanMetricsLog``."""
        with self._lock:
            self._runs.append(run)

    def searches(self, limit: int, before: int | None = None) -> SearchPage:
        """See ``PlanMetricsLog``."""
        with self._lock:
            found = [run for run in reversed(self._runs) if before is None or run.number < before]
        return SearchPage(tuple(found[:limit]), found[limit - 1].number if len(found) > limit else None)


class StoredPlanMetricsLog:
    """In the daemon's database, for the configured retention time."""

    def __init__(self, durable: DaemonStore, cluster: str) -> None:
        self._durable = durable
        self._name = cluster
        self._number: int | None = None

    def record_metrics(self, found: PlanMetricsSample) -> None:
        """See ``PlanMetricsLog``."""
        number = self._cluster()
        if number is not None:
            self._durable.store.save_plan_metrics(number, found)

    def metrics(self, since: int, until: int, limit: int, every: int = 1) -> Sequence[PlanMetricsSample]:
        """See ``PlanMetricsLog``."""
        number = self._cluster()
        return self._durable.store.plan_metrics(number, since, until, limit, every) if number else []

    def last_search(self) -> int:
        """See ``PlanMetricsLog``."""
        number = self._cluster()
        last = self._durable.store.searches(number, None, 1) if number is not None else ()
        return last[0].number if last else 0

    def record_search(self, run: SearchRun) -> None:
        """See ``PlanMetricsLog``."""
        number = self._cluster()
        if number is not None:
            report = SearchRecord(run.number, run.started, _RUN.dump_json(run).decode())
            self._durable.store.save_search(number, report)

    def searches(self, limit: int, before: int | None = None) -> SearchPage:
        """Leave out reports of other versions that cannot be read."""
        number = self._cluster()
        if number is None:
            return SearchPage((), None)
        rows = self._durable.store.searches(number, before, limit + 1)
        runs: list[SearchRun] = []
        for row in rows[:limit]:
            with suppress(ValidationError):
                runs.append(_RUN.validate_json(row.body))
        return SearchPage(tuple(runs), rows[limit - 1].number if len(rows) > limit else None)

    def _cluster(self) -> int | None:
        """Return the cluster's number; None until a daemon has led it."""
        if self._number is None:
            if not self._durable.opened.is_set():
                raise StoreError("the database was not opened yet")
            self._number = self._durable.store.find_cluster(self._name)
        return self._number


_RUN = TypeAdapter(SearchRun)
