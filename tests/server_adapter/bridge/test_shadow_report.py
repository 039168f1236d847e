"""Real adapter and daemon in shadow mode beside another scheduler; a replay of their record."""

import asyncio
import json
from pathlib import Path

import pytest

from schedd.cli.main import main
from server_adapter.emulator import JobState
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.lifecycle import start
from tests.server_adapter.bridge.processes import ProcessHarness

pytestmark = pytest.mark.anyio

JOBS = 12


async def first_come_first_served(house: ProcessHarness) -> None:
    """The incumbent: starts the first in the queue, and looks at no other before that one runs."""
    cluster = house.server.cluster
    while True:
        house.server.catch_up()
        for job in sorted(cluster.jobs.values(), key=lambda job: job.queued):
            if job.state is JobState.QUEUED:
                try:
                    start(cluster, job, "", synchronous=True)
                except RefusalError:
                    break
        await asyncio.sleep(0.05)


async def test_the_shadow_writes_nothing_and_its_record_can_be_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    house = ProcessHarness(tmp_path, "6.1", mode="shadow")
    server = house.server
    async with server:
        server.cluster.attributes |= {"scheduling": "True", "keep_completed": "3600"}
        house.configure()
        house.daemon.start()
        incumbent = asyncio.create_task(first_come_first_served(house))
        try:
            await house.ready()
            house.adapter.start()
            while (await house.request(""))["nodes"] < 16:  # earlier ends would not be recorded
                await asyncio.sleep(0.05)
            for number in range(JOBS):  # strict first come, first served leaves nodes idle
                wanted = {"nodes": f"{(9, 8, 6)[number % 3]}:ppn=8", "walltime": "10"}
                server.submit(resources=wanted, runtime=1.6)  # longer than from one reading to the next
            while house.done() < JOBS or await house.unseen():
                assert not incumbent.done()
                await asyncio.sleep(0.1)
            decided = house.decided()
        finally:
            incumbent.cancel()
            house.adapter.kill()
            house.daemon.kill()
    assert server.cluster.runs == dict.fromkeys(server.cluster.jobs, 1)
    assert not decided
    assert not any("comment" in job.attributes for job in server.cluster.jobs.values())
    assert "started by the incumbent" in house.adapter.log.read_text()

    config, log, table = tmp_path / "schedd0.toml", tmp_path / "window.swf", tmp_path / "replay.json"
    assert main(["shadow-report", "main", "--config", str(config), "--log", str(log), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["started"], found["ended"]) == (JOBS, JOBS)
    assert 0 < found["estimated"] <= JOBS
    assert found["due"] + found["earlier"] + found["later"] == found["estimated"]
    policies = ["--policy", "fcfs", "--policy", "conservative"]
    assert main(["replay", str(log), *policies, "--estimates", "user", "--json", str(table)]) == 0
    waits = {row["policy"]: row["avg_wait_s"] for row in json.loads(table.read_text())}
    # A plan with backfilling waits less than the incumbent, which is first come, first served.
    assert waits["conservative"] < waits["fcfs"]
    assert waits["conservative"] < found["wait_mean"]
