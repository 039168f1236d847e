"""Routing decisions: from jobs and cluster states to events and actions.

Everything here is pure: no clock, no I/O. ``observe_transfers`` turns a cluster's transfer statuses into
events, ``decide`` makes the choices, and ``pending_actions`` lists the requests to each cluster. Every
request is idempotent: after a crash it is derived from the log and sent again.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from schedd.dialect.deadline import deadline_names
from schedd.federation.cluster_speed import scale_resources
from schedd.federation.elapsed_time import has_waited
from schedd.federation.events import (
    AttemptEnded,
    AttemptHeld,
    AttemptRefused,
    AttemptReleased,
    AttemptReleaseRequested,
    AttemptWithdrawn,
    ClusterChosen,
    FederationEvent,
    ItemEnded,
    WithdrawalFailed,
    WithdrawalRequested,
)
from schedd.federation.routing.candidates import (
    ClusterLoads,
    RoutingContext,
    compute_loads,
    end_penalty,
    optimistic_candidate,
)
from schedd.federation.routing.cluster_status import (
    ClusterStatus,
    RoutingRules,
    TransferStatus,
    attempt_status,
    transfer_name,
)
from schedd.federation.routing.jobs import FederationJob, FederationJobs, TransferAttempt
from schedd.federation.routing.policies import RoutingCandidate

_REFUSED: Final = "refused"
_WAITS: Final = ("planned", "waiting")
_SENT: Final = ("script", "resources", "attributes", "variables")
_KEEP_S: Final = 600  # a cluster keeps a place in its plan for the held job of a move for this long


@dataclass(frozen=True, slots=True)
class TransferAction:
    """A request to a cluster."""

    cluster: str
    kind: Literal["submit", "release", "withdraw"]
    transfer: str
    job: str
    attempt: int
    body: Mapping[str, Any] | None = None


def _with_deadline(job: FederationJob, attempt: TransferAttempt, resources: dict[str, str]) -> dict[str, str]:
    """Return the resources with the deadline of the job or bag, which the cluster accepts or refuses.

    A job that was late when its cluster was chosen goes without: a site may hold jobs with a lost deadline.
    """
    late = job.deadline is None or (attempt.end is not None and attempt.end > job.deadline)
    if late or deadline_names(resources):
        return resources
    return {**resources, "deadline": str(job.deadline)}


def pending_actions(
    jobs: FederationJobs, rules: RoutingRules, cluster: str, speed: float = 1.0
) -> Iterator[TransferAction]:
    """Yield the requests to send to the cluster. Time limits of jobs are as needed at its ``speed``."""
    for name, number in jobs.pending_steps.get(cluster, ()):
        job = jobs[name]
        attempt = job.attempts[number - 1]
        what = transfer_name(rules, job, attempt)
        if attempt.phase == "submitting":
            body = {name: value for name, value in job.submission.items() if name in _SENT}
            if job.array:
                body["array"] = job.array
            if job.booking:
                body["booking"] = job.submission["booking"]
            else:  # a booking has the same duration at each cluster, and its jobs must fit into it
                scaled = scale_resources(body.get("resources", {}), speed)
                body["resources"] = _with_deadline(job, attempt, scaled)
            body |= {"user": attempt.user, "queue": job.submission.get("queues", {}).get(cluster, "")}
            if job.active is not None:
                body["keep_for"] = _KEEP_S
            yield TransferAction(cluster, "submit", what, job.id, number, body)
        elif attempt.phase == "releasing":
            yield TransferAction(cluster, "release", what, job.id, number)
        else:
            yield TransferAction(cluster, "withdraw", what, job.id, number)


def observe_transfers(
    jobs: FederationJobs,
    rules: RoutingRules,
    cluster: str,
    seen: Mapping[str, TransferStatus],
    now: int,
    among: Iterable[str] | None = None,
) -> list[FederationEvent]:
    """Return the events that follow from a cluster's transfer statuses.

    With ``among``, only these transfers and the attempts with pending steps are examined.
    """
    there = jobs.attempts_at.get(cluster, {})
    names: Iterable[tuple[str, int]] = there
    if among is not None:
        changed = (_parse_transfer_name(rules, name) for name in among)
        names = dict.fromkeys(
            (*(one for one in changed if one in there), *jobs.pending_steps.get(cluster, ()))
        )
    found: list[FederationEvent] = []
    for name, number in names:
        job = jobs[name]
        attempt = job.attempts[number - 1]
        one = seen.get(transfer_name(rules, job, attempt))
        event = _observe_attempt(job, attempt, one, now) if one is not None else None
        if event is not None:
            found.append(event)
    return found


def _parse_transfer_name(rules: RoutingRules, name: str) -> tuple[str, int] | None:
    """Return job and attempt number of a transfer, or None for a foreign name."""
    whose, _, rest = name.partition(".")
    job, _, number = rest.partition(".")
    return (job, int(number)) if whose == rules.name and number.isdecimal() else None


def _observe_attempt(
    job: FederationJob, attempt: TransferAttempt, seen: TransferStatus, now: int
) -> FederationEvent | None:
    about: dict[str, Any] = {"job": job.id, "attempt": attempt.number, "time": now}
    match attempt.phase:
        case "submitting" if seen.phase == _REFUSED:
            return AttemptRefused(**about, text=seen.text or "refused")
        case "submitting" if seen.phase == "withdrawn":
            return AttemptRefused(**about, text="it was withdrawn there")
        case "submitting" if seen.job:
            return AttemptHeld(**about, server_job=seen.job)
        case "held" | "releasing" | "released" if seen.end:
            return AttemptEnded(**about, how=seen.end, exit_status=seen.exit_status)
        case "held" | "releasing" | "released" if seen.phase == "withdrawn":
            # By an earlier request, or one that a log from before the restore of a backup does not know.
            return WithdrawalRequested(**about, why="it was withdrawn there")
        case "releasing" if seen.phase == "released":
            return AttemptReleased(**about)
        case "withdrawing" if seen.phase in ("withdrawn", _REFUSED):
            return AttemptWithdrawn(**about)
        case "withdrawing" if seen.end:
            return AttemptEnded(**about, how=seen.end, exit_status=seen.exit_status)
        case "withdrawing" if seen.phase == "released" and seen.text and attempt.release_requested:
            return WithdrawalFailed(**about, text=seen.text)
    return None


def decide(
    jobs: FederationJobs,
    rules: RoutingRules,
    clusters: Mapping[str, ClusterStatus],
    now: int,
    users: Mapping[str, Mapping[str, str]],
    among: Iterable[str] | None = None,
    load: ClusterLoads | None = None,
) -> list[FederationEvent]:
    """Return the next decision for each job in ``among``, or for each open job.

    ``users`` maps owners to user names by cluster. ``load`` is updated with the choices; it is computed if
    not given.
    """
    found: list[FederationEvent] = []
    about = RoutingContext(
        clusters, users, load if load is not None else compute_loads(jobs, clusters, rules)
    )
    # Decide once for each job: a second decision would use an outdated state.
    for name in dict.fromkeys(jobs.open if among is None else among):
        job = jobs.by_id.get(name)
        event = _decide_job(job, rules, about, now) if job is not None else None
        if job is not None and event is not None:
            found.append(event)
            if isinstance(event, ClusterChosen):
                about.load.add(event.cluster, job)
                about.known.clear()
    return found


def _decide_job(
    job: FederationJob, rules: RoutingRules, about: RoutingContext, now: int
) -> FederationEvent | None:
    newest, active = job.newest, job.active
    if job.over or job.cancelled:
        left = newest
        if left is None and active is not None and active.live and job.cancelled:
            there = attempt_status(about.clusters, rules, job, active)
            # After a failed withdrawal the job runs. Withdraw it again only if it waits once more.
            kept = active.phase == "released" and bool(active.text)
            left = active if not kept or (there is not None and there.state in _WAITS) else None
        return (
            _request_withdrawal(job, left, now, "the job is cancelled" if job.cancelled else "it is over")
            if left
            else None
        )
    if newest is not None:
        return _decide_pending(job, newest, active, rules, about.clusters, now)
    if active is not None:
        return _move(job, active, rules, about, now)
    return _choose(job, rules, about, now)


def _decide_pending(
    job: FederationJob,
    newest: TransferAttempt,
    active: TransferAttempt | None,
    rules: RoutingRules,
    clusters: Mapping[str, ClusterStatus],
    now: int,
) -> FederationEvent | None:
    """Decide about an unreleased attempt: release once held, after the previous one is withdrawn."""
    seen = clusters.get(newest.cluster)
    if newest.phase == "submitting":
        gone = seen is None or (seen.away and has_waited(seen.since, now, rules.patience))
        if gone and has_waited(newest.since, now, rules.patience):
            why = seen.away if seen is not None else "it is no longer known"
            return _request_withdrawal(job, newest, now, why)
        return None
    if active is None:
        if seen is not None and seen.away and has_waited(seen.since, now, rules.patience):
            return _request_withdrawal(job, newest, now, seen.away)  # it has not run yet
        return AttemptReleaseRequested(job=job.id, attempt=newest.number, time=now)
    if active.phase == "withdrawing":
        return None
    there = attempt_status(clusters, rules, job, active)
    if there is None or there.state not in _WAITS or active.phase != "released":
        return (
            _request_withdrawal(job, newest, now, "the job starts where it is") if there is not None else None
        )
    place = attempt_status(clusters, rules, job, newest)
    if seen is None or place is None or place.planned_start is None or place.planned_end is None:
        late = has_waited(newest.since, now, rules.patience)
        return (
            _request_withdrawal(job, newest, now, "its placement there is no longer held") if late else None
        )
    kept = (place.planned_start, place.planned_end)
    if not _is_better(job, kept, there, rules, clusters, (newest.cluster, active.cluster)):
        return _request_withdrawal(job, newest, now, "it is no longer better")
    return _request_withdrawal(
        job, active, now, f"it ends earlier at {newest.cluster}, which holds a placement for it"
    )


def _is_better(
    job: FederationJob,
    place: tuple[int, int],
    there: TransferStatus,
    rules: RoutingRules,
    clusters: Mapping[str, ClusterStatus],
    names: tuple[str, str],
) -> bool:
    """Return whether the new place (start, end) ends earlier by the threshold and does not violate the
    promise.

    ``names`` are the new and the current cluster.
    """
    start, end = place
    if there.promised_start is not None and start > there.promised_start:
        return False
    new, old = (end_penalty(job, clusters[name], rules) for name in names)
    return there.planned_end is None or end + new + rules.threshold <= there.planned_end + old


def _move(
    job: FederationJob, active: TransferAttempt, rules: RoutingRules, about: RoutingContext, now: int
) -> FederationEvent | None:
    there = attempt_status(about.clusters, rules, job, active)
    if job.stays or active.phase != "released" or there is None or there.state not in _WAITS:
        return None
    if about.clusters[active.cluster].away or job.moves >= rules.moves:
        return None
    tried = {one.cluster for one in job.attempts}
    best = rules.policy.best(about.candidates(job, rules, now, tried), now, job.id)
    if best is None:
        return None
    names = (best.cluster, active.cluster)
    if not _is_better(job, (best.start, best.end), there, rules, about.clusters, names):
        return None
    return _choice_event(job, best, now, f"ends earlier than at {active.cluster}")


def _choose_for_bag_share(
    job: FederationJob, rules: RoutingRules, about: RoutingContext, now: int
) -> FederationEvent | None:
    """A bag share goes to its assigned cluster or fails; the bag then reassigns its tasks."""
    (cluster,) = job.clusters
    seen, user = about.clusters.get(cluster), about.users.get(job.owner, {}).get(cluster)
    why = job.attempts[-1].text if job.attempts else ""
    if not why and seen is None:
        why = "it is no longer a cluster of the federation"
    elif not why and user is None:
        why = f"{job.owner} has no user there"
    elif not why and seen is not None and seen.away:
        if not has_waited(max(job.submitted, seen.since), now, rules.patience):
            return None
        why = f"it does not answer: {seen.away}"
    if why or user is None:
        return ItemEnded(how="refused", job=job.id, time=now, text=f"{cluster}: {why}")
    return ClusterChosen(
        job=job.id,
        attempt=1,
        time=now,
        cluster=cluster,
        user=user,
        start=None,
        end=job.submission.get("offered_end"),
        why="bag",
    )


def _choose_booking_cluster(job: FederationJob, about: RoutingContext, now: int) -> FederationEvent | None:
    """A job in a booking goes to the booking's cluster, and waits while that is unreachable."""
    (cluster,) = job.clusters
    seen, user = about.clusters.get(cluster), about.users.get(job.owner, {}).get(cluster)
    why = next((one.text for one in job.attempts if one.phase == _REFUSED), "")
    if seen is None:
        why = "it is no longer a cluster of the federation"
    elif user is None:
        why = f"{job.owner} has no user there"
    elif not why and seen.away:
        return None
    if why or user is None:
        return ItemEnded(how="refused", job=job.id, time=now, text=f"{cluster}: {why}")
    return ClusterChosen(
        job=job.id,
        attempt=len(job.attempts) + 1,
        time=now,
        cluster=cluster,
        user=user,
        start=None,
        end=None,
        why="its booking is there",
    )


