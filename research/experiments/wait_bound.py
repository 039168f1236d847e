"""Lower bound of the mean wait of any schedule.

The machine is relaxed to one processor with the total speed; jobs may be preempted and share it, and only
their areas (cpus * run time) count. The busy periods of this machine are independent of the order, so each is
bounded separately by the largest of three sums of completion times:

- every job starts when it is submitted;
- shortest remaining area first, which minimises the sum of completions (Schrage 1968);
- half a run time after the mean busy date, which equals the completion in a real schedule; the sum of these
  dates is minimal with the smallest area first (Goemans 1997).
"""

import heapq
from collections.abc import Iterator, Sequence

_Job = tuple[int, int, float]  # submission, run time, area / processors; all in seconds


def mean_wait_bound(submit: Sequence[int], run: Sequence[int], procs: Sequence[int], capacity: int) -> float:
    """Return a lower bound of the mean wait in seconds on ``capacity`` processors.

    The sequences have equal length: integer seconds, and processors of each job. Raises ValueError for no
    jobs.
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
    """Yield end and mean busy date of every job on the fast machine, by least remaining or by least total
    work.

    The mean busy date is the mean of the times when the job is processed.
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
