"""A site's limits in a replay: jobs that can never run under them, and the observed peaks."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schedd.policy.limits import Limit, format_limit
from schedd.policy.site import site_policy
from schedd.replay.prepared import Prepared
from schedd.replay.workload import TraceError, TraceJob

__all__ = ["LimitPeak", "jobs_within_limits", "peak_usage"]

_AMOUNTS: Mapping[str, Callable[[TraceJob], int]] = {"jobs": lambda _: 1, "cpus": lambda job: job.procs}
_OWNERS: Mapping[str, Callable[[TraceJob], str]] = {
    "all": lambda _: "all",
    "user": lambda job: job.user,
    "group": lambda job: job.group,
}


@dataclass(frozen=True, slots=True)
class LimitPeak:
    """A limit as text, its amount, and the maximum concurrent use by one of its subjects."""

    limit: str
    amount: int
    used: int
    by: str


def jobs_within_limits(prepared: Prepared, site: Mapping[str, Any]) -> tuple[Prepared, int]:
    """Return the jobs allowed by the site's limits, and the number of excluded jobs.

    Raises TraceError for limits of facts that logs do not contain, and when no job is left.
    """
    limits = site_policy(site).limits
    for limit in limits:
        if limit.what not in _AMOUNTS or limit.who not in _OWNERS:
            raise TraceError(f"a log does not say enough for the limit {format_limit(limit)!r}: leave it out")
    kept = [
        i
        for i, job in enumerate(prepared.jobs)
        if all(
            _AMOUNTS[limit.what](job) <= limit.amount
            for limit in limits
            if _concerns(limit, limits, job) is not None
        )
    ]
    left_out = len(prepared.jobs) - len(kept)
    if not kept:
        raise TraceError(f"{prepared.name}: the limits allow none of its jobs")
    if not left_out:
        return prepared, 0
    jobs, requests = tuple(prepared.jobs[i] for i in kept), tuple(prepared.requests[i] for i in kept)
    return replace(prepared, jobs=jobs, requests=requests, skipped=prepared.skipped + left_out), left_out


def peak_usage(
    site: Mapping[str, Any], jobs: Sequence[TraceJob], start: Sequence[int], end: Sequence[int]
) -> list[LimitPeak]:
    """Return the peak use of each limit by jobs that ran over ``[start, end)``; within a second, ends precede
    starts.
    """
    limits = site_policy(site).limits
    found = []
    for limit in limits:
        changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for job, begin, stop in zip(jobs, start, end, strict=True):
            whose = _concerns(limit, limits, job)
            if whose is not None:
                amount = _AMOUNTS[limit.what](job)
                changes[whose] += [(int(begin), amount), (int(stop), -amount)]
        used, by = max(((_most(moves), whose) for whose, moves in changes.items()), default=(0, ""))
        found.append(LimitPeak(format_limit(limit), limit.amount, used, by))
    return found


def _concerns(limit: Limit, limits: Sequence[Limit], job: TraceJob) -> str | None:
    """Return the subject of the limit for this job, or None if the limit does not apply."""
    if limit.queue not in ("", job.queue):
        return None
    whose = _OWNERS[limit.who](job)
    if limit.name:
        return whose if limit.name == whose else None
    if limit.who == "all":
        return whose
    sort = (limit.queue, limit.who, limit.what)
    named = any(other.name == whose and (other.queue, other.who, other.what) == sort for other in limits)
    return None if named else whose


def _most(changes: list[tuple[int, int]]) -> int:
    level = most = 0
    for _, change in sorted(changes):  # at equal times the negative changes (ends) come first
        level += change
        most = max(most, level)
    return most
