"""Suspended jobs of the emulated OpenPBS, compared with recordings of a real one; and their resumption."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.replies import Status
from server_adapter.batch.requests import SignalRequest
from server_adapter.bridge.adapter import Adapter
from server_adapter.bridge.delivery import ANOTHER_ADAPTER
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.emulator import EmulatedOpenPBS, NodeSpec
from server_adapter.emulator.jobs import Job
from server_adapter.emulator.openpbs import runs, suspension
from server_adapter.emulator.principal import Principal
from server_adapter.families import connector
from server_adapter.openpbs.codes import OpenPBSCommand
from server_adapter.openpbs.frames import decode_request
from server_adapter.openpbs.replies import decode_reply
from server_adapter.openpbs.requests import DeleteJobsRequest
from server_adapter.servers.openpbs.server import OpenPBSServer
from server_adapter.settings import load_settings
from tests.server_adapter.bridge.fake_daemon import FakeDaemon
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio
ROWS = [json.loads(line) for line in Path(__file__).with_name("suspended.jsonl").read_text().splitlines()]
WHO = {
    "root": Principal("root", "opbs", False, True),
    "user": Principal("pbsu1", "opbs"),
    "sched": Principal("root", "opbs", True, True),
}
ROOT, SCHEDULER = WHO["root"], WHO["sched"]


def emulated(*jobs: int) -> EmulatedOpenPBS:
    server = EmulatedOpenPBS([NodeSpec("h4", 4, memory=8 << 20)], server="opbs", time_scale=0)
    server.cluster.attributes |= {"job_history_enable": "True", "scheduling": "True"}
    for number in jobs:
        server.cluster.next_number = number
        server.submit("pbsu1", resources={"select": "1:ncpus=2:mem=1gb"}, runtime=300)
    return server


def jobs_by_state(body: bytes) -> dict[str, Any]:
    """Return the attributes of a job or vnode that depend on its suspension, not on the timing of its mom."""
    status = decode_reply(body).payload
    assert isinstance(status, Status)
    values = {entry.key: entry.value for entry in status.objects[0].attributes}
    found: dict[str, Any] = {
        key: values[key] for key in ("job_state", "substate", "exec_vnode", "run_count") if key in values
    }
    if found.get("substate") == "41":
        found["substate"] = "42"
    if "job_state" not in found:
        found = {key: values[f"resources_assigned.{key}"] for key in ("ncpus", "mem")}
        found |= {"state": values["state"], "busy": bool(values.get("jobs"))}
    return found


async def test_each_answer_to_suspend_and_resume_equals_the_recorded_answer() -> None:
    server = emulated(55542, 55543, 55544)
    compared = 0
    for row in ROWS:
        frame = decode_request(row["request"].encode("latin-1"))
        theirs = row["reply"].encode("latin-1")
        if frame.request.code is RequestCode.REGISTER_SCHEDULER:
            continue
        if isinstance(frame.request, DeleteJobsRequest):
            break  # its mom had yet to end it when it was looked at
        (ours,) = server.handlers.answer(frame.request, WHO[row["as"]])
        if frame.request.code in (RequestCode.STATUS_JOB, RequestCode.STATUS_NODE):
            assert jobs_by_state(ours) == jobs_by_state(theirs), row["note"]
        else:
            assert ours == theirs, row["request"]
        compared += 1
    assert compared == 39


def state(job: Job) -> str:
    return job.state.name


def start(server: EmulatedOpenPBS, name: str = "7.opbs") -> None:
    runs.start(server.cluster, server.cluster.jobs[name], "(h4:ncpus=2:mem=1048576kb)", synchronous=True)


async def test_a_suspended_program_pauses_and_continues_for_its_remaining_time() -> None:
    server = emulated(7)
    start(server)
    job = server.cluster.jobs["7.opbs"]
    server.skip(100)
    suspension.signal(server.cluster, job, "suspend", ROOT)
    server.skip(1000)
    assert state(job) == "SUSPENDED"
    suspension.signal(server.cluster, job, "resume", SCHEDULER)
    server.skip(190)
    assert state(job) == "RUNNING"
    server.skip(20)
    assert (state(job), job.exit_status) == ("COMPLETE", 0)


async def test_a_suspended_job_can_be_deleted_and_leaves_nothing() -> None:
    server = emulated(7)
    start(server)
    job = server.cluster.jobs["7.opbs"]
    suspension.signal(server.cluster, job, "suspend", ROOT)
    assert server.handlers.answer(DeleteJobsRequest(jobs=(job.id,)), ROOT)[0] != b""
    server.skip(60)
    assert state(job) == "COMPLETE"
    assert server.cluster.vnode("h4").charged == {}


async def test_the_scheduler_gets_a_managers_resume_and_resumes_when_resources_are_free(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The adapter against this server: while another job has the vnode, the suspended job does not resume."""
    server = emulated(7, 8)
    async with server:
        host, port = server.address
        values = {
            "mode": "scheduler",
            "state_dir": tmp_path,
            "server.family": "openpbs",
            "server.host": host,
            "server.port": port,
            "server.auth": "none",
        }
        adapter = connector(load_settings(None, values))(AdaptiveRateLimiter(1000.0))
        assert isinstance(adapter, OpenPBSServer)
        await adapter.become_scheduler(lambda _: None)
        first, second = (server.cluster.jobs[name] for name in ("7.opbs", "8.opbs"))
        for job in (first, second):
            job.resources["select"] = "1:ncpus=4"
        runs.start(server.cluster, first, "(h4:ncpus=4)", synchronous=True)
        suspension.signal(server.cluster, first, "suspend", ROOT)
        await adapter.read()
        await adapter.resume_jobs()
        assert state(first) == "SUSPENDED"  # no explicit resume
        runs.start(server.cluster, second, "(h4:ncpus=4)", synchronous=True)
        suspension.signal(server.cluster, first, "resume", ROOT)
        scheduler = server.cluster.schedulers["default"]
        assert OpenPBSCommand.NEW in (scheduler.command, *server.commands)
        await adapter.read()
        await adapter.resume_jobs()
        assert state(first) == "SUSPENDED"
        assert "7.opbs stays suspended: h4 has too little ncpus left" in caplog.text
        server.skip(400)
        assert state(second) == "COMPLETE"
        await adapter.read()
        await adapter.resume_jobs()
        assert state(first) == "RUNNING"
        assert server.cluster.vnode("h4").assigned()["ncpus"] == 4
        await adapter.close()


