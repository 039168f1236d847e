"""Starts jobs at an OpenPBS server: the last look, the request, and what became of it."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final

from schedd.wire import JobFacts, ResourceTypes, Run
from server_adapter.batch.described import Described
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.bridge.checks import Check, NodeRoom, Verdict, check_job, check_nodes
from server_adapter.bridge.facts import ACTIVE, Values
from server_adapter.bridge.server import Outcome
from server_adapter.dis import Attribute, Operation
from server_adapter.openpbs.codes import BUSY, RequestCode, ServerCode
from server_adapter.openpbs.connection import Connection
from server_adapter.openpbs.requests import SelectRequest, StatusRequest
from server_adapter.openpbs.values import parent
from server_adapter.servers.openpbs.arrays import expanded
from server_adapter.servers.openpbs.facts import (
    VnodeUse,
    ending,
    is_over,
    job_facts,
    node_facts,
    vnode_use,
)
from server_adapter.servers.openpbs.hosts import NO_HOSTS, Hosts
from server_adapter.servers.openpbs.placing import exec_vnode
from server_adapter.servers.openpbs.reader import job_request
from server_adapter.servers.openpbs.requests import run_request
from server_adapter.servers.openpbs.rooms import (
    Rooms,
    VnodesFullError,
    held_by,
    rest_of_hosts,
    room,
    takes_hosts,
    takes_vnode,
    usable,
)

_log = logging.getLogger(__name__)

_ONE_BY_ONE: Final = 4  # vnodes asked for singly; of more, all are asked for at once
_NODE_ATTRIBUTES: Final = ("state", "resources_available", "resources_assigned", "sharing", "resv")
_PLACES: Final = tuple([Attribute(name) for name in ("job_state", "exec_vnode")])
_SCHEDULING: Final = StatusRequest(code=RequestCode.STATUS_SERVER, attributes=(Attribute("scheduling"),))
_GONE: Final = frozenset({ServerCode.UNKJOBID, ServerCode.HISTJOBID})
_NONE: Final = frozenset({ServerCode.UNKNODE, ServerCode.NONODES})

Talk = Callable[[], AbstractAsyncContextManager[Connection]]


class Starter:
    """Asks for runs, on the connection that `talk` lends."""

    def __init__(
        self,
        talk: Talk,
        *,
        asynchronous: bool,
        queues: Callable[[], Collection[str] | None] = lambda: None,
        hosts: Callable[[], Hosts] = lambda: NO_HOSTS,
    ) -> None:
        """`queues` are those whose jobs are ours to start; None: nobody has looked yet, and all are.

        `hosts` are those that are one node of the plan.
        """
        self._talk = talk
        self._queues = queues
        self._hosts = hosts
        self._asynchronous = asynchronous

    async def run(self, run: Run, asked: Callable[[], None]) -> Outcome:
        """Looks and asks on one connection, with nobody's requests in between."""
        async with self._talk() as connection:
            server = await connection.describe(_SCHEDULING)
            if server and server[0].values.get("scheduling", "True").lower().startswith("f"):
                return Outcome(False, 0, "the server's scheduling is False")
            values = await self._job(connection, run.job_id)
            check = check_job(run, self._living(run.job_id, values))
            queue = (values or {}).get("queue", "")
            ours = self._queues()
            if check.verdict is Verdict.RUN and ours is not None and queue not in ours:
                return Outcome(False, 0, f"queue {queue} is not in this scheduler's partition")
            if check.verdict is Verdict.RUN and values and values.get("reserve_ID"):
                check = await self._begun(connection, queue)
            nodes: dict[str, Described] = {}
            vnodes: list[Described] = []
            if check.verdict is Verdict.RUN:
                vnodes = await self._vnodes(connection, run)
                nodes = {node.name: node for node in self._hosts().nodes(vnodes)}
                reserved = bool(values and values.get("reserve_ID"))
                place = (values or {}).get("Resource_List.place", "free")
                has = {
                    name: _room(found, place, self._hosts().types, reserved=reserved)
                    for name, found in nodes.items()
                }
                check = check_nodes(run, has)
            if check.verdict is Verdict.RUNS:
                return Outcome(True, text=check.reason)
            if check.verdict is not Verdict.RUN:
                return Outcome(False, 0, check.reason, busy=check.verdict is Verdict.BUSY)
            assert values is not None
            try:
                where = await self._where(connection, run, values, nodes, vnodes)
            except VnodesFullError as error:
                return Outcome(False, 0, str(error), busy=True)
            asked()
            _log.debug("asks to run %s on %s (%s)", run.job_id, where, run.id)
            try:
                await connection.request(run_request(run.job_id, where, asynchronous=self._asynchronous))
            except ServerRefusedError as error:
                return Outcome(False, error.code, error.text or str(error), busy=error.code in BUSY)
            return Outcome(True)

    async def became(self, run: Run) -> Check:
        """Whether the job runs, or ran, as decided."""
        async with self._talk() as connection:
            values = await self._job(connection, run.job_id)
        if values is not None and is_over(values):
            values = self._hosts().planned(values)
            held = {share.node: share.cpus for share in ending(values).shares}
            if held == {share.node: share.cpus for share in run.shares}:
                return Check(Verdict.RUNS)
        return check_job(run, self._living(run.job_id, values))

    async def _where(
        self,
        connection: Connection,
        run: Run,
        values: Values,
        nodes: Mapping[str, Described],
        vnodes: Sequence[Described],
    ) -> str:
        """The job's `exec_vnode`; on hosts with several vnodes by what each of them has left."""
        place = values.get("Resource_List.place", "free")
        reservation = values.get("reserve_ID", "").partition(".")[0]
        hosts = self._hosts()
        at = {
            name: [one for one in vnodes if hosts.node_of.get(one.name) == name]
            for name in nodes
            if name in hosts.members
        }
        held: Mapping[str, Mapping[str, int]] = {}
        if at and reservation:
            # Of what its own jobs hold the server counts nothing: the reservation holds it.
            of_queue = (Attribute("destination", values.get("queue", ""), operation=Operation.EQ),)
            request = SelectRequest(conditions=of_queue, attributes=_PLACES, extension="S")
            held = held_by(
                (
                    one.values.get("exec_vnode", "")
                    for one in await connection.describe(request)
                    if one.values.get("job_state") in ACTIVE
                ),
                hosts.types,
            )
        rooms: Rooms = {
            name: [
                room(one, hosts.types, held.get(one.name, {}) if reservation else None)
                for one in usable(found, reservation)
            ]
            for name, found in at.items()
        }
        where = exec_vnode(
            values.get("schedselect", ""),
            run.shares,
            _amounts(nodes.values(), hosts.types),
            rooms,
            whole="vscatter" in place.split(":"),
            tags={
                name: node_facts(name, found.values, types=hosts.types).properties
                for name, found in nodes.items()
            },
            types=hosts.types,
        )
        rest = [
            one.name
            for name, found in at.items()
            if takes_hosts(place, found)
            for one in usable(found, reservation)
        ]
        return rest_of_hosts(where, rest) if rest else where

    def _living(self, job: str, values: Values | None) -> JobFacts | None:
        if values is None or is_over(values):
            return None
        hosts = self._hosts()
        return job_facts(job, hosts.planned(values), hosts.types)

    async def _job(self, connection: Connection, job: str) -> Values | None:
        """The job's attributes; of a subjob that has not run yet, those of its place in the array."""
        try:
            found = await connection.describe(job_request(job, history=True))
        except ServerRefusedError as error:
            if error.code not in _GONE:
                raise
            found = []
        # Of a subjob that waits the server may say what its array says, which has begun (B).
        if found and found[0].values.get("job_state") not in ("Q", "B"):
            return found[0].values
        if "[" in job:
            parents = await connection.describe(job_request(parent(job)))
            found = [one for one in expanded(parents) if one.name == job]
        return found[0].values if found else None

    async def _begun(self, connection: Connection, queue: str) -> Check:
        """A reservation starts its queue when it begins, which the server does not see to for a run."""
        wanted = (Attribute("started"),)
        found = await connection.describe(
            StatusRequest(code=RequestCode.STATUS_QUEUE, name=queue, attributes=wanted)
        )
        if found and found[0].values.get("started", "").lower() == "true":
            return Check(Verdict.RUN)
        return Check(Verdict.BUSY, f"reservation {queue} has not begun")

    async def _vnodes(self, connection: Connection, run: Run) -> list[Described]:
        hosts = self._hosts()
        names = [vnode for share in run.shares for vnode in hosts.vnodes(share.node)]
        wanted = tuple([Attribute(name) for name in _NODE_ATTRIBUTES])
        found: list[Described] = []
        for name in names if len(names) <= _ONE_BY_ONE else [""]:
            request = StatusRequest(code=RequestCode.STATUS_NODE, name=name, attributes=wanted)
            try:
                found += await connection.describe(request)
            except ServerRefusedError as error:
                if error.code not in _NONE:
                    raise
        return [vnode for vnode in found if vnode.name in names]


def _room(node: Described, place: str, types: ResourceTypes, *, reserved: bool) -> NodeRoom:
    """What a node has for a job of this `place`: nothing, if the job is to be alone and another is there.

    A reservation that runs counts as held there and its jobs do not count again: for them, the plan alone
    knows.
    """
    facts, use = node_facts(node.name, node.values, types=types), vnode_use(node.values)
    if reserved:
        use = VnodeUse(0, 0, exclusive=False)
    elif (use.cpus or use.mem) and takes_vnode(place, node.values):
        use = replace(use, exclusive=True)
    return NodeRoom(
        facts.cpus,
        facts.cpus if use.exclusive else use.cpus,
        down=facts.state == "down",
        offline=facts.state == "drain",
        mem=facts.mem,
        mem_used=use.mem,
    )


def _amounts(nodes: Collection[Described], types: ResourceTypes) -> set[str]:
    return {name for node in nodes for name in node_facts(node.name, node.values, types=types).resources}
