"""Offers for bags of tasks: the examples of the text, and its two defects mended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.federation.bags.offers import ClusterOffer, SharingRule, split_tasks


def test_thesis_example_ends_at_100_and_not_at_200() -> None:
    """Taking the largest offer that meets the deadline first would end at 200."""
    offers = [
        ClusterOffer("1", 256, 40),
        ClusterOffer("1", 512, 100),
        ClusterOffer("2", 128, 40),
        ClusterOffer("2", 512, 200),
        ClusterOffer("3", 64, 40),
        ClusterOffer("3", 512, 200),
    ]
    split = split_tasks(offers, 512, 40)
    assert split is not None
    assert (split.shares, split.end, split.met) == ({"2": 128, "3": 64, "1": 320}, 100, False)


def test_shares_never_exceed_offers() -> None:
    """As printed, the last of a group takes the rest: 194 of an offer of 100."""
    offers = [ClusterOffer(name, 100, 40) for name in "abc"]
    split = split_tasks(offers, 297, 40, SharingRule.POWER, {"a": 98, "b": 1, "c": 1})
    assert split is not None
    assert sum(split.shares.values()) == 297
    assert max(split.shares.values()) <= 100
    assert split.shares["a"] == 100


def test_shares_add_up_to_the_tasks() -> None:
    """As printed they sum up to 513."""
    offers = [
        ClusterOffer("a", 400, 40),
        ClusterOffer("b", 200, 40),
        ClusterOffer("c", 200, 40),
        ClusterOffer("d", 100, 40),
    ]
    power = {"a": 430, "b": 240, "c": 128, "d": 140}
    split = split_tasks(offers, 512, 40, SharingRule.POWER, power)
    assert split is not None
    assert sum(split.shares.values()) == 512
    assert split.shares["b"] > split.shares["c"]


def test_cluster_with_less_waiting_work_gets_more() -> None:
    offers = [ClusterOffer("a", 100, 40), ClusterOffer("b", 100, 40)]
    split = split_tasks(offers, 100, 40, SharingRule.LOAD, {"a": 10, "b": 10}, {"a": 3, "b": 0})
    assert split is not None
    assert split.shares == {"a": 20, "b": 80}


def test_default_rule_uses_fewest_clusters() -> None:
    offers = [ClusterOffer("a", 300, 40), ClusterOffer("b", 300, 30), ClusterOffer("c", 500, 40)]
    split = split_tasks(offers, 500, 40)
    assert split is not None
    assert split.shares == {"c": 500}


def test_insufficient_offers_make_no_split() -> None:
    assert split_tasks([ClusterOffer("a", 3, 40), ClusterOffer("a", 5, 90)], 6, 40) is None
    assert split_tasks([], 1, 40) is None


@pytest.mark.parametrize(("balance", "name"), [(SharingRule.POWER, "power"), (SharingRule.LOAD, "power")])
def test_sharing_rule_names_missing_data(balance: SharingRule, name: str) -> None:
    with pytest.raises(ValueError, match=f"needs the {name} of every provider"):
        split_tasks([ClusterOffer("a", 3, 40)], 3, 40, balance)
    with pytest.raises(ValueError, match="0 tasks"):
        split_tasks([], 0, 40)


_OFFERS = st.lists(
    st.builds(ClusterOffer, st.sampled_from("abcd"), st.integers(0, 300), st.sampled_from([10, 20, 30, 40])),
    max_size=12,
)


@given(_OFFERS, st.integers(1, 600), st.sampled_from([5, 20, 40]), st.sampled_from(list(SharingRule)))
def test_every_split_is_exact_feasible_and_earliest(
    offers: list[ClusterOffer], tasks: int, deadline: int, balance: SharingRule
) -> None:
    numbers = {name: float(number) for number, name in enumerate("abcd", 1)}
    split = split_tasks(offers, tasks, deadline, balance, numbers, numbers)

    def most(name: str, end: int) -> int:
        return max((o.tasks for o in offers if o.provider == name and o.end <= end), default=0)

    reach = {end: sum(most(name, end) for name in "abcd") for end in (10, 20, 30, 40)}
    if split is None:
        assert reach[40] < tasks
        return
    assert sum(split.shares.values()) == tasks
    limit = max(split.end, deadline) if split.met else split.end
    for name, share in split.shares.items():
        assert 0 < share <= most(name, limit)
    earliest = min(end for end, sum_ in reach.items() if sum_ >= tasks)
    assert split.met == (earliest <= deadline)
    assert split.end <= deadline if split.met else split.end == earliest
