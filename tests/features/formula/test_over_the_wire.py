"""An emulated OpenPBS with a job_sort_formula, the real adapter and the real daemon, each a process."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from server_adapter.emulator import NodeSpec
from tests.server_adapter.bridge.processes import MEMORY, ProcessHarness
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

FORMULA = "base_score + 100 * job_priority + (walltime < 3600) * ncpus / 8 + eligible_time * 1e-9"


async def view_of(house: ProcessHarness, path: str, true: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with asyncio.timeout(WAIT_S):
        while not (found and true(found)):
            await asyncio.sleep(0.2)
            with suppress(HTTPError):  # the job is not known yet
                found = await house.request(path)
    return found


async def test_formula_and_threshold_of_the_server_and_deadlines_are_followed(tmp_path: Path) -> None:
    house = ProcessHarness(tmp_path, "openpbs", nodes=[NodeSpec("node1", 8, (), MEMORY)], interval=0.3)
    async with house.server:
        cluster: Any = house.server.cluster
        cluster.resources |= {"base_score": ("float", ""), "deadline": ("string", "")}
        cluster.attributes |= {"scheduling": "True", "job_sort_formula": FORMULA}
        scheduler = cluster.schedulers["default"].attributes
        scheduler |= {"scheduling": "True", "job_sort_formula_threshold": "2"}
        house.configure()
        try:
            house.daemon.start()
            await house.ready()
            house.adapter.start()

            def submit(score: float, walltime: str = "00:30:00", **more: str) -> str:
                resources = {"select": "1:ncpus=8", "walltime": walltime, "base_score": f"{score}", **more}
                job: Any = house.server.submit(resources=resources, runtime=600.0)
                return str(getattr(job, "id", job))

            wall = submit(10, "02:00:00")
            await view_of(house, f"/jobs/{wall}", lambda one: one["job_state"] == "R")
            low, high, below = submit(3), submit(5.5), submit(0.9)
            first = await view_of(house, f"/jobs/{high}", lambda one: one["planned_start"])
            second = await view_of(
                house, f"/jobs/{low}", lambda one: (one["planned_start"] or 0) > first["planned_start"]
            )
            assert second["planned_start"] >= first["planned_start"] + 1800
            found = await house.request(f"/jobs/{high}/priority")
            assert found["formula_source"] == "job_sort_formula"
            assert found["total"] == pytest.approx(6.5, abs=0.001)
            assert {one["name"]: one["value"] for one in found["names"]}["ncpus"] == 8
            assert found["threshold"] == 2
            waiting = await view_of(house, f"/jobs/{below}", lambda one: "threshold" in str(one))
            assert waiting["planned_start"] is None
            assert "job_sort_formula" in str(waiting)

            # The manager changes both: the order turns round, and the third job is planned.
            cluster.attributes["job_sort_formula"] = f"10 - ({FORMULA})"
            del scheduler["job_sort_formula_threshold"]
            await view_of(house, f"/jobs/{below}", lambda one: one["planned_start"])
            moved = await view_of(
                house, f"/jobs/{high}", lambda one: one["planned_start"] > second["planned_start"]
            )
            assert moved["planned_start"] is not None

            # One that cannot be used is reported, and a correct one ends the alert.
            cluster.attributes["job_sort_formula"] = "job_priority ^ 2"
            alerts = await view_of(house, "/alerts", lambda one: one["alerts"])
            assert "a power is **" in str(alerts)
            cluster.attributes["job_sort_formula"] = FORMULA
            await view_of(house, "/alerts", lambda one: not one["alerts"])

            # An accepted deadline bounds the start of a job that the formula ranks last.
            due = submit(1.5, deadline="+04:00:00")
            bounded = await view_of(house, f"/jobs/{due}", lambda one: one.get("deadline_state"))
            assert bounded["deadline_state"] == "accepted"
            assert bounded["promised_start"] == bounded["deadline"] - 1800 - 60
            newcomers = [submit(9) for _ in range(4)]
            for job in newcomers:
                await view_of(house, f"/jobs/{job}", lambda one: one["planned_start"])
            kept = await house.request(f"/jobs/{due}")
            assert kept["deadline_state"] == "accepted"
            assert kept["planned_start"] <= bounded["promised_start"]
            early = submit(1.5, deadline="+01:00:00")
            refused = await view_of(house, f"/jobs/{early}", lambda one: one.get("earliest_deadline"))
            assert refused["deadline_state"] == "wished"
            comment = house.server.job(due).attributes.get
            async with asyncio.timeout(WAIT_S):
                while "deadline accepted" not in comment("comment", ""):
                    await asyncio.sleep(0.2)
        finally:
            house.adapter.kill()
            house.daemon.kill()
