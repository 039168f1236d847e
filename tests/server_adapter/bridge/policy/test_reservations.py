"""Maintenance and standing reservations."""

import pytest

from schedd.engine import Cause
from tests.server_adapter.bridge.policy.bench import HOUR, Bench

pytestmark = pytest.mark.anyio


async def test_a_maintenance_is_planned_around_at_once_and_its_conflicts_are_previewed(
    bench: Bench,
) -> None:
    job = bench.submit("mia", "n1:ppn=4", walltime=1000)
    start = (await bench.planned(job, at=0))["planned_start"]
    window = {"nodes": ["n1"], "start": start + 500, "end": start + 1500, "reason": "new memory"}
    told = await bench.house.request("/reservations/memory/preview", "POST", window)
    assert job in {one["job"] for one in told["moved"]}
    await bench.house.request("/reservations/memory", "PUT", window)
    moved = await bench.current_view(job, lambda one: one["planned_start"] == start + 1500)
    assert moved["last_change"]["cause"] == Cause.RESERVATION
    await bench.house.request("/reservations/memory", "DELETE")
    await bench.current_view(job, lambda one: one["planned_start"] == start)

    # Of reserved cores, long jobs leave the reserved ones, and short jobs have all.
    quick = {"nodes": ["n1"], "end": start + 20 * HOUR, "cores": 2, "shorter": 600}
    await bench.house.request("/reservations/quick", "PUT", quick)
    moved = await bench.current_view(job, lambda one: one["planned_start"] == start + 20 * HOUR)
    assert moved["last_change"]["cause"] == Cause.RESERVATION
    await bench.planned(bench.submit("mia", "n1:ppn=2", walltime=1000), at=0)
    await bench.planned(bench.submit("mia", "n1:ppn=2", walltime=600), at=0)
    await bench.house.request("/reservations/quick", "DELETE")


async def test_a_standing_reservation_admits_only_listed_users_on_exclusive_nodes_too(bench: Bench) -> None:
    everyone = bench.submit("eve", "n8:ppn=1", extra={"egroup": "others"})
    assert (await bench.planned(everyone))["planned_start"] > bench.begin + 10 * HOUR
    tinas = bench.submit("tina", "n8:ppn=1", resources={"naccesspolicy": "singlejob"})
    await bench.planned(tinas, at=0)


async def test_a_reservation_is_for_the_groups_and_accounts_on_its_list(bench: Bench) -> None:
    crews = bench.submit("eve", "n8:ppn=1", extra={"egroup": "crew"})
    await bench.planned(crews, at=0)
    charged = bench.submit("eve", "n8:ppn=1", extra={"egroup": "others"})
    assert (await bench.planned(charged))["planned_start"] > bench.begin + 10 * HOUR
    bench.set_attribute(charged, "Account_Name", "course")
    await bench.planned(charged, at=0)


async def test_a_job_that_names_a_reservation_runs_on_its_nodes_in_its_time_or_says_why_not(
    bench: Bench,
) -> None:
    now = (await bench.planned(bench.submit("mia", "n1:ppn=1"), at=0))["as_of"]
    begin = now + 5 * HOUR
    window = {"nodes": ["n3"], "start": begin, "end": begin + HOUR, "users": ["tina"]}
    await bench.house.request("/reservations/school", "PUT", window)
    inside = bench.submit("tina", resources={"advres": "school"})
    view = await bench.current_view(inside, lambda one: one["planned_start"] == begin)
    assert [share["node"] for share in view["planned_nodes"]] == ["n3"]
    outside = bench.submit("eve", resources={"advres": "school"})
    assert "access list does not admit the job" in await bench.waits(outside, "reservation")
    await bench.house.request("/reservations/school", "DELETE")
    assert "which is over or was removed" in await bench.waits(inside, "reservation")
