"""The site's policy on the server: limits, a polled licence, a reservation, fair share.

What ran, and what ran at the same time, is read from the server's records after the end: samples taken while
jobs run miss short ones on a busy machine.
"""

import asyncio
import collections
import itertools
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from server_adapter.batch.sockets import Address
from server_adapter.emulator import Job, JobState
from server_adapter.torque import TorqueAnyPort, open_connection
from tests.server_adapter import admin_requests
from tests.server_adapter.bridge.processes import ProcessHarness

pytestmark = pytest.mark.anyio

CLOSED = tuple(f"node{number}" for number in range(3, 17))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[ProcessHarness]:
    made = ProcessHarness(tmp_path, "4.2")
    today = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    with (tmp_path / "schedd0.toml").open("a") as config:
        config.write(
            f"""
            slack = 3600
            [[clusters.main.site.limits]]
            who = "user"
            name = "ann"
            amount = 2
            [clusters.main.site.licences.matlab]
            command = ["echo", "1"]
            [clusters.main.site.fair_share]
            levels = ["user"]
            [clusters.main.site.reservations.course]
            nodes = {list(CLOSED)}
            users = ["tina"]
            first = {(today - timedelta(hours=1)).isoformat()}
            last = {(today + timedelta(hours=1)).isoformat()}
            """
        )
    async with made.running(keep_completed="3600"):
        yield made


def most_at_once(jobs: Iterable[Job]) -> int:
    """Return the maximum number of these ended jobs that held their nodes at the same time."""
    ran = [job for job in jobs if job.started is not None and job.completed is not None]
    changes = [(job.started, 1) for job in ran] + [(job.completed, -1) for job in ran]
    return max(itertools.accumulate(change for _, change in sorted(changes)))


async def test_a_long_array_runs_to_its_end_within_its_slot_limit_with_a_start_for_each_job(
    house: ProcessHarness,
) -> None:
    server = house.server
    # What runs first leaves no room, so that all of the array is planned before anything of it starts. Only
    # tina may use the nodes of the course, and eve has the other two.
    wall = [
        server.submit("eve", resources={"nodes": "2:ppn=8", "walltime": "3600"}, runtime=3000.0),
        server.submit("tina", resources={"nodes": "14:ppn=8", "walltime": "3600"}, runtime=3000.0),
    ]
    house.adapter.start()
    jobs = server.cluster.jobs
    while any(server.job(job).state is not JobState.RUNNING for job in wall):
        assert not house.adapter.ended, house.adapter.log.read_text()
        await asyncio.sleep(0.01)
    server.submit("tina", array="1-240%60", resources={"nodes": "1:ppn=1", "walltime": "60"}, runtime=0.3)
    starts: collections.Counter[int] = collections.Counter()
    while sum(starts.values()) < 240:
        planned = (await house.request("/jobs?state=planned&limit=500"))["jobs"]
        starts = collections.Counter(job["planned_start"] for job in planned)
    # Sixty at once and no more; a job is planned for its walltime.
    assert list(starts.values()) == [60] * 4
    assert {late - soon for soon, late in itertools.pairwise(sorted(starts))} == {60}
    async with await open_connection(Address(*server.address), TorqueAnyPort()) as connection:
        for job in wall:
            await connection.request(admin_requests.delete(job))
    while house.done() < len(jobs):
        assert not house.adapter.ended, house.adapter.log.read_text()
        await asyncio.sleep(0.01)
    assert 1 < most_at_once(job for job in jobs.values() if "[" in job.id) <= 60
    assert set(server.cluster.runs.values()) == {1}
    assert len(server.cluster.runs) == 242


async def test_the_site_policy_holds_on_the_server(house: ProcessHarness) -> None:
    server = house.server
    anns = [  # longer than the test: each pair ends once both run
        server.submit("ann", resources={"nodes": "1:ppn=1", "walltime": "600"}, runtime=3000.0)
        for _ in range(6)
    ]
    for _ in range(3):
        wanted = {"nodes": "1:ppn=1", "walltime": "60", "gres": "matlab:1"}
        server.submit("bob", resources=wanted, runtime=0.5)
    for _ in range(4):
        server.submit("eve", resources={"nodes": "1:ppn=8", "walltime": "60"}, runtime=1.3)
    tinas = server.submit("tina", resources={"nodes": "node9:ppn=1", "walltime": "60"}, runtime=0.3)
    house.adapter.start()
    jobs = server.cluster.jobs
    async with await open_connection(Address(*server.address), TorqueAnyPort()) as connection:
        while house.done() < len(jobs):
            pair = [name for name in anns if server.job(name).state is JobState.RUNNING]
            for name in pair if len(pair) > 1 else ():
                await connection.request(admin_requests.delete(name))
            assert not house.adapter.ended, house.adapter.log.read_text()
            await asyncio.sleep(0.01)
    by_user: dict[str, list[Job]] = collections.defaultdict(list)
    for job in jobs.values():
        by_user[job.order.user].append(job)
    most = {user: most_at_once(theirs) for user, theirs in by_user.items()}
    ran_on = {
        user: {slot.partition("/")[0] for job in theirs for slot in job.exec_host.split("+")}
        for user, theirs in by_user.items()
    }
    assert (most["ann"], most["bob"]) == (2, 1)
    assert not ran_on["eve"] & set(CLOSED)
    assert ran_on["tina"] == {"node9"}
    assert server.cluster.runs[tinas] == 1
    while (await house.request("/jobs"))["jobs"]:  # the daemon gets the last ends a moment later
        await asyncio.sleep(0.05)
    places = {place["path"]: place for place in (await house.request("/fair-share"))["places"]}
    assert places["eve"]["used"] > places["tina"]["used"]
    (licence,) = (await house.request("/licences"))["licences"]
    while licence["held"]:  # the last end is still to be heard of
        await asyncio.sleep(0.05)
        (licence,) = (await house.request("/licences"))["licences"]
    assert (licence["name"], licence["copies"]) == ("matlab", 1)
    assert licence["counted"] > 0
