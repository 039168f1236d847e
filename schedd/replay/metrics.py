"""Metrics of a schedule: waits, slowdowns, utilisation and fairness of finished jobs.

Formulas and their sources: docs/reference/metrics.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

_SLOWDOWN_FLOOR: Final = 1
_BOUND: Final = 10  # threshold of the bounded slowdown in seconds (Feitelson and Rudolph 1998)


@dataclass(frozen=True, slots=True)
class Metrics:
    """Means and tails over jobs. Times are seconds; slowdowns, utilisation and fairness bare numbers."""

    avg_wait_s: float
    p95_wait_s: float
    p999_wait_s: float
    max_wait_s: int
    avg_response_s: float
    avg_slowdown: float
    avg_bounded_slowdown: float
    avg_bounded_slowdown_10s: float
    makespan_s: int
    utilisation: float
    weighted_utilisation: float
    fairness_nuwt_stddev: float


@dataclass(frozen=True, slots=True)
class Series:
    """Course of a schedule over equal intervals; each value is the mean over its interval.

    ``time`` holds the left edges in seconds, on the clock of the jobs; ``width`` is the interval's length in
    seconds; ``utilisation`` is the share of processors in use; ``queued`` the number of waiting jobs. All
    arrays have equal length.
    """

    time: NDArray[np.float64]
    width: float
    utilisation: NDArray[np.float64]
    queued: NDArray[np.float64]


def measure(
    submit: ArrayLike,
    start: ArrayLike,
    end: ArrayLike,
    procs: ArrayLike,
    user: ArrayLike,
    capacity: int,
    *,
    weighted: tuple[ArrayLike, float] | None = None,
    paused: ArrayLike = 0,
) -> Metrics:
    """The metrics of jobs given as arrays of one length, on a machine of `capacity` processors.

    `weighted` has the processors of each job and of the machine, each processor times the speed of its node;
    without it all speeds are 1. `paused`: for how many seconds each job was suspended. `submit`, `start` and
    `end` are integer seconds; `user` may hold names or numbers. Raises ValueError for no jobs, and for a job
    that starts before its submission, does not end after its start, or has no processors: such a schedule is
    no measurement but a defect.
    """
    submitted, started, ended, width = (np.asarray(a, dtype=np.int64) for a in (submit, start, end, procs))
    owner = np.asarray(user)
    if not submitted.size:
        raise ValueError("no job has run: there is nothing to measure")
    wrong = (started < submitted) | (ended <= started) | (width < 1)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(
            f"job at position {at}: submitted {submitted[at]}, started {started[at]}, ended {ended[at]}, "
            f"on {width[at]} processors"
        )
    wait = started - submitted
    run = ended - started - np.asarray(paused, dtype=np.int64)
    response = ended - submitted
    makespan = int(ended.max() - submitted.min())
    area = width.astype(np.float64) * run
    fast, fast_capacity = (width, float(capacity)) if weighted is None else weighted
    fast_area = np.asarray(fast, dtype=np.float64) * run
    slowdown = response / np.maximum(run, _SLOWDOWN_FLOOR)
    return Metrics(
        avg_wait_s=float(wait.mean()),
        p95_wait_s=float(np.percentile(wait, 95)),
        p999_wait_s=float(np.percentile(wait, 99.9)),
        max_wait_s=int(wait.max()),
        avg_response_s=float(response.mean()),
        avg_slowdown=float(slowdown.mean()),
        avg_bounded_slowdown=float(np.maximum(slowdown, 1.0).mean()),
        avg_bounded_slowdown_10s=float(np.maximum(response / np.maximum(run, _BOUND), 1.0).mean()),
        makespan_s=makespan,
        utilisation=float(area.sum() / (float(capacity) * makespan)),
        weighted_utilisation=float(fast_area.sum() / (fast_capacity * makespan)),
        fairness_nuwt_stddev=float(waits_by_area(wait, area, owner).std()),
    )


def waits_by_area(
    wait: NDArray[np.int64], area: NDArray[np.float64], owner: NDArray[Any]
) -> NDArray[np.float64]:
    """Return for each user the total wait of the user's jobs, divided by their processor-seconds."""
    _, at = np.unique(owner, return_inverse=True)
    waited = np.bincount(at, weights=wait.astype(np.float64))
    return waited / np.bincount(at, weights=area)


