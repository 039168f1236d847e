"""Two hundred jobs through all that can go wrong: each starts once, where it was planned."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from schedd.engine.facts.texts import STARTED_BY_SOMEBODY_ELSE
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.sockets import Address
from server_adapter.emulator import JobState
from server_adapter.torque import TorqueAnyPort, TorqueErrorCode, open_connection
from server_adapter.torque.notation import exec_host
from tests.server_adapter import admin_requests
from tests.server_adapter.bridge.processes import MEMORY, ProcessHarness
from tests.server_adapter.bridge.scenario import Scenario

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["4.2", pytest.param("6.1", marks=pytest.mark.soak)])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ProcessHarness]:
    made = ProcessHarness(tmp_path, request.param)
    async with made.running(keep_completed="3600"):
        yield made


async def as_client(house: ProcessHarness, *requests: BatchRequest) -> None:
    """What qdel and qrls would send."""
    async with await open_connection(Address(*house.server.address), TorqueAnyPort()) as connection:
        for request in requests:
            await connection.request(request)


@pytest.mark.timeout(
    600
)  # programs start eight times; on a machine that does other things that takes minutes
async def test_two_hundred_jobs_start_once_each_as_planned_despite_faults_and_kills(
    house: ProcessHarness,
) -> None:
    server, faults = house.server, house.server.faults
    scenario = Scenario(server, MEMORY)
    shown: set[str] = set()
    dated: set[str] = set()

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():
            for job in server.cluster.jobs.values():
                if job.state is JobState.QUEUED:
                    if job.attributes.get("comment", "").startswith("schedd: planned start "):
                        shown.add(job.id)
                    if job.start_time is not None:
                        dated.add(job.id)
            await asyncio.sleep(0.05)

    async def until_done(count: int) -> None:
        await until(lambda: house.done() >= count)

    def running() -> list[str]:
        jobs = server.cluster.jobs
        return [job for job in scenario.short_lived if jobs[job].state is JobState.RUNNING]

    scenario.submit_half()
    faults.refuse_runs(4)
    faults.slow_down(0.03)
    house.adapter.start()
    await until_done(8)
    assert not faults.refusals.left
    faults.clear()
    faults.cut_replies(3, after=60)
    await until(lambda: not faults.cuts.left)
    faults.be_silent(1)
    await until(lambda: not faults.silences.left)
    faults.return_runs(2)
    await until(lambda: not faults.returns.left)
    house.adapter.kill()
    house.adapter.start()
    await as_client(house, *[admin_requests.release(job) for job in scenario.held])
    await as_client(house, *[admin_requests.delete(job) for job in scenario.doomed])
    await until(lambda: bool(running()))
    await as_client(house, *[admin_requests.delete(job) for job in running()])
    await until_done(45)
    house.daemon.kill()
    house.daemon.start()
    scenario.submit_half()
    await until_done(70)
    await server.restart(down=0.5)
    await until_done(85)
    server.kill_node("node5")
    server.kill_node("node8")
    await until_done(95)
    house.adapter.kill()
    house.daemon.kill()
    house.adapter.start()
    house.daemon.start()
    await as_client(house, *[admin_requests.release(job) for job in scenario.held[4:]])
    await as_client(house, *[admin_requests.delete(job) for job in scenario.doomed[3:]])
    await until_done(115)
    server.revive_node("node5")
    server.revive_node("node8")
    await until_done(140)
    house.daemon.kill()
    house.adapter.kill()
    await server.restart(down=0.5)
    house.daemon.start()
    house.adapter.start()
    while house.done() < 200:
        before = house.done()
        await as_client(house, *[admin_requests.delete(job) for job in running()])
        await until(lambda: house.done() > before or bool(running()))  # noqa: B023

    scenario.each_came_to_the_end_it_should()
    scenario.nothing_was_over_committed()
    scenario.conditions_were_met()

    runs, jobs = server.cluster.runs, server.cluster.jobs
    # Each started once. Runs that the server took and no mom did (dead ones, too) were asked for again.
    assert all(job.start_count == 1 for job in jobs.values() if job.id not in scenario.doomed)
    assert runs == {
        job: 1 + server.cluster.returned.get(job, 0) for job in jobs.keys() - set(scenario.doomed)
    }
    assert sum(server.cluster.returned.values()) >= 2
    decided, accepted, unanswered = house.decided(), house.outcomes("accepted"), house.outcomes(None)
    for job, count in runs.items():
        assert dict(exec_host(jobs[job].exec_host)) in decided[job]
        # Runs are unanswered if the adapter was killed; a returned job may have been reported as refused.
        assert accepted[job] <= count
        assert jobs[job].start_count <= accepted[job] + unanswered[job]
    assert sum(accepted.values()) > 150
    assert house.refused()[TorqueErrorCode.MOMREJECT] == 4
    assert shown
    assert dated
    # How many starts were written above depends on the speed of the machine. These jobs wait long enough.
    shown.clear()
    dated.clear()
    for _ in range(70):
        server.submit(resources={"nodes": "1:ppn=8", "walltime": "600"}, runtime=600.0)
    await until(lambda: len(shown) > 50 and len(dated) > 50)
    assert house.adapter.terminate() == 0
    assert house.daemon.terminate() == 0
    assert "another scheduler is active" not in house.adapter.log.read_text()


async def test_a_single_resume_suffices_after_a_foreign_start(house: ProcessHarness) -> None:
    server = house.server
    theirs, ours = (server.submit(resources={"nodes": "1:ppn=8"}, runtime=60.0) for _ in range(2))
    server.cluster.attributes["scheduling"] = "False"
    house.adapter.start()
    while len((await house.request("/jobs"))["jobs"]) < 2:
        await asyncio.sleep(0.1)
    await as_client(house, admin_requests.run(theirs, [("node1", 8)]))
    server.set_scheduling(True)
    while not (halted := (await house.request(""))["halted"]).startswith("stopped until somebody resumes"):
        await asyncio.sleep(0.1)
    assert f"job {theirs} {STARTED_BY_SOMEBODY_ELSE}" in halted
    alert = f"the daemon alerts: foreign: job {theirs} {STARTED_BY_SOMEBODY_ELSE}: another scheduler"
    while alert not in house.adapter.log.read_text():
        await asyncio.sleep(0.1)
    house.adapter.kill()
    house.adapter.start()
    await asyncio.sleep(1.0)
    assert server.job(ours).state is JobState.QUEUED
    await house.request("/resume", "POST")
    while server.job(ours).state is not JobState.RUNNING:
        await asyncio.sleep(0.1)
    assert (await house.request(""))["halted"] == ""


@pytest.mark.parametrize("halt", ["a pause", "a killed daemon"])
async def test_jobs_planned_in_sequence_start_in_sequence_after_a_halt(
    house: ProcessHarness, halt: str
) -> None:
    """They have the same cores, and all are due when starts go on."""
    walltime = 3
    server = house.server
    await house.request("/pause", "POST", {"reason": "a test"})
    asked = {"nodes": "node1:ppn=8", "walltime": f"{walltime}"}
    jobs = [server.submit(resources=asked, runtime=1.0) for _ in range(4)]
    house.adapter.start()
    while [job["planned_start"] for job in (await house.request("/jobs"))["jobs"]].count(None) or len(
        (await house.request("/jobs"))["jobs"]
    ) < len(jobs):
        await asyncio.sleep(0.1)
    if halt == "a killed daemon":
        house.daemon.kill()
    await asyncio.sleep(walltime * len(jobs))
    if halt == "a killed daemon":
        house.daemon.start()
        await house.ready()
    await house.request("/resume", "POST")
    while house.done() < len(jobs):
        await asyncio.sleep(0.05)
    assert house.refused() == Counter()
    assert {job: len(shares) for job, shares in house.decided().items()} == dict.fromkeys(jobs, 1)
    assert set(server.cluster.runs.values()) == {1}
