"""Many jobs: read as a whole once, then by their states and times of change alone."""

import asyncio
from dataclasses import dataclass, field

import pytest

from server_adapter.batch.described import Described
from server_adapter.batch.errors import ServerUnreachableError
from server_adapter.dis import Operation
from server_adapter.openpbs.codes import ObjectType
from server_adapter.openpbs.requests import SelectRequest
from server_adapter.servers.openpbs.jobs import JOBS, STAMPS, JobList

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Queue:
    """Answers as a server does, and counts how many jobs it described in full."""

    jobs: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[SelectRequest] = field(default_factory=list)
    described: int = 0
    before_second: dict[str, dict[str, str] | None] = field(default_factory=dict)
    now: float = 0.0

    def set(self, name: str, mtime: int, state: str = "Q", comment: str = "") -> None:
        self.jobs[name] = {"job_state": state, "mtime": str(mtime), "comment": comment}

    async def ask(self, request: SelectRequest) -> list[Described]:
        self.asked.append(request)
        if request.conditions:
            for name, values in self.before_second.items():
                if values is None:
                    del self.jobs[name]
                else:
                    self.jobs[name] = values
        since = 0
        for one in request.conditions:
            assert (one.name, one.operation) == ("mtime", Operation.GE)
            since = int(one.value)
        wanted = {one.name for one in request.attributes}
        found = [
            Described(ObjectType.JOB, name, {key: job[key] for key in job if key in wanted})
            for name, job in self.jobs.items()
            if int(job["mtime"]) >= since
        ]
        if request is not STAMPS:
            self.described += len(found)
        return found

    def clock(self) -> float:
        return self.now

    def reader(self, many: int = 3) -> JobList:
        return JobList(self.ask, many=many, whole=300.0, clock=self.clock)


def queue_of(*mtimes: int) -> Queue:
    queue = Queue()
    for number, mtime in enumerate(mtimes):
        queue.set(str(number), mtime)
    return queue


async def test_few_jobs_are_read_as_a_whole_each_time() -> None:
    queue = queue_of(10, 20)
    jobs = queue.reader()
    assert [job.name for job in await jobs.read()] == ["0", "1"]
    await jobs.read()
    assert queue.asked == [JOBS, JOBS]


async def test_of_many_jobs_only_those_that_changed_are_described_again() -> None:
    queue = queue_of(10, 20, 30, 40)
    jobs = queue.reader()
    first = await jobs.read()
    queue.now = 5.0
    await jobs.read()  # the second of the newest change is over by now
    queue.now, queue.described = 10.0, 0
    queue.set("1", 50, comment="altered")
    queue.set("9", 51)
    del queue.jobs["2"]
    found = {job.name: job for job in await jobs.read()}
    assert list(found) == ["0", "1", "3", "9"]
    assert found["1"].values["comment"] == "altered"
    assert found["0"] is first[0]
    assert queue.described == 2


async def test_nothing_is_described_where_nothing_changed() -> None:
    queue = queue_of(10, 20, 30, 30)
    jobs = queue.reader()
    await jobs.read()
    queue.now = 5.0
    await jobs.read()
    queue.now, queue.described = 10.0, 0
    assert len(await jobs.read()) == 4
    assert queue.described == 0


async def test_a_job_that_is_changed_twice_in_one_second_is_seen_both_times() -> None:
    queue = queue_of(10, 20, 30, 40)
    jobs = queue.reader()
    await jobs.read()
    queue.now = 0.3
    queue.set("3", 40, comment="in the same second")
    assert (await jobs.read())[3].values["comment"] == "in the same second"


async def test_a_state_that_changed_without_its_time_is_seen() -> None:
    queue = queue_of(10, 20, 30, 40)
    jobs = queue.reader()
    await jobs.read()
    queue.now = 5.0
    await jobs.read()
    queue.now = 10.0
    queue.set("0", 10, state="H")
    assert (await jobs.read())[0].values["job_state"] == "H"


async def test_what_ends_or_comes_between_the_two_questions_is_taken_as_the_second_one_says() -> None:
    queue = queue_of(10, 20, 30, 40)
    jobs = queue.reader()
    await jobs.read()
    queue.now = 10.0
    queue.set("1", 50)
    queue.before_second = {"1": None, "8": {"job_state": "Q", "mtime": "51", "comment": ""}}
    assert [job.name for job in await jobs.read()] == ["0", "2", "3", "8"]


async def test_after_a_while_and_after_a_fault_all_is_read_again() -> None:
    queue = queue_of(10, 20, 30, 40)
    jobs = queue.reader()
    await jobs.read()
    queue.now = 300.0
    await jobs.read()
    assert queue.asked == [JOBS, JOBS]
    queue.now = 310.0
    good = queue.ask

    async def fails(_: SelectRequest) -> list[Described]:
        raise ServerUnreachableError("gone")

    jobs._ask = fails
    with pytest.raises(ServerUnreachableError):
        await jobs.read()
    jobs._ask = good
    await jobs.read()
    assert queue.asked == [JOBS, JOBS, JOBS]


async def test_others_have_their_turn_while_many_jobs_are_gone_through() -> None:
    """20,000 jobs, one of which changed: gone through twice, 5,000 at once."""
    queue = queue_of(*[10] * 20_000)
    jobs = queue.reader()
    await jobs.read()
    queue.set("7", 20, comment="new")
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    waiting = asyncio.ensure_future(others())
    await jobs.read()
    waiting.cancel()
    assert turns >= 8
