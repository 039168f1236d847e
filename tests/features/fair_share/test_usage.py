"""Usage: windows, decay, and checkpoints."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.features.fair_share.tree import Names, ShareTree
from schedd.features.fair_share.usage import RATE_UNIT, ChargedRun, Usage

HOUR = 3600
TREE = ShareTree(
    levels=("group", "user"),
    shares={"physics": 3.0, "biology": 1.0, "physics/ann": 2.0, "physics/bob": 1.0},
    interval=HOUR,
    decay=0.5,
    depth=4,
)
LONG = ShareTree(interval=HOUR, decay=0.5, depth=20)
ANN, BOB, EVE = ("physics", "ann"), ("physics", "bob"), ("biology", "eve")


def charged(owner: Names, cpus: int, start: int, end: int, waited: int = 0) -> ChargedRun:
    return ChargedRun(owner, RATE_UNIT * cpus, start, end, waited)


def empty() -> Usage:
    return Usage(("group", "user"), HOUR)


def used(*held: ChargedRun, now: int, running: tuple[ChargedRun, ...] = ()) -> dict[tuple[str, ...], float]:
    usage = empty()
    for one in held:
        usage.record(one)
    return {path: cpus for path, (cpus, _) in usage.decayed(TREE, now, running).items()}


def test_job_counts_in_the_windows_it_ran_in() -> None:
    """Half an hour of the window before last and all of the last, halved."""
    job = charged(ANN, 4, HOUR // 2, 2 * HOUR)
    assert used(job, now=2 * HOUR) == {ANN: 4 * HOUR * 0.5 + 4 * (HOUR // 2) * 0.25}


def test_usage_is_forgotten_after_the_last_window() -> None:
    job = charged(ANN, 1, 0, HOUR)
    assert [used(job, now=hours * HOUR).get(ANN) for hours in range(6)] == [3600, 1800, 900, 450, 0, 0]


def test_running_job_counts_until_now() -> None:
    job = charged(ANN, 2, 0, 10 * HOUR)
    assert used(now=HOUR + 60, running=(job,)) == {ANN: 2 * HOUR * 0.5 + 2 * 60}
    # Nothing is counted twice, or lost, when it ends.
    assert used(charged(ANN, 2, 0, HOUR + 60), now=HOUR + 60) == used(now=HOUR + 60, running=(job,))


def test_end_of_a_run_counts_at_once_also_after_a_query_in_the_same_window() -> None:
    usage = empty()
    usage.record(charged(ANN, 1, 0, 60, waited=5))
    job = charged(ANN, 2, 60, 10 * HOUR)
    before = usage.decayed(TREE, 160, (job,))
    usage.record(charged(ANN, 2, 60, 160, waited=7))
    assert before == {ANN: (60 + 2 * 100, 5)}
    assert usage.decayed(TREE, 160) == {ANN: (60 + 2 * 100, 5 + 7)}


def test_forgotten_windows_stay_forgotten_for_a_deeper_tree() -> None:
    """The depth is lowered and raised again within a window."""
    usage = empty()
    usage.record(charged(ANN, 1, 0, HOUR))
    usage.record(charged(ANN, 1, 3 * HOUR - 1, 3 * HOUR))
    assert usage.decayed(TREE, 3 * HOUR) == {ANN: (HOUR / 8 + 1 / 2, 0)}
    usage.forget(ShareTree(interval=HOUR, decay=0.5, depth=2), 3 * HOUR)
    assert usage.decayed(TREE, 3 * HOUR) == Usage.load(usage.saved()).decayed(TREE, 3 * HOUR)


def test_end_that_is_heard_late_leaves_the_saved_usage_of_a_restored_engine() -> None:
    usage = empty()
    now = 100 * HOUR
    usage.forget(TREE, now)
    usage.record(charged(ANN, 1, 0, HOUR))
    restored = Usage.load(usage.saved())
    usage.forget(TREE, now)
    restored.forget(TREE, now)
    assert usage.saved() == restored.saved()


_JOBS = st.lists(
    st.builds(
        lambda path, cpus, start, length, waited: charged(path, cpus, start, start + length, waited),
        st.sampled_from([ANN, BOB, EVE]),
        st.integers(1, 64),
        st.integers(0, 5 * HOUR),
        st.integers(1, 5 * HOUR),
        st.integers(0, HOUR),
    ),
    max_size=20,
)


@given(_JOBS, st.randoms(use_true_random=False))
def test_order_in_which_jobs_end_does_not_matter(jobs: list[ChargedRun], random: object) -> None:
    one, other = empty(), empty()
    for held in jobs:
        one.record(held)
    random.shuffle(jobs)  # type: ignore[attr-defined]
    for held in jobs:
        other.record(held)
    assert one.saved() == other.saved()
    assert list(one.decayed(TREE, 6 * HOUR).items()) == list(other.decayed(TREE, 6 * HOUR).items())


@given(_JOBS)
def test_job_windows_add_up_to_its_usage(jobs: list[ChargedRun]) -> None:
    forever = ShareTree(interval=HOUR, decay=1.0, depth=100)
    usage = empty()
    for held in jobs:
        usage.record(held)
    total = usage.decayed(forever, 20 * HOUR)
    for path in (ANN, BOB, EVE):
        mine = [held for held in jobs if held.owner == path]
        expected = (sum(h.rate / RATE_UNIT * (h.end - h.start) for h in mine), sum(h.waited for h in mine))
        assert total.get(path, (0, 0)) == expected


@given(_JOBS, st.integers(0, 12 * HOUR))
def test_forgetting_changes_nothing_that_counts_and_a_saved_usage_goes_on(
    jobs: list[ChargedRun], now: int
) -> None:
    usage = empty()
    for held in jobs:
        usage.record(held)
    before = {path: both for path, both in usage.decayed(TREE, now).items() if any(both)}
    again = Usage.load(json.loads(json.dumps(usage.saved())))
    assert again.saved() == usage.saved()
    again.forget(TREE, now)
    assert {path: both for path, both in again.decayed(TREE, now).items() if any(both)} == before
    assert all(
        window > now // HOUR - TREE.depth for _, rows in again.saved()["owners"] for window, *_ in rows
    )


@given(_JOBS, st.lists(st.sampled_from([9 * HOUR, 9 * HOUR + 60, 10 * HOUR]), min_size=20, max_size=20))
def test_queries_do_not_change_usage(jobs: list[ChargedRun], moments: list[int]) -> None:
    asked = empty()
    for i, (held, now) in enumerate(zip(jobs, moments, strict=False)):
        asked.record(held)
        fresh = empty()
        for one in jobs[: i + 1]:
            fresh.record(one)
        assert asked.decayed(LONG, now) == fresh.decayed(LONG, now)
    other = ShareTree(interval=HOUR, decay=0.7, depth=20)
    again = Usage.load(asked.saved())
    assert asked.decayed(other, 10 * HOUR) == again.decayed(other, 10 * HOUR)


def test_wait_counts_in_the_last_window() -> None:
    usage = empty()
    usage.record(charged(ANN, 2, 0, HOUR, waited=60))
    usage.record(charged(BOB, 1, HOUR, HOUR, waited=30))
    usage.record(charged(EVE, 1, HOUR - 1, HOUR + 1, waited=20))
    found = usage.decayed(ShareTree(interval=HOUR, decay=0.5, depth=2), HOUR)
    assert found[EVE] == (0.5 + 1, 20)
    assert found[ANN] == (0.5 * 2 * HOUR, 0.5 * 60)
    assert found[BOB] == (0, 30)


def plain_decayed(
    tree: ShareTree, ended: list[ChargedRun], running: list[ChargedRun], now: int
) -> dict[Names, float]:
    """Each second of each job by itself."""
    found: dict[Names, float] = {}
    for held in (*ended, *running):
        used = sum(
            held.rate / RATE_UNIT * tree.decay**age
            for second in range(held.start, min(held.end, now))
            if 0 <= (age := now // tree.interval - second // tree.interval) < tree.depth
        )
        found[held.owner] = found.get(held.owner, 0.0) + used
    return found


_SHORT = st.lists(
    st.builds(
        lambda path, cpus, start, length: charged(path, cpus, start, start + length),
        st.sampled_from([ANN, BOB]),
        st.integers(1, 4),
        st.integers(0, 1000),
        st.integers(0, 1000),
    ),
    max_size=6,
)


@given(_SHORT, _SHORT, st.integers(60, 120), st.integers(1, 8))
def test_usage_equals_the_sum_over_seconds(
    ended: list[ChargedRun], running: list[ChargedRun], interval: int, depth: int
) -> None:
    tree = ShareTree(interval=interval, decay=0.5, depth=depth)
    now = max((held.end for held in ended), default=1000)
    usage = Usage(tree.levels, interval, depth)
    for held in ended:
        usage.record(held)
    found = usage.decayed(tree, now, running)
    expected = plain_decayed(tree, ended, running, now)
    assert {path: used for path, (used, _) in found.items()} == pytest.approx(expected)


def test_counting_cost_is_bounded_by_the_depth() -> None:
    """A clock that jumps makes runs of half a century: 28 million windows of a minute."""
    tree = ShareTree(interval=60, depth=60)
    usage = Usage(tree.levels, 60, 60)
    now = 1_700_000_000
    usage.record(charged(ANN, 4, 0, now))
    assert len(usage.saved()["owners"][0][1]) == 60
    many = [charged(BOB, 1, number, 2 * now) for number in range(5_000)]
    found = usage.decayed(tree, now, many)
    assert found[BOB][0] == pytest.approx(5_000 / 4 * found[ANN][0])
