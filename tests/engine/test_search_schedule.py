"""Times of searches, from the plan's changes and a clock."""

from dataclasses import replace

import pytest

from schedd.engine.plan_improvements import movable_slots
from schedd.engine.search_schedule import DueSearch, SearchHistory, due_search, next_search, requested_search
from schedd.wire import JobQueued
from tests.engine.cluster import Cluster

NOW = 1_000.0
"""The clock of searches is not the engine's."""
HISTORY = SearchHistory(whole=NOW, tried=NOW)


@pytest.fixture
def cluster() -> Cluster:
    """One node with job 1, which runs for an hour; 2 and 3 wait. The plan was searched in this state."""
    cluster = Cluster(search_every=300, search_pause=30, search_newcomers=5)
    cluster.submit("1", walltime=3600, runtime=1800)
    cluster.submit("2", walltime=7200)
    cluster.submit("3", walltime=600)
    return cluster


def searched(cluster: Cluster, search: DueSearch | None = None) -> SearchHistory:
    search = search or requested_search(cluster.engine.state)
    assert search is not None
    return HISTORY.after_begin(search).after_end(search, NOW)


def reasons(cluster: Cluster, seen: SearchHistory) -> list[tuple[float, str]]:
    """Return the changes of the due search in the seconds after the last one."""
    found: list[tuple[float, str]] = []
    for second in range(400):
        search = due_search(cluster.engine.state, seen, NOW + second)
        why = search.why if search is not None else ""
        if why != (found[-1][1] if found else ""):
            found.append((second, why))
    return found


def test_no_search_is_due_for_an_unchanged_plan(cluster: Cluster) -> None:
    seen = searched(cluster)
    assert reasons(cluster, seen) == []
    assert next_search(cluster.engine.state, seen) is None


def test_no_search_is_due_while_jobs_of_a_snapshot_arrive(cluster: Cluster) -> None:
    seen = searched(cluster)
    cluster.submit("4", walltime=60)
    state = cluster.engine.state
    assert due_search(state, seen, NOW + 300) is not None
    facts = cluster.record("4").facts
    state.arriving = {"5": JobQueued(id="e:5", time=state.now, job=replace(facts, id="5"))}
    assert due_search(state, seen, NOW + 300) is None
    assert next_search(state, seen) is None


def test_new_job_is_tried_soon_and_the_full_search_follows_after_the_period(cluster: Cluster) -> None:
    seen = searched(cluster)
    cluster.submit("4", walltime=60)
    assert reasons(cluster, seen) == [(5, "new jobs"), (300, "periodic")]
    assert next_search(cluster.engine.state, seen) == NOW + 5
    search = due_search(cluster.engine.state, seen, NOW + 5)
    assert search is not None
    assert search.newcomers is not None
    assert search.newcomers.tolist() == [cluster.record("4").slot]
    assert search.seconds == pytest.approx(0.1 * cluster.engine.state.settings.search_seconds)
    # It was tried: only the search of the whole plan is left.
    seen = seen.after_begin(search).after_end(search, NOW + 6)
    assert reasons(cluster, seen) == [(300, "periodic")]


def test_capacity_freed_early_starts_a_search_after_the_pause(cluster: Cluster) -> None:
    seen = searched(cluster)
    cluster.at(1800)
    cluster.submit("5", walltime=60)
    assert reasons(cluster, seen) == [(5, "new jobs"), (30, "cpus freed"), (300, "periodic")]


def test_a_search_that_moved_as_many_jobs_as_one_may_goes_on_after_the_pause(cluster: Cluster) -> None:
    search = requested_search(cluster.engine.state)
    assert search is not None
    seen = HISTORY.after_begin(search).after_end(search, NOW, unfinished=True)
    assert reasons(cluster, seen) == [(30, "continued")]
    assert not seen.after_begin(search).unfinished


def test_searches_may_be_off_wholly_or_for_newcomers() -> None:
    for settings, wanted in (({"search_every": 0}, []), ({"search_newcomers": 0}, [(300, "periodic")])):
        cluster = Cluster(**settings)
        for number in "123":
            cluster.submit(number)
        assert reasons(cluster, HISTORY) == wanted
        earliest = HISTORY.earliest(cluster.engine.state.settings)
        assert earliest == (NOW + 30 if wanted else None)


def test_a_pause_longer_than_the_period_does_not_delay_it() -> None:
    cluster = Cluster(search_every=100, search_pause=200, search_newcomers=0)
    for number in "123":
        cluster.submit(number)
    assert reasons(cluster, HISTORY) == [(100, "periodic")]


def test_with_one_job_to_move_or_under_a_queue_policy_nothing_is_due() -> None:
    one = Cluster()
    one.submit("1")
    one.submit("2")
    assert movable_slots(one.engine.state).shape[0] == 1
    easy = Cluster(policy="easy")
    for number in "1234":
        easy.submit(number)
    for cluster in (one, easy):
        assert requested_search(cluster.engine.state) is None
        assert reasons(cluster, HISTORY) == []


def test_no_search_is_due_before_the_earliest_moment_and_one_is_at_the_first(cluster: Cluster) -> None:
    for step in range(8):
        cluster.submit(f"{10 + step}", walltime=60 * (1 + step))
        for unfinished in (False, True):
            seen = SearchHistory(whole=NOW, tried=NOW + 3 * step, unfinished=unfinished)
            state = cluster.engine.state
            first, earliest = next_search(state, seen), seen.earliest(state.settings)
            assert first is not None
            assert earliest is not None
            assert earliest <= first
            assert due_search(state, seen, first - 0.001) is None
            assert due_search(state, seen, first) is not None
