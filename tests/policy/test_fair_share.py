"""Fair share: charges, decay, and results."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.policy.fair_share import FairShare, Held, Path, Usage, factors, share_rows
from schedd.policy.protocol import Applicant

HOUR = 3600
TREE = FairShare(
    levels=("group", "user"),
    shares={("physics",): 3.0, ("biology",): 1.0, ("physics", "ann"): 2.0, ("physics", "bob"): 1.0},
    interval=HOUR,
    decay=0.5,
    depth=4,
)
LONG = FairShare(interval=HOUR, decay=0.5, depth=20)
ANN, BOB, EVE = ("physics", "ann"), ("physics", "bob"), ("biology", "eve")


def used(*held: Held, now: int, running: tuple[Held, ...] = ()) -> dict[tuple[str, ...], float]:
    usage = Usage(HOUR)
    for one in held:
        usage.book(one)
    return {path: cpus for path, (cpus, _) in usage.decayed(TREE, now, running).items()}


def test_job_counts_in_the_windows_it_ran_in() -> None:
    """Half an hour of the window before last and all of the last, halved."""
    job = Held(ANN, 4, HOUR // 2, 2 * HOUR)
    assert used(job, now=2 * HOUR) == {ANN: 4 * HOUR * 0.5 + 4 * (HOUR // 2) * 0.25}


def test_usage_is_forgotten_after_the_last_window() -> None:
    job = Held(ANN, 1, 0, HOUR)
    assert [used(job, now=hours * HOUR).get(ANN) for hours in range(6)] == [3600, 1800, 900, 450, 0, 0]


def test_running_job_counts_until_now() -> None:
    job = Held(ANN, 2, 0, 10 * HOUR)
    assert used(now=HOUR + 60, running=(job,)) == {ANN: 2 * HOUR * 0.5 + 2 * 60}
    # Nothing is counted twice, or lost, when it ends.
    assert used(Held(ANN, 2, 0, HOUR + 60), now=HOUR + 60) == used(now=HOUR + 60, running=(job,))


_JOBS = st.lists(
    st.builds(
        lambda path, cpus, start, length, waited: Held(path, cpus, start, start + length, waited),
        st.sampled_from([ANN, BOB, EVE]),
        st.integers(1, 64),
        st.integers(0, 5 * HOUR),
        st.integers(1, 5 * HOUR),
        st.integers(0, HOUR),
    ),
    max_size=20,
)


@given(_JOBS, st.randoms(use_true_random=False))
def test_order_in_which_jobs_end_does_not_matter(jobs: list[Held], random: object) -> None:
    one, other = Usage(HOUR), Usage(HOUR)
    for held in jobs:
        one.book(held)
    random.shuffle(jobs)  # type: ignore[attr-defined]
    for held in jobs:
        other.book(held)
    assert one.saved() == other.saved()
    assert list(one.decayed(TREE, 6 * HOUR).items()) == list(other.decayed(TREE, 6 * HOUR).items())


@given(_JOBS)
def test_job_windows_add_up_to_its_usage(jobs: list[Held]) -> None:
    forever = FairShare(interval=HOUR, decay=1.0, depth=100)
    usage = Usage(HOUR)
    for held in jobs:
        usage.book(held)
    total = usage.decayed(forever, 20 * HOUR)
    for path in (ANN, BOB, EVE):
        mine = [held for held in jobs if held.path == path]
        expected = (sum(h.cpus * (h.end - h.start) for h in mine), sum(h.waited for h in mine))
        assert total.get(path, (0, 0)) == expected


@given(_JOBS, st.integers(0, 12 * HOUR))
def test_forgetting_changes_nothing_that_counts_and_a_saved_usage_goes_on(jobs: list[Held], now: int) -> None:
    usage = Usage(HOUR)
    for held in jobs:
        usage.book(held)
    before = {path: both for path, both in usage.decayed(TREE, now).items() if any(both)}
    again = Usage.load(json.loads(json.dumps(usage.saved())), TREE)
    assert again.saved() == usage.saved()
    again.forget(TREE, now)
    assert {path: both for path, both in again.decayed(TREE, now).items() if any(both)} == before
    assert all(
        window > now // HOUR - TREE.depth for _, rows in again.saved()["leaves"] for window, *_ in rows
    )


@given(_JOBS, st.lists(st.sampled_from([9 * HOUR, 9 * HOUR + 60, 10 * HOUR]), min_size=20, max_size=20))
def test_queries_do_not_change_usage(jobs: list[Held], moments: list[int]) -> None:
    asked = Usage(HOUR)
    for i, (held, now) in enumerate(zip(jobs, moments, strict=False)):
        asked.book(held)
        fresh = Usage(HOUR)
        for one in jobs[: i + 1]:
            fresh.book(one)
        assert asked.decayed(LONG, now) == fresh.decayed(LONG, now)
    other = FairShare(interval=HOUR, decay=0.7, depth=20)
    again = Usage.load(asked.saved(), other)
    assert asked.decayed(other, 10 * HOUR) == again.decayed(other, 10 * HOUR)


def test_usage_saved_with_other_windows_or_tree_is_ignored() -> None:
    usage = Usage(HOUR)
    usage.book(Held(ANN, 1, 0, HOUR))
    saved = usage.saved()
    assert Usage.load(saved, FairShare(interval=2 * HOUR)).saved() == Usage(2 * HOUR).saved()
    assert Usage.load(saved, FairShare(levels=("user",), interval=HOUR)).saved() == Usage(HOUR).saved()


def test_targets_are_share_products_and_usage_is_relative() -> None:
    rows = {row.path: row for row in share_rows(TREE, {ANN: (600.0, 60.0), EVE: (200.0, 0.0)}, [BOB])}
    assert [rows[p].target for p in (("physics",), ("biology",), ANN, BOB, EVE)] == [
        pytest.approx(x) for x in (0.75, 0.25, 0.5, 0.25, 0.25)
    ]
    assert [rows[p].usage for p in (("physics",), ("biology",), ANN, BOB, EVE)] == [0.75, 0.25, 0.75, 0, 0.25]
    assert (rows[ANN].waited, rows[BOB].waited) == (0.1, 0.0)
    assert rows[("physics",)].used == 600


def test_unused_leaf_inherits_group_usage() -> None:
    """Worked by hand: physics has used just its 3/4, all by ann. Bob's part of it, 1/3, counts as his."""
    rows = {row.path: row.factor for row in share_rows(TREE, {ANN: (600.0, 0.0), EVE: (200.0, 0.0)}, [BOB])}
    assert rows[("physics",)] == rows[("biology",)] == rows[EVE] == 0.5
    assert rows[BOB] == 2 ** -(0.75 / 3 / 0.25)
    assert rows[ANN] == 2 ** -(0.75 / 0.5)


