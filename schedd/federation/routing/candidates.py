"""Where a job could go, and what waits there already: what the policies of routing choose among."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from schedd.federation.routing.cluster_status import ClusterStatus, RoutingRules, attempt_status
from schedd.federation.routing.jobs import FederationJob, FederationJobs
from schedd.federation.routing.policies import RoutingCandidate
from schedd.federation.routing.priorities import Backlog, deadline_value, licence_value, priority, user_value

__all__ = [
    "ClusterLoads",
    "RoutingContext",
    "compute_loads",
    "end_penalty",
    "job_priority",
    "optimistic_candidate",
]

_WINDOW: Final = 100
"""Jobs over which margins of deadlines are averaged; the paper names no number."""


@dataclass(slots=True)
class ClusterLoads:
    """Of the federation's own jobs, by cluster: cpu-seconds sent there that its plan does not know yet, and
    what waits there.
    """

    sent: dict[str, float] = field(default_factory=dict)
    backlog: dict[str, Backlog] = field(default_factory=dict)

    def add(self, cluster: str, job: FederationJob) -> None:
        """The job is sent there now."""
        self.sent[cluster] = self.sent.get(cluster, 0.0) + _cpu_seconds(job)
        self.backlog.setdefault(cluster, Backlog()).add(_cpu_seconds(job), job.priority)


@dataclass(slots=True)
class RoutingContext:
    """What is known when choices are made. ``known``: where jobs of one kind could go, until one is sent."""

    clusters: Mapping[str, ClusterStatus]
    users: Mapping[str, Mapping[str, str]]
    load: ClusterLoads
    known: dict[tuple[object, ...], Sequence[RoutingCandidate]] = field(default_factory=dict)

    def candidates(
        self, job: FederationJob, rules: RoutingRules, now: int, without: set[str]
    ) -> Sequence[RoutingCandidate]:
        """The clusters that have room for the job in their plans, but for these."""
        more = (job.submission.get("queues"), job.submission.get("data"))
        key = (job.resources, job.owner, job.clusters, job.priority, job.tasks, str(more))
        if key not in self.known:
            self.known[key] = find_candidates(job, rules, self, now)
        return [one for one in self.known[key] if one.cluster not in without]


def find_candidates(
    job: FederationJob, rules: RoutingRules, about: RoutingContext, now: int
) -> Sequence[RoutingCandidate]:
    found = []
    users = about.users.get(job.owner, {})
    for name, seen in about.clusters.items():
        if name not in users or seen.away or (job.clusters and name not in job.clusters):
            continue
        if seen.unsupported_reason(job.submission.get("resources", {})):
            continue  # it may have been asked before it was known what its server is
        offer = seen.offers.get(job.question(name, users[name]))
        if offer is None or offer.start is None:
            continue
        # What was sent there and is not in its plan yet stands before this job.
        ahead = int(about.load.sent.get(name, 0.0) / seen.cpus) if seen.cpus else 0
        length = int(((offer.end or offer.start) - offer.start) / seen.speed)
        start = max(now, offer.start) + ahead
        found.append(
            RoutingCandidate(
                cluster=name,
                user=users[name],
                start=start,
                end=start + length,
                handicap=end_penalty(job, seen, rules) + int(rules.price_weight * (offer.cost or 0.0)),
                cpus=seen.cpus,
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
    """The best that a cluster can be for a job of which it was not asked yet, whose start is no earlier than
    ``bound`` there.
    """
    ahead = int(load.sent.get(name, 0.0) / seen.cpus) if seen.cpus else 0
    start = max(now, bound) + ahead
    length = int(int(job.submission.get("walltime", 0)) / seen.speed)
    return RoutingCandidate(name, user, start, start + length, handicap=end_penalty(job, seen, rules))


def compute_loads(
    jobs: FederationJobs,
    clusters: Mapping[str, ClusterStatus],
    rules: RoutingRules,
    only: Iterable[str] | None = None,
) -> ClusterLoads:
    """What was sent to each cluster, or to ``only`` these: what its plan does not know yet, what waits."""
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
    """A job's priority among the federation's own, at its submission: the mean of the terms of its deadline,
    of the licences it asks for, and of its user, where the site has licences and classes.

    Margins are compared with those of the latest hundred jobs.
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
    """From submission to the latest start by which its deadline is met, in seconds."""
    if job.deadline is None:
        return None
    return job.deadline - int(job.submission.get("walltime", 0)) - job.submitted


def end_penalty(job: FederationJob, seen: ClusterStatus, rules: RoutingRules) -> int:
    """By how much an end there counts as later, whatever it costs: seconds."""
    data: Sequence[str] = job.submission.get("data") or ()
    return seen.handicap + rules.fetch * sum(one not in seen.data for one in data)


def _cpu_seconds(job: FederationJob) -> float:
    return float(job.submission.get("cpu_seconds", 0))
