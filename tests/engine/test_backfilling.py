"""Shortest-expected-job-first backfilling, bounded by age and promises."""

from typing import Any, Literal

import pytest

from schedd.engine import Engine
from schedd.engine.place.backfilling import backfill_rule, is_backfilling
from tests.engine.cluster import Cluster, T

HOUR = 3600


def shortest(nodes: int = 1, **settings: Any) -> Cluster:
    chosen = {"slack": "2h+0.5w", "search_every": 0, "predict": True, **settings}
    return Cluster(nodes, backfill="shortest", **chosen)


def fill(cluster: Cluster, until: int, walltime: int = 10 * HOUR) -> None:
    """One job holds everything until then."""
    cluster.submit("busy", f"{len(cluster.server.nodes)}:ppn=4", walltime, runtime=until)


def test_of_two_fitting_jobs_the_shorter_starts_first() -> None:
    cluster = shortest()
    fill(cluster, HOUR)
    cluster.submit("long", walltime=HOUR)
    cluster.submit("short", walltime=600)
    assert cluster.start("long") == 10 * HOUR  # by walltimes, in order of arrival
    cluster.at(HOUR + 1)
    assert cluster.runs("short") == [HOUR]
    cluster.at(HOUR + 601)
    assert cluster.runs("long") == [HOUR + 600]


def test_by_default_the_oldest_job_starts_first() -> None:
    cluster = shortest()
    oldest = Cluster(slack="2h+0.5w")
    for one in (cluster, oldest):
        fill(one, HOUR)
        one.submit("long", walltime=HOUR)
        one.submit("short", walltime=600)
        one.at(HOUR + 1)
    assert oldest.runs("long") == [HOUR]
    assert cluster.runs("long") == []


def test_move_by_backfilling_has_its_cause() -> None:
    cluster = shortest()
    fill(cluster, HOUR)
    cluster.submit("long", walltime=HOUR)
    cluster.submit("short", walltime=600)
    cluster.at(HOUR)
    words = [one.words for one in cluster.engine.state.changes]
    assert "jobs with a shorter expected run time go first" in words


def test_a_start_that_would_break_a_promise_is_not_made() -> None:
    cluster = shortest(slack=0)
    fill(cluster, HOUR, walltime=HOUR)
    cluster.submit("long", walltime=HOUR)
    cluster.submit("short", walltime=600)
    assert cluster.promise("long") == HOUR
    cluster.at(HOUR + 1)
    assert cluster.runs("long") == [HOUR]
    assert cluster.runs("short") == []
    cluster.at(3 * HOUR)
    assert cluster.engine.state.breaches == 0


def test_shorter_expected_run_time_goes_first_whatever_the_walltime() -> None:
    cluster = shortest(slack="20h+0.5w")
    for number in range(30):  # ann's jobs end after a minute, bob's use their walltimes
        cluster.submit(f"a{number}", "1:ppn=2", 5 * HOUR, runtime=60, owner="ann@login")
        cluster.submit(f"b{number}", "1:ppn=2", HOUR, runtime=HOUR, owner="bob@login")
        cluster.at((number + 1) * HOUR)
    fill(cluster, HOUR)
    now = cluster.server.now - T
    cluster.submit("bob", walltime=HOUR, owner="bob@login")
    cluster.submit("ann", walltime=5 * HOUR, runtime=60, owner="ann@login")
    cluster.at(now + HOUR + 1)
    assert cluster.runs("ann") == [now + HOUR]
    assert cluster.runs("bob") == []


@pytest.mark.parametrize(("patience", "first"), [(24 * HOUR, "short"), (1800, "long")])
def test_job_beyond_its_patience_precedes_shorter_jobs(patience: int, first: str) -> None:
    cluster = shortest(search_patience=patience)
    fill(cluster, HOUR)
    cluster.submit("long", walltime=HOUR)
    cluster.at(HOUR - 60)
    cluster.submit("short", walltime=600)
    cluster.at(HOUR + 1)
    assert cluster.runs(first) == [HOUR]