def start_estimate_accuracy(estimated: ArrayLike, start: ArrayLike) -> tuple[float | None, float | None]:
    """Return the share of jobs that started by their estimated start, and the mean delay of the others in
    seconds (0 without any).

    The arrays have equal length and integer seconds; -1 means no estimate. None and None without any
    estimate.
    """
    said, started = np.asarray(estimated, dtype=np.int64), np.asarray(start, dtype=np.int64)
    started, said = started[said >= 0], said[said >= 0]
    if not said.size:
        return None, None
    late = started - said
    return float((late <= 0).mean()), float(late[late > 0].mean()) if (late > 0).any() else 0.0


def start_estimate_error(estimated: ArrayLike, submit: ArrayLike, start: ArrayLike) -> float | None:
    """Return the mean distance of starts from their estimates at arrival, in seconds, over waiting jobs.

    A job counts if it waited or was expected to wait. The arrays have equal length and integer seconds; -1
    means no estimate. None without any such job.
    """
    said, submitted, started = (np.asarray(a, dtype=np.int64) for a in (estimated, submit, start))
    waits = (said >= 0) & ((started > submitted) | (said > submitted))
    return float(np.abs(started - said)[waits].mean()) if waits.any() else None


def lateness(deadline: Sequence[int | None], end: ArrayLike) -> tuple[int | None, float | None]:
    """Return the number of jobs that ended after their deadline, and the mean delay over all jobs with a
    deadline, in seconds.

    None and None without any deadline.
    """
    ends = np.asarray(end, dtype=np.int64)
    has = [i for i, due in enumerate(deadline) if due is not None]
    if not has:
        return None, None
    late = np.maximum(0, ends[has] - np.array([deadline[i] for i in has], np.int64))
    return int((late > 0).sum()), float(late.mean())


def series(
    submit: ArrayLike,
    start: ArrayLike,
    end: ArrayLike,
    procs: ArrayLike,
    capacity: int,
    intervals: int = 400,
    pauses: Sequence[tuple[int, int, int]] = (),
) -> Series:
    """Return utilisation and queue length over `intervals` equal intervals from first submission to last end.

    Arguments as for `measure`; `pauses` are (begin, end, processors) of suspended runs. Raises ValueError
    for no jobs.
    """
    submitted, started, ended, width = (np.asarray(a, dtype=np.int64) for a in (submit, start, end, procs))
    if not submitted.size:
        raise ValueError("no job has run: there is nothing to draw")
    edges = np.linspace(float(submitted.min()), float(ended.max()), intervals + 1)
    step = (edges[-1] - edges[0]) / intervals
    busy = _integral(started, ended, width.astype(np.float64), edges)
    if pauses:
        begins, ends, fewer = (np.array([one[part] for one in pauses], np.int64) for part in range(3))
        busy = busy - _integral(begins, ends, fewer.astype(np.float64), edges)
    waiting = _integral(submitted, started, np.ones(submitted.size), edges)
    return Series(
        time=edges[:-1],
        width=float(step),
        utilisation=np.diff(busy) / (step * capacity),
        queued=np.diff(waiting) / step,
    )


def _integral(
    begin: NDArray[np.int64], end: NDArray[np.int64], weight: NDArray[np.float64], edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the integral of the present weight up to each edge: a piecewise linear function of time."""
    times = np.concatenate((begin, end))
    order = np.argsort(times, kind="stable")
    at = times[order].astype(np.float64)
    level = np.cumsum(np.concatenate((weight, -weight))[order])
    area = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(at))))
    return np.interp(edges, at, area)
