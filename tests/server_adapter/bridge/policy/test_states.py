"""Which jobs are planned at all: queues, holds, moments, arrays."""

import pytest

from server_adapter.emulator.lifecycle import settle
from tests.server_adapter import admin_requests
from tests.server_adapter.bridge.policy.bench import Bench

pytestmark = pytest.mark.anyio


async def test_a_job_of_a_stopped_queue_is_planned_after_the_queue_starts(bench: Bench) -> None:
    job = bench.submit("ann", queue="stopped")
    assert "queue stopped, which is stopped" in await bench.waits(job, "queue")
    bench.server.cluster.queues["stopped"].attributes["started"] = "True"
    await bench.planned(job, at=0)
    bench.server.cluster.queues["stopped"].attributes["started"] = "False"
    await bench.waits(job, "queue")


@pytest.mark.parametrize(("letter", "name"), [("u", "user"), ("o", "operator"), ("s", "system")])
async def test_a_held_job_is_planned_after_its_release(bench: Bench, letter: str, name: str) -> None:
    job = bench.submit("ann", holds=letter)
    assert f"{name} hold" in await bench.waits(job, "hold")
    held = bench.server.job(job)
    held.holds.clear()
    held.revision += 1
    settle(bench.server.cluster, held)
    await bench.planned(job, at=0)


async def test_a_planned_job_that_is_held_loses_its_start_until_it_is_released(bench: Bench) -> None:
    job = bench.submit("ann")
    await bench.planned(job, at=0)
    await bench.request(admin_requests.hold(job))
    assert "user hold" in await bench.waits(job, "hold")
    await bench.request(admin_requests.release(job))
    await bench.planned(job, at=0)


async def test_a_job_that_waits_for_a_moment_is_planned_from_then_on(bench: Bench) -> None:
    job = bench.submit("ann", not_before=bench.begin + 777)
    answer = await bench.planned(job, at=777)
    assert answer["job_state"] == "W"


async def test_an_array_is_planned_within_its_slot_limit(bench: Bench) -> None:
    array = bench.submit("arno", array="0-4%2")
    jobs = [array.replace("[]", f"[{i}]") for i in range(5)]
    await bench.start(*jobs, at=[0, 0, 100, 100, 200])
