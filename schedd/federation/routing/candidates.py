"""Candidate clusters for a job, and the load of each cluster."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from schedd.dialect.walltime_scale import scale_seconds
from schedd.federation.routing.cluster_status import ClusterStatus, RoutingRules, attempt_status
from schedd.federation.routing.jobs import FederationJob, FederationJobs
from schedd.federation.routing.policies import RoutingCandidate
from schedd.federation.routing.priorities import Backlog, deadline_value, licence_value, priority, user_value

_WINDOW: Final = 100  # number of latest jobs in the mean deadline margin; the paper gives no number


@dataclass(slots=True)
class ClusterLoads:
    """Load of the federation's own jobs by cluster: cpu-seconds ``sent`` that are not in the cluster's plan
    yet, and the ``backlog`` of waiting jobs.
    """

    sent: dict[str, float] = field(default_factory=dict)
    backlog: dict[str, Backlog] = field(default_factory=dict)

    def add(self, cluster: str, job: FederationJob) -> None:
        """Count the job as sent to the cluster."""
        self.sent[cluster] = self.sent.get(cluster, 0.0) + _cpu_seconds(job)
        self.backlog.setdefault(cluster, Backlog()).add(_cpu_seconds(job), job.priority)


@dataclass(slots=True)
class RoutingContext:
    """Inputs of a routing decision.

    ``known`` caches the candidates of equivalent jobs until a job is sent.
    """

    clusters: Mapping[str, ClusterStatus]
    users: Mapping[str, Mapping[str, str]]
    load: ClusterLoads
    known: dict[tuple[object, ...], Sequence[RoutingCandidate]] = field(default_factory=dict)

    def candidates(
        self, job: FederationJob, rules: RoutingRules, now: int, without: set[str]
    ) -> Sequence[RoutingCandidate]:
        """Return the clusters that can start the job by their plans. Clusters in ``without`` are excluded."""
        more = (job.submission.get("queues"), job.submission.get("data"))
        key = (job.resources, job.owner, job.clusters, job.priority, job.tasks, str(more))
        if key not in self.known:
            self.known[key] = find_candidates(job, rules, self, now)
        return [one for one in self.known[key] if one.cluster not in without]


def find_candidates(
    job: FederationJob, rules: RoutingRules, about: RoutingContext, now: int
) -> Sequence[RoutingCandidate]:
    """Return the clusters where the job may run under these rules."""
    found = []
    users = about.users.get(job.owner, {})
    for name, seen in about.clusters.items():
        if name not in users or seen.away or (job.clusters and name not in job.clusters):
            continue
        if seen.unsupported_reason(job.submission.get("resources", {})):
            continue  # the offer may be older than the server's known family
        offer = seen.offers.get(job.question(name, users[name]))
        if offer is None or offer.start is None:
            continue
        # Jobs in transit, which are not in the cluster's plan yet, start before this job.
        ahead = _transit_seconds(name, seen, about.load)
        length = (offer.end or offer.start) - offer.start
        start = max(now, offer.start) + ahead
        found.append(
            RoutingCandidate(
                cluster=name,
                user=users[name],
                start=start,
                end=start + length,
                handicap=end_penalty(job, seen, rules) + int(rules.price_weight * (offer.cost or 0.0)),
                power=seen.power,
                backlog=about.load.backlog.get(name) or Backlog(),
                priority=job.priority,
            )
        )
    return found


def optimistic_candidate(
    job: FederationJob,
    name: str,
    seen: ClusterStatus,
    user: str,
    rules: RoutingRules,
    load: ClusterLoads,
    now: int,
    bound: int,
) -> RoutingCandidate:
    """Return the best possible candidate of a cluster without an answer; ``bound``: its least start."""
    start = max(now, bound) + _transit_seconds(name, seen, load)
    length = scale_seconds(int(job.submission.get("walltime", 0)), seen.speed)
    return RoutingCandidate(name, user, start, start + length, handicap=end_penalty(job, seen, rules))


def compute_loads(
    jobs: FederationJobs,
    clusters: Mapping[str, ClusterStatus],
    rules: RoutingRules,
    only: Iterable[str] | None = None,
) -> ClusterLoads:
    """Compute the load of the clusters in ``only``, or of all clusters."""
    found = ClusterLoads()
    for cluster in jobs.attempts_at if only is None else only:
        backlog, sent = found.backlog.setdefault(cluster, Backlog()), 0.0
        by_priority: dict[int, list[float]] = {}
        for name, number in jobs.attempts_at.get(cluster, ()):
            job = jobs[name]
            attempt = job.attempts[number - 1]
            if not attempt.live:
                continue
            seen = attempt_status(clusters, rules, job, attempt)
            if seen is None or not seen.state or not attempt.release_requested:
                sent += _cpu_seconds(job)
            if seen is None or seen.state != "running":
                by_priority.setdefault(job.priority, []).append(_cpu_seconds(job))
        for level, works in by_priority.items():
            backlog.add(sum(works), level, len(works))
        found.sent[cluster] = sent
    return found


def job_priority(
    jobs: FederationJobs,
    rules: RoutingRules,
    owner: str,
    submission: Mapping[str, Any],
    deadline: int | None,
    now: int,
) -> int:
    """Return a job's priority among the federation's jobs, at submission.

    The priority is the mean of the terms for deadline, requested licences and user class; the last two only
    if the site has licences and classes. The deadline margin is compared with the mean margin of the latest
    100 jobs.
    """
    terms = []
    walltime = max(1, int(submission.get("walltime", 1)))
    if deadline is not None:
        latest = islice(reversed(jobs.by_id.values()), _WINDOW)
        margins = [margin for job in latest if (margin := _margin(job)) is not None]
        margin = deadline - walltime - now
        mean = sum(margins) / len(margins) if margins else margin
        terms.append(deadline_value(margin, walltime, mean))
    else:
        terms.append(0)
    if rules.licences:
        asked = sum(name in submission.get("resources", {}) for name in rules.licences)
        terms.append(licence_value(asked, len(rules.licences)))
    if rules.classes:
        terms.append(user_value(rules.classes.get(owner, "")))
    return priority(*terms)


def _margin(job: FederationJob) -> int | None:
    """Return the seconds between submission and the latest start that meets the deadline."""
    if job.deadline is None:
        return None
    return job.deadline - int(job.submission.get("walltime", 0)) - job.submitted


def end_penalty(job: FederationJob, seen: ClusterStatus, rules: RoutingRules) -> int:
    """Return the seconds added to an end at this cluster: handicap and data sets, not prices."""
    data: Sequence[str] = job.submission.get("data") or ()
    return seen.handicap + rules.fetch * sum(one not in seen.data for one in data)


def _transit_seconds(name: str, seen: ClusterStatus, load: ClusterLoads) -> int:
    """Return how long the cluster works on jobs in transit, by its disclosed cpus and their speed."""
    return int(load.sent.get(name, 0.0) / seen.power) if seen.power else 0


def _cpu_seconds(job: FederationJob) -> float:
    return float(job.submission.get("cpu_seconds", 0))
