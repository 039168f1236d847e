"""Preemptions on emulated servers of both families, with the real adapter and daemon, each a process."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from server_adapter.emulator import NodeSpec, lifecycle
from tests.server_adapter.bridge.processes import MEMORY, ProcessHarness
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

SETTINGS = """
[clusters.main.site.preemption]
preemptors = {queues = ["urgent"]}
targets = {queues = ["batch"]}
methods = ["checkpoint", "requeue", "suspend"]
min_run = 0
release_time = 5
"""


@pytest.mark.parametrize("family", ["6.1", "openpbs"])
async def test_urgent_jobs_suspend_checkpoint_and_requeue_their_victims(tmp_path: Path, family: str) -> None:
    house = ProcessHarness(tmp_path, family, nodes=[NodeSpec("node1", 12, (), MEMORY)], interval=0.3)

    async def job(name: str, when: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_S):
            while True:
                with suppress(HTTPError):  # the job is not known yet
                    found: dict[str, Any] = await house.request(f"/jobs/{name}")
                    if when(found):
                        return found
                await asyncio.sleep(0.1)

    def submit(queue: str, *, rerunnable: bool = True, checkpoint: str = "u") -> str:
        wanted = {"select": "1:ncpus=4:mem=1mb"} if family == "openpbs" else {"nodes": "1:ppn=4"}
        wanted |= {"walltime": "01:00:00" if queue == "urgent" else "04:00:00"}
        submitted: Any = house.server.submit(
            "ann",
            resources=wanted,
            queue=queue,
            runtime=600.0,
            rerunnable=rerunnable,
            extra={"Checkpoint": checkpoint},
        )
        return str(getattr(submitted, "id", submitted))

    async with house.server:
        cluster: Any = house.server.cluster
        cluster.attributes |= {"scheduling": "True"}
        batch = cluster.attributes.get("default_queue", "batch")
        cluster.queues["urgent"] = replace(
            cluster.queues[batch], name="urgent", attributes=dict(cluster.queues[batch].attributes)
        )
        settings = tmp_path / "schedd0.toml"
        settings.write_text(settings.read_text() + SETTINGS.replace("batch", batch))
        if family == "openpbs":
            cluster.schedulers["default"].attributes |= {"scheduling": "True", "preempt_order": "R"}
            cluster.attributes |= {"restrict_res_to_release_on_suspend": "ncpus"}
        house.configure()
        try:
            house.daemon.start()
            await house.ready()
            house.adapter.start()
            suspended = submit(batch, rerunnable=False)
            await job(suspended, lambda one: one["job_state"] == "R")
            saved = submit(batch, checkpoint="c=5")
            await job(saved, lambda one: one["job_state"] == "R")
            victim = submit(batch)
            await job(victim, lambda one: one["job_state"] == "R")

            # First jobs that lose nothing, then the job that has to begin again.
            urgent = [submit("urgent")]
            await job(urgent[0], lambda one: one["job_state"] == "R")
            paused = await job(suspended, lambda one: one["job_state"] == "S")
            assert f"it is suspended for job {urgent[0]} since" in paused["why"]
            urgent.append(submit("urgent"))
            await job(urgent[1], lambda one: one["job_state"] == "R")
            assert (await job(saved, lambda one: one["job_state"] == "Q"))["holds"] == ""
            urgent.append(submit("urgent"))
            await job(urgent[2], lambda one: one["job_state"] == "R")
            requeued = await job(victim, lambda one: one["job_state"] == "Q")
            assert "it was preempted at" in requeued["why"]
            assert requeued["planned_start"]
            if family == "openpbs":  # PreemptJobs would stop all starts until the victim has ended
                assert "sched_preempted" not in cluster.jobs[victim].attributes

            # The victims rest: none is preempted again.
            other = submit("urgent")
            waiting = await job(other, lambda one: one["planned_start"])
            assert waiting["job_state"] == "Q"
            assert (
                "preempts nothing; of the running jobs that may be preempted: 1 suspended" in waiting["why"]
            )

            lifecycle.delete(cluster, house.server.job(urgent[0]))
            await job(suspended, lambda one: one["job_state"] == "R")
            assert house.server.job(suspended).start_count == 1
        finally:
            house.adapter.kill()
            house.daemon.kill()
