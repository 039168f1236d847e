"""Emulated server, the real adapter and the real daemon, each a process of its own that may be killed."""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Literal

from server_adapter.emulator import EmulatedOpenPBS, EmulatedServer, JobState, NodeSpec, Timing
from tests.ports import free_port
from tests.store.daemon_processes import alive
from tests.store.forked_processes import shared_launcher
from tests.waits import WAIT_S, wait_until

TOKEN = "an-adapter-token-for-tests"
ADMIN = "an-admins-token-for-tests"
MEMORY = 16 << 20
"""KiB of each node."""
NODES = [NodeSpec(f"node{number}", 8, ("odd" if number % 2 else "even",), MEMORY) for number in range(1, 17)]
TIMING = Timing(obit=0.1, kill=0.2, refused=0.1, report=5.0, node_check=0.5)


class Program:
    """A program that is started and killed again and again."""

    def __init__(self, program: Literal["serve", "federate", "adapter"], args: list[str], log: Path) -> None:
        self._program = program
        self._args = args
        self.log = log
        self._status = log.with_suffix(".status")
        self.pid = 0

    def start(self) -> None:
        self.pid = shared_launcher().fork(self._args, self.log, program=self._program, status=self._status)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    @property
    def ended(self) -> bool:
        return bool(self.pid) and not alive(self.pid)

    def terminate(self) -> int:
        self._status.unlink(missing_ok=True)
        self._end(signal.SIGTERM)
        return int(self._status.read_text())

    def _end(self, how: signal.Signals) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, how)
            wait_until(lambda: not alive(self.pid), f"{how.name} did not end it", 0.002)
            self.pid = 0


