"""The whole adapter against the emulated server, and a daemon of a few lines."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from schedd.wire import JobEnded, JobQueued, JobStarted, ShareFacts, Snapshot
from server_adapter.bridge.link import PERMITTED
from server_adapter.bridge.loop import Adapter
from server_adapter.bridge.settings import Settings, load_settings
from server_adapter.emulator import EmulatedServer, NodeSpec, Timing
from server_adapter.torque.codes import READ_ONLY, RequestCode, SchedulerCommand
from server_adapter.torque.credentials import AnyPort
from server_adapter.torque.errors import RequestForbiddenError, ServerCode
from server_adapter.torque.listener import PortTakenError
from server_adapter.torque.requests import JobRequest, ManageRequest, RunRequest, StatusRequest
from tests.server_adapter.bridge.fake_daemon import FakeDaemon

pytestmark = pytest.mark.anyio
TIMING = Timing(obit=0.1, kill=0.2, refused=0.1, report=5.0, node_check=0.5)
VERSIONS = ["4.2", "6.1"]


@dataclass
class House:
    """An emulated server, a daemon, and adapters that come and go."""

    directory: Path
    server: EmulatedServer
    daemon: FakeDaemon
    options: dict[str, Any]
    adapter: Adapter | None = None
    task: "asyncio.Task[None] | None" = None
    stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    def settings(self, **options: Any) -> Settings:
        host, port = self.server.address
        values: dict[str, Any] = {
            "mode": "scheduler",
            "state_dir": self.directory,
            "server.host": host,
            "server.port": port,
            "server.auth": "none",
            "server.timeout": 5.0,
            "listen.port": 0,
            "listen.any_port": True,
            "daemon.url": "http://daemon",
            "daemon.wait": 1.0,
            "poll.interval": 0.2,
            "poll.gap": 0.02,
            "run.busy_wait": 0.1,
        }
        return load_settings(None, values | self.options | options)

    def make(self, **options: Any) -> Adapter:
        transport = httpx2.ASGITransport(app=self.daemon.app)
        return Adapter(self.settings(**options), AnyPort(), transport=transport)

    async def start(self, **options: Any) -> Adapter:
        self.adapter = self.make(**options)
        self.task = asyncio.create_task(self.adapter.run())
        return self.adapter

    async def stop(self) -> None:
        """As by SIGTERM; what is under way is lost, as by SIGKILL."""
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task
        self.task = None

    async def until(self, condition: Callable[[], bool], limit: float = 20.0) -> None:
        async with asyncio.timeout(limit):
            while not condition():
                if self.task is not None and self.task.done():
                    self.task.result()
                await asyncio.sleep(0.01)

    def states(self) -> Counter[str]:
        return Counter(str(job.state) for job in self.server.cluster.jobs.values())

    def all_done(self) -> bool:
        return set(self.states()) <= {"C"}

    def no_job_started_twice(self) -> None:
        assert set(self.server.cluster.runs.values()) <= {1}

    def each_ran_where_told(self) -> None:
        told = {run.job_id: {s.node: s.cpus for s in run.shares} for run in self.daemon.accepted}
        assert len(told) == len(self.daemon.accepted)
        assert told.keys() == self.server.cluster.runs.keys()
        ran = {
            event.job_id: {s.node: s.cpus for s in event.shares}
            for event in self.daemon.events
            if event.type == "job_started"
        }
        assert ran == told


Build = Callable[..., Awaitable[House]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def build(tmp_path: Path) -> AsyncIterator[Build]:
    async with contextlib.AsyncExitStack() as stack:

        async def make(
            version: str = "4.2", *, plan: bool = True, scale: float = 1.0, **options: Any
        ) -> House:
            nodes = [
                NodeSpec(name=f"node{number}", slots=4, properties=("odd",) if number % 2 else ("even",))
                for number in range(1, 5)
            ]
            server = EmulatedServer(nodes, version=version, timing=TIMING, time_scale=scale)
            await stack.enter_async_context(server)
            server.cluster.attributes["scheduling"] = "True"
            server.cluster.attributes["keep_completed"] = "300"
            house = House(tmp_path / "state", server, FakeDaemon(plan=plan), options)
            stack.push_async_callback(house.stop)
            return house

        yield make


def submit_mixed(server: EmulatedServer) -> int:
    """Twenty jobs of many shapes."""
    for number in range(5):
        server.submit(resources={"nodes": "1", "walltime": "60"}, runtime=0.3 + number * 0.1)
        server.submit(resources={"nodes": "2:ppn=2", "walltime": "60"}, runtime=0.4)
        server.submit(resources={"nodes": "1:ppn=3:even", "walltime": "60"}, runtime=0.3)
    server.submit(resources={"nodes": "node3:ppn=4", "walltime": "60"}, runtime=0.2)
    server.submit(resources={"nodes": "4:ppn=4", "walltime": "60"}, runtime=0.2, exit_status=1)
    server.submit(resources={"procs": "7", "walltime": "60"}, runtime=0.5)
    server.submit(resources={"nodes": "1:odd+2:ppn=2", "walltime": "60"}, runtime=0.3)
    held = server.submit(resources={"nodes": "1", "walltime": "60"}, runtime=0.1, holds="u")
    assert str(server.job(held).state) == "H"
    return 20


def release_all(server: EmulatedServer) -> None:
    from server_adapter.emulator.lifecycle import settle  # noqa: PLC0415

    for job in server.cluster.jobs.values():
        job.holds.discard("u")
        settle(server.cluster, job)


# -- scheduler mode --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
async def test_mixed_jobs_run_to_the_end_where_they_were_told_to(build: Build, version: str) -> None:
    house = await build(version)
    submit_mixed(house.server)
    adapter = await house.start()
    await house.until(lambda: house.states()["C"] >= 15)
    release_all(house.server)
    await house.until(house.all_done)
    await house.until(lambda: not house.daemon.state.jobs)
    house.no_job_started_twice()
    house.each_ran_where_told()
    assert adapter.link.connects == 1


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_adapter_that_is_killed_and_started_again_starts_no_job_twice(
    build: Build, version: str
) -> None:
    house = await build(version)
    submit_mixed(house.server)
    for done in (2, 6, 10):
        await house.start()
        await house.until(lambda least=done: house.states()["C"] >= least)  # type: ignore[misc]
        await house.stop()
    release_all(house.server)
    adapter = await house.start()
    await house.until(house.all_done)
    await house.until(lambda: not house.daemon.state.jobs)
    house.no_job_started_twice()
    assert adapter.interlock.reason == ""


async def test_a_server_that_restarts_is_found_again(build: Build) -> None:
    house = await build()
    submit_mixed(house.server)
    release_all(house.server)
    adapter = await house.start()
    await house.until(lambda: house.states()["C"] >= 4)
    await house.server.restart(down=0.3)
    await house.until(house.all_done)
    await house.until(lambda: not house.daemon.state.jobs)
    house.no_job_started_twice()
    assert adapter.link.connects == 2
    ages = [event.server_age for event in house.daemon.events if isinstance(event, Snapshot)]
    assert ages[0] is None
    assert ages[1] is not None
    assert ages[1] < 5


async def test_a_daemon_that_was_away_gets_all_events_and_a_snapshot(build: Build) -> None:
    house = await build()
    submit_mixed(house.server)
    release_all(house.server)
    await house.start()
    await house.until(lambda: house.states()["C"] >= 4)
    house.daemon.down = True
    await asyncio.sleep(0.8)
    house.daemon.down = False
    await house.until(house.all_done)
    await house.until(lambda: not house.daemon.state.jobs)
    await house.until(lambda: sum(isinstance(e, Snapshot) for e in house.daemon.events) >= 2)
    house.no_job_started_twice()
    house.each_ran_where_told()


async def test_what_ended_while_the_adapter_was_away_is_told_before_the_snapshot(build: Build) -> None:
    house = await build(plan=False)
    jobs = [house.server.submit(resources={"nodes": "1"}, runtime=0.2, exit_status=3) for _ in range(3)]
    await house.start()
    await house.until(lambda: len(house.daemon.state.jobs) == 3)
    for job in jobs:
        house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: len(house.daemon.accepted) == 3)
    await house.stop()
    await house.until(house.all_done)
    count = len(house.daemon.events)
    await house.start()
    await house.until(lambda: house.daemon.state.jobs == {})
    since = house.daemon.events[count:]
    ends = [event for event in since if isinstance(event, JobEnded)]
    assert {(end.job_id, end.exit_status) for end in ends} == {(job, 3) for job in jobs}
    await house.until(lambda: house.daemon.events[-1].type == "snapshot")


async def test_a_daemon_that_doubts_a_snapshot_gets_more_of_them(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server_adapter.bridge.loop._INSISTING", 0.2)
    house = await build(plan=False)

    def snapshots() -> int:
        return sum(isinstance(event, Snapshot) for event in house.daemon.events)

    await house.start()
    await house.until(lambda: snapshots() == 1)
    house.daemon.alert("snapshot", "a snapshot was not believed")
    await house.until(lambda: snapshots() >= 3)


async def test_an_end_is_answered_by_the_next_start_at_once(build: Build) -> None:
    """The server's command wakes the adapter: no poll is needed (they are ten minutes apart here)."""
    house = await build(**{"poll.interval": 600.0})
    adapter = await house.start(**{"listen.port": 0})
    await house.until(lambda: adapter.cycles >= 1)
    for _ in range(3):
        house.server.submit(resources={"nodes": "4:ppn=4", "walltime": "60"}, runtime=0.3)
        # the emulated server calls a fixed port; call in its place
        adapter.look()
        await house.until(lambda: house.states()["R"] > 0)
        await house.until(lambda: house.states()["R"] + house.states()["E"] == 0)
        adapter.look()
    house.no_job_started_twice()


