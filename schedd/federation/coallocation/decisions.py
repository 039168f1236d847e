"""Decisions for one co-allocation: from cluster states to events, and the requests to the clusters.

Everything here is pure. Every request has a unique name and is idempotent: after a crash it is derived from
the log and sent again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from schedd.dialect import format_walltime
from schedd.federation.cluster_speed import scale_resources
from schedd.federation.coallocation.coallocations import CoAllocation, ComponentJob, PlacementRound
from schedd.federation.coallocation.common_start import CommonStart
from schedd.federation.coallocation.divided_components import scale_unit, unit_cores
from schedd.federation.elapsed_time import has_waited
from schedd.federation.events import (
    AttemptEnded,
    AttemptHeld,
    AttemptRefused,
    AttemptStarted,
    AttemptWithdrawn,
    CoAllocationAborted,
    CoAllocationArmed,
    CoAllocationReleaseRequested,
    CoAllocationStarted,
    ComponentEditRefused,
    ComponentPlace,
    FederationEvent,
    ItemEnded,
    RoundCommitted,
    RoundDropped,
    RoundProposed,
    WithdrawalRequested,
)
from schedd.federation.routing.cluster_status import TransferStatus

_SENT: Final = ("script", "attributes", "variables")
_EDIT_TRIES: Final = 3  # rounds that may fail before an edit is refused


@dataclass(frozen=True, slots=True)
class CoAllocationRules:
    """Parameters of co-allocations; times in seconds."""

    name: str = "fed"
    limit: int = 60  # a component that has not started this long after the common start has failed to start
    lead: int = 20
    """All holds are released this long before the start. Each cluster then waits for the start by itself."""
    notice: int = 60  # minimum time between planning and start, for submission and release of the jobs
    expiry: int = 30  # an unconfirmed booking expires after this time
    gain: int = 60  # a waiting co-allocation moves only if it ends earlier by at least this much
    moves: int = 20  # maximum moves
    max_skew: int = 0  # maximum delay of a component after the common start; 0: only `limit` applies
    patience: int = 30  # time to wait for an unreachable cluster before its silence counts as a failure

    @property
    def arming(self) -> int:
        """The bookings are armed this long before the start."""
        return max(5, self.lead // 4)


@dataclass(frozen=True, slots=True)
class ComponentClusterView:
    """A cluster, ``away`` since ``since``. ``bookings``: this federation's active ones, or None."""

    away: str = ""
    since: int = 0
    transfers: Mapping[str, TransferStatus] = field(default_factory=dict)
    bookings: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class CoAllocationCall:
    """A request to a cluster. ``number`` is that of the round, ``component`` that of the component."""

    cluster: str
    kind: Literal["book", "confirm", "arm", "keep", "unbook", "submit", "release", "withdraw"]
    name: str
    number: int = 0
    component: int = -1
    attempt: int = 0
    body: Mapping[str, Any] | None = None
    forced: bool = False


def booking_name(rules: CoAllocationRules, group: CoAllocation, number: int, component: int) -> str:
    """Return the unique name of a place's booking."""
    return f"{rules.name}.{group.id}.r{number}.{component}"


def component_transfer_name(rules: CoAllocationRules, group: CoAllocation, copy: ComponentJob | int) -> str:
    """Return the unique name of a component job's transfer."""
    return f"{rules.name}.{group.id}.{copy if isinstance(copy, int) else copy.number}"


# ---- requests -------------------------------------------------------------------------------------


def pending_calls(group: CoAllocation, rules: CoAllocationRules, now: int) -> Iterator[CoAllocationCall]:
    """Yield the requests to send to the clusters, in order."""
    for one in group.rounds:
        if one.phase == "proposed":
            yield from _booking_call(group, rules, one, now)
        elif one.phase == "committed":
            yield from _committed_calls(group, rules, one)
        elif one.phase == "dropped":
            for place in one.places:
                name = booking_name(rules, group, one.number, place.component)
                yield CoAllocationCall(place.cluster, "unbook", name, one.number, place.component)
    for copy in group.attempts:
        name = component_transfer_name(rules, group, copy)
        if copy.phase == "submitting":
            yield CoAllocationCall(
                copy.cluster, "submit", name, attempt=copy.number, body=_submission(group, copy)
            )
        elif copy.phase == "withdrawing":
            yield CoAllocationCall(
                copy.cluster, "withdraw", name, attempt=copy.number, forced=bool(group.release_requested_at)
            )
        elif copy.phase == "held" and group.release_requested_at and not group.over:
            yield CoAllocationCall(copy.cluster, "release", name, attempt=copy.number)


