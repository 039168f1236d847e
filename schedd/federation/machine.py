"""What a federation does: from its jobs and what it sees of the clusters to events and actions.

Functional core: nothing here reads a clock or talks to anybody. ``observe`` turns what a cluster says of its
handovers into events, ``decide`` makes the choices, ``actions`` says what is to be asked of each cluster. All
that is asked may be asked again: what is lost in a crash is done anew from the log.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from schedd.federation.events import (
    Chosen,
    Ended,
    Event,
    Failed,
    GivenUp,
    Held,
    Kept,
    LetGo,
    Out,
    Refused,
    Withdrawn,
)
from schedd.federation.jobs import Attempt, Job, Jobs
from schedd.federation.ordering import Waiting, deadline_value, priority
from schedd.federation.policies import Candidate, Policy

__all__ = [
    "Action",
    "ClusterSeen",
    "HandoverSeen",
    "Offer",
    "Rules",
    "actions",
    "decide",
    "handover",
    "observe",
]

_REFUSED: Final = "refused"
_WINDOW: Final = 100
"""Jobs over which margins of deadlines are averaged; the paper names no number."""
_SENT: Final = ("script", "resources", "attributes", "variables")


@dataclass(frozen=True, slots=True)
class HandoverSeen:
    """What a cluster says of one handover: see ``GET /v1/clusters/{cluster}/handovers``."""

    phase: str
    job: str = ""
    state: str = ""
    let_run: bool = False
    end: Literal["", "ended", "deleted"] = ""
    exit_status: int | None = None
    planned_start: int | None = None
    planned_end: int | None = None
    promised_start: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a cluster's plan says of a job that is not there; ``start`` None: it has no place, and ``why``."""

    start: int | None
    end: int | None
    why: str = ""
    never: bool = False


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """What is seen of one cluster. ``away``: why it does not answer; empty: it does. ``since``: for so long.

    ``cpus`` is 0 where the cluster does not tell. ``speed`` divides run times, ``handicap`` is added to ends
    (seconds).
    """

    away: str = ""
    since: int = 0
    handovers: Mapping[str, HandoverSeen] = field(default_factory=dict)
    offers: Mapping[str, Offer] = field(default_factory=dict)
    cpus: int = 0
    speed: float = 1.0
    handicap: int = 0


@dataclass(slots=True)
class Load:
    """Of the federation's own jobs: by cluster, cpu-seconds sent there that its plan does not know yet; those
    that wait; and the mean margin of the deadlines of the latest jobs, in seconds.
    """

    mean: float = 0.0
    sent: dict[str, float] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Rules:
    """How it decides; times in seconds."""

    name: str = "fed"
    policy: Policy = Policy.PLAN
    patience: int = 30
    """So long an answer is waited for before a job goes elsewhere."""
    threshold: int = 600
    """A job that waits is moved where it ends earlier by at least so much."""
    moves: int = 2
    """So often at most."""


@dataclass(frozen=True, slots=True)
class Action:
    """What is to be asked of a cluster."""

    cluster: str
    kind: Literal["submit", "release", "withdraw"]
    handover: str
    job: str
    attempt: int
    body: Mapping[str, Any] | None = None


def handover(rules: Rules, job: Job, attempt: Attempt) -> str:
    """The name of an attempt at its cluster, used once."""
    return f"{rules.name}.{job.id}.{attempt.number}"


def actions(jobs: Jobs, rules: Rules, cluster: str) -> Iterator[Action]:
    """What is to be asked of the cluster now."""
    for name in jobs.open:
        job = jobs[name]
        for attempt in job.attempts:
            if attempt.cluster != cluster:
                continue
            what = handover(rules, job, attempt)
            if attempt.phase == "asking":
                body = {name: value for name, value in job.submission.items() if name in _SENT}
                body |= {"user": attempt.user, "queue": job.submission.get("queues", {}).get(cluster, "")}
                yield Action(cluster, "submit", what, job.id, attempt.number, body)
            elif attempt.phase == "letting":
                yield Action(cluster, "release", what, job.id, attempt.number)
            elif attempt.phase == "withdrawing":
                yield Action(cluster, "withdraw", what, job.id, attempt.number)


def observe(
    jobs: Jobs, rules: Rules, cluster: str, seen: Mapping[str, HandoverSeen], now: int
) -> list[Event]:
    """The events that follow from what the cluster says of its handovers."""
    found: list[Event] = []
    for name in jobs.open:
        job = jobs[name]
        for attempt in job.attempts:
            if attempt.cluster == cluster:
                one = seen.get(handover(rules, job, attempt))
                event = _observed(job, attempt, one, now) if one is not None else None
                if event is not None:
                    found.append(event)
    return found


