"""Emulated server, the real adapter and the real daemon, each a process of its own that may be killed."""

import asyncio
import json
import random
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from server_adapter.emulator import EmulatedServer, NodeSpec, State, Timing
from server_adapter.torque.values import exec_host

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]  # the kernels may have to be compiled first
TOKEN = "an-adapter-token-for-tests"
NODES = [NodeSpec(f"node{number}", 8, ("odd" if number % 2 else "even",)) for number in range(1, 17)]
TIMING = Timing(obit=0.1, kill=0.2, refused=0.1, report=5.0, node_check=0.5)
REQUESTS = ["1", "2:ppn=4", "1:ppn=8:even", "3:ppn=2", "1:odd+2:ppn=2", "node3:ppn=4"]
SERVE = [sys.executable, "-m", "schedd.cli.main", "serve"]
ADAPT = [sys.executable, "-m", "server_adapter.bridge.main"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Program:
    """A command that is started and killed again and again."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as file:
            self._process = subprocess.Popen(self._command, stdout=file, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(60)


class House:
    """The three of them."""

    def __init__(self, directory: Path, version: str) -> None:
        self.directory = directory
        daemon_port, scheduler_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{daemon_port}"
        self.server = EmulatedServer(
            NODES, version=version, timing=TIMING, scheduler=("127.0.0.1", scheduler_port)
        )
        (directory / "tokens").write_text(f"adapter pbs-adapter {TOKEN}\n")
        (directory / "tokens").chmod(0o600)
        (directory / "token").write_text(TOKEN)
        (directory / "schedd.toml").write_text(
            f"""
            [server]
            port = {daemon_port}
            [auth]
            token_file = "{directory}/tokens"
            [store]
            url = "sqlite:///{directory}/schedd.sqlite"
            [clusters.main]
            server_grace = 1
            end_allowance = 20
            """
        )
        self._adapter_settings = f"""
            mode = "scheduler"
            state_dir = "{directory}/state"
            [listen]
            port = {scheduler_port}
            any_port = true
            [daemon]
            url = "{self.url}"
            token_file = "{directory}/token"
            [poll]
            interval = 1.0
            snapshot = 3.0
            [tell]
            start_time = true
            threshold = 5
            """
        self.daemon = Program([*SERVE, "--config", f"{directory}/schedd.toml"], directory / "daemon.log")
        config = f"{directory}/adapter.toml"
        self.adapter = Program(
            [*ADAPT, "--config", config, "--log-level", "debug"], directory / "adapter.log"
        )

    def configure(self) -> None:
        """Once the server has its port."""
        host, port = self.server.address
        (self.directory / "adapter.toml").write_text(
            self._adapter_settings + f'[server]\nhost = "{host}"\nport = {port}\nauth = "none"\n'
        )

    async def ready(self) -> None:
        while not await asyncio.to_thread(self._is_ready):
            await asyncio.sleep(0.2)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.url + "/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def done(self) -> int:
        return sum(job.state is State.COMPLETE for job in self.server.cluster.jobs.values())

    def decided(self) -> dict[str, list[dict[str, int]]]:
        """The shares of all run decisions, by job, from the daemon's own record."""
        with sqlite3.connect(f"file:{self.directory}/schedd.sqlite?mode=ro", uri=True) as base:
            rows = base.execute("select body from decisions where type = 'run'").fetchall()
        base.close()
        found: dict[str, list[dict[str, int]]] = {}
        for (body,) in rows:
            run = json.loads(body)
            shares = {share["node"]: share["cpus"] for share in run["shares"]}
            found.setdefault(run["job_id"], []).append(shares)
        return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture(params=["4.2", pytest.param("6.1", marks=pytest.mark.soak)])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path, request.param)
    async with made.server:
        made.server.cluster.attributes |= {"scheduling": "True", "keep_completed": "3600"}
        made.configure()
        made.daemon.start()
        try:
            await made.ready()
            yield made
        finally:
            made.adapter.kill()
            made.daemon.kill()


async def test_two_hundred_jobs_start_once_each_where_planned_through_kills(
    house: House,
) -> None:
    server, chance = house.server, random.Random(7)

    def submit(count: int) -> None:
        for _ in range(count):
            runtime = chance.uniform(0.3, 2.5)
            walltime = str(int(runtime * 2) + 2)
            server.submit(resources={"nodes": chance.choice(REQUESTS), "walltime": walltime}, runtime=runtime)

    shown: set[str] = set()
    dated: set[str] = set()

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():
            for job in server.cluster.jobs.values():
                if job.state is State.QUEUED:
                    if job.attributes.get("comment", "").startswith("schedd: planned start "):
                        shown.add(job.id)
                    if job.start_time is not None:
                        dated.add(job.id)
            await asyncio.sleep(0.05)

    submit(100)
    house.adapter.start()
    await until(lambda: house.done() >= 20)
    house.adapter.kill()
    house.adapter.start()
    await until(lambda: house.done() >= 45)
    house.daemon.kill()
    house.daemon.start()
    submit(100)
    await until(lambda: house.done() >= 80)
    await server.restart(down=0.5)
    await until(lambda: house.done() >= 110)
    house.adapter.kill()
    house.daemon.kill()
    house.adapter.start()
    house.daemon.start()
    await until(lambda: house.done() >= 140)
    house.daemon.kill()
    house.adapter.kill()
    await server.restart(down=0.5)
    house.daemon.start()
    house.adapter.start()
    await until(lambda: house.done() == 200)

    assert set(server.cluster.runs.values()) == {1}
    assert len(server.cluster.runs) == 200
    decided = house.decided()
    for job in server.cluster.jobs.values():
        assert dict(exec_host(job.exec_host)) in decided[job.id]
        assert job.exit_status == 0
    assert len(shown) > 50
    assert len(dated) > 50
    assert house.adapter.terminate() == 0
    assert house.daemon.terminate() == 0
    assert "another scheduler is alive" not in house.adapter.log.read_text()
