"""Readings of the server, with wanted attributes and in slices."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from schedd.wire import NO_TYPES, JobFacts, QueueFacts, ResourceTypes, ServerFacts, ShareFacts
from schedd.wire.resources import OF_QUEUE
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import SelectStatusRequest, StatusRequest
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.facts import ACTIVE, Values
from server_adapter.bridge.link import ServerLink
from server_adapter.bridge.manual_starts import ManualStarts
from server_adapter.bridge.server import ObjectSettings, ReadScope
from server_adapter.bridge.state import ServerReservation, ServerState, StateBuilder
from server_adapter.dis import Attribute
from server_adapter.openpbs.codes import NO_SUCH_JOB
from server_adapter.openpbs.connection import OpenPBSConnection
from server_adapter.servers.openpbs.arrays import expand_arrays
from server_adapter.servers.openpbs.facts import (
    JOB_ATTRIBUTES,
    SHARED,
    is_exclusive,
    is_known_job_state,
    is_over,
    make_fact_parsers,
    parse_resource_types,
    requested_resources,
    reservations_of,
    scheduling_attributes,
    shares,
    unknown_vnode_states,
    vnode_state,
)
from server_adapter.servers.openpbs.hosts import MAX_KINDS, NO_HOSTS, Hosts, group_by_host, requested_vnodes
from server_adapter.servers.openpbs.jobs import JobList, ended_since
from server_adapter.servers.openpbs.reservations import (
    begins,
    outside_queues,
    pending_reservation,
    server_reservations,
    translate_requests,
)
from server_adapter.servers.openpbs.stuck_vnodes import StuckVnodes
from server_adapter.servers.openpbs.suspended_jobs import jobs_to_resume
from server_adapter.servers.openpbs.vnode_capacity import takes_vnode
from server_adapter.servers.unknown_states import describe_unknown_states, unknown_jobs

_log = logging.getLogger(__name__)

DEFAULT: Final = "default"  # name of the default scheduler, which has all objects without a partition

_OF_LATE: Final = 6 * 3600  # seconds before the first reading
_NAMED: Final = 50  # maximum number of missing jobs that are requested by name in one reading
_HOLDING: Final = frozenset({"R", "E", "S", "U"})
_MARGIN: Final = 60  # tolerated difference between clocks, in seconds
_NODE_ATTRIBUTES: Final = (
    *("state", "sharing", "resources_available", "queue", "partition", "resv", "Priority"),
)

SERVER: Final = StatusRequest(code=RequestCode.STATUS_SERVER)
QUEUES: Final = StatusRequest(code=RequestCode.STATUS_QUEUE)
RESERVATIONS: Final = StatusRequest(code=RequestCode.STATUS_RESERVATION)
SCHEDULERS: Final = StatusRequest(code=RequestCode.STATUS_SCHEDULER)
RESOURCES: Final = StatusRequest(code=RequestCode.STATUS_RESOURCE)
NODES: Final = StatusRequest(
    code=RequestCode.STATUS_NODE, attributes=tuple([Attribute(name) for name in _NODE_ATTRIBUTES])
)


def job_request(name: str, *, history: bool = False) -> StatusRequest:
    """Request one job, or several separated by commas, with their wanted attributes; with `history` also
    finished jobs. Unknown jobs are left out, unless all are unknown (15001).
    """
    names = tuple([Attribute(name) for name in JOB_ATTRIBUTES])
    return StatusRequest(
        code=RequestCode.STATUS_JOB, name=name, attributes=names, extension="x" if history else None
    )


@dataclass(frozen=True, slots=True)
class OwnPartition:
    """The objects of one scheduler, by its partition (empty for the default scheduler)."""

    partition: str
    scheduling: bool
    attributes: Mapping[str, str] = field(default_factory=dict)  # see `scheduling_attributes`

    def has(self, item: DescribedObject) -> bool:
        """Return whether a queue or vnode belongs to this scheduler."""
        named = item.values.get("partition", "")
        return (named or DEFAULT_PARTITION) == (self.partition or DEFAULT_PARTITION)


DEFAULT_PARTITION: Final = "pbs-default"


@dataclass(frozen=True, slots=True)
class _OpenPBSObjects:
    """Objects of a full reading except jobs; partial readings reuse them."""

    server: Values
    ours: OwnPartition
    queues: list[DescribedObject]
    vnodes: list[DescribedObject]
    reservations: list[DescribedObject]


_UNKNOWN_ARRAY: Final = "array {} is not planned: its waiting subjobs cannot be read: {}"


class OpenPBSReader:
    """Reads the partition of scheduler `name`; others use the connection between requests."""

    def __init__(
        self,
        link: ServerLink[OpenPBSConnection],
        name: str,
        by_hand: ManualStarts | None = None,
        *,
        clock: Callable[[], float] = time.time,
        by_host: bool = True,
    ) -> None:
        """`by_host`: plan a host with several vnodes as one node."""
        self._link = link
        self._name = name
        self._by_host = by_host
        self._warned: frozenset[str] = frozenset()
        self._by_hand = by_hand
        self._types = NO_TYPES
        self._builder = self._new_builder()
        self._refused = ""
        self._clock = clock
        self._stuck = StuckVnodes(clock)
        self._unknown_arrays: dict[str, str] = {}
        self._unknown_states = ""
        self._named_vnodes: frozenset[str] = frozenset()
        self._jobs = JobList(self._describe)
        self._before: ServerState | None = None
        self._objects: _OpenPBSObjects | None = None
        self._looked_at = 0
        self.partition = ""  # the partition of the last reading; empty for the default scheduler
        self.queues: frozenset[str] | None = None  # the queues of the last reading; None before the first
        self.reservations: frozenset[str] | None = None  # the names in the last full reading; None before it
        self.hosts = NO_HOSTS
        """The hosts planned as one node in the last reading,"""
        self.vnodes: Mapping[str, list[DescribedObject]] = {}  # and their vnodes then
        self.suspended: Mapping[str, Values] = {}  # suspended jobs that wait for a resume

    def troubles(self) -> Iterator[tuple[str, str]]:
        """Yield the lasting troubles of the last readings, by kind."""
        yield "stuck_vnodes", self._stuck.trouble
        yield "adapter_work", self._unknown_states
        for name, why in self._unknown_arrays.items():
            yield "adapter_work", _UNKNOWN_ARRAY.format(name, why)
        if self._by_hand is not None:
            yield "adapter_work", self._by_hand.trouble

    async def read(self, scope: ReadScope = ReadScope.ALL) -> ServerState:
        """Return the server's state. A smaller `scope` costs two requests instead of nine; if jobs changed,
        three more, for these jobs and for the limits of the server and its queues. The rest is then from the
        last full reading.

        Raises what `ServerLink.borrow` and `OpenPBSConnection.describe` raise.
        """
        objects = self._objects
        if scope is not ReadScope.ALL and objects is not None:
            changes = await self._jobs.read_changes()
            if changes is not None and not self._request_unknown_resource(self._jobs.changed):
                if self._jobs.changed:
                    self._objects = objects = await self._with_limits(objects)
                if any(_has_exclusive_use(vnode.values) for vnode in objects.vnodes):
                    objects = replace(objects, vnodes=await self._vnodes(objects.ours))
                return await self._state(objects, *changes)
        self._objects = None
        ours = self._ours(await self._describe(SCHEDULERS))
        self.partition = ours.partition
        vnodes = await self._vnodes(ours)
        listed = await self._jobs.read()
        await self._read_types()
        objects = await self._with_limits(_OpenPBSObjects({}, ours, [], vnodes, []))
        objects = replace(objects, reservations=await self._describe(RESERVATIONS))
        state = await self._state(objects, listed, [])
        on_vnodes = [name for vnode in objects.vnodes for name in reservations_of(vnode.values)]
        self.reservations = frozenset([*on_vnodes, *[one.name for one in objects.reservations]])
        self._objects = objects
        return state

    async def _with_limits(self, objects: _OpenPBSObjects) -> _OpenPBSObjects:
        """Return the objects with the server and its queues as they are now.

        They are read after the jobs: a job must not be known before a limit that was set before it came.
        """
        server = await self._describe(SERVER)
        queues = [queue for queue in await self._describe(QUEUES) if objects.ours.has(queue)]
        self.queues = frozenset(queue.name for queue in queues)
        return replace(objects, server=server[0].values if server else {}, queues=queues)

    def _request_unknown_resource(self, jobs: Iterable[DescribedObject]) -> bool:
        """Return whether a job requests a resource that was created after the last full reading."""
        types = self._types
        return bool(types.reported) and any(
            not types.resource_type(name) for job in jobs for name in requested_resources(job.values)
        )

    async def _vnodes(self, ours: OwnPartition) -> list[DescribedObject]:
        return [node for node in await self._describe(NODES) if ours.has(node)]

    async def _state(
        self, objects: _OpenPBSObjects, known: list[DescribedObject], over: list[DescribedObject]
    ) -> ServerState:
        """Build the state from the known jobs; `over` are jobs that are known to have ended."""
        ours, queues = objects.ours, objects.queues
        names = frozenset(queue.name for queue in queues)
        there = {node.name for node in objects.vnodes}
        listed = self._expand(known)
        self._unknown_states = describe_unknown_states(
            {vnode.name: unknown_vnode_states(vnode.values) for vnode in objects.vnodes},
            unknown_jobs(known, is_known_job_state),
        )
        await asyncio.sleep(0)  # here and below: with many jobs each step is long enough for one slice
        vnodes = self._stuck.without(objects.vnodes, listed)
        self._note_named_vnodes(known)
        hosts = self._hosts(vnodes)
        nodes = hosts.nodes(vnodes)

        def is_ours(job: DescribedObject) -> bool:
            return job.values.get("queue") in names or _holds(job.values, there)

        jobs = [job for job in listed if is_ours(job)]
        await asyncio.sleep(0)
        self.suspended = jobs_to_resume(jobs)
        await asyncio.sleep(0)
        jobs += over
        gone = await self._ended({job.name for job in jobs})
        jobs += [job for job in gone if is_over(job.values) or is_ours(job)]  # else moved to another queue
        await asyncio.sleep(0)
        jobs = _translate_placements(jobs, hosts)
        await asyncio.sleep(0)
        if self._by_hand is not None:
            self._by_hand.refresh()  # after the jobs: the server logs a run before it shows it
        state: ServerState | None = None
        for built in self._builder.build(server=objects.server, queues=queues, nodes=nodes, jobs=jobs):
            state = built
            await asyncio.sleep(0)
        assert state is not None, "the last thing built is the state"
        # An unconfirmed reservation has no partition: each scheduler must answer for it.
        reserved = [_spelled(one, self._types) for one in objects.reservations]
        found = [one for one in reserved if ours.has(one) or "partition" not in one.values]
        usable = {vnode.name for vnode in vnodes if vnode_state(vnode.values) == "up"}
        pending_reservations = {
            one.name: wanted
            for one in found
            if (wanted := pending_reservation(one.values, usable)) is not None
        }
        queues_of = {queue for node in nodes if (queue := node.values.get("queue"))}
        if queues_of:
            pending_reservations = {
                name: outside_queues(wanted) for name, wanted in pending_reservations.items()
            }
        if hosts.members:
            pending_reservations = {
                name: translate_requests(wanted, hosts.translate_request)
                for name, wanted in pending_reservations.items()
            }
        divisible = {
            node.name
            for node in nodes
            if node.name not in hosts.members and node.values.get("sharing", SHARED) == SHARED
        }
        placed = _translate_placements(reserved, hosts)
        state = replace(
            state,
            reservations={
                name: held
                for name, one in server_reservations(placed, divisible).items()
                if (held := _restrict_to_nodes(one, state.nodes)) is not None
            },
            pending_reservations=pending_reservations,
            queues=_bind_queues_to_nodes(state.queues, queues_of),
        )
        state = _state_sharing(_open_reservation_queues(state, begins(found)))
        whole = {node.name for node in nodes if is_exclusive(node.values)}
        self._before = state = _charge_exclusive_jobs(state, ours, whole)
        return state

    def _expand(self, jobs: list[DescribedObject]) -> list[DescribedObject]:
        """Return the jobs with arrays expanded; log arrays that cannot be read, once."""
        unknown: dict[str, str] = {}
        listed = expand_arrays(jobs, unknown)
        for name in unknown.keys() - self._unknown_arrays.keys():
            _log.warning("%s", _UNKNOWN_ARRAY.format(name, unknown[name]))
        self._unknown_arrays = unknown
        return listed

    def _new_builder(self) -> StateBuilder:
        words = make_fact_parsers(self._types)
        return StateBuilder(words, self._by_hand.started_by) if self._by_hand else StateBuilder(words)

    async def _read_types(self) -> None:
        """Read the types of the server's resources. If the server refuses, the last known types are kept."""
        try:
            types = parse_resource_types(await self._describe(RESOURCES))
            self._refused = ""
        except ServerRefusedError as error:
            if not self._refused:
                _log.warning("the types of resources are read from their values: %s", error)
            self._refused = str(error)
            return
        if types != self._types:
            self._types = types
            self._builder = self._new_builder()

    def _note_named_vnodes(self, jobs: list[DescribedObject]) -> None:
        """Note which vnodes jobs request by name. Those of former jobs stay while there are few: each other
        set changes the hosts.
        """
        named = requested_vnodes(job.values.get("schedselect", "") for job in jobs)
        both = self._named_vnodes | named
        self._named_vnodes = frozenset(both if len(both) <= MAX_KINDS else named)

    def _hosts(self, vnodes: list[DescribedObject]) -> Hosts:
        self.hosts = group_by_host(vnodes, self._types, self._named_vnodes, by_host=self._by_host)
        single = self.hosts.apart
        if single - self._warned:
            why = "they are of several queues" if self._by_host else "server.plan_by is vnode"
            _log.warning(
                "each vnode of %s is planned as a host of its own, as %s: scatter, pack and exclhost are of "
                "vnodes there",
                ", ".join(sorted(single)),
                why,
            )
        self._warned = single
        at: dict[str, list[DescribedObject]] = {}
        for vnode in vnodes if self.hosts.members else ():
            if host := self.hosts.node_of.get(vnode.name):
                at.setdefault(host, []).append(vnode)
        self.vnodes = at
        return self.hosts

    def _ours(self, schedulers: Iterable[DescribedObject]) -> OwnPartition:
        for one in schedulers:
            if one.name == self._name:
                partition = "" if self._name == DEFAULT else one.values.get("partition", "")
                scheduling = one.values.get("scheduling", "").lower() == "true"
                return OwnPartition(partition, scheduling, scheduling_attributes(one.values))
        return OwnPartition("", True)

    async def _ended(self, seen: set[str]) -> list[DescribedObject]:
        """Return how missing jobs ended, from the server's history; jobs that waited in the last reading may
        have run since.

        The first reading returns recently ended jobs: the daemon may know them as running.
        """
        now = int(self._clock())
        since, self._looked_at = self._looked_at, now
        if self._before is None:
            return [job for job in await self._over_since(now - _OF_LATE) if job.name not in seen]
        gone = {job.id for job in self._before.jobs.values() if job.id not in seen}
        if len(gone) > _NAMED:
            return [job for job in await self._over_since(since - _MARGIN) if job.name in gone]
        if not gone:
            return []
        found: list[DescribedObject] = []
        try:
            found = await self._describe(job_request(",".join(sorted(gone)), history=True))
        except ServerRefusedError as error:
            if error.code not in NO_SUCH_JOB:  # it keeps no history
                _log.debug("how %s ended is not known: %s", ", ".join(sorted(gone)), error)
        return [job for job in found if job.name not in seen]

    async def _over_since(self, moment: int) -> list[DescribedObject]:
        try:
            late = await self._describe(ended_since(moment))
        except ServerRefusedError as error:
            _log.info("what ended while nobody looked is not known: %s", error)
            return []
        return [job for job in late if is_over(job.values)]

    async def settings(self) -> list[ObjectSettings]:
        """Return the settings of the server, its queues, schedulers and resources. Raises as `read` does."""
        described = [ObjectSettings("server", one.name, one.values) for one in await self._describe(SERVER)]
        described += [ObjectSettings("queue", one.name, one.values) for one in await self._describe(QUEUES)]
        described += [
            ObjectSettings("scheduler", one.name, one.values) for one in await self._describe(SCHEDULERS)
        ]
        with suppress(ServerRefusedError):  # an old server does not support this
            described += [
                ObjectSettings("resource", one.name, one.values) for one in await self._describe(RESOURCES)
            ]
        return described

    async def _describe(self, request: StatusRequest | SelectStatusRequest) -> list[DescribedObject]:
        async with self._link.borrow() as connection:
            return await connection.describe(request)