def _choose(
    job: FederationJob, rules: RoutingRules, about: RoutingContext, now: int
) -> FederationEvent | None:
    if job.bag:
        return _choose_for_bag_share(job, rules, about, now)
    if job.booking:
        return _choose_booking_cluster(job, about, now)
    clusters, users = about.clusters, about.users.get(job.owner, {})
    refused = {one.cluster: one.text for one in job.attempts if one.phase == _REFUSED}
    wanted = [name for name in clusters if not job.clusters or name in job.clusters]
    here = [name for name in wanted if not clusters[name].away and name not in refused and name in users]
    offers = {name: clusters[name].offers.get(job.question(name, users[name])) for name in here}
    unheard = []
    for name in wanted:
        seen = clusters[name]
        since = seen.since if seen.away else max(job.submitted, seen.since)
        silent = seen.away or (name in offers and offers[name] is None)
        asked = name in users and name not in refused
        if silent and asked and not has_waited(since, now, rules.patience):
            if seen.away:
                return None  # it may answer soon
            unheard.append(name)
    best = rules.policy.best(about.candidates(job, rules, now, set(refused)), now, job.id)
    if unheard and (best is None or not _beats_unanswered(best, job, unheard, rules, about, now)):
        return None  # wait: an unanswered cluster may be better
    if best is not None:
        return _choice_event(job, best, now, rules.policy.value)
    away = [name for name in wanted if clusters[name].away and name in users and name not in refused]
    known = {name: offer for name, offer in offers.items() if offer is not None}
    if len(known) < len(here) or away:
        return None  # an unanswered or unreachable cluster may take it
    words = {name: offer.why for name, offer in known.items()}
    words |= refused
    words |= {name: f"{job.owner} has no user there" for name in wanted if name not in users}
    if here and not all(offer.never for offer in known.values()):
        return None  # a cluster may have room later
    text = _join_reasons(words) or "there is no such cluster"
    return ItemEnded(how="refused", job=job.id, time=now, text=text)


