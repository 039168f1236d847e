"""Emulated servers of both families, the real adapter and the real daemon: wishes for the network, periods,
normalised walltimes, slices of gpus, nested fair share, and ranges of walltimes.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

import pytest

from server_adapter.emulator import JobState, NodeSpec
from server_adapter.emulator.jobs import JobOrder, JobOutcome
from tests.server_adapter.bridge.processes import MEMORY, ProcessHarness
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

CORES: Final = 8
NODES: Final = [
    *(NodeSpec(f"n{i}", CORES, (f"s{(i + 1) // 2}",), MEMORY) for i in (1, 2, 3, 4)),
    NodeSpec("n5", CORES, ("fast",), MEMORY, gres="mig_1g10gb:2"),
]
"""n1 and n2 at one switch, n3 and n4 at another; n5 is twice as fast, and has slices of a gpu."""
FIRST, LAST = 7200, 14400
"""Walltimes of the jobs that hold a node of each switch."""


def site(now: datetime, family: str) -> str:
    """Each feature has its table; properties of TORQUE are boolean resources in OpenPBS."""
    suffix = "=True" if family == "openpbs" else ""
    night = f"{(now - timedelta(hours=1)).isoformat()}/{(now + timedelta(hours=20)).isoformat()}"
    return f"""
        slack = 100000
        priority_every = 1
        end_allowance = "0s"
        [clusters.main.site.node_choice.levels]
        switch = {{ a = ["s1{suffix}"], b = ["s2{suffix}"] }}
        [clusters.main.site.speeds]
        n5 = 2.0
        [clusters.main.site.normalised_walltimes]
        speed = 1.0
        [clusters.main.site.priority]
        fair_share = 100.0
        [clusters.main.site.periods.sets.night]
        windows = ["{night} FREQ=DAILY UTC"]
        tables = {{ priority = {{ wish = 10.0, fair_share = 1.0 }} }}
        [clusters.main.site.fair_share]
        levels = ["account", "user"]
        shares = {{ science = 60, teaching = 40, physics = 2, biology = 1, theory = 1, "theory/ann" = 3 }}
        parents = {{ physics = "science", biology = "science", theory = "physics", course = "teaching" }}
        """


@dataclass(slots=True)
class Server:
    """The harness, and submissions in the dialect of its server."""

    house: ProcessHarness
    names: list[str] = field(default_factory=list)

    def submit(
        self, *chunk: str, count: int = 1, node: str = "", walltime: str = "01:00:00", **more: Any
    ) -> str:
        pbs = self.house.family == "openpbs"
        extra, wanted = {"Account_Name": more.pop("account", "theory")}, {"walltime": walltime}
        cores = more.pop("cores", CORES)
        if pbs:
            place = [f"host={node}"] if node else []
            wanted["select"] = ":".join([str(count), f"ncpus={cores}", *chunk, *place])
            wanted["place"] = "scatter"
        else:
            wanted["nodes"] = f"{node or count}:ppn={cores}"
            wanted |= {"gres": chunk[0].replace("=", ":")} if chunk else {}
        wishes = more.pop("wishes", {})  # resources of OpenPBS, extensions of TORQUE
        if pbs:
            wanted |= wishes
        elif wishes:
            extra["x"] = ";".join(f"{name}:{text}" for name, text in wishes.items())
        order = JobOrder(
            user=more.pop("user", "ann"),
            resources=wanted,
            priority=more.pop("priority", 0),
            extra=extra,
            outcome=JobOutcome(600.0),
        )
        entered: Any = self.house.server.enter(order)
        self.names.append(str(getattr(entered, "id", entered)))
        return self.names[-1]

    async def view(self, path: str, when: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_S):
            while True:
                with suppress(HTTPError):  # the job is not known yet
                    found = await self.house.request(path)
                    if when(found):
                        return found
                await asyncio.sleep(0.1)

    async def planned(self, job: str) -> dict[str, Any]:
        return await self.view(f"/jobs/{job}", lambda one: one["planned_start"])

    async def running(self, job: str) -> dict[str, Any]:
        return await self.view(f"/jobs/{job}", lambda one: one["job_state"] == "R")

    def walltime(self, job: str) -> str:
        """Its walltime on the server."""
        return str(self.house.server.job(job).resources["walltime"])


def nodes_of(view: dict[str, Any]) -> set[str]:
    return {share["node"] for share in view["planned_nodes"]}


@pytest.mark.parametrize("version", ["6.1", "openpbs"])
async def test_wishes_periods_speeds_slices_shares_and_ranges_are_followed(
    tmp_path: Path, version: str
) -> None:
    house = ProcessHarness(tmp_path, version, nodes=NODES, interval=0.2)
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    with (tmp_path / "schedd0.toml").open("a") as config:
        config.write(site(now, house.family))
    server = Server(house)
    async with house.running():
        if house.family == "openpbs":
            cluster: Any = house.server.cluster
            names = ("topology", "min_walltime", "max_walltime")
            cluster.resources |= {name: ("string" if name == "topology" else "long", "") for name in names}
            cluster.schedulers["default"].attributes |= {"scheduling": "True"}
        house.adapter.start()

        # One node of each switch is free sooner than the other.
        held = [server.submit(node=node, walltime=str(FIRST)) for node in ("n1", "n3")]
        held += [server.submit(node=node, walltime=str(LAST)) for node in ("n2", "n4")]
        ends = [(await server.running(job))["planned_end"] for job in held]

        # Normalised walltimes: half of the stated one on a node of twice the speed, set on the server.
        scaled = server.submit(node="n5", cores=2, walltime="02:00:00")
        view = await server.running(scaled)
        assert server.walltime(scaled) in ("3600", "01:00:00")
        assert view["planned_end"] - view["started"] == 3600

        # Slices: n5 has two, so the third job waits for the first.
        slices = [server.submit("mig_1g10gb=1", cores=1, walltime="01:00:00") for _ in range(3)]
        views = [await server.running(job) for job in slices[:2]]
        assert [nodes_of(one) for one in views] == [{"n5"}, {"n5"}]
        third = await server.planned(slices[2])
        assert nodes_of(third) == {"n5"}
        assert third["planned_start"] >= min(one["planned_end"] for one in views)

        # The network: two nodes of one switch only when the later pair is free, of two switches sooner.
        together = server.submit(count=2, wishes={"topology": "switch"}, walltime="00:10:00")
        apart = server.submit(count=2, wishes={"topology": "switch:2"}, walltime="00:10:00")
        view = await server.planned(together)
        assert nodes_of(view) in ({"n1", "n2"}, {"n3", "n4"})
        assert view["planned_start"] >= max(ends) - 1
        view = await server.planned(apart)
        assert nodes_of(view) == {"n1", "n3"}
        assert min(ends) - 1 <= view["planned_start"] < max(ends)

        # Ranges of walltimes: as long as fits, and set on the server at the start.
        least = {"min_walltime": "600", "max_walltime": "7200"}
        least = least if house.family == "openpbs" else {"minwclimit": "600"}
        whole = server.submit(node="n5", walltime="00:30:00")  # all cores of n5, behind the running jobs
        await server.planned(whole)
        moldable = server.submit(node="n5", cores=2, wishes=least, walltime="02:00:00")
        view = await server.running(moldable)
        length = view["planned_end"] - view["started"]
        assert 600 <= length < 7200, "it ends before the job that needs the whole node"
        assert house.server.job(moldable).state is JobState.RUNNING
        minutes = f"{length // 3600:02}:{length // 60 % 60:02}:{length % 60:02}"
        assert server.walltime(moldable) in (str(length), minutes)

        # Nested fair share: ann has three quarters of theory, which is the whole share of physics in science.
        tree = await server.view(
            "/fair-share", lambda one: any(p["path"].endswith("theory/ann") for p in one["places"])
        )
        places = {one["path"]: one for one in tree["places"]}
        assert {"science", "science/physics", "science/physics/theory"} <= places.keys()

        # The period in force: the wish of the user counts ten times as much as the fair share.
        low = server.submit(node="n1", walltime="01:00:00", account="course", user="bob")
        high = server.submit(node="n1", walltime="01:00:00", priority=900)
        views = [await server.planned(job) for job in (low, high)]
        first = await server.view(
            f"/jobs/{high}",
            lambda one: (one["planned_start"] or 0) and one["planned_start"] <= views[0]["planned_start"],
        )
        second = await server.view(
            f"/jobs/{low}", lambda one: (one["planned_start"] or 0) >= first["planned_end"]
        )
        assert second["planned_start"] >= first["planned_end"]
