"""Jobs handed over to an emulated TORQUE: in the user's name, on hold, once, wherever connections break."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from schedd.wire import SubmissionFacts, TransferDecision, TransferStep, TransferStepDone
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import RequestForbiddenError
from server_adapter.batch.requests import QueueJobRequest
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.transfers import MARK, TransferExecutor
from server_adapter.dis import Decoder
from server_adapter.emulator import EmulatedServer, JobState, NodeSpec, lifecycle
from server_adapter.emulator.client_context import ClientContext
from server_adapter.emulator.principal import make_principal
from server_adapter.families import connector
from server_adapter.servers.torque.transfers import submission_attributes
from server_adapter.settings import load_settings
from server_adapter.torque.replies import decode_reply
from tests.waits import WAIT_S

JOB = SubmissionFacts(
    "alice",
    "sleep 1\n",
    queue="batch",
    resources={"nodes": "1:ppn=2", "walltime": "00:10:00"},
    attributes={"Job_Name": "relax", "stagein": "in@host:/in"},
    variables={"CASE": "7,8"},
)
Scene = Callable[["TorqueTransferHarness"], Awaitable[None]]


class TorqueTransferHarness:
    """An emulated server, and the part of the adapter that executes transfers."""

    def __init__(self, server: EmulatedServer, directory: Path, **options: Any) -> None:
        self.server = server
        host, port = server.address
        values = {
            "mode": "scheduler",
            "transfers": True,
            "state_dir": directory,
            "server.host": host,
            "server.port": port,
            "server.auth": "none",
            "server.timeout": WAIT_S,
            "listen.port": 0,
        }
        self.settings = load_settings(None, values | options)
        self.barred = ""
        self.waits = ""
        self.told: list[TransferStepDone] = []
        self.numbers = count(1)
        self.begin()

    def begin(self) -> None:
        """As an adapter that was just started."""
        self.torque = connector(self.settings)(AdaptiveRateLimiter(1000.0))
        names = (f"e:{number}" for number in count(1))
        delivery: Any = SimpleNamespace(ids=names, enqueue=self._record)
        self.transfers = TransferExecutor(
            self.torque.transfer_client,
            delivery,
            lambda: self.barred,
            lambda: None,
            waits=lambda: self.waits,
            sleep=lambda _: asyncio.sleep(0),
        )

    async def _record(self, event: TransferStepDone) -> None:
        self.told.append(event)

    async def do(
        self,
        step: TransferStep,
        job: str = "",
        *,
        facts: SubmissionFacts = JOB,
        release_requested: bool = False,
    ) -> TransferStepDone:
        number = next(self.numbers)
        self.transfers.enqueue(
            TransferDecision(
                id=f"d{number:012d}",
                cause="e",
                time=int(self.server.now) + 120,  # it comes after the adapter began
                transfer="f.1.1",
                step=step,
                submission=facts if step == "submit" else None,
                server_job=job,
                release_requested=release_requested,
            )
        )
        await asyncio.wait_for(self.transfers.finish(), WAIT_S)
        return self.told[-1]


def run(directory: Path, run_scenario: Scene, version: str = "6.1", **options: Any) -> None:
    async def play() -> None:
        async with EmulatedServer([NodeSpec("node1", 4)], version=version) as server:
            counter = TorqueTransferHarness(server, directory, **options)
            try:
                await run_scenario(counter)
            finally:
                await counter.torque.close()

    asyncio.run(play())


@pytest.mark.parametrize("version", ["2.5", "4.2", "6.1"])
def test_a_job_arrives_in_its_users_name_waits_held_and_runs_after_release(
    tmp_path: Path, version: str
) -> None:
    async def run_scenario(counter: TorqueTransferHarness) -> None:
        done = await counter.do("submit")
        assert (done.done, done.text) == (True, "")
        job = counter.server.job(done.server_job)
        assert (job.order.user, job.order.name, job.queue) == ("alice", "relax", "batch")
        assert (job.state, job.holds) == (JobState.HELD, {"o"})
        assert job.order.script == "sleep 1\n"
        assert job.order.variables == f"CASE=7\\,8,{MARK}=f.1.1"
        assert job.order.extra["stagein"] == "in@host:/in"
        assert (await counter.do("release", done.server_job)).done
        assert (job.state, job.holds) == (JobState.QUEUED, set())
        assert (await counter.do("release", done.server_job)).done  # once more, after a lost answer

    run(tmp_path, run_scenario, version)


def test_a_deadline_is_sent_in_the_extension_that_the_server_has(tmp_path: Path) -> None:
    async def run_scenario(counter: TorqueTransferHarness) -> None:
        facts = replace(JOB, resources={**JOB.resources, "deadline": "4000000000"})
        done = await counter.do("submit", facts=facts)
        assert done.done, done.text
        job = counter.server.job(done.server_job)
        assert job.order.extra["x"] == "deadline:4000000000"
        assert "deadline" not in job.order.resources

    run(tmp_path, run_scenario)


def test_a_script_longer_than_a_request_arrives_completely(tmp_path: Path) -> None:
    async def run_scenario(counter: TorqueTransferHarness) -> None:
        script = "x" * 150_000
        done = await counter.do("submit", facts=SubmissionFacts("alice", script, resources={"nodes": "1"}))
        assert counter.server.job(done.server_job).order.script == script

    run(tmp_path, run_scenario)


@pytest.mark.parametrize("after", range(0, 40, 3))
def test_a_submission_with_a_cut_answer_leaves_a_single_job(tmp_path: Path, after: int) -> None:
    """The reply to each step is cut in turn, at several bytes."""

    async def run_scenario(counter: TorqueTransferHarness) -> None:
        counter.server.faults.cut_replies(1 + after % 7, after=after)
        done = await counter.do("submit")
        assert done.done
        jobs = counter.server.cluster.jobs
        assert list(jobs) == [done.server_job]
        assert jobs[done.server_job].state is JobState.HELD

    run(tmp_path, run_scenario)


def test_an_adapter_that_died_in_a_submission_finds_its_job(tmp_path: Path) -> None:
    async def run_scenario(counter: TorqueTransferHarness) -> None:
        first = await counter.do("submit")
        await counter.torque.close()
        counter.begin()
        counter.numbers = count(1)
        counter.transfers._began += 3600  # it began after the decision
        again = await counter.do("submit")
        assert again.server_job == first.server_job
        assert len(counter.server.cluster.jobs) == 1

    run(tmp_path, run_scenario)


def test_an_adapter_that_died_finds_its_job_although_the_daemons_clock_is_ahead(tmp_path: Path) -> None:
    async def run_scenario(counter: TorqueTransferHarness) -> None:
        first = await counter.do("submit")
        await counter.torque.close()
        counter.begin()
        counter.transfers._cluster_time = lambda: time.time() + 300
        counter.numbers = count(1)
        again = await counter.do("submit")  # its time is two minutes after the adapter's start
        assert again.server_job == first.server_job
        assert len(counter.server.cluster.jobs) == 1

    run(tmp_path, run_scenario)


def test_a_refusal_has_the_servers_code_and_text(tmp_path: Path) -> None:
    async def run_scenario(counter: TorqueTransferHarness) -> None:
        done = await counter.do("submit", facts=SubmissionFacts("alice", "x", queue="nowhere"))
        assert (done.done, done.code) == (False, 15020)
        assert not counter.server.cluster.jobs

    run(tmp_path, run_scenario)


def test_nobody_but_a_manager_submits_in_anothers_name(tmp_path: Path) -> None:
    async def by_a_user(counter: TorqueTransferHarness) -> None:

        who = make_principal(counter.server.cluster, "bob", privileged=False)
        request = QueueJobRequest(code=RequestCode.QUEUE_JOB, attributes=submission_attributes(JOB, "m"))
        answer = counter.server.handlers.answer(request, ClientContext(who))
        assert decode_reply(Decoder(answer)).code == 15025

    run(tmp_path, by_a_user)


def test_a_job_is_withdrawn_before_it_runs_and_not_after(tmp_path: Path) -> None:
    async def run_scenario(counter: TorqueTransferHarness) -> None:
        first = await counter.do("submit")
        assert (await counter.do("withdraw", first.server_job)).done
        assert all(job.state is JobState.COMPLETE for job in counter.server.cluster.jobs.values())
        assert (await counter.do("withdraw", first.server_job)).done  # once more
        late = await counter.do("submit")
        assert (late.done, late.text) == (False, "it was withdrawn")

    async def running(counter: TorqueTransferHarness) -> None:
        first = await counter.do("submit")
        await counter.do("release", first.server_job)

        job = counter.server.job(first.server_job)
        lifecycle.start(counter.server.cluster, job, "node1:ppn=2", synchronous=True)
        back = await counter.do("withdraw", first.server_job)
        assert (back.done, back.text) == (False, f"{first.server_job} runs or has run")
        assert job.state is JobState.RUNNING
        assert not job.holds

    async def purged(counter: TorqueTransferHarness) -> None:
        first = await counter.do("submit")
        await counter.do("release", first.server_job)
        counter.server.cluster.jobs.clear()  # it ran, ended and was forgotten between two readings
        back = await counter.do("withdraw", first.server_job, release_requested=True)
        assert (back.done, back.text) == (False, f"{first.server_job} is gone, and may have run")

    run(tmp_path / "one", run_scenario)
    run(tmp_path / "three", purged)
    run(tmp_path / "two", running)


ARRAY = replace(JOB, array="5-8")


@pytest.mark.parametrize("version", ["2.5", "4.2", "6.1"])
def test_an_array_arrives_complete_waits_held_and_runs_after_release(tmp_path: Path, version: str) -> None:
    async def run_scenario(counter: TorqueTransferHarness) -> None:
        done = await counter.do("submit", facts=ARRAY)
        assert (done.done, done.text) == (True, "")
        assert "[]" in done.server_job
        jobs = list(counter.server.cluster.jobs.values())
        assert [job.index for job in jobs] == [5, 6, 7, 8]
        assert {(job.order.user, job.state, "".join(job.holds)) for job in jobs} == {
            ("alice", JobState.HELD, "o")
        }
        torque: Any = counter.torque
        assert await torque.transfer_client.find_marked("f.1.1") == done.server_job, (
            "the array, and not one of its jobs"
        )
        assert (await counter.do("release", done.server_job)).done
        assert {(job.state, "".join(job.holds)) for job in jobs} == {(JobState.QUEUED, "")}

    run(tmp_path, run_scenario, version)


def test_an_array_is_withdrawn_and_its_running_jobs_continue(tmp_path: Path) -> None:
    async def run_scenario(counter: TorqueTransferHarness) -> None:
        first = await counter.do("submit", facts=ARRAY)
        assert (await counter.do("withdraw", first.server_job)).done
        assert {job.state for job in counter.server.cluster.jobs.values()} == {JobState.COMPLETE}
        assert (await counter.do("withdraw", first.server_job, release_requested=True)).done

    async def running(counter: TorqueTransferHarness) -> None:
        first = await counter.do("submit", facts=ARRAY)
        await counter.do("release", first.server_job)
        jobs = {job.index: job for job in counter.server.cluster.jobs.values()}
        lifecycle.start(counter.server.cluster, jobs[6], "node1:ppn=2", synchronous=True)
        back = await counter.do("withdraw", first.server_job, release_requested=True)
        assert not back.done
        assert back.text == f"1 of the 4 jobs that the server has of {first.server_job} run or have run"
        states = {index: job.state for index, job in jobs.items()}
        assert states == {
            5: JobState.COMPLETE,
            6: JobState.RUNNING,
            7: JobState.COMPLETE,
            8: JobState.COMPLETE,
        }
        assert not jobs[6].holds
        assert (await counter.do("delete", first.server_job)).done
        assert jobs[6].delete_requested or jobs[6].state is not JobState.RUNNING

    async def purged(counter: TorqueTransferHarness) -> None:
        first = await counter.do("submit", facts=ARRAY)
        counter.server.cluster.jobs.clear()
        counter.server.cluster.arrays.clear()
        back = await counter.do("withdraw", first.server_job, release_requested=True)
        assert (back.done, back.text) == (False, f"{first.server_job} is gone, and its jobs may have run")

    run(tmp_path / "one", run_scenario)
    run(tmp_path / "two", running)
    run(tmp_path / "three", purged)


def test_an_array_is_checked_after_all_its_jobs_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server makes them one after the other, after it has answered the commit."""

    async def run_scenario(counter: TorqueTransferHarness) -> None:
        rest: dict[str, Any] = {}

        async def pause(_: float) -> None:
            counter.server.cluster.jobs |= rest
            counter.server.cluster.arrays[array] |= rest

        first = await counter.do("submit", facts=ARRAY)
        array = first.server_job
        last = list(counter.server.cluster.jobs)[-1]
        rest[last] = counter.server.cluster.jobs.pop(last)
        del counter.server.cluster.arrays[array][last]
        monkeypatch.setattr("server_adapter.servers.torque.transfers.asyncio.sleep", pause)
        torque: Any = counter.torque
        await torque.transfer_client.finish(array, ARRAY)
        assert last in counter.server.cluster.jobs

    run(tmp_path, run_scenario)


