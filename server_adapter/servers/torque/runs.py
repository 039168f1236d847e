"""Starts jobs on a TORQUE server: check before the run, request, outcome."""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from schedd.wire import JobFacts, Run
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import RunRequest
from server_adapter.bridge.facts import Values, parse_count, parse_or
from server_adapter.bridge.link import LinkPool
from server_adapter.bridge.run_checks import FreeNodeCapacity, RunCheck, RunVerdict, check_job, check_nodes
from server_adapter.bridge.server import RunOutcome
from server_adapter.bridge.state import ServerState
from server_adapter.servers.decided_walltimes import DecidedWalltimes
from server_adapter.servers.job_requests import QUEUE_QUERY, SERVER_QUERY, StartConditions, start_conditions
from server_adapter.servers.torque.attribute_query import AttributeQuery
from server_adapter.servers.torque.facts import array_id, ending, job_facts, node_state
from server_adapter.servers.torque.link import TorqueLink
from server_adapter.servers.torque.requests import run_request, walltime_request
from server_adapter.servers.view_expiry import view_expiry
from server_adapter.torque.connection import TorqueConnection
from server_adapter.torque.errors import BUSY, TorqueErrorCode
from server_adapter.torque.notation import node_jobs, seconds

_log = logging.getLogger(__name__)

_ONE_BY_ONE: Final = 4  # nodes requested by name; above this number all are requested at once
_SLOT_LIMIT: Final = re.compile(r"Array slot limit is (\d{1,9})\b")
_REMEMBERED: Final = 10_000  # jobs with a synchronous next run
_NODE_ATTRIBUTES: Final = ("state", "np", "jobs")
_NO_JOBS: Final[Mapping[str, int]] = {}


@dataclass(slots=True)
class _NodeView:
    """Current state of nodes, shared by several decisions.

    Jobs are not included: each job is described again right before its run. `nodes` includes the cores of
    runs requested since.
    """

    expires: float
    conditions: StartConditions
    nodes: dict[str, FreeNodeCapacity]

    def covers(self, run: Run, now: float) -> bool:
        """Return whether this is a current view of the decision's nodes."""
        return now <= self.expires and all(share.node in self.nodes for share in run.shares)

    def spend(self, run: Run) -> None:
        """Count what a run takes."""
        for share in run.shares:
            room = self.nodes[share.node]
            self.nodes[share.node] = replace(room, used=room.used + share.cpus)


