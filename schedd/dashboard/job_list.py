"""Jobs for a table: filtered, counted, in an order of the reader's choice; only shown rows are built."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field

from schedd.dashboard.job_order import JobAndStart, Sort, order_jobs
from schedd.engine import JobRecord, JobStatus, JobView, PlanSnapshot, job_status, render_job
from schedd.service.read.job_visibility import ALL_JOBS, JobVisibility

PAGE_SIZE: Final = 50
_Text = Annotated[str, Field(max_length=200)]


class JobFilter(BaseModel):
    """Filter and order of jobs. An empty filter matches all jobs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    q: _Text = ""
    """Words that all occur in a job's fields. If any job matches each exactly, only such are shown."""
    state: JobStatus | Literal[""] = ""
    user: _Text = ""
    queue: _Text = ""
    sort: Sort = "expected"
    down: bool = False
    most: int = Field(default=PAGE_SIZE, ge=1, le=2_000)
    columns: _Text = ""
    """Columns of the table, apart by commas; empty: the usual ones."""
    dense: bool = False
    """One line for a job."""
    subjobs: bool = False
    """One row for each subjob; else one for each array, unless ``q`` names subjobs (``9[``)."""

    def address(self, **changes: Any) -> str:
        """The query of the same filter with changes; default values are left out."""
        plain = {**self.model_dump(), **changes}
        usual = JobFilter().model_dump()
        kept = {name: value for name, value in plain.items() if value != usual[name]}
        return "?" + urlencode({name: int(v) if isinstance(v, bool) else v for name, v in kept.items()})


@dataclass(frozen=True, slots=True)
class JobListPage:
    """Rows, how many there would be without a limit, and how many stand where under the other filters."""

    rows: tuple[JobView, ...]
    total: int
    states: Mapping[str, int]
    users: tuple[str, ...]
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundJobs:
    """Jobs with their starts (-1: none); numbers by state without that filter; all users and queues."""

    jobs: Sequence[JobAndStart]
    states: Mapping[str, int]
    users: tuple[str, ...]
    queues: tuple[str, ...]


def list_jobs(published: PlanSnapshot, visibility: JobVisibility, wanted: JobFilter) -> JobListPage:
    """The jobs that the reader may see and wants, as many as are wanted."""
    found = find_jobs(published, visibility, wanted)
    rows = tuple(
        visibility.redact_view(render_job(published, record), published)
        for record, _ in found.jobs[: wanted.most]
    )
    return JobListPage(rows, len(found.jobs), found.states, found.users, found.queues)


def find_jobs(published: PlanSnapshot, visibility: JobVisibility, wanted: JobFilter) -> FoundJobs:
    """The jobs that the reader may see and wants, in order."""
    words = wanted.q.lower().split()
    visible = _visible_rows(published, visibility)
    owners = {record.facts.owner for record, _ in visible}
    queues = {record.facts.queue for record, _ in visible}
    fitting = visible
    if wanted.user:
        whose = {owner for owner in owners if owner.partition("@")[0] == wanted.user}
        fitting = [row for row in fitting if row[0].facts.owner in whose]
    if wanted.queue:
        fitting = [row for row in fitting if row[0].facts.queue == wanted.queue]
    if words:
        fitting = [row for row in fitting if _matches_text(row[0], words)]
        fitting = [row for row in fitting if _matches_state(row[0], words)] or fitting
    states = [job_status(record, start) for record, start in fitting]
    found = fitting
    if wanted.state:
        found = [row for row, state in zip(fitting, states, strict=True) if state == wanted.state]
    return FoundJobs(
        order_jobs(published, found, wanted.sort, down=wanted.down),
        Counter(states),
        tuple(sorted({owner.partition("@")[0] for owner in owners})),
        tuple(sorted(queues)),
    )


def _visible_rows(published: PlanSnapshot, visibility: JobVisibility) -> list[JobAndStart]:
    starts = published.starts.tolist()
    rows = [(one, start) for one, start in zip(published.records, starts, strict=False) if one is not None]
    rows += [(one, -1) for one in published.slotless.values()]
    return rows if visibility == ALL_JOBS else [row for row in rows if visibility.shows(row[0])]


def _matches_text(record: JobRecord, words: list[str]) -> bool:
    facts = record.facts
    text = f"{facts.id} {facts.name} {facts.owner} {facts.group} {facts.account} {facts.queue}".lower()
    return all(word in text for word in words)


def _matches_state(record: JobRecord, words: list[str]) -> bool:
    facts = record.facts
    texts = (facts.id, facts.id.partition(".")[0], facts.name, facts.owner, facts.owner.partition("@")[0])
    whole = {text.lower() for text in (*texts, facts.group, facts.account, facts.queue)}
    return all(word in whole for word in words)