def _has_exclusive_use(vnode: Values) -> bool:
    """Return whether a job's share of the vnode depends on the vnode's state."""
    return is_exclusive(vnode) or vnode.get("sharing", SHARED) != SHARED


def _spelled(one: DescribedObject, types: ResourceTypes) -> DescribedObject:
    """Return the reservation with the server's spelling of resources in its selects."""
    changed = {
        name: spelled
        for name in ("schedselect", "Resource_List.select")
        if (text := one.values.get(name)) and (spelled := types.spelled_select(text)) != text
    }
    return DescribedObject(one.object_type, one.name, {**one.values, **changed}) if changed else one


def _translate_placements(found: list[DescribedObject], hosts: Hosts) -> list[DescribedObject]:
    """Replace vnodes by planned nodes."""
    if not hosts.members:
        return found
    return [
        one
        if (values := hosts.translate_placement(one.values)) is one.values
        else DescribedObject(one.object_type, one.name, dict(values))
        for one in found
    ]


def _holds(values: Values, vnodes: Collection[str]) -> bool:
    """Return whether another scheduler's job runs on vnodes that were its before."""
    where = values.get("exec_vnode", "") if values.get("job_state") in _HOLDING else ""
    return bool(where) and any(share.node in vnodes for share in shares(where))


def _restrict_to_nodes(held: ServerReservation, nodes: Collection[str]) -> ServerReservation | None:
    """Return the part of a reservation on the nodes of this partition; None without any."""
    ours = tuple([name for name in held.nodes if name in nodes])
    if not ours or len(ours) == len(held.nodes):
        return held if ours else None
    return replace(held, nodes=ours, shares=tuple(one for one in held.shares if one.node in nodes))