class TorqueStarter:
    """Requests runs. `jobs` is the query for a job right before its run.

    One view covers the nodes of all waiting decisions: with a view for each, most of the time of a burst of
    short jobs would be spent waiting for the server. `lost_jobs` returns the jobs that the server lists on
    nodes that do not have them; they take no cores. `state_slot_limit` gets the array and the limit of a
    refusal that states one. Each of `links` serves one decision at a time. Requests cannot be pipelined on
    one connection, since a TORQUE server discards bytes after a request.

    A server that has accepted an asynchronous run tells nobody why it gives the job back: a node that refuses
    it, an array's slot limit that a user has lowered. The next run of that job, and of all subjobs of its
    array, is therefore synchronous, and a refusal has the reason.
    """

    def __init__(
        self,
        links: Sequence[TorqueLink],
        jobs: AttributeQuery,
        lost_jobs: Callable[[], Collection[str]] = tuple,
        state_slot_limit: Callable[[str, int], None] = lambda *_: None,
        *,
        asynchronous: bool,
        walltimes: DecidedWalltimes | None = None,
    ) -> None:
        self._pool = LinkPool(links)
        self._looking = asyncio.Lock()
        self._requests = 0
        self._requested = 0  # runs without a reply yet
        self._answered = asyncio.Event()
        self._answered.set()
        self._asynchronous = asynchronous
        self._begun: dict[str, None] = {}  # jobs with an earlier run, and arrays with returned subjobs
        self._job_query = jobs
        self._lost_jobs = lost_jobs
        self._state_slot_limit = state_slot_limit
        self._node_query = AttributeQuery(RequestCode.STATUS_NODE, _NODE_ATTRIBUTES)
        self._waiting: dict[int, Run] = {}
        self._walltimes = DecidedWalltimes() if walltimes is None else walltimes
        self._latest_view: _NodeView | None = None

    async def verify_run(self, run: Run) -> RunCheck:
        """Return whether the job runs, or ran, as decided."""
        async with self._pool.borrow() as connection:
            values = await self._job(connection, run.job_id)
            check = (
                RunCheck(RunVerdict.RUNS)
                if _ran(run, values)
                else check_job(run, _living(run.job_id, values))
            )
            if check.verdict is RunVerdict.RUNS:
                self._walltimes.forget(run.job_id)
            else:
                await self._restore_walltime(connection, run.job_id)
        return check

    async def run(self, run: Run, on_request: Callable[[], None]) -> RunOutcome:
        """Check and request the run on one connection, without other requests in between."""
        self._waiting[id(run)] = run
        try:
            async with self._pool.borrow() as connection:
                del self._waiting[id(run)]
                return await self._run(connection, run, on_request)
        finally:
            self._waiting.pop(id(run), None)

    async def _run(
        self, connection: TorqueConnection, run: Run, on_request: Callable[[], None]
    ) -> RunOutcome:
        alone = False
        await self._restore_walltime(connection, run.job_id)  # of an attempt that was interrupted
        while True:
            view, shared = await self._view(connection, run)
            known = await self._job(connection, run.job_id) if view.conditions.scheduling else None
            job = _living(run.job_id, known)
            check = _check(run, job, view)
            if view is not self._latest_view and check.verdict is RunVerdict.RUN:
                continue  # another decision made a newer view, which does not count this run
            if alone or not shared or check.verdict not in (RunVerdict.BUSY, RunVerdict.REFUSE):
                break
            alone = True
            if view is self._latest_view:
                self._latest_view = None  # the obstacle may be gone
        if check.verdict is not RunVerdict.RUN:
            runs, busy = check.verdict is RunVerdict.RUNS, check.verdict is RunVerdict.BUSY
            return RunOutcome(runs, 0, check.reason, busy=busy)
        on_request()
        came_back, array = run.job_id in self._begun, array_id(run.job_id)
        if came_back and array:
            self._remember(array)
        asynchronous = self._asynchronous and not came_back and array not in self._begun
        request = run_request(run, job.resources if job else {}, asynchronous=asynchronous)
        _log.debug("asks to run %s on %s (%s)", run.job_id, request.destination, run.id)
        view.spend(run)
        self._requests += 1
        self._requested += 1
        self._answered.clear()
        try:
            refusal = await self._set_walltime(connection, run, job)
            if refusal is None:
                refusal = await self._request_run(connection, request, run)
        except BaseException:
            self._latest_view = None
            raise
        finally:
            self._requested -= 1
            if not self._requested:
                self._answered.set()
        if refusal is not None:
            self._latest_view = None
            return refusal
        self._walltimes.forget(run.job_id)
        self._remember(run.job_id)
        return RunOutcome(True)

    def _remember(self, job: str) -> None:
        self._begun[job] = None
        if len(self._begun) > _REMEMBERED:
            del self._begun[next(iter(self._begun))]

    async def _set_walltime(
        self, connection: TorqueConnection, run: Run, job: JobFacts | None
    ) -> RunOutcome | None:
        """Set the walltime that was decided. A refusal refuses the run, since the job would otherwise run for
        longer or shorter than planned.
        """
        if run.walltime is None or run.walltime == _walltime(job):
            return None
        self._walltimes.note(run.job_id, _walltime(job), run.walltime)
        try:
            await connection.request(walltime_request(run.job_id, run.walltime))
        except ServerRefusedError as error:
            self._walltimes.forget(run.job_id)
            return RunOutcome(False, error.code, f"its walltime could not be set: {error.text or error}")
        return None

    async def _request_run(
        self, connection: TorqueConnection, request: RunRequest, run: Run
    ) -> RunOutcome | None:
        try:
            await connection.request(request)
        except ServerRefusedError as error:
            if stated := _SLOT_LIMIT.search(error.text):
                self._state_slot_limit(array_id(run.job_id), int(stated[1]))
            await self._restore_walltime(connection, run.job_id)
            return RunOutcome(False, error.code, error.text or str(error), busy=error.code in BUSY)
        return None

    async def _restore_walltime(self, connection: TorqueConnection, job: str) -> None:
        await self._walltimes.restore(
            job, lambda name, before: connection.request(walltime_request(name, before))
        )

    @property
    def trouble(self) -> str:
        """Why walltimes set for runs would not survive a restart; empty if they would."""
        return self._walltimes.trouble

    async def restore_walltimes(self, state: ServerState) -> None:
        """Give the jobs that a former adapter left with the walltime of a run their own one back."""
        for job in self._walltimes.to_restore(state, lambda text: parse_or(seconds, text or None, default=0)):
            async with self._pool.borrow() as connection:
                await self._restore_walltime(connection, job)

    async def _view(self, connection: TorqueConnection, run: Run) -> tuple[_NodeView, bool]:
        """Return a view for this decision: the last one if it is current and has its nodes, else a new one
        for all waiting decisions; and whether it was made for another decision.
        """
        async with self._looking:
            view = self._latest_view
            if view is not None and view.covers(run, time.monotonic()):
                return view, True
            while True:
                while self._requested:  # a view may or may not include this run
                    await self._answered.wait()
                before = self._requests
                view = await self._make_view(connection, run)
                if self._requests == before:  # else it may lack a run that was checked with the former view
                    return view, False

    async def _make_view(self, connection: TorqueConnection, run: Run) -> _NodeView:
        began = time.monotonic()
        server = await connection.describe(SERVER_QUERY)
        conditions = start_conditions(server, await connection.describe(QUEUE_QUERY))
        waiting = (run, *self._waiting.values())
        names = list(dict.fromkeys(share.node for one in waiting for share in one.shares))
        nodes = await self._nodes(connection, names)
        view = self._latest_view = _NodeView(view_expiry(began, time.monotonic()), conditions, nodes)
        return view

    async def _job(self, connection: TorqueConnection, job: str) -> Values | None:
        try:
            found = await self._job_query.fetch(connection, job)
        except ServerRefusedError as error:
            if error.code == TorqueErrorCode.UNKJOBID:
                return None
            raise
        return found[0].values if found else None

    async def _nodes(self, connection: TorqueConnection, names: Sequence[str]) -> dict[str, FreeNodeCapacity]:
        requested = names if len(names) <= _ONE_BY_ONE else [""]
        nodes: dict[str, FreeNodeCapacity] = {}
        for name in requested:
            try:
                found = await self._node_query.fetch(connection, name)
            except ServerRefusedError as error:
                if error.code == TorqueErrorCode.UNKNODE:
                    continue
                raise
            lost = self._lost_jobs()
            nodes |= {node.name: _free_capacity(node.values, lost) for node in found}
        return nodes


