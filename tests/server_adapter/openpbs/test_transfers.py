"""Jobs handed over to an emulated OpenPBS: over a connection of the user's own, on hold, once, and back."""

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from schedd.wire import ShareFacts, SubmissionFacts, TransferDecision, TransferStep, TransferStepDone
from server_adapter.batch.errors import RequestForbiddenError, RightsError, ServerUnreachableError
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.transfers import MARK, TransferExecutor
from server_adapter.emulator import EmulatedOpenPBS, JobState, NodeSpec
from server_adapter.emulator.openpbs import runs
from server_adapter.families import connector
from server_adapter.servers.openpbs.server import OpenPBSServer
from server_adapter.servers.openpbs.transfers import submission_attributes
from server_adapter.settings import load_settings
from tests.server_adapter.openpbs.site import run
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio
JOB = SubmissionFacts(
    "alice",
    "sleep 1\n",
    queue="workq",
    resources={"select": "1:ncpus=2", "walltime": "00:10:00"},
    attributes={"Job_Name": "relax", "stagein": "in@host:/in", "init_work_dir": "/work"},
    variables={"CASE": "7,8"},
)


class OpenPBSTransferHarness:
    """An emulated server, and the part of the adapter that executes transfers."""

    def __init__(self, server: EmulatedOpenPBS, directory: Path, **options: Any) -> None:
        self.server = server
        host, port = server.address
        self.values = {
            "mode": "scheduler",
            "transfers": True,
            "state_dir": directory,
            "server.family": "openpbs",
            "server.host": host,
            "server.port": port,
            "server.auth": "none",
            "server.timeout": WAIT_S,
            **options,
        }
        self.told: list[TransferStepDone] = []
        self.numbers = count(1)
        self.begin()

    def begin(self) -> None:
        """As an adapter that was just started."""
        made = connector(load_settings(None, self.values))(AdaptiveRateLimiter(1000.0))
        assert isinstance(made, OpenPBSServer)
        self.openpbs = made
        delivery: Any = SimpleNamespace(ids=(f"e:{number}" for number in count(1)), enqueue=self._record)
        self.transfers = TransferExecutor(
            made.transfer_client, delivery, str, lambda: None, sleep=self._no_sleep
        )

    async def _no_sleep(self, seconds: float) -> None:
        del seconds

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
        self.transfers.enqueue(
            TransferDecision(
                id=f"d{next(self.numbers):012d}",
                cause="e",
                time=4_000_000_000,  # it comes after the adapter began
                transfer="f.1.1",
                step=step,
                submission=facts if step == "submit" else None,
                server_job=job,
                release_requested=release_requested,
            )
        )
        await self.transfers.finish()
        return self.told[-1]


@pytest.fixture
async def counter(tmp_path: Path) -> AsyncIterator[OpenPBSTransferHarness]:
    async with EmulatedOpenPBS([NodeSpec("n1", 4, memory=8 << 20)], time_scale=0) as server:
        made = OpenPBSTransferHarness(server, tmp_path)
        yield made
        await made.openpbs.close()


@pytest.mark.parametrize("resources", [{"select": "1:ncpus=2"}, {"nodes": "1:ppn=2"}])
async def test_a_job_arrives_in_its_users_name_waits_on_the_adapters_hold_and_runs_after_release(
    counter: OpenPBSTransferHarness, resources: dict[str, str]
) -> None:
    facts = SubmissionFacts("alice", JOB.script, "workq", resources, JOB.attributes, JOB.variables)
    done = await counter.do("submit", facts=facts)
    assert (done.done, done.text) == (True, "")
    job = counter.server.cluster.jobs[done.server_job]
    assert (job.order.user, job.order.name, job.queue) == ("alice", "relax", "workq")
    assert (job.state, job.holds) == (JobState.HELD, {"o"})
    # Altered after that, so that a server that is killed does not come back with the owner's hold.
    assert job.attributes["comment"] == "held until the federation lets it start"
    assert job.order.script == "sleep 1\n"
    assert job.order.variables.split(",PBS_O")[0] == f"CASE=7\\,8,{MARK}=f.1.1"
    assert "PBS_O_WORKDIR=/work" in job.order.variables
    assert "init_work_dir" not in job.order.extra
    assert (await counter.do("release", done.server_job)).done
    assert (job.state, job.holds) == (JobState.QUEUED, set())
    assert (await counter.do("release", done.server_job)).done  # once more, after a lost answer


async def test_a_deadline_is_sent_if_the_site_has_created_its_resource(
    counter: OpenPBSTransferHarness,
) -> None:
    facts = replace(JOB, resources={**JOB.resources, "deadline": "4000000000"})
    without = await counter.do("submit", facts=facts)
    assert without.done
    counter.server.cluster.resources["deadline"] = ("string", "")
    job = await counter.do("submit", facts=replace(facts, variables={"CASE": "8"}))
    found = [
        counter.server.cluster.jobs[one.server_job].order.resources.get("deadline") for one in (without, job)
    ]
    assert found == [None, "4000000000"]


