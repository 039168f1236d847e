"""Preemption over the wire on emulated servers whose nodes do not answer in time."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from schedd.wire import Preempt, PreemptionDone
from server_adapter.bridge.preemptions import PreemptionExecutor
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.emulator import EmulatedOpenPBS, EmulatedServer, NodeSpec, lifecycle
from server_adapter.emulator.jobs import JobState
from server_adapter.emulator.openpbs import runs
from server_adapter.families import connector
from server_adapter.servers.preemption_requests import PreemptionRequests
from server_adapter.settings import load_settings
from tests.server_adapter.bridge.test_preemptions import Holds
from tests.server_adapter.openpbs.site import Site
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio


def connect(family: str, port: int, directory: Path) -> Any:
    values = {
        "mode": "scheduler",
        "state_dir": directory,
        "server.family": family,
        "server.port": port,
        "server.auth": "none",
    }
    return connector(load_settings(None, values))(AdaptiveRateLimiter(1_000))


async def preempt(server: Any, job: str, started: int, method: Any, sleep: Any) -> PreemptionDone:
    """Execute one preemption with a clock that `sleep` moves by its seconds."""
    now = [float(started)]
    events: list[PreemptionDone] = []

    async def record(event: PreemptionDone) -> None:
        events.append(event)

    async def wait(seconds: float) -> None:
        now[0] += seconds
        sleep(seconds)
        await asyncio.sleep(0)

    delivery: Any = SimpleNamespace(ids=iter(["e1"]), enqueue=record)
    executor = PreemptionExecutor(
        server.run_control, delivery, str, lambda: None, lambda: 0, Holds(), lambda: now[0], wait
    )
    executor.begin(
        Preempt(
            id="d1",
            cause="e",
            time=started,
            job_id=job,
            started=started,
            method=method,
            preemptor="9",
            expires=started + 60,
        )
    )
    async with asyncio.timeout(WAIT_S):
        while not events:
            await asyncio.sleep(0.001)
    await executor.close()
    return events[0]


@pytest.mark.parametrize(("rerun_time", "done"), [(30, True), (90, False)])
async def test_rerun_that_outlasts_the_servers_timeout_is_followed(
    tmp_path: Path, rerun_time: int, done: bool
) -> None:
    emulated = EmulatedOpenPBS([NodeSpec("h4", 4, memory=8 << 20)], time_scale=0)
    emulated.cluster.attributes |= {"scheduling": "True"}
    async with emulated:
        job = emulated.job(emulated.submit("ann", resources={"select": "1:ncpus=2:mem=1gb"}, runtime=3_000))
        runs.start(emulated.cluster, job, "(h4:ncpus=2:mem=1048576kb)", synchronous=True)
        emulated.faults.requeue_slowly(rerun_time)
        server = connect("openpbs", emulated.address[1], tmp_path)
        event = await preempt(server, job.id, int(emulated.cluster.now), "requeue", emulated.skip)
        await server.close()
        assert event.done is done
        assert job.state is (JobState.QUEUED if done else JobState.RUNNING)
        if not done:
            assert event.text == "the server has not ended the run in time"


async def test_torque_shows_a_run_that_it_is_ending_after_it_accepted_a_rerun(tmp_path: Path) -> None:
    async with EmulatedServer([NodeSpec("n1", 4)], time_scale=0) as emulated:
        job = emulated.job(emulated.submit("ann", resources={"nodes": "1:ppn=2"}, runtime=3_000))
        lifecycle.start(emulated.cluster, job, "n1:ppn=2", synchronous=True)
        emulated.faults.requeue_slowly(30)
        server = connect("torque", emulated.address[1], tmp_path)
        found = [await server.run_control.is_being_requeued(job.id)]
        await server.run_control.requeue_job(job.id)
        found.append(await server.run_control.is_being_requeued(job.id))
        emulated.skip(31)
        found += [
            await server.run_control.is_being_requeued(job.id),
            await server.run_control.is_being_requeued("99"),
        ]
        await server.close()
    assert found == [False, True, False, False]
    assert job.state is JobState.QUEUED


@pytest.mark.parametrize("owner", ["server", "queue"])
async def test_torque_with_a_kill_delay_is_not_told_to_rerun_a_job(tmp_path: Path, owner: str) -> None:
    async with EmulatedServer([NodeSpec("n1", 4)], time_scale=0) as emulated:
        cluster = emulated.cluster
        job = emulated.job(emulated.submit("ann", resources={"nodes": "1:ppn=2"}, runtime=3_000))
        lifecycle.start(cluster, job, "n1:ppn=2", synchronous=True)
        holder = cluster.attributes if owner == "server" else cluster.queue(job.queue).attributes
        holder["kill_delay"] = "5"
        server = connect("torque", emulated.address[1], tmp_path)
        event = await preempt(server, job.id, int(cluster.now), "requeue", emulated.skip)
        emulated.skip(60)
        assert (event.done, event.outage) == (False, True)
        assert "kill_delay is 5 s" in event.text
        assert job.state is JobState.RUNNING
        # The emulated server loses it like a real one.
        await PreemptionRequests.requeue_job(server.run_control, job.id)
        emulated.skip(60)
        await server.close()
    assert (job.state, job.exit_status) == (JobState.COMPLETE, 0)


@pytest.mark.parametrize(("nodes", "sent"), [("n1:ppn=2", True), ("n1:ppn=2+n2:ppn=2", False)])
async def test_torque_sends_no_signal_to_a_job_on_several_nodes(
    tmp_path: Path, nodes: str, sent: bool
) -> None:
    async with EmulatedServer([NodeSpec("n1", 4), NodeSpec("n2", 4)], time_scale=0) as emulated:
        job = emulated.job(emulated.submit("ann", resources={"nodes": nodes}, runtime=3_000))
        lifecycle.start(emulated.cluster, job, nodes, synchronous=True)
        server = connect("torque", emulated.address[1], tmp_path)
        assert await server.run_control.signal_job(job.id, "URG") is sent
        emulated.skip(60)
        assert job.state is JobState.RUNNING
        # The emulated server ends a job on several nodes like a real one.
        await PreemptionRequests.signal_job(server.run_control, job.id, "URG")
        emulated.skip(60)
        await server.close()
    assert job.state is (JobState.RUNNING if sent else JobState.COMPLETE)


@pytest.mark.parametrize("code", [15070, 5])
async def test_suspension_that_a_node_did_not_answer_is_requested_again(tmp_path: Path, code: int) -> None:
    started = 1_700_000_000
    site = Site()
    site.jobs["7.s"] = {
        "job_state": "R", "queue": "workq", "stime": str(started), "exec_vnode": "(n1:ncpus=2)",
        "Job_Owner": "ann@h", "ctime": "0", "qtime": "0", "substate": "42",
    }  # fmt: skip
    site.refuse[18] = code
    async with site.peer.listening():
        server = site.make_server(tmp_path)

        def answer_again(seconds: float) -> None:
            site.refuse.clear()

        event = await preempt(server, "7.s", started, "suspend", answer_again)
        await server.close()
    assert event.done
