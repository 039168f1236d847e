"""Attributes written on jobs, and their removal."""

import asyncio

import pytest

from schedd.wire import JobFacts, ShareFacts
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.requests import StatusRequest
from server_adapter.bridge.attribute_writer import AttributeWriter
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.state import ServerState
from server_adapter.bridge.write_rights import WriteRights
from server_adapter.emulator.errors import refusal
from server_adapter.emulator.jobs import Job
from server_adapter.emulator.principal import Principal
from server_adapter.torque.errors import TorqueErrorCode
from tests.server_adapter.bridge.house import Build, server_link
from tests.server_adapter.open_ondemand import read_torque_job

pytestmark = pytest.mark.anyio


async def test_own_comments_are_replaced_and_foreign_comments_are_preserved(build: Build) -> None:
    house = await build(plan=False)
    server = house.server
    ours, foreign = (server.submit(resources={"nodes": "1"}, runtime=60.0) for _ in range(2))
    server.job(foreign).attributes["comment"] = "please ask bob"
    await house.start(**{"tell.start_time": True})
    await house.until(lambda: ours in house.daemon.state.jobs)
    now = int(house.daemon.clock())
    house.daemon.write_attributes(foreign, now + 500, ("node1",))
    house.daemon.write_attributes(ours, now + 1000, ("node1", "node2"))
    await house.until(lambda: server.job(ours).start_time == now + 1000)
    comment = server.job(ours).attributes["comment"]
    assert comment.startswith("schedd: planned start ")
    assert comment.endswith(" on node1,node2")
    assert server.job(foreign).attributes["comment"] == "please ask bob"
    # the daemon applies the threshold for rewrites
    house.daemon.write_attributes(ours, now + 1001, ("node1", "node2"))
    await house.until(lambda: server.job(ours).start_time == now + 1001)
    # no start: says why
    house.daemon.write_attributes(ours, None, text="waits for node9, which is down")
    await house.until(lambda: server.job(ours).start_time is None)
    assert server.job(ours).attributes["comment"] == "schedd: waits for node9, which is down"


async def test_open_ondemand_reads_the_expected_start_of_a_torque_job(build: Build) -> None:
    house = await build(plan=False)
    job = house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    adapter = await house.start(**{"tell.portal": True})
    await house.until(lambda: job in house.daemon.state.jobs)
    now = int(house.daemon.clock())
    house.daemon.write_attributes(job, now + 1000, ("node1",), expected=now + 600)
    await house.until(lambda: house.server.job(job).start_time == now + 600)
    async with server_link(adapter).borrow() as connection:
        (status,) = await connection.describe(StatusRequest(code=RequestCode.STATUS_JOB, name=job))
    seen = read_torque_job(status.values)
    assert (seen.status, seen.dispatch_time) == ("queued", now + 600)
    assert seen.comment.startswith("schedd: ")


async def test_own_comments_are_replaced_at_the_start_and_removed_on_uninstall(build: Build) -> None:
    house = await build(plan=False)
    server = house.server
    job = server.submit(resources={"nodes": "1"}, runtime=60.0)
    await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    house.daemon.write_attributes(job, int(house.daemon.clock()) + 1000, ("node1",))
    await house.until(lambda: "comment" in server.job(job).attributes)
    await asyncio.sleep(0.3)  # a reading that shows it
    house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: "schedd: started " in server.job(job).attributes["comment"])
    assert "on node1, last planned for " in server.job(job).attributes["comment"]
    await house.stop()
    assert await house.make().clean() == 1
    assert "comment" not in server.job(job).attributes


async def test_nothing_is_written_while_runs_are_requested_but_never_for_long(build: Build) -> None:
    house = await build(plan=False)
    job = house.server.submit(resources={"nodes": "1"}, runtime=1.0, holds="u")
    adapter = await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    asked = []

    def starting() -> bool:
        asked.append("comment" in house.server.job(job).attributes)
        return True

    adapter.writer._starting = starting
    house.daemon.write_attributes(job, int(house.daemon.clock()) + 600, ("node1",))
    await house.until(lambda: "comment" in house.server.job(job).attributes)
    assert asked
    assert not any(asked)


@pytest.mark.parametrize("code", [TorqueErrorCode.PERM, TorqueErrorCode.ATTRRO])
async def test_missing_rights_are_reported_to_the_daemon_and_writing_goes_on_once_they_are_given(
    build: Build, monkeypatch: pytest.MonkeyPatch, code: TorqueErrorCode
) -> None:
    monkeypatch.setattr("server_adapter.bridge.write_rights.RETRY_S", 0.2)
    may_write: list[bool] = []

    def demand_owner(_who: Principal, _job: Job) -> None:
        if not may_write:
            raise refusal(code, "operation not permitted")

    monkeypatch.setattr("server_adapter.emulator.job_changes.demand_owner", demand_owner)
    house = await build(plan=False, **{"daemon.wait": 0.1})
    jobs = [house.server.submit(resources={"nodes": "1"}, runtime=60.0, holds="u") for _ in range(3)]
    await house.start()
    await house.until(lambda: set(jobs) <= house.daemon.state.jobs.keys())
    for job in jobs:
        house.daemon.write_attributes(job, int(house.daemon.clock()) + 600, ("node1",))
    await house.until(lambda: f"{code} {code.name}" in house.daemon.troubles.get("writing", ""))
    assert not any("comment" in house.server.job(job).attributes for job in jobs)
    may_write.append(True)
    await house.until(lambda: all("comment" in house.server.job(job).attributes for job in jobs))
    await house.until(lambda: "writing" not in house.daemon.troubles)


async def test_a_part_that_was_refused_for_a_time_is_written_on_all_jobs_afterwards(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server_adapter.bridge.write_rights.RETRY_S", 0.2)
    house = await build(plan=False, **{"daemon.wait": 0.1})
    jobs = [house.server.submit(resources={"nodes": "1"}, runtime=60.0, holds="u") for _ in range(3)]
    monkeypatch.setattr("server_adapter.emulator.job_changes._NEVER", frozenset({"start_time"}))
    await house.start(**{"tell.start_time": True})
    await house.until(lambda: set(jobs) <= house.daemon.state.jobs.keys())
    start = int(house.daemon.clock()) + 600
    for job in jobs:
        house.daemon.write_attributes(job, start, ("node1",))
    await house.until(lambda: all("comment" in house.server.job(job).attributes for job in jobs))
    await house.until(lambda: "start_time is not written" in house.daemon.troubles.get("writing", ""))
    monkeypatch.setattr("server_adapter.emulator.job_changes._NEVER", frozenset())
    await house.until(lambda: [house.server.job(job).start_time for job in jobs] == [start] * 3)
    await house.until(lambda: not house.daemon.troubles)


class Comments:
    """A server that takes comments."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.write_rights = WriteRights()

    async def comment(self, job: str, _text: str) -> None:
        self.written.append(job)


async def test_a_job_that_has_ended_meanwhile_gets_no_comment_on_its_start() -> None:
    server = Comments()
    writer = AttributeWriter(server, AdaptiveRateLimiter(1_000))  # type: ignore[arg-type]
    writer._started.extend([("gone.here", "schedd: started"), ("runs.here", "schedd: started")])
    facts = JobFacts(id="runs.here", owner="ann@here", queue="batch", submitted=1)
    state = ServerState(jobs={facts.id: facts})
    assert await writer.step(state)
    assert server.written == ["runs.here"]
    assert not await writer.step(state)