def _check(run: Run, job: JobFacts | None, view: _NodeView) -> RunCheck:
    if not view.conditions.scheduling:
        return RunCheck(RunVerdict.REFUSE, "the server's scheduling is False")
    check = check_job(run, job)
    if check.verdict is not RunVerdict.RUN:
        return check
    check = view.conditions.check(run, job.queue) if job is not None else check
    if check.verdict is not RunVerdict.RUN:
        return check
    return check_nodes(run, view.nodes)


def _walltime(job: JobFacts | None) -> int:
    """Return the walltime of a job in seconds; 0 if it has none."""
    return parse_or(seconds, job.resources.get("walltime") if job is not None else None, default=0)


def _living(job: str, values: Values | None) -> JobFacts | None:
    return None if values is None or values.get("job_state") == "C" else job_facts(job, values)


def _ran(run: Run, values: Values | None) -> bool:
    """Return whether the job has already completed a run on the nodes of the decision."""
    if values is None or values.get("job_state") != "C":
        return False
    held = {share.node: share.cpus for share in ending(values).shares}
    return held == {share.node: share.cpus for share in run.shares}


def _free_capacity(values: Values, lost: Collection[str]) -> FreeNodeCapacity:
    jobs = parse_or(node_jobs, values.get("jobs"), default=_NO_JOBS)
    used = sum(slots for job, slots in jobs.items() if job not in lost)
    state = node_state(values.get("state", ""))
    return FreeNodeCapacity(
        parse_count(values.get("np")), used, down=state == "down", offline=state == "drain"
    )
