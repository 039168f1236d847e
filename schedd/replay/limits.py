"""A site's limits in a replay: jobs that can never run under them, and the observed peaks."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from schedd.dialect import RequestError
from schedd.dialect.partition import PARTITION, read_partitions
from schedd.engine import (
    Engine,
    EngineSettings,
    RequestReader,
    job_labels,
    job_refusal,
    job_scopes,
    make_claim,
    planner_node,
)
from schedd.policy.limits import Limit, format_limit
from schedd.policy.site import SitePolicy, site_policy
from schedd.replay.prepared import Prepared
from schedd.replay.workload import TraceError, TraceJob

_AMOUNTS: Mapping[str, Callable[[TraceJob], int]] = {
    "jobs": lambda _: 1,
    "cpus": lambda job: job.procs,
    "walltime": lambda job: job.estimate,
    "cpu_seconds": lambda job: job.procs * job.estimate,
}
_OF_REQUEST: Final[Mapping[str, str]] = {
    "nodes": "nodes",
    "gpus": "gpus",
    "mem": "mem",
    "node_seconds": "nodes",
    "gpu_seconds": "gpus",
}
"""Amounts of the request on a machine with node shapes, perhaps times the walltime."""
_OWNERS: Mapping[str, Callable[[TraceJob], str]] = {
    "all": lambda _: "all",
    "user": lambda job: job.user,
    "group": lambda job: job.group,
    "account": lambda job: job.account,
    "project": lambda job: job.project,
}


class JobAmounts:
    """Amounts of each job that limits count. Requests are parsed only for limits that need them."""

    def __init__(self, prepared: Prepared, as_run: Sequence[TraceJob] | None = None) -> None:
        """``as_run``: the jobs with the walltime and the shape that they ran with."""
        self._prepared = prepared
        self._jobs = as_run if as_run is not None else prepared.jobs
        self._reader: RequestReader | None = None
        self._known: dict[object, Mapping[str, int]] = {}

    def knows(self, what: str) -> bool:
        """Return whether the log has this amount of each job."""
        return what in _AMOUNTS or (what in _OF_REQUEST and self._prepared.site.shaped)

    def amount(self, i: int, what: str) -> int:
        """Return this amount of job number ``i``."""
        job = self._jobs[i]
        if what in _AMOUNTS:
            return _AMOUNTS[what](job)
        found = self._request_amounts(i).get(_OF_REQUEST[what], 0)
        return found * job.estimate if what.endswith("_seconds") else found

    def _request_amounts(self, i: int) -> Mapping[str, int]:
        ask = self._prepared.requests[i]
        key = (ask.family, *sorted(ask.resources.items()))
        if key not in self._known:
            if self._reader is None:
                self._reader = RequestReader(EngineSettings())
                nodes = [planner_node(node) for node in self._prepared.site.nodes]
                self._reader.set_nodes({node.name: node for node in nodes})
            facts = replace(self._prepared.facts(i), resources=ask.resources)
            self._known[key] = make_claim(facts, self._reader.read(facts, None, {})).amounts
        return self._known[key]


@dataclass(frozen=True, slots=True)
class LimitPeak:
    """A limit as text, its amount, and the maximum concurrent use by a subject."""

    limit: str
    amount: int
    used: int
    by: str


def jobs_within_limits(prepared: Prepared, site: SitePolicy) -> tuple[Prepared, int]:
    """Return the jobs allowed by the site's limits, and the number of excluded jobs.

    Raises TraceError for limits of facts that logs do not contain, and when no job is left.
    """
    prepared, refused = _with_labels(prepared, site)
    amounts = JobAmounts(prepared)
    limits = [
        *site.limits,
        *(limit for limit in site.tallied_limits if limit.counts != "soft"),
    ]
    for limit in limits:
        if limit.counts == "used" and not limit.period and not limit.half_life:
            raise TraceError(
                f"{format_limit(limit)!r} would stop all jobs in the end: give the limit a period or a "
                "half-life"
            )
        if not amounts.knows(limit.what) or limit.who not in _OWNERS:
            raise TraceError(f"logs lack the data for the limit {format_limit(limit)!r}: leave it out")
    kept = [
        i
        for i, job in enumerate(prepared.jobs)
        if all(
            amounts.amount(i, limit.what) <= limit.amount
            for limit in limits
            if _concerns(limit, limits, job) is not None
        )
    ]
    left_out = refused + len(prepared.jobs) - len(kept)
    if not kept:
        raise TraceError(f"{prepared.name}: the limits allow none of its jobs")
    if not left_out:
        return prepared, 0
    jobs, requests = tuple(prepared.jobs[i] for i in kept), tuple(prepared.requests[i] for i in kept)
    return replace(prepared, jobs=jobs, requests=requests, skipped=prepared.skipped + left_out), left_out


def _with_labels(prepared: Prepared, site: SitePolicy) -> tuple[Prepared, int]:
    """Return the jobs with their QOS and requested partitions under the site's policy, without jobs whose
    request the policy refuses, and the number of these. A QOS or partition of the log that the site does not
    have counts as none.
    """
    qos = {**(site.plain.get("qos") or {}), "unknown": "ignore"}
    state = Engine(EngineSettings(site=site_policy({**site.plain, "qos": qos})), 0).state
    if partitions := (site.plain.get("partitions") or {}).get("sets"):
        named = [_known_partitions(job.requested_partition, partitions) for job in prepared.jobs]
        jobs = [replace(job, partition=name) for job, name in zip(prepared.jobs, named, strict=True)]
        prepared = replace(prepared, jobs=tuple(jobs))
    jobs, requests = [], []
    for i, job in enumerate(prepared.jobs):
        facts = prepared.facts(i)
        if job.requested_qos:
            facts = replace(facts, resources={**facts.resources, "qos": job.requested_qos})
        if job_refusal(state, facts) is None:
            name, scopes = job_labels(state, facts).get("qos", ""), job_scopes(state, facts)
            jobs.append(replace(job, qos=name, scopes=scopes) if scopes or job.qos else job)
            requests.append(prepared.requests[i])
    left_out = len(prepared.jobs) - len(jobs)
    if not jobs:
        raise TraceError(f"{prepared.name}: the site's policy refuses the requests of all its jobs")
    return replace(prepared, jobs=tuple(jobs), requests=tuple(requests)), left_out


def _known_partitions(requested: str, known: Collection[str]) -> str:
    """Return the requested partitions that the site has, as a request; empty: any."""
    try:
        names = read_partitions({PARTITION: requested})
    except RequestError:
        return ""
    return ":".join(name for name in names if name in known)


def peak_usage(
    site: SitePolicy,
    prepared: Prepared,
    jobs: Sequence[TraceJob],
    start: Sequence[int],
    end: Sequence[int],
) -> list[LimitPeak]:
    """Return the peak use of each limit over ``[start, end)``; in a second ends precede starts. ``jobs`` are
    those of the replay as they ran.
    """
    limits, amounts = site.limits, JobAmounts(prepared, jobs)
    found = []
    for limit in limits:
        changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for i, (job, begin, stop) in enumerate(zip(jobs, start, end, strict=True)):
            whose = _concerns(limit, limits, job)
            if whose is not None:
                amount = amounts.amount(i, limit.what)
                changes[whose] += [(int(begin), amount), (int(stop), -amount)]
        used, by = max(((_most(moves), whose) for whose, moves in changes.items()), default=(0, ""))
        found.append(LimitPeak(format_limit(limit), limit.amount, used, by))
    return found


def _concerns(limit: Limit, limits: Sequence[Limit], job: TraceJob) -> str | None:
    """Return the subject of the limit for this job, or None if the limit does not apply."""
    if not limit.covers_queue(job.queue):
        return None
    if limit.scope and limit.scope not in job.scopes:
        return None
    whose = _OWNERS[limit.who](job)
    if not whose:
        return None  # a job without account has no share in the limits of accounts
    if limit.name:
        return whose if limit.name == whose else None
    if limit.who == "all":
        return whose
    named = any(other.name == whose and _kind(other) == _kind(limit) for other in limits)
    return None if named else whose


def _kind(limit: Limit) -> tuple[object, ...]:
    """Key common to a limit for each and the named limits that precede it."""
    return limit.queue, limit.scope, limit.who, limit.what, limit.counts, limit.period, limit.half_life


def _most(changes: list[tuple[int, int]]) -> int:
    level = most = 0
    for _, change in sorted(changes):  # at equal times the negative changes (ends) come first
        level += change
        most = max(most, level)
    return most
