"""The running demo: an emulated pbs_server, its adapter, the daemon, and a table of events."""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, TextIO

import httpx2

from schedd.cli.demo.arrivals import DemoWorkload
from schedd.cli.demo.example_jobs import SUBSCRIPTION, submit_example_jobs
from schedd.cli.demo.first_runs import start_first_jobs
from schedd.cli.demo.processes import (
    DemoError,
    DemoLogins,
    DemoProcess,
    describe_exit,
    start_adapter,
    start_federation,
)
from schedd.cli.demo.steady import SteadyWorkload, core_seconds
from schedd.cli.demo.table import DemoTable
from schedd.client.http_stream import quote_segment
from schedd.error_text import describe_error
from schedd.plan.kernel_status import are_built
from schedd.service.cluster.clock import ScaledClock
from server_adapter.emulator import OPENPBS, Arrival, Clock, EmulatedServer, EmulatorTrial, emulate
from server_adapter.torque.notation import seconds

_POLL_S = 0.1  # real seconds between two looks at server and daemon
_TOLERATED_S = 0.25  # real seconds: a start that is off by no more is on time
_READY_TIMEOUT_S = 600
_MAX_INITIAL_ROWS = 100  # jobs that come at once: more than these have no rows of their own
_LARGE = 100  # nodes from which on a machine is busy when its adapter comes
_VERSIONS = {"torque": "6.1", "openpbs": OPENPBS.name}
_HISTORY_ATTRIBUTE = {"torque": "keep_completed", "openpbs": "job_history_duration"}
"""The server's attribute for how long it keeps jobs that are over."""
_QUICK_END_S = 10  # real seconds: an adapter that ends so soon after its last end is not started again
_HISTORY_S = 30  # the server keeps completed jobs for these real seconds


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


class _NoAnswerError(DemoError):
    """The daemon did not answer a request: it ended, is frozen, or closed an idle connection."""


class _DemoReporter:
    """Compares start estimates of one cluster with actual starts, and shows both in the table."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        trial: EmulatorTrial,
        say: DemoOutput,
        table: DemoTable,
        first_runs: frozenset[str],
    ) -> None:
        self._client = client
        self._trial = trial
        self._say = say
        self._cluster = trial.server.cluster.server
        self._new: deque[str] = deque()
        self._waiting: dict[str, None] = {}
        self._rank = 0
        self._first = True
        self._table = table
        self._first_runs = first_runs

    async def report_changes(self) -> None:
        """Show changes since the last call."""
        self._new += self._submitted()
        if self._first and len(self._new) > _MAX_INITIAL_ROWS:
            await self._many()
        self._first = self._first and not self._new
        while self._new and await self._arrived(self._new[0]):
            self._new.popleft()
        for job in list(self._waiting):
            self._started(job)

    def _submitted(self) -> list[str]:
        """Return the jobs that the server has accepted since the last call, in their order."""
        found = []
        for job in reversed(self._trial.server.cluster.jobs.values()):
            if job.rank <= self._rank:
                break
            found.append(job)
        self._rank = found[0].rank if found else self._rank
        return [job.id for job in reversed(found)]

    async def _many(self) -> None:
        """Wait until the daemon has planned the jobs that came at once; they have no rows."""
        jobs = self._trial.server.cluster.jobs
        while True:
            live = [job for job in self._new if job in jobs and not jobs[job].finished]
            status = await _query_cluster(self._client, self._cluster)
            known = sum(status["jobs"].values()) if status is not None else 0
            if known >= len(live):
                break
            self._say.step(f"planning: {known:,} of {len(live):,} jobs")
            await asyncio.sleep(0.2)
        waiting = [job for job in self._new if job not in self._first_runs]
        begun = f", {len(self._first_runs):,} ran already" if self._first_runs else ""
        self._say(f"{len(waiting):,} jobs planned{begun}. A row for each new job and each start:")
        self._table.queued += len(waiting)
        self._waiting.update(dict.fromkeys(waiting))
        self._new.clear()

    async def _arrived(self, job: str) -> bool:
        """Show the daemon's plan for a job; False if the job is unknown to it."""
        answer = await _query_cluster(self._client, self._cluster, f"/jobs/{quote_segment(job)}")
        if answer is None:
            at = self._trial.server.cluster.jobs.get(job)
            return at is None or at.finished  # it came and went between two looks
        self._waiting[job] = None
        self._print(self._table.arrived(answer["submitted"], answer))
        return True

    def _started(self, job: str) -> None:
        found = self._trial.server.cluster.jobs.get(job)
        if found is not None and found.started is None and not found.finished:
            return
        del self._waiting[job]
        if found is not None and found.started is not None:
            parts = found.exec_host.split("+")  # `node1/0-3` or `node1/0*4`, as the family writes it
            nodes = list(dict.fromkeys([part.partition("/")[0] for part in parts]))
            walltime_s = seconds(found.resources.get("walltime", "0"))
            rows = self._table.started(int(found.started), job, nodes, found.resources, walltime_s)
            self._print(rows)

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._say(line)