def test_equal_factors_without_usage_and_lowest_without_share() -> None:
    assert set(factors(TREE, {}, [ANN, BOB, EVE]).values()) == {1.0}
    none = FairShare(levels=("user",), shares={("bob",): 0.0}, interval=HOUR)
    assert factors(none, {("ann",): (1.0, 0.0)}, [("ann",), ("bob",)]) == {("ann",): 0.5, ("bob",): 0.0}


def test_factor_decreases_with_usage() -> None:
    low, high = (factors(TREE, {ANN: (x, 0.0), EVE: (500.0, 0.0)}, [ANN, BOB, EVE]) for x in (100.0, 900.0))
    assert low[ANN] > high[ANN]
    assert low[EVE] < high[EVE]


_SHARES = st.floats(0, 1e9, allow_nan=False)


@given(
    st.dictionaries(
        st.sampled_from([ANN, BOB, EVE, ("physics", "new"), ("-", "-")]),
        st.tuples(st.floats(0, 1e18), st.floats(0, 1e9)),
    ),
    st.dictionaries(st.sampled_from([("physics",), ("biology",), ANN, BOB, EVE]), _SHARES, max_size=5),
    _SHARES,
)
def test_factor_is_in_range_for_positive_targets(
    used: dict[tuple[str, ...], tuple[float, float]],
    shares: dict[tuple[str, ...], float],
    unlisted: float,
) -> None:
    tree = FairShare(shares=shares, unlisted=unlisted)
    for place in share_rows(tree, used, (ANN, BOB, EVE)):
        if place.target:
            assert 0 < place.factor <= 1
        else:
            assert place.factor == 0
        assert 0 <= place.target <= 1
        assert 0 <= place.usage <= 1