def _observed(job: Job, attempt: Attempt, seen: HandoverSeen, now: int) -> Event | None:
    about: dict[str, Any] = {"job": job.id, "attempt": attempt.number, "time": now}
    match attempt.phase:
        case "asking" if seen.phase == _REFUSED:
            return Refused(**about, text=seen.text or "refused")
        case "asking" if seen.phase == "withdrawn":
            return Refused(**about, text="it was taken back there")
        case "asking" if seen.job:
            return Held(**about, server_job=seen.job)
        case "held" | "letting" | "out" if seen.end:
            return Ended(**about, how=seen.end, exit_status=seen.exit_status)
        case "letting" if seen.phase == "released":
            return Out(**about)
        case "withdrawing" if seen.phase in ("withdrawn", _REFUSED):
            return Withdrawn(**about)
        case "withdrawing" if seen.end:
            return Ended(**about, how=seen.end, exit_status=seen.exit_status)
        case "withdrawing" if seen.phase == "released" and seen.text and attempt.let_go:
            return Kept(**about, text=seen.text)
    return None


def decide(
    jobs: Jobs,
    rules: Rules,
    clusters: Mapping[str, ClusterSeen],
    now: int,
    users: Mapping[str, Mapping[str, str]],
) -> list[Event]:
    """The next choice for each job for which one is to be made; ``users``: by owner, whom they are where."""
    found: list[Event] = []
    load = _assigned(jobs, clusters, rules)
    for name in list(jobs.open):
        job = jobs[name]
        event = _next(job, rules, clusters, now, users.get(job.owner, {}), load)
        if event is not None:
            found.append(event)
            if isinstance(event, Chosen):
                load.sent[event.cluster] = load.sent.get(event.cluster, 0.0) + _work(job)
                load.waiting.append(Waiting(event.cluster, _work(job), _priority(job, load.mean)))
    return found


def _next(
    job: Job,
    rules: Rules,
    clusters: Mapping[str, ClusterSeen],
    now: int,
    users: Mapping[str, str],
    load: Load,
) -> Event | None:
    newest, active = job.newest, job.active
    if job.over or job.cancelled:
        left = newest or (active if active is not None and active.live and job.cancelled else None)
        return (
            _give_up(job, left, now, "the job is cancelled" if job.cancelled else "it is over")
            if left
            else None
        )
    if newest is not None:
        return _with_newest(job, newest, active, rules, clusters, now)
    if active is not None:
        return _move(job, active, rules, clusters, now, users, load)
    return _choose(job, rules, clusters, now, users, load)


def _with_newest(
    job: Job,
    newest: Attempt,
    active: Attempt | None,
    rules: Rules,
    clusters: Mapping[str, ClusterSeen],
    now: int,
) -> Event | None:
    """A copy is wanted somewhere: it is let go once it is held, and the one before it is withdrawn."""
    seen = clusters.get(newest.cluster)
    if newest.phase == "asking":
        gone = seen is None or (seen.away and now - seen.since >= rules.patience)
        if gone and now - newest.since >= rules.patience:
            why = seen.away if seen is not None else "it is not known any more"
            return _give_up(job, newest, now, why)
        return None
    if active is None:
        if seen is not None and seen.away and now - seen.since >= rules.patience:
            return _give_up(job, newest, now, seen.away)  # it never ran: it may go elsewhere
        return LetGo(job=job.id, attempt=newest.number, time=now)
    if active.phase == "withdrawing":
        return None
    there = _seen_of(clusters, rules, job, active)
    if there is None or there.state not in ("planned", "waiting") or active.phase != "out":
        return _give_up(job, newest, now, "the job starts where it is") if there is not None else None
    if not _better(newest, there, rules):
        return _give_up(job, newest, now, "it is no better any more")
    return _give_up(job, active, now, f"it ends earlier at {newest.cluster}")


def _better(newest: Attempt, there: HandoverSeen, rules: Rules) -> bool:
    """Whether the new place is earlier by the threshold still, and not past what was promised."""
    if newest.start is None or newest.end is None:
        return False
    if there.promised_start is not None and newest.start > there.promised_start:
        return False
    return there.planned_end is None or newest.end + rules.threshold <= there.planned_end


def _move(
    job: Job,
    active: Attempt,
    rules: Rules,
    clusters: Mapping[str, ClusterSeen],
    now: int,
    users: Mapping[str, str],
    load: Load,
) -> Event | None:
    there = _seen_of(clusters, rules, job, active)
    if active.phase != "out" or there is None or there.state not in ("planned", "waiting"):
        return None
    if clusters[active.cluster].away or job.moves >= rules.moves:
        return None
    tried = {one.cluster for one in job.attempts}
    best = rules.policy.best(_candidates(job, clusters, users, load, tried), now, job.id)
    if best is None:
        return None
    chosen = _chosen(job, best, now, f"ends earlier than at {active.cluster}")
    fresh = Attempt(chosen.attempt, best.cluster, best.user, "asking", now, best.start, best.end)
    return chosen if _better(fresh, there, rules) else None


