"""Worker for co-allocations: queries plans, books, confirms, submits, releases.

One thread serves all co-allocations. Transfer statuses come from the cluster workers.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import structlog

from schedd.client import Client, ClientError, Refused
from schedd.dialect import format_walltime
from schedd.federation.bookings.decisions import LIVE
from schedd.federation.coallocation.coallocations import CoAllocation, ComponentEdit, PlacementRound
from schedd.federation.coallocation.common_start import CommonStart, find_common_start, merge_requests
from schedd.federation.coallocation.decisions import (
    CoAllocationCall,
    ComponentClusterView,
    booking_name,
    excluded_placements,
    may_move,
    pending_calls,
    propose_round,
)
from schedd.federation.coallocation.divided_components import (
    find_divided_start,
    renumber_components,
    scale_unit,
    unit_cores,
)
from schedd.federation.events import (
    AttemptWithdrawn,
    ComponentEditRefused,
    FederationEvent,
    PlaceArmed,
    PlaceBooked,
    PlaceConfirmed,
    RoundCleared,
    RoundDropped,
)
from schedd.federation.state.federation_state import FederationState
from schedd.federation.workers.cluster_worker import connect_cluster
from schedd.federation.workers.item_worker import ItemWorker
from schedd.parallel_calls import call_in_parallel

_log = structlog.get_logger(__name__)
_SOON_S: Final = 0.5  # interval between rounds while a co-allocation is about to start
_GONE: Final = ("unknown-transfer", "unknown-booking")
_EDITED: Final = {"add": "added", "substitute": "substituted", "delete": "deleted"}
_MAX_OBSTACLES: Final = 4


@dataclass(slots=True)
class _PlanningState:
    """Time and plan versions of the last search for a common start; reasons of clusters that can never run
    these components together.
    """

    asked: float = 0.0
    generation: tuple[int, ...] = ()
    obstacles: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict)


class CoAllocationWorker(ItemWorker):
    """Worker thread for all co-allocations."""

    requests_at_once = 16

    def __init__(
        self,
        federation: FederationState,
        tokens: Mapping[str, str],
        stopping: threading.Event,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__("co-allocations", federation, federation.coallocation_operations, stopping, clock)
        self._tokens = tokens
        self._planned: dict[str, _PlanningState] = {}
        self._cleared: dict[tuple[str, int], set[int]] = {}

    def round(self) -> None:
        """Do all pending work of the open co-allocations, without searches for a start at first."""
        names = list(self._federation.coallocations.open)
        for name in names:
            self._process_safely(name, plan=False)
        for name in names:
            self._process_safely(name)
            for other in self._urgent():  # a search takes time; serve urgent ones in between
                self._process_safely(other, plan=False)

    def longest_wait_s(self) -> float:
        """Return the time until the next round if no co-allocation changes."""
        poll = super().longest_wait_s()
        return min(poll, _SOON_S) if self._urgent() else poll

    def _process_safely(self, name: str, *, plan: bool = True) -> None:
        if self._stopping.is_set() or name not in self._federation.coallocations.open:
            return
        self._guarded(name, partial(self.process, name, plan=plan))

    def _urgent(self) -> list[str]:
        """Return the co-allocations that start soon."""
        soon = self._now() + 2 * self._federation.coallocation_operations.rules.lead
        groups = [self._federation.coallocations[name] for name in list(self._federation.coallocations.open)]
        return [
            one.id
            for one in groups
            if not one.started_at and one.committed is not None and one.committed.start <= soon
        ]

    def process(self, name: str, *, plan: bool = True) -> None:
        """Do all pending work of one co-allocation; search only with ``plan``. Raises StoreError."""
        federation = self._federation
        group = federation.coallocation_operations.advance(
            name, self._cluster_views(federation.coallocations[name])
        )
        if group.over or group.release_requested_at:
            self._planned.pop(name, None)
            federation.coallocation_operations.notes.pop(name, None)
        elif plan and not group.cancelled and group.proposed is None:
            self._plan(group)
        for _ in range(len(group.next_components) + 1):  # a booked place leads to the next one
            group = federation.coallocations[name]
            asked = list(pending_calls(group, federation.coallocation_operations.rules, self._now()))
            if not asked:
                return
            booked = [one for one in asked if one.kind == "book"]
            call_in_parallel(partial(self._perform, group), asked, self.requests_at_once)
            if not booked:
                return
            group = federation.coallocation_operations.advance(name, {})

    def _client(self, cluster: str) -> Client:
        return connect_cluster(self._federation.settings.clusters[cluster], self._tokens[cluster])

    # ---- polling ----------------------------------------------------------------------------------

    def _cluster_views(self, group: CoAllocation) -> dict[str, ComponentClusterView]:
        """Return the states of the co-allocation's clusters."""
        federation = self._federation
        committed = group.committed
        wanted = {copy.cluster for copy in group.attempts}
        here = set(committed.clusters) if committed is not None and not group.release_requested_at else set()
        found = {}
        for name in wanted | here:
            if name not in federation.clusters:
                found[name] = ComponentClusterView(away="it is no longer known")
                continue
            seen = federation.clusters[name]
            bookings = None
            if name in here and committed is not None and not seen.away:
                bookings = self._bookings(name)
            found[name] = ComponentClusterView(seen.away, seen.since, seen.transfers, bookings)
        return found

    def _bookings(self, cluster: str) -> frozenset[str] | None:
        try:
            with self._client(cluster) as client:
                return frozenset(one.name for one in client.bookings() if one.phase in LIVE)
        except ClientError:
            return None

    # ---- search for a common start ----------------------------------------------------------------

    def _plan(self, group: CoAllocation) -> None:
        """Search for a common start: the first, or an earlier one than the current."""
        federation, rules = self._federation, self._federation.coallocation_operations.rules
        now = self._now()
        if group.pending_edit is not None:
            self._plan_edit(group, group.pending_edit, now)
            return
        moving = group.committed is not None
        if moving and not may_move(group, rules, now):
            return
        known = self._planned.setdefault(group.id, _PlanningState())
        generation = tuple(
            federation.generations.get(name, 0) for name in sorted(federation.settings.clusters)
        )
        wait = federation.settings.routing.recheck if moving else federation.settings.routing.poll
        if not self._is_due(known.asked, wait) or (moving and generation == known.generation):
            return
        known.asked, known.generation = self._clock(), generation
        users = federation.cluster_users(group.owner)
        keep = {} if group.options.remap else _present_places(group)
        if keep and group.options.units:  # unused components have no cluster
            keep = dict.fromkeys(range(len(group.components)), "") | keep
        allowed = self._allowed(group, users, keep)
        ends_before = _latest_end(group.committed, rules.gain) if moving else None
        found = self._search_start(group, users, allowed, now + rules.notice, ends_before)
        if moving:
            federation.coallocation_operations.gap_searches["asked"] += 1
            federation.coallocation_operations.gap_searches["found"] += found is not None
        if found is None:
            if not moving:
                federation.coallocation_operations.notes[group.id] = self._no_start_reason(group, users)
            return
        federation.coallocation_operations.notes.pop(group.id, None)
        event = propose_round(group, found, users, now, _round_reason(group, found))
        if event is not None:
            federation.coallocation_operations.commit([event])

    def _plan_edit(self, group: CoAllocation, edit: ComponentEdit, now: int) -> None:
        """Propose a round with the changed component: at the present start and places if possible, otherwise
        with the earliest end. Refuse the edit if there is none, or only a later one that is not allowed.
        """
        before, rules = group.committed, self._federation.coallocation_operations.rules
        assert before is not None, "without a committed round an edit is made at once"
        edited = replace(group, components=edit.components)
        users = self._federation.cluster_users(group.owner)
        kept = self._allowed(edited, users, _present_places(group, edit.component))
        found = self._search_start(edited, users, kept, before.start, None)
        if found is None or found.start != before.start:
            allowed = kept if not group.options.remap else self._allowed(edited, users)
            found = self._search_start(edited, users, allowed, now + rules.notice, None)
        event: FederationEvent | None
        if found is None:
            why = self._no_start_reason(edited, users)
            event = ComponentEditRefused(job=group.id, time=now, why=why)
        elif found.start > before.start and not edit.later:
            later = format_walltime(found.start - before.start)
            why = f"the start would be {later} later; --later (over HTTP: later) permits that"
            event = ComponentEditRefused(job=group.id, time=now, why=why)
        else:
            event = propose_round(
                group, found, users, now, f"component {edit.component + 1} is {_EDITED[edit.act]}"
            )
        if event is not None:
            self._federation.coallocation_operations.commit([event])

    def _search_start(
        self,
        group: CoAllocation,
        users: Mapping[str, str],
        allowed: Mapping[int, tuple[str, ...]],
        after: int,
        ends_before: int | None,
    ) -> CommonStart | None:
        """Return the common start with the earliest end in the clusters' plans."""
        self._planned.setdefault(group.id, _PlanningState()).obstacles.clear()
        speeds = {name: one.speed for name, one in self._federation.settings.clusters.items()}
        bounds: dict[str, Any] = {"ends_before": ends_before, "first": int(group.id), "speeds": speeds}
        if not group.options.units:
            return find_common_start(
                group.components,
                group.options,
                allowed,
                lambda asked, after: self._query_starts(group, users, asked, after),
                after,
                **bounds,
            )
        names = sorted({name for some in allowed.values() for name in some})
        found = find_divided_start(
            group.options,
            group.components[0].walltime,
            names,
            lambda asked, after: self._query_unit_starts(group, users, asked, after),
            after,
            **bounds,
        )
        return renumber_components(group, found) if found is not None else None

    def _allowed(
        self, group: CoAllocation, users: Mapping[str, str], keep: Mapping[int, str] | None = None
    ) -> dict[int, tuple[str, ...]]:
        """Return the possible clusters by component: reachable, with a user name of the owner, and without an
        earlier refusal. A component in ``keep`` stays at this cluster.
        """
        seen, without, fixed = self._federation.clusters, excluded_placements(group), keep or {}
        found = {}
        for i, component in enumerate(group.components):
            names = component.clusters or tuple(seen)
            found[i] = tuple(
                name
                for name in names
                if name in seen
                and not seen[name].away
                and name in users
                and not self._federation.unsupported_reason(name, component.submission.get("resources", {}))
                and (i, name) not in without
                and fixed.get(i, name) == name
            )
        return found

    def _no_start_reason(self, group: CoAllocation, users: Mapping[str, str]) -> str:
        seen = self._federation.clusters
        away = [f"{name} does not answer ({one.away})" for name, one in seen.items() if one.away]
        strangers = [f"{group.owner} has no user at {name}" for name in seen if name not in users]
        strangers += [
            f"component {i} cannot go to {name}: {why}"
            for name in self._federation.settings.clusters
            for i, component in enumerate(group.components, 1)
            if not component.deleted
            and (not component.clusters or name in component.clusters)
            and (why := self._federation.unsupported_reason(name, component.submission.get("resources", {})))
        ]
        refused = [
            f"{copy.cluster} refused component {copy.component + 1}: {copy.text}"
            for copy in group.attempts
            if copy.phase == "refused"
        ]
        obstacles = self._describe_obstacles(group)
        words = "; ".join([*refused, *away, *strangers, *self._too_few(group), *obstacles])
        return f"there is no time at which all components can start{': ' + words if words else ''}"

    def _describe_obstacles(self, group: CoAllocation) -> list[str]:
        """Return why clusters can never run components, by the last search. Several components together are
        named only if the cluster can run each of them. A divided request has no such reasons: its parts may
        be smaller.
        """
        if group.options.units:
            return []
        found = self._planned.setdefault(group.id, _PlanningState()).obstacles
        alone = {name for name, components in found if len(components) == 1}
        words = []
        for (name, components), why in sorted(found.items()):
            if len(components) > 1 and name in alone:
                continue
            numbers = " and ".join(str(i + 1) for i in components)
            which = f"component {numbers}" if len(components) == 1 else f"components {numbers} together"
            words.append(f"{name} cannot run {which}: {why}")
        more = len(words) - _MAX_OBSTACLES
        return [*words[:_MAX_OBSTACLES], *([f"and {more} more"] if more > 0 else [])]

    def _too_few(self, group: CoAllocation) -> list[str]:
        """Return a message if the disclosed cores of all clusters are too few for a divided request."""
        options = group.options
        if not options.units:
            return []
        there = [self._federation.clusters[name].cpus for name in self._federation.settings.clusters]
        most = sum(sorted(there)[-options.most :])
        wanted = options.units * unit_cores(group.components[0].submission.get("resources", {}))
        if not all(there) or most >= wanted:
            return []
        return [f"it requests {wanted} cores, but {options.most} clusters have at most {most}"]

    def _query_starts(
        self,
        group: CoAllocation,
        users: Mapping[str, str],
        asked: Iterable[tuple[str, tuple[int, ...], int]],
        after: int,
    ) -> dict[tuple[str, tuple[int, ...]], int | None]:
        """Return the earliest starts of components together at a cluster, for the booked duration."""
        questions = list(asked)
        if not questions:
            return {}
        answers = call_in_parallel(
            lambda one: self._query_merged_start(group, users, one, after), questions, self.requests_at_once
        )
        return {
            (cluster, components): start
            for (cluster, components, _), start in zip(questions, answers, strict=True)
        }

    def _query_unit_starts(
        self,
        group: CoAllocation,
        users: Mapping[str, str],
        asked: Iterable[tuple[str, int, int]],
        after: int,
    ) -> dict[tuple[str, int], int | None]:
        """Return the earliest starts of units at a cluster, for the booked duration."""
        questions = list(asked)
        if not questions:
            return {}
        given = group.components[0].submission.get("resources", {})
        limit = self._federation.coallocation_operations.rules.limit

        def query(one: tuple[str, int, int]) -> int | None:
            cluster, units, seconds = one
            resources = {**scale_unit(given, units), "walltime": format_walltime(seconds + limit)}
            return self._query_start(group, users, cluster, (0,), resources, after)

        answers = call_in_parallel(query, questions, self.requests_at_once)
        return {(name, units): start for (name, units, _), start in zip(questions, answers, strict=True)}

    def _query_merged_start(
        self,
        group: CoAllocation,
        users: Mapping[str, str],
        asked: tuple[str, tuple[int, ...], int],
        after: int,
    ) -> int | None:
        cluster, components, seconds = asked
        limit = self._federation.coallocation_operations.rules.limit
        resources = merge_requests([group.components[i] for i in components], seconds + limit)
        return (
            self._query_start(group, users, cluster, components, resources, after)
            if resources is not None
            else None
        )

    def _query_start(
        self,
        group: CoAllocation,
        users: Mapping[str, str],
        cluster: str,
        components: tuple[int, ...],
        resources: Mapping[str, str],
        after: int,
    ) -> int | None:
        """Return the earliest start of the resources in the cluster's plan, not before ``after``."""
        rules, before = self._federation.coallocation_operations.rules, group.committed
        own: list[str] = []
        if before is not None:
            own = [
                booking_name(rules, group, before.number, place.component)
                for place in before.places
                if place.cluster == cluster
            ]
        queues = {group.components[i].submission.get("queues", {}).get(cluster, "") for i in components}
        try:
            with self._client(cluster) as client:
                answer = client.what_if(
                    resources=resources,
                    queue=queues.pop() if len(queues) == 1 else "",
                    owner=users[cluster],
                    not_before=after,
                    bookings=own,
                    for_booking=True,
                )
        except ClientError as error:
            _log.info("a plan could not be queried", cluster=cluster, coallocation=group.id, why=str(error))
            return None
        if answer.answer == "never":
            known = self._planned.setdefault(group.id, _PlanningState())
            known.obstacles[cluster, components] = answer.why
        return answer.planned_start

    # ---- requests ---------------------------------------------------------------------------------

    def _perform(self, group: CoAllocation, call: CoAllocationCall) -> None:
        """Send one request. A failed request is repeated while it is pending."""
        if call.cluster not in self._federation.settings.clusters:
            self._settle_removed_cluster(group, call)
            return
        try:
            with self._client(call.cluster) as client:
                self._carry_out(client, group, call)
        except Refused as error:
            self._handle_refusal(group, call, error)
        except ClientError as error:
            _log.info(
                "request failed, will be repeated",
                cluster=call.cluster,
                what=call.kind,
                name=call.name,
                why=str(error),
            )

    def _carry_out(self, client: Client, group: CoAllocation, call: CoAllocationCall) -> None:
        now, take = self._now(), self._federation.coallocation_operations.commit
        body: dict[str, Any] = dict(call.body or {})
        match call.kind:
            case "book":
                done = client.book(call.name, body)
                if done.start != body["start"]:
                    raise Refused("no-room", 409, f"{call.cluster} booked another start")
                plan = self._federation.generations.get(call.cluster, 0)
                take(
                    [
                        PlaceBooked(
                            job=group.id, time=now, number=call.number, component=call.component, plan=plan
                        )
                    ]
                )
            case "confirm":
                done = client.do_with_booking(call.name, "confirm")
                if done.confirmed:
                    take(
                        [PlaceConfirmed(job=group.id, time=now, number=call.number, component=call.component)]
                    )
            case "arm":
                client.do_with_booking(call.name, "arm")
                take([PlaceArmed(job=group.id, time=now, number=call.number, component=call.component)])
            case "keep":
                client.do_with_booking(call.name, "keep")
            case "unbook":
                client.cancel_booking(call.name)
                self._record_withdrawn_booking(group, call)
            case "submit":
                client.submit_held(call.name, body)
            case "release":
                client.release_transfer(call.name)
            case "withdraw":
                client.withdraw_transfer(call.name, forced=call.forced)

    def _handle_refusal(self, group: CoAllocation, call: CoAllocationCall, error: Refused) -> None:
        _log.info("refused", cluster=call.cluster, what=call.kind, name=call.name, why=error.detail)
        now, take = self._now(), self._federation.coallocation_operations.commit
        if call.kind == "book":
            why = (
                f"{call.cluster} has too little free capacity for component {call.component + 1} at that "
                f"time: {error.detail}"
            )
            take([RoundDropped(job=group.id, time=now, number=call.number, why=why)])
        elif call.kind == "unbook" and error.kind in _GONE:
            self._record_withdrawn_booking(group, call)
        elif call.kind == "submit" and error.kind in ("invalid", "bad-request", "too-large"):
            self._federation.coallocation_operations.refuse_component(
                group.id, call.attempt, "; ".join(error.places) or error.detail
            )

    def _record_withdrawn_booking(self, group: CoAllocation, call: CoAllocationCall) -> None:
        """Record a cancelled booking. A round is cleared once all its bookings are cancelled."""
        done = self._cleared.setdefault((group.id, call.number), set())
        done.add(call.component)
        if done >= {place.component for place in group.rounds[call.number - 1].places}:
            self._cleared.pop((group.id, call.number), None)
            self._federation.coallocation_operations.commit(
                [RoundCleared(job=group.id, time=self._now(), number=call.number)]
            )

    def _settle_removed_cluster(self, group: CoAllocation, call: CoAllocationCall) -> None:
        """Complete the call for a cluster that is no longer in the settings."""
        if call.kind == "unbook":
            self._record_withdrawn_booking(group, call)
        elif call.kind == "withdraw":
            self._federation.coallocation_operations.commit(
                [AttemptWithdrawn(job=group.id, time=self._now(), attempt=call.attempt)]
            )


def _present_places(group: CoAllocation, changed: int = -1) -> dict[int, str]:
    """Return the present clusters of the components, without a ``changed`` one."""
    places = group.committed.places if group.committed is not None else ()
    return {place.component: place.cluster for place in places if place.component != changed}


def _latest_end(one: PlacementRound | None, gain: int) -> int | None:
    return one.end - gain if one is not None else None


def _round_reason(group: CoAllocation, found: CommonStart) -> str:
    before = group.committed
    if before is None:
        return "the earliest common start"
    kept = {place.component: place.cluster for place in before.places} == dict(found.places)
    return f"{'shift' if kept else 'remap'}: it ends {before.end - found.start - found.length} s earlier"
