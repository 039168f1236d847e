"""Starts jobs on an OpenPBS server: check before the run, request, outcome."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from schedd.wire import JobFacts, NodeFacts, ResourceTypes, Run
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import (
    BatchError,
    ProtocolError,
    ServerRefusedError,
    ServerUnreachableError,
)
from server_adapter.batch.requests import SelectStatusRequest, StatusRequest
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.facts import ACTIVE, Values, parse_or
from server_adapter.bridge.run_checks import FreeNodeCapacity, RunCheck, RunVerdict, check_job, check_nodes
from server_adapter.bridge.server import RunOutcome
from server_adapter.bridge.state import ServerState
from server_adapter.dis import Attribute, Operation
from server_adapter.openpbs.codes import BUSY, NO_SUCH_JOB, OpenPBSErrorCode
from server_adapter.openpbs.connection import OpenPBSConnection
from server_adapter.openpbs.notation import parent, seconds
from server_adapter.servers.decided_walltimes import DecidedWalltimes
from server_adapter.servers.job_requests import QUEUE_QUERY, SERVER_QUERY, StartConditions, start_conditions
from server_adapter.servers.openpbs.arrays import expand_arrays
from server_adapter.servers.openpbs.exec_vnodes import exec_vnode
from server_adapter.servers.openpbs.facts import (
    VnodeUse,
    ending,
    is_over,
    job_facts,
    node_facts,
    reservations_of,
    vnode_use,
)
from server_adapter.servers.openpbs.hosts import NO_HOSTS, Hosts
from server_adapter.servers.openpbs.reader import job_request
from server_adapter.servers.openpbs.requests import run_request, walltime_request
from server_adapter.servers.openpbs.vnode_capacity import (
    CapacityByHost,
    VnodesFullError,
    add_idle_vnodes,
    held_by,
    remaining_amounts,
    takes_hosts,
    takes_vnode,
    usable,
    vnode_capacity,
)
from server_adapter.servers.view_expiry import view_expiry

_log = logging.getLogger(__name__)

_ONE_BY_ONE: Final = 4  # vnodes requested by name; above this number all are requested at once
_PIPELINED: Final = 8  # decisions that are checked or wait for their replies
_TOGETHER: Final = 50  # maximum number of jobs described by one request
_NODE_ATTRIBUTES: Final = ("state", "resources_available", "resources_assigned", "sharing", "resv")
_PLACES: Final = tuple([Attribute(name) for name in ("job_state", "exec_vnode")])
_NONE: Final = frozenset({OpenPBSErrorCode.UNKNODE, OpenPBSErrorCode.NONODES})

BorrowConnection = Callable[[], AbstractAsyncContextManager[OpenPBSConnection]]


@dataclass(slots=True)
class PreRunView:
    """State of jobs and vnodes right before a run, shared by several decisions.

    `spent` is the resources of runs requested since, by vnode; a vnode with unknown use is left out of
    `vnodes`.
    """

    expires: float
    conditions: StartConditions
    jobs: dict[str, Values | None]
    vnodes: dict[str, DescribedObject]
    spent: dict[str, dict[str, int]] = field(default_factory=dict)

    def has(self, job: str, vnodes: Collection[str], now: float) -> bool:
        """Return whether this is a current view of the job and these vnodes."""
        return now <= self.expires and job in self.jobs and all(one in self.vnodes for one in vnodes)

    def spend(self, where: str, types: ResourceTypes, *, whole: bool) -> None:
        """Count the resources of a run. With `whole`, its vnodes are removed from the view."""
        for vnode, taken in held_by([where], types).items():
            if whole:
                self.vnodes.pop(vnode, None)
                continue
            spent = self.spent.setdefault(vnode, {})
            for name, count in taken.items():
                spent[name] = spent.get(name, 0) + count


@dataclass(frozen=True, slots=True)
class _Checked:
    """Result of the check of a decision."""

    check: RunCheck
    values: Values | None = None
    nodes: Mapping[str, DescribedObject] = field(default_factory=dict)
    facts: Mapping[str, NodeFacts] = field(default_factory=dict)
    vnodes: Sequence[DescribedObject] = ()


class OpenPBSStarter:
    """Requests runs on the connection that `borrow` lends.

    One view covers the jobs and vnodes of all waiting decisions: with a view for each, most of the time of a
    burst of short jobs would be spent waiting for the server.
    """

    def __init__(
        self,
        borrow: BorrowConnection,
        *,
        asynchronous: bool,
        queues: Callable[[], Collection[str] | None] = lambda: None,
        hosts: Callable[[], Hosts] = lambda: NO_HOSTS,
        reservations: Callable[[], Collection[str] | None] = lambda: None,
        walltimes: DecidedWalltimes | None = None,
    ) -> None:
        """`queues` are the queues of this scheduler; None before the first reading: all.

        `hosts` are the hosts that are planned as one node. `reservations` are the names in the last full
        reading; None before it. `walltimes` survive a restart if they have a file.
        """
        self._borrow = borrow
        self._queues = queues
        self._hosts = hosts
        self._reservations = reservations
        self._asynchronous = asynchronous
        self._waiting: dict[int, Run] = {}
        self._walltimes = DecidedWalltimes() if walltimes is None else walltimes
        self._latest_view: PreRunView | None = None
        self._pipeline = asyncio.Semaphore(_PIPELINED)

    async def run(self, run: Run, on_request: Callable[[], None]) -> RunOutcome:
        """Check and request the run on one connection, without other requests in between.

        While the reply is pending, the next decisions are checked and requested.
        """
        self._waiting[id(run)] = run
        try:
            async with self._pipeline:
                async with self._borrow() as connection:
                    del self._waiting[id(run)]
                    await self._restore_walltime(connection, run.job_id)  # of an interrupted attempt
                    begun = await self._request_run(connection, run, on_request)
                outcome = begun if isinstance(begun, RunOutcome) else await self._finish(begun)
                if outcome.accepted:
                    self._walltimes.forget(run.job_id)
                elif run.job_id in self._walltimes:
                    async with self._borrow() as connection:
                        await self._restore_walltime(connection, run.job_id)
                return outcome
        finally:
            self._waiting.pop(id(run), None)

    async def _finish(self, reply: Awaitable[object]) -> RunOutcome:
        """Await the reply; return the outcome of a requested run."""
        try:
            await reply
        except ServerRefusedError as error:
            self._latest_view = None
            return RunOutcome(False, error.code, error.text or str(error), busy=error.code in BUSY)
        except (ServerUnreachableError, ProtocolError):
            self._latest_view = None
            with suppress(BatchError):
                async with self._borrow():  # the owner of the connection notices there that it is broken
                    pass
            raise
        return RunOutcome(True)

    async def _request_run(
        self, connection: OpenPBSConnection, run: Run, on_request: Callable[[], None]
    ) -> RunOutcome | Awaitable[object]:
        """Request a run; return an awaitable for its reply, or the outcome if nothing was requested."""
        view, shared = await self._view(connection, run)
        found = await self._check(connection, run, view)
        if shared and found.check.verdict is not RunVerdict.RUN:
            # The view was made for another decision: the obstacle may be gone.
            self._latest_view = None
            view, _ = await self._view(connection, run)
            found = await self._check(connection, run, view)
        check, values = found.check, found.values
        if check.verdict is RunVerdict.RUNS:
            return RunOutcome(True, text=check.reason)
        if check.verdict is not RunVerdict.RUN or values is None:
            return RunOutcome(False, 0, check.reason, busy=check.verdict is RunVerdict.BUSY)
        try:
            where = await self._exec_vnode(connection, run, values, found, view.spent)
        except ValueError as error:
            full = isinstance(error, VnodesFullError)
            return RunOutcome(False, 0, str(error), busy=full, fragmented=full)
        refusal = await self._set_walltime(connection, run, values)
        if refusal is not None:
            return refusal
        on_request()
        _log.debug("asks to run %s on %s (%s)", run.job_id, where, run.id)
        self._spend(view, values, where, found.nodes)
        return await connection.begin(run_request(run.job_id, where, asynchronous=self._asynchronous))

    async def _set_walltime(
        self, connection: OpenPBSConnection, run: Run, values: Values
    ) -> RunOutcome | None:
        """Set the walltime that was decided; a refusal refuses the run, which had another limit or none."""
        before = parse_or(seconds, values.get("Resource_List.walltime") or None, default=-1)
        if run.walltime is None or run.walltime == before:
            return None
        if not any(f"Resource_List.{name}" in values for name in ("min_walltime", "max_walltime")):
            self._walltimes.note(run.job_id, before, run.walltime)
        try:
            await connection.request(walltime_request(run.job_id, run.walltime))
        except ServerRefusedError as error:
            self._walltimes.forget(run.job_id)
            return RunOutcome(False, error.code, f"its walltime could not be set: {error.text or error}")
        return None

    async def _restore_walltime(self, connection: OpenPBSConnection, job: str) -> None:
        await self._walltimes.restore(
            job, lambda name, before: connection.request(walltime_request(name, before))
        )

    @property
    def trouble(self) -> str:
        """Why walltimes set for runs would not survive a restart; empty if they would."""
        return self._walltimes.trouble

    async def restore_walltimes(self, state: ServerState) -> None:
        """Give the jobs that a former adapter left with the walltime of a run their own one back."""
        for job in self._walltimes.to_restore(
            state, lambda text: parse_or(seconds, text or None, default=-1)
        ):
            async with self._borrow() as connection:
                await self._restore_walltime(connection, job)

    async def _check(self, connection: OpenPBSConnection, run: Run, view: PreRunView) -> _Checked:
        """Check the decision against this view, and remove the job from the view."""
        values = view.jobs.pop(run.job_id)
        if not view.conditions.scheduling:
            return _Checked(RunCheck(RunVerdict.REFUSE, "the server's scheduling is False"))
        check = check_job(run, self._living(run.job_id, values))
        if check.verdict is not RunVerdict.RUN or values is None:
            return _Checked(check, values)
        queue, ours = values.get("queue", ""), self._queues()
        if ours is not None and queue not in ours:
            reason = f"queue {queue} is not in this scheduler's partition"
            return _Checked(RunCheck(RunVerdict.REFUSE, reason), values)
        reserved = bool(values.get("reserve_ID"))
        check = view.conditions.check(run, queue, reserved=reserved)
        if check.verdict is RunVerdict.RUN and reserved:
            check = await self._check_reservation_started(connection, queue)
        if check.verdict is not RunVerdict.RUN:
            return _Checked(check, values)
        vnodes = [view.vnodes[name] for name in self._names(run) if name in view.vnodes]
        known = self._reservations()
        fresh = {name for one in vnodes for name in reservations_of(one.values)}.difference(known or ())
        if known is not None and fresh:
            # `pbs_rsub --hosts` confirms its reservation itself and does not call the scheduler.
            reason = f"reservation {min(fresh)} was made since the last reading"
            return _Checked(RunCheck(RunVerdict.REFUSE, reason), values)
        types = self._hosts().types
        nodes = {node.name: node for node in self._hosts().nodes(vnodes)}
        facts = {name: node_facts(name, one.values, types=types) for name, one in nodes.items()}
        place = values.get("Resource_List.place", "free")
        has = {
            name: _free_capacity(one, facts[name], place, view.spent.get(name, {}), reserved=reserved)
            for name, one in nodes.items()
        }
        return _Checked(check_nodes(run, has), values, nodes, facts, vnodes)

    def _spend(
        self, view: PreRunView, values: Values, where: str, nodes: Mapping[str, DescribedObject]
    ) -> None:
        """Count the resources of this run in the view, for the next decisions."""
        place = values.get("Resource_List.place", "free")
        members = self._hosts().members
        whole = bool(values.get("reserve_ID")) or any(
            name in members or takes_vnode(place, node.values) for name, node in nodes.items()
        )
        view.spend(where, self._hosts().types, whole=whole)

    async def _view(self, connection: OpenPBSConnection, run: Run) -> tuple[PreRunView, bool]:
        """Return a view for this decision: the last one if it is current and sufficient, else a new one for
        all waiting decisions; and whether it was made for another decision.
        """
        view = self._latest_view
        if view is not None and view.has(run.job_id, self._names(run), time.monotonic()):
            return view, True
        self._latest_view = None
        began = time.monotonic()
        await asyncio.sleep(0)  # the other decisions of a batch have arrived then
        others = list(islice(self._waiting.values(), _TOGETHER - 1))
        names = dict.fromkeys(name for one in (run, *others) for name in self._names(one))
        server, queues, jobs, found = await asyncio.gather(
            connection.describe(SERVER_QUERY),
            connection.describe(QUEUE_QUERY),
            self._jobs(connection, dict.fromkeys(one.job_id for one in (run, *others))),
            self._vnodes(connection, names),
        )
        vnodes = {one.name: one for one in found}
        expires = view_expiry(began, time.monotonic())
        view = self._latest_view = PreRunView(expires, start_conditions(server, queues), jobs, vnodes)
        return view, False

    async def verify_run(self, run: Run) -> RunCheck:
        """Return whether the job runs, or ran, as decided."""
        async with self._borrow() as connection:
            values = await self._job(connection, run.job_id)
            check = self._check_outcome(run, values)
            if check.verdict is RunVerdict.RUNS:
                self._walltimes.forget(run.job_id)
            else:
                await self._restore_walltime(connection, run.job_id)
        return check

    def _check_outcome(self, run: Run, values: Values | None) -> RunCheck:
        if values is not None and is_over(values):
            values = self._hosts().translate_placement(values)
            held = {share.node: share.cpus for share in ending(values).shares}
            if held == {share.node: share.cpus for share in run.shares}:
                return RunCheck(RunVerdict.RUNS)
        return check_job(run, self._living(run.job_id, values))

    async def _exec_vnode(
        self,
        connection: OpenPBSConnection,
        run: Run,
        values: Values,
        found: _Checked,
        spent: Mapping[str, Mapping[str, int]],
    ) -> str:
        """Return the job's `exec_vnode`; on hosts with several vnodes by the free resources of each vnode."""
        nodes, facts = found.nodes, found.facts
        place = values.get("Resource_List.place", "free")
        reservation = values.get("reserve_ID", "").partition(".")[0]
        hosts = self._hosts()
        at = {
            name: [one for one in found.vnodes if hosts.node_of.get(one.name) == name]
            for name in nodes
            if name in hosts.members
        }
        held: Mapping[str, Mapping[str, int]] = {}
        if at and reservation:
            # The server does not count the resources of jobs in a reservation: the reservation holds them.
            of_queue = (Attribute("destination", values.get("queue", ""), operation=Operation.EQ),)
            request = SelectStatusRequest(conditions=of_queue, attributes=_PLACES, extension="S")
            held = held_by(
                (
                    one.values.get("exec_vnode", "")
                    for one in await connection.describe(request)
                    if one.values.get("job_state") in ACTIVE
                ),
                hosts.types,
            )
        capacities: CapacityByHost = {
            name: [
                vnode_capacity(one, hosts.types, held.get(one.name, {}) if reservation else None)
                for one in usable(members, reservation)
            ]
            for name, members in at.items()
        }
        where = exec_vnode(
            values.get("schedselect", ""),
            run.shares,
            {name for one in facts.values() for name in one.resources},
            capacities,
            whole="vscatter" in place.split(":"),
            tags={name: one.properties for name, one in facts.items()},
            types=hosts.types,
            free={}
            if reservation  # the server does not count resources of its jobs
            else {
                name: remaining_amounts(node, hosts.types, spent.get(name, {}))
                for name, node in nodes.items()
            },
        )
        rest = [
            one.name
            for name, members in at.items()
            if takes_hosts(place, members)
            for one in usable(members, reservation)
        ]
        return add_idle_vnodes(where, rest) if rest else where

    def _living(self, job: str, values: Values | None) -> JobFacts | None:
        if values is None or is_over(values):
            return None
        hosts = self._hosts()
        return job_facts(job, hosts.translate_placement(values), hosts.types)

    async def _job(self, connection: OpenPBSConnection, job: str) -> Values | None:
        """Return the job's attributes; a subjob that has not run yet has its array's."""
        return (await self._jobs(connection, [job]))[job]

    async def _jobs(self, connection: OpenPBSConnection, names: Iterable[str]) -> dict[str, Values | None]:
        """Return attributes of jobs, None if unknown; a subjob that never ran has its array's."""
        found: dict[str, Values | None] = dict.fromkeys(names)
        for one in await self._known(connection, found, history=True):
            if one.name in found:
                found[one.name] = one.values
        # For a waiting subjob the server may return the values of its started array (B).
        waiting = {
            name
            for name, values in found.items()
            if "[" in name and (values is None or values.get("job_state") in ("Q", "B"))
        }
        if waiting:
            arrays = dict.fromkeys(parent(name) for name in waiting)
            there = {one.name: one.values for one in expand_arrays(await self._known(connection, arrays))}
            found |= {name: there.get(name) for name in waiting}
        return found

    async def _known(
        self, connection: OpenPBSConnection, names: Iterable[str], *, history: bool = False
    ) -> list[DescribedObject]:
        """Return the known jobs among these."""
        try:
            return await connection.describe(job_request(",".join(names), history=history))
        except ServerRefusedError as error:
            if error.code not in NO_SUCH_JOB:
                raise
            return []

    async def _check_reservation_started(self, connection: OpenPBSConnection, queue: str) -> RunCheck:
        """Check that the reservation began and started its queue: the server does not."""
        wanted = (Attribute("started"),)
        found = await connection.describe(
            StatusRequest(code=RequestCode.STATUS_QUEUE, name=queue, attributes=wanted)
        )
        if found and found[0].values.get("started", "").lower() == "true":
            return RunCheck(RunVerdict.RUN)
        return RunCheck(RunVerdict.BUSY, f"reservation {queue} has not begun")

    def _names(self, run: Run) -> list[str]:
        """Return the vnodes of the decision's nodes."""
        hosts = self._hosts()
        return [vnode for share in run.shares for vnode in hosts.vnodes(share.node)]

    async def _vnodes(self, connection: OpenPBSConnection, names: Collection[str]) -> list[DescribedObject]:
        requested = names if len(names) <= _ONE_BY_ONE else [""]
        found = await asyncio.gather(*[_vnode(connection, name) for name in requested])
        return [vnode for some in found for vnode in some if vnode.name in names]


