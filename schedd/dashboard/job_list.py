"""Jobs for a table: filtered, counted, in an order of the reader's choice; only shown rows are built."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field

from schedd.array_ids import submission_order
from schedd.engine import (
    JobRecord,
    JobStatus,
    JobView,
    PlanSnapshot,
    job_displayed_start,
    job_expected_start,
    job_status,
    render_job,
)
from schedd.model import FOREVER
from schedd.service.read.job_visibility import JobVisibility
from schedd.start_sentence import is_forecast_fresh

PAGE_SIZE: Final = 100
Sort = Literal["start", "expected", "promised", "job", "user", "queue", "walltime", "submitted"]
SORTS: Final[tuple[Sort, ...]] = get_args(Sort)
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

    jobs: Sequence[tuple[JobRecord, int]]
    states: Mapping[str, int]
    users: tuple[str, ...]
    queues: tuple[str, ...]


def list_jobs(
    published: PlanSnapshot, visibility: JobVisibility, wanted: JobFilter, most: int | None = None
) -> JobListPage:
    """The jobs that the reader may see and wants, ``most`` or as many as are wanted."""
    found = find_jobs(published, visibility, wanted)
    rows = tuple(
        visibility.redact_view(render_job(published, record), published)
        for record, _ in found.jobs[: most or wanted.most]
    )
    return JobListPage(rows, len(found.jobs), found.states, found.users, found.queues)


def find_jobs(published: PlanSnapshot, visibility: JobVisibility, wanted: JobFilter) -> FoundJobs:
    """The jobs that the reader may see and wants, in order."""
    words = wanted.q.lower().split()
    users: set[str] = set()
    queues: set[str] = set()
    fitting: list[tuple[JobRecord, int]] = []
    wholly: list[tuple[JobRecord, int]] = []
    for record, start in _all_rows(published):
        if not visibility.shows(record):
            continue
        facts = record.facts
        user = facts.owner.partition("@")[0]
        users.add(user)
        queues.add(facts.queue)
        if wanted.user not in ("", user) or wanted.queue not in ("", facts.queue):
            continue
        if words and not _matches_text(record, words):
            continue
        fitting.append((record, start))
        if words and _matches_state(record, words):
            wholly.append((record, start))
    states: Counter[str] = Counter()
    found: list[tuple[JobRecord, int]] = []
    for record, start in wholly or fitting:
        state = job_status(record, start)
        states[state] += 1
        if wanted.state in ("", state):
            found.append((record, start))
    found.sort(key=_sort_key(published, wanted.sort), reverse=wanted.down)
    return FoundJobs(found, states, tuple(sorted(users)), tuple(sorted(queues)))


def _all_rows(published: PlanSnapshot) -> Iterator[tuple[JobRecord, int]]:
    starts = published.starts.tolist()
    for record, start in zip(published.records, starts, strict=False):
        if record is not None:
            yield record, start
    for record in published.slotless.values():
        yield record, -1


def _matches_text(record: JobRecord, words: list[str]) -> bool:
    facts = record.facts
    text = f"{facts.id} {facts.name} {facts.owner} {facts.group} {facts.account} {facts.queue}".lower()
    return all(word in text for word in words)


def _matches_state(record: JobRecord, words: list[str]) -> bool:
    facts = record.facts
    texts = (facts.id, facts.id.partition(".")[0], facts.name, facts.owner, facts.owner.partition("@")[0])
    whole = {text.lower() for text in (*texts, facts.group, facts.account, facts.queue)}
    return all(word in whole for word in words)


def _sort_key(published: PlanSnapshot, sort: Sort) -> Callable[[tuple[JobRecord, int]], Any]:
    def start_key(row: tuple[JobRecord, int]) -> int:
        return row[1] if row[1] >= 0 else FOREVER

    def promise_key(row: tuple[JobRecord, int]) -> int:
        return int(published.promise[row[0].slot]) if row[0].slot >= 0 else FOREVER

    def expected_start_key(row: tuple[JobRecord, int]) -> tuple[int, int]:
        """The start of the sentence: the likely one, or the displayed one if no forecast holds."""
        if row[1] < 0:
            return FOREVER, FOREVER
        found, now = job_expected_start(published, row[0]), published.as_of
        displayed = job_displayed_start(published, *row)
        if displayed <= now or found.start is None:
            return displayed, displayed
        by = found.by if found.by is not None else promise_key(row)
        if not is_forecast_fresh(found.start, by, found.as_of, now):
            return displayed, displayed
        return found.start, by

    def number_key(row: tuple[JobRecord, int]) -> tuple[int, int, str]:
        return submission_order(row[0].id)

    keys: dict[Sort, Callable[[tuple[JobRecord, int]], Any]] = {
        "start": lambda row: (start_key(row), number_key(row)),
        "expected": lambda row: (*expected_start_key(row), number_key(row)),
        "promised": lambda row: (promise_key(row), number_key(row)),
        "job": number_key,
        "user": lambda row: (row[0].facts.owner, number_key(row)),
        "queue": lambda row: (row[0].facts.queue, number_key(row)),
        "walltime": lambda row: (row[0].understood.walltime, number_key(row)),
        "submitted": lambda row: (row[0].facts.submitted, number_key(row)),
    }
    return keys[sort]
