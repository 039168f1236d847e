"""The emulated pbs_server on a socket: clock, connections, scheduler commands, calls for tests."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Self

from server_adapter.emulator import lifecycle, submission
from server_adapter.emulator.caller import call_scheduler
from server_adapter.emulator.handlers import Handlers
from server_adapter.emulator.jobs import Job, Order, Outcome
from server_adapter.emulator.nodes import Node, NodeSpec
from server_adapter.emulator.session import Session
from server_adapter.emulator.state import Cluster, Timing, new_cluster, usual_outcome
from server_adapter.emulator.vouching import answer_question
from server_adapter.torque.codes import SchedulerCommand

_LOOP = 0.25  # simulated seconds between two looks of the server's main loop
_SHORTEST = 0.01


class Clock:
    """Simulated epoch seconds: `scale` of them pass in a real second, and `skip` adds some at once.

    It is `epoch` at `origin` of the host's monotonic clock (None: now), so other processes can share it.
    """

    def __init__(self, epoch: float, scale: float, origin: float | None = None) -> None:
        self.scale = scale
        self._epoch = epoch
        self._origin = time.monotonic() if origin is None else origin

    def now(self) -> float:
        """The simulated moment."""
        return self._epoch + (time.monotonic() - self._origin) * self.scale

    def skip(self, seconds: float) -> None:
        """Moves the clock forward."""
        self._epoch += seconds


class EmulatedServer:
    """A pbs_server over simulated nodes, on loopback, for any client of the batch protocol.

    `version` is `2.5`, `4.2` or `6.1`. `time_scale` simulated seconds pass in a real one; 0 stops the clock,
    which `skip` then moves; a `clock` goes before both. `scheduler` is the address that gets the four-byte
    commands, once scheduling is on. With `privileged_ports`, clients are trusted as a real server trusts
    them: source ports below 1024 fully, others after AuthenUser or through `auth_socket` (a trqauthd).
    Without, every client is trusted, as by a server built with --disable-privports; after AuthenUser it then
    is that user.
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
        outcome: Callable[[Order], Outcome] = usual_outcome,
        run_delay: float = 0.01,
    ) -> None:
        self.clock = clock or Clock(time.time() if epoch is None else epoch, time_scale)
        self.cluster: Cluster = new_cluster(
            nodes,
            version=version,
            now=self.clock.now(),
            server=server,
            queues=queues,
            timing=timing,
            outcome=outcome,
        )
        self.faults = self.cluster.faults
        self.handlers = Handlers(self.cluster)
        self.scheduler = scheduler
        self.privileged_ports = privileged_ports
        self.run_delay = run_delay
        self.vouched: dict[int, str] = {}
        self.commands: list[SchedulerCommand] = []
        self.lost_commands = 0
        self._host, self._port = host, port
        self.auth_socket = auth_socket
        self._server: asyncio.Server | None = None
        self._auth: asyncio.Server | None = None
        self._sessions: set[asyncio.Task[None]] = set()
        self._calls: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.Task[None] | None = None

    # -- running ----------------------------------------------------------------------------------

    @property
    def address(self) -> tuple[str, int]:
        """Where clients connect."""
        return self._host, self._port

    async def start(self) -> None:
        """Opens the port and lets the time run."""
        await self._listen()
        if self.auth_socket is not None:
            self._auth = await asyncio.start_unix_server(self._vouch, str(self.auth_socket))
            self.auth_socket.chmod(0o777)  # every user's clients ask here
        self._ticking = asyncio.create_task(self._tick())

    async def close(self) -> None:
        """Ends everything; the cluster stays readable."""
        await self._hush()
        if self._auth is not None:
            self._auth.close()
        tasks = [task for task in (self._ticking, *self._calls) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def restart(self, down: float = 0.5) -> None:
        """Drops all connections, stays away for `down` real seconds, and comes back with all jobs."""
        await self._hush()
        await asyncio.sleep(down)
        self.cluster.contacted = False
        self.cluster.command = SchedulerCommand.FIRST if self.cluster.scheduling else None
        await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._welcome, self._host, self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _hush(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for session in list(self._sessions):
            session.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = asyncio.create_task(Session(self, reader, writer).run())
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)

    async def _vouch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer_question(self.vouched, (self.cluster.server, self._port), reader, writer)

    # -- time -------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The simulated moment, epoch seconds."""
        return self.clock.now()

    def catch_up(self) -> None:
        """Lets everything happen that is due by now."""
        lifecycle.advance(self.cluster, self.clock.now())

    def skip(self, seconds: float) -> None:
        """Moves the clock forward; everything due on the way happens at its own moment."""
        self.clock.skip(seconds)
        self.catch_up()

    async def until(self, condition: Callable[[], bool], limit: float = 10.0) -> None:
        """Waits until `condition` holds; raises `TimeoutError` after `limit` real seconds."""
        async with asyncio.timeout(limit):
            while not condition():
                await asyncio.sleep(_SHORTEST)
                self.catch_up()

    async def _tick(self) -> None:
        scale = self.clock.scale or 1.0
        while not self.cluster.stopping:
            self.catch_up()
            command = None if self._server is None else self.cluster.take_command()
            if command is not None:
                self.commands.append(command)
                call = asyncio.create_task(self._call(command))
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)
            await asyncio.sleep(max(_SHORTEST, _LOOP / scale))
        await self._hush()

    async def _call(self, command: SchedulerCommand) -> None:
        cluster = self.cluster
        connection = None if self.scheduler is None else await call_scheduler(self.scheduler, command)
        if connection is None:
            self.lost_commands += 1  # as the real one: nobody tries again
            if cluster.version.keeps_command_socket and command is SchedulerCommand.FIRST:
                cluster.contacted = False
                cluster.poke(command)
        elif cluster.version.keeps_command_socket:
            await self._follow(connection)
        else:
            connection.close()

    async def _follow(self, connection: socket.socket) -> None:
        """Takes the scheduler's requests on the socket that its command went through (servers up to 3.x)."""
        reader, writer = await asyncio.open_connection(sock=connection)
        session = Session(self, reader, writer, trusted=True)
        self.cluster.cycling = True
        try:
            await session.run()
        finally:
            self.cluster.cycling = False
        if session.runs == 1:
            self.cluster.poke(SchedulerCommand.RECYC)

    # -- what tests and demos do ------------------------------------------------------------------

    def submit(
        self,
        user: str = "alice",
        *,
        resources: Mapping[str, str] | None = None,
        runtime: float | None = None,
        exit_status: int = 0,
        name: str = "STDIN",
        queue: str = "",
        holds: str = "",
        priority: int = 0,
        depend: str = "",
        not_before: float | None = None,
        array: str = "",
        rerunnable: bool = True,
        extra: Mapping[str, str] | None = None,
    ) -> str:
        """Queues a job and returns its id. `runtime` (seconds) is the truth that no scheduler sees; `extra`
        are further attributes as text.

        Raises `RefusalError` as qsub would be refused.
        """
        self.catch_up()
        order = Order(
            user=user,
            name=name,
            queue=queue,
            resources=dict(resources or {"nodes": "1"}),
            holds=holds,
            priority=priority,
            depend=depend,
            not_before=None if not_before is None else int(not_before),
            array=array,
            rerunnable=rerunnable,
            extra=dict(extra or {}),
            outcome=None if runtime is None else Outcome(runtime, exit_status),
        )
        return submission.submit(self.cluster, order)

    def job(self, name: str) -> Job:
        """A job as it is now. Raises `RefusalError` when it is gone."""
        self.catch_up()
        return self.cluster.job(name)

    def node(self, name: str) -> Node:
        """A node as it is now."""
        self.catch_up()
        return self.cluster.node(name)

    def set_scheduling(self, wanted: bool) -> None:
        """As `qmgr -c 'set server scheduling = True'`: also a poke when it is on already."""
        self.cluster.attributes["scheduling"] = str(wanted)
        self.cluster.poke(SchedulerCommand.CMD)

    def kill_node(self, name: str) -> None:
        """Kills a node's mom; the server notices `timing.node_check` simulated seconds later."""
        lifecycle.kill(self.cluster, self.node(name))

    def revive_node(self, name: str) -> None:
        """Starts a node's mom again; jobs that ended meanwhile are reported."""
        lifecycle.revive(self.cluster, self.node(name))

    def lie_about_load(self, name: str, *, load: float | None = None, available: int | None = None) -> None:
        """Makes a node report this load average and free memory (KiB); None tells the truth again."""
        node = self.node(name)
        node.load, node.available = load, available

    async def serve_forever(self) -> None:
        """Runs until cancelled."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
