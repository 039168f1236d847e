"""Starts jobs at an OpenPBS server: the last look, the request, and what became of it."""

import logging
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import Final

from schedd.wire import JobFacts, Run
from server_adapter.batch.described import Described
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.bridge.checks import Check, NodeRoom, Verdict, check_job, check_nodes
from server_adapter.bridge.facts import Values
from server_adapter.bridge.server import Outcome
from server_adapter.dis import Attribute
from server_adapter.openpbs.codes import BUSY, RequestCode, ServerCode
from server_adapter.openpbs.connection import Connection
from server_adapter.openpbs.requests import StatusRequest
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
from server_adapter.servers.openpbs.placing import exec_vnode
from server_adapter.servers.openpbs.reader import job_request
from server_adapter.servers.openpbs.requests import run_request

_log = logging.getLogger(__name__)

_ONE_BY_ONE: Final = 4  # vnodes asked for singly; of more, all are asked for at once
_NODE_ATTRIBUTES: Final = ("state", "resources_available", "resources_assigned")
_SCHEDULING: Final = StatusRequest(code=RequestCode.STATUS_SERVER, attributes=(Attribute("scheduling"),))
_GONE: Final = frozenset({ServerCode.UNKJOBID, ServerCode.HISTJOBID})
_NONE: Final = frozenset({ServerCode.UNKNODE, ServerCode.NONODES})

Talk = Callable[[], AbstractAsyncContextManager[Connection]]


class Starter:
    """Asks for runs, on the connection that `talk` lends."""

    def __init__(
        self, talk: Talk, *, asynchronous: bool, queues: Callable[[], Collection[str] | None] = lambda: None
    ) -> None:
        """`queues` are those whose jobs are ours to start; None: nobody has looked yet, and all are."""
        self._talk = talk
        self._queues = queues
        self._asynchronous = asynchronous

    async def run(self, run: Run, asked: Callable[[], None]) -> Outcome:
        """Looks and asks on one connection, with nobody's requests in between."""
        async with self._talk() as connection:
            server = await connection.describe(_SCHEDULING)
            if server and server[0].values.get("scheduling", "True").lower().startswith("f"):
                return Outcome(False, 0, "the server's scheduling is False")
            values = await self._job(connection, run.job_id)
            check = check_job(run, _living(run.job_id, values))
            queue = (values or {}).get("queue", "")
            ours = self._queues()
            if check.verdict is Verdict.RUN and ours is not None and queue not in ours:
                return Outcome(False, 0, f"queue {queue} is not in this scheduler's partition")
            if check.verdict is Verdict.RUN and values and values.get("reserve_ID"):
                check = await self._begun(connection, queue)
            nodes: dict[str, Described] = {}
            if check.verdict is Verdict.RUN:
                nodes = await self._nodes(connection, run)
                reserved = bool(values and values.get("reserve_ID"))
                room = {name: _room(found, reserved=reserved) for name, found in nodes.items()}
                check = check_nodes(run, room)
            if check.verdict is Verdict.RUNS:
                return Outcome(True, text=check.reason)
            if check.verdict is not Verdict.RUN:
                return Outcome(False, 0, check.reason, busy=check.verdict is Verdict.BUSY)
            assert values is not None
            where = exec_vnode(values.get("schedselect", ""), run.shares, _amounts(nodes.values()))
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
            held = {share.node: share.cpus for share in ending(values).shares}
            if held == {share.node: share.cpus for share in run.shares}:
                return Check(Verdict.RUNS)
        return check_job(run, _living(run.job_id, values))

    async def _job(self, connection: Connection, job: str) -> Values | None:
        """The job's attributes; of a subjob that has not run yet, those of its place in the array."""
        try:
            found = await connection.describe(job_request(job, history=True))
        except ServerRefusedError as error:
            if error.code not in _GONE:
                raise
            found = []
        if found and found[0].values.get("job_state") != "Q":
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

    async def _nodes(self, connection: Connection, run: Run) -> dict[str, Described]:
        names = [share.node for share in run.shares]
        wanted = tuple([Attribute(name) for name in _NODE_ATTRIBUTES])
        found: list[Described] = []
        for name in names if len(names) <= _ONE_BY_ONE else [""]:
            request = StatusRequest(code=RequestCode.STATUS_NODE, name=name, attributes=wanted)
            try:
                found += await connection.describe(request)
            except ServerRefusedError as error:
                if error.code not in _NONE:
                    raise
        return {node.name: node for node in found if node.name in names}


def _living(job: str, values: Values | None) -> JobFacts | None:
    return None if values is None or is_over(values) else job_facts(job, values)


def _room(node: Described, *, reserved: bool) -> NodeRoom:
    """What a vnode has for the job.

    A reservation that runs counts as held there and its jobs do not count again: for them, the plan alone
    knows.
    """
    facts, use = node_facts(node.name, node.values), vnode_use(node.values)
    if reserved:
        use = VnodeUse(0, 0, exclusive=False)
    return NodeRoom(
        facts.cpus,
        facts.cpus if use.exclusive else use.cpus,
        down=facts.state == "down",
        offline=facts.state == "drain",
        mem=facts.mem,
        mem_used=use.mem,
    )


def _amounts(nodes: Collection[Described]) -> set[str]:
    return {name for node in nodes for name in node_facts(node.name, node.values).resources}