def _bind_queues_to_nodes(
    queues: Mapping[str, QueueFacts], with_nodes: Collection[str]
) -> Mapping[str, QueueFacts]:
    """Restrict jobs of a queue with vnodes to these vnodes, and all other jobs to vnodes without a queue.

    This is written as the default of ``neednodes``, which maps queues to nodes. The server does the same for
    pbs_sched with the vnodes' attribute ``queue``, and leaves it to the scheduler.
    """
    if not with_nodes:
        return queues
    return {
        name: replace(
            queue,
            defaults={
                **queue.defaults,
                "neednodes": f"{OF_QUEUE}={name}" if name in with_nodes else f"!{OF_QUEUE}=True",
            },
        )
        for name, queue in queues.items()
    }


def _open_reservation_queues(state: ServerState, begins: Mapping[str, int]) -> ServerState:
    """Let jobs of a reservation be planned from its begin on, although its queue is not started before.

    A run decision does not rely on this: the check before the run reads whether the queue is started.
    """
    ahead = {name for name in begins if name in state.queues and not state.queues[name].started}
    if not ahead:
        return state
    queues = {
        name: replace(queue, started=True) if name in ahead else queue for name, queue in state.queues.items()
    }
    jobs = {
        name: replace(job, not_before=max(job.not_before or 0, begins[job.queue]))
        for name, job in state.jobs.items()
        if job.queue in ahead and job.state not in ACTIVE
    }
    return replace(state, queues=queues, jobs={**state.jobs, **jobs})


