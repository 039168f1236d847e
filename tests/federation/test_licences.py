"""Licences shared by clusters: no copy is used twice despite cuts, delays, losses and kills."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.federation.events import LicenceLeased, decode, encode
from schedd.federation.licences import ClusterLicenceUse, LicenceGrant, LicencePools, share_copies
from tests.property_examples import examples

NAMES = ("a", "b", "c")
COPIES = 10


@pytest.mark.parametrize(
    ("copies", "wanted", "found"),
    [
        (10, {"a": 0, "b": 0}, {"a": 5, "b": 5}),
        (10, {"a": 2, "b": 0, "c": 0}, {"a": 5, "b": 3, "c": 2}),
        (10, {"a": 2, "b": 50}, {"a": 2, "b": 8}),
        (10, {"a": 50, "b": 50}, {"a": 5, "b": 5}),
        (7, {"a": 50, "b": 50, "c": 1}, {"a": 3, "b": 3, "c": 1}),
        (0, {"a": 3}, {"a": 0}),
        (-2, {"a": 3}, {"a": 0}),
    ],
)
def test_licence_copies_follow_demand(copies: int, wanted: dict[str, int], found: dict[str, int]) -> None:
    assert share_copies(copies, wanted) == found


@given(st.integers(0, 50), st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 40), min_size=1))
def test_sharing_is_max_min_fair(copies: int, wanted: dict[str, int]) -> None:
    found = share_copies(copies, wanted)
    assert sum(found.values()) == copies
    if sum(wanted.values()) >= copies:
        assert all(found[name] <= wanted[name] for name in wanted)
    else:
        assert all(found[name] >= wanted[name] for name in wanted)


@dataclass
class LicenceSite:
    """A cluster: starts jobs while it counts on free copies, and takes no lease that comes late."""

    chance: random.Random
    copies: int = 0
    number: int = 0
    held: int = 0
    wanted: int = 0
    cut: bool = False
    late: list[LicenceGrant] = field(default_factory=list)

    def live(self) -> None:
        match self.chance.randrange(3):
            case 0:
                self.wanted = min(20, self.wanted + self.chance.randrange(4))
            case 1 if self.wanted and self.held < self.copies:
                self.wanted, self.held = self.wanted - 1, self.held + 1
            case 2 if self.held and self.chance.random() < 0.4:
                self.held -= 1
            case _:
                pass

    def handle_grant(self, grant: LicenceGrant) -> ClusterLicenceUse:
        if grant.number > self.number:
            self.copies, self.number = grant.copies, grant.number
        return ClusterLicenceUse(self.copies, self.number, self.held, self.wanted)


class LicenceLender:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.log: list[str] = []
        self.lossy = True
        self.kill()

    def kill(self) -> None:
        self.licences = LicencePools({"l": COPIES}, NAMES)
        for text in self.log:
            event = decode(text)
            assert isinstance(event, LicenceLeased)
            self.licences.apply(event)

    def commit(self, events: list[LicenceLeased]) -> None:
        for event in events:
            self.log.append(encode(event))
            self.licences.apply(event)

    def exchange(self, name: str, sites: dict[str, LicenceSite]) -> None:
        """One round with a cluster; requests come late or not at all, answers are lost."""
        site = sites[name]
        reachable = [one for one in NAMES if not sites[one].cut]
        for grant in list(self.licences.pending_grants(name, reachable, 0)):
            if grant.raised is not None:
                self.commit([grant.raised])
            if site.cut or (self.lossy and self.chance.random() < 0.1):
                site.late.append(grant)  # it may yet come
                self.licences.forget_answers(name)
                return
            lent = site.handle_grant(grant)
            if self.lossy and self.chance.random() < 0.1:
                self.licences.forget_answers(name)
                return
            self.commit(self.licences.apply_answer(grant, lent, 0))


def used(sites: dict[str, LicenceSite]) -> Iterator[int]:
    for site in sites.values():
        yield max(site.copies, site.held)


@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(150))
def test_no_licence_copy_is_used_twice(seed: int) -> None:
    chance = random.Random(seed)
    sites = {name: LicenceSite(chance) for name in NAMES}
    lender = LicenceLender(chance)
    for _ in range(400):
        site = chance.choice(list(sites.values()))
        if chance.random() < 0.05:
            site.cut = not site.cut
        if site.late and chance.random() < 0.2:
            site.handle_grant(site.late.pop(chance.randrange(len(site.late))))
        if chance.random() < 0.03:
            lender.kill()
        lender.exchange(chance.choice(NAMES), sites)
        for one in sites.values():
            one.live()
        assert sum(used(sites)) <= COPIES, sites
    # After all faults end, no demand waits while copies are free.
    for one in sites.values():
        one.cut = False
        one.wanted = 20
    lender.lossy = False
    for _ in range(12):
        for name in NAMES:
            lender.exchange(name, sites)
    assert sum(used(sites)) == COPIES


def lender(**bounds: int) -> LicencePools:
    found = LicencePools({"l": COPIES}, NAMES)
    for name, copies in bounds.items():
        found.apply(LicenceLeased(job="", time=0, licence="l", cluster=name, copies=copies, number=1))
    return found


def grant(licences: LicencePools, cluster: str, reachable: str = "abc") -> LicenceGrant:
    (found,) = licences.pending_grants(cluster, reachable, 0)
    return found


def answer_grant(licences: LicencePools, cluster: str, lent: ClusterLicenceUse) -> list[LicenceLeased]:
    events = licences.apply_answer(LicenceGrant("l", cluster, lent.copies, lent.number), lent, 0)
    for event in events:
        licences.apply(event)
    return events


def test_nothing_is_leased_before_all_clusters_answered() -> None:
    licences = lender()
    assert grant(licences, "a") == LicenceGrant("l", "a", 0, 0)  # it only looks
    answer_grant(licences, "a", ClusterLicenceUse(0, 0, 0, 5))
    answer_grant(licences, "b", ClusterLicenceUse(0, 0, 0, 0))
    assert grant(licences, "a").raised is None
    answer_grant(licences, "c", ClusterLicenceUse(4, 9, 0, 0))  # it has some, of an earlier log
    assert licences.free_copies("l") == 6
    raised = grant(licences, "a").raised
    assert raised is not None
    assert raised.copies <= 6


def test_unreachable_cluster_keeps_its_licences() -> None:
    licences = lender(a=4, b=6, c=0)
    answer_grant(licences, "a", ClusterLicenceUse(4, 1, 4, 9))
    answer_grant(licences, "c", ClusterLicenceUse(0, 1, 0, 9))
    assert licences.free_copies("l") == 0
    assert grant(licences, "a", "ac").copies == 2  # they share the four that b does not have
    assert grant(licences, "c", "ac").raised is None
    events = answer_grant(licences, "a", ClusterLicenceUse(2, 2, 4, 9))  # its jobs still hold four
    assert events == [] or events[0].copies == 4
    assert licences.free_copies("l") == 0
    answer_grant(licences, "a", ClusterLicenceUse(2, 2, 2, 9))
    raised = grant(licences, "c", "ac").raised
    assert raised is not None
    assert raised.copies == 2


def test_refusing_cluster_gets_no_grants() -> None:
    licences = lender(a=0, b=0)
    for event in licences.apply_refusal(LicenceGrant("l", "c", 0, 0), "not here", 0):
        licences.apply(event)
    assert licences.pending_grants("c", "abc", 0) == []
    answer_grant(licences, "a", ClusterLicenceUse(0, 1, 0, 3))
    answer_grant(licences, "b", ClusterLicenceUse(0, 1, 0, 0))
    assert grant(licences, "a").copies == 7
    again = LicencePools({"l": COPIES}, NAMES)
    for event in licences.lease_events(0):
        again.apply(event)
    assert again.pools["l"].bounds == {"a": 0, "b": 0, "c": 0}
    assert licences.pending_grants("c", "abc", 600) == [LicenceGrant("l", "c", 0, 0)]  # it only looks
    answer_grant(licences, "c", ClusterLicenceUse(0, 0, 0, 9))  # its site lends the licence now
    raised = grant(licences, "c").raised
    assert raised is not None
    assert raised.copies == 7


def test_cluster_that_rejects_the_federation_keeps_its_licences() -> None:
    licences = lender(a=4, b=6, c=0)
    assert licences.apply_refusal(LicenceGrant("l", "b", 6, 1), "not the role", 0, keeps=True) == []
    answer_grant(licences, "a", ClusterLicenceUse(4, 1, 4, 9))
    assert grant(licences, "a").raised is None
    assert licences.free_copies("l") == 0