def test_transfers_are_refused_unless_the_site_permits_them(tmp_path: Path) -> None:
    async def run_scenario(counter: TorqueTransferHarness) -> None:
        counter.barred = "the adapter's setting transfers is off"
        done = await counter.do("submit")
        assert (done.done, done.text) == (False, "the adapter's setting transfers is off")

    run(tmp_path, run_scenario)


def test_while_the_server_is_not_ours_a_handover_waits_and_is_not_refused(tmp_path: Path) -> None:
    """The job may exist: a refusal would send it to another cluster as well."""

    async def run_scenario(counter: TorqueTransferHarness) -> None:
        told = await counter.do("submit")
        counter.waits = "the adapter is not registered as scheduler"
        counter.told.clear()
        counter.transfers.enqueue(
            TransferDecision(
                id="d900000000000",
                cause="e",
                time=int(counter.server.now) + 120,
                transfer="f.1.1",
                step="release",
                submission=None,
                server_job=told.server_job,
            )
        )
        await counter.transfers.finish()
        await counter.transfers.step()
        assert counter.told == []
        counter.waits = ""
        await asyncio.wait_for(counter.transfers.finish(), WAIT_S)
        assert [(one.step, one.done) for one in counter.told] == [("release", True)]

    run(tmp_path, run_scenario)


def test_the_encoder_lets_no_submission_out_unless_the_site_says_so(tmp_path: Path) -> None:

    async def run_scenario(counter: TorqueTransferHarness) -> None:
        torque: Any = counter.torque
        with pytest.raises(RequestForbiddenError):
            await torque.transfer_client.submit(JOB, "m")

    run(tmp_path / "off", run_scenario, transfers=False)
    run(tmp_path / "adviser", run_scenario, mode="adviser")


def test_attributes_that_the_owner_could_not_set_are_not_sent() -> None:
    with pytest.raises(ValueError, match="User_List cannot be handed over"):
        submission_attributes(SubmissionFacts("ann", "x", attributes={"User_List": "bob"}), "m")
