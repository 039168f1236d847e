"""Jobs of several clusters in one list with a stable order, page by page."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

from schedd.api.replies import api_answer
from schedd.engine import (
    Breach,
    Change,
    JobRecord,
    JobStatus,
    JobView,
    PlanSnapshot,
    job_status,
    render_job,
)
from schedd.service.read.cursors import decode_cursor, encode_cursor
from schedd.service.read.job_visibility import JobVisibility
from schedd.wire import ShareFacts


@api_answer
class PortalJobView:
    """A job for lists of portals."""

    cluster: str
    id: str
    array: str
    """The array of a subjob, such as `12[].server`; else empty."""
    name: str
    owner: str
    queue: str
    account: str
    state: JobStatus
    """`running`; `starting`; `planned`; `waiting` for something whose end is not known; `never`."""
    cpus: int | None
    walltime: int
    """Seconds."""
    headline: str
    """Its start in one sentence, with times in UTC; empty for a job that can never run."""
    why: str
    """In one line: its start, its waiting reason, or why it can never start."""
    submitted: int
    eligible_since: int | None
    not_before: int | None
    started: int | None
    expected_start: int | None
    """Likely start (P50); null without a forecast."""
    expected_by: int | None
    """90 % of such jobs start by then (P90); null also if the promise is as early."""
    expected_as_of: int | None
    """When the forecast was calculated."""
    planned_start: int | None
    """Start in the current plan; of a running job, its start."""
    displayed_start: int | None
    """The planned start with hysteresis, as pages and comments show it."""
    planned_end: int | None
    promised_start: int | None
    """Guaranteed latest start; null: no promise."""
    at_risk: bool
    """Whether the promise cannot be kept as planned now."""
    breaches: tuple[Breach, ...]
    """Promises that were not kept."""
    deadline: int | None
    deadline_state: str
    """As in the job's own view; empty without a deadline."""
    deadline_probability: float | None
    """For a deadline with a probability: the probability that the job ends in time, by the latest forecast.
    """
    nodes: tuple[ShareFacts, ...]
    """Its planned or present allocation on each node."""
    moves: tuple[Change, ...]
    """The latest moves of the planned start, newest first."""
    stale: str
    """Why the data of the cluster may be out of date; empty: they are current."""


_OF_JOB: Final = {one.name for one in fields(PortalJobView)} & {one.name for one in fields(JobView)} - {
    "at_risk"
}
"""Fields that have the same values in both views."""


@dataclass(frozen=True, slots=True, order=True)
class CursorPosition:
    """A position in the list: a cluster, the submission time and the id of the job before it.

    None of these change while the job exists, so that a page never repeats or omits a job when starts move.
    """

    cluster: str
    submitted: int
    job: str

    def encode(self) -> str:
        """Return the position as an opaque text for URLs."""
        return encode_cursor("all jobs", self.cluster, self.submitted, self.job)


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job of the list, from a plan snapshot; ``start`` is planned or actual, -1: none."""

    position: CursorPosition
    published: PlanSnapshot
    record: JobRecord
    start: int


def parse_cursor(text: str) -> CursorPosition:
    """Return the position of a cursor. Raises CursorError for a text that no page returned."""
    return CursorPosition(*decode_cursor(text, "all jobs", str, int, str))


def list_records(
    cluster: str,
    published: PlanSnapshot,
    visibility: JobVisibility,
    *,
    owns: Callable[[str], bool],
    state: JobStatus | None = None,
    after: CursorPosition | None = None,
) -> list[ListedJob]:
    """Return the visible jobs of a cluster after a position, in the order of their submission. ``owns`` tells
    whether the jobs of an owner are wanted.
    """
    found: list[ListedJob] = []
    for record, start in _all_rows(published):
        facts = record.facts
        if not owns(facts.owner) or not visibility.shows(record):
            continue
        if state is not None and job_status(record, start) != state:
            continue
        position = CursorPosition(cluster, facts.submitted, record.id)
        if after is None or position > after:
            found.append(ListedJob(position, published, record, start))
    found.sort(key=lambda row: row.position)
    return found


def portal_job(
    cluster: str,
    published: PlanSnapshot,
    visibility: JobVisibility,
    record: JobRecord,
    now: int,
    latest: Sequence[Change] | None = None,
) -> PortalJobView:
    """Return the view of a job with its ``latest`` moves, newest first; None: with the last one."""
    job = visibility.redact_view(render_job(published, record, now=now), published)
    changes: Sequence[Change] = (job.last_change,) if job.last_change is not None else ()
    if latest is not None:
        changes = [visibility.redact_change(one, published) for one in latest]
    return PortalJobView(
        **{name: getattr(job, name) for name in _OF_JOB},
        cluster=cluster,
        array=record.facts.array,
        at_risk=job.at_risk is not None,
        nodes=job.planned_nodes,
        moves=tuple(changes),
    )


def _all_rows(published: PlanSnapshot) -> Iterator[tuple[JobRecord, int]]:
    for record, start in zip(published.records, published.starts.tolist(), strict=False):
        if record is not None:
            yield record, start
    for record in published.slotless.values():
        yield record, -1
