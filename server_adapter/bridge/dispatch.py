"""Carries out run decisions: looks once more, asks for the run, and finds out what became of it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from schedd.wire import JobFacts, Run
from server_adapter.bridge.checks import Check, Verdict, check_decision, check_job, check_nodes
from server_adapter.bridge.commands import run_request
from server_adapter.bridge.facts import Values, ending, job_facts
from server_adapter.bridge.journal import Journal
from server_adapter.bridge.link import ServerLink
from server_adapter.bridge.question import Question
from server_adapter.bridge.rates import NodeRates, Rate
from server_adapter.dis import Attribute
from server_adapter.torque.attributes import NodeStatus
from server_adapter.torque.codes import RequestCode
from server_adapter.torque.connection import Connection
from server_adapter.torque.describe import parse_node
from server_adapter.torque.errors import (
    ProtocolError,
    ServerCode,
    ServerRefusedError,
    ServerUnreachableError,
)
from server_adapter.torque.requests import StatusRequest

_log = logging.getLogger(__name__)

_ONE_BY_ONE = 4  # nodes asked for singly; of more, all are asked for at once
_NODE_ATTRIBUTES = ("state", "np", "jobs")
_SCHEDULING = StatusRequest(code=RequestCode.STATUS_SERVER, attributes=(Attribute("scheduling"),))
_BUSY = frozenset({ServerCode.RESCUNAV, ServerCode.RERUNNING, ServerCode.BUSY})
_SETTLING = 2.0  # seconds until a run whose answer was lost is looked for


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run decision. `code` is the server's, 0 for a refusal of our own.

    `busy` means that the same may succeed in a moment.
    """

    accepted: bool
    code: int = 0
    text: str = ""
    busy: bool = False


@dataclass(frozen=True, slots=True)
class RunRules:
    """How runs are asked for; times in seconds, rates per second."""

    asynchronous: bool = True
    busy_retries: int = 3
    busy_wait: float = 1.0
    per_second: float = 50.0
    per_node: float = 10.0


class Dispatcher:
    """Runs decisions, one request at a time; those that wait for a busy node let others go first.

    `barred` tells in words why nothing may start now (shadow mode, another scheduler), or nothing; `jobs` is
    what is asked about a job right before its run.
    """

    def __init__(
        self,
        link: ServerLink,
        journal: Journal,
        barred: Callable[[], str],
        rules: RunRules,
        jobs: Question,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._link = link
        self._journal = journal
        self._barred = barred
        self._rules = rules
        self._clock = clock
        self._sleep = sleep
        self._job_question = jobs
        self._node_question = Question(RequestCode.STATUS_NODE, _NODE_ATTRIBUTES)
        self._rate = Rate(rules.per_second, burst=max(1, int(rules.per_second)))
        self._node_rates = NodeRates(rules.per_node, burst=max(1, int(rules.per_node)))

    async def run(self, run: Run) -> Outcome:
        """Carries out one decision; never raises for anything that the server or the network does."""
        if _name(run) in self._journal.before:
            return await self._find_out(run, "it was asked for before the adapter was restarted")
        attempt = 0
        while True:
            check = self._may_run(run)
            if check.verdict is not Verdict.RUN:
                return Outcome(False, 0, check.reason)
            self._journal.see_term(run.term)
            await self._keep_rates(run)
            try:
                tried = await self._try(run)
            except ServerRefusedError as error:
                tried = Outcome(False, error.code, error.text or str(error), busy=error.code in _BUSY)
            except (ServerUnreachableError, ProtocolError) as error:
                return await self._find_out(run, str(error))
            if not tried.busy or attempt == self._rules.busy_retries:
                return tried
            attempt += 1
            await self._sleep(self._rules.busy_wait)

    def _may_run(self, run: Run) -> Check:
        barred = self._barred()
        if barred:
            return Check(Verdict.REFUSE, barred)
        return check_decision(run, now=self._clock(), term=self._journal.term)

    async def _keep_rates(self, run: Run) -> None:
        nodes = [share.node for share in run.shares]
        while True:
            now = time.monotonic()
            wait = max(self._rate.wait(now), self._node_rates.wait(nodes, now))
            if wait <= 0:
                break
            await self._sleep(wait)
        self._rate.take(now)
        self._node_rates.take(nodes, now)

    async def _try(self, run: Run) -> Outcome:
        """Looks and asks on one connection, with nobody's requests in between."""
        async with self._link.talk() as connection:
            check = await self._look(connection, run)
            if check.verdict is Verdict.RUNS:
                return Outcome(True, text=check.reason)
            if check.verdict is Verdict.BUSY:
                return Outcome(False, 0, check.reason, busy=True)
            if check.verdict is Verdict.REFUSE:
                return Outcome(False, 0, check.reason)
            self._journal.ask(run.job_id, _name(run))
            request = run_request(run, asynchronous=self._rules.asynchronous)
            _log.debug("asks to run %s on %s (%s)", run.job_id, request.destination, run.id)
            await connection.request(request)
            return Outcome(True)

    async def _look(self, connection: Connection, run: Run) -> Check:
        server = await connection.describe(_SCHEDULING)
        if server and server[0].values.get("scheduling", "True").lower().startswith("f"):
            return Check(Verdict.REFUSE, "the server's scheduling is False")
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

    async def _nodes(self, connection: Connection, run: Run) -> dict[str, NodeStatus]:
        names = [share.node for share in run.shares]
        asked = names if len(names) <= _ONE_BY_ONE else [""]
        nodes: dict[str, NodeStatus] = {}
        for name in asked:
            try:
                found = await self._node_question.ask(connection, name)
            except ServerRefusedError as error:
                if error.code == ServerCode.UNKNODE:
                    continue
                raise
            nodes |= {node.name: parse_node(node.name, node.values) for node in found}
        return nodes

    async def _find_out(self, run: Run, reason: str) -> Outcome:
        """The server may have had the request: look whether the job runs. It is not asked for again."""
        _log.warning("run of %s: %s; looking what became of it", run.job_id, reason)
        while True:
            await self._sleep(_SETTLING)
            try:
                async with self._link.talk() as connection:
                    values = await self._job(connection, run.job_id)
            except (ServerUnreachableError, ProtocolError, ServerRefusedError):
                if self._clock() < run.expires:
                    continue
                return Outcome(False, 0, f"{reason}; not reached again in time")
            check = check_job(run, _living(run.job_id, values))
            if check.verdict is Verdict.RUNS or _ran(run, values):
                return Outcome(True, text=check.reason)
            return Outcome(False, 0, f"{reason}; {check.reason or 'the job is still queued'}")


def _name(run: Run) -> str:
    """Of one decision alone: a daemon that kept nothing begins its ids anew."""
    return f"{run.id}@{run.time}"


def _living(job: str, values: Values | None) -> JobFacts | None:
    return None if values is None or values.get("job_state") == "C" else job_facts(job, values)


def _ran(run: Run, values: Values | None) -> bool:
    """Whether the job is complete already, after a run on the nodes of the decision."""
    if values is None or values.get("job_state") != "C":
        return False
    held = {share.node: share.cpus for share in ending(values).shares}
    return held == {share.node: share.cpus for share in run.shares}
