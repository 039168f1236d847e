"""The demo at work: a daemon process, a simulated cluster, and HTTP between them."""

import asyncio
import contextlib
import hashlib
import json
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import httpx2
from pydantic import TypeAdapter

from schedd.cli.demo_cluster import DemoCluster
from schedd.cli.demo_table import Table
from schedd.service.clock import ScaledClock
from schedd.wire import Delivery, Event, JobEnded, JobQueued, JobStarted, Run

__all__ = ["CLUSTER", "Daemon", "DemoError", "play"]

CLUSTER = "demo"
_PORT = 8080
_DELIVERY: TypeAdapter[Delivery] = TypeAdapter(Delivery)
_RUN: TypeAdapter[Run] = TypeAdapter(Run)
_LONGEST_S = 0.2
_SHORTEST_S = 0.01
_SINGLY = 3
_TOLERATED_S = 0.25
"""Real seconds: some HTTP requests; a start that is off by no more is on time."""
_SLACK_S = 1_800
_FIRST_WAIT_S = 600
_END_S = 20


class DemoError(Exception):
    """The daemon did not come up, or went away."""


class Daemon:
    """The daemon in a process of its own, which ends when this one does."""

    def __init__(self, clock: ScaledClock, port: int | None) -> None:
        """On this port of loopback; None: the usual one, or any where that is taken. Raises DemoError."""
        self.token = secrets.token_urlsafe(32)
        digest = hashlib.sha256(self.token.encode()).hexdigest()
        speed = clock.speed
        settings = {
            "server": {"port": _PORT if port is None else port},
            "store": {"url": "memory"},
            "log": {"level": "warning", "format": "text"},
            "auth": {
                "anonymous": "reader",
                "tokens": [{"name": "demo", "role": "adapter", "sha256": digest}],
            },
            # A moment of HTTP is minutes of the cluster's time.
            "clusters": {
                CLUSTER: {
                    "slack": _SLACK_S,
                    "end_allowance": max(120, int(speed / 2)),
                    "decision_expiry": max(60, int(speed * 5)),
                }
            },
        }
        told = {
            "settings": settings,
            "any_port": port is None,
            "start": clock.start,
            "speed": speed,
            "began": clock.began,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "schedd.cli.demo_daemon"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process, which then ends that one
        )
        try:
            self.url = f"http://127.0.0.1:{self._greet(json.dumps(told))}"
        except BaseException:
            self.end()
            raise

    def _greet(self, told: str) -> str:
        """Tell the process what it is to do; returns its port."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(told + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise DemoError("the daemon did not start")
        return answer

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def end(self) -> int:
        """Let it end; returns its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process.stdout.close()
        return self._process.wait()


class _Play:
    """Feeds events, carries out decisions, prints rows."""

    def __init__(
        self, client: httpx2.AsyncClient, clock: ScaledClock, cluster: DemoCluster, say: Callable[[str], None]
    ) -> None:
        self._client = client
        self._clock = clock
        self._cluster = cluster
        self._say = say
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self.table = Table(max(60, int(clock.speed * _TOLERATED_S)))

    def _now(self) -> int:
        return int(self._clock.now())

    async def begin(self) -> None:
        """Tell of the empty cluster."""
        await self._post([self._cluster.snapshot(self._now())])

    async def feed(self) -> None:
        """Tell what happens by itself, until all is over."""
        while not self._cluster.over:
            async with self._turn:
                events = self._cluster.advance(self._now())
                await self._post(events)
                await self._show(events)
            moment = self._cluster.next_moment
            wait = _LONGEST_S if moment is None else self._clock.wait_for(moment)
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(max(wait, _SHORTEST_S), _LONGEST_S))

    async def obey(self) -> None:
        """Start what the daemon decides to start."""
        after = ""
        while True:
            answer = await self._get("/decisions", after=after, wait=10)
            after = answer["last"]
            runs = [_RUN.validate_python(item) for item in answer["decisions"] if item["type"] == "run"]
            if not runs:
                continue
            async with self._turn:
                # What ended meanwhile is told first: its nodes may be those of a job that is to start.
                now = self._now()
                ended = self._cluster.advance(now)
                events = [*ended, *(event for run in runs for event in self._cluster.start(run, now))]
                await self._post(events)
                await self._show(events)
            self._changed.set()

    async def status(self) -> dict[str, Any]:
        """The cluster as the daemon sees it."""
        return await self._get("")

    async def _post(self, events: Sequence[Event]) -> None:
        if events:
            body = _DELIVERY.dump_json(Delivery(events=tuple(events)))
            await self._ask("POST", "/events", content=body, headers={"Content-Type": "application/json"})

    async def _get(self, path: str, **parameters: Any) -> dict[str, Any]:
        return await self._ask("GET", path, params=parameters)

    async def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            answer = await self._client.request(method, f"/v1/clusters/{CLUSTER}{path}", **options)
            found: dict[str, Any] = answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise DemoError(f"the daemon does not answer: {error!r}") from error
        if answer.status_code != 200:
            raise DemoError(f"{method} {path or '/'}: {answer.status_code}: {found.get('detail')}")
        return found

    async def _show(self, events: Iterable[Event]) -> None:
        queued = [event.job.id for event in events if isinstance(event, JobQueued)]
        for job in await self._jobs(queued):
            self._print(self.table.arrived(job["submitted"], job))
        for event in events:
            if isinstance(event, JobStarted):
                nodes = [share.node for share in event.shares]
                self._print(self.table.started(event.time, event.job_id, nodes))
            elif isinstance(event, JobEnded):
                self.table.ended += 1

    async def _jobs(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """These jobs as the daemon describes them."""
        if len(ids) <= _SINGLY:
            return [await self._get(f"/jobs/{job_id}") for job_id in ids]
        page = await self._get("/jobs", limit=1_000)
        found = {job["id"]: job for job in page["jobs"]}
        return [found[job_id] for job_id in ids if job_id in found]

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._say(line)


async def play(
    daemon: Daemon,
    clock: ScaledClock,
    make: Callable[[], DemoCluster],
    say: Callable[[str], None],
    seconds: float | None,
) -> None:
    """Let the cluster that ``make`` builds run for so many real seconds, or until its jobs are over.

    Raises DemoError.
    """
    headers = {"Authorization": f"Bearer {daemon.token}"}
    async with httpx2.AsyncClient(
        base_url=daemon.url, headers=headers, timeout=30, trust_env=False
    ) as client:
        await _wait_until_ready(client, daemon)
        playing = _Play(client, clock, make(), say)
        await playing.begin()
        trouble = False
        tasks = [asyncio.create_task(playing.feed()), asyncio.create_task(playing.obey())]
        try:
            done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except (DemoError, OSError):
            trouble = True
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if daemon.alive and not trouble:
                status = await playing.status()
                say("")
                for line in playing.table.summary(int(status["breaches"])):
                    say(line)


async def _wait_until_ready(client: httpx2.AsyncClient, daemon: Daemon) -> None:
    for _ in range(_FIRST_WAIT_S * 5):
        if not daemon.alive:
            raise DemoError("the daemon ended while it was getting ready")
        answer = await client.get("/readyz")
        if answer.status_code == 200:
            return
        await asyncio.sleep(0.2)
    raise DemoError(f"the daemon was not ready within {_FIRST_WAIT_S} s")
