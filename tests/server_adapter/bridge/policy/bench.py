"""A machine of eight nodes that one job holds as a whole: all others are planned behind it, so that the plan
shows what would be done.
"""

import asyncio
import contextlib
import time
import urllib.error
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import ManageRequest
from server_adapter.batch.sockets import Address
from server_adapter.emulator import EmulatedServer, NodeSpec
from server_adapter.torque import TorqueAnyPort, open_connection
from tests.server_adapter import admin_requests
from tests.server_adapter.bridge.processes import ProcessHarness
from tests.waits import WAIT_S

NODES = [
    NodeSpec(
        f"n{i}",
        4,
        (f"rack{(i + 1) // 2}", "old" if i > 6 else "new", *(("big",) if i % 2 else ())),
        gpus=2 if i == 6 else 0,
        gpu_product="Tesla V100-SXM2-32GB" if i == 6 else "",
        gres="scratch:10" if i == 4 else "",
    )
    for i in range(1, 9)
]
"""n1 and n2 in rack 1, n3 and n4 in rack 2, ...; odd ones big, n7 and n8 old; n6 has gpus, n4 scratch."""
WALL = 2000
"""The first job holds all nodes for this time; then the plan begins."""
SLACK = 5000
HOUR = 3600


def site(now: datetime) -> str:
    """Configuration in schedd.toml: a quota for one day, from an hour after the end of the first job."""
    quota = now + timedelta(seconds=WALL + HOUR)
    return f"""
        slack = {SLACK}
        priority_every = 1
        end_allowance = "0s"  # else the plan begins earlier than the first job ends, if that starts late
        [clusters.main.site.priority]
        wish = 1.0
        short = 1.0
        licences = 1.0
        deadline = 1.0
        waiting = 0.001
        fair_share = 100.0
        [clusters.main.site.fair_share]
        levels = ["user"]
        decay = 1.0
        [clusters.main.site.speeds]
        old = 2.5
        [[clusters.main.site.limits]]
        what = "cpus"
        who = "user"
        name = "cora"
        amount = 4
        [[clusters.main.site.limits]]
        what = "nodes"
        who = "user"
        name = "nora"
        amount = 2
        [[clusters.main.site.limits]]
        what = "walltime"
        who = "user"
        name = "walt"
        amount = 150
        [[clusters.main.site.limits]]
        who = "user"
        name = "quentin"
        amount = 1
        first = {quota.isoformat()}
        last = {(quota + timedelta(days=1)).isoformat()}
        [[clusters.main.site.limits]]
        what = "cpus"
        who = "account"
        name = "geo"
        amount = 4
        [[clusters.main.site.limits]]
        who = "account"
        amount = 3
        [clusters.main.site.licences.ansys]
        copies = 1
        [clusters.main.site.node_sets]
        sets = {{ a = ["rack1"], b = ["rack2"], c = ["rack3"], d = ["rack4"] }}
        wait = 500
        [clusters.main.site.classes.urgent]
        points = 1000
        queues = ["urgent"]
        breaks_promises = true
        [clusters.main.site.reservations.course]
        nodes = ["n8"]
        users = ["tina"]
        groups = ["crew"]
        accounts = ["course"]
        first = {(now - timedelta(hours=1)).isoformat()}
        last = {(now + timedelta(days=1)).isoformat()}
        """


QUEUES: Mapping[str, dict[str, str]] = {
    "stopped": {"started": "False"},
    "urgent": {},
    "slow": {"Priority": "0"},
    "brief": {"resources_default.walltime": "00:02:00"},
    "quick": {"Priority": "50"},
    "one": {"max_running": "1"},
    "each": {"max_user_run": "1"},
    "group": {"max_group_run": "1"},
    "named": {"max_run": "[u:PBS_GENERIC=1], [u:xena=2]"},
    "cpus": {"max_run_res.ncpus": "[o:PBS_ALL=4]"},
    "users": {"max_user_res.ncpus": "4"},
    "whole": {"resources_default.naccesspolicy": "singlejob"},
    "mapped": {"resources_default.neednodes": "old"},
    "featured": {"features_required": "rack3"},
}


@dataclass
class Bench:
    """The harness, and the time at which the plan begins."""

    house: ProcessHarness
    wall: str
    begin: int

    @property
    def server(self) -> EmulatedServer:
        return self.house.server

    def submit(self, user: str, nodes: str = "1:ppn=1", walltime: int = 100, **more: Any) -> str:
        wanted = {"nodes": nodes, "walltime": str(walltime), **more.pop("resources", {})}
        return self.server.submit(user, resources=wanted, **more)

    def set_attribute(self, job: str, name: str, value: str) -> None:
        """As by qsub -A, -W and the like, or by qalter."""
        found = self.server.job(job)
        found.attributes[name] = value
        found.revision += 1

    async def request(self, request: ManageRequest) -> None:
        """Say this to the server, as a client does."""
        async with await open_connection(Address(*self.server.address), TorqueAnyPort()) as connection:
            await connection.request(request)

    async def current_view(self, job: str, when: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the job's answer once the condition holds."""
        answer: dict[str, Any] = {}
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            with contextlib.suppress(urllib.error.HTTPError):  # not known to the daemon yet
                answer = await self.house.request(f"/jobs/{urllib.parse.quote(job)}")
                if when(answer):
                    return answer
            assert not self.house.adapter.ended, self.house.adapter.log.read_text()
            await asyncio.sleep(0.1)
        raise AssertionError(f"{job} was never so: {answer}")

    async def planned(self, job: str, at: int | None = None) -> dict[str, Any]:
        """Return the answer of a job once it has a planned start: ``at`` seconds after the plan's begin."""

        def is_so(one: dict[str, Any]) -> bool:
            start = one["planned_start"]
            return start is not None and at in (None, start - self.begin)

        return await self.current_view(job, is_so)

    async def start(self, *jobs: str, at: list[int]) -> None:
        """Wait until the jobs are planned at these times, in any assignment."""
        found: list[int] = []
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            found = [(await self.planned(job))["planned_start"] - self.begin for job in jobs]
            if sorted(found) == sorted(at):
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"planned at {found}, not at {at}")

    async def waits(self, job: str, for_what: str) -> str:
        answer = await self.current_view(job, lambda one: one["waiting_for"] == for_what)
        assert answer["planned_start"] is None
        why: str = answer["why"]
        return why

    async def clear(self) -> None:
        """Remove the jobs of a test before the next test."""
        left = [
            job.id for job in self.server.cluster.jobs.values() if not job.finished and job.id != self.wall
        ]
        async with await open_connection(Address(*self.server.address), TorqueAnyPort()) as connection:
            for job in left:
                with contextlib.suppress(ServerRefusedError):  # it was deleted with another
                    await connection.request(admin_requests.delete(job))
        while len((await self.house.request("/jobs"))["jobs"]) > 1:
            await asyncio.sleep(0.05)
