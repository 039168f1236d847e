"""Published start of a queued job, in questions about alterations of it."""

from dataclasses import dataclass, replace
from typing import Final

from schedd.engine import (
    JobRecord,
    PlanSnapshot,
    job_expected_start,
    job_promised_start,
    job_shares,
    job_status,
)
from schedd.model import FOREVER, Placement, Share, StartKnown
from schedd.service.questions.expectations import UNKNOWN, Expectation
from schedd.service.questions.what_if import WhatIfAnswer
from schedd.start_sentence import is_forecast_fresh

OWN_FORECAST: Final = (
    "the likely start is that of the unaltered job, since the altered one could keep its place"
)


def current_start(published: PlanSnapshot, job: JobRecord) -> StartKnown | None:
    """Return the place of a queued job in the plan; None if it has none."""
    start = int(published.starts[job.slot]) if job.slot >= 0 else -1
    if job_status(job, start) != "planned":
        return None
    shares = tuple(Share(s.node, s.cpus, s.mem, s.gpus) for s in job_shares(published, job))
    return StartKnown(Placement(start, start + job.understood.walltime, shares))


@dataclass(frozen=True, slots=True)
class PublishedStart:
    """Published start of a queued job: a bound for requests with which it could keep its place.

    Forecasts of altered requests are sampled at the question; the published one was sampled before, and is
    calibrated for waiting jobs. Without the bound, a smaller request could be expected later than the job.
    """

    record: JobRecord
    planned: int
    promise: int  # FOREVER: none
    forecast: Expectation  # UNKNOWN: none is fresh

    @classmethod
    def from_job(cls, published: PlanSnapshot, job: JobRecord, now: int) -> "PublishedStart | None":
        """Return the published start of a planned job; None for other jobs."""
        place = current_start(published, job)
        if place is None:
            return None
        found, promised = job_expected_start(published, job), job_promised_start(published, job)
        forecast = UNKNOWN
        by = found.by if found.by is not None else promised
        if found.start is not None and is_forecast_fresh(found.start, by, found.as_of, now):
            by = by if by is not None else found.start
            forecast = Expectation(found.start, by, found.as_of if found.as_of is not None else now, -1)
        return cls(job, place.placement.start, promised if promised is not None else FOREVER, forecast)

    def bound(self, expected: Expectation, asked: WhatIfAnswer) -> tuple[Expectation, str]:
        """Return the expected start of an altered request that keeps the promise. It is limited to the job's
        own expected start if the request is planned no later than the job; a remark then says so.
        """
        own = self.forecast
        if not isinstance(asked.answer, StartKnown) or asked.answer.placement.start > self.planned:
            return expected, ""
        if own.start < 0 or expected.start < 0 or (expected.start <= own.start and expected.by <= own.by):
            return expected, ""
        by = min(expected.by, own.by)
        if expected.start <= own.start:
            return replace(expected, by=by), ""
        return replace(expected, start=own.start, by=by, as_of=own.as_of), OWN_FORECAST
