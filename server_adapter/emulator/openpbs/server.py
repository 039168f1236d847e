"""The emulated OpenPBS server: its sessions, its schedulers' registration and cycles, `qrun`."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from server_adapter.batch.replies import Reply, Text
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.dis import encode_integer, encode_string
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.jobs import Job, JobOrder, JobOutcome
from server_adapter.emulator.nodes import NodeSpec
from server_adapter.emulator.openpbs import runs, submission
from server_adapter.emulator.openpbs.handlers import OK, OpenPBSHandlers, refusal_body
from server_adapter.emulator.openpbs.job_moves import Mover
from server_adapter.emulator.openpbs.session import OpenPBSSession, SessionHost
from server_adapter.emulator.openpbs.state import PbsCluster, Scheduler, new_pbs_cluster
from server_adapter.emulator.principal import Principal
from server_adapter.emulator.simulated_server import Clock, make_clock
from server_adapter.emulator.state import Timing, usual_outcome
from server_adapter.openpbs.codes import OpenPBSCommand, OpenPBSErrorCode
from server_adapter.openpbs.replies import encode_reply
from server_adapter.openpbs.requests import DeferredReplyRequest


class EmulatedOpenPBS(SessionHost):
    """An OpenPBS pbs_server over simulated vnodes, on loopback, for any client of its batch protocol.

    Every node is a host with one vnode. `time_scale` is simulated seconds per real second; 0 stops the clock,
    and `skip` then moves it; a given `clock` takes precedence.

    With `privileged_ports` the server trusts clients like a real one: after authentication from a port below
    1024. Without it the user of each request is believed. `credential_lifetime` is in real seconds from the
    authentication of a connection (1,800 on a real server); later requests are refused with 15020, except
    from registered schedulers. 0: no limit.
    """

    cluster: PbsCluster

    def __init__(
        self,
        nodes: Iterable[NodeSpec],
        *,
        time_scale: float = 1.0,
        epoch: float | None = None,
        clock: Clock | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        privileged_ports: bool = False,
        server: str = "localhost",
        queues: Iterable[str] = ("workq",),
        timing: Timing = Timing(),  # noqa: B008  (frozen)
        outcome: Callable[[JobOrder], JobOutcome] = usual_outcome,
        run_delay: float = 0.01,
        credential_lifetime: float = 0.0,
    ) -> None:
        clock = make_clock(clock, epoch, time_scale)
        cluster = new_pbs_cluster(
            nodes, now=clock.now(), server=server, queues=queues, timing=timing, outcome=outcome
        )
        super().__init__(
            clock,
            cluster,
            host=host,
            port=port,
            privileged_ports=privileged_ports,
            run_delay=run_delay,
            credential_lifetime=credential_lifetime,
        )
        self.handlers = OpenPBSHandlers(cluster)
        self.mover = Mover(cluster, privileged=privileged_ports)
        self.commands: list[OpenPBSCommand] = []
        self._places: dict[str, list[OpenPBSSession]] = {}
        self._qruns: dict[str, asyncio.Future[bytes]] = {}

    def enter(self, order: JobOrder) -> str:
        """Queue the order's job, submitted on the server's host; return its id. Raises `RefusalError`."""
        host = self.cluster.server
        return submission.submit(self.cluster, replace(order, host=host, origin=host))

    def run(self, job: Job, cores: Mapping[str, int]) -> None:
        """Start a waiting job on these cores, by node. Raises `RefusalError`."""
        destination = "+".join(f"({node}:ncpus={count})" for node, count in cores.items())
        runs.start(self.cluster, job, destination, synchronous=True)

    def hints(self) -> list[str]:
        """Return commands to connect an adapter and OpenPBS's clients."""
        host, port = self.address
        trust = "auto" if self.privileged_ports else "none"
        return [
            f"adapter   pbs-adapter --family openpbs --mode scheduler --server {host}:{port} --auth {trust}",
            f"clients   PBS_BATCH_SERVICE_PORT={port} PBS_SERVER={host} qstat",
        ]

    def manages(self, user: str) -> bool:
        """Whether a user is root, a manager or an operator."""
        attributes = self.cluster.attributes
        listed = f"{attributes.get('managers', '')},{attributes.get('operators', '')}"
        return user == "root" or user in {entry.partition("@")[0] for entry in listed.split(",")}

    # -- schedulers ---------------------------------------------------------------------------------

    def register(self, session: OpenPBSSession, name: str, who: Principal) -> bytes:
        """RegisterSched: connections for requests, then for commands. Returns the reply's body."""
        scheduler = self.cluster.schedulers.get(name)
        if not who.manager:
            return refusal_body(RefusalError(OpenPBSErrorCode.PERM, "Unauthorized Request "))
        if scheduler is None:
            return refusal_body(RefusalError(OpenPBSErrorCode.UNKSCHED, "Unknown Scheduler"))
        place = self._places.setdefault(name, [])
        if len(place) == 2:
            return refusal_body(RefusalError(OpenPBSErrorCode.SCHEDCONNECTED, "Scheduler already connected"))
        place.append(session)
        session.scheduler = scheduler
        if len(place) == 2:
            scheduler.registered = True
            scheduler.notified_at = self.cluster.now
            scheduler.first.append(OpenPBSCommand.CONFIGURE)
            if self.cluster.fresh:  # the first scheduler of this server gets the command FIRST
                scheduler.first += [OpenPBSCommand.CONFIGURE, OpenPBSCommand.FIRST]
                self.cluster.fresh = False
            asyncio.get_running_loop().call_soon(self._notify_due)
        return OK

    def takes_end(self, session: OpenPBSSession) -> bool:
        """Return whether this is a scheduler's command connection; any packet on it ends the cycle."""
        scheduler = session.scheduler
        if scheduler is None or self._places.get(scheduler.name, [])[1:] != [session]:
            return False
        scheduler.end()
        self._fail_qruns(scheduler)
        asyncio.get_running_loop().call_soon(self._notify_due)
        return True

    def lost(self, session: OpenPBSSession) -> None:
        """Handle the end of a connection: a scheduler that loses one loses both."""
        scheduler = session.scheduler
        if scheduler is None or session not in self._places.get(scheduler.name, []):
            return
        place = self._places.pop(scheduler.name)
        scheduler.registered = False
        scheduler.end()
        scheduler.urgent.clear()
        self._fail_qruns(scheduler)
        for other in place:
            if other is not session:
                other.hang_up()

    async def request_qrun(self, name: str) -> bytes:
        """Forward a `qrun` without vnodes to the default scheduler; return its answer's body."""
        scheduler = self.cluster.schedulers["default"]
        try:
            job = self.cluster.job(name)
            runs.demand_idle(job)
        except RefusalError as error:
            return refusal_body(error)
        if not scheduler.registered:
            return refusal_body(RefusalError(OpenPBSErrorCode.NOSCHEDULER, "Unable to contact Scheduler"))
        answer = self._qruns[job.id] = asyncio.get_running_loop().create_future()
        scheduler.urgent.append(job.id)
        self._notify_due()
        body: bytes = await answer
        return body

    def answer_qrun(self, request: BatchRequest) -> bytes:
        """DefSchReply: forward a scheduler's answer to the sender of the `qrun`. Returns the reply's body."""
        assert isinstance(request, DeferredReplyRequest)
        waiting = self._qruns.pop(request.job, None)
        if waiting is None or waiting.done():
            return refusal_body(RefusalError(OpenPBSErrorCode.IVALREQ, "Invalid request"))
        text = Text(request.text) if request.text else None
        waiting.set_result(encode_reply(Reply(request.result, 0, text)))
        return OK

    def _fail_qruns(self, scheduler: Scheduler) -> None:
        """Refuse all `qrun` requests that the scheduler did not answer in the cycle that has ended."""
        for job in [job for job in self._qruns if job not in scheduler.urgent]:
            waiting = self._qruns.pop(job)
            if not waiting.done():
                waiting.set_result(refusal_body(RefusalError(OpenPBSErrorCode.IVALREQ, "Invalid request")))

    def _notify_due(self) -> None:
        for scheduler in self.cluster.schedulers.values():
            place = self._places.get(scheduler.name, [])
            if len(place) < 2:
                continue
            iteration = float(scheduler.attributes.get("scheduler_iteration", "600"))
            quiet = self.cluster.now - scheduler.notified_at >= iteration
            if scheduler.command is None and quiet and self.cluster.scheduling and scheduler.scheduling:
                scheduler.command = OpenPBSCommand.TIME
            found = scheduler.next()
            if found is None:
                continue
            command, job = found
            scheduler.cycling = True
            scheduler.notified_at = self.cluster.now
            self.commands.append(command)
            place[1].send(encode_integer(command) + (encode_string(job) if job else b""))

    def _reset_after_restart(self) -> None:
        self.cluster.fresh = True
        for scheduler in self.cluster.schedulers.values():
            scheduler.command = None
            scheduler.first.clear()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await OpenPBSSession(self, reader, writer).run()
