"""Priorities, urgency and deadlines."""

import pytest

from schedd.engine import Cause
from tests.server_adapter.bridge.policy.bench import HOUR, SLACK, Bench

pytestmark = pytest.mark.anyio


async def test_priority_terms_are_shown_and_followed_by_the_plan(bench: Bench) -> None:
    at = bench.begin + 10_000
    late = [bench.submit("pat", "7:ppn=4", not_before=at, queue=queue) for queue in ("slow", "quick")]
    slow, quick = late
    await bench.planned(quick, at=10_000)
    await bench.planned(slow, at=10_100)
    told = await bench.house.request(f"/jobs/{quick}/priority")
    terms = {term["name"]: term["points"] for term in told["terms"]}
    assert terms["queue"] == 50
    assert {"wish", "short", "licences", "deadline", "waiting"} <= terms.keys()
    assert told["total"] == round(sum(terms.values()))
    wished = bench.submit("pat", "7:ppn=4", not_before=at, priority=500, queue="slow")
    await bench.planned(wished, at=10_000)
    await bench.planned(slow, at=10_200)


async def test_users_with_past_usage_are_planned_after_users_without(bench: Bench) -> None:
    at = bench.begin + 20_000
    tinas = bench.submit("tina", "7:ppn=4", not_before=at)  # she holds all of it until the plan begins
    await bench.planned(tinas, at=20_000)
    fays = bench.submit("fay", "7:ppn=4", not_before=at)
    await bench.planned(fays, at=20_000)
    await bench.planned(tinas, at=20_100)
    points = {}
    for job in (tinas, fays):
        terms = (await bench.house.request(f"/jobs/{job}/priority"))["terms"]
        points[job] = next(term["points"] for term in terms if term["name"] == "fair_share")
    assert points[fays] == 100
    assert points[tinas] <= 50


async def test_cpus_of_faster_nodes_count_more_in_usage(bench: Bench) -> None:
    started = (await bench.house.request(f"/jobs/{bench.wall}"))["started"]
    told = await bench.house.request("/fair-share")
    (tina,) = (place for place in told["places"] if place["path"] == "tina")
    # Four cpus on each of eight nodes; two of the nodes are 2.5 times as fast.
    assert tina["used"] == (6 * 4 + 2 * 4 * 2.5) * (told["as_of"] - started)


async def test_an_urgent_class_endangers_promises_and_this_is_reported(bench: Bench) -> None:
    promised = bench.submit("pat", "7:ppn=4")
    before = await bench.planned(promised, at=0)
    assert before["promised_start"] == bench.begin + SLACK
    urgent = bench.submit("uma", "7:ppn=4", walltime=SLACK + 3000, queue="urgent")
    await bench.planned(urgent, at=0)
    risky = await bench.current_view(promised, lambda one: one["at_risk"] is not None)
    assert risky["at_risk"]["cause"] == Cause.CLASS
    assert risky["planned_start"] > before["promised_start"]
    assert not risky["breaches"]


async def test_a_deadline_is_accepted_wished_or_missed(bench: Bench) -> None:
    now = int(bench.server.cluster.now)
    cases = {"accepted": bench.begin + 10 * HOUR, "wished": bench.begin + 50, "missed": now + 50}
    for state, deadline in cases.items():
        job = bench.submit("dean")
        bench.set_attribute(job, "x", f"deadline:{deadline}")
        answer = await bench.current_view(job, lambda one: one["deadline"] is not None)
        assert (answer["deadline"], answer["deadline_state"]) == (deadline, state)
    wanted = {"nodes": "1:ppn=1", "walltime": "100"}
    told = await bench.house.request("/what-if", "POST", {"resources": wanted})
    assert told["planned_end"] == bench.begin + 100  # the earliest deadline that could be met


async def test_a_job_with_a_deadline_precedes_others_if_the_site_enables_it(bench: Bench) -> None:
    site = (await bench.house.request("/policy"))["site"]
    site |= {"placement": "best_gap_edf", "criteria": {"late_jobs": 1.0}}
    await bench.house.request("/policy", "PUT", site)
    try:
        first = bench.submit("pat", "7:ppn=4")
        await bench.planned(first, at=0)
        job = bench.submit("dean", "7:ppn=4")
        bench.server.job(job).attributes["x"] = f"deadline:{bench.begin + 170}"  # qsub -W x=deadline:...
        bench.server.job(job).revision += 1
        answer = await bench.planned(job, at=0)
        assert answer["deadline_state"] == "accepted"
        moved = await bench.planned(first, at=100)
        assert moved["last_change"]["cause"] == Cause.DEADLINE
        assert moved["promised_start"] == bench.begin + SLACK
        assert not moved["breaches"]
    finally:
        await bench.house.request("/policy", "DELETE")
