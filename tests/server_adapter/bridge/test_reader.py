"""Readings of a server with incomplete job lists."""

import contextlib
from collections.abc import AsyncIterator, Iterable

import pytest

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import StatusRequest
from server_adapter.batch.sockets import Address
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.server import ReadScope
from server_adapter.bridge.state import StateBuilder
from server_adapter.emulator import EmulatedServer, NodeSpec
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.lifecycle import requeue, start
from server_adapter.emulator.queries import TorqueQueries
from server_adapter.servers.torque.facts import FACT_PARSERS
from server_adapter.servers.torque.link import TorqueLink
from server_adapter.servers.torque.reader import TorqueReader
from server_adapter.torque.credentials import TorqueAnyPort
from server_adapter.torque.errors import TorqueErrorCode

pytestmark = pytest.mark.anyio


class ListServer:
    """Has `jobs`; the next list of all of them lacks `forgotten`."""

    def __init__(self, jobs: Iterable[str]) -> None:
        self.jobs = set(jobs)
        self.forgotten: set[str] = set()
        self.lists = 0

    @contextlib.asynccontextmanager
    async def borrow(self) -> AsyncIterator["ListServer"]:
        yield self

    async def describe(self, request: StatusRequest) -> list[DescribedObject]:
        if request.code is not RequestCode.STATUS_JOB:
            return []
        if request.name:
            if request.name not in self.jobs:
                raise ServerRefusedError(TorqueErrorCode.UNKJOBID, "Unknown Job Id", "STATUS_JOB")
            return [described(request.name)]
        self.lists += 1
        shown, self.forgotten = self.jobs - self.forgotten, set()
        return [described(name) for name in shown]


def described(name: str) -> DescribedObject:
    return DescribedObject(2, name, {"job_state": "Q", "queue": "batch"})


