"""Does for groups what is to be done: asks the clusters' plans, books, confirms, submits, releases.

One thread for all groups. What is seen of transfers comes from the threads that poll the clusters.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import structlog

from schedd.client import Client, ClientError, Refused
from schedd.dialect import format_walltime
from schedd.federation.groups.divided import divide, numbered, piece, unit_cores
from schedd.federation.groups.events import (
    CopyGone,
    PlaceArmed,
    PlaceBooked,
    PlaceConfirmed,
    RoundCleared,
    RoundDropped,
)
from schedd.federation.groups.group import Group, Round
from schedd.federation.groups.search import Found, find, together
from schedd.federation.groups.steps import Call, Looks, booking_name, calls, excluded, may_move, propose
from schedd.federation.roof.roof import Roof
from schedd.federation.routing.jobs import ImpossibleError
from schedd.federation.threads.peers import client_of
from schedd.store import StoreError
from schedd.supervision import ThreadedWork

__all__ = ["Keeper"]

_One = TypeVar("_One")
_Answer = TypeVar("_Answer")
_log = structlog.get_logger(__name__)
_AT_ONCE: Final = 16
"""Questions to clusters at once."""
_SOON_S: Final = 0.5
"""Between two rounds while a group is about to start."""
_LIVE: Final = ("flexible", "frozen", "open")
_GONE: Final = ("unknown-transfer", "unknown-booking")


@dataclass(slots=True)
class _Planning:
    """When the plans were last asked for a group, and why nothing was found."""

    asked: float = 0.0
    generation: tuple[int, ...] = ()


class Keeper(ThreadedWork):
    """The work for all groups, in one thread."""

    def __init__(
        self,
        roof: Roof,
        tokens: Mapping[str, str],
        stopping: threading.Event,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(roof.supervisor, "groups")
        self._roof = roof
        self._tokens = tokens
        self._stopping = stopping
        self._clock = clock
        self._planned: dict[str, _Planning] = {}
        self._cleared: dict[tuple[str, int], set[int]] = {}

    def run(self) -> None:
        """Rounds until it is to stop."""
        while not self._stopping.is_set():
            self._roof.of_groups.bell.clear()
            names = list(self._roof.groups.open)
            for name in names:
                self._try(name, plan=False)
            for name in names:
                self._try(name)
                for other in self._urgent():  # asking plans takes a while: nobody misses his moment by it
                    self._try(other, plan=False)
            poll = self._roof.settings.routing.poll
            self._roof.of_groups.bell.wait(min(poll, _SOON_S) if self._urgent() else poll)
            self._stopping.wait(0.05)

    def _try(self, name: str, *, plan: bool = True) -> None:
        if self._stopping.is_set() or name not in self._roof.groups.open:
            return
        try:
            self.tend(name, plan=plan)
        except (StoreError, ImpossibleError) as error:
            _log.error("a group was not tended", group=name, why=str(error))
        except Exception as error:  # the others are tended all the same
            self._failures.note(error)

    def _urgent(self) -> list[str]:
        """Groups that start soon, or are about to."""
        soon = self._now() + 2 * self._roof.of_groups.rules.lead
        groups = [self._roof.groups[name] for name in list(self._roof.groups.open)]
        return [
            one.id
            for one in groups
            if not one.began and one.committed is not None and one.committed.start <= soon
        ]

    def tend(self, name: str, *, plan: bool = True) -> None:
        """Everything that can be done for one group now; without its ``plan``: clusters are not asked where
        it could start. Raises StoreError.
        """
        roof = self._roof
        group = roof.of_groups.tend(name, self._looks(roof.groups[name]))
        if group.over or group.let_go:
            self._planned.pop(name, None)
        elif plan and not group.cancelled and group.proposed is None:
            self._plan(group)
        for _ in range(len(group.parts) + 1):  # one booking leads to the next
            group = roof.groups[name]
            asked = list(calls(group, roof.of_groups.rules, self._now()))
            if not asked:
                return
            booked = [one for one in asked if one.kind == "book"]
            self._each(partial(self._do, group), asked)
            if not booked:
                return
            group = roof.of_groups.tend(name, {})

    def _now(self) -> int:
        return int(self._clock())

    def _each(self, ask: Callable[[_One], _Answer], of: Sequence[_One]) -> list[_Answer]:
        """Clusters are asked side by side; the answers in order."""
        with ThreadPoolExecutor(min(_AT_ONCE, len(of))) as pool:
            return list(pool.map(ask, of))

    def _client(self, cluster: str) -> Client:
        return client_of(self._roof.settings.clusters[cluster], self._tokens[cluster])

    # ---- what is seen -----------------------------------------------------------------------------

    def _looks(self, group: Group) -> dict[str, Looks]:
        """What is seen of the clusters where the group is, or is to be."""
        roof = self._roof
        committed = group.committed
        wanted = {copy.cluster for copy in group.copies}
        here = set(committed.clusters) if committed is not None and not group.let_go else set()
        found = {}
        for name in wanted | here:
            if name not in roof.seen:
                found[name] = Looks(away="it is not known any more")
                continue
            seen = roof.seen[name]
            bookings = None
            if name in here and committed is not None and not seen.away:
                bookings = self._bookings(name)
            found[name] = Looks(seen.away, seen.since, seen.transfers, bookings)
        return found

    def _bookings(self, cluster: str) -> frozenset[str] | None:
        try:
            with self._client(cluster) as client:
                return frozenset(one["name"] for one in client.bookings() if one["phase"] in _LIVE)
        except ClientError:
            return None

    # ---- where it can start ----------------------------------------------------------------------

    def _plan(self, group: Group) -> None:
        """Looks for a common start: the first, or an earlier one than it has."""
        roof, rules = self._roof, self._roof.of_groups.rules
        now = self._now()
        moving = group.committed is not None
        if moving and not may_move(group, rules, now):
            return
        known = self._planned.setdefault(group.id, _Planning())
        generation = tuple(roof.generations.get(name, 0) for name in sorted(roof.settings.clusters))
        wait = roof.settings.routing.again if moving else roof.settings.routing.poll
        if self._clock() < known.asked + wait or (moving and generation == known.generation):
            return
        known.asked, known.generation = self._clock(), generation
        users = roof.users_of(group.owner)
        allowed = self._allowed(group, users, moving=moving)
        ends_before = _latest_end(group.committed, rules.gain) if moving else None
        found = self._found(group, users, allowed, now + rules.notice, ends_before)
        if moving:
            roof.of_groups.holes["asked"] += 1
            roof.of_groups.holes["found"] += found is not None
        if found is None:
            if not moving:
                roof.of_groups.notes[group.id] = self._why_not(group, users)
            return
        event = propose(group, found, users, now, _why(group, found))
        if event is not None:
            roof.of_groups.take([event])

    def _found(
        self,
        group: Group,
        users: Mapping[str, str],
        allowed: Mapping[int, tuple[str, ...]],
        after: int,
        ends_before: int | None,
    ) -> Found | None:
        """The earliest common start that the plans have for the group."""
        bounds: dict[str, Any] = {"ends_before": ends_before, "first": int(group.id)}
        if not group.options.units:
            return find(
                group.parts,
                group.options,
                allowed,
                lambda asked, after: self._ask(group, users, asked, after),
                after,
                **bounds,
            )
        names = sorted({name for some in allowed.values() for name in some})
        found = divide(
            group.options,
            group.parts[0].walltime,
            names,
            lambda asked, after: self._ask_units(group, users, asked, after),
            after,
            **bounds,
        )
        return numbered(group, found) if found is not None else None

    def _allowed(self, group: Group, users: Mapping[str, str], *, moving: bool) -> dict[int, tuple[str, ...]]:
        """By part, the clusters that are asked: those that answer, where its owner has a user, and that did
        not refuse it; one that waits keeps its clusters unless it may be mapped anew.
        """
        seen, without = self._roof.seen, excluded(group)
        fixed: dict[int, str] = {}
        if moving and not group.options.remap and group.committed is not None:
            fixed = {place.part: place.cluster for place in group.committed.places}
            if group.options.units:  # pieces that it does not have are nowhere
                fixed = dict.fromkeys(range(len(group.parts)), "") | fixed
        found = {}
        for i, part in enumerate(group.parts):
            names = part.clusters or tuple(seen)
            found[i] = tuple(
                name
                for name in names
                if name in seen
                and not seen[name].away
                and name in users
                and not self._roof.cannot(name, part.submission.get("resources", {}))
                and (i, name) not in without
                and fixed.get(i, name) == name
            )
        return found

    def _why_not(self, group: Group, users: Mapping[str, str]) -> str:
        seen = self._roof.seen
        away = [f"{name} does not answer ({one.away})" for name, one in seen.items() if one.away]
        strangers = [f"{group.owner} has no user at {name}" for name in seen if name not in users]
        strangers += [
            f"part {i} cannot go to {name}: {why}"
            for name in self._roof.settings.clusters
            for i, part in enumerate(group.parts, 1)
            if (not part.clusters or name in part.clusters)
            and (why := self._roof.cannot(name, part.submission.get("resources", {})))
        ]
        refused = [
            f"{copy.cluster} refused part {copy.part + 1}: {copy.text}"
            for copy in group.copies
            if copy.phase == "refused"
        ]
        words = "; ".join([*refused, *away, *strangers, *self._too_few(group)])
        return f"no moment was found at which all parts can start{': ' + words if words else ''}"

    def _too_few(self, group: Group) -> list[str]:
        """That no clusters have so many cores as a group wants that is divided, where all tell how many."""
        options = group.options
        if not options.units:
            return []
        there = [self._roof.seen[name].cpus for name in self._roof.settings.clusters]
        most = sum(sorted(there)[-options.most :])
        wanted = options.units * unit_cores(group.parts[0].submission.get("resources", {}))
        if not all(there) or most >= wanted:
            return []
        return [f"it wants {wanted} cores, and {options.most} clusters have {most} at most"]

    def _ask(
        self,
        group: Group,
        users: Mapping[str, str],
        asked: Iterable[tuple[str, tuple[int, ...], int]],
        after: int,
    ) -> dict[tuple[str, tuple[int, ...]], int | None]:
        """When parts could start together at a cluster, for as long as is booked for them."""
        questions = list(asked)
        if not questions:
            return {}
        answers = self._each(lambda one: self._ask_one(group, users, one, after), questions)
        return {
            (cluster, parts): start for (cluster, parts, _), start in zip(questions, answers, strict=True)
        }

    def _ask_units(
        self,
        group: Group,
        users: Mapping[str, str],
        asked: Iterable[tuple[str, int, int]],
        after: int,
    ) -> dict[tuple[str, int], int | None]:
        """When so many units could start at a cluster, for as long as is booked for them."""
        questions = list(asked)
        if not questions:
            return {}
        given = group.parts[0].submission.get("resources", {})
        limit = self._roof.of_groups.rules.limit

        def ask(one: tuple[str, int, int]) -> int | None:
            cluster, units, seconds = one
            resources = {**piece(given, units), "walltime": format_walltime(seconds + limit)}
            return self._start(group, users, cluster, (0,), resources, after)

        answers = self._each(ask, questions)
        return {(name, units): start for (name, units, _), start in zip(questions, answers, strict=True)}

    def _ask_one(
        self,
        group: Group,
        users: Mapping[str, str],
        asked: tuple[str, tuple[int, ...], int],
        after: int,
    ) -> int | None:
        cluster, parts, seconds = asked
        limit = self._roof.of_groups.rules.limit
        resources = together([group.parts[i] for i in parts], seconds + limit)
        return self._start(group, users, cluster, parts, resources, after) if resources is not None else None

    def _start(
        self,
        group: Group,
        users: Mapping[str, str],
        cluster: str,
        parts: tuple[int, ...],
        resources: Mapping[str, str],
        after: int,
    ) -> int | None:
        """When the cluster's plan has room for these resources, not before a moment."""
        rules, before = self._roof.of_groups.rules, group.committed
        own: list[str] = []
        if before is not None:
            own = [
                booking_name(rules, group, before.number, place.part)
                for place in before.places
                if place.cluster == cluster
            ]
        queues = {group.parts[i].submission.get("queues", {}).get(cluster, "") for i in parts}
        try:
            with self._client(cluster) as client:
                answer = client.what_if(
                    resources=resources,
                    queue=queues.pop() if len(queues) == 1 else "",
                    owner=users[cluster],
                    not_before=after,
                    bookings=own,
                )
        except ClientError as error:
            _log.info("a plan was not asked", cluster=cluster, group=group.id, why=str(error))
            return None
        return answer["planned_start"]

    # ---- what is asked for ------------------------------------------------------------------------

    def _do(self, group: Group, call: Call) -> None:
        """One request; what fails is asked for again the next time, as long as it is wanted."""
        if call.cluster not in self._roof.settings.clusters:
            self._settle_lost(group, call)
            return
        try:
            with self._client(call.cluster) as client:
                self._ask_for(client, group, call)
        except Refused as error:
            self._refused(group, call, error)
        except ClientError as error:
            _log.info("not now", cluster=call.cluster, what=call.kind, name=call.name, why=str(error))

    def _ask_for(self, client: Client, group: Group, call: Call) -> None:
        now, take = self._now(), self._roof.of_groups.take
        body: dict[str, Any] = dict(call.body or {})
        match call.kind:
            case "book":
                done = client.book(call.name, body)
                if done["start"] != body["start"]:
                    raise Refused("no-room", 409, f"{call.cluster} booked another start")
                plan = self._roof.generations.get(call.cluster, 0)
                take([PlaceBooked(job=group.id, time=now, number=call.number, part=call.part, plan=plan)])
            case "confirm":
                done = client.do_with_booking(call.name, "confirm")
                if done["confirmed"]:
                    take([PlaceConfirmed(job=group.id, time=now, number=call.number, part=call.part)])
            case "arm":
                client.do_with_booking(call.name, "arm")
                take([PlaceArmed(job=group.id, time=now, number=call.number, part=call.part)])
            case "keep":
                client.do_with_booking(call.name, "keep")
            case "unbook":
                client.cancel_booking(call.name)
                self._given_back(group, call)
            case "submit":
                client.submit_held(call.name, body)
            case "release":
                client.release_transfer(call.name)
            case "withdraw":
                client.withdraw_transfer(call.name, forced=call.forced)

    def _refused(self, group: Group, call: Call, error: Refused) -> None:
        _log.info("refused", cluster=call.cluster, what=call.kind, name=call.name, why=error.detail)
        now, take = self._now(), self._roof.of_groups.take
        if call.kind == "book":
            why = f"{call.cluster} has no room for part {call.part + 1} then: {error.detail}"
            take([RoundDropped(job=group.id, time=now, number=call.number, why=why)])
        elif call.kind == "unbook" and error.kind in _GONE:
            self._given_back(group, call)
        elif call.kind == "submit" and error.kind in ("invalid", "bad-request", "too-large"):
            self._roof.of_groups.refuse_copy(group.id, call.copy, "; ".join(error.places) or error.detail)

    def _given_back(self, group: Group, call: Call) -> None:
        """A round is cleared when all its bookings are given back."""
        done = self._cleared.setdefault((group.id, call.number), set())
        done.add(call.part)
        if done >= {place.part for place in group.rounds[call.number - 1].places}:
            self._cleared.pop((group.id, call.number), None)
            self._roof.of_groups.take([RoundCleared(job=group.id, time=self._now(), number=call.number)])

    def _settle_lost(self, group: Group, call: Call) -> None:
        """The cluster is not one of the federation any more: nothing can be asked of it."""
        if call.kind == "unbook":
            self._given_back(group, call)
        elif call.kind == "withdraw":
            self._roof.of_groups.take([CopyGone(job=group.id, time=self._now(), copy=call.copy)])


def _latest_end(one: Round | None, gain: int) -> int | None:
    return one.end - gain if one is not None else None


def _why(group: Group, found: Found) -> str:
    before = group.committed
    if before is None:
        return "the earliest common start"
    kept = {place.part: place.cluster for place in before.places} == dict(found.places)
    return f"{'shift' if kept else 'remap'}: it ends {before.end - found.start - found.length} s earlier"
