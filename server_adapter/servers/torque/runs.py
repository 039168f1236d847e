"""Starts jobs at a TORQUE server: the last look, the request, and what became of it."""

import logging
from collections.abc import Callable
from typing import Final

from schedd.wire import JobFacts, Run
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.bridge.checks import Check, NodeRoom, Verdict, check_job, check_nodes
from server_adapter.bridge.facts import Values
from server_adapter.bridge.server import Outcome
from server_adapter.dis import Attribute
from server_adapter.servers.torque.facts import ending, job_facts
from server_adapter.servers.torque.link import ServerLink
from server_adapter.servers.torque.question import Question
from server_adapter.servers.torque.requests import run_request
from server_adapter.torque.codes import RequestCode
from server_adapter.torque.connection import Connection
from server_adapter.torque.errors import BUSY, ServerCode
from server_adapter.torque.node_status import NodeStatus, parse_node
from server_adapter.torque.requests import StatusRequest

_log = logging.getLogger(__name__)

_ONE_BY_ONE: Final = 4  # nodes asked for singly; of more, all are asked for at once
_NODE_ATTRIBUTES: Final = ("state", "np", "jobs")
_SCHEDULING: Final = StatusRequest(code=RequestCode.STATUS_SERVER, attributes=(Attribute("scheduling"),))


class Starter:
    """Asks for runs. `jobs` is what is asked about a job right before its run."""

    def __init__(self, link: ServerLink, jobs: Question, *, asynchronous: bool) -> None:
        self._link = link
        self._asynchronous = asynchronous
        self._job_question = jobs
        self._node_question = Question(RequestCode.STATUS_NODE, _NODE_ATTRIBUTES)

    async def became(self, run: Run) -> Check:
        """Whether the job runs, or ran, as decided."""
        async with self._link.talk() as connection:
            values = await self._job(connection, run.job_id)
        if _ran(run, values):
            return Check(Verdict.RUNS)
        return check_job(run, _living(run.job_id, values))

    async def run(self, run: Run, asked: Callable[[], None]) -> Outcome:
        """Looks and asks on one connection, with nobody's requests in between."""
        async with self._link.talk() as connection:
            check = await self._look(connection, run)
            if check.verdict is Verdict.RUNS:
                return Outcome(True, text=check.reason)
            if check.verdict is Verdict.BUSY:
                return Outcome(False, 0, check.reason, busy=True)
            if check.verdict is Verdict.REFUSE:
                return Outcome(False, 0, check.reason)
            asked()
            request = run_request(run, asynchronous=self._asynchronous)
            _log.debug("asks to run %s on %s (%s)", run.job_id, request.destination, run.id)
            try:
                await connection.request(request)
            except ServerRefusedError as error:
                return Outcome(False, error.code, error.text or str(error), busy=error.code in BUSY)
            return Outcome(True)

    async def _look(self, connection: Connection, run: Run) -> Check:
        server = await connection.describe(_SCHEDULING)
        if server and server[0].values.get("scheduling", "True").lower().startswith("f"):
            return Check(Verdict.REFUSE, "the server's scheduling is False")
        if without := [share.node for share in run.shares if share.cpus < 1]:
            return Check(Verdict.REFUSE, f"the decision gives no cores on {without[0]}")
        check = check_job(run, _living(run.job_id, await self._job(connection, run.job_id)))
        if check.verdict is not Verdict.RUN:
            return check
        return check_nodes(run, await self._nodes(connection, run))

    async def _job(self, connection: Connection, job: str) -> Values | None:
        try:
            found = await self._job_question.ask(connection, job)
        except ServerRefusedError as error:
            if error.code == ServerCode.UNKJOBID:
                return None
            raise
        return found[0].values if found else None

    async def _nodes(self, connection: Connection, run: Run) -> dict[str, NodeRoom]:
        names = [share.node for share in run.shares]
        asked = names if len(names) <= _ONE_BY_ONE else [""]
        nodes: dict[str, NodeRoom] = {}
        for name in asked:
            try:
                found = await self._node_question.ask(connection, name)
            except ServerRefusedError as error:
                if error.code == ServerCode.UNKNODE:
                    continue
                raise
            nodes |= {node.name: _room(parse_node(node.name, node.values)) for node in found}
        return nodes


def _living(job: str, values: Values | None) -> JobFacts | None:
    return None if values is None or values.get("job_state") == "C" else job_facts(job, values)


def _ran(run: Run, values: Values | None) -> bool:
    """Whether the job is complete already, after a run on the nodes of the decision."""
    if values is None or values.get("job_state") != "C":
        return False
    held = {share.node: share.cpus for share in ending(values).shares}
    return held == {share.node: share.cpus for share in run.shares}


def _room(node: NodeStatus) -> NodeRoom:
    return NodeRoom(node.slots, node.used, down=node.down, offline=node.offline)