async def test_the_servers_commands_wake_the_adapter(build: Build, unused_port: int) -> None:
    house = await build(**{"poll.interval": 600.0, "listen.port": unused_port})
    house.server.scheduler = ("127.0.0.1", unused_port)
    adapter = await house.start()
    await house.until(lambda: adapter.cycles >= 1)
    house.server.submit(resources={"nodes": "4:ppn=4", "walltime": "60"}, runtime=0.3)
    house.server.submit(resources={"nodes": "4:ppn=4", "walltime": "60"}, runtime=0.3)
    await house.until(house.all_done)
    assert SchedulerCommand.TERM in house.server.commands
    house.each_ran_where_told()


@pytest.fixture
def unused_port() -> int:
    import socket  # noqa: PLC0415

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


async def test_a_taken_port_keeps_the_scheduler_from_starting(build: Build) -> None:
    house = await build()
    other = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    with pytest.raises(PortTakenError, match="another scheduler"):
        await house.make(**{"listen.port": port}).run()
    other.close()


# -- decisions that must not be carried out --------------------------------------------------------


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"expires": 5}, "expired"),
    ({"term": 2}, "term 2"),
    ({"version": "other"}, "altered"),
    ({"shares": (ShareFacts("node9", 1),)}, "no node node9"),
    ({"shares": (ShareFacts("node1", 5),)}, "has 4 cores"),
    ({"shares": ()}, "names no nodes"),
    ({"job_id": "999.localhost"}, "gone"),
]


