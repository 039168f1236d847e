"""Fair-share tree: target and received shares, against a plain reference; bad trees."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schedd.features.fair_share.tree import Names, Place, RatedTree, ShareRow, ShareTree
from schedd.policy.demand import demand
from schedd.policy.priority import SiteWeights, priority
from schedd.policy.protocol import Applicant

TREE = ShareTree(
    levels=("group", "user"),
    shares={"physics": 3.0, "biology": 1.0, "physics/ann": 2.0, "physics/bob": 1.0},
)
ANN, BOB, EVE = ("physics", "ann"), ("physics", "bob"), ("biology", "eve")


def rate(
    tree: ShareTree, used: dict[Names, tuple[float, float]], owners: tuple[Names, ...] = ()
) -> dict[Place, ShareRow]:
    return {row.place: row for row in RatedTree(tree, 0, owners, used).rows()}


def test_targets_are_share_products_and_usage_is_relative() -> None:
    rows = rate(TREE, {ANN: (600.0, 60.0), EVE: (200.0, 0.0)}, (BOB,))
    assert [rows[p].target for p in (("physics",), ("biology",), ANN, BOB, EVE)] == [
        pytest.approx(x) for x in (0.75, 0.25, 0.5, 0.25, 0.25)
    ]
    assert [rows[p].usage for p in (("physics",), ("biology",), ANN, BOB, EVE)] == [0.75, 0.25, 0.75, 0, 0.25]
    assert (rows[ANN].waited, rows[BOB].waited) == (0.1, 0.0)
    assert rows[("physics",)].used == 600


def test_unused_leaf_inherits_group_usage() -> None:
    """Worked by hand: physics has used just its 3/4, all by ann. Bob's part of it, 1/3, counts as his."""
    rows = {
        place: row.factor for place, row in rate(TREE, {ANN: (600.0, 0), EVE: (200.0, 0)}, (BOB,)).items()
    }
    assert rows[("physics",)] == rows[("biology",)] == rows[EVE] == 0.5
    assert rows[BOB] == pytest.approx(2 ** -(0.75 / 3 / 0.25))
    assert rows[ANN] == 2 ** -(0.75 / 0.5)


def test_groups_nest_to_any_depth() -> None:
    """Worked by hand: 1/4 of the whole for theory, of that 1/2 for strings, of that 1/2 for ann."""
    tree = ShareTree(
        levels=("account", "user"),
        shares={"science": 1, "arts": 1, "physics": 1, "biology": 1, "theory": 1, "strings": 1, "loops": 1},
        parents={
            "strings": "theory",
            "loops": "theory",
            "theory": "physics",
            "physics": "science",
            "biology": "science",
        },
    )
    rows = rate(
        tree, {("strings", "ann"): (100.0, 0.0), ("arts", "eve"): (300.0, 0.0)}, (("strings", "bob"),)
    )
    ann = ("science", "physics", "theory", "strings", "ann")
    assert rows[ann].target == 1 / 2 / 2 / 2 / 2
    assert rows[ann[:3]].target == 1 / 4
    assert [rows[ann[:n]].usage for n in range(1, 6)] == [0.25] * 5
    # Half of strings' effective usage counts for bob, who used nothing.
    assert rows[ann].effective_usage == 0.25
    assert rows[(*ann[:4], "bob")].effective_usage == 0.25 / 2


def test_unlisted_names_share_the_part_of_their_group() -> None:
    tree = ShareTree(levels=("user",), shares={"staff": 3, "others": 1, "ann": 1}, parents={"ann": "staff"})
    tree = ShareTree(**tree.model_dump(exclude={"unlisted_group"}), unlisted_group="others")
    rows = rate(tree, {("x",): (1.0, 0.0)}, (("ann",), ("y",)))
    assert rows["others", "x"].target == rows["others", "y"].target == 1 / 8
    assert rows["staff", "ann"].target == 3 / 4


def test_user_with_the_name_of_a_group_below_his_account_has_a_place_of_his_own() -> None:
    tree = ShareTree(
        levels=("account", "user"), shares={"physics": 1, "theory": 1}, parents={"theory": "physics"}
    )
    rows = rate(tree, {("physics", "theory"): (1.0, 0.0), ("theory", "ann"): (3.0, 0.0)})
    assert rows["physics", "theory (user)"].used == 1
    assert rows["physics", "theory"].used == 3


