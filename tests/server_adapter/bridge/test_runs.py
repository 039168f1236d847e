"""Run decisions: checks before a run, and handling of the server's answer."""

import asyncio
import errno
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from schedd.wire import JobQueued, Run, ShareFacts
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerUnreachableError
from server_adapter.bridge.dispatch import Dispatcher, RunRules
from server_adapter.bridge.journal import Journal
from server_adapter.bridge.run_checks import RunCheck
from server_adapter.bridge.server import RunOutcome, Server
from server_adapter.emulator.handlers import TorqueHandlers
from server_adapter.servers.decided_walltimes import WALLTIMES_FILE, DecidedWalltimes
from server_adapter.torque.errors import TorqueErrorCode
from server_adapter.torque.notation import seconds
from tests.server_adapter.bridge.house import AdapterHarness, Build, start_as_admin
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio


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
    adapter.journal.record_term(3)
    house.daemon.term = 3
    house.daemon.decide(job, [ShareFacts("node1", 1)], **changes)
    await house.until(lambda: bool(house.daemon.refused))
    assert house.daemon.refused[0].code == 0
    assert words in house.daemon.refused[0].text
    assert house.daemon.refused[0].outage == (words == "expired"), "only its age says nothing of the job"
    assert house.server.cluster.runs == {}


async def test_a_start_refused_because_the_adapter_may_not_start_jobs_is_an_outage(build: Build) -> None:
    house = await build(plan=False)
    job = house.server.submit(resources={"nodes": "1"}, runtime=1.0)
    await house.start(mode="shadow")
    await house.until(lambda: job in house.daemon.state.jobs)
    house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: bool(house.daemon.refused))
    assert house.daemon.refused[0].outage
    assert house.server.cluster.runs == {}


async def test_a_start_that_cannot_be_recorded_on_a_full_disk_is_an_outage_and_not_requested(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    house = await build(plan=False)
    job = house.server.submit(resources={"nodes": "1"}, runtime=1.0)
    await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    monkeypatch.setattr(Journal, "_note", full_disk)
    house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: bool(house.daemon.refused))
    assert house.daemon.refused[0].outage
    assert house.daemon.refused[0].text.endswith("No space left on device")
    assert house.server.cluster.runs == {}


@pytest.mark.parametrize("requested", [False, True], ids=["not sent", "sent"])
async def test_a_start_that_the_server_did_not_answer_in_time_is_an_outage(
    tmp_path: Path, requested: bool
) -> None:
    """The pauses take longer than asked for, as on a loaded machine."""
    now = 1000.0

    class SilentServer:
        async def run(self, _: Run, on_request: Callable[[], None]) -> RunOutcome:
            if requested:
                on_request()
            raise ServerUnreachableError("no answer")

        async def verify_run(self, _: Run) -> RunCheck:
            raise ServerUnreachableError("no answer")

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds + 7.0

    journal = Journal(tmp_path)
    server = cast("Server", SilentServer())
    dispatcher = Dispatcher(server, journal, lambda: "", RunRules(), clock=lambda: now, sleep=sleep)
    outcome = await dispatcher.run(
        Run(
            id="run-1",
            cause="",
            time=1000,
            job_id="1.host",
            shares=(ShareFacts("node1", 1),),
            version="",
            expires=1020,
            term=1,
        )
    )
    journal.close()
    assert outcome.outage
    assert outcome.text == "no answer; not reached again in time"
    assert now >= 1020


async def test_a_decision_that_expires_while_the_server_is_slow_is_not_requested(tmp_path: Path) -> None:
    now = 1000.0

    class SlowServer:
        async def run(self, _: Run, on_request: Callable[[], None]) -> RunOutcome:
            nonlocal now
            now += 90.0  # the check of the job and of its nodes
            on_request()
            raise AssertionError("it was requested")

    journal = Journal(tmp_path)
    server = cast("Server", SlowServer())
    outcome = await Dispatcher(server, journal, lambda: "", RunRules(), clock=lambda: now).run(
        Run(
            id="run-1",
            cause="",
            time=1000,
            job_id="1.host",
            shares=(ShareFacts("node1", 1),),
            version="",
            expires=1060,
            term=1,
        )
    )
    journal.close()
    assert (outcome.accepted, outcome.text) == (False, "the decision expired while it waited for the server")
    assert outcome.outage, "the job and its nodes are not at fault"
    assert not journal.requested


