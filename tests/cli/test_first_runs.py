"""A large demo's machine is busy when its adapter comes."""

import pytest

from schedd.cli.demo.first_runs import start_first_jobs
from schedd.cli.demo.steady import SteadyWorkload, requested_cores
from server_adapter.emulator import OPENPBS, emulate

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("version", ["6.1", OPENPBS.name])
async def test_jobs_that_come_at_once_fill_the_machine_in_their_order(version: str) -> None:
    workload = SteadyWorkload(100, 16, waiting=20, seed=1)
    async with emulate(workload.nodes, version=version, waits=True, time_scale=0) as trial:
        trial.feed.arrivals = workload.arrivals(lambda: (20, 0.0), lambda: 0.0)
        trial.begin()
        trial.server.catch_up()
        started = len(start_first_jobs(trial.server))
        jobs = list(trial.server.cluster.jobs.values())
        assert [job.started is not None for job in jobs] == [True] * started + [False] * (len(jobs) - started)
        free = workload.cpus - sum(requested_cores(job.order) for job in jobs[:started])
        assert 0 <= free < requested_cores(jobs[started].order)
        assert started < len(jobs)
