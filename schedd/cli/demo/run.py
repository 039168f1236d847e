"""The running demo: an emulated pbs_server, its adapter, the daemon, and a table of events."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, TextIO

import httpx2

from schedd.cli.demo.arrivals import DemoWorkload
from schedd.cli.demo.processes import CLUSTER, DemoError, DemoLogins, DemoProcess, start_adapter
from schedd.cli.demo.steady import SteadyWorkload, core_seconds
from schedd.cli.demo.table import DemoTable
from schedd.plan.kernel_status import are_built
from schedd.service.cluster.clock import ScaledClock
from server_adapter.emulator import OPENPBS, Arrival, Clock, EmulatedServer, EmulatorTrial, emulate

__all__ = ["DemoOutput", "run_demo"]

_POLL_S = 0.1
"""Real seconds between two looks at server and daemon."""
_TOLERATED_S = 0.25
"""Real seconds: a start that is off by no more is on time."""
_READY_TIMEOUT_S = 600
_MAX_INITIAL_ROWS = 100
"""Jobs that come at once: more than these have no rows of their own."""
_VERSIONS = {"torque": "6.1", "openpbs": OPENPBS.name}
_HISTORY_ATTRIBUTE = {"torque": "keep_completed", "openpbs": "job_history_duration"}
"""The server's attribute for how long it keeps jobs that are over."""
_HISTORY_S = 30
"""Real seconds for which the server keeps completed jobs."""


class DemoOutput:
    """Writes lines, and while something takes long says what and for how long: on a terminal in one line that
    is written over, elsewhere in a new line now and then.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._over = stream.isatty()
        self._step, self._began, self._said = "", 0.0, 0.0
        self._shown = False

    def __call__(self, line: str) -> None:
        """Write a line."""
        self.end()
        print(line, file=self._stream, flush=True)

    def step(self, what: str) -> None:
        """Say that something takes place, as often as one likes."""
        now = monotonic()
        if what.partition(":")[0] != self._step.partition(":")[0]:
            self._began, self._said = now, 0.0
        self._step = what
        if now - self._said < (0.5 if self._over else 10):
            return
        self._said = now
        took = int(now - self._began)
        text = f"... {what}" + (f" ({took} s)" if took else "")
        if self._over:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()
            self._shown = True
        else:
            print(text, file=self._stream, flush=True)

    def end(self) -> None:
        """Take back the line that is written over."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False


class _DemoReporter:
    """Compares the daemon's start estimates with the actual starts, and shows both in a table."""

    def __init__(
        self, client: httpx2.AsyncClient, clock: ScaledClock, trial: EmulatorTrial, say: DemoOutput
    ) -> None:
        self._client = client
        self._trial = trial
        self._say = say
        self._new: deque[str] = deque()
        self._waiting: dict[str, None] = {}
        self._seen = 0
        self._first = True
        self.table = DemoTable(max(60, int(clock.speed * _TOLERATED_S)))

    async def report_changes(self) -> None:
        """Show changes since the last call."""
        submitted = self._trial.feed.submitted
        self._new += submitted[self._seen :]
        self._seen = len(submitted)
        if self._first and len(self._new) > _MAX_INITIAL_ROWS:
            await self._many()
        self._first = self._first and not self._new
        while self._new and await self._arrived(self._new[0]):
            self._new.popleft()
        for job in list(self._waiting):
            self._started(job)
        self.table.ended = self._trial.summary().ended

    async def _many(self) -> None:
        """Waits until the daemon has planned the jobs that came at once; they have no rows."""
        count = len(self._new)
        while True:
            status = await _query_cluster(self._client, "")
            known = sum(status["jobs"].values()) if status is not None else 0
            if known >= count:
                break
            self._say.step(f"planning: {known:,} of {count:,} jobs")
            await asyncio.sleep(0.2)
        self._say(f"{count:,} jobs planned. From here on, a row when a job comes and when it starts:")
        self.table.queued += count
        self._waiting.update(dict.fromkeys(self._new))
        self._new.clear()

    async def _arrived(self, job: str) -> bool:
        """Show the daemon's plan for a job; False if the job is unknown to it."""
        answer = await _query_cluster(self._client, f"/jobs/{job}")
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
            parts = found.exec_host.split("+")  # `node1/0-3` or `node1/0*4`, as the family writes it
            nodes = list(dict.fromkeys([part.partition("/")[0] for part in parts]))
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


