"""Long job lists: one full reading, then only states and times of change."""

import asyncio
from dataclasses import dataclass, field

import pytest

from server_adapter.batch.codes import ObjectType
from server_adapter.batch.errors import ServerRefusedError, ServerUnreachableError
from server_adapter.batch.requests import SelectStatusRequest, StatusRequest
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.dis import Operation
from server_adapter.openpbs.codes import OpenPBSErrorCode
from server_adapter.servers.openpbs.jobs import JOBS, STAMPS, JobList

pytestmark = pytest.mark.anyio


@dataclass
class Queue:
    """Answers as a server does, and counts how many jobs it described in full."""

    jobs: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[SelectStatusRequest] = field(default_factory=list)
    described: int = 0
    before_second: dict[str, dict[str, str] | None] = field(default_factory=dict)
    now: float = 0.0

    def set(self, name: str, mtime: int, state: str = "Q", comment: str = "") -> None:
        self.jobs[name] = {"job_state": state, "mtime": str(mtime), "comment": comment}

    async def describe(self, request: SelectStatusRequest | StatusRequest) -> list[DescribedObject]:
        assert isinstance(request, SelectStatusRequest)
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
            DescribedObject(ObjectType.JOB, name, {key: job[key] for key in job if key in wanted})
            for name, job in self.jobs.items()
            if int(job["mtime"]) >= since
        ]
        if request is not STAMPS:
            self.described += len(found)
        return found

    def clock(self) -> float:
        return self.now

    def reader(self, many: int = 3) -> JobList:
        return JobList(self.describe, many=many, whole=300.0, clock=self.clock)


def make_queue(*mtimes: int) -> Queue:
    queue = Queue()
    for number, mtime in enumerate(mtimes):
        queue.set(str(number), mtime)
    return queue


async def test_a_short_job_list_is_read_completely_each_time() -> None:
    queue = make_queue(10, 20)
    jobs = queue.reader()
    assert [job.name for job in await jobs.read()] == ["0", "1"]
    await jobs.read()
    assert queue.asked == [JOBS, JOBS]


async def test_only_changed_jobs_of_a_long_list_are_described_again() -> None:
    queue = make_queue(10, 20, 30, 40)
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


async def test_an_unchanged_list_causes_no_further_request() -> None:
    queue = make_queue(10, 20, 30, 30)
    jobs = queue.reader()
    await jobs.read()
    queue.now = 5.0
    await jobs.read()
    queue.now, queue.described = 10.0, 0
    assert len(await jobs.read()) == 4
    assert queue.described == 0


async def test_two_changes_of_a_job_in_the_same_second_are_both_noticed() -> None:
    queue = make_queue(10, 20, 30, 40)
    jobs = queue.reader()
    await jobs.read()
    queue.now = 0.3
    queue.set("3", 40, comment="in the same second")
    assert (await jobs.read())[3].values["comment"] == "in the same second"


async def test_a_state_change_without_a_new_time_is_noticed() -> None:
    queue = make_queue(10, 20, 30, 40)
    jobs = queue.reader()
    await jobs.read()
    queue.now = 5.0
    await jobs.read()
    queue.now = 10.0
    queue.set("0", 10, state="H")
    assert (await jobs.read())[0].values["job_state"] == "H"


async def test_ends_and_arrivals_between_two_requests_follow_the_second_reply() -> None:
    queue = make_queue(10, 20, 30, 40)
    jobs = queue.reader()
    await jobs.read()
    queue.now = 10.0
    queue.set("1", 50)
    queue.before_second = {"1": None, "8": {"job_state": "Q", "mtime": "51", "comment": ""}}
    assert [job.name for job in await jobs.read()] == ["0", "2", "3", "8"]


async def test_after_a_while_and_after_a_fault_all_is_read_again() -> None:
    queue = make_queue(10, 20, 30, 40)
    jobs = queue.reader()
    await jobs.read()
    queue.now = 300.0
    await jobs.read()
    assert queue.asked == [JOBS, JOBS]
    queue.now = 310.0
    good = queue.describe

    async def fails(_: SelectStatusRequest | StatusRequest) -> list[DescribedObject]:
        raise ServerUnreachableError("gone")

    jobs._describe = fails
    with pytest.raises(ServerUnreachableError):
        await jobs.read()
    jobs._describe = good
    await jobs.read()
    assert queue.asked == [JOBS, JOBS, JOBS]


async def test_other_tasks_run_while_a_long_list_is_processed() -> None:
    """20,000 jobs with one change: two passes, in slices of 5,000."""
    queue = make_queue(*[10] * 20_000)
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


# -- partial readings ------------------------------------------------------------------------------


@dataclass
class HistoryServer:
    """Answers requests about jobs like an OpenPBS server; `over` are the jobs of its history."""

    jobs: dict[str, dict[str, str]] = field(default_factory=dict)
    over: dict[str, dict[str, str]] = field(default_factory=dict)
    described: list[str] = field(default_factory=list)
    """The jobs that were described with all their attributes."""
    requests: int = 0

    def set(self, name: str, mtime: int, state: str = "Q", **more: str) -> None:
        self.jobs[name] = {"job_state": state, "mtime": str(mtime), **more}

    def end(self, name: str, mtime: int) -> None:
        self.over[name] = self.jobs.pop(name) | {"job_state": "F", "mtime": str(mtime)}

    async def describe(self, request: SelectStatusRequest | StatusRequest) -> list[DescribedObject]:
        self.requests += 1
        there = self.jobs | (self.over if "x" in (request.extension or "") else {})
        if isinstance(request, StatusRequest):
            there = {name: there[name] for name in request.name.split(",") if name in there}
            if not there:
                raise ServerRefusedError(OpenPBSErrorCode.UNKJOBID, "Unknown Job Id", "describe a job")
        for one in request.conditions if isinstance(request, SelectStatusRequest) else ():
            there = {
                name: job
                for name, job in there.items()
                # A server does not compare the states of arrays.
                if (one.name == "mtime" and int(job["mtime"]) >= int(one.value))
                or (one.name == "job_state" and (job["job_state"] in one.value or "[]" in name))
            }
        wanted = {one.name for one in request.attributes}
        if "comment" in wanted:
            self.described += there
        return [
            DescribedObject(ObjectType.JOB, name, {key: job[key] for key in job if key in wanted})
            for name, job in there.items()
        ]