def _choose(
    job: Job,
    rules: Rules,
    clusters: Mapping[str, ClusterSeen],
    now: int,
    users: Mapping[str, str],
    load: Load,
) -> Event | None:
    refused = {one.cluster: one.text for one in job.attempts if one.phase == _REFUSED}
    wanted = [name for name in clusters if not job.clusters or name in job.clusters]
    here = [name for name in wanted if not clusters[name].away and name not in refused and name in users]
    unasked = [name for name in here if job.id not in clusters[name].offers]
    for name in wanted:
        seen = clusters[name]
        since = seen.since if seen.away else max(job.submitted, seen.since)
        silent = seen.away or name in unasked
        if silent and name in users and name not in refused and now - since < rules.patience:
            return None  # it will have said it in a moment
    best = rules.policy.best(_candidates(job, clusters, users, load, set(refused)), now, job.id)
    if best is not None:
        return _chosen(job, best, now, rules.policy.value)
    away = [name for name in wanted if clusters[name].away and name in users and name not in refused]
    if unasked or away:
        return None  # one of these may still take it
    words = {name: clusters[name].offers[job.id].why for name in here}
    words |= refused
    words |= {name: f"{job.owner} has no user there" for name in wanted if name not in users}
    if here and not all(clusters[name].offers[job.id].never for name in here):
        return None  # it may have room one day
    text = "; ".join(f"{name}: {why}" for name, why in sorted(words.items()))
    return Failed(job=job.id, time=now, text=text or "there is no such cluster")


def _chosen(job: Job, best: Candidate, now: int, why: str) -> Chosen:
    return Chosen(
        job=job.id,
        attempt=len(job.attempts) + 1,
        time=now,
        cluster=best.cluster,
        user=best.user,
        start=best.start,
        end=best.end,
        why=why,
    )


def _candidates(
    job: Job,
    clusters: Mapping[str, ClusterSeen],
    users: Mapping[str, str],
    load: Load,
    without: set[str],
) -> Sequence[Candidate]:
    found = []
    for name, seen in clusters.items():
        offer = seen.offers.get(job.id)
        if name in without or name not in users or seen.away or offer is None or offer.start is None:
            continue
        if job.clusters and name not in job.clusters:
            continue
        # What was sent there and is not in its plan yet stands before this job.
        ahead = int(load.sent.get(name, 0.0) / seen.cpus) if seen.cpus else 0
        length = int(((offer.end or offer.start) - offer.start) / seen.speed)
        found.append(
            Candidate(
                cluster=name,
                user=users[name],
                start=offer.start + ahead,
                end=offer.start + ahead + length,
                handicap=seen.handicap,
                cpus=seen.cpus,
                waiting=tuple(one for one in load.waiting if one.cluster == name),
                priority=_priority(job, load.mean),
            )
        )
    return found


def _assigned(jobs: Jobs, clusters: Mapping[str, ClusterSeen], rules: Rules) -> Load:
    """What was sent to each cluster: what its plan does not know yet, and what waits there."""
    margins = [margin for job in list(jobs.by_id.values())[-_WINDOW:] if (margin := _margin(job)) is not None]
    found = Load(mean=sum(margins) / len(margins) if margins else 0.0)
    for name in jobs.open:
        job = jobs[name]
        for attempt in job.attempts:
            if not attempt.live:
                continue
            seen = _seen_of(clusters, rules, job, attempt)
            if seen is None or not seen.state or not attempt.let_go:
                found.sent[attempt.cluster] = found.sent.get(attempt.cluster, 0.0) + _work(job)
            if seen is None or seen.state != "running":
                found.waiting.append(Waiting(attempt.cluster, _work(job), _priority(job, found.mean)))
    return found


def _margin(job: Job) -> int | None:
    """From submission to the latest start by which its deadline is met, in seconds."""
    if job.deadline is None:
        return None
    return job.deadline - int(job.submission.get("walltime", 0)) - job.submitted


def _priority(job: Job, mean: float) -> int:
    margin = _margin(job)
    if margin is None:
        return 0
    return priority(deadline_value(margin, max(1, int(job.submission.get("walltime", 1))), mean or margin))


def _work(job: Job) -> float:
    return float(job.submission.get("cpu_seconds", 0))


def _seen_of(
    clusters: Mapping[str, ClusterSeen], rules: Rules, job: Job, attempt: Attempt
) -> HandoverSeen | None:
    seen = clusters.get(attempt.cluster)
    return seen.handovers.get(handover(rules, job, attempt)) if seen is not None else None


def _give_up(job: Job, attempt: Attempt, now: int, why: str) -> GivenUp:
    return GivenUp(job=job.id, attempt=attempt.number, time=now, why=why)