def test_equal_factors_without_usage_and_lowest_without_share() -> None:
    rows = rate(TREE, {}, (ANN, BOB, EVE))
    assert {rows[one].factor for one in (ANN, BOB, EVE)} == {1.0}
    none = ShareTree(levels=("user",), shares={"bob": 0.0})
    rows = rate(none, {("ann",): (1.0, 0.0)}, (("bob",),))
    assert (rows[("ann",)].factor, rows[("bob",)].factor) == (0.5, 0.0)


def test_factor_decreases_with_usage() -> None:
    low, high = (rate(TREE, {ANN: (x, 0.0), EVE: (500.0, 0.0)}) for x in (100.0, 900.0))
    assert low[ANN].factor > high[ANN].factor
    assert low[EVE].factor < high[EVE].factor


def test_underused_share_goes_first() -> None:
    ann = Applicant(id="1", owner="ann", queue="q", submitted=0)
    bob = replace(ann, owner="bob")
    shares = RatedTree(ShareTree(levels=("user",)), 0, [("ann",), ("bob",)], {("ann",): (100.0, 0.0)})
    around = demand([ann, bob], shares=shares)
    weights = SiteWeights(fair_share=100.0)
    found = [priority(one, 0, around, weights).terms for one in (ann, bob)]
    assert [[term.points for term in terms if term.name == "fair_share"] for terms in found] == [
        [25.0],
        [100.0],
    ]


def test_job_belongs_to_its_named_leaf() -> None:
    job = Applicant(id="1", owner="ann@host", queue="long", submitted=0, group="physics", project="p")
    assert TREE.names(job) == ANN
    assert ShareTree(levels=("account", "user")).names(job) == ("-", "ann")
    assert ShareTree(levels=("queue", "project")).names(job) == ("long", "p")


@given(st.lists(st.tuples(*(st.sampled_from(["", "a", "b@h", "c"]) for _ in range(5))), max_size=8))
def test_owners_of_many_jobs_are_those_of_each(names: list[tuple[str, ...]]) -> None:
    jobs = [
        Applicant(id="1", submitted=0, account=a, project=b, group=c, owner=d, queue=e)
        for a, b, c, d, e in names
    ]
    for levels in (("user",), ("account", "user"), ("queue", "project", "group")):
        tree = ShareTree(levels=levels)
        assert tree.owners(jobs) == {tree.names(one) for one in jobs}


def test_places_of_users_are_known() -> None:
    tree = ShareTree(levels=("user",), shares={"staff": 1, "ann": 1}, parents={"ann": "staff"})
    assert RatedTree(tree, 0, [("bob",)], {}).users() == {("staff", "ann"): "ann", ("bob",): "bob"}
    assert RatedTree(TREE, 0, [EVE], {}).users() == {ANN: "ann", BOB: "bob", EVE: "eve"}
    assert RatedTree(ShareTree(levels=("account",)), 0, [("a",)], {}).users() == {}


@pytest.mark.parametrize(
    ("wrong", "setting", "reason"),
    [
        ({"levels": ()}, "levels", "needs at least one level"),
        ({"levels": ("user", "user")}, "levels", "each only once"),
        ({"interval": 0}, "interval", "greater than or equal to 60"),
        ({"depth": 0}, "depth", "greater than or equal to 1"),
        ({"depth": 1001}, "depth", "less than or equal to 1000"),
        ({"decay": 1.5}, "decay", "less than or equal to 1"),
        ({"unlisted": -1.0}, "unlisted", "greater than or equal to 0"),
        ({"shares": {"a/b/c": 1.0}}, "shares.a/b/c", "the tree has the levels group, user; parents nest"),
        ({"shares": {"a": -1.0}}, "shares.a", "greater than or equal to 0"),
        ({"shares": {"a//": 1.0}}, "shares.a//", "a name is empty"),
        ({"parents": {"a": "b"}}, "parents.a", "the parent 'b' is unknown"),
        ({"parents": {"a": "a"}}, "parents.a", "in a cycle: a -> a"),
        ({"parents": {"x": "a", "a": "b", "b": "c", "c": "a"}}, "parents.x", "in a cycle: a -> b -> c -> a"),
    ],
)
def test_a_tree_that_makes_no_sense_is_refused(wrong: dict[str, Any], setting: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason) as found:
        ShareTree(**wrong)
    assert ".".join(map(str, found.value.errors()[0]["loc"])) == setting


