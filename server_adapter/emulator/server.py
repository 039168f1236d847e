"""The emulated TORQUE server: sessions, calls to its scheduler, trqauthd."""

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from server_adapter.emulator import lifecycle, submission
from server_adapter.emulator.handlers import TorqueHandlers
from server_adapter.emulator.jobs import Job, JobOrder, JobOutcome
from server_adapter.emulator.nodes import NodeSpec
from server_adapter.emulator.scheduler_call import call_scheduler
from server_adapter.emulator.session import TorqueSession
from server_adapter.emulator.simulated_server import Clock, SimulatedServer, make_clock
from server_adapter.emulator.state import Timing, new_cluster, usual_outcome
from server_adapter.emulator.vouching import answer_question
from server_adapter.torque.codes import SchedulerCommand


class EmulatedServer(SimulatedServer):
    """A TORQUE pbs_server over simulated nodes, on loopback, for any client of the batch protocol.

    `version` is `2.5`, `4.2` or `6.1`. `time_scale` is simulated seconds per real second; 0 stops the clock,
    and `skip` then moves it; a given `clock` takes precedence. `scheduler` is the address of the scheduler,
    called once scheduling is on.

    With `privileged_ports` the server trusts clients like a real one: source ports below 1024 fully, others
    after AuthenUser or through `auth_socket` (a trqauthd). Without it the server trusts every client, like a
    server built with --disable-privports; after AuthenUser the client has the rights of that user.
    `credential_lifetime` is in real seconds from the authentication of a client, or else from its connection;
    later requests are refused with 15022. 0: no limit.
    """

    def __init__(
        self,
        nodes: Iterable[NodeSpec],
        *,
        version: str = "6.1",
        time_scale: float = 1.0,
        epoch: float | None = None,
        clock: Clock | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        scheduler: tuple[str, int] | None = None,
        privileged_ports: bool = False,
        auth_socket: Path | None = None,
        server: str = "localhost",
        queues: Iterable[str] = ("batch",),
        timing: Timing = Timing(),  # noqa: B008  (frozen)
        outcome: Callable[[JobOrder], JobOutcome] = usual_outcome,
        run_delay: float = 0.01,
        credential_lifetime: float = 0.0,
    ) -> None:
        clock = make_clock(clock, epoch, time_scale)
        cluster = new_cluster(
            nodes,
            version=version,
            now=clock.now(),
            server=server,
            queues=queues,
            timing=timing,
            outcome=outcome,
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
        self.handlers = TorqueHandlers(cluster)
        self.scheduler = scheduler
        self.commands: list[SchedulerCommand] = []
        self.lost_commands = 0
        self.auth_socket = auth_socket
        self._auth: asyncio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()

    def enter(self, order: JobOrder) -> str:
        """Queue the order's job; return its id. Raises `RefusalError`."""
        return submission.submit(self.cluster, order)

    def run(self, job: Job, cores: Mapping[str, int]) -> None:
        """Start a waiting job on these cores, by node. Raises `RefusalError`."""
        destination = "+".join(f"{node}:ppn={count}" for node, count in cores.items())
        lifecycle.start(self.cluster, job, destination, synchronous=True)

    async def start(self) -> None:
        """Open the port and start the clock."""
        await super().start()
        if self.auth_socket is not None:
            self._auth = await asyncio.start_unix_server(self._vouch, str(self.auth_socket))
            self.auth_socket.chmod(0o777)  # every user's clients ask here

    async def close(self) -> None:
        """Stop everything; the cluster stays readable."""
        await super().close()
        if self._auth is not None:
            self._auth.close()
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def hints(self) -> list[str]:
        """Return commands to connect an adapter and TORQUE's clients."""
        host, port = self.address
        lines = []
        if self.scheduler is not None:
            lines.append(f"scheduler commands go to {self.scheduler[0]}:{self.scheduler[1]}")
        trust = "auto" if self.privileged_ports else "none"
        lines.append(f"adapter   pbs-adapter --mode scheduler --server {host}:{port} --auth {trust}")
        if self.auth_socket is None:
            lines.append("clients   unmodified ones need --auth-socket, where their trqauthd would listen")
        else:
            lines.append(f"clients   PBS_DEFAULT={host}:{port} qstat   (vouched for at {self.auth_socket})")
        return lines

    def _reset_after_restart(self) -> None:
        self.cluster.contacted = False
        self.cluster.command = SchedulerCommand.FIRST if self.cluster.scheduling else None

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await TorqueSession(self, self.handlers, reader, writer).run()

    async def _vouch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer_question(self.vouched, (self.cluster.server, self._port), reader, writer)

    def _notify_due(self) -> None:
        command = self.cluster.pop_command()
        if command is not None:
            self.commands.append(command)
            call = asyncio.create_task(self._call(command))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _call(self, command: SchedulerCommand) -> None:
        cluster = self.cluster
        connection = None if self.scheduler is None else await call_scheduler(self.scheduler, command)
        if connection is None:
            self.lost_commands += 1  # like a real server: no retry
            if cluster.version.keeps_command_socket and command is SchedulerCommand.FIRST:
                cluster.contacted = False
                cluster.poke(command)
        elif cluster.version.keeps_command_socket:
            await self._follow(connection)
        else:
            connection.close()

    async def _follow(self, connection: socket.socket) -> None:
        """Serve the scheduler's requests on the socket of its command (servers up to 3.x)."""
        reader, writer = await asyncio.open_connection(sock=connection)
        session = TorqueSession(self, self.handlers, reader, writer, trusted=True)
        self.cluster.cycling = True
        try:
            await session.run()
        finally:
            self.cluster.cycling = False
        if session.runs == 1:
            self.cluster.poke(SchedulerCommand.RECYC)
