"""Tests against a real OpenPBS server, if $PBS_CONF_FILE points to its pbs.conf and the user is root.

No job is started. With $PBS_TEST_USER (a user with the right to submit, not root) a held job is submitted, an
estimate is written on it and read again, and the job is deleted.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from schedd.wire import WriteAttributes
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import RequestForbiddenError
from server_adapter.batch.requests import RunRequest
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.write_queue import AttributeWrite
from server_adapter.families import connector
from server_adapter.servers.openpbs.server import OpenPBSServer
from server_adapter.settings import load_settings
from tests.waits import WAIT_S

CONF = Path(os.environ.get("PBS_CONF_FILE", "/nonexistent"))
HERE = CONF.is_file() and os.geteuid() == 0 and shutil.which("qstat") is not None
USER = os.environ.get("PBS_TEST_USER", "")
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not HERE, reason="no OpenPBS here: $PBS_CONF_FILE, its client commands, root"),
]


def server(directory: Path, mode: str, auth: str = "auto") -> OpenPBSServer:
    lines = (line.partition("=") for line in CONF.read_text(encoding="utf-8").splitlines())
    host = {key.strip(): value.strip() for key, _, value in lines}["PBS_SERVER"]
    values = {
        "mode": mode,
        "server.family": "openpbs",
        "server.host": host,
        "server.auth": auth,
        "server.plan_by": "vnode",  # as pbsnodes -av shows them
        "state_dir": directory,
    }
    made = connector(load_settings(None, values))(AdaptiveRateLimiter(200))
    assert isinstance(made, OpenPBSServer)
    return made


def run_command(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True).stdout


@pytest.mark.parametrize("auth", ["auto", "privileged"])
async def test_the_state_equals_the_output_of_the_clients(tmp_path: Path, auth: str) -> None:
    found = server(tmp_path, "shadow", auth)
    state = await found.read()
    shown = {line for line in run_command("pbsnodes", "-av").splitlines() if line and not line[0].isspace()}
    assert state.nodes.keys() == shown
    assert state.server.version
    listed = {
        line.split(": ")[1] for line in run_command("qstat", "-f").splitlines() if line.startswith("Job Id: ")
    }
    after = (await found.read()).jobs  # a job may end in between
    assert {job for job in state.jobs if job in after and "[" not in job} <= listed
    await found.close()


async def test_shadow_mode_lets_no_run_out(tmp_path: Path) -> None:
    found = server(tmp_path, "shadow")
    with pytest.raises(RequestForbiddenError):
        async with found.link.borrow() as connection:
            await connection.request(RunRequest(code=RequestCode.ASYNC_RUN_JOB_ACK, job="1"))
    await found.close()


@pytest.mark.skipif(not USER, reason="$PBS_TEST_USER names nobody who may submit")
async def test_an_estimate_is_written_read_again_and_removed(tmp_path: Path) -> None:
    submit = ("qsub", "-h", "-l", "select=2:ncpus=1", "--", "/bin/true")
    job = run_command("runuser", "-u", USER, "--", *submit).strip()
    found = server(tmp_path, "adviser")
    try:
        state = await found.read()
        assert state.jobs[job].holds == "u"
        assert state.jobs[job].resources["schedselect"].startswith("2:")
        node = next(iter(state.nodes))
        attribute_write = WriteAttributes(
            id="d1",
            cause="",
            time=1,
            job_id=job,
            planned_start=2_000_000_000,
            planned_end=2_000_000_060,
            planned_nodes=(node,),
            text="",
        )
        assert await found.write(AttributeWrite(attribute_write, comment_free=True))
        state = await found.read()
        writing = state.writings[job]
        assert (writing.planned_start, writing.planned_nodes, writing.comment) == (2_000_000_000, node, "")
        assert await found.clean(job, writing)
        assert job not in (await found.read()).writings
    finally:
        await found.close()
        run_command("qdel", job)
