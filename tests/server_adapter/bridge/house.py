"""An emulated server, a daemon of a few lines, and adapters that come and go."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from server_adapter.bridge.adapter import Adapter
from server_adapter.emulator import EmulatedServer, Timing
from server_adapter.families import connector
from server_adapter.servers.torque.link import TorqueLink
from server_adapter.servers.torque.server import TorqueServer
from server_adapter.settings import AdapterSettings, load_settings
from tests.server_adapter.bridge.fake_daemon import FakeDaemon
from tests.waits import WAIT_S

TIMING = Timing(obit=0.1, kill=0.2, refused=0.1, report=5.0, node_check=0.5)


@dataclass
class AdapterHarness:
    """An emulated server, a daemon, and adapters that come and go."""

    directory: Path
    server: EmulatedServer
    daemon: FakeDaemon
    options: dict[str, Any]
    adapter: Adapter | None = None
    task: "asyncio.Task[None] | None" = None
    stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    clock: Callable[[], float] = time.time

    def settings(self, **options: Any) -> AdapterSettings:
        host, port = self.server.address
        values: dict[str, Any] = {
            "mode": "scheduler",
            "state_dir": self.directory,
            "server.host": host,
            "server.port": port,
            "server.auth": "none",
            "server.timeout": WAIT_S,
            "listen.port": 0,
            "listen.any_port": True,
            "daemon.url": "http://daemon",
            "daemon.wait": 1.0,
            "poll.interval": 0.2,
            "poll.gap": 0.02,
            "run.busy_wait": 0.1,
        }
        return load_settings(None, values | self.options | options)

    def make(self, **options: Any) -> Adapter:
        settings = self.settings(**options)
        transport = httpx2.ASGITransport(app=self.daemon.app)
        return Adapter(settings, connector(settings), transport=transport, clock=self.clock)

    async def start(self, **options: Any) -> Adapter:
        self.adapter = self.make(**options)
        self.task = asyncio.create_task(self.adapter.run())
        return self.adapter

    async def stop(self) -> None:
        """Stop like SIGTERM; pending work is lost, like with SIGKILL."""
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task
        if self.adapter is not None:
            self.adapter.journal.close()  # as the system does, should the task never have begun
        self.task = None

    async def until(self, condition: Callable[[], bool], limit: float = WAIT_S) -> None:
        async with asyncio.timeout(limit):
            while not condition():
                if self.task is not None and self.task.done():
                    self.task.result()
                await asyncio.sleep(0.01)

    def states(self) -> Counter[str]:
        return Counter(str(job.state) for job in self.server.cluster.jobs.values())

    def all_done(self) -> bool:
        return set(self.states()) <= {"C"}

    def no_job_started_twice(self) -> None:
        assert set(self.server.cluster.runs.values()) <= {1}

    def each_job_ran_where_decided(self) -> None:
        told = {run.job_id: {s.node: s.cpus for s in run.shares} for run in self.daemon.accepted}
        assert len(told) == len(self.daemon.accepted)
        assert told.keys() == self.server.cluster.runs.keys()
        ran = {
            event.job_id: {s.node: s.cpus for s in event.shares}
            for event in self.daemon.events
            if event.type == "job_started"
        }
        assert ran == told


Build = Callable[..., Awaitable[AdapterHarness]]


def submit_mixed(server: EmulatedServer) -> int:
    """Twenty jobs of many shapes."""
    for number in range(5):
        server.submit(resources={"nodes": "1", "walltime": "60"}, runtime=0.3 + number * 0.1)
        server.submit(resources={"nodes": "2:ppn=2", "walltime": "60"}, runtime=0.4)
        server.submit(resources={"nodes": "1:ppn=3:even", "walltime": "60"}, runtime=0.3)
    server.submit(resources={"nodes": "node3:ppn=4", "walltime": "60"}, runtime=0.2)
    server.submit(resources={"nodes": "4:ppn=4", "walltime": "60"}, runtime=0.2, exit_status=1)
    server.submit(resources={"procs": "7", "walltime": "60"}, runtime=0.5)
    server.submit(resources={"nodes": "1:odd+2:ppn=2", "walltime": "60"}, runtime=0.3)
    held = server.submit(resources={"nodes": "1", "walltime": "60"}, runtime=0.1, holds="u")
    assert str(server.job(held).state) == "H"
    return 20


def release_all(server: EmulatedServer) -> None:
    from server_adapter.emulator.lifecycle import settle  # noqa: PLC0415

    for job in server.cluster.jobs.values():
        job.holds.discard("u")
        settle(server.cluster, job)


def start_as_admin(server: EmulatedServer, job: str) -> None:
    from server_adapter.emulator.lifecycle import start  # noqa: PLC0415

    start(server.cluster, server.job(job), "node1:ppn=1", synchronous=True)


def server_link(adapter: Adapter) -> TorqueLink:
    """The adapter's connection to its TORQUE server."""
    assert isinstance(adapter.server, TorqueServer)
    assert isinstance(adapter.server.link, TorqueLink)
    return adapter.server.link
