"""Where a job could go, and what waits there already: what the policies of routing choose among."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from schedd.federation.routing.jobs import Job, Jobs
from schedd.federation.routing.ordering import Backlog, deadline_value, licence_value, priority, user_value
from schedd.federation.routing.policies import Candidate
from schedd.federation.routing.seen import ClusterSeen, Rules, seen_of

__all__ = ["About", "Load", "assigned", "counts_later", "hoped_for", "priority_of"]

_WINDOW: Final = 100
"""Jobs over which margins of deadlines are averaged; the paper names no number."""


@dataclass(slots=True)
class Load:
    """Of the federation's own jobs, by cluster: cpu-seconds sent there that its plan does not know yet, and
    what waits there.
    """

    sent: dict[str, float] = field(default_factory=dict)
    backlog: dict[str, Backlog] = field(default_factory=dict)

    def add(self, cluster: str, job: Job) -> None:
        """The job is sent there now."""
        self.sent[cluster] = self.sent.get(cluster, 0.0) + _work(job)
        self.backlog.setdefault(cluster, Backlog()).add(_work(job), job.priority)


@dataclass(slots=True)
class About:
    """What is known when choices are made. ``known``: where jobs of one kind could go, until one is sent."""

    clusters: Mapping[str, ClusterSeen]
    users: Mapping[str, Mapping[str, str]]
    load: Load
    known: dict[tuple[object, ...], Sequence[Candidate]] = field(default_factory=dict)

    def candidates(self, job: Job, rules: Rules, now: int, without: set[str]) -> Sequence[Candidate]:
        """The clusters that have room for the job in their plans, but for these."""
        more = (job.submission.get("queues"), job.submission.get("data"))
        key = (job.asks, job.owner, job.clusters, job.priority, job.tasks, str(more))
        if key not in self.known:
            self.known[key] = candidates_of(job, rules, self, now)
        return [one for one in self.known[key] if one.cluster not in without]


def candidates_of(job: Job, rules: Rules, about: About, now: int) -> Sequence[Candidate]:
    found = []
    users = about.users.get(job.owner, {})
    for name, seen in about.clusters.items():
        if name not in users or seen.away or (job.clusters and name not in job.clusters):
            continue
        if seen.cannot(job.submission.get("resources", {})):
            continue  # it may have been asked before it was known what its server is
        offer = seen.offers.get(job.question(name, users[name]))
        if offer is None or offer.start is None:
            continue
        # What was sent there and is not in its plan yet stands before this job.
        ahead = int(about.load.sent.get(name, 0.0) / seen.cpus) if seen.cpus else 0
        length = int(((offer.end or offer.start) - offer.start) / seen.speed)
        start = max(now, offer.start) + ahead
        found.append(
            Candidate(
                cluster=name,
                user=users[name],
                start=start,
                end=start + length,
                handicap=counts_later(job, seen, rules) + int(rules.price_weight * (offer.cost or 0.0)),
                cpus=seen.cpus,
                backlog=about.load.backlog.get(name) or Backlog(),
                priority=job.priority,
            )
        )
    return found


def hoped_for(
    job: Job, name: str, seen: ClusterSeen, user: str, rules: Rules, load: Load, now: int, bound: int
) -> Candidate:
    """The best that a cluster can be for a job of which it was not asked yet, whose start is no earlier than
    ``bound`` there.
    """
    ahead = int(load.sent.get(name, 0.0) / seen.cpus) if seen.cpus else 0
    start = max(now, bound) + ahead
    length = int(int(job.submission.get("walltime", 0)) / seen.speed)
    return Candidate(name, user, start, start + length, handicap=counts_later(job, seen, rules))


def assigned(
    jobs: Jobs, clusters: Mapping[str, ClusterSeen], rules: Rules, only: Iterable[str] | None = None
) -> Load:
    """What was sent to each cluster, or to ``only`` these: what its plan does not know yet, what waits."""
    found = Load()
    for cluster in jobs.at if only is None else only:
        backlog, sent = found.backlog.setdefault(cluster, Backlog()), 0.0
        by_priority: dict[int, list[float]] = {}
        for name, number in jobs.at.get(cluster, ()):
            job = jobs[name]
            attempt = job.attempts[number - 1]
            if not attempt.live:
                continue
            seen = seen_of(clusters, rules, job, attempt)
            if seen is None or not seen.state or not attempt.let_go:
                sent += _work(job)
            if seen is None or seen.state != "running":
                by_priority.setdefault(job.priority, []).append(_work(job))
        for level, works in by_priority.items():
            backlog.add(sum(works), level, len(works))
        found.sent[cluster] = sent
    return found


def priority_of(
    jobs: Jobs, rules: Rules, owner: str, submission: Mapping[str, Any], deadline: int | None, now: int
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


def _margin(job: Job) -> int | None:
    """From submission to the latest start by which its deadline is met, in seconds."""
    if job.deadline is None:
        return None
    return job.deadline - int(job.submission.get("walltime", 0)) - job.submitted


def counts_later(job: Job, seen: ClusterSeen, rules: Rules) -> int:
    """By how much an end there counts as later, whatever it costs: seconds."""
    data: Sequence[str] = job.submission.get("data") or ()
    return seen.handicap + rules.fetch * sum(one not in seen.data for one in data)


def _work(job: Job) -> float:
    return float(job.submission.get("cpu_seconds", 0))