@pytest.mark.parametrize("what", ["hold", "offline", "down", "alter", "delete", "scheduling"])
async def test_unreported_changes_are_noticed_right_before_the_run(build: Build, what: str) -> None:
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


def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[RequestCode]:
    """How often each request came to the server from now on."""
    found: Counter[RequestCode] = Counter()
    before = TorqueHandlers.answer

    def answer(self: TorqueHandlers, request: Any, *more: Any) -> bytes:
        found[request.code] += 1
        return before(self, request, *more)

    monkeypatch.setattr(TorqueHandlers, "answer", answer)
    return found


async def decided_at_once(house: AdapterHarness, runs: dict[str, str]) -> None:
    """Runs on these nodes, by job, which reach the adapter together."""
    for job, node in runs.items():
        house.daemon.decide(job, [ShareFacts(node, 1)])
    await house.until(lambda: len(house.daemon.accepted) + len(house.daemon.refused) == len(runs))


async def test_nodes_of_simultaneous_decisions_are_read_once(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server_adapter.servers.view_expiry.VIEW_AGE_S", WAIT_S)
    house = await build(plan=False, **{"poll.interval": 600.0})
    jobs = [house.server.submit(resources={"nodes": "1"}, runtime=60.0) for _ in range(8)]
    await house.start()
    await house.until(lambda: len(house.daemon.state.jobs) == 8)
    count = counted(monkeypatch)
    await decided_at_once(house, {job: f"node{number % 2 + 1}" for number, job in enumerate(jobs)})
    assert len(house.daemon.accepted) == 8
    assert count[RequestCode.ASYNC_RUN_JOB] == 8
    assert count[RequestCode.STATUS_NODE] <= 4  # and one reading


async def test_a_shared_view_counts_cores_of_requested_runs(build: Build) -> None:
    house = await build(plan=False, **{"run.busy_retries": 0})
    jobs = [house.server.submit(resources={"nodes": "1"}, runtime=60.0) for _ in range(6)]
    await house.start()
    await house.until(lambda: len(house.daemon.state.jobs) == 6)
    await decided_at_once(house, dict.fromkeys(jobs, "node1"))
    assert len(house.daemon.accepted) == 4
    assert {one.text for one in house.daemon.refused} == {"node1 has 0 cores free, not 1"}


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
    ("code", "least"),
    [(TorqueErrorCode.RESCUNAV, 7), (TorqueErrorCode.UNKNODE, 1), (TorqueErrorCode.MOMREJECT, 1)],
)
async def test_the_servers_refusals_are_reported_with_their_code(
    build: Build, code: TorqueErrorCode, least: int
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


async def test_a_returned_job_is_reported_as_queued_again(build: Build) -> None:
    house = await build(plan=False)
    job = house.server.submit(resources={"nodes": "1"}, runtime=1.0)
    await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    house.server.faults.return_runs(1)
    house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: bool(house.daemon.accepted))

    def count_reports() -> int:
        return sum(isinstance(event, JobQueued) and event.job.id == job for event in house.daemon.events)

    await house.until(lambda: count_reports() >= 1)


async def test_a_lost_answer_to_a_run_is_cleared_up(build: Build) -> None:
    house = await build(plan=False)
    job = house.server.submit(resources={"nodes": "1"}, runtime=30.0)
    await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    house.server.faults.slow_down(0.05, [RequestCode.ASYNC_RUN_JOB])
    real = house.server.handlers.answer

    def answer(request: Any, context: Any) -> bytes:
        found = real(request, context)
        if request.code is RequestCode.ASYNC_RUN_JOB:
            house.server.faults.cut_replies(1, after=3)
        return found

    house.server.handlers.answer = answer  # type: ignore[method-assign]
    house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: bool(house.daemon.accepted))
    assert house.server.cluster.runs == {job: 1}
    assert house.daemon.refused == []


