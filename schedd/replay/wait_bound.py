"""How well any schedule could do: a lower bound of the mean wait.

The machine is relaxed to one processor that is as fast as all together, jobs may be interrupted and share it,
and only their areas (cpus * run time) count. Busy periods of that machine are the same whatever its order, so
each is bounded by itself, by the largest of three sums of completion times:

* every job starts when it is submitted;
* the shortest remaining area first, which is best for the sum of completions (Schrage 1968);
* half a run time past the mean busy date, which in a real schedule is exactly the completion; the sum of
  these dates is least when the smallest area always goes first (Goemans 1997).
"""

import heapq
from collections.abc import Iterator, Sequence

__all__ = ["mean_wait_bound"]

_Job = tuple[int, int, float]
"""Submission, run time, area / processors; all seconds."""


def mean_wait_bound(submit: Sequence[int], run: Sequence[int], procs: Sequence[int], capacity: int) -> float:
    """No schedule of these jobs on ``capacity`` processors has a lower mean wait (seconds).

    The sequences have one length: integer seconds, and processors of each job. Raises ValueError for no jobs.
    """
    if not submit:
        raise ValueError("no jobs: there is nothing to bound")
    jobs = sorted(
        (at, length, length * width / capacity) for at, length, width in zip(submit, run, procs, strict=True)
    )
    waited = 0.0
    for period in _busy_periods(jobs):
        at_once = float(sum(at + length for at, length, _ in period))
        if len(period) > 1:
            completions = sum(end for end, _ in _served(period, by_remaining=True))
            dates = sum(mean for _, mean in _served(period, by_remaining=False))
            halves = sum(length for _, length, _ in period) / 2
            waited += max(0.0, completions - at_once, dates + halves - at_once)
    return waited / len(jobs)


def _busy_periods(jobs: Sequence[_Job]) -> Iterator[list[_Job]]:
    period: list[_Job] = []
    until = 0.0
    for job in jobs:
        if period and job[0] >= until:
            yield period
            period = []
        until = (until if period else job[0]) + job[2]
        period.append(job)
    yield period


def _served(jobs: Sequence[_Job], *, by_remaining: bool) -> Iterator[tuple[float, float]]:
    """End and mean busy date of every job on the one fast machine: least remaining, or least work at all,
    first.

    The mean busy date is the mean of the moments at which the job is worked on.
    """
    queue: list[list[float]] = []  # [key, remaining, work, sum of (moment * work done there)]
    t = float(jobs[0][0])
    at = 0
    while at < len(jobs) or queue:
        if not queue:
            t = max(t, float(jobs[at][0]))
        while at < len(jobs) and jobs[at][0] <= t:
            heapq.heappush(queue, [jobs[at][2], jobs[at][2], jobs[at][2], 0.0])
            at += 1
        job = heapq.heappop(queue)
        spent = job[1] if at == len(jobs) else min(job[1], jobs[at][0] - t)
        job[3] += spent * (t + spent / 2)
        job[1] -= spent
        t += spent
        if job[1] <= 0:
            yield t, job[3] / job[2]
        else:
            job[0] = job[1] if by_remaining else job[2]
            heapq.heappush(queue, job)