def _booking_call(
    group: CoAllocation, rules: CoAllocationRules, one: PlacementRound, now: int
) -> Iterator[CoAllocationCall]:
    """Yield the request for the first unbooked place, ordered by cluster name. The fixed order prevents
    deadlocks between co-allocations.
    """
    before = group.committed
    for place in sorted(one.places, key=lambda place: (place.cluster, place.component)):
        if place.component in one.plans:
            continue
        instead = ""
        if before is not None and any(
            (old.component, old.cluster) == (place.component, place.cluster) for old in before.places
        ):
            instead = booking_name(rules, group, before.number, place.component)
        wanted = group.next_components[place.component]
        asked = scale_unit(wanted.submission.get("resources", {}), place.units)
        body = {
            "resources": {name: value for name, value in asked.items() if name.lower() != "walltime"},
            "duration": one.length + rules.limit,
            "start": one.start,
            "owner": place.user,
            "until": now + rules.expiry,
            "transfer": component_transfer_name(rules, group, place.attempt),
            "guard": 2 * rules.limit,
            "arming": True,
            "instead": instead,
            **({"late": rules.max_skew} if rules.max_skew else {}),
        }
        name = booking_name(rules, group, one.number, place.component)
        yield CoAllocationCall(place.cluster, "book", name, one.number, place.component, place.attempt, body)
        return


def _committed_calls(
    group: CoAllocation, rules: CoAllocationRules, one: PlacementRound
) -> Iterator[CoAllocationCall]:
    for place in one.places:
        name = booking_name(rules, group, one.number, place.component)
        if place.component not in one.confirmed and not group.over:
            yield CoAllocationCall(place.cluster, "confirm", name, one.number, place.component)
        if group.armed_at and not group.abort_reason and place.component not in one.armed and not group.over:
            yield CoAllocationCall(place.cluster, "arm", name, one.number, place.component)
        if group.started_at and group.component_job(place).phase == "started":
            yield CoAllocationCall(place.cluster, "keep", name, one.number, place.component)


def _submission(group: CoAllocation, copy: ComponentJob) -> dict[str, Any]:
    given = group.components[copy.component].submission
    longest = max(one.walltime for one in group.components if not one.deleted)
    body = {name: given[name] for name in _SENT if name in given}
    resources = {
        # Other time limits grow as the walltime does, by the clusters' speeds and the overhead.
        **scale_resources(scale_unit(given.get("resources", {}), copy.units), longest / copy.length),
        "walltime": format_walltime(copy.length),
    }
    if copy.units:
        body["variables"] = {**body.get("variables", {}), **_division_variables(group, copy)}
    queue = given.get("queues", {}).get(copy.cluster, "")
    return body | {"resources": resources, "user": copy.user, "queue": queue, "booked": True}


def _division_variables(group: CoAllocation, copy: ComponentJob) -> dict[str, str]:
    """Return the environment variables of a divided request's component job."""
    cores = unit_cores(group.components[copy.component].submission.get("resources", {}))
    return {
        "SCHEDD_PIECE": str(copy.component + 1),
        "SCHEDD_PIECE_CORES": str(copy.units * cores),
        "SCHEDD_ALL_CORES": str(group.options.units * cores),
    }


# ---- observations ---------------------------------------------------------------------------------


def observe_components(
    group: CoAllocation, rules: CoAllocationRules, looks: Mapping[str, ComponentClusterView], now: int
) -> list[FederationEvent]:
    """Return the events that follow from the clusters' statuses of the component jobs."""
    found: list[FederationEvent] = []
    for copy in group.attempts:
        look = looks.get(copy.cluster)
        seen = look.transfers.get(component_transfer_name(rules, group, copy)) if look is not None else None
        event = _observe_component(group, copy, seen, now) if seen is not None else None
        if event is not None:
            found.append(event)
    return found