async def _vnode(connection: OpenPBSConnection, name: str) -> list[DescribedObject]:
    """Return the vnode of this name, or all for an empty name; an empty list for an unknown one."""
    wanted = tuple([Attribute(one) for one in _NODE_ATTRIBUTES])
    try:
        return await connection.describe(
            StatusRequest(code=RequestCode.STATUS_NODE, name=name, attributes=wanted)
        )
    except ServerRefusedError as error:
        if error.code not in _NONE:
            raise
        return []


def _free_capacity(
    node: DescribedObject, facts: NodeFacts, place: str, spent: Mapping[str, int], *, reserved: bool
) -> FreeNodeCapacity:
    """Return the free capacity of a node for a job with this `place`: none if the job must be alone and
    another job is on the node.

    Jobs of a running reservation are not counted: the server shows the vnodes as held by the reservation, and
    only the plan knows their use.
    """
    use = vnode_use(node.values)
    use = replace(use, cpus=use.cpus + spent.get("ncpus", 0), mem=use.mem + spent.get("mem", 0))
    if reserved:
        use = VnodeUse(0, 0, exclusive=False)
    elif (use.cpus or use.mem) and takes_vnode(place, node.values):
        use = replace(use, exclusive=True)
    return FreeNodeCapacity(
        facts.cpus,
        facts.cpus if use.exclusive else use.cpus,
        down=facts.state == "down",
        offline=facts.state == "drain",
        mem=facts.mem,
        mem_used=use.mem,
    )
