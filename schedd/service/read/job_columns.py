"""Jobs by column; ten times as fast as building a view of each job."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
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
    "expected_start": lambda published, jobs, _: [job_expected_start(published, job).start for job in jobs],
    "expected_by": lambda published, jobs, _: [job_expected_start(published, job).by for job in jobs],
    "expected_as_of": lambda published, jobs, _: [job_expected_start(published, job).as_of for job in jobs],
    "predicted": lambda published, jobs, _: [published.settings.predicts(job.facts.queue) for job in jobs],
    "promised_start": lambda published, jobs, _: _promised(published, jobs),
    "deadline": lambda published, jobs, starts: _details("deadline", None, published, jobs, starts),
    "deadline_state": lambda published, jobs, starts: _details("deadline_state", "", published, jobs, starts),
    "deadline_probability": lambda published, jobs, starts: _details(
        "deadline_probability", None, published, jobs, starts
    ),
}
PLAIN: Final = _COLUMNS.keys()  # fields of a job's view that are available as columns


def columns(published: PlanSnapshot, listed: JobListing, only: AbstractSet[str]) -> dict[str, list[Any]]:
    """Return the values of these fields, which must be in ``PLAIN``, for the listed jobs."""
    found = _COLUMNS.items()
    return {name: of(published, listed.records, listed.starts) for name, of in found if name in only}


def _details(
    field: str, absent: object, published: PlanSnapshot, jobs: Sequence[JobRecord], starts: Sequence[int]
) -> list[Any]:
    return [
        job_details(published, job, start).get(field, absent) for job, start in zip(jobs, starts, strict=True)
    ]


def _promised(published: PlanSnapshot, jobs: Sequence[JobRecord]) -> list[int | None]:
    promises = published.promise.tolist()
    found = (promises[job.slot] if job.slot >= 0 else FOREVER for job in jobs)
    return [promised if promised < FOREVER else None for promised in found]