async def run_demo(
    daemon: DemoProcess,
    url: str,
    logins: DemoLogins,
    clock: ScaledClock,
    workload: DemoWorkload | SteadyWorkload,
    say: DemoOutput,
    seconds: float | None,
    family: str = "torque",
) -> None:
    """Run the workload for a number of real seconds, or until its jobs are over, on a server of this family.
    Raises DemoError.
    """
    headers = {"Authorization": f"Bearer {logins.admin}"}
    async with httpx2.AsyncClient(base_url=url, timeout=30, trust_env=False, headers=headers) as client:
        await _await_ready(client, daemon, say)
        time = Clock(clock.start, clock.speed, clock.began)
        fixed = workload.arrivals if isinstance(workload, DemoWorkload) else ()
        server = emulate(
            workload.nodes, fixed, version=_VERSIONS[family], server="demo", clock=time, waits=True
        )
        with TemporaryDirectory(prefix="schedd-demo-") as directory:
            async with server as trial:
                trial.server.cluster.attributes[_HISTORY_ATTRIBUTE[family]] = str(
                    int(_HISTORY_S * clock.speed)
                )
                show = _DemoReporter(client, clock, trial, say)
                say.step("starting the adapter")
                joined = start_adapter(clock, trial.address, url, logins.adapter, Path(directory), family)
                try:
                    port = await asyncio.to_thread(joined.greeting)
                    if isinstance(trial.server, EmulatedServer):
                        trial.server.scheduler = ("127.0.0.1", int(port))
                    if isinstance(workload, SteadyWorkload):
                        trial.feed.arrivals = _endless_arrivals(workload, trial)
                    trial.begin()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(seconds):
                            await _watch_demo(show, trial, joined)
                finally:
                    await asyncio.to_thread(joined.end)
                    # A daemon that ended has said why.
                    status = await _query_cluster(client, "") if daemon.alive else None
                    if status is not None:
                        say("")
                        for line in show.summary(int(status["breaches"])):
                            say(line)


def _endless_arrivals(workload: SteadyWorkload, trial: EmulatorTrial) -> Iterator[Arrival]:
    """Jobs as the cluster runs them."""
    cluster = trial.server.cluster

    def waiting() -> tuple[int, float]:
        orders = [job.order for job in cluster.live_jobs() if job.started is None]
        return len(orders), sum(map(core_seconds, orders))

    return workload.arrivals(waiting, lambda: cluster.now - trial.feed.begin)


async def _watch_demo(show: _DemoReporter, trial: EmulatorTrial, joined: DemoProcess) -> None:
    while True:
        over = trial.finished
        await show.report_changes()
        if over:
            return
        if not joined.alive:
            raise DemoError("the adapter ended")
        await asyncio.sleep(_POLL_S)


async def _query_cluster(client: httpx2.AsyncClient, path: str) -> dict[str, Any] | None:
    """The daemon's response about the cluster; None if it is not known (yet). Raises DemoError."""
    try:
        answer = await client.get(f"/v1/clusters/{CLUSTER}{path}")
        found: dict[str, Any] = answer.json()
    except (httpx2.HTTPError, ValueError) as error:
        raise DemoError(f"the daemon does not answer: {error!r}") from error
    if answer.status_code in (404, 429):  # too many requests: repeated soon
        return None
    if answer.status_code != 200:
        raise DemoError(f"GET {path or '/'}: {answer.status_code}: {found.get('detail')}")
    return found


async def _await_ready(client: httpx2.AsyncClient, daemon: DemoProcess, say: DemoOutput) -> None:
    for _ in range(_READY_TIMEOUT_S * 5):
        if not daemon.alive:
            raise DemoError("the daemon ended while it was getting ready")
        answer = await client.get("/readyz")
        if answer.status_code == 200:
            return
        say.step(
            "starting the planner" + ("" if are_built() else "; the first start compiles it, half a minute")
        )
        await asyncio.sleep(0.2)
    raise DemoError(f"the daemon was not ready within {_READY_TIMEOUT_S} s")