@dataclass(frozen=True, slots=True)
class DemoCluster:
    """A cluster of the demo: its name, which is its server's name, and its workload."""

    name: str
    workload: DemoWorkload | SteadyWorkload

    @property
    def is_busy(self) -> bool:
        """Whether jobs run already when the adapter comes: of many that are due at once the last would start
        long after their promises, as time is fast here.
        """
        return isinstance(self.workload, SteadyWorkload) and len(self.workload.nodes) >= _LARGE


@dataclass(slots=True)
class _DemoAdapter:
    """The adapter of a cluster, which is started again if it ends."""

    cluster: str
    trial: EmulatorTrial
    directory: Path
    process: DemoProcess | None = None
    started: float = -math.inf  # by the monotonic clock: its last start again

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    async def end(self) -> None:
        if self.process is not None:
            await asyncio.to_thread(self.process.end)


class DemoRun:
    """A running demo: emulated servers with their parts, for a running daemon.

    ``daemon`` is its process, and ``url`` its address. The servers are of one ``family``. Several clusters
    also get a federation, which ``describe_federation`` introduces by its address.
    """

    def __init__(
        self,
        daemon: DemoProcess,
        url: str,
        logins: DemoLogins,
        clock: ScaledClock,
        family: str,
        say: DemoOutput,
        describe_federation: Callable[[str], str],
    ) -> None:
        self._daemon = daemon
        self._url = url
        self._logins = logins
        self._clock = clock
        self._family = family
        self._say = say
        self._describe_federation = describe_federation
        self._table = DemoTable(max(60, int(clock.speed * _TOLERATED_S)))
        self._trials: list[EmulatorTrial] = []
        self._names: list[str] = []
        self._first_runs = 0  # runs that no adapter started

    async def run(self, clusters: Sequence[DemoCluster], seconds: float | None) -> None:
        """Run the workloads for a number of real seconds, or until their jobs are over. Raises DemoError."""
        self._names = [one.name for one in clusters]
        headers = {"Authorization": f"Bearer {self._logins.admin}"}
        async with (
            httpx2.AsyncClient(base_url=self._url, timeout=30, trust_env=False, headers=headers) as client,
            AsyncExitStack() as stack,
        ):
            await await_ready(client, self._daemon, self._say)
            self._say.step("starting the adapters" if len(clusters) > 1 else "starting the adapter")
            adapters: list[_DemoAdapter] = []
            reporters = []
            for one in clusters:
                trial = await stack.enter_async_context(self._emulate(one))
                self._trials.append(trial)
                first_runs = self._begin(one, trial) if one.is_busy else frozenset()
                part = _DemoAdapter(
                    one.name, trial, Path(stack.enter_context(TemporaryDirectory(prefix="schedd-demo-")))
                )
                stack.push_async_callback(part.end)
                await self._start_adapter(part)
                adapters.append(part)
                reporters.append(_DemoReporter(client, trial, self._say, self._table, first_runs))
                await self._subscribe(client, one.name)
            stack.push_async_callback(self._report_end, client)
            federation = await self._start_federation(stack) if len(clusters) > 1 else None
            for one, trial in zip(clusters, self._trials, strict=True):
                if not one.is_busy:
                    self._begin(one, trial)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._watch(reporters, adapters, federation)

    def _begin(self, cluster: DemoCluster, trial: EmulatorTrial) -> frozenset[str]:
        """Let the cluster's jobs come; return the running ones."""
        if not isinstance(cluster.workload, SteadyWorkload):
            trial.begin()
            return frozenset()
        trial.feed.arrivals = _endless_arrivals(cluster.workload, trial)
        trial.begin()
        trial.server.catch_up()  # the jobs that come at once are before the examples in the queue
        first_runs = start_first_jobs(trial.server) if cluster.is_busy else frozenset()
        self._first_runs += len(first_runs)
        submit_example_jobs(trial.server)
        return first_runs

    def _emulate(self, cluster: DemoCluster) -> AbstractAsyncContextManager[EmulatorTrial]:
        fixed = cluster.workload.arrivals if isinstance(cluster.workload, DemoWorkload) else ()
        time = Clock(self._clock.start, self._clock.speed, self._clock.began)
        return emulate(
            cluster.workload.nodes,
            fixed,
            version=_VERSIONS[self._family],
            server=cluster.name,
            clock=time,
            waits=True,
        )

    async def _start_adapter(self, part: _DemoAdapter) -> None:
        """Start the adapter of a cluster, and make its server known to the daemon. Raises DemoError."""
        trial, server = part.trial, part.trial.server
        history = str(int(_HISTORY_S * self._clock.speed))
        server.cluster.attributes[_HISTORY_ATTRIBUTE[self._family]] = history
        adapter = part.process = start_adapter(
            self._clock,
            part.cluster,
            trial.address,
            self._url,
            self._logins.adapter,
            part.directory,
            self._family,
            transfers=len(self._names) > 1,
        )
        port = await asyncio.to_thread(adapter.greeting)
        if isinstance(server, EmulatedServer):
            server.scheduler = ("127.0.0.1", int(port))
        host, port_of_server = trial.address
        self._daemon.send({"cluster": part.cluster, "host": host, "port": port_of_server})

    async def _restart_adapter(self, part: _DemoAdapter) -> None:
        """Say how an adapter ended, and start it again, as systemd does. Raises DemoError if it ends each
        time.
        """
        how = describe_exit(await asyncio.to_thread(part.process.end)) if part.process is not None else ""
        if monotonic() - part.started < _QUICK_END_S:
            raise DemoError(f"the adapter of {part.cluster} ended again: {how}")
        self._say(f"The adapter of {part.cluster} ended: {how}.")
        self._say("It is started again; no job starts until then.")
        part.started = monotonic()
        await self._start_adapter(part)

    async def _subscribe(self, client: httpx2.AsyncClient, cluster: str) -> None:
        """Let the user get mail about the starts of jobs."""
        headers = {"Authorization": f"Bearer {self._logins.user}"}
        path = f"/v1/clusters/{cluster}/notices"
        try:
            answer = await client.post(path, json=SUBSCRIPTION, headers=headers)
        except httpx2.HTTPError as error:
            raise DemoError(f"the daemon does not answer: {describe_error(error)}") from error
        if answer.is_error:
            raise DemoError(f"POST {path}: {answer.status_code}: {answer.text[:300]}")

    async def _watch(
        self,
        reporters: Sequence[_DemoReporter],
        adapters: Sequence[_DemoAdapter],
        federation: DemoProcess | None,
    ) -> None:
        answers = True
        while True:
            over = all(trial.finished for trial in self._trials)
            try:
                for reporter in reporters:
                    await reporter.report_changes()
            except _NoAnswerError:
                if not self._daemon.alive:
                    raise
                over = False
                if answers:
                    self._say("The daemon does not answer. The demo goes on, with rows once it answers.")
                answers = False
            else:
                answers = True
            self._table.ended = sum(trial.summary().ended for trial in self._trials)
            if over:
                return
            for part in adapters:
                if not part.alive:
                    await self._restart_adapter(part)
            if federation is not None and not federation.alive:
                raise DemoError(f"the federation ended: {describe_exit(federation.end())}")
            await asyncio.sleep(_POLL_S)

    async def _start_federation(self, stack: AsyncExitStack) -> DemoProcess:
        """Start the federation of all clusters, and say how to use it."""
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="schedd-demo-")))
        federation = start_federation(self._clock, self._url, self._logins, self._names, directory)
        stack.push_async_callback(asyncio.to_thread, federation.end)
        url = f"http://127.0.0.1:{await asyncio.to_thread(federation.greeting)}"
        self._say(self._describe_federation(url))
        return federation

    async def _report_end(self, client: httpx2.AsyncClient) -> None:
        """Print the summary. A daemon that ended has already said why."""
        breaches = 0
        for name in self._names:
            try:
                status = await _query_cluster(client, name) if self._daemon.alive else None
            except _NoAnswerError:
                status = None
            if status is None:
                return
            breaches += int(status["breaches"])
        runs = [count for trial in self._trials for count in trial.server.cluster.runs.values()]
        twice = sum(count > 1 for count in runs)
        self._say("")
        for line in self._table.summary(breaches):
            self._say(line)
        taken = sum(runs) - self._first_runs
        self._say(f"Runs that the server took from the adapter: {taken}; jobs run twice: {twice}.")


