"""A simulated pbs_server on a socket, of whichever family: clock, connections, calls for tests and demos."""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Self

from server_adapter.emulator import lifecycle
from server_adapter.emulator.jobs import Job, JobOrder, JobOutcome
from server_adapter.emulator.nodes import EmulatedNode
from server_adapter.emulator.state import Cluster
from server_adapter.emulator.vouching import Vouchers
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
        return self._epoch + (time.monotonic() - self._origin) * self.scale

    def skip(self, seconds: float) -> None:
        """Moves the clock forward."""
        self._epoch += seconds


class SimulatedServer(ABC):
    """A pbs_server over a simulated cluster, on loopback; what its wire is, its subclasses say.

    `time_scale` simulated seconds pass in a real one; 0 stops the clock, which `skip` then moves.
    """

    def __init__(
        self,
        clock: Clock,
        cluster: Cluster,
        *,
        host: str,
        port: int,
        privileged_ports: bool,
        run_delay: float,
        credential_lifetime: float,
    ) -> None:
        self.clock = clock
        self.cluster = cluster
        self.faults = cluster.faults
        self.privileged_ports = privileged_ports
        self.run_delay = run_delay
        self.credential_lifetime = credential_lifetime
        self.vouched = Vouchers()
        self._host, self._port = host, port
        self._server: asyncio.Server | None = None
        self._sessions: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.Task[None] | None = None

    # -- what a family adds -------------------------------------------------------------------------

    @abstractmethod
    def enter(self, order: JobOrder) -> str:
        """Queues the order's job; its id. Raises `RefusalError`."""

    @abstractmethod
    def run(self, job: Job, cores: Mapping[str, int]) -> None:
        """Start a waiting job on these cores, by node, as if a scheduler had. Raises `RefusalError`."""

    @abstractmethod
    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one client until it goes."""

    @abstractmethod
    def _notify_due(self) -> None:
        """Send the pending command to the scheduler."""

    @abstractmethod
    def _reset_after_restart(self) -> None:
        """After a restart: what a server that has just come up does not know."""

    @abstractmethod
    def hints(self) -> list[str]:
        """Lines for people: how an adapter and the usual commands reach this server."""

    def expired(self, port: int, begun: float) -> bool:
        """Whether the credential of the connection from this port, open since `begun`, counts no more."""
        return 0 < self.credential_lifetime < self.vouched.age(port, begun)

    # -- running ----------------------------------------------------------------------------------

    @property
    def address(self) -> tuple[str, int]:
        """Where clients connect."""
        return self._host, self._port

    async def start(self) -> None:
        """Opens the port and lets the time run."""
        await self._listen()
        self._ticking = asyncio.create_task(self._tick())

    async def close(self) -> None:
        """Ends everything; the cluster stays readable."""
        await self._stop_listening()
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def restart(self, down: float = 0.5, *, requeues: bool = False) -> None:
        """Drops all connections, stays away for `down` real seconds, and comes back with all jobs; with
        `requeues` as after `qterm -t immediate`.
        """
        await self._stop_listening()
        if requeues:
            lifecycle.requeue_all(self.cluster)
        await asyncio.sleep(down)
        self._reset_after_restart()
        await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._welcome, self._host, self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for session in list(self._sessions):
            session.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = asyncio.create_task(self._talk(reader, writer))
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)

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
            if self._server is not None:
                self._notify_due()
            await asyncio.sleep(max(_SHORTEST, _LOOP / scale))
        await self._stop_listening()

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
        order = JobOrder(
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
            outcome=None if runtime is None else JobOutcome(runtime, exit_status),
        )
        return self.enter(order)

    def job(self, name: str) -> Job:
        """Return the current job. Raises `RefusalError` for an unknown job."""
        self.catch_up()
        return self.cluster.job(name)

    def node(self, name: str) -> EmulatedNode:
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

    def switch_off(self, name: str) -> None:
        """Takes a node's power away, whatever runs there; the server notices as if its mom was killed."""
        self.kill_node(name)

    def switch_on(self, name: str, boots: float) -> None:
        """Switch on a node: its mom is up after `boots` simulated seconds. A running node is not changed."""
        node = self.node(name)
        if not node.alive:
            self.cluster.timers.at(self.now + boots, lambda: lifecycle.revive(self.cluster, node))

    def lie_about_load(self, name: str, *, load: float | None = None, available: int | None = None) -> None:
        """Make a node report this load and free memory (KiB); None: the actual values again."""
        node = self.node(name)
        node.load, node.available = load, available

    async def serve_forever(self) -> None:
        """Runs until cancelled."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


def make_clock(clock: Clock | None, epoch: float | None, time_scale: float) -> Clock:
    """Return the given clock, or a new one that begins now or at `epoch`."""
    return clock or Clock(time.time() if epoch is None else epoch, time_scale)