def _observe_component(
    group: CoAllocation, copy: ComponentJob, seen: TransferStatus, now: int
) -> FederationEvent | None:
    job, number = group.id, copy.number
    match copy.phase:
        case "submitting" if seen.phase in ("refused", "withdrawn"):
            return AttemptRefused(
                job=job, time=now, attempt=number, text=seen.text or "it was withdrawn there"
            )
        case "submitting" if seen.job:
            return AttemptHeld(job=job, time=now, attempt=number, server_job=seen.job)
        case "held" if group.release_requested_at and (seen.state == "running" or seen.end == "ended"):
            return AttemptStarted(job=job, time=now, attempt=number)
        case "held" if seen.end:
            return AttemptRefused(job=job, time=now, attempt=number, text="it was deleted there")
        case "held" if seen.phase in ("withdrawn", "withdrawing"):
            return AttemptRefused(
                job=job, time=now, attempt=number, text=seen.text or "its cluster took it back"
            )
        case "started" if seen.end:
            return AttemptEnded(job=job, time=now, attempt=number, how=seen.end, exit_status=seen.exit_status)
        case "started" if seen.phase == "withdrawn":
            return AttemptEnded(job=job, time=now, attempt=number, how="deleted")
        case "withdrawing" if seen.phase in ("withdrawn", "refused"):
            return AttemptWithdrawn(job=job, time=now, attempt=number)
        case "withdrawing" if seen.end:
            return AttemptEnded(job=job, time=now, attempt=number, how=seen.end, exit_status=seen.exit_status)
    return None


# ---- decisions ------------------------------------------------------------------------------------


def decide(
    group: CoAllocation, rules: CoAllocationRules, looks: Mapping[str, ComponentClusterView], now: int
) -> list[FederationEvent]:
    """Return the next events for a co-allocation that is not over."""
    if group.over:
        return []
    if group.release_requested_at:
        return _decide_starting(group, rules, looks, now)
    if group.cancelled:
        return [ItemEnded(job=group.id, time=now, how="cancelled", text="it was withdrawn")]
    proposed = group.proposed
    refusal = _edit_refusal(group, rules, now) if proposed is None else ""
    if refusal:
        return [ComponentEditRefused(job=group.id, time=now, why=refusal)]
    if proposed is not None:
        return _decide_proposed(group, proposed, rules, now)
    committed = group.committed
    if committed is not None:
        return _decide_waiting(group, committed, rules, looks, now)
    return []


def _edit_refusal(group: CoAllocation, rules: CoAllocationRules, now: int) -> str:
    """Return why the pending edit is given up, or an empty string."""
    edit = group.pending_edit
    if edit is None:
        return ""
    failed = [one for one in group.rounds[edit.rounds :] if one.phase in ("dropped", "cleared")]
    if len(failed) >= _EDIT_TRIES:
        return f"{len(failed)} starts could not be booked, the last one because {failed[-1].text}"
    return "" if has_time_to_change(group, rules, now) else "there was no time for it before the start"


