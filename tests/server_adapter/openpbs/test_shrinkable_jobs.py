"""Jobs that leave their walltime to the scheduler, at the emulated server: they get one, and end by it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from schedd.wire import Run, ShareFacts
from server_adapter.batch.codes import RequestCode
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.emulator import EmulatedOpenPBS, JobState, NodeSpec
from server_adapter.families import connector
from server_adapter.servers.decided_walltimes import WALLTIMES_FILE, DecidedWalltimes
from server_adapter.settings import load_settings
from tests.server_adapter.openpbs.site import QUEUED, Site, start

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def scheduler(directory: Path) -> AsyncIterator[tuple[EmulatedOpenPBS, Any]]:
    async with EmulatedOpenPBS([NodeSpec("n1", 4)], time_scale=0) as server:
        server.cluster.attributes |= {"scheduling": "True"}
        server.cluster.attributes.pop("resources_default.walltime", None)
        settings = load_settings(None, site_settings(server, directory))
        adapter = connector(settings)(AdaptiveRateLimiter(200))
        try:
            await adapter.become_scheduler(lambda _: None)
            yield server, adapter
        finally:
            await adapter.close()


def site_settings(server: EmulatedOpenPBS, directory: Path) -> dict[str, Any]:
    host, port = server.address
    return {
        "server.family": "openpbs",
        "server.host": host,
        "server.port": port,
        "server.auth": "none",
        "mode": "scheduler",
        "state_dir": directory,
    }


def decision(job: str, version: str, walltime: int | None) -> Run:
    shares = (ShareFacts("n1", 1),)
    return Run(
        id="1",
        cause="",
        time=0,
        job_id=job,
        shares=shares,
        version=version,
        expires=1 << 40,
        walltime=walltime,
    )


@pytest.mark.parametrize(
    ("lengths", "given", "ends"),
    [
        ({"min_walltime": "5", "max_walltime": "10"}, 10, 10),
        ({"min_walltime": "5", "max_walltime": "10", "walltime": "7"}, 10, 10),
        ({"min_walltime": "5"}, None, 1000),
        ({"walltime": "20"}, None, 20),
        ({"walltime": "20"}, 10, 10),  # scaled to faster nodes
        ({"walltime": "20"}, 40, 40),  # to slower ones
        ({}, None, 1000),
    ],
    ids=str,
)
async def test_a_job_ends_by_the_walltime_of_its_decision(
    tmp_path: Path, lengths: dict[str, str], given: int | None, ends: int
) -> None:
    async with scheduler(tmp_path) as (server, adapter):
        job = server.submit(resources={"select": "1:ncpus=1", **lengths}, runtime=1000)
        state = await adapter.read()
        outcome = await adapter.run(decision(job, state.jobs[job].version, given), lambda: None)
        assert outcome.accepted, outcome
        if given is not None:
            assert server.job(job).resources["walltime"] == f"00:00:{given}"
        server.skip(ends - 1)
        assert server.job(job).state is JobState.RUNNING
        server.skip(60)  # its node daemon looks at times now and then
        assert server.job(job).finished
        assert (server.job(job).exit_status == 0) is (ends == 1000)


async def test_a_job_with_a_refused_walltime_does_not_run(tmp_path: Path) -> None:
    values = QUEUED | {"Resource_List.min_walltime": "5", "Resource_List.max_walltime": "10"}
    site = Site(jobs={"1.s": values}, refuse={RequestCode.MODIFY_JOB: 15003})
    async with site.peer.listening():
        outcome = await start(site, tmp_path, ShareFacts("n1", 4, 2 << 20), walltime=10)
    assert outcome[:3] == (False, 15003, "its walltime could not be set: no")
    assert site.runs() == []


async def test_a_walltime_that_a_run_before_a_restart_has_set_is_replaced(tmp_path: Path) -> None:
    async with scheduler(tmp_path) as (server, adapter):
        job = server.submit(resources={"select": "1:ncpus=1", "walltime": "10"}, runtime=1000)
        DecidedWalltimes(tmp_path / WALLTIMES_FILE).note(job, 20, 10)
        settings = load_settings(None, site_settings(server, tmp_path))
        await adapter.close()
        restarted = connector(settings)(AdaptiveRateLimiter(200))
        try:
            await restarted.become_scheduler(lambda _: None)
            await restarted.restore_walltimes(await restarted.read())
            assert server.job(job).resources["walltime"] == "00:00:20"
        finally:
            await restarted.close()
