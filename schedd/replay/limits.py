"""A site's limits in a replay: who can never run under them, and how far each was used, seen from outside."""

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
    """A limit in words, what it allows, and the most that one whom it concerns used at any moment."""

    limit: str
    amount: int
    used: int
    by: str


def jobs_within_limits(prepared: Prepared, site: Mapping[str, Any]) -> tuple[Prepared, int]:
    """The jobs that may run under the site's limits at all, and how many may not.

    Raises TraceError for a limit of something that logs do not tell, and when no job is left.
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
    """How far each limit was used by jobs that ran over ``[start, end)``; ends of a second come first."""
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
    """Whose the job is as the limit counts; None when it does not concern it."""
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
    for _, change in sorted(changes):  # of one moment the ends, which are negative, come first
        level += change
        most = max(most, level)
    return most
