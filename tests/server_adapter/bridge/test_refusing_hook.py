"""A hook of the server refuses all starts: daemon, adapter and emulated server, faster than in real time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import cast

import httpx2
import pytest

from schedd.api.app import create_app
from schedd.engine import EngineSettings
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.service.clusters import Clusters
from schedd.service.warmup import warm_up
from server_adapter.bridge.adapter import Adapter
from server_adapter.emulator import EmulatedOpenPBS, JobState, NodeSpec
from server_adapter.emulator.faults import Faults
from server_adapter.families import connector
from server_adapter.openpbs.codes import OpenPBSErrorCode
from server_adapter.settings import load_settings
from server_adapter.torque.errors import TorqueErrorCode
from tests.api.conftest import token, tokens
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio
SPEED = 120.0
JOBS = 60


class ServerClock:
    """The emulated server's clock, for the daemon."""

    def __init__(self, server: EmulatedOpenPBS) -> None:
        self.now = server.clock.now

    def wait_for(self, moment: float) -> float:
        return max(0.0, moment - self.now()) / SPEED


@pytest.fixture
async def server() -> AsyncIterator[EmulatedOpenPBS]:
    nodes = [NodeSpec(f"node{number}", 4) for number in range(1, 5)]
    async with EmulatedOpenPBS(nodes, time_scale=SPEED) as made:
        made.set_scheduling(True)
        made.cluster.attributes["keep_completed"] = "3600"
        yield made


@pytest.fixture
def published(server: EmulatedOpenPBS) -> Iterator[tuple[Clusters, Callable[[], PlanSnapshot]]]:
    """A daemon on the server's clock, and its present plan."""
    warm_up()
    patient = EngineSettings(server_grace=1, decision_expiry=3600, start_wait=7200)
    clusters = Clusters({"main": patient}, ServerClock(server))
    clusters.start(warm=False)
    yield clusters, lambda: clusters["main"].published
    clusters.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_the_first_minutes_of_a_hook_that_refuses_all_starts(
    server: EmulatedOpenPBS,
    published: tuple[Clusters, Callable[[], PlanSnapshot]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters, plan = published
    refused: list[tuple[float, str]] = []
    broken = True

    def refuses(_: Faults, job: str) -> bool:
        if broken:
            refused.append((server.clock.now(), job))
        return broken

    def opened() -> bool:
        return any(one.kind == "starts_refused" for one in plan().alerts)

    monkeypatch.setattr(Faults, "refuses", refuses)
    # the faults of both families have their codes in one field
    server.faults.refusal_code = cast("TorqueErrorCode", OpenPBSErrorCode.HOOKERROR)
    jobs = [
        server.submit(resources={"select": "1:ncpus=1", "walltime": "600"}, runtime=5.0) for _ in range(JOBS)
    ]
    host, port = server.address
    settings = load_settings(
        None,
        {
            "mode": "scheduler",
            "state_dir": tmp_path,
            "daemon.url": "http://daemon",
            "server.family": "openpbs",
            "server.host": host,
            "server.port": port,
            "server.auth": "none",
            "poll.interval": 0.2,
            "poll.gap": 0.02,
        },
    )
    transport = httpx2.ASGITransport(app=create_app(clusters, tokens()))
    adapter = Adapter(
        settings,
        connector(settings, server.clock.now),
        token=token("adapter"),
        clock=server.clock.now,
        transport=transport,
    )
    work = asyncio.create_task(adapter.run())
    try:
        await until(opened)
        before = len(refused)
        first = refused[:before]
        assert len({job for _, job in first}) >= 20
        assert first[-1][0] - first[0][0] >= 60
        for job in jobs:
            tries = [moment for moment, other in first if other == job]
            waits = [b - a for a, b in pairwise(tries)]
            assert all(wait >= 29 for wait in waits), f"{job} was tried after {waits} s"

        def long_waits() -> int:
            return sum(b[0] - a[0] >= 25 for a, b in pairwise(refused[before - 1 :]))

        await until(lambda: long_waits() >= 3)
        short = len(refused) - before - long_waits()
        assert short <= 16, "more starts than were under way on 16 cores"
        assert not plan().closed, "no node is to blame"
        broken = False
        await until(lambda: all(server.job(job).state is JobState.COMPLETE for job in jobs))
        assert set(server.cluster.runs.values()) == {1}
        await until(lambda: not plan().alerts)
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        adapter.journal.close()
