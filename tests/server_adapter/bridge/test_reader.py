"""Readings of a server whose list of jobs cannot be trusted."""

import contextlib
from collections.abc import AsyncIterator, Iterable

import pytest

from server_adapter.batch.described import Described
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.bridge.state import StateBuilder
from server_adapter.servers.torque.facts import WORDS
from server_adapter.servers.torque.reader import StateReader
from server_adapter.torque.codes import RequestCode
from server_adapter.torque.errors import ServerCode
from server_adapter.torque.requests import StatusRequest

pytestmark = pytest.mark.anyio


class Server:
    """Has `jobs`; the next list of all of them lacks `forgotten`."""

    def __init__(self, jobs: Iterable[str]) -> None:
        self.jobs = set(jobs)
        self.forgotten: set[str] = set()
        self.lists = 0

    @contextlib.asynccontextmanager
    async def talk(self) -> AsyncIterator["Server"]:
        yield self

    async def describe(self, request: StatusRequest) -> list[Described]:
        if request.code is not RequestCode.STATUS_JOB:
            return []
        if request.name:
            if request.name not in self.jobs:
                raise ServerRefusedError(ServerCode.UNKJOBID, "Unknown Job Id", "STATUS_JOB")
            return [described(request.name)]
        self.lists += 1
        shown, self.forgotten = self.jobs - self.forgotten, set()
        return [described(name) for name in shown]


def described(name: str) -> Described:
    return Described(2, name, {"job_state": "Q", "queue": "batch"})


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("count", [3, 300])
async def test_jobs_left_out_of_a_list_are_found_again_and_others_are_gone(count: int) -> None:
    names = {f"{number}.here" for number in range(count)}
    server = Server(names)
    reader = StateReader(server)  # type: ignore[arg-type]
    assert (await reader.read()).jobs.keys() == names
    server.jobs.discard("0.here")
    server.forgotten = set(sorted(names)[: count * 2 // 3])
    assert (await reader.read()).jobs.keys() == names - {"0.here"}
    assert server.lists == (2 if count == 3 else 3)
    assert (await reader.read()).jobs.keys() == names - {"0.here"}


def test_a_state_is_built_in_slices_between_which_others_can_run() -> None:
    jobs = [described(f"{number}.here") for number in range(1000)]
    nodes = [Described(3, f"node{number}", {"np": "4", "state": "free"}) for number in range(500)]
    *slices, state = StateBuilder(WORDS).build(server={}, queues=[], nodes=nodes, jobs=jobs, slice_length=100)
    assert slices == [None] * 15
    assert state is not None
    assert len(state.jobs) == 1000
