"""Report for the shadow mode: published against actual starts of the present scheduler, waits of its jobs,
and the period as a log for replay.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles
from typing import Final

from schedd.array_ids import submission_order
from schedd.dialect import RequestError, parse_walltime
from schedd.store.records import JobHistory, StoredPublishedStart

DUE_S: Final = 60  # maximum error of a published start that counts as met; smaller moves are not published
_FLOOR_S: Final = 10


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """Figures for the jobs that started in a period; None without such jobs. Times are seconds.

    Errors are ``actual - published``: positive if the job started later than last published. ``slowdown`` is
    bounded, with a floor of 10 s on the run time (Feitelson et al. 1997).
    """

    started: int
    estimated: int  # jobs with a published start
    due: int  # jobs that started within a minute of their last published start
    earlier: int
    later: int
    error_mean: float | None
    error_median_absolute: float | None
    error_p90_absolute: float | None
    ended: int
    wait_mean: float | None
    wait_p95: float | None
    slowdown_mean: float | None


def report_shadow(jobs: Sequence[JobHistory], estimated: Mapping[str, StoredPublishedStart]) -> ShadowReport:
    """Return the figures for these jobs, which have all started."""
    errors = [estimated[job.id].actual - estimated[job.id].start for job in jobs if job.id in estimated]
    sizes = [abs(error) for error in errors]
    waits = [job.started - job.submitted for job in jobs if job.started is not None]
    slow = [
        max(1.0, (job.ended - job.submitted) / max(_FLOOR_S, job.ended - job.started))
        for job in jobs
        if job.ended is not None and job.started is not None
    ]
    return ShadowReport(
        started=len(jobs),
        estimated=len(errors),
        due=sum(size <= DUE_S for size in sizes),
        earlier=sum(error < -DUE_S for error in errors),
        later=sum(error > DUE_S for error in errors),
        error_mean=fmean(errors) if errors else None,
        error_median_absolute=median(sizes) if sizes else None,
        error_p90_absolute=_percentile(sizes, 90),
        ended=len(slow),
        wait_mean=fmean(waits) if waits else None,
        wait_p95=_percentile(waits, 95),
        slowdown_mean=fmean(slow) if slow else None,
    )


def _percentile(values: Sequence[int], percent: int) -> float | None:
    if not values:
        return None
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else float(values[0])


def swf_lines(jobs: Sequence[JobHistory], cpus: int) -> Iterator[str]:
    """Yield the ended jobs as lines of the Standard Workload Format, by submission.

    Users and queues are numbers.
    """
    ended = sorted(
        (job for job in jobs if job.ended is not None),
        key=lambda job: (job.submitted, submission_order(job.id)),
    )
    begin = ended[0].submitted if ended else 0
    yield "; Version: 2.2"
    yield f"; UnixStartTime: {begin}"
    yield f"; MaxProcs: {cpus}"
    users: dict[str, int] = {}
    queues: dict[str, int] = {}
    for number, job in enumerate(ended, 1):
        assert job.started is not None
        assert job.ended is not None
        procs = sum(count for _, count in job.held)
        user = users.setdefault(job.owner.partition("@")[0], len(users) + 1)
        queue = queues.setdefault(job.queue, len(queues) + 1)
        status = 5 if job.how == "deleted" else 0 if job.exit_status else 1
        fields = (
            *(
                number,
                job.submitted - begin,
                job.started - job.submitted,
                max(1, job.ended - job.started),  # 0 would mean that it never ran
                procs,
                -1,
                -1,
            ),
            *(procs, _walltime(job), -1, status, user, -1, -1, queue, -1, -1, -1),
        )
        yield " ".join(map(str, fields))


def _walltime(job: JobHistory) -> int:
    try:
        return parse_walltime(job.resources["walltime"])
    except (KeyError, RequestError):
        return -1
