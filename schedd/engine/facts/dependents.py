"""Reverse index of dependencies: the jobs that wait for a job or an array, and which of them to examine."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from schedd.dialect import conditions
from schedd.engine.facts.records import JobRecord
from schedd.model import FOREVER
from schedd.plan.columns import Ints
from schedd.plan.plan import Plan


class Dependents:
    """Reverse index of dependencies, and the dependent jobs to examine.

    A job is examined again after a change of its record or of a prerequisite's record, after a change of the
    planned start or duration of either, and at a time that its last examination names. The cost of a batch
    therefore depends on the number of changes, not on the number of dependencies.
    """

    def __init__(self) -> None:
        self._depend: dict[str, str] = {}
        self._waiting_for: dict[str, dict[str, None]] = {}
        self._unplanned: set[str] = set()
        self._again_at: dict[str, int] = {}
        self._next = FOREVER
        self._changed: set[str] = set()
        self._left: dict[str, str] = {}
        self._columns: tuple[Ints, ...] = ()

    def note_record(self, before: JobRecord | None, record: JobRecord | None) -> None:
        """A record was replaced, added (``before`` is None) or removed (``record`` is None)."""
        if not (self._depend or self._waiting_for or self._unplanned):
            return  # nothing waits
        for one in (before, record):
            if one is not None:
                self._note(one)
        if _edges(before) != _edges(record):
            self._changed |= self._unplanned  # a circle of dependencies may have been closed or opened

    def note_leaving(self, record: JobRecord, how: str) -> None:
        """A job was deleted or moved to another server, as ``how`` says, and did not end here."""
        for name in (record.id, record.facts.array):
            if name in self._waiting_for:
                self._left[name] = how

    def how_it_left(self, name: str) -> str:
        """Return how a job, or the last job of an array, left in this batch; empty: it did not, or ended."""
        return self._left.get(name, "")

    def forget_leaving(self) -> None:
        """The dependents of all jobs that left have been examined."""
        self._left.clear()

    def _note(self, record: JobRecord) -> None:
        if record.id in self._depend:
            self._changed.add(record.id)
        for name in (record.id, record.facts.array):
            if name in self._waiting_for:
                self._changed.update(self._waiting_for[name])

    def note_plan(self, plan: Plan, by_slot: Sequence[JobRecord | None]) -> None:
        """Find the jobs with a new place in the plan since the last call."""
        jobs = plan.jobs
        now = (jobs.starts, jobs.durations, jobs.ready, jobs.states)
        if not self._columns or self._columns[0].shape != now[0].shape:
            self._changed.update(self._depend)
        else:
            pairs = zip(now, self._columns, strict=True)
            differs = np.logical_or.reduce([one != other for one, other in pairs])
            for slot in np.flatnonzero(differs).tolist():
                record = by_slot[slot]
                if record is not None:
                    self._note(record)
        self._columns = tuple(column.copy() for column in now)

    def replace_jobs(self, waiting: Iterable[JobRecord]) -> None:
        """Let the index hold exactly these jobs; new ones are to be examined."""
        found = {record.id: record for record in waiting}
        for job in self._depend.keys() - found.keys():
            self._drop(job)
        for job, record in found.items():
            if self._depend.get(job) != record.facts.depend:
                self._drop(job)
                self._add(record)

    def _add(self, record: JobRecord) -> None:
        self._depend[record.id] = record.facts.depend
        for condition in conditions(record.facts.depend):
            self._waiting_for.setdefault(condition.job, {})[record.id] = None
        self._changed.add(record.id)

    def _drop(self, job: str) -> None:
        for condition in conditions(self._depend.pop(job, "")):
            jobs = self._waiting_for.get(condition.job)
            if jobs is not None:
                jobs.pop(job, None)
                if not jobs:
                    del self._waiting_for[condition.job]
        self._unplanned.discard(job)
        self._again_at.pop(job, None)
        self._changed.discard(job)

    def jobs_to_examine(self, now: int, order: Iterable[str]) -> Iterator[str]:
        """The jobs to be examined, in this order; what changes while they are is heeded for those to come."""
        if self._next <= now:
            self._changed.update(job for job, at in self._again_at.items() if at <= now)
            self._next = min((at for at in self._again_at.values() if at > now), default=FOREVER)
        if not self._changed:
            return
        for job in order:
            if job in self._changed:
                self._changed.remove(job)
                yield job

    def examined(self, job: str, *, planned: bool, again_at: int | None) -> None:
        """Note an examined job: if ``planned`` behind others, and when to look again without a change."""
        if job not in self._depend:
            return
        if planned:
            self._unplanned.discard(job)
        else:
            self._unplanned.add(job)
        if again_at is None:
            self._again_at.pop(job, None)
        else:
            self._again_at[job] = again_at
            self._next = min(self._next, again_at)

    def waiting_for(self, name: str) -> Iterator[str]:
        """The jobs that wait for this job, or for this array."""
        return iter(tuple(self._waiting_for.get(name, ())))


def _edges(record: JobRecord | None) -> tuple[str, bool]:
    return ("", False) if record is None else (record.facts.depend, record.facts.state == "H")