def test_aged_wide_job_keeps_its_gap_from_narrow_jobs() -> None:
    def narrow(patience: int) -> list[int]:
        cluster = shortest(2, search_patience=patience)
        cluster.submit("n1", "1:ppn=4", 2 * HOUR)
        cluster.submit("n2", "1:ppn=4", 4 * HOUR, runtime=HOUR)
        cluster.submit("wide", "2:ppn=4", HOUR)
        assert cluster.start("wide") == 4 * HOUR
        cluster.at(HOUR - 60)
        cluster.submit("narrow", "1:ppn=4", 2 * HOUR)  # it fits at once when n2 ends, for longer than n1 runs
        cluster.at(HOUR + 1)
        if patience < HOUR:
            assert cluster.start("wide") == 2 * HOUR
        cluster.at(12 * HOUR)
        assert cluster.engine.state.breaches == 0
        return cluster.runs("narrow")

    assert narrow(24 * HOUR) == [HOUR]
    assert narrow(1800) == [3 * HOUR]


def test_higher_priority_precedes_shorter_jobs() -> None:
    cluster = shortest(site={"priority": {"wish": 1.0}})
    fill(cluster, HOUR)
    cluster.submit("long", walltime=HOUR, priority=100)
    cluster.submit("short", walltime=600)
    cluster.at(HOUR + 1)
    assert cluster.runs("long") == [HOUR]


def test_backfilling_misses_no_deadline() -> None:
    for deadline, first in ((HOUR + HOUR + 300, "long"), (4 * HOUR, "short")):
        cluster = shortest()
        fill(cluster, HOUR, walltime=HOUR)
        cluster.submit("long", walltime=HOUR, resources={"x.deadline": str(T + deadline)})
        cluster.submit("short", walltime=600)
        cluster.at(HOUR + 1)
        assert cluster.runs(first) == [HOUR], deadline


def test_no_job_moves_while_starts_are_paused() -> None:
    cluster = shortest()
    fill(cluster, HOUR)
    cluster.submit("long", walltime=HOUR)
    cluster.engine.pause("upgrade")
    cluster.at(HOUR - 10)
    cluster.submit("short", walltime=600)
    cluster.at(HOUR + 1)
    assert cluster.runs("short") == cluster.runs("long") == []
    assert "jobs with a shorter expected run time go first" not in [
        one.words for one in cluster.engine.state.changes
    ]
    assert cluster.engine.next_wake is None or cluster.engine.next_wake > cluster.server.now + 1


def test_event_in_the_second_of_a_backfill_is_handled_in_the_next() -> None:
    cluster = shortest(slack="20h+0.5w")
    fill(cluster, HOUR)
    cluster.submit("long", walltime=5 * HOUR)
    cluster.submit("other", "1:ppn=2", walltime=4 * HOUR)
    state = cluster.engine.state
    assert state.last_backfill == state.now
    assert cluster.engine.next_wake == state.now + 1
    cluster.at(1)
    assert state.last_backfill == T + 1


def test_checkpoint_has_the_time_of_the_last_backfill() -> None:
    cluster = shortest()
    fill(cluster, HOUR)
    cluster.submit("long", walltime=HOUR)
    cluster.at(600)
    cluster.submit("short", walltime=600)
    state = cluster.engine.state
    again = Engine.restore(cluster.engine.checkpoint()).state
    given = state.last_backfill, state.backfilled, state.backfill_due
    assert (again.last_backfill, again.backfilled, again.backfill_due) == given
    assert given[0] == T + 600


@pytest.mark.parametrize("backfill", ["shortest", "oldest"])
def test_engine_requests_no_wakeup_without_startable_jobs(
    backfill: Literal["shortest", "oldest"],
) -> None:
    cluster = shortest(2)
    cluster.submit("a", "1:ppn=4", HOUR, runtime=600)
    cluster.submit("b", "1:ppn=4", HOUR, runtime=600)
    cluster.server.now = T + 600
    for event in cluster.server.ends():  # the second of them in the second of the backfill
        cluster.send(event)
    assert cluster.engine.next_wake == T + 601
    settings = cluster.engine.state.settings.with_changes(backfill=backfill)
    engine = Engine.restore(cluster.engine.checkpoint(), settings)
    engine.handle((), T + 601)
    assert engine.next_wake is None or engine.next_wake > T + 602


