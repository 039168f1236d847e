"""Longer walltimes of running jobs over the wire, on emulated servers of both families."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from schedd.wire import ExtendRun, ExtensionDone
from server_adapter.batch.errors import ServerUnreachableError
from server_adapter.bridge.journal import Journal
from server_adapter.bridge.run_extensions import RunExtender
from server_adapter.emulator import EmulatedOpenPBS, EmulatedServer, NodeSpec, lifecycle
from server_adapter.emulator.jobs import JobState
from server_adapter.emulator.openpbs import runs
from tests.server_adapter.test_preemption_requests import connect
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio


class ExtenderHarness:
    """An extender of a server with a clock that a wait moves."""

    def __init__(self, server: Any, now: int, directory: Path) -> None:
        self.now = float(now)
        self.barred = ""
        self.events: list[ExtensionDone] = []
        self.directory = directory
        self.begin(server)

    def restart(self, server: Any) -> None:
        """Begin again with what the journal has."""
        self.journal.close()
        self.begin(server)

    def begin(self, server: Any) -> None:
        self.journal = Journal(self.directory / "state", lambda: self.now)
        delivery: Any = SimpleNamespace(ids=(f"e:{i}" for i in count(1)), enqueue=self._record)
        self.extender = RunExtender(
            server,
            delivery,
            lambda: self.barred,
            lambda: None,
            lambda: 3,
            self.journal,
            lambda: self.now,
            self._sleep,
        )

    async def _record(self, event: ExtensionDone) -> None:
        self.events.append(event)

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    async def extend(self, job: str, started: int, **more: Any) -> ExtensionDone:
        given = {"before": 1_000, "walltime": 1_400, "expires": started + 960, "term": 3, **more}
        before = len(self.events)
        self.extender.begin(ExtendRun(id="d1", cause="e", time=started, job_id=job, started=started, **given))
        async with asyncio.timeout(WAIT_S):
            while len(self.events) == before:
                await asyncio.sleep(0.001)
        return self.events[-1]


async def with_run(
    family: str, directory: Path, check: Callable[[ExtenderHarness, Any, Any, int], Awaitable[None]]
) -> None:
    """Start a job with a walltime of 1,000 s whose program needs 1,300 s, and call `check` after 900 s."""
    emulated: Any
    if family == "openpbs":
        emulated = EmulatedOpenPBS([NodeSpec("h4", 4, memory=8 << 20)], time_scale=0)
        wanted = {"select": "1:ncpus=2:mem=1gb", "walltime": "1000"}
    else:
        emulated = EmulatedServer([NodeSpec("n1", 4)], time_scale=0)
        wanted = {"nodes": "1:ppn=2", "walltime": "1000"}
    async with emulated:
        job = emulated.job(emulated.submit("ann", resources=wanted, runtime=1_300))
        if family == "openpbs":
            runs.start(emulated.cluster, job, "(h4:ncpus=2:mem=1048576kb)", synchronous=True)
        else:
            lifecycle.start(emulated.cluster, job, "n1:ppn=2", synchronous=True)
        started = int(emulated.cluster.now)
        emulated.skip(900)
        server = connect(family, emulated.address[1], directory)
        harness = ExtenderHarness(server.run_control, started + 900, directory)
        await check(harness, emulated, job, started)
        await harness.extender.close()
        harness.journal.close()
        await server.close()


@pytest.mark.parametrize("family", ["torque", "openpbs"])
async def test_an_extended_job_runs_past_its_first_walltime(tmp_path: Path, family: str) -> None:
    async def check(harness: ExtenderHarness, emulated: Any, job: Any, started: int) -> None:
        event = await harness.extend(job.id, started)
        assert (event.done, event.text) == (True, "it was extended")
        assert job.resources["walltime"] == "00:23:20"
        again = await harness.extend(job.id, started)  # delivered again
        assert again.done
        emulated.skip(350)
        assert job.state is JobState.RUNNING
        emulated.skip(60)
        assert (job.state, job.exit_status) == (JobState.COMPLETE, 0)

    await with_run(family, tmp_path, check)


@pytest.mark.parametrize("family", ["torque", "openpbs"])
async def test_a_job_that_is_not_extended_is_killed_at_its_walltime(tmp_path: Path, family: str) -> None:
    async def check(harness: ExtenderHarness, emulated: Any, job: Any, started: int) -> None:
        harness.barred = "the adapter is in shadow mode"
        event = await harness.extend(job.id, started)
        assert (event.done, event.outage, event.text) == (False, True, "the adapter is in shadow mode")
        emulated.skip(160)
        assert job.finished
        assert job.exit_status != 0

    await with_run(family, tmp_path, check)


@pytest.mark.parametrize(
    ("more", "text", "outage"),
    [
        ({"before": 900}, "its walltime is 1000 s, and was 900 s at the decision", False),
        ({"expires": 0}, "the decision expired", True),
        ({"term": 2}, "decided in term 2", True),
    ],
)
async def test_a_decision_that_does_not_hold_any_more_is_refused(
    tmp_path: Path, more: dict[str, Any], text: str, outage: bool
) -> None:
    async def check(harness: ExtenderHarness, _: Any, job: Any, started: int) -> None:
        event = await harness.extend(job.id, started, **more)
        assert (event.done, event.code, event.outage) == (False, 0, outage)
        assert text in event.text
        other = await harness.extend(job.id, started, **more)  # its outcome is known
        assert other.text == event.text
        assert job.resources["walltime"] == "00:16:40"

    await with_run("torque", tmp_path, check)


async def test_another_run_of_the_job_is_not_extended(tmp_path: Path) -> None:
    async def check(harness: ExtenderHarness, _: Any, job: Any, started: int) -> None:
        event = await harness.extend(job.id, started - 500)
        assert (event.done, event.outage, event.text) == (False, False, "the run has ended")
        assert job.resources["walltime"] == "00:16:40"

    await with_run("torque", tmp_path, check)


async def test_a_decision_is_requested_by_one_life_of_the_adapter_only(tmp_path: Path) -> None:
    async def check(harness: ExtenderHarness, emulated: Any, job: Any, started: int) -> None:
        server = harness.extender._server
        assert (await harness.extend(job.id, started)).done
        harness.restart(server)
        assert (await harness.extend(job.id, started)).done  # the server has it
        job.resources["walltime"] = "00:16:40"
        job.touch(emulated.cluster.now)
        harness.restart(server)
        event = await harness.extend(job.id, started)
        assert (event.done, event.outage) == (False, True)
        assert "requested before the adapter was started" in event.text
        assert job.resources["walltime"] == "00:16:40"

    await with_run("torque", tmp_path, check)


async def test_a_lost_answer_is_followed_by_a_look_at_the_job(tmp_path: Path) -> None:
    async def check(harness: ExtenderHarness, _: Any, job: Any, started: int) -> None:
        server, times = harness.extender._server, []

        async def set_walltime(name: str, walltime: int) -> None:
            times.append(walltime)
            await server.set_walltime(name, walltime)
            raise ServerUnreachableError("no answer")

        lossy: Any = SimpleNamespace(
            find_job=server.find_job, read_walltime=server.read_walltime, set_walltime=set_walltime
        )
        harness.restart(lossy)
        event = await harness.extend(job.id, started)
        assert (event.done, times) == (True, [1_400])

    await with_run("openpbs", tmp_path, check)


async def test_a_server_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    async def check(harness: ExtenderHarness, _: Any, job: Any, started: int) -> None:
        async def find_job(name: str) -> None:
            raise ServerUnreachableError(f"no answer about {name}")

        harness.restart(SimpleNamespace(find_job=find_job))
        event = await harness.extend(job.id, started)
        assert (event.done, event.outage, event.text) == (False, True, f"no answer about {job.id}")

    await with_run("torque", tmp_path, check)


async def test_a_shorter_walltime_ends_a_running_job_and_a_suspension_does_not_count(tmp_path: Path) -> None:
    async with EmulatedServer([NodeSpec("n1", 4)], time_scale=0) as emulated:
        cluster = emulated.cluster
        wanted = {"nodes": "1:ppn=2", "walltime": "1000"}
        job = emulated.job(emulated.submit("ann", resources=wanted, runtime=5_000))
        lifecycle.start(cluster, job, "n1:ppn=2", synchronous=True)
        emulated.skip(100)
        server = connect("torque", emulated.address[1], tmp_path)
        await server.run_control.suspend_job(job.id)
        emulated.skip(500)
        await server.run_control.resume_job(job.id)
        await server.run_control.set_walltime(job.id, 600)
        await server.close()
        emulated.skip(480)
        assert job.state is JobState.RUNNING
        emulated.skip(90)
        assert job.finished