async def test_an_adapter_resumes_no_job_while_another_one_serves_the_cluster(tmp_path: Path) -> None:
    """It waits for its place: the other one may be its predecessor, or work on."""
    server, daemon = emulated(7), FakeDaemon(plan=False)
    daemon.other_adapter = True
    async with server:
        host, port = server.address
        values = {
            "mode": "scheduler",
            "state_dir": tmp_path,
            "server.family": "openpbs",
            "server.host": host,
            "server.port": port,
            "server.auth": "none",
            "daemon.url": "http://daemon",
            "poll.interval": 0.1,
            "poll.gap": 0.02,
        }
        job = server.cluster.jobs["7.opbs"]
        start(server)
        suspension.signal(server.cluster, job, "suspend", ROOT)
        suspension.signal(server.cluster, job, "resume", ROOT)  # it waits for the scheduler's resume
        settings = load_settings(None, values)
        adapter = Adapter(settings, connector(settings), transport=httpx2.ASGITransport(app=daemon.app))
        task = asyncio.create_task(adapter.run())
        try:
            async with asyncio.timeout(WAIT_S):
                while adapter.cycles < 5:
                    await asyncio.sleep(0.01)
                assert state(job) == "SUSPENDED"
                assert adapter.delivery.place_obstacle == ANOTHER_ADAPTER
                daemon.other_adapter = False
                while state(job) != "RUNNING":
                    await asyncio.sleep(0.01)
                assert adapter.delivery.place_obstacle == ""
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_admin_suspensions_of_vnodes_are_refused() -> None:
    server = emulated(7)
    start(server)
    request = SignalRequest(job="7.opbs", signal="admin-suspend")
    assert b"15013" in server.handlers.answer(request, ROOT)[0]
    assert state(server.cluster.jobs["7.opbs"]) == "RUNNING"