def test_ineligible_job_does_not_precede_an_aged_wide_job() -> None:
    cluster = shortest(2, search_patience=1800, slack="100h+0.5w")
    cluster.submit("n1", "1:ppn=4", 2 * HOUR)
    cluster.submit("n2", "1:ppn=4", 4 * HOUR, runtime=HOUR)
    cluster.submit("later", "2:ppn=4", HOUR, not_before=T + 50 * HOUR)  # it waits longest of all
    cluster.at(10)
    cluster.submit("wide", "2:ppn=4", HOUR)
    cluster.at(HOUR - 60)
    cluster.submit("narrow", "1:ppn=4", 2 * HOUR)
    cluster.at(HOUR + 1)
    assert cluster.start("wide") == 2 * HOUR
    cluster.at(12 * HOUR)
    assert cluster.runs("narrow") == [3 * HOUR]


def test_placement_of_an_unreleased_job_is_given_up_despite_other_events() -> None:
    cluster = shortest(2)
    cluster.submit("elsewhere", "1:ppn=3", 20 * HOUR)
    cluster.submit("first", walltime=HOUR, runtime=HOUR)
    held = {"state": "H", "holds": "s", "depend": "afterany:first"}
    cluster.submit("then", walltime=HOUR, **held)
    cluster.submit("other", walltime=HOUR)
    assert cluster.start("then") == HOUR
    for moment in range(HOUR, HOUR + 120, 3):  # the server does not release it
        cluster.at(moment)
        cluster.submit(f"j{moment}", "1:ppn=1", 2)  # in addition to "elsewhere"
    assert cluster.runs("other") == [HOUR + 60]


def test_planned_jobs_stay_on_a_down_node_during_the_grace() -> None:
    cluster = shortest(2, node_grace=300)
    cluster.submit("a", "1:ppn=4", HOUR, runtime=HOUR)
    cluster.submit("b", "1:ppn=4", HOUR + 60)
    cluster.submit("c", "1:ppn=4", HOUR)
    assert (cluster.planned_node_names("c"), cluster.start("c")) == (cluster.planned_node_names("a"), HOUR)
    cluster.at(HOUR - 100)
    cluster.node(cluster.planned_node_names("a")[0], state="down")
    gone = cluster.planned_node_names("c")
    cluster.at(HOUR - 90)
    cluster.submit("d", "1:ppn=2", 600)
    cluster.at(HOUR + 100)
    assert cluster.planned_node_names("c") == gone
    cluster.at(HOUR + 201)
    assert cluster.planned_node_names("c") != gone


def test_shorter_job_of_lower_priority_delays_no_job_of_higher_priority() -> None:
    def wide(priority: int) -> int | None:
        cluster = shortest(2, site={"priority": {"wish": 1.0}}, slack="20h+0.5w")
        cluster.submit("n1", "1:ppn=4", 2 * HOUR)
        cluster.submit("n2", "1:ppn=4", 2 * HOUR, runtime=HOUR)
        cluster.submit("wide", "2:ppn=4", 5 * HOUR, priority=priority)
        cluster.at(HOUR - 60)
        cluster.submit("narrow", "1:ppn=4", 2 * HOUR)
        cluster.at(HOUR + 1)
        return cluster.start("wide")

    assert wide(0) == 3 * HOUR
    assert wide(100) == 2 * HOUR


def test_expected_starts_follow_the_backfill_rule_during_reevaluation_but_not_while_paused() -> None:
    cluster = shortest()
    state = cluster.engine.state
    assert (is_backfilling(state), backfill_rule(state) is not None) == (True, True)
    state.to_reevaluate = {"a queue": ()}
    assert (is_backfilling(state), backfill_rule(state) is not None) == (False, True)
    state.to_reevaluate = {}
    cluster.engine.pause("upgrade")
    assert (is_backfilling(state), backfill_rule(state) is not None) == (False, False)
