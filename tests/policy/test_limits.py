"""What servers print of limits, and which of them concern a job."""

import pytest

from schedd.policy.access import Access
from schedd.policy.limits import Claim, Limit, format_limit, needs, parse_server_limits, strictest


@pytest.mark.parametrize(
    ("name", "text", "limits"),
    [
        ("max_running", "100", [Limit(amount=100)]),
        ("max_user_run", " 4 ", [Limit(amount=4, who="user")]),
        ("max_group_run", "0", [Limit(amount=0, who="group")]),
        ("max_user_res.ncpus", "64", [Limit(amount=64, what="cpus", who="user")]),
        ("max_group_res.mem", "2gb", [Limit(amount=2 << 20, what="mem", who="group")]),
        ("max_run_res.mem", "[u:ann=1048576w]", [Limit(amount=8 << 10, what="mem", who="user", name="ann")]),
        ("max_run_res.ngpus", "[o:PBS_ALL=8]", [Limit(amount=8, what="gpus")]),
        (
            "max_run",
            '[u:PBS_GENERIC=2],[u:"ann lee"=3], [g:staff=8],[p:PBS_GENERIC=4]',
            [
                Limit(amount=2, who="user"),
                Limit(amount=3, who="user", name="ann lee"),
                Limit(amount=8, who="group", name="staff"),
                Limit(amount=4, who="project"),
            ],
        ),
        ("resources_available.matlab", "5", [Limit(amount=5, what="matlab")]),
        ("resources_available.nodect", "5", []),
        ("resources_available.arch", "linux", []),
        ("max_run_soft", "[u:PBS_GENERIC=2]", []),
        ("max_queued", "[u:PBS_GENERIC=2]", []),
    ],
)
def test_server_limits_are_parsed(name: str, text: str, limits: list[Limit]) -> None:
    assert parse_server_limits({name: text}) == (tuple(limits), ())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("max_running", "many"),
        ("max_user_run", "-1"),
        ("max_run", "u:ann=3"),
        ("max_run", "[u:ann=3] and more"),
        ("max_run", "[x:ann=3]"),
        ("max_run", "[u:ann=3gb]"),
        ("max_run_res.ncpus", "[u:ann=]"),
        ("max_user_res.ncpus", "8gb"),
    ],
)
def test_unreadable_limits_are_reported(name: str, text: str) -> None:
    assert parse_server_limits({name: text}) == ((), (f"{name} = {text}",))


CLAIM = Claim(user="ann", group="staff", queue="long", amounts={"jobs": 1, "cpus": 8, "gpus": 0})


def test_named_limit_overrides_generic_limit() -> None:
    each, own = Limit(amount=2, who="user"), Limit(amount=5, who="user", name="ann")
    other = Limit(amount=1, who="user", name="bob")
    assert list(strictest([(each, own, other)], CLAIM).values()) == [own]
    assert list(strictest([(own, each, other)], CLAIM).values()) == [own]
    site = Limit(amount=3, who="user")
    (least,) = strictest([(each, own), (site,)], CLAIM).values()
    assert (least.amount, least.name) == (3, "ann")


def test_irrelevant_limits_are_ignored() -> None:
    limits = (
        Limit(amount=1, queue="short"),
        Limit(amount=2, who="account"),
        Limit(amount=3, who="project", name="p"),
        Limit(amount=4, queue="long"),
    )
    assert [limit.amount for limit in strictest([limits], CLAIM).values()] == [4]


def test_job_takes_its_amounts_from_each_pool() -> None:
    limits = (Limit(amount=4, what="cpus", who="group"), Limit(amount=9, what="gpus"), Limit(amount=3))
    found = strictest([limits], CLAIM)
    assert needs(found, CLAIM) == {"cpus of group staff": 8, "jobs of all": 1}


def test_limits_as_text() -> None:
    assert format_limit(Limit(amount=1, who="user", name="ann", queue="long")) == (
        "at most 1 job of user ann in queue long at once"
    )
    assert format_limit(Limit(amount=2048, what="mem")) == "at most 2mb of mem at once"


def test_single_access_match_is_sufficient() -> None:
    access = Access(users=frozenset({"ann"}), queues=frozenset({"course"}))
    assert access
    assert access.admits("ann@login", "", "", "batch")
    assert access.admits("bob", "x", "y", "course")
    assert not access.admits("bob", "ann", "ann", "batch")
    assert not Access()