def _join_reasons(whys: Mapping[str, str]) -> str:
    """Return `east, north: it needs 200 nodes; south: …`: equal reasons of several clusters once."""
    names: dict[str, list[str]] = {}
    for name in sorted(whys):
        names.setdefault(whys[name], []).append(name)
    return "; ".join(f"{', '.join(some)}: {why}" for why, some in names.items())


def _beats_unanswered(
    best: RoutingCandidate,
    job: FederationJob,
    unheard: Iterable[str],
    rules: RoutingRules,
    about: RoutingContext,
    now: int,
) -> bool:
    """Return whether the candidate beats all possible offers of unanswered clusters, by bounds."""
    users = about.users.get(job.owner, {})
    for name in unheard:
        seen = about.clusters[name]
        bound = seen.bounds.get(job.question(name, users[name]))
        if bound is None:
            return False
        hoped = optimistic_candidate(job, name, seen, users[name], rules, about.load, now, bound)
        if not rules.policy.precedes(best, hoped):
            return False
    return True


def _choice_event(job: FederationJob, best: RoutingCandidate, now: int, why: str) -> ClusterChosen:
    return ClusterChosen(
        job=job.id,
        attempt=len(job.attempts) + 1,
        time=now,
        cluster=best.cluster,
        user=best.user,
        start=best.start,
        end=best.end,
        why=why,
    )


def _request_withdrawal(
    job: FederationJob, attempt: TransferAttempt, now: int, why: str
) -> WithdrawalRequested:
    return WithdrawalRequested(job=job.id, attempt=attempt.number, time=now, why=why)