async def test_a_job_gets_its_walltime_back_if_the_connection_breaks_before_its_run(build: Build) -> None:
    house = await build(plan=False, **{"poll.interval": 600.0})
    resources = {"nodes": "1", "walltime": "600", "minwclimit": "60"}
    job = house.server.submit(resources=resources, runtime=30.0)
    await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    real = house.server.handlers.answer
    walltimes: list[str] = []

    def answer(request: Any, context: Any) -> bytes:
        found = real(request, context)
        if request.code is RequestCode.MODIFY_JOB:
            walltimes.append(house.server.cluster.jobs[job].resources["walltime"])
            if len(walltimes) == 1:
                house.server.faults.cut_replies(1, after=3)
        return found

    house.server.handlers.answer = answer  # type: ignore[method-assign]
    house.daemon.decide(job, [ShareFacts("node1", 1)], walltime=120)
    await house.until(lambda: bool(house.daemon.refused))
    assert [seconds(one) for one in walltimes] == [120, 600]
    assert house.server.cluster.runs == {}


async def test_a_job_gets_its_walltime_back_if_the_adapter_restarts_before_its_run(build: Build) -> None:
    house = await build(plan=False)
    jobs = [house.server.submit(resources={"nodes": "1", "walltime": "600"}, runtime=30.0) for _ in range(3)]
    started = jobs[2]
    await house.start()
    await house.until(lambda: all(job in house.daemon.state.jobs for job in jobs))
    await house.stop()
    kept = DecidedWalltimes(house.directory / WALLTIMES_FILE)
    for job, now in zip(jobs, (120, 300, 120), strict=True):
        kept.note(job, 600, 120)
        house.server.cluster.jobs[job].resources["walltime"] = f"00:{now // 60:02}:00"
        house.server.cluster.jobs[job].touch(house.server.cluster.now)
    start_as_admin(house.server, started)
    await house.start()
    file = house.directory / WALLTIMES_FILE
    await house.until(lambda: not any(job in DecidedWalltimes(file) for job in jobs))
    found = [seconds(house.server.cluster.jobs[job].resources["walltime"]) for job in jobs]
    assert found == [600, 300, 120], "altered by its owner, and set for the run"


async def test_a_connection_that_breaks_before_the_request_costs_no_start(build: Build) -> None:
    house = await build(plan=False, **{"poll.interval": 600.0})
    job = house.server.submit(resources={"nodes": "1"}, runtime=600.0)
    await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    house.server.faults.cut_replies(1)
    house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: bool(house.daemon.refused) or bool(house.server.cluster.runs))
    assert house.daemon.refused == []
    assert house.server.cluster.runs == {job: 1}


@pytest.mark.parametrize("fate", ["runs", "ended", "came back"])
async def test_a_run_requested_before_a_restart_is_not_requested_again(
    build: Build, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    """As by kill -9 between the server's answer and the word to the daemon."""
    monkeypatch.setattr("server_adapter.bridge.dispatch._SETTLING", 0.2)
    house = await build(plan=False)
    job = house.server.submit(resources={"nodes": "1"}, runtime=0.1 if fate == "ended" else 60.0)
    adapter = await house.start()
    await house.until(lambda: job in house.daemon.state.jobs)
    if fate == "came back":
        house.server.faults.return_runs(1)
    monkeypatch.setattr(adapter.delivery, "enqueue", lambda _: asyncio.Event().wait())
    house.daemon.decide(job, [ShareFacts("node1", 1)])
    await house.until(lambda: house.server.cluster.runs == {job: 1})
    await house.stop()
    if fate == "ended":
        await house.until(house.all_done)
    await house.start()
    await house.until(lambda: bool(house.daemon.accepted or house.daemon.refused))
    if fate == "came back":
        (refused,) = house.daemon.refused
        assert refused.text == "it was asked for before the adapter was restarted; the job is still queued"
    else:
        assert house.daemon.refused == []
    assert house.server.cluster.runs == {job: 1}
