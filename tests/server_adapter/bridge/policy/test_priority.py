"""Priorities, urgency and deadlines."""

import pytest

from tests.server_adapter.bridge.policy.bench import HOUR, SLACK, Bench

pytestmark = pytest.mark.anyio


async def test_the_terms_of_a_priority_are_told_and_the_plan_follows_them(bench: Bench) -> None:
    at = bench.begin + 10_000
    late = [bench.submit("pat", "7:ppn=4", not_before=at, queue=queue) for queue in ("slow", "quick")]
    slow, quick = late
    await bench.planned(quick, at=10_000)
    await bench.planned(slow, at=10_100)
    told = await bench.house.ask(f"/jobs/{quick}/priority")
    terms = {term["name"]: term["points"] for term in told["terms"]}
    assert terms["queue"] == 50
    assert {"wish", "short", "licences", "deadline", "waiting"} <= terms.keys()
    assert told["total"] == round(sum(terms.values()))
    wished = bench.submit("pat", "7:ppn=4", not_before=at, priority=500, queue="slow")
    await bench.planned(wished, at=10_000)
    await bench.planned(slow, at=10_200)


async def test_who_used_the_machine_goes_behind_who_did_not(bench: Bench) -> None:
    at = bench.begin + 20_000
    tinas = bench.submit("tina", "7:ppn=4", not_before=at)  # she holds all of it until the plan begins
    await bench.planned(tinas, at=20_000)
    fays = bench.submit("fay", "7:ppn=4", not_before=at)
    await bench.planned(fays, at=20_000)
    await bench.planned(tinas, at=20_100)
    points = {}
    for job in (tinas, fays):
        terms = (await bench.house.ask(f"/jobs/{job}/priority"))["terms"]
        points[job] = next(term["points"] for term in terms if term["name"] == "fair_share")
    assert points[fays] == 100
    assert points[tinas] <= 50


async def test_cpus_of_faster_nodes_count_for_more_of_what_was_used(bench: Bench) -> None:
    started = (await bench.house.ask(f"/jobs/{bench.wall}"))["started"]
    told = await bench.house.ask("/fair-share")
    (tina,) = (place for place in told["places"] if place["path"] == "tina")
    # Four cpus on each of eight nodes, of which two are 2.5 times as fast.
    assert tina["used"] == (6 * 4 + 2 * 4 * 2.5) * (told["as_of"] - started)


async def test_an_urgent_class_puts_promises_at_risk_and_that_is_told(bench: Bench) -> None:
    promised = bench.submit("pat", "7:ppn=4")
    before = await bench.planned(promised, at=0)
    assert before["promised_start"] == bench.begin + SLACK
    urgent = bench.submit("uma", "7:ppn=4", walltime=SLACK + 3000, queue="urgent")
    await bench.planned(urgent, at=0)
    risky = await bench.seen(promised, lambda one: one["at_risk"] is not None)
    assert risky["at_risk"]["cause"] == "a class allowed to break promises"
    assert risky["planned_start"] > before["promised_start"]
    assert not risky["breaches"]


async def test_a_deadline_is_on_track_at_risk_or_missed(bench: Bench) -> None:
    now = int(bench.server.cluster.now)
    cases = {"on_track": bench.begin + 10 * HOUR, "at_risk": bench.begin + 50, "missed": now + 50}
    for state, deadline in cases.items():
        job = bench.submit("dean")
        bench.set_attribute(job, "x", f"deadline:{deadline}")
        answer = await bench.seen(job, lambda one: one["deadline"] is not None)
        assert (answer["deadline"], answer["deadline_state"]) == (deadline, state)
    wanted = {"nodes": "1:ppn=1", "walltime": "100"}
    told = await bench.house.ask("/what-if", "POST", {"resources": wanted})
    assert told["planned_end"] == bench.begin + 100  # the earliest deadline that could be met


async def test_a_job_with_a_deadline_goes_before_one_without_where_the_site_wants_that(bench: Bench) -> None:
    site = (await bench.house.ask("/policy"))["site"]
    site |= {"placement": "best_gap_edf", "criteria": {"late_jobs": 1.0}}
    await bench.house.ask("/policy", "PUT", site)
    try:
        first = bench.submit("pat", "7:ppn=4")
        await bench.planned(first, at=0)
        job = bench.submit("dean", "7:ppn=4")
        bench.server.job(job).attributes["x"] = f"deadline:{bench.begin + 150}"  # qsub -W x=deadline:...
        bench.server.job(job).revision += 1
        answer = await bench.planned(job, at=0)
        assert answer["deadline_state"] == "on_track"
        moved = await bench.planned(first, at=100)
        assert moved["last_change"]["cause"] == "a job with an earlier deadline"
        assert moved["promised_start"] == bench.begin + SLACK
        assert not moved["breaches"]
    finally:
        await bench.house.ask("/policy", "DELETE")