@pytest.mark.parametrize(("changes", "words"), WRONG, ids=[words for _, words in WRONG])
async def test_a_wrong_decision_is_refused_here(build: Build, changes: dict[str, Any], words: str) -> None:
    house = await build(plan=False)
    job = house.server.submit(resources={"nodes": "1"}, runtime=1.0)
    adapter = await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    adapter.journal.see_term(3)
    house.daemon.term = 3
    house.daemon.decide(job, [ShareFacts("node1", 1)], **changes)
    await house.until(lambda: bool(house.daemon.refused))
    assert house.daemon.refused[0].code == 0
    assert words in house.daemon.refused[0].text
    assert house.server.cluster.runs == {}


@pytest.mark.parametrize("what", ["hold", "offline", "down", "alter", "delete", "scheduling"])
async def test_what_nobody_told_is_seen_right_before_the_run(build: Build, what: str) -> None:
    house = await build(plan=False, **{"poll.interval": 600.0})
    server = house.server
    job = server.submit(resources={"nodes": "1"}, runtime=1.0)
    await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    match what:
        case "hold":
            server.job(job).holds.add("u")
            from server_adapter.emulator.lifecycle import settle  # noqa: PLC0415

            settle(server.cluster, server.job(job))
        case "offline":
            server.node("node1").offline = True
        case "down":
            server.node("node1").down = True
        case "alter":
            server.job(job).resources["walltime"] = "02:00:00"
            server.job(job).touch(server.now)
        case "delete":
            del server.cluster.jobs[job]
        case _:
            server.cluster.attributes["scheduling"] = "False"
    house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: bool(house.daemon.refused))
    assert house.daemon.refused[0].code == 0
    assert server.cluster.runs == {}


async def test_a_busy_node_is_tried_again_and_then_used(build: Build) -> None:
    house = await build(plan=False)
    first = house.server.submit(resources={"nodes": "1:ppn=4"}, runtime=0.4)
    second = house.server.submit(resources={"nodes": "1:ppn=4"}, runtime=0.1)
    await house.start(**{"run.busy_retries": 20})
    await house.until(lambda: second in house.daemon.state.jobs)
    house.daemon.decide(first, [ShareFacts("node1", 4)])
    await house.until(lambda: str(house.server.job(first).state) == "R")
    house.daemon.decide(second, [ShareFacts("node1", 4)])
    await house.until(house.all_done)
    assert house.daemon.refused == []