# ---- against a plain reference -----------------------------------------------------------------------

_NAMES = ["a", "b", "c", "d", "e"]
_SHARE = st.one_of(st.just(0.0), st.floats(1e-6, 1e9))


@st.composite
def _trees(draw: st.DrawFn) -> ShareTree:
    """A tree of groups of any depth below users or (account, user)."""
    levels: tuple[Any, ...] = draw(st.sampled_from([("user",), ("account", "user")]))
    parents: dict[str, str] = {}
    for i, name in enumerate(_NAMES[1:], 1):
        if draw(st.booleans()):
            parents[name] = draw(st.sampled_from(_NAMES[:i]))
    shares = {name: draw(_SHARE) for name in _NAMES}
    if len(levels) == 2:
        shares |= draw(st.dictionaries(st.sampled_from(["a/u", "b/u", "c/v", "e/w"]), _SHARE))
    return ShareTree(
        levels=levels,
        shares=shares,
        parents=parents,
        unlisted=draw(_SHARE),
        unlisted_group=draw(st.sampled_from(["", "c"])),
    )


def plain_rows(
    tree: ShareTree, used: dict[Names, float], owners: set[Names]
) -> dict[Place, tuple[float, ...]]:
    """Target, received share, effective usage and factor, each by its definition."""
    places = {tree.place(names)[:n] for names in owners for n in range(1, 10)}
    places |= {tree.place(tuple(key.split("/")))[:n] for key in tree.shares for n in range(1, 10)}
    total = sum(used.values())

    def part(place: Place) -> float:
        siblings = [one for one in places if len(one) == len(place) and one[:-1] == place[:-1]]
        shares = sum(tree.share(one) for one in siblings)
        return tree.share(place) / shares if shares else 0.0

    def target(place: Place) -> float:
        return part(place) * target(place[:-1]) if place else 1.0

    def usage(place: Place) -> float:
        mine = sum(amount for names, amount in used.items() if tree.place(names)[: len(place)] == place)
        return mine / total if total else 0.0

    def effective(place: Place) -> float:
        if len(place) == 1:
            return usage(place)
        return usage(place) + (effective(place[:-1]) - usage(place)) * part(place)

    def factor(place: Place) -> float:
        return 2 ** -(effective(place) / target(place)) if target(place) else 0.0

    return {one: (target(one), usage(one), effective(one), factor(one)) for one in places}


@given(_trees(), st.data())
def test_rows_equal_the_definitions(tree: ShareTree, data: st.DataObject) -> None:
    names: st.SearchStrategy[Names] = st.tuples(
        *(
            st.sampled_from([*_NAMES, "x", "y"]) if i == 0 else st.sampled_from("uvab")
            for i in range(len(tree.levels))
        )
    )
    used = data.draw(st.dictionaries(names, st.floats(0, 1e15), max_size=6))
    owners = data.draw(st.sets(names, max_size=4))
    found = rate(tree, {one: (amount, 0.0) for one, amount in used.items()}, tuple(owners))
    expected = plain_rows(tree, used, {*owners, *used})
    assert found.keys() == expected.keys()
    for place, numbers in expected.items():
        row = found[place]
        assert (row.target, row.usage, row.effective_usage, row.factor) == pytest.approx(
            numbers, rel=1e-6, abs=1e-9
        )
        assert (row.factor > 0) == (row.target > 0)


@given(_trees(), st.data())
def test_rows_do_not_depend_on_earlier_ones(tree: ShareTree, data: st.DataObject) -> None:
    names: st.SearchStrategy[Names] = st.tuples(*(st.sampled_from(_NAMES) for _ in tree.levels))
    usages = data.draw(st.lists(st.dictionaries(names, st.floats(0, 1e15), max_size=3), max_size=3))
    before: RatedTree | None = None
    for usage in usages:
        used = {one: (amount, 0.0) for one, amount in usage.items()}
        before = RatedTree(tree, 0, [tuple(_NAMES[: len(tree.levels)])], used, before)
        assert before.rows() == RatedTree(tree, 0, [tuple(_NAMES[: len(tree.levels)])], used).rows()
