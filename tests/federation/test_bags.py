"""Bags: every task once, wherever it is told to go, whatever is cut, killed or refused."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schedd.federation.bags.bags import (
    Bag,
    Bags,
    assign_tasks,
    bag_outcome,
    bag_settled,
    count_tasks,
    unassigned_tasks,
)
from schedd.federation.bags.events import BagOffered, BagSpecification, BagSubmitted
from schedd.federation.bags.issued_offers import BagOffer, IssuedOffers, offer_from_event
from schedd.federation.bags.offers import ClusterOffer, SharingRule, TaskSplit
from schedd.federation.events import decode, encode
from schedd.federation.routing.events import JobCancelled, JobFailed, JobSubmitted
from schedd.federation.routing.jobs import FederationJobs, ImpossibleError
from schedd.federation.state.bag_operations import OffersOutdatedError
from schedd.federation.workers.bag_offers import collect_offers, offered_task_counts, share_ends, split_offers
from tests.engine.cluster import T
from tests.federation.simulated_federation import SimulatedFederation


def asked(tasks: int, deadline: int = 210, **more: Any) -> BagSpecification:
    return BagSpecification({"nodes": "1:ppn=1", "walltime": "100"}, 100, 100, tasks, deadline, **more)


class BagFederation(SimulatedFederation):
    """Clusters of two nodes of four cpus each, and bags over them."""

    def bag(self, tasks: int, *, run: int = 100, key: str = "", alone: bool = False, **more: Any) -> str:
        """Asked for and taken."""
        self.array_figures(more.pop("array", 1000))
        one = asked(tasks, self.now + more.pop("deadline", 210), **more)
        users = self.federation.cluster_users("ann@org")
        names = one.clusters or tuple(self.clusters)
        found = collect_offers(
            self.federation,
            "ann@org",
            users,
            one,
            dict.fromkeys(names, offered_task_counts(tasks)),
            self.connect,
        )
        split = split_offers(self.federation, found, tasks, one.deadline, SharingRule.NONE)
        assert split is not None
        submission = {
            "script": "sleep 1",
            "resources": one.resources,
            "walltime": 100,
            "cpu_seconds": 100,
            "variables": {"RUN": str(run)},
        }
        ends = share_ends(found.offers, split)
        return self.federation.bag_operations.submit(
            "ann@org", submission, one, split.shares, ends, key, only_if_planned=alone
        ).id

    def array_figures(self, tasks: int) -> None:
        self.change(array=tasks)

    def change(self, **settings: Any) -> None:
        """Of the table `[bags]`."""
        bags = self.settings.bags.model_copy(update=settings)
        self.federation.settings = self.settings = self.settings.model_copy(update={"bags": bags})
        self.federation.bag_operations.array = bags.array

    def __getitem__(self, name: str) -> Bag:
        return self.federation.bags[name]

    def ran(self, name: str) -> Counter[int]:
        """How often each task of a bag was started, anywhere."""
        found: Counter[int] = Counter()
        for provider in self.clusters.values():
            for transfer, array in provider.handed.items():
                job = self.federation.jobs.by_id.get(transfer.split(".")[1])
                if job is None or job.bag != name:
                    continue
                head, _, rest = array.partition("[]")
                for one, times in provider.starts.items():
                    if one.startswith(f"{head}[") and one.endswith(rest):
                        found[int(one[len(head) + 1 : one.index("]")])] += times
        return found

    def over(self, name: str) -> str:
        return bag_outcome(self[name], self.federation.jobs)


@pytest.fixture
def town(tmp_path: Path) -> Iterator[BagFederation]:
    made = BagFederation(tmp_path, "abc")
    yield made
    made.close()


def test_a_bag_is_shared_out_as_arrays_and_every_task_runs_once(town: BagFederation) -> None:
    town.busy("a", 2, 1000)
    name = town.bag(30, deadline=250)
    shares = [town.federation.jobs[one] for one in town[name].shares]
    assert {job.clusters[0]: job.submission["array"] for job in shares} == {"b": "0-15", "c": "16-29"}
    town.go(20)
    assert {len(provider.handed) for provider in town.clusters.values()} == {0, 1}, "an array at each"
    town.go(300, 5)
    assert town.ran(name) == Counter(range(30))
    assert (town.over(name), bag_settled(town[name], town.federation.jobs)) == ("ended", True)
    assert not town.federation.bags.open
    assert town.federation.jobs[town[name].shares[0]].exit_status == 0


def test_a_share_larger_than_an_array_may_be_is_several(town: BagFederation) -> None:
    name = town.bag(30, array=8, clusters=("a",))
    assert [town.federation.jobs[one].submission["array"] for one in town[name].shares] == [
        "0-7",
        "8-15",
        "16-23",
        "24-29",
    ]
    town.go(600, 5)
    assert town.ran(name) == Counter(range(30))


def test_what_a_cluster_refuses_goes_to_the_next_best(town: BagFederation) -> None:
    town.clusters["b"].full = "too many jobs in the queue"
    name = town.bag(48)
    town.go(700, 5)
    assert town.ran(name) == Counter(range(48))
    assert {cluster: bool(provider.handed) for cluster, provider in town.clusters.items()} == {
        "a": True,
        "b": False,
        "c": True,
    }
    refused = [
        one for one in (town.federation.jobs[job] for job in town[name].shares) if one.over == "refused"
    ]
    assert [(one.clusters, one.text) for one in refused] == [(("b",), "b: too many jobs in the queue")]
    assert town.over(name) == "ended"


def test_where_all_refuse_the_rest_is_said_to_go_nowhere(town: BagFederation) -> None:
    for provider in town.clusters.values():
        provider.full = "no arrays here"
    name = town.bag(48)
    town.go(30)
    assert town[name].failed.startswith("48 tasks have no cluster: a: no arrays here; b: no arrays here")
    assert (town.over(name), bag_settled(town[name], town.federation.jobs)) == ("incomplete", True)
    assert not town.ran(name)


def test_a_share_that_a_cut_cluster_did_not_get_runs_elsewhere_and_never_there(town: BagFederation) -> None:
    name = town.bag(48)
    town.cut = {"b"}
    town.go(60)
    assert not unassigned_tasks(town[name], town.federation.jobs), "others have it by now"
    town.cut = set()
    town.go(700, 5)
    assert town.ran(name) == Counter(range(48))
    assert not town.clusters["b"].handed
    assert (town.over(name), bag_settled(town[name], town.federation.jobs)) == ("ended", True)


def test_a_share_that_was_let_go_stays_though_its_cluster_is_cut_off(town: BagFederation) -> None:
    name = town.bag(48)
    town.go(20)
    town.cut = {"b"}
    town.go(100)
    assert len(town[name].shares) == 3
    town.cut = set()
    town.go(700, 5)
    assert town.ran(name) == Counter(range(48))


def test_a_bag_that_is_taken_back_deletes_what_waits_and_lets_run_what_runs(town: BagFederation) -> None:
    name = town.bag(48)
    town.go(20)
    running = Counter(town.ran(name))
    assert 0 < len(running) < 48
    town.federation.bag_operations.cancel(name, "ann@org")
    town.federation.bag_operations.cancel(name, "ann@org")
    town.go(300, 5)
    assert town.ran(name) == running
    assert (town.over(name), bag_settled(town[name], town.federation.jobs)) == ("cancelled", True)
    assert not any(provider.server.jobs for provider in town.clusters.values())


def test_one_that_runs_is_not_asked_for_again_and_again_after_it_was_taken_back(town: BagFederation) -> None:
    name = town.bag(8, run=1000, clusters=("a",))
    town.go(20)
    town.federation.bag_operations.cancel(name, "ann@org")
    town.go(10)
    before = len(town.log.read())
    town.go(50)
    assert len(town.log.read()) == before


def test_a_bag_that_is_taken_back_before_it_is_anywhere_runs_nowhere(town: BagFederation) -> None:
    name = town.bag(48)
    town.federation.bag_operations.cancel(name, "ann@org")
    town.go(100, 5)
    assert not town.ran(name)
    assert (town.over(name), bag_settled(town[name], town.federation.jobs)) == ("cancelled", True)


def test_the_same_key_is_the_same_bag_also_after_a_kill(town: BagFederation) -> None:
    name = town.bag(10, key="k")
    assert town.bag(10, key="k") == name
    town.begin()
    assert town.bag(10, key="k") == name
    assert town.bag(10, key="l") != name


def test_a_second_taker_waits_until_the_first_ones_share_is_in_the_plan(town: BagFederation) -> None:
    town.bag(10, clusters=("a",), only_if_planned=True)
    with pytest.raises(OffersOutdatedError, match="given to a a moment ago"):
        town.bag(10, clusters=("a",), only_if_planned=True)
    town.bag(10, clusters=("b",), only_if_planned=True)
    town.go(10)
    town.bag(10, clusters=("a",), only_if_planned=True)


def test_a_bag_and_its_shares_are_forgotten_together(town: BagFederation) -> None:
    name = town.bag(10, clusters=("a",))
    town.go(300, 5)
    assert bag_settled(town[name], town.federation.jobs)
    gone = town.federation.bags.forget(town.federation.jobs, T + 10_000, list(town.federation.bags.by_id))
    assert gone == (name, *gone[1:])
    assert len(gone) == 2
    assert name not in town.federation.bags.by_id
    assert gone[1] not in town.federation.jobs.by_id


@pytest.mark.parametrize("on", [False, True])
def test_clusters_are_told_when_a_bag_ends_over_all_of_them(town: BagFederation, *, on: bool) -> None:
    town.change(coordinate=on)
    town.busy("a", 2, 300, runtime=250)
    name = town.bag(40, deadline=310)
    town.go(15)
    ends: dict[str, int] = {}
    for cluster, provider in town.clusters.items():
        state = provider.engine.state
        for record in state.records.values():
            if record.facts.array:
                ends[cluster] = max(state.plan.start(record.slot) + 100, ends.get(cluster, 0))
    assert len(set(ends.values())) > 1, ends
    told = {cluster: set(town.clusters[cluster].engine.state.bag_ends.values()) for cluster in ends}
    assert told == {cluster: {max(ends.values())} if on else set() for cluster in ends}
    town.go(700, 5)
    assert town.ran(name) == Counter(range(40))


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_lost_or_killed_every_task_runs_once(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 200))
def test_many_courses_of_losses_and_kills(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)


def play(directory: Path, seed: int) -> None:
    town = BagFederation(directory, "abc", seed)
    chance = town.chance
    names = {}
    for cluster in "abc":
        town.busy(cluster, chance.randint(0, 2), chance.randint(50, 400), runtime=chance.randint(20, 400))
    for _ in range(3):
        tasks = chance.randint(1, 60)
        names[town.bag(tasks, run=chance.randint(5, 100), array=chance.choice([5, 1000]))] = tasks
        town.loss, town.death = 0.15, 0.03
        town.clusters["b"].full = chance.choice(["", "", "it is full"])
        town.go(chance.randint(3, 60), 2)
        town.cut = {chance.choice("abc")} if chance.random() < 0.4 else set()
        town.go(chance.randint(3, 60), 2)
        town.loss = town.death = 0.0
        town.cut = set()
        town.go(2)
    town.go(2500, 5)
    for name, tasks in names.items():
        assert town.over(name) == "ended", (seed, town[name], town.federation.bag_operations.notes)
        assert town.ran(name) == Counter(range(tasks)), (seed, town.ran(name))
        assert bag_settled(town[name], town.federation.jobs), (seed, town[name])
    town.close()


# ---- the core ----------------------------------------------------------------------------------------------


def test_tasks_are_cut_in_order_and_a_gap_makes_two_shares() -> None:
    assert list(assign_tasks([(0, 10)], {"a": 4, "b": 6})) == [("a", (0, 4)), ("b", (4, 10))]
    assert list(assign_tasks([(2, 4), (7, 10)], {"a": 3, "b": 2})) == [
        ("a", (2, 4)),
        ("a", (7, 8)),
        ("b", (8, 10)),
    ]


def test_tasks_of_refused_shares_are_missing_and_those_taken_back_are_not() -> None:
    jobs, bags = FederationJobs(), Bags()
    submission = {"resources": {}, "script": "x"}
    bags.apply(
        BagSubmitted(job="1", time=0, owner="o", submission=submission, tasks=10, deadline=9, offered_end=9)
    )

    def share(number: str, array: str) -> None:
        event = JobSubmitted(
            job=number, time=0, owner="o", submission={"array": array}, clusters=("a",), bag="1"
        )
        jobs.apply(decode(encode(event)))  # type: ignore[arg-type]
        bags.add_share(jobs[number])

    for number, array in (("2", "0-3"), ("3", "4-6"), ("4", "7-7")):
        share(number, array)
    assert unassigned_tasks(bags["1"], jobs) == ((8, 10),)
    jobs.apply(JobFailed(job="3", time=1, text="no"))
    jobs.apply(JobCancelled(job="4", time=1, by="o"))
    assert unassigned_tasks(bags["1"], jobs) == ((4, 7), (8, 10))
    assert count_tasks(unassigned_tasks(bags["1"], jobs)) == 5
    assert bag_outcome(bags["1"], jobs) == ""
    share("5", "4-6")
    share("6", "8-9")
    assert unassigned_tasks(bags["1"], jobs) == ()
    with pytest.raises(ImpossibleError):
        bags.apply(
            BagSubmitted(job="1", time=0, owner="o", submission={}, tasks=1, deadline=9, offered_end=9)
        )


def test_an_offer_is_its_owners_is_taken_once_and_expires() -> None:
    now = 100.0
    told = IssuedOffers(lambda: now)
    offer = BagOffer("f0", "ann@org", asked(3), None, {}, {}, expires=130)
    told.add(offer)
    assert told.find("f0", "ann@org") is offer
    with pytest.raises(LookupError, match="no offer"):
        told.find("f0", "bob@org")
    now = 130.0
    with pytest.raises(LookupError, match="expired"):
        told.find("f0", "ann@org")
    told.mark_accepted("f0", "17")
    with pytest.raises(LookupError, match="was taken: it is bag 17"):
        told.find("f0", "ann@org")
    assert told.forget_expired(130) == []
    assert told.forget_expired(131) == ["f0"]
    with pytest.raises(LookupError, match="no offer"):
        told.find("f0", "ann@org")


def test_the_oldest_of_too_many_offers_goes_and_is_said_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedd.federation.bags.issued_offers._MOST", 2)
    told = IssuedOffers(lambda: 100.0)
    for name in ("f0", "f1", "f2"):
        told.add(BagOffer(name, "ann@org", asked(3), None, {}, {}, expires=130))
    with pytest.raises(LookupError, match="no offer"):
        told.find("f0", "ann@org")
    assert told.find("f1", "ann@org").id == "f1"
    assert told.forget_expired(0) == ["f0"]
    assert told.forget_expired(0) == []


@pytest.mark.parametrize("split", [None, TaskSplit({"b": 2, "c": 1}, 90, met=True)])
def test_of_an_offer_the_log_holds_what_is_needed_to_take_it(split: TaskSplit | None) -> None:
    ends = {"b": 80, "c": 90} if split is not None else {}
    plans = {"b": 4, "c": 5}
    offer = BagOffer("f0", "ann@org", asked(3), split, ends, plans if split is not None else {}, expires=130)
    told = replace(
        offer, plans={**plans, "d": 6}, offers=[ClusterOffer("b", 2, 80)], whys={"d": "no such nodes"}
    )
    event = decode(encode(told.event(100)))
    assert isinstance(event, BagOffered)
    assert offer_from_event(event) == replace(offer, offers=(), whys=None)
