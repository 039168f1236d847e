"""An emulated server with its workload as a context manager, for demos and tests."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from server_adapter.emulator.jobs import JobState
from server_adapter.emulator.nodes import NodeSpec
from server_adapter.emulator.openpbs.server import EmulatedOpenPBS
from server_adapter.emulator.openpbs.state import VERSION as OPENPBS
from server_adapter.emulator.server import EmulatedServer
from server_adapter.emulator.simulated_server import SimulatedServer
from server_adapter.emulator.workload import Arrival, WorkloadFeed, in_order


@dataclass(frozen=True, slots=True)
class TrialSummary:
    """Counts of a trial up to now: jobs by outcome, and accepted runs."""

    submitted: int
    refused: int
    ended: int
    deleted: int
    waiting: int
    running: int
    runs: int

    def __str__(self) -> str:
        words = {
            "submitted": self.submitted,
            "refused at submission": self.refused,
            "ended": self.ended,
            "deleted before they ran": self.deleted,
            "running": self.running,
            "waiting": self.waiting,
        }
        shown = [f"{count:,} {what}" for what, count in words.items() if count or what == "submitted"]
        return f"{', '.join(shown)}; {self.runs:,} runs accepted"


class EmulatorTrial:
    """A running emulated server and its workload.

    `now` is the server's simulated clock as a function: with scaled time, pass it to an adapter as its
    `clock`, since both must have the same time. `address` is the address for the adapter.
    """

    def __init__(self, server: SimulatedServer, feed: WorkloadFeed) -> None:
        self.server = server
        self.feed = feed
        self._fates: Counter[str] = Counter()
        server.cluster.on_complete = self._note

    def _note(self, started: bool) -> None:
        self._fates["ended" if started else "deleted"] += 1

    def begin(self) -> None:
        """Start the workload."""
        self.server.catch_up()
        self.feed.begin = self.server.cluster.now
        self.feed.start()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the server."""
        return self.server.address

    @property
    def now(self) -> Callable[[], float]:
        """The simulated clock, epoch seconds."""
        return self.server.clock.now

    @property
    def finished(self) -> bool:
        """Whether the last job has arrived, and no job waits or runs."""
        return self.feed.finished

    async def until_finished(self, limit: float) -> TrialSummary:
        """Wait for the end of all jobs. Raises `TimeoutError` after `limit` real seconds."""
        await self.server.until(lambda: self.finished, limit)
        return self.summary()

    def summary(self) -> TrialSummary:
        """The counts by now."""
        self.server.catch_up()
        cluster = self.server.cluster
        states = Counter(job.state for job in cluster.live_jobs())
        running = states[JobState.RUNNING] + states[JobState.EXITING]
        return TrialSummary(
            submitted=len(self.feed.submitted),
            refused=len(self.feed.refused),
            ended=self._fates["ended"],
            deleted=self._fates["deleted"],
            waiting=states.total() - running,
            running=running,
            runs=sum(cluster.runs.values()),
        )


@asynccontextmanager
async def emulate(
    nodes: Iterable[NodeSpec],
    arrivals: Iterable[Arrival] = (),
    *,
    version: str = "6.1",
    scheduling: bool = True,
    compress: float = 1.0,
    waits: bool = False,
    **options: Any,
) -> AsyncIterator[EmulatorTrial]:
    """Starts an emulated server on loopback and lets the `arrivals` come; ends it with the block.

    `version` is that of a TORQUE server, or `openpbs`. `scheduling` is the server's attribute: whether it
    calls its scheduler. `compress` as in `in_order`. With `waits` nothing arrives before `trial.begin()`. All
    other `options` are `EmulatedServer`'s or `EmulatedOpenPBS`'s: `time_scale`, `port` (0: any), and so on.

        async with emulate(read_nodes(["8:ppn=4"]), arrivals, scheduler=("127.0.0.1", 15004)) as trial:
            await trial.until_finished(60)
    """
    server: SimulatedServer
    if version == OPENPBS.name:
        server = EmulatedOpenPBS(nodes, **options)
    else:
        server = EmulatedServer(nodes, version=version, **options)
    cluster = server.cluster
    if scheduling:
        server.set_scheduling(True)
    trial = EmulatorTrial(
        server, WorkloadFeed(cluster, server.enter, iter(in_order(arrivals, compress=compress)), cluster.now)
    )
    async with server:
        if not waits:
            trial.begin()
        yield trial
