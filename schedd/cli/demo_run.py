"""The demo as it runs: an emulated pbs_server, its adapter, the daemon, and a table of what they do."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

from schedd.cli.arrivals import Workload
from schedd.cli.demo_parts import CLUSTER, DemoError, Part, adapter
from schedd.cli.demo_table import Table
from schedd.service.clock import ScaledClock
from server_adapter.emulator import Clock, Trial, emulate
from server_adapter.torque.values import exec_host

__all__ = ["play"]

_LOOK_S = 0.1
"""Real seconds between two looks at server and daemon."""
_TOLERATED_S = 0.25
"""Real seconds: a start that is off by no more is on time."""
_FIRST_WAIT_S = 600
_KEEP_S = 30
"""Real seconds for which the server keeps jobs that are complete."""


class _Show:
    """Compares what the daemon told with what the server does, and says both in a table."""

    def __init__(
        self, client: httpx2.AsyncClient, clock: ScaledClock, trial: Trial, say: Callable[[str], None]
    ) -> None:
        self._client = client
        self._trial = trial
        self._say = say
        self._new: deque[str] = deque()
        self._waiting: dict[str, None] = {}
        self._seen = 0
        self.table = Table(max(60, int(clock.speed * _TOLERATED_S)))

    async def look(self) -> None:
        """Says what has happened since the last look."""
        submitted = self._trial.feed.submitted
        self._new += submitted[self._seen :]
        self._seen = len(submitted)
        while self._new and await self._arrived(self._new[0]):
            self._new.popleft()
        for job in list(self._waiting):
            self._started(job)
        self.table.ended = self._trial.summary().ended

    async def _arrived(self, job: str) -> bool:
        """Says what the daemon plans for a job; False when it has not heard of it yet."""
        answer = await _ask(self._client, f"/jobs/{job}")
        if answer is None:
            at = self._trial.server.cluster.jobs.get(job)
            return at is None or at.finished  # it came and went between two looks
        self._waiting[job] = None
        self._print(self.table.arrived(answer["submitted"], answer))
        return True

    def _started(self, job: str) -> None:
        found = self._trial.server.cluster.jobs.get(job)
        if found is not None and found.started is None and not found.finished:
            return
        del self._waiting[job]
        if found is not None and found.started is not None:
            nodes = [name for name, _ in exec_host(found.exec_host)]
            self._print(self.table.started(int(found.started), job, nodes))

    def summary(self, breaches: int) -> list[str]:
        """Lines for the end."""
        runs = self._trial.server.cluster.runs.values()
        twice = sum(count > 1 for count in runs)
        lines = self.table.summary(breaches)
        lines.append(f"Runs that the server took from the adapter: {sum(runs)}; jobs run twice: {twice}.")
        return lines

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._say(line)


async def play(
    daemon: Part,
    url: str,
    token: str,
    clock: ScaledClock,
    workload: Workload,
    say: Callable[[str], None],
    seconds: float | None,
) -> None:
    """Let the workload run for so many real seconds, or until its jobs are over.

    Raises DemoError.
    """
    async with httpx2.AsyncClient(base_url=url, timeout=30, trust_env=False) as client:
        await _until_ready(client, daemon)
        time = Clock(clock.start, clock.speed, clock.began)
        server = emulate(workload.nodes, workload.arrivals, server="demo", clock=time, waits=True)
        with TemporaryDirectory(prefix="schedd-demo-") as directory:
            async with server as trial:
                trial.server.cluster.attributes["keep_completed"] = str(int(_KEEP_S * clock.speed))
                show = _Show(client, clock, trial, say)
                joined = adapter(clock, trial.address, url, token, Path(directory))
                try:
                    port = int(await asyncio.to_thread(joined.greeting))
                    trial.server.scheduler = ("127.0.0.1", port)
                    trial.begin()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(seconds):
                            await _watch(show, trial, joined)
                finally:
                    await asyncio.to_thread(joined.end)
                    # A daemon that ended has said why.
                    status = await _ask(client, "") if daemon.alive else None
                    if status is not None:
                        say("")
                        for line in show.summary(int(status["breaches"])):
                            say(line)


async def _watch(show: _Show, trial: Trial, joined: Part) -> None:
    while True:
        over = trial.finished
        await show.look()
        if over:
            return
        if not joined.alive:
            raise DemoError("the adapter ended")
        await asyncio.sleep(_LOOK_S)


async def _ask(client: httpx2.AsyncClient, path: str) -> dict[str, Any] | None:
    """The daemon's answer about the cluster; None for what it does not know. Raises DemoError."""
    try:
        answer = await client.get(f"/v1/clusters/{CLUSTER}{path}")
        found: dict[str, Any] = answer.json()
    except (httpx2.HTTPError, ValueError) as error:
        raise DemoError(f"the daemon does not answer: {error!r}") from error
    if answer.status_code == 404:
        return None
    if answer.status_code != 200:
        raise DemoError(f"GET {path or '/'}: {answer.status_code}: {found.get('detail')}")
    return found


async def _until_ready(client: httpx2.AsyncClient, daemon: Part) -> None:
    for _ in range(_FIRST_WAIT_S * 5):
        if not daemon.alive:
            raise DemoError("the daemon ended while it was getting ready")
        answer = await client.get("/readyz")
        if answer.status_code == 200:
            return
        await asyncio.sleep(0.2)
    raise DemoError(f"the daemon was not ready within {_FIRST_WAIT_S} s")