def _state_sharing(state: ServerState) -> ServerState:
    """Write into the `place` of the jobs of reservations whether they have its vnodes to themselves, by the
    `sharing` of these vnodes: the daemon knows only classes of nodes, which outlast reservations.
    """
    sharing: dict[str, set[str]] = {}
    for node in state.nodes.values():
        own = [one.removeprefix("sharing=") for one in node.properties if one.startswith("sharing=")]
        for one in node.properties:
            if one.startswith("resv="):
                sharing.setdefault(one.removeprefix("resv="), set()).update(own or [SHARED])
    special = {name for name, found in sharing.items() if found != {SHARED}}
    changed = {}
    for name, job in state.jobs.items() if special else ():
        if job.queue in special:
            place = job.resources.get("place", "free")
            alone = any(takes_vnode(place, {"sharing": one}) for one in sharing[job.queue])
            words = [word for word in place.split(":") if word not in ("excl", "exclhost", "shared")]
            place = ":".join([*words, "excl" if alone else "shared"])
            changed[name] = replace(job, resources={**job.resources, "place": place})
    return replace(state, jobs={**state.jobs, **changed}) if changed else state


def _charge_exclusive_jobs(state: ServerState, ours: OwnPartition, whole: Collection[str]) -> ServerState:
    """Charge exclusive jobs, except on vnodes that ignore this, and jobs on the vnodes `whole`, with all
    resources of their vnodes; apply the scheduler's own setting `scheduling`.
    """
    changed = {}
    ignoring = {name for name, node in state.nodes.items() if "sharing=ignore_excl" in node.properties}
    for name, job in state.jobs.items():
        if job.shares and (job.exclusive or whole):
            shares = tuple(
                [
                    _full_share(share, state)
                    if share.node in whole or (job.exclusive and share.node not in ignoring)
                    else share
                    for share in job.shares
                ]
            )
            if shares != job.shares:
                changed[name] = replace(job, shares=shares)
    server: ServerFacts = replace(
        state.server,
        scheduling=state.server.scheduling and ours.scheduling,
        attributes={**ours.attributes, **state.server.attributes},
    )
    jobs: Mapping[str, JobFacts] = {**state.jobs, **changed} if changed else state.jobs
    return replace(state, jobs=jobs, server=server)


def _full_share(share: ShareFacts, state: ServerState) -> ShareFacts:
    node = state.nodes.get(share.node)
    return share if node is None else ShareFacts(share.node, node.cpus, node.mem or share.mem, node.gpus)