@pytest.mark.parametrize("count", [3, 300])
async def test_jobs_missing_in_a_list_are_requested_by_name(count: int) -> None:
    names = {f"{number}.here" for number in range(count)}
    server = ListServer(names)
    reader = TorqueReader(server)  # type: ignore[arg-type]
    assert (await reader.read()).jobs.keys() == names
    server.jobs.discard("0.here")
    server.forgotten = set(sorted(names)[: count * 2 // 3])
    assert (await reader.read()).jobs.keys() == names - {"0.here"}
    assert server.lists == (2 if count == 3 else 3)
    assert (await reader.read()).jobs.keys() == names - {"0.here"}


def test_a_state_is_built_in_slices_so_that_other_tasks_run() -> None:
    jobs = [described(f"{number}.here") for number in range(1000)]
    nodes = [DescribedObject(3, f"node{number}", {"np": "4", "state": "free"}) for number in range(500)]
    *slices, state = StateBuilder(FACT_PARSERS).build(
        server={}, queues=[], nodes=nodes, jobs=jobs, slice_length=100
    )
    assert slices == [None] * 15
    assert state is not None
    assert len(state.jobs) == 1000


# -- after ends of jobs -----------------------------------------------------------------------------


@pytest.fixture
def long_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every full list of jobs as a long one."""
    monkeypatch.setattr("server_adapter.servers.torque.reader._LONG_LIST_S", -1.0)


async def states(reader: TorqueReader, scope: ReadScope = ReadScope.ENDS) -> dict[str, str]:
    return {name: job.state for name, job in (await reader.read(scope)).jobs.items()}


@pytest.fixture
async def site() -> AsyncIterator[tuple[EmulatedServer, TorqueReader]]:
    async with EmulatedServer([NodeSpec("node1", 4)]) as server:
        link = TorqueLink(Address(*server.address), TorqueAnyPort())
        yield server, TorqueReader(link, full_every=600.0)
        await link.close()


@pytest.mark.usefixtures("long_lists")
async def test_after_ends_alone_only_jobs_that_run_or_have_ended_are_listed(
    site: tuple[EmulatedServer, TorqueReader],
) -> None:
    server, reader = site
    runs, waits = (server.submit(resources={"nodes": "1"}, runtime=600.0) for _ in range(2))
    assert await states(reader) == {runs: "Q", waits: "Q"}
    start(server.cluster, server.job(runs), "node1:ppn=1", synchronous=True)
    late = server.submit(resources={"nodes": "1"}, runtime=600.0)
    assert await states(reader) == {runs: "R", waits: "Q"}
    assert await states(reader, ReadScope.JOBS) == {runs: "R", waits: "Q", late: "Q"}


@pytest.mark.usefixtures("long_lists")
async def test_a_job_missing_among_running_jobs_is_requested_by_name(
    site: tuple[EmulatedServer, TorqueReader],
) -> None:
    server, reader = site
    back, purged = (server.submit(resources={"nodes": "1"}, runtime=600.0) for _ in range(2))
    for job in (back, purged):
        start(server.cluster, server.job(job), "node1:ppn=1", synchronous=True)
    assert await states(reader) == {back: "R", purged: "R"}
    requeue(server.cluster, server.job(back))
    del server.cluster.jobs[purged]
    assert await states(reader) == {back: "Q"}


@pytest.mark.usefixtures("long_lists")
async def test_a_server_without_selection_is_listed_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise RefusalError(TorqueErrorCode.UNKREQ, "Unknown request")

    monkeypatch.setattr(TorqueQueries, "select_status_in", refuse)
    async with EmulatedServer([NodeSpec("node1", 4)]) as server:
        link = TorqueLink(Address(*server.address), TorqueAnyPort())
        reader = TorqueReader(link, full_every=600.0)
        for count in (1, 2, 3):
            server.submit(resources={"nodes": "1"}, runtime=600.0)
            assert len(await states(reader)) == count
        await link.close()


async def test_short_lists_are_read_completely_after_ends(
    site: tuple[EmulatedServer, TorqueReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server_adapter.servers.torque.reader._LONG_LIST_S", 60.0)
    server, reader = site
    for count in (1, 2):
        server.submit(resources={"nodes": "1"}, runtime=600.0)
        assert len(await states(reader)) == count


@pytest.mark.parametrize("versions", [("2.5", "6.1"), ("6.1", "2.5")])
async def test_a_server_of_another_version_is_read_with_its_own_attributes_and_protocol(
    versions: tuple[str, str],
) -> None:
    def serve(version: str, port: int = 0) -> EmulatedServer:
        return EmulatedServer([NodeSpec("node1", 4)], version=version, port=port)

    async def asks_for_tasks(server: EmulatedServer) -> bool:
        server.submit(resources={"nodes": "1"})
        await link.wait_until_up()
        assert len((await reader.read()).jobs) == 1
        await link.close()
        return "req_information" in reader._jobs.names

    async with serve(versions[0]) as server:
        address = Address(*server.address)
        link = TorqueLink(address, TorqueAnyPort(), timeout=1.0)
        reader = TorqueReader(link)
        asked = [await asks_for_tasks(server)]
    async with serve(versions[1], address.port) as server:
        asked.append(await asks_for_tasks(server))
    assert asked == [version == "6.1" for version in versions]


@pytest.mark.parametrize("scope", list(ReadScope))
async def test_limits_are_read_after_the_jobs_that_they_may_concern(
    scope: ReadScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs started beyond a limit that was set a moment before they came."""
    server = ListServer(["1.here"])
    reader = TorqueReader(server)  # type: ignore[arg-type]
    await reader.read()
    limits: dict[str, str] = {}

    async def describe(request: StatusRequest) -> list[DescribedObject]:
        if request.code is RequestCode.STATUS_JOB:
            limits["resources_available.lic"] = "2"
        if request.code is RequestCode.STATUS_SERVER:
            return [DescribedObject(1, "here", dict(limits))]
        return await ListServer.describe(server, request)

    monkeypatch.setattr(server, "describe", describe)
    assert (await reader.read(scope)).server.limits == {"resources_available.lic": "2"}