@pytest.mark.parametrize(
    ("code", "least"), [(ServerCode.RESCUNAV, 4), (ServerCode.UNKNODE, 1), (ServerCode.MOMREJECT, 1)]
)
async def test_the_servers_refusals_are_reported_with_their_code(
    build: Build, code: ServerCode, least: int
) -> None:
    house = await build(plan=False)
    job = house.server.submit(resources={"nodes": "1"}, runtime=1.0)
    await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    house.server.faults.refuse_runs(code=code)
    before = house.server.faults.refusals.left
    house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: bool(house.daemon.refused))
    assert house.daemon.refused[0].code == code
    assert before - house.server.faults.refusals.left == least


async def test_a_job_that_comes_back_is_told_as_queued_again(build: Build) -> None:
    house = await build(plan=False)
    job = house.server.submit(resources={"nodes": "1"}, runtime=1.0)
    await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    house.server.faults.return_runs(1)
    house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: bool(house.daemon.accepted))

    def told() -> int:
        return sum(isinstance(event, JobQueued) and event.job.id == job for event in house.daemon.events)

    await house.until(lambda: told() >= 1)


async def test_a_lost_answer_to_a_run_is_cleared_up(build: Build) -> None:
    house = await build(plan=False)
    job = house.server.submit(resources={"nodes": "1"}, runtime=30.0)
    await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    house.server.faults.slow_down(0.05, [RequestCode.ASYNC_RUN_JOB])
    real = house.server.handlers.answer

    def answer(request: Any, dialogue: Any) -> bytes:
        found = real(request, dialogue)
        if request.code is RequestCode.ASYNC_RUN_JOB:
            house.server.faults.cut_replies(1, after=3)
        return found

    house.server.handlers.answer = answer  # type: ignore[method-assign]
    house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: bool(house.daemon.accepted))
    assert house.server.cluster.runs == {job: 1}
    assert house.daemon.refused == []


# -- interlocks ------------------------------------------------------------------------------------


async def test_a_start_that_is_not_ours_stops_all_starts_until_resumed(build: Build) -> None:
    house = await build(plan=False)
    foreign = house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    ours = house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    adapter = await house.start()
    await house.until(lambda: ours in house.daemon.state.jobs)
    start_as_admin(house.server, foreign)
    await house.until(lambda: bool(adapter.interlock.reason))
    house.daemon.decide(ours, [ShareFacts("node2", 1)])
    await house.until(lambda: bool(house.daemon.refused))
    assert "another scheduler is alive" in house.daemon.refused[0].text
    assert adapter.interlock.resume()
    house.daemon.decide(ours, [ShareFacts("node2", 1)])
    await house.until(lambda: bool(house.daemon.accepted))


async def test_a_recorded_qrun_stops_nothing(build: Build) -> None:
    house = await build(plan=False)
    job = house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    adapter = await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    adapter.interlock.record_qrun(job)
    start_as_admin(house.server, job)
    await house.until(lambda: house.daemon.state.jobs[job].state == "R")
    await asyncio.sleep(0.1)
    assert adapter.interlock.reason == ""
    assert [event.by for event in house.daemon.events if isinstance(event, JobStarted)] == ["an admin"]


def start_as_admin(server: EmulatedServer, job: str) -> None:
    from server_adapter.emulator.lifecycle import start  # noqa: PLC0415

    start(server.cluster, server.job(job), "node1:ppn=1", synchronous=True)


# -- shadow and adviser ----------------------------------------------------------------------------


FORBIDDEN = sorted(set(RequestCode) - READ_ONLY)


async def test_in_shadow_nothing_but_questions_leaves(build: Build) -> None:
    house = await build(plan=False)
    job = house.server.submit(resources={"nodes": "1"}, runtime=1.0)
    adapter = house.make(mode="shadow")
    received = Counter[RequestCode]()
    real = house.server.handlers.answer

    def answer(request: Any, dialogue: Any) -> bytes:
        received[request.code] += 1
        return real(request, dialogue)

    house.server.handlers.answer = answer  # type: ignore[method-assign]
    async with adapter.link.talk() as connection:
        await connection.describe(StatusRequest(code=RequestCode.STATUS_JOB))
        for request in (
            RunRequest(code=RequestCode.RUN_JOB, job=job, destination="node1:ppn=1"),
            RunRequest(code=RequestCode.ASYNC_RUN_JOB, job=job, destination="node1:ppn=1"),
            ManageRequest(code=RequestCode.MODIFY_JOB, command=2, object_type=2, name=job),
            ManageRequest(code=RequestCode.HOLD_JOB, command=2, object_type=2, name=job),
            ManageRequest(code=RequestCode.DELETE_JOB, command=1, object_type=2, name=job),
            ManageRequest(code=RequestCode.MANAGER, command=2, object_type=3, name="node1"),
            JobRequest(code=RequestCode.RERUN, job=job),
        ):
            with pytest.raises(RequestForbiddenError):
                await connection.request(request)
    await adapter.close()
    assert set(received) <= READ_ONLY
    assert PERMITTED["shadow"] == READ_ONLY
    assert not PERMITTED["adviser"] & {RequestCode.RUN_JOB, RequestCode.ASYNC_RUN_JOB}
    assert RequestCode.RUN_JOB in FORBIDDEN