def _decide_proposed(
    group: CoAllocation, one: PlacementRound, rules: CoAllocationRules, now: int
) -> list[FederationEvent]:
    """Commit a booked round. Drop a round if its first bookings may expire before it is complete."""
    if all(place.component in one.plans for place in one.places):
        if has_waited(one.since, now, rules.expiry // 2):
            why = "its bookings may expire before they are confirmed"
            return [RoundDropped(job=group.id, time=now, number=one.number, why=why)]
        return [RoundCommitted(job=group.id, time=now, number=one.number)]
    if has_waited(one.since, now, rules.expiry // 2):
        why = "not all of it was booked in time"
        return [RoundDropped(job=group.id, time=now, number=one.number, why=why)]
    return []


def _decide_waiting(
    group: CoAllocation,
    one: PlacementRound,
    rules: CoAllocationRules,
    looks: Mapping[str, ComponentClusterView],
    now: int,
) -> list[FederationEvent]:
    """Decide about a committed round before its release."""
    why = _round_failure(group, one, rules, looks)
    if why:
        return [RoundDropped(job=group.id, time=now, number=one.number, why=why)]
    if now < one.start - rules.lead:
        return []
    late = _unready_component(group, one, looks)
    if now >= one.start - rules.lead // 4:  # too late to release the holds in time
        why = late or "the federation did not act in time"
        return [RoundDropped(job=group.id, time=now, number=one.number, why=why)]
    return [] if late else [CoAllocationReleaseRequested(job=group.id, time=now)]


def _round_failure(
    group: CoAllocation,
    one: PlacementRound,
    rules: CoAllocationRules,
    looks: Mapping[str, ComponentClusterView],
) -> str:
    """Return why the round cannot start, or an empty string."""
    for place in one.places:
        copy = group.component_job(place)
        if copy.phase in ("refused", "withdrawn", "ended", "withdrawing"):
            if group.components[place.component].optional:
                continue
            return f"component {place.component + 1} is not at {place.cluster}: {copy.text or copy.phase}"
        look = looks.get(place.cluster)
        name = booking_name(rules, group, one.number, place.component)
        if look is not None and look.bookings is not None and name not in look.bookings:
            return f"{place.cluster} no longer reserves the cores for component {place.component + 1}"
    return ""


def _unready_component(
    group: CoAllocation, one: PlacementRound, looks: Mapping[str, ComponentClusterView]
) -> str:
    for place in one.places:
        copy, look = group.component_job(place), looks.get(place.cluster)
        if group.components[place.component].optional:
            continue
        if look is None or look.away:
            return f"{place.cluster} does not answer: {look.away if look is not None else 'it is not known'}"
        if copy.phase != "held":
            return f"component {place.component + 1} was not submitted at {place.cluster} in time"
        if place.component not in one.confirmed:
            return (
                f"the booking of component {place.component + 1} at {place.cluster} was not confirmed in time"
            )
    return ""


def _decide_starting(
    group: CoAllocation, rules: CoAllocationRules, looks: Mapping[str, ComponentClusterView], now: int
) -> list[FederationEvent]:
    """Decide after the release request: the co-allocation starts or is aborted."""
    one = group.committed
    assert one is not None, "a released co-allocation keeps its round until it ends"
    if group.abort_reason:
        if all(copy.phase in ("withdrawn", "refused", "ended") for copy in group.attempts):
            return [ItemEnded(job=group.id, time=now, how="failed", text=group.abort_reason)]
        return []
    places = [(place, group.component_job(place)) for place in one.places]
    if not group.armed_at:
        return _decide_releasing(group, one, rules, looks, now)
    if group.started_at:
        if all(copy.phase in ("withdrawn", "refused", "ended") for _, copy in places):
            return [ItemEnded(job=group.id, time=now, how="ended", text="")]
        return []
    if group.cancelled:
        return [CoAllocationAborted(job=group.id, time=now, why="it was withdrawn")]
    missing = [(place, copy) for place, copy in places if not copy.started]
    must = [(place, copy) for place, copy in missing if not group.components[place.component].optional]
    if not must and (not missing or now >= one.start + rules.limit):
        back: list[FederationEvent] = [
            WithdrawalRequested(
                job=group.id, time=now, attempt=copy.number, why="it did not start with the others"
            )
            for _, copy in missing
            if copy.phase == "held"
        ]
        return [*back, CoAllocationStarted(job=group.id, time=now)]
    lost = [(place, copy) for place, copy in must if copy.phase not in ("held", "started")]
    unheard = [place for place, _ in must if place.component not in one.armed]
    if unheard and one.start - _decision_margin_s(rules) <= now < one.start:
        names = ", ".join(sorted({place.cluster for place in unheard}))
        return [
            CoAllocationAborted(
                job=group.id, time=now, why=f"{names} may not have received the order to start"
            )
        ]
    if not lost and any(_may_still_report(looks.get(place.cluster), one, rules, now) for place, _ in must):
        return []
    if lost or (must and now >= one.start + rules.limit):
        words = "; ".join(
            _missing_component(place, copy, group, rules, looks) for place, copy in lost or must
        )
        return [CoAllocationAborted(job=group.id, time=now, why=words)]
    return []


def _decide_releasing(
    group: CoAllocation,
    one: PlacementRound,
    rules: CoAllocationRules,
    looks: Mapping[str, ComponentClusterView],
    now: int,
) -> list[FederationEvent]:
    """Arm all components once all holds are released; otherwise drop the round before any starts."""
    why = _round_failure(group, one, rules, looks)
    late = "" if why else _held_component(group, one, rules, looks)
    if not why and late and now >= one.start - _decision_margin_s(rules):
        why = late
    if group.cancelled or why:
        words = why or "it was withdrawn"
        return [RoundDropped(job=group.id, time=now, number=one.number, why=words)]
    # Arm as late as possible: a cluster that fails after this may start its component without the others.
    return [] if late or now < one.start - rules.arming else [CoAllocationArmed(job=group.id, time=now)]


def _held_component(
    group: CoAllocation,
    one: PlacementRound,
    rules: CoAllocationRules,
    looks: Mapping[str, ComponentClusterView],
) -> str:
    """Return which required component is not known to be released, or an empty string."""
    for place in one.places:
        copy, look = group.component_job(place), looks.get(place.cluster)
        if group.components[place.component].optional:
            continue
        if look is None or look.away:
            return f"{place.cluster} does not answer: {look.away if look is not None else 'it is not known'}"
        seen = look.transfers.get(component_transfer_name(rules, group, copy))
        if seen is None or seen.phase != "released":
            return f"the hold of component {place.component + 1} at {place.cluster} was not released in time"
    return ""


def _decision_margin_s(rules: CoAllocationRules) -> int:
    """All components must be released this long before the start, so that all can still be withdrawn."""
    return max(1, rules.lead // 8)


def _may_still_report(
    look: ComponentClusterView | None, one: PlacementRound, rules: CoAllocationRules, now: int
) -> bool:
    """Return whether the cluster may still report a start, for example after an outage of the federation.

    The wait is limited to ``1.5 * limit`` after the start.
    """
    if now >= one.start + rules.limit + rules.limit // 2:
        return False
    return look is None or (bool(look.away) and not has_waited(look.since, now, rules.patience))


def _missing_component(
    place: ComponentPlace,
    copy: ComponentJob,
    group: CoAllocation,
    rules: CoAllocationRules,
    looks: Mapping[str, ComponentClusterView],
) -> str:
    """Return which component did not start, and the known reason."""
    what = f"component {place.component + 1} did not start at {place.cluster}"
    if copy.phase not in ("held", "started"):
        return f"{what}: {copy.text or copy.phase}"
    look = looks.get(place.cluster)
    if look is None or look.away:
        return f"{what} within {rules.limit} s: it does not answer{': ' + look.away if look else ''}"
    seen = look.transfers.get(component_transfer_name(rules, group, copy))
    words = f"its job is {seen.state or seen.phase}" if seen is not None else "its job is not known there"
    more = f" ({seen.text})" if seen is not None and seen.text else ""
    return f"{what} within {rules.limit} s: {words}{more}"


# ---- places ---------------------------------------------------------------------------------------


def excluded_placements(group: CoAllocation) -> frozenset[tuple[int, str]]:
    """Return refused (component, cluster) pairs; for a divided request those of all components."""
    if group.options.units:
        refused = {copy.cluster for copy in group.attempts if copy.phase == "refused"}
        return frozenset((i, cluster) for cluster in refused for i in range(len(group.components)))
    return frozenset(
        (copy.component, copy.cluster)
        for copy in group.attempts
        if copy.phase == "refused" and copy.revision == group.components[copy.component].revision
    )


def has_time_to_change(group: CoAllocation, rules: CoAllocationRules, now: int) -> bool:
    """Return whether another round can be booked before the release of the committed one."""
    one = group.committed
    return one is None or now + rules.notice + rules.lead < one.start


def may_move(group: CoAllocation, rules: CoAllocationRules, now: int) -> bool:
    """Return whether another round may replace the waiting one."""
    one = group.committed
    if (
        one is None
        or group.release_requested_at
        or group.over
        or group.cancelled
        or group.proposed is not None
    ):
        return False
    return has_time_to_change(group, rules, now) and group.moves < rules.moves


def propose_round(
    group: CoAllocation, found: CommonStart, users: Mapping[str, str], now: int, why: str
) -> RoundProposed | None:
    """Return a proposal for the common start, or None if it does not change the current round."""
    before, components = group.committed, group.next_components
    places: list[ComponentPlace] = []
    copies = len(group.attempts)
    for component, cluster in sorted(found.places.items()):
        units = found.units.get(component, 0)
        wanted = (component, cluster, found.length, units, components[component].revision)
        known = next(
            (
                copy
                for copy in group.attempts
                if (copy.component, copy.cluster, copy.length, copy.units, copy.revision) == wanted
                and copy.phase in ("submitting", "held")
            ),
            None,
        )
        if known is None:
            copies += 1
        places.append(
            ComponentPlace(component, cluster, users[cluster], known.number if known else copies, units)
        )
    same = before is not None and (before.start, before.length) == (found.start, found.length)
    if same and group.pending_edit is None:
        return None
    return RoundProposed(
        job=group.id,
        time=now,
        number=len(group.rounds) + 1,
        start=found.start,
        length=found.length,
        places=tuple(places),
        why=why,
    )