async def partly(jobs: JobList) -> tuple[dict[str, str], list[str]]:
    """The states of the jobs by a partial reading, and those found to be over."""
    found = await jobs.read_changes()
    assert found is not None
    listed, over = found
    return {job.name: job.values["job_state"] for job in listed}, [job.name for job in over]


async def read_once(server: HistoryServer, *, now: list[float] | None = None) -> JobList:
    clock = now or [0.0]
    jobs = JobList(server.describe, many=2, whole=300.0, clock=lambda: clock[0])
    await jobs.read()
    server.described.clear()
    server.requests = 0
    return jobs


async def test_a_partial_reading_sees_starts_ends_and_arrivals_in_three_requests() -> None:
    server = HistoryServer()
    for number in range(4):
        server.set(str(number), 10)
    server.set("4", 10, "R")
    jobs = await read_once(server)
    server.set("0", 20, "R")
    server.end("4", 20)
    server.set("9", 21)
    states, over = await partly(jobs)
    assert states == {"0": "R", "1": "Q", "2": "Q", "3": "Q", "9": "Q"}
    assert over == ["4"]
    assert server.requests == 3
    assert sorted(server.described) == ["0", "4", "9"]


async def test_a_job_that_began_and_ended_between_two_readings_has_ended() -> None:
    server = HistoryServer()
    for number in range(3):
        server.set(str(number), 10)
    jobs = await read_once(server)
    server.end("1", 20)
    assert await partly(jobs) == ({"0": "Q", "2": "Q"}, ["1"])
    assert await partly(jobs) == ({"0": "Q", "2": "Q"}, [])


async def test_jobs_with_only_written_attributes_wait_for_the_next_full_reading() -> None:
    now = [0.0]
    server = HistoryServer()
    for number in range(200):
        server.set(str(number), 10)
    jobs = await read_once(server, now=now)
    for number in range(200):
        server.set(str(number), 20, comment="schedd: planned start")
    await partly(jobs)
    assert server.described == []
    assert server.requests == 2
    now[0] = 5.0
    assert {job.values.get("comment") for job in await jobs.read()} == {"schedd: planned start"}


async def test_a_job_that_changes_after_a_partial_reading_in_the_same_second_is_described_again() -> None:
    now = [0.0]
    server = HistoryServer()
    for number in range(3):
        server.set(str(number), 10)
    jobs = await read_once(server, now=now)
    server.set("1", 20, "H")
    await partly(jobs)
    server.set("1", 20, "H", comment="in the same second")
    server.set("2", 21, "H")
    await partly(jobs)
    now[0] = 5.0
    found = {job.name: job.values for job in await jobs.read()}
    assert found["1"]["comment"] == "in the same second"


async def test_an_array_is_described_again_at_each_start_and_end_of_a_subjob() -> None:
    server = HistoryServer()
    server.set("5[].s", 10, "B", array="True", array_indices_remaining="2-3")
    server.set("5[1].s", 10, "R")
    server.set("6.s", 10)
    jobs = await read_once(server)
    server.set("5[].s", 10, "B", array="True", array_indices_remaining="3")
    server.set("5[2].s", 30, "R")
    del server.jobs["5[1].s"]
    states, over = await partly(jobs)
    assert states == {"5[].s": "B", "6.s": "Q", "5[2].s": "R"}
    assert over == []
    array = next(job for job in (await jobs.read_changes() or ([], []))[0] if job.name == "5[].s")
    assert array.values["array_indices_remaining"] == "3"


async def test_new_jobs_of_a_partial_reading_have_the_order_of_their_arrival() -> None:
    server = HistoryServer()
    for number in range(4):
        server.set(str(number), 10)
    jobs = await read_once(server)
    arrived = [f"{number}.s" for number in range(100, 130)]
    for name in arrived:
        server.set(name, 20)
    listed, _ = await jobs.read_changes() or ([], [])
    assert [job.name for job in listed][4:] == arrived


async def test_too_many_changes_cause_a_full_reading() -> None:
    server = HistoryServer()
    for number in range(3):
        server.set(str(number), 10)
    jobs = await read_once(server)
    for number in range(100, 200):
        server.set(str(number), 20)
    assert await jobs.read_changes() is None


async def test_partial_readings_occur_only_after_a_recent_full_reading() -> None:
    now = [0.0]
    server = HistoryServer()
    server.set("1", 10)
    assert await JobList(server.describe).read_changes() is None
    jobs = await read_once(server, now=now)
    now[0] = 300.0
    assert await jobs.read_changes() is None


async def test_the_history_of_a_server_without_jobs_is_not_listed() -> None:
    server = HistoryServer(over={str(number): {"job_state": "F", "mtime": "5"} for number in range(100)})
    jobs = await read_once(server)
    assert await jobs.read_changes() is None
    assert server.requests == 0