async def test_a_shadow_listens_nowhere_writes_nothing_and_says_how_well_it_agrees(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    house = await build(plan=False)
    other = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]  # the incumbent's: a shadow does not mind
    job = house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    await house.start(mode="shadow", **{"listen.port": port})
    await house.until(lambda: job in house.daemon.state.jobs)
    house.daemon.tell(job, int(house.daemon.clock()) + 100, ("node1",))
    house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: bool(house.daemon.refused))
    assert "shadow mode" in house.daemon.refused[0].text
    start_as_admin(house.server, job)
    await house.until(lambda: house.daemon.state.jobs[job].state == "R")
    await house.until(lambda: "1 of them due by our plan (1 on the same nodes)" in caplog.text)
    assert "told starts off by -" in caplog.text
    assert "comment" not in house.server.job(job).attributes
    other.close()


async def test_an_adviser_writes_but_starts_nothing(build: Build) -> None:
    house = await build()
    house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    big = house.server.submit(resources={"nodes": "4:ppn=4"}, runtime=60.0)
    await house.start(mode="adviser")
    await house.until(lambda: "comment" in house.server.job(big).attributes)
    assert house.server.job(big).attributes["comment"].startswith("schedd: planned start ")
    await house.until(lambda: bool(house.daemon.refused))
    assert house.server.cluster.runs == {}


# -- what is written on jobs -----------------------------------------------------------------------


async def test_comments_are_ours_to_change_and_foreign_ones_are_kept(build: Build) -> None:
    house = await build(plan=False)
    server = house.server
    ours, foreign = (server.submit(resources={"nodes": "1"}, runtime=60.0) for _ in range(2))
    server.job(foreign).attributes["comment"] = "please ask bob"
    await house.start(**{"tell.start_time": True})
    await house.until(lambda: ours in house.daemon.state.jobs)
    now = int(house.daemon.clock())
    house.daemon.tell(foreign, now + 500, ("node1",))
    house.daemon.tell(ours, now + 1000, ("node1", "node2"))
    await house.until(lambda: server.job(ours).start_time == now + 1000)
    comment = server.job(ours).attributes["comment"]
    assert comment.startswith("schedd: planned start ")
    assert comment.endswith(" on node1,node2")
    assert server.job(foreign).attributes["comment"] == "please ask bob"
    # moved by less than the threshold: not written
    house.daemon.tell(ours, now + 1030, ("node1", "node2"))
    house.daemon.tell(foreign, now + 900, ("node1",))
    await house.until(lambda: server.job(foreign).start_time == now + 900)
    assert server.job(ours).start_time == now + 1000
    # no start: says why
    house.daemon.tell(ours, None, text="waits for node9, which is down")
    await house.until(lambda: server.job(ours).start_time is None)
    assert server.job(ours).attributes["comment"] == "schedd: waits for node9, which is down"


async def test_our_comment_is_replaced_at_the_start_and_taken_away_on_uninstall(build: Build) -> None:
    house = await build(plan=False)
    server = house.server
    job = server.submit(resources={"nodes": "1"}, runtime=60.0)
    await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    house.daemon.tell(job, int(house.daemon.clock()) + 1000, ("node1",))
    await house.until(lambda: "comment" in server.job(job).attributes)
    await asyncio.sleep(0.3)  # a reading that shows it
    house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: "schedd: started " in server.job(job).attributes["comment"])
    assert "on node1, last planned for " in server.job(job).attributes["comment"]
    await house.stop()
    assert await house.make().clean() == 1
    assert "comment" not in server.job(job).attributes


# -- one cycle -------------------------------------------------------------------------------------


async def test_once_does_one_cycle_and_ends(build: Build) -> None:
    house = await build()
    job = house.server.submit(resources={"nodes": "1"}, runtime=60.0)
    await house.make().once()
    assert house.server.cluster.runs == {job: 1}
    assert house.daemon.state.jobs[job].state == "R"