async def test_a_script_longer_than_a_request_arrives_completely(counter: OpenPBSTransferHarness) -> None:
    script = "x" * 150_000
    done = await counter.do("submit", facts=SubmissionFacts("alice", script))
    assert counter.server.cluster.jobs[done.server_job].order.script == script


async def test_an_interrupted_submission_is_found_and_put_on_the_adapters_hold(
    counter: OpenPBSTransferHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk: Any = counter.openpbs.transfer_client
    whole = desk.finish

    async def cut(job: str, submission: SubmissionFacts) -> None:
        assert counter.server.cluster.jobs[job].holds == {"u"}
        assert submission == JOB
        monkeypatch.setattr(desk, "finish", whole)
        raise ServerUnreachableError("the connection broke")

    monkeypatch.setattr(desk, "finish", cut)
    done = await counter.do("submit")
    assert done.done
    assert list(counter.server.cluster.jobs) == [done.server_job]
    job = counter.server.cluster.jobs[done.server_job]
    assert (job.state, job.holds) == (JobState.HELD, {"o"})
    assert "comment" in job.attributes


async def test_a_hold_of_the_owner_is_preserved(counter: OpenPBSTransferHarness) -> None:
    done = await counter.do("submit")
    job = counter.server.cluster.jobs[done.server_job]
    job.holds.add("u")
    await counter.openpbs.transfer_client.finish(done.server_job, JOB)
    assert job.holds == {"o", "u"}
    await counter.do("release", done.server_job)
    assert (job.state, job.holds) == (JobState.HELD, {"u"})


async def test_a_job_is_withdrawn_before_it_runs_and_not_after(counter: OpenPBSTransferHarness) -> None:
    first = await counter.do("submit")
    assert (await counter.do("withdraw", first.server_job)).done
    assert (await counter.do("withdraw", first.server_job)).done  # once more
    late = await counter.do("submit")
    assert (late.done, late.text) == (False, "it was withdrawn")


async def test_a_job_that_runs_stays_and_is_deleted_by_force_alone(counter: OpenPBSTransferHarness) -> None:
    first = await counter.do("submit")
    await counter.do("release", first.server_job)
    job = counter.server.cluster.jobs[first.server_job]
    runs.start(counter.server.cluster, job, "(n1:ncpus=2)", synchronous=True)
    back = await counter.do("withdraw", first.server_job, release_requested=True)
    assert (back.done, back.text) == (False, f"{first.server_job} runs or has run")
    assert (job.state, job.holds) == (JobState.RUNNING, set())
    assert (await counter.do("delete", first.server_job, release_requested=True)).done
    assert job.state is not JobState.RUNNING


@pytest.mark.parametrize("history", ["True", "False"])
async def test_a_vanished_job_is_withdrawn_unless_it_may_have_run(
    counter: OpenPBSTransferHarness, history: str
) -> None:
    counter.server.cluster.attributes["job_history_enable"] = history
    first = await counter.do("submit")
    counter.server.cluster.jobs.clear()
    back = await counter.do("withdraw", first.server_job, release_requested=True)
    assert (back.done, back.text) == (False, f"{first.server_job} is gone, and may have run")
    assert (await counter.do("withdraw", first.server_job)).done


async def test_a_refusal_has_the_servers_code_and_text(counter: OpenPBSTransferHarness) -> None:
    done = await counter.do("submit", facts=SubmissionFacts("alice", "x", queue="nowhere"))
    assert (done.done, done.code) == (False, 15018)
    done = await counter.do("submit", facts=SubmissionFacts("root", "x"))
    assert (done.done, done.text) == (False, "no job is handed over as root")
    assert not counter.server.cluster.jobs


async def test_nothing_is_submitted_unless_the_site_says_so_and_can_vouch(
    counter: OpenPBSTransferHarness, tmp_path: Path
) -> None:
    for option in ({"transfers": False}, {"mode": "adviser"}):
        other = OpenPBSTransferHarness(counter.server, tmp_path, **option)
        with pytest.raises(RequestForbiddenError):
            await other.openpbs.transfer_client.submit(JOB, "m")
        with pytest.raises(RequestForbiddenError):
            await other.openpbs.transfer_client.release("1.localhost")
        await other.openpbs.close()
    munge = OpenPBSTransferHarness(counter.server, tmp_path, **{"server.auth": "munge"})
    with pytest.raises(RightsError, match="no user can be vouched for: use auto"):
        await munge.openpbs.transfer_client.submit(JOB, "m")


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone vouches for others")
async def test_root_vouches_for_the_user_from_a_privileged_port(tmp_path: Path) -> None:
    nodes = [NodeSpec("n1", 4, memory=8 << 20)]
    async with EmulatedOpenPBS(nodes, time_scale=0, privileged_ports=True) as server:
        strict = OpenPBSTransferHarness(server, tmp_path, **{"server.auth": "auto"})
        done = await strict.do("submit")
        assert done.done, done.text
        assert server.cluster.jobs[done.server_job].order.user == "alice"
        await strict.openpbs.close()


def test_attributes_that_the_owner_could_not_set_are_not_sent() -> None:
    with pytest.raises(ValueError, match="User_List cannot be handed over"):
        submission_attributes(SubmissionFacts("ann", "x", attributes={"User_List": "bob"}), "m")


# ---- arrays ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("array", "found"), [("5-8", [5, 6, 7, 8]), ("5-5", [5])])
async def test_an_array_arrives_complete_waits_on_the_adapters_hold_and_runs_after_release(
    counter: OpenPBSTransferHarness, array: str, found: list[int]
) -> None:
    done = await counter.do("submit", facts=replace(JOB, array=array))
    assert (done.done, done.text) == (True, "")
    jobs = list(counter.server.cluster.jobs.values())
    assert [job.index for job in jobs] == found
    assert {(job.order.user, job.state, "".join(job.holds)) for job in jobs} == {
        ("alice", JobState.HELD, "o")
    }
    assert await counter.openpbs.transfer_client.find_marked("f.1.1") == done.server_job
    assert (await counter.do("release", done.server_job)).done
    assert {job.state for job in jobs} == {JobState.QUEUED}


async def test_an_array_is_withdrawn_before_any_subjob_runs(counter: OpenPBSTransferHarness) -> None:
    done = await counter.do("submit", facts=replace(JOB, array="5-8"))
    assert (await counter.do("withdraw", done.server_job)).done
    assert not any(job.active for job in counter.server.cluster.jobs.values())
    assert not any(
        job.state in (JobState.HELD, JobState.QUEUED) for job in counter.server.cluster.jobs.values()
    )
    again = await counter.do("withdraw", done.server_job, release_requested=True)
    assert not again.done
    assert again.text.endswith("is gone, and its jobs may have run")


async def test_a_withdrawn_arrays_running_jobs_continue(counter: OpenPBSTransferHarness) -> None:
    done = await counter.do("submit", facts=replace(JOB, array="5-8"))
    await counter.do("release", done.server_job)
    jobs = {job.index: job for job in counter.server.cluster.jobs.values()}
    runs.start(counter.server.cluster, jobs[6], "(n1:ncpus=2)", synchronous=True)
    back = await counter.do("withdraw", done.server_job, release_requested=True)
    assert not back.done
    assert back.text == f"1 of the 4 jobs that the server has of {done.server_job} run or have run"
    assert jobs[6].active
    assert not any(jobs[index].state in (JobState.HELD, JobState.QUEUED) for index in (5, 7, 8))


async def test_jobs_of_a_started_array_are_started_in_sequence(counter: OpenPBSTransferHarness) -> None:
    """For a waiting subjob the server returns the values of its array."""
    done = await counter.do("submit", facts=replace(JOB, array="5-8"))
    await counter.do("release", done.server_job)
    counter.server.cluster.attributes["scheduling"] = "True"
    await counter.openpbs.become_scheduler(lambda _: None)
    for index in (5, 6):
        name = done.server_job.replace("[]", f"[{index}]")
        state = await counter.openpbs.read()
        decision = run(name, state.jobs[name].version, ShareFacts("n1", 2))
        outcome = await counter.openpbs.run(decision, lambda: None)
        assert (outcome.accepted, outcome.text) == (True, "")


@pytest.mark.parametrize("over", [(5, 6), (5, 6, 7, 8)])
async def test_ends_of_subjobs_during_a_stop_of_the_adapter_are_read(
    counter: OpenPBSTransferHarness, tmp_path: Path, over: tuple[int, ...]
) -> None:
    """One array that continues, and one that has ended."""
    counter.server.cluster.attributes["job_history_enable"] = "True"
    done = await counter.do("submit", facts=replace(JOB, array="5-8"))
    await counter.do("release", done.server_job)
    jobs = {job.index: job for job in counter.server.cluster.jobs.values()}
    for index in over:
        runs.start(counter.server.cluster, jobs[index], "(n1:ncpus=1)", synchronous=True)
    counter.server.skip(3600)
    assert {index for index, job in jobs.items() if job.finished} == set(over)
    again = OpenPBSTransferHarness(counter.server, tmp_path)
    state = await again.openpbs.read()
    names = {done.server_job.replace("[]", f"[{index}]") for index in over}
    assert names <= set(state.ended)
    assert not names & set(state.jobs)
    assert {name for name in state.ended if "[" in name} == names
    await again.openpbs.close()