def _endless_arrivals(workload: SteadyWorkload, trial: EmulatorTrial) -> Iterator[Arrival]:
    """Jobs as the cluster runs them."""
    cluster = trial.server.cluster

    def waiting() -> tuple[int, float]:
        # Jobs from outside have no outcome yet, and any request: they do not take the workload's place.
        waits = (job.order for job in cluster.live_jobs() if job.started is None)
        orders = [order for order in waits if order.outcome is not None]
        return len(orders), sum(map(core_seconds, orders))

    return workload.arrivals(waiting, lambda: cluster.now - trial.feed.begin)


async def _query_cluster(client: httpx2.AsyncClient, cluster: str, path: str = "") -> dict[str, Any] | None:
    """Return the daemon's response about the cluster; None if it is not known (yet). Raises DemoError."""
    try:
        answer = await client.get(f"/v1/clusters/{cluster}{path}")
        found: dict[str, Any] = answer.json()
    except (httpx2.HTTPError, ValueError) as error:
        raise _NoAnswerError(f"the daemon does not answer: {describe_error(error)}") from error
    if answer.status_code in (404, 429):  # too many requests: repeated soon
        return None
    if answer.status_code != 200:
        raise DemoError(f"GET {path or '/'}: {answer.status_code}: {found.get('detail')}")
    return found


async def await_ready(client: httpx2.AsyncClient, daemon: DemoProcess, say: DemoOutput) -> None:
    """Return when the daemon is ready. Raises DemoError."""
    for _ in range(_READY_TIMEOUT_S * 5):
        if not daemon.alive:
            raise DemoError("the daemon ended while it was getting ready")
        with contextlib.suppress(httpx2.TransportError):  # a daemon that ends is noticed above
            if (await client.get("/readyz")).status_code == 200:
                return
        say.step(
            "starting the planner" + ("" if are_built() else "; the first start compiles it, half a minute")
        )
        await asyncio.sleep(0.2)
    raise DemoError(f"the daemon was not ready within {_READY_TIMEOUT_S} s")
