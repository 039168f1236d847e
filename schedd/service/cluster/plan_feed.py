"""Changes between plan snapshots, recorded by the planner's thread, read by followers."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from schedd.engine import (
    JobRecord,
    JobStatus,
    PlanSnapshot,
    job_displayed_start,
    job_expected_start,
    job_shares,
    job_status,
    published_record,
)
from schedd.model import FOREVER
from schedd.plan.columns import UNPLACED, VACANT
from schedd.service.cluster.thread_signal import ThreadSignal

JobFilter = Callable[[str, str], bool]  # selects jobs by id and owner


@dataclass(frozen=True, slots=True)
class JobSummary:
    """Summary of a job, for a row of a table or a bar of a chart."""

    id: str
    name: str
    owner: str
    queue: str
    state: JobStatus
    planned_start: int | None
    """Actual start of a running job."""
    displayed_start: int | None
    """The planned start with hysteresis, for display: it does not follow each move."""
    planned_end: int | None
    expected_start: int | None
    """P50 by real run times; null if no estimate is published."""
    expected_by: int | None
    """P90."""
    promised_start: int | None
    nodes: tuple[str, ...]
    """Nodes on which it runs or is planned."""


def summarise_job(published: PlanSnapshot, record: JobRecord) -> JobSummary:
    """Return the summary of a job; ``record`` must belong to ``published``."""
    slot = record.slot
    start = int(published.starts[slot]) if slot >= 0 else -1
    promised = int(published.promise[slot]) if slot >= 0 else FOREVER
    displayed = job_displayed_start(published, record, start)
    expected = job_expected_start(published, record)
    return JobSummary(
        id=record.id,
        name=record.facts.name,
        owner=record.facts.owner,
        queue=record.facts.queue,
        state=job_status(record, start),
        planned_start=start if start >= 0 else None,
        displayed_start=displayed if displayed >= 0 else None,
        planned_end=start + record.understood.walltime if start >= 0 else None,
        expected_start=expected.start,
        expected_by=expected.by,
        promised_start=promised if promised < FOREVER else None,
        nodes=tuple(share.node for share in job_shares(published, record)) if start >= 0 else (),
    )


@dataclass(frozen=True, slots=True)
class _Note:
    """A change that the snapshot's columns do not show: the job has ended, or it has no slot."""

    generation: int
    job: str
    owner: str


class PlanFeed:
    """Records the changed jobs per generation; ``signal`` is sent after every publication.

    Changes of jobs with a slot are in the columns of the snapshot, all others in notes. Beyond ``most`` notes
    the oldest are dropped, and readers before that generation must read everything again.
    """

    def __init__(self, published: PlanSnapshot, most: int = 20_000) -> None:
        self.signal = ThreadSignal()
        self._notes: deque[_Note] = deque()
        self._most = most
        self._since = published.generation

    def record_change(self, before: PlanSnapshot, after: PlanSnapshot) -> None:
        """Record that ``after`` replaces ``before``. For the planner's thread."""
        # It is of another engine, or the plan was rebuilt: the slots differ.
        if after.generation < before.generation or after.ids is not before.ids:
            self._notes.clear()
            self._since = after.generation + (after.generation == before.generation)
            return
        n = min(before.first_change.shape[0], after.first_change.shape[0])
        states = after.states[:n]
        went = (before.states[:n] != VACANT) & (after.changed[:n] > before.generation)
        went &= (
            (states == VACANT) | (states == UNPLACED) | (after.first_change[:n] != before.first_change[:n])
        )
        records = [before.records[slot] for slot in np.flatnonzero(went).tolist()]
        records += [r for r in before.slotless.values() if after.slotless.get(r.id) is not r]
        gone = [r for r in records if r is not None and r.id not in after.ids]
        new = [r for r in after.slotless.values() if before.slotless.get(r.id) is not r]
        for record in (*gone, *new):
            self._notes.append(_Note(after.generation, record.id, record.facts.owner))
        while len(self._notes) > self._most:
            self._since = self._notes.popleft().generation

    def changes_since(
        self, published: PlanSnapshot, generation: int, wanted: JobFilter
    ) -> tuple[list[JobRecord], list[str]] | None:
        """Return the jobs that changed after ``generation`` and the ids of removed jobs; None if unknown."""
        notes = self._notes.copy()
        if not self._since <= generation <= published.generation:
            return None
        changed: dict[str, JobRecord] = {}
        gone: dict[str, None] = {}
        for slot in np.flatnonzero(published.changed > generation).tolist():
            record = published.records[slot]
            if record is not None and wanted(record.id, record.facts.owner):
                changed[record.id] = record
        for note in notes:
            if not generation < note.generation <= published.generation or not wanted(note.job, note.owner):
                continue
            record = published_record(published, note.job)
            if record is None:
                gone[note.job] = None
            else:
                changed[note.job] = record
        return list(changed.values()), list(gone)
