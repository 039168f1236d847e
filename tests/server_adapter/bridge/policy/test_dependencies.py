"""Planned starts of dependent jobs."""

import pytest

from schedd.engine import Cause
from server_adapter.emulator.lifecycle import settle
from tests.server_adapter.bridge.policy.bench import Bench

pytestmark = pytest.mark.anyio


async def test_jobs_are_planned_after_their_dependencies(bench: Bench) -> None:
    head = bench.submit("dora", not_before=bench.begin + 1000)
    behind = {
        kind: bench.submit("dora", depend=f"{kind}:{head}") for kind in ("after", "afterok", "afterany")
    }
    tail = bench.submit("dora", depend=f"afterok:{behind['afterok']}")
    await bench.planned(behind["after"], at=1000)
    await bench.start(*behind.values(), tail, at=[1000, 1100, 1100, 1200])
    assert (await bench.planned(tail))["conditional"] == [f"afterok:{behind['afterok']}"]
    for kind, depend in {"afternotok": f"afternotok:{head}", "on": "on:1"}.items():
        assert kind in await bench.waits(bench.submit("dora", depend=depend), "dependency")


async def test_a_job_is_planned_after_a_job_with_before_condition(bench: Bench) -> None:
    other = bench.submit("dora", depend="on:1")
    assert "on:1" in await bench.waits(other, "dependency")
    await bench.planned(bench.submit("dora", depend=f"beforeany:{other}"), at=0)
    await bench.planned(other, at=100)  # the server makes it wait for the first


async def test_a_chain_moves_with_its_head(bench: Bench) -> None:
    head = bench.submit("dora", not_before=bench.begin + 1000)
    tail = bench.submit("dora", depend=f"afterok:{head}")
    await bench.planned(tail, at=1100)
    job = bench.server.job(head)
    job.not_before = bench.begin + 2000
    job.revision += 1
    answer = await bench.current_view(tail, lambda one: one["planned_start"] == bench.begin + 2100)
    assert answer["last_change"]["cause"] == Cause.CHAIN


async def test_a_job_waits_for_all_jobs_of_an_array(bench: Bench) -> None:
    array = bench.submit("dora", array="0-2%1")
    first = bench.submit("dora", depend=f"afterstartarray:{array}")
    last = bench.submit("dora", depend=f"afterokarray:{array}")
    await bench.planned(array.replace("[]", "[2]"), at=200)
    await bench.planned(first, at=200)
    await bench.planned(last, at=300)


async def test_a_circular_dependency_is_reported(bench: Bench) -> None:
    one = bench.submit("dora", holds="u")
    other = bench.submit("dora", depend=f"afterok:{one}")
    job = bench.server.job(one)
    job.depend = f"afterok:{other}"
    job.holds.clear()
    job.holds.add("d")
    bench.server.cluster.dependents.add(one)
    job.revision += 1
    settle(bench.server.cluster, job)
    for name in (one, other):
        why = (await bench.current_view(name, lambda answer: "a circle of dependencies" in answer["why"]))[
            "why"
        ]
        assert one in why
        assert other in why