class ProcessHarness:
    """The three of them; of the daemon there may be several on one database, `store`. The server is a TORQUE
    of this `version`, or an OpenPBS.
    """

    def __init__(
        self,
        directory: Path,
        version: str,
        store: str = "",
        daemons: int = 1,
        mode: str = "scheduler",
        nodes: Sequence[NodeSpec] = tuple(NODES),
        interval: float = 1.0,
        silence: int = 60,
        alone_starts: int = 1,
        server_grace: int = 1,
        timeout: float = 2.0,
        snapshot: float = 3.0,
    ) -> None:
        self.directory = directory
        self._silence = silence
        self._timeout = timeout
        self._alone_starts = alone_starts
        self._server_grace = server_grace
        ports = [free_port() for _ in range(daemons)]
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        scheduler_port = free_port()
        self.family = "openpbs" if version == "openpbs" else "torque"
        self.server: EmulatedServer
        if self.family == "openpbs":  # to tests they are alike
            self.server = EmulatedOpenPBS(nodes, timing=TIMING)  # type: ignore[assignment]
        else:
            self.server = EmulatedServer(
                nodes, version=version, timing=TIMING, scheduler=("127.0.0.1", scheduler_port)
            )
        (directory / "tokens").write_text(f"adapter pbs-adapter {TOKEN}\nadmin carol {ADMIN}\n")
        (directory / "tokens").chmod(0o600)
        (directory / "token").write_text(TOKEN)
        self._adapter_settings = f"""
            mode = "{mode}"
            state_dir = "{directory}/state"
            [listen]
            port = {scheduler_port}
            any_port = true
            [daemon]
            url = {json.dumps(self.urls)}
            token_file = "{directory}/token"
            [poll]
            interval = {interval}
            snapshot = {snapshot}
            [run]
            busy_wait = 0.1
            [tell]
            start_time = true
            """
        self.daemons = [
            self._daemon(number, port, store or f"sqlite:///{directory}/schedd.sqlite")
            for number, port in enumerate(ports)
        ]
        self.daemon = self.daemons[0]
        config = f"{directory}/adapter.toml"
        self.adapter = Program(
            "adapter", ["--config", config, "--log-level", "debug"], directory / "adapter.log"
        )

    def _daemon(self, number: int, port: int, store: str) -> Program:
        config = self.directory / f"schedd{number}.toml"
        config.write_text(
            f"""
            [server]
            port = {port}
            [auth]
            token_file = "{self.directory}/tokens"
            [store]
            url = "{store}"
            holder = "daemon{number}"
            lease = 2.0
            [clusters.main]
            server_grace = {self._server_grace}
            node_grace = 2
            check_wait = 1
            refusal_wait = 1
            adapter_silence = {self._silence}
            alone_starts = {self._alone_starts}
            """
        )
        return Program("serve", ["--config", str(config)], self.directory / f"daemon{number}.log")

    def configure(self) -> None:
        """Once the server has its port."""
        host, port = self.server.address
        (self.directory / "adapter.toml").write_text(
            self._adapter_settings
            + f'[server]\nfamily = "{self.family}"\nhost = "{host}"\nport = {port}\n'
            + f'auth = "none"\ntimeout = {self._timeout}\n'
        )

    @contextlib.asynccontextmanager
    async def running(self, **attributes: str) -> AsyncIterator[None]:
        """Run the server, with these attributes, and the daemon. The adapter is configured, and killed in the
        end.
        """
        async with self.server:
            self.server.cluster.attributes |= {"scheduling": "True", **attributes}
            self.configure()
            self.daemon.start()
            try:
                await self.ready()
                yield
            finally:
                self.adapter.kill()
                self.daemon.kill()

    async def ready(self) -> None:
        for url, daemon in zip(self.urls, self.daemons, strict=True):
            while not await asyncio.to_thread(_says_yes, url + "/readyz"):
                assert not daemon.ended, daemon.log.read_text()
                await asyncio.sleep(0.2)

    async def leader(self) -> int:
        """The number of the daemon that leads; -1 while none does."""
        for number, url in enumerate(self.urls):
            if await asyncio.to_thread(_says_yes, url + "/leadz"):
                return number
        return -1

    async def request(self, path: str, method: str = "GET", body: object = None) -> dict[str, Any]:
        """The cluster's page at `path`, as an admin."""
        return await asyncio.to_thread(self._send, path, method, body)

    def _send(self, path: str, method: str, body: object) -> dict[str, Any]:
        url = f"{self.urls[0]}/v1/clusters/main{path}"
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(
            urllib.request.Request(url, data, headers, method=method), timeout=WAIT_S
        ) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def done(self) -> int:
        return sum(job.state is JobState.COMPLETE for job in self.server.cluster.jobs.values())

    def decided(self) -> dict[str, list[dict[str, int]]]:
        """The shares of all run decisions, by job, from the daemon's own record."""
        found: dict[str, list[dict[str, int]]] = {}
        for (body,) in self._query("select body from decisions where type = 'run'"):
            run = json.loads(body)
            shares = {share["node"]: share["cpus"] for share in run["shares"]}
            found.setdefault(run["job_id"], []).append(shares)
        return found

    async def unseen(self) -> bool:
        """Whether the daemon's tables lack the end of any job that is complete on the server."""
        rows = await asyncio.to_thread(self._query, "select id from jobs where ended is not null")
        return {job for (job,) in rows} != set(self.server.cluster.jobs)

    def outcomes(self, outcome: str | None) -> Counter[str]:
        """How many run decisions of each job came to this, as far as the daemon knows; None: it does not."""
        text = "select job from decisions where type = 'run' and outcome is ?"
        return Counter(job for (job,) in self._query(text, outcome))

    def refused(self) -> Counter[int]:
        """How many run decisions were refused, by code."""
        rows = self._query("select code from decisions where outcome = ?", "refused")
        return Counter(code for (code,) in rows)

    def _query(self, text: str, *values: object) -> list[Any]:
        base = sqlite3.connect(f"file:{self.directory}/schedd.sqlite?mode=ro", uri=True)
        try:
            return base.execute(text, values).fetchall()
        finally:
            base.close()


def _says_yes(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
