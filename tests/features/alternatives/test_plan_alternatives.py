"""Alternative plans of a live cluster: search, comparison, application, and refusal after plan changes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from schedd.alternatives.pareto_search import ParetoSettings
from schedd.engine import Cause, EngineSettings
from schedd.engine.show.job_view import JobView, job_history, job_view, published_record
from schedd.features.alternatives.api import plan_alternatives
from schedd.features.alternatives.background import AutomaticAlternatives, best_acceptable_plan
from schedd.features.alternatives.plan_alternatives import (
    AlternativeSet,
    LivePlanChanged,
    NoSuchPlan,
    OfferedPlan,
    PlanAlternatives,
    SearchInProgress,
)
from schedd.policy.site import site_policy
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.settings.daemon import StoreSettings
from schedd.wire import JobDeleted
from tests.service.planner_harness import StillClock, T, event_id, job, node, planner
from tests.waits import WAIT_S, wait_until

SITE: dict[str, Any] = {
    "power": {"thrifty": {"idle": 50, "core": 2}, "*": {"idle": 50, "core": 20}},
    "prices": [{"core_hour": 1}],
}
HOW = ParetoSettings(seconds=None, evaluations=60)


@contextmanager
def cluster_with_alternatives(**settings: Any) -> Iterator[tuple[PlanLoop, PlanAlternatives]]:
    """Run a planner with two busy nodes (n2 thrifty) and a queue of one long job, then short ones."""
    settings = {"slack": 10**6, "search_every": 0, "end_allowance": 0, "site": SITE, **settings}
    with planner(publish_starts=False, **settings) as loop:
        loop.submit([node("n1"), node("n2", properties=("thrifty",)), job("1"), job("2")]).result(WAIT_S)
        loop.submit([job("3", nodes="2:ppn=4", walltime="36000")]).result(WAIT_S)
        loop.submit([job(f"{i}", walltime=f"{i * 600}") for i in range(4, 10)]).result(WAIT_S)
        yield loop, PlanAlternatives(loop)


def view(loop: PlanLoop, job_id: str) -> JobView:
    found = job_view(loop.published, job_id)
    assert found is not None
    return found


def planned_starts(loop: PlanLoop) -> dict[str, int | None]:
    return {str(i): view(loop, str(i)).planned_start for i in range(1, 10)}


def test_live_plan_stays_until_an_alternative_is_applied() -> None:
    with cluster_with_alternatives() as (loop, choices):
        before, generation = planned_starts(loop), loop.published.generation
        found = choices.search(HOW, None, "ann")
        assert choices.latest == found
        assert (planned_starts(loop), loop.published.generation) == (before, generation)
        assert (found.number, found.by, found.jobs, found.as_of) == (1, "ann", 7, T)
        assert list(found.weights) == ["wait", "makespan", "energy", "cost"]
        assert found.units == {"wait": "s", "makespan": "s", "energy": "kWh", "cost": "EUR"}
        best = found.plans[0]
        assert sum(best.objectives[name] / found.live[name] for name in found.live) <= 4
        waits = [start - T for start in before.values() if start is not None and start > T]
        assert found.live["wait"] == pytest.approx(sum(waits) / 7)
        for move in best.moves:
            assert move.before == before[move.job]
            assert move.promised is not None
            assert move.after <= move.promised

        count, changes, _ = choices.apply(1, best.number, "ann", 0.1)
        assert count == len(best.moves)
        after = planned_starts(loop)
        assert {move.job: move.after for move in best.moves} == {m.job: after[m.job] for m in best.moves}
        unmoved = before.keys() - {move.job for move in best.moves}
        assert {one: after[one] for one in unmoved} == {one: before[one] for one in unmoved}
        told = {one.objective: one.after for one in changes}
        assert {name: told[name] for name in best.objectives} == pytest.approx(dict(best.objectives))
        record = published_record(loop.published, best.moves[0].job)
        assert record is not None
        last = job_history(loop.published, record)[0]
        assert last.cause == Cause.CHOSEN
        assert last.words.startswith("ann chose another plan (")
        assert loop.published.breaches == 0


def test_same_seed_gives_the_same_alternatives() -> None:
    sets = []
    for _ in range(2):
        with cluster_with_alternatives() as (loop, choices):
            found = choices.search(HOW, {"wait": 1, "energy": 3}, "ann")
            sets.append((found.plans, found.tried, found.live))
            assert loop.alive
    assert sets[0] == sets[1]


def test_alternative_is_refused_after_too_many_plan_changes() -> None:
    with cluster_with_alternatives() as (loop, choices):
        found = choices.search(HOW, None, "ann")
        assert choices.drift(1) == 0
        loop.submit([job("10"), job("11")]).result(WAIT_S)
        assert choices.drift(1) == pytest.approx(2 / 7)
        before = planned_starts(loop)
        with pytest.raises(LivePlanChanged, match="29% of the jobs have come, gone or moved"):
            choices.apply(1, 1, "ann", 0.1)
        assert planned_starts(loop) == before
        assert choices.apply(1, 1, "ann", 0.5)[0] > 0
        assert found.plans[0].moves
        # The alternative is now the live plan.
        loop.submit([JobDeleted(id=event_id(), time=T, job_id="10")]).result(WAIT_S)


def test_moves_that_still_hold_are_applied_and_the_others_reported() -> None:
    with cluster_with_alternatives() as (loop, choices):
        moves = choices.search(HOW, None, "ann").plans[0].moves
        gone = max(moves, key=lambda one: one.before)
        others = [one for one in moves if one is not gone]
        loop.submit([job(str(i)) for i in range(10, 16)]).result(WAIT_S)
        loop.submit([JobDeleted(id=event_id(), time=T, job_id=gone.job)]).result(WAIT_S)
        assert choices.drift(1) > 0.5
        done = choices.apply(1, 1, "ann")
        dropped = {one.job: one.why for one in done.dropped}
        assert dropped.pop(gone.job) == "it does not wait any more"
        assert set(dropped.values()) == {"its new place is taken: it was given another one, or stays"}
        assert len(dropped) < len(others), "most jobs have their offered starts"
        for move in others:
            assert (view(loop, move.job).planned_start == move.after) == (move.job not in dropped)
        wait = next(one for one in done.objectives if one.objective == "wait")
        assert wait.after is not None
        assert wait.before is not None
        assert wait.after < wait.before


def test_applied_plan_omits_ended_jobs() -> None:
    with cluster_with_alternatives() as (loop, choices):
        gone = choices.search(HOW, None, "ann").plans[0].moves[0].job
        loop.submit([JobDeleted(id=event_id(), time=T, job_id=gone)]).result(WAIT_S)
        choices.apply(1, 1, "ann", 1.0)
        assert job_view(loop.published, gone) is None


def test_only_the_newest_alternative_set_is_stored() -> None:
    with cluster_with_alternatives() as (_, choices):
        with pytest.raises(NoSuchPlan, match="there was no search yet"):
            choices.apply(1, 1, "ann", 0.1)
        assert choices.search(HOW, None, "ann").number == 1
        found = choices.search(HOW, None, "ann")
        with pytest.raises(NoSuchPlan, match="the latest is 2"):
            choices.apply(1, 1, "ann", 0.1)
        with pytest.raises(NoSuchPlan, match=f"no plan {len(found.plans) + 1}"):
            choices.apply(2, len(found.plans) + 1, "ann", 0.1)


def test_unknown_objectives_are_refused() -> None:
    with cluster_with_alternatives(site={}) as (_, choices):
        assert list(choices.search(HOW, None, "ann").weights) == ["wait", "makespan"]
        with pytest.raises(ValueError, match=r"energy is not known here: .*site\.power"):
            choices.search(HOW, {"energy": 1}, "ann")
        with pytest.raises(ValueError, match="no objective 'speed'"):
            choices.search(HOW, {"speed": 1}, "ann")


def test_site_weights_apply_unless_overridden() -> None:
    with cluster_with_alternatives(site={**SITE, "objectives": {"cost": 1, "wait_max": 2, "energy": 0}}) as (
        _,
        choices,
    ):
        assert choices.search(HOW, None, "ann").weights == {"cost": 1, "wait_max": 2}


def test_alternatives_respect_promises() -> None:
    with cluster_with_alternatives(slack=0) as (loop, choices):
        found = choices.search(HOW, None, "ann")
        before = planned_starts(loop)
        for plan in found.plans:
            assert all(move.after <= move.before for move in plan.moves)
        assert before["3"] is not None


def test_search_for_alternatives_is_exclusive_and_can_be_stopped() -> None:
    with cluster_with_alternatives() as (_, choices):
        found: list[Any] = []
        long = ParetoSettings(seconds=600.0)
        thread = threading.Thread(target=lambda: found.append(choices.search(long, None, "ann")))
        thread.start()
        wait_until(lambda: choices._running is not None)
        with pytest.raises(SearchInProgress):
            choices.search(HOW, None, "bob")
        assert choices.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive(), "it waited for its time"
        assert found[0].stopped
        assert not choices.stop(), "nothing is under way"
        assert not choices.search(HOW, None, "ann").stopped


CHOOSE: dict[str, Any] = {"every": 600, "seconds": 1.0}


def test_best_plan_is_applied_automatically_on_schedule() -> None:
    site = {**SITE, "choose": CHOOSE}
    with cluster_with_alternatives(site=site) as (loop, choices):
        chooser = AutomaticAlternatives(loop, choices)
        before = planned_starts(loop)
        assert chooser.run_once()
        assert planned_starts(loop) != before
        assert choices.latest is not None
        assert choices.latest.by == "schedd"
        record = published_record(loop.published, "4")
        assert record is not None
        assert "schedd chose another plan" in str(job_history(loop.published, record))
        assert not chooser.run_once(), "it is not due again"


def test_no_plan_is_applied_without_setting_or_while_a_user_views_a_set() -> None:
    with cluster_with_alternatives() as (loop, choices):
        assert not AutomaticAlternatives(loop, choices).run_once()
        assert choices.latest is None
    with cluster_with_alternatives(site={**SITE, "choose": CHOOSE}) as (loop, choices):
        found = choices.search(HOW, None, "ann")
        assert not AutomaticAlternatives(loop, choices).run_once()
        assert choices.latest == found


def make_offer(number: int, **values: float) -> OfferedPlan:
    return OfferedPlan(number, values, ())


def make_alternatives(live: dict[str, float], *plans: OfferedPlan) -> AlternativeSet:
    return AlternativeSet(
        number=1,
        by="schedd",
        as_of=T,
        generation=1,
        seed=0,
        weights={"wait": 1.0, "energy": 1.0},
        units={"wait": "s", "energy": "kWh"},
        live=live,
        plans=plans,
        jobs=9,
        tried=9,
        homeless=0,
        worse=0,
        stopped=False,
        seconds=1.0,
        hypervolume=0.5,
    )


def test_best_plan_within_limits_and_minimum_gain_is_applied() -> None:
    live = {"wait": 100.0, "energy": 10.0}
    thrifty, quick = make_offer(1, wait=110, energy=6), make_offer(2, wait=80, energy=9.9)
    found = make_alternatives(live, thrifty, quick)
    assert best_acceptable_plan(found, {}, 0.02) == thrifty
    assert best_acceptable_plan(found, {"wait": 105}, 0.02) == quick
    assert best_acceptable_plan(found, {"wait": 110}, 0.02) == thrifty
    assert best_acceptable_plan(found, {"wait": 50}, 0.02) == quick, "the live plan is beyond it, too"
    assert best_acceptable_plan(found, {"makespan": 1}, 0.02) == thrifty, "of what the set does not know"
    assert best_acceptable_plan(found, {"wait": 105}, 0.2) is None
    assert best_acceptable_plan(make_alternatives(live), {}, 0.0) is None


def test_applied_plan_survives_a_restart(tmp_path: Path) -> None:
    settings = EngineSettings(
        slack="1000000", search_every=0, end_allowance=0, publish_starts=False, site=site_policy(SITE)
    )

    def daemon() -> Clusters:
        durable = DaemonStore(StoreSettings(url=f"sqlite:///{tmp_path}/a.sqlite"))
        found = Clusters({"main": settings}, StillClock(), durable=durable)
        found.start(warm=False)
        return found

    first = daemon()
    try:
        loop = first["main"]
        loop.submit([node("n1"), node("n2", properties=("thrifty",)), job("1"), job("2")]).result(WAIT_S)
        loop.submit([job("3", nodes="2:ppn=4", walltime="36000")]).result(WAIT_S)
        loop.submit([job(f"{i}", walltime=f"{i * 600}") for i in range(4, 10)]).result(WAIT_S)
        before = planned_starts(loop)
        found = plan_alternatives(first, "main").search(HOW, None, "ann")
        count, _, _ = plan_alternatives(first, "main").apply(1, found.plans[0].number, "ann", 0.1)
        chosen = planned_starts(loop)
        assert count
        assert chosen != before
    finally:
        first.stop()
    again = daemon()
    try:
        assert planned_starts(again["main"]) == chosen
        record = published_record(again["main"].published, found.plans[0].moves[0].job)
        assert record is not None
        assert "ann chose another plan" in str(job_history(again["main"].published, record))
        assert plan_alternatives(again, "main").latest is None, "the set itself is kept in memory alone"
    finally:
        again.stop()
