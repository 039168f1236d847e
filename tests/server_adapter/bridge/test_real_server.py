"""Tests against a real pbs_server, if $PBS_SERVER_HOME and the client commands exist.

No job is started. With $PBS_TEST_USER (a user with the right to submit, not root) a held job is submitted,
written on, and deleted again.
"""

import asyncio
import os
import shutil
import subprocess
import time

import pytest

from schedd.wire import WriteAttributes
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import RequestForbiddenError
from server_adapter.batch.requests import RunRequest
from server_adapter.batch.sockets import Address
from server_adapter.families import torque_credential
from server_adapter.servers.torque.attribute_query import AttributeQuery
from server_adapter.servers.torque.facts import JOB_ATTRIBUTES
from server_adapter.servers.torque.link import PERMITTED, TorqueLink
from server_adapter.servers.torque.reader import TorqueReader
from server_adapter.servers.torque.requests import WritableAttributes, plan_request
from server_adapter.settings import PbsServerSettings
from tests.waits import WAIT_S

COMMANDS = ("qstat", "pbsnodes", "qsub", "qdel")
HERE = "PBS_SERVER_HOME" in os.environ and all(shutil.which(command) for command in COMMANDS)
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not HERE, reason="no TORQUE here: $PBS_SERVER_HOME and its client commands"),
]


def link(mode: str) -> TorqueLink:
    return TorqueLink(Address(), torque_credential(PbsServerSettings()), permitted=PERMITTED[mode])


def run_command(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True).stdout


async def test_the_state_equals_the_output_of_the_clients() -> None:
    server = link("shadow")
    state = await TorqueReader(server).read()
    await server.close()
    nodes = {line for line in run_command("pbsnodes", "-a").splitlines() if line and not line[0].isspace()}
    assert state.nodes.keys() == nodes
    assert all(node.cpus > 0 for node in state.nodes.values())
    jobs = {
        line.split(": ")[1] for line in run_command("qstat", "-f").splitlines() if line.startswith("Job Id: ")
    }
    assert state.jobs.keys() <= jobs
    assert state.server.version
    assert state.queues


async def test_a_shadow_cannot_start_a_job() -> None:
    server = link("shadow")
    async with server.borrow() as connection:
        with pytest.raises(RequestForbiddenError):
            await connection.request(
                RunRequest(code=RequestCode.RUN_JOB, job="0.nowhere", destination="node1:ppn=1")
            )
    await server.close()


@pytest.mark.skipif("PBS_TEST_USER" not in os.environ, reason="$PBS_TEST_USER names who may submit")
async def test_a_planned_start_is_shown_by_qstat() -> None:
    user = os.environ["PBS_TEST_USER"]
    submitted = subprocess.run(
        ["runuser", "-u", user, "--", "qsub", "-h", "-l", "nodes=1,walltime=60", "-"],
        input="sleep 1\n",
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
        cwd="/",
    )
    job = submitted.stdout.strip()
    server = link("adviser")
    try:
        start = int(time.time()) + 3600
        tell = WriteAttributes(
            id="d1",
            cause="",
            time=0,
            job_id=job,
            planned_start=start,
            planned_end=start + 60,
            planned_nodes=("node1",),
            text="",
        )
        request = plan_request(tell, WritableAttributes(start_time=os.geteuid() == 0))
        assert request is not None
        async with server.borrow() as connection:
            await connection.request(request)
            [found] = await AttributeQuery(RequestCode.STATUS_JOB, JOB_ATTRIBUTES).fetch(connection, job)
        assert found.values["comment"].startswith("schedd: planned start ")
        shown = await asyncio.to_thread(run_command, "qstat", "-f", job)
        assert "schedd: planned start" in shown.replace("\n\t", "")
    finally:
        await server.close()
        run_command("qdel", job)