def test_job_belongs_to_its_named_leaf() -> None:
    job = Applicant(id="1", owner="ann@host", queue="long", submitted=0, group="physics", project="p")
    assert TREE.path(job) == ANN
    assert FairShare(levels=("account", "user")).path(job) == ("-", "ann")
    assert FairShare(levels=("queue", "project")).path(job) == ("long", "p")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"levels": ()}, "needs a level"),
        ({"levels": ("user", "user")}, "none twice"),
        ({"interval": 0}, "must be positive"),
        ({"decay": 1.5}, "decay from 0 to 1"),
        ({"shares": {("a", "b", "c"): 1.0}}, "share of a/b/c: the tree has the levels group, user"),
        ({"shares": {("a",): -1.0}}, "share of a: -1.0 is negative"),
    ],
)
def test_a_tree_that_makes_no_sense_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FairShare(**wrong)  # type: ignore[arg-type]


def test_wait_counts_in_the_last_window() -> None:
    usage = Usage(HOUR)
    usage.book(Held(ANN, 2, 0, HOUR, waited=60))
    usage.book(Held(BOB, 1, HOUR, HOUR, waited=30))
    usage.book(Held(EVE, 1, HOUR - 1, HOUR + 1, waited=20))
    found = usage.decayed(FairShare(interval=HOUR, decay=0.5, depth=2), HOUR)
    assert found[EVE] == (0.5 + 1, 20)
    assert found[ANN] == (0.5 * 2 * HOUR, 0.5 * 60)
    assert found[BOB] == (0, 30)


def test_minimum_depth_is_a_single_window() -> None:
    assert FairShare(depth=1, interval=1).depth == 1
    for wrong in ({"depth": 0}, {"interval": 0}, {"decay": 1.1}, {"unlisted": -0.1}):
        with pytest.raises(ValueError, match="must be positive"):
            FairShare(**wrong)


def plain_decayed(tree: FairShare, ended: list[Held], running: list[Held], now: int) -> dict[Path, float]:
    """Each second of each job by itself."""
    found: dict[Path, float] = {}
    for held in (*ended, *running):
        used = sum(
            held.cpus * tree.decay**age
            for second in range(held.start, min(held.end, now))
            if 0 <= (age := now // tree.interval - second // tree.interval) < tree.depth
        )
        found[held.path] = found.get(held.path, 0.0) + used
    return found


_SHORT = st.lists(
    st.builds(
        lambda path, cpus, start, length: Held(path, cpus, start, start + length),
        st.sampled_from([ANN, BOB]),
        st.integers(1, 4),
        st.integers(0, 200),
        st.integers(0, 200),
    ),
    max_size=6,
)


@given(_SHORT, _SHORT, st.integers(1, 60), st.integers(1, 8))
def test_usage_equals_the_sum_over_seconds(
    ended: list[Held], running: list[Held], interval: int, depth: int
) -> None:
    tree = FairShare(interval=interval, decay=0.5, depth=depth)
    now = max((held.end for held in ended), default=200)
    usage = Usage(interval, depth)
    for held in ended:
        usage.book(held)
    found = usage.decayed(tree, now, running)
    expected = plain_decayed(tree, ended, running, now)
    assert {path: used for path, (used, _) in found.items()} == pytest.approx(expected)


def test_counting_cost_is_bounded_by_the_depth() -> None:
    """A clock that jumps makes runs of half a century: 28 million windows of a minute."""
    tree = FairShare(interval=60, depth=60)
    usage = Usage(60, 60)
    now = 1_700_000_000
    usage.book(Held(ANN, 4, 0, now))
    assert len(usage.saved()["leaves"][0][1]) == 60
    many = [Held(BOB, 1, number, 2 * now) for number in range(5_000)]
    found = usage.decayed(tree, now, many)
    assert found[BOB][0] == pytest.approx(5_000 / 4 * found[ANN][0])


def test_a_deeper_tree_than_can_be_counted_is_refused() -> None:
    with pytest.raises(ValueError, match="depth 1001: at most 1000"):
        FairShare(depth=1001)
