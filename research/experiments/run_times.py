"""Accuracy of predicted run times: whole logs, job after job, without knowledge of the future.

Jobs are submitted, start and end as their logs say; a job that ran longer than its walltime counts as killed
then. Coverage is reported overall, by month and by tenth of the users, without a cold start: the first tenth
of the jobs, and the first three of each user. Means and medians are of all jobs.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from time import process_time
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from research.experiments.boosted import Boosted, is_installed
from schedd.predict import JobFeatures, Learner
from schedd.replay.coverage import Bools, by_tenth, by_time, tenths
from schedd.replay.workload import TraceJob

LOGS: Final = (
    "KTH-SP2-1996-2.swf.gz",
    "CTC-SP2-1996-3.1-cln.swf.gz",
    "SDSC-SP2-1998-4.2-cln.swf.gz",
    "SDSC-BLUE-2000-4.1-cln.swf.gz",
    "HPC2N-2002-2.1-cln.swf.gz",
)

_MONTH: Final = 30.4375 * 86_400
_FEWEST_OF_MONTH: Final = 200
_COLD: Final = 3
_LOW, _HIGH = 0.88, 0.92


class Predictor(Protocol):
    """A predictor; it gets the events in the order of time."""

    def queued(self, i: int, job: TraceJob, now: int) -> tuple[float, float | None]:
        """Job number ``i`` arrives; its P50, and its P90 if there is one, in seconds."""

    def started(self, i: int, job: TraceJob, now: int) -> None:
        """It starts."""

    def ended(self, i: int, job: TraceJob, now: int) -> None:
        """It ends."""


class _Walltime:
    """What the user asked for."""

    def queued(self, _i: int, job: TraceJob, _now: int) -> tuple[float, float | None]:
        return job.estimate, None

    def started(self, _i: int, _job: TraceJob, _now: int) -> None:
        """Nothing is learned."""

    def ended(self, _i: int, _job: TraceJob, _now: int) -> None:
        """Nothing is learned."""


class _LastTwo(_Walltime):
    """The mean of the user's last two runs (Tsafrir, Etsion and Feitelson 2007)."""

    def __init__(self) -> None:
        self._runs: dict[str, deque[int]] = defaultdict(lambda: deque(maxlen=2))

    @override
    def queued(self, _i: int, job: TraceJob, _now: int) -> tuple[float, float | None]:
        runs = self._runs[job.user]
        return min(sum(runs) / len(runs), job.estimate) if runs else job.estimate, None

    @override
    def ended(self, _i: int, job: TraceJob, _now: int) -> None:
        self._runs[job.user].append(job.run)


class _Templates:
    """The daemon's own."""

    def __init__(self) -> None:
        self._learner = Learner()

    def queued(self, i: int, job: TraceJob, now: int) -> tuple[float, float | None]:
        told = self._learner.predict_job(
            str(i), JobFeatures(job.user, job.estimate, job.procs, job.name), now
        )
        return told.p50, told.p90

    def started(self, i: int, _job: TraceJob, now: int) -> None:
        self._learner.record_start(str(i), now)

    def ended(self, i: int, _job: TraceJob, now: int) -> None:
        self._learner.record_end(str(i), now)


METHODS: Final[dict[str, Callable[[], Predictor]]] = {
    "walltime": _Walltime,
    "last two": _LastTwo,
    "LightGBM": Boosted,
    "templates": _Templates,
}
"""By the names that the tables have for them; LightGBM is optional, see ``methods``."""


def methods() -> tuple[str, ...]:
    """The names of the methods that can be run here."""
    return tuple(name for name, make in METHODS.items() if make is not Boosted or is_installed())


@dataclass(frozen=True, slots=True, kw_only=True)
class Fared:
    """Results of one method on one log: seconds, shares, and microseconds of processor time per job.

    ``months`` and ``tenths`` are the coverages of P90 by month (of those with 200 jobs or more, the cold
    start apart) and by tenth of the users with 30 jobs or more, users with the fewest first; ``*_apart``: the
    number of coverages outside of 88 to 92 %.
    """

    log: str
    method: str
    jobs: int
    mae_s: float
    median_error_s: float
    p50_coverage: float
    p90_coverage: float | None
    months: tuple[float, ...] = ()
    months_apart: int | None = None
    tenths: tuple[float, ...] = ()
    tenths_apart: int | None = None
    us_per_job: float

    def as_row(self) -> dict[str, Any]:
        """Field to value for JSON."""
        return asdict(self)


def fared(log: str, jobs: Sequence[TraceJob], method: str) -> Fared:
    """Let a method predict all jobs of a log, which are in order of submission; ``run`` is at most the
    ``estimate`` of each.
    """
    predictor = METHODS[method]()
    p50 = np.zeros(len(jobs))
    p90 = np.zeros(len(jobs))
    has_p90 = False
    begin = process_time()
    for what, i, now in _events(jobs):
        job = jobs[i]
        if what == 0:
            p50[i], high = predictor.queued(i, job, now)
            if high is not None:
                p90[i], has_p90 = high, True
        elif what == 1:
            predictor.started(i, job, now)
        else:
            predictor.ended(i, job, now)
    spent = process_time() - begin
    run = np.array([job.run for job in jobs], np.float64)
    found = Fared(
        log=log,
        method=method,
        jobs=len(jobs),
        mae_s=float(np.abs(run - p50).mean()),
        median_error_s=float(np.median(np.abs(run - p50))),
        p50_coverage=float((run <= p50).mean()),
        p90_coverage=None,
        us_per_job=1e6 * spent / len(jobs),
    )
    return _with_coverage(found, jobs, run <= p90) if has_p90 else found


def _events(jobs: Sequence[TraceJob]) -> Iterator[tuple[int, int, int]]:
    """What happens, in order of time: 0 submission, 1 start, 2 end; the job's number; the moment.

    In one second ends and starts come before submissions.
    """
    coming: list[tuple[int, int, int]] = []
    for i, job in enumerate(jobs):
        while coming and coming[0][0] <= job.submit:
            moment, one, what = heapq.heappop(coming)
            yield what, one, moment
        yield 0, i, job.submit
        start = job.submit + (job.wait or 0)
        heapq.heappush(coming, (start, i, 1))
        heapq.heappush(coming, (start + job.run, i, 2))


def _with_coverage(found: Fared, jobs: Sequence[TraceJob], covered: Bools) -> Fared:
    users = np.array([job.user for job in jobs])
    submit = np.array([job.submit for job in jobs], np.float64)
    warm = _warm(users)
    held, who, since = covered[warm], users[warm], (submit - submit[0])[warm]
    months = [one.p90_coverage for one in by_time(held, since, _MONTH) if one.jobs >= _FEWEST_OF_MONTH]
    of_users = [one.p90_coverage for one in by_tenth(held, who, tenths(users))]
    return Fared(
        **{
            **found.as_row(),
            "p90_coverage": float(covered.mean()),
            "months": tuple(months),
            "months_apart": _apart(months),
            "tenths": tuple(of_users),
            "tenths_apart": _apart(of_users),
        }
    )


def _warm(users: "npt.NDArray[np.str_]") -> Bools:
    """Which jobs are not of the cold start."""
    seen: dict[str, int] = defaultdict(int)
    warm = np.zeros(users.shape[0], np.bool_)
    for i, user in enumerate(users.tolist()):
        warm[i] = i >= users.shape[0] // 10 and seen[user] >= _COLD
        seen[user] += 1
    return warm


def _apart(shares: Sequence[float]) -> int:
    return sum(not _LOW <= share <= _HIGH for share in shares)
