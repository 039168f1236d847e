"""Jobs by column; ten times as fast as building a view of each job."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import Any, Final

from schedd.engine import (
    JobRecord,
    PlanSnapshot,
    job_details,
    job_displayed_start,
    job_expected_start,
    job_labels,
    job_status,
)
from schedd.model import FOREVER
from schedd.service.read.plan_lists import JobListing

_Of = Callable[[PlanSnapshot, Sequence[JobRecord], Sequence[int]], list[Any]]

_COLUMNS: Final[Mapping[str, _Of]] = {
    "id": lambda _, jobs, __: [job.id for job in jobs],
    "name": lambda _, jobs, __: [job.facts.name for job in jobs],
    "owner": lambda _, jobs, __: [job.facts.owner for job in jobs],
    "group": lambda _, jobs, __: [job.facts.group for job in jobs],
    "account": lambda _, jobs, __: [job.facts.account for job in jobs],
    "queue": lambda _, jobs, __: [job.facts.queue for job in jobs],
    "labels": lambda published, jobs, __: [job_labels(published, job.facts) for job in jobs],
    "job_state": lambda _, jobs, __: [job.facts.state for job in jobs],
    "state": lambda _, jobs, starts: list(map(job_status, jobs, starts)),
    "submitted": lambda _, jobs, __: [job.facts.submitted for job in jobs],
    "cpus": lambda _, jobs, __: [
        request.cpus if (request := job.understood.request) is not None else None for job in jobs
    ],
    "walltime": lambda _, jobs, __: [job.understood.walltime for job in jobs],
    "planned_start": lambda _, jobs, starts: [
        job.begin_from(start) if start >= 0 else None for job, start in zip(jobs, starts, strict=True)
    ],
    "displayed_start": lambda published, jobs, starts: [
        displayed if (displayed := job_displayed_start(published, job, start)) >= 0 else None
        for job, start in zip(jobs, starts, strict=True)
    ],
    "planned_end": lambda published, jobs, starts: [
        job.end_from(start, published.as_of) if start >= 0 else None
        for job, start in zip(jobs, starts, strict=True)
    ],
    "predicted": lambda published, jobs, _: [published.settings.predicts(job.facts.queue) for job in jobs],
    "starts_stopped": lambda published, jobs, _: [published.starts_stopped] * len(jobs),
    "promised_start": lambda published, jobs, _: _promised(published, jobs),
}
_EXPECTED: Final = {"expected_start": "start", "expected_by": "by", "expected_as_of": "as_of"}
_DETAILS: Final[Mapping[str, object]] = {  # with the value that stands for none
    "deadline": None,
    "deadline_state": "",
    "deadline_probability": None,
}
PLAIN: Final = frozenset({*_COLUMNS, *_EXPECTED, *_DETAILS})
"""Fields of a job's view that are available as columns."""


def columns(published: PlanSnapshot, listed: JobListing, only: AbstractSet[str]) -> dict[str, list[Any]]:
    """Return the values of these fields, which must be in ``PLAIN``, for the listed jobs."""
    jobs, starts = listed.records, listed.starts
    found = {name: of(published, jobs, starts) for name, of in _COLUMNS.items() if name in only}
    if not only.isdisjoint(_EXPECTED):
        expected = [job_expected_start(published, job) for job in jobs]
        found |= {name: list(map(attrgetter(of), expected)) for name, of in _EXPECTED.items() if name in only}
    if not only.isdisjoint(_DETAILS):
        details = [job_details(published, job, start) for job, start in zip(jobs, starts, strict=True)]
        found |= {
            name: [one.get(name, absent) for one in details]
            for name, absent in _DETAILS.items()
            if name in only
        }
    return found


def _promised(published: PlanSnapshot, jobs: Sequence[JobRecord]) -> list[int | None]:
    promises = published.promise.tolist()
    found = (promises[job.slot] if job.slot >= 0 else FOREVER for job in jobs)
    return [promised if promised < FOREVER else None for promised in found]
