"""Bags: every task runs once despite assignments, cuts, kills and refusals."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schedd.features.transfers.state import transfer_state
from schedd.federation.api.bag_rows import bag_row
from schedd.federation.bags.bags import (
    Bag,
    Bags,
    assign_tasks,
    bag_end,
    bag_outcome,
    bag_settled,
    count_tasks,
    unassigned_tasks,
)
from schedd.federation.bags.issued_offers import BagOffer, IssuedOffers, offer_from_event
from schedd.federation.bags.offers import ClusterOffer, SharingRule, TaskSplit
from schedd.federation.events import (
    BagOffered,
    BagSpecification,
    BagSubmitted,
    ItemCancelled,
    ItemEnded,
    JobSubmitted,
    decode,
    encode,
)
from schedd.federation.items import ImpossibleError
from schedd.federation.routing.jobs import FederationJobs
from schedd.federation.state.bag_operations import OffersOutdatedError
from schedd.federation.workers.bag_offers import collect_offers, offered_task_counts, share_ends, split_offers
from tests.engine.cluster import T
from tests.federation.simulated_federation import SimulatedFederation, seeds


def bag_specification(tasks: int, deadline: int = 210, **more: Any) -> BagSpecification:
    return BagSpecification({"nodes": "1:ppn=1", "walltime": "100"}, 100, 100, tasks, deadline, **more)


class BagFederation(SimulatedFederation):
    """Clusters of two nodes of four cpus each, and bags over them."""

    def bag(
        self, tasks: int, *, run: int = 100, key: str = "", only_if_planned: bool = False, **more: Any
    ) -> str:
        """Asked for and taken."""
        self.array_figures(more.pop("array", 1000))
        resources = more.pop("resources", None)
        one = bag_specification(tasks, self.now + more.pop("deadline", 210), **more)
        one = replace(one, resources=resources or one.resources)
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
            "ann@org", submission, one, split.shares, ends, key, only_if_planned=only_if_planned
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
def simulation(tmp_path: Path) -> Iterator[BagFederation]:
    made = BagFederation(tmp_path, "abc")
    yield made
    made.close()


def test_bag_becomes_arrays_and_every_task_runs_once(simulation: BagFederation) -> None:
    simulation.busy("a", 2, 1000)
    name = simulation.bag(30, deadline=250)
    shares = [simulation.federation.jobs[one] for one in simulation[name].shares]
    assert {job.clusters[0]: job.submission["array"] for job in shares} == {"b": "0-15", "c": "16-29"}
    simulation.go(20)
    assert {len(provider.handed) for provider in simulation.clusters.values()} == {0, 1}, "an array at each"
    simulation.go(300, 5)
    assert simulation.ran(name) == Counter(range(30))
    assert (simulation.over(name), bag_settled(simulation[name], simulation.federation.jobs)) == (
        "ended",
        True,
    )
    assert not simulation.federation.bags.open
    assert simulation.federation.jobs[simulation[name].shares[0]].exit_status == 0


def test_a_deadline_that_shares_of_any_size_keep_is_kept(simulation: BagFederation) -> None:
    """Three waves of three clusters run 72 tasks in 300 s. In steps of 5 % a cluster offered 21 of its 24."""
    name = simulation.bag(72, deadline=370)
    shares = [simulation.federation.jobs[one] for one in simulation[name].shares]
    assert {job.submission["array"] for job in shares} == {"0-23", "24-47", "48-71"}
    assert len(offered_task_counts(100_000)) == 100


@pytest.mark.parametrize(("deadline", "expected"), [(290, "accepted"), (210, "wished"), (150, "")])
def test_clusters_accept_the_deadline_of_a_bag_only_for_tasks_that_meet_it(
    simulation: BagFederation, deadline: int, expected: str
) -> None:
    """48 tasks end in two waves of 100 s, with a minute of margin: by 290 s, and not by 210 s. A late
    bag is sent without its deadline.
    """
    due = simulation.now + deadline
    name = simulation.bag(48, deadline=deadline)
    simulation.go(20)
    if expected == "accepted":
        simulation.begin()  # accepted items are in the log
    row = bag_row(simulation.federation, simulation[name])
    assert row.deadline_state == (expected or "wished")
    assert (row.promised_end is not None, row.earliest_deadline is None) == ((expected == "accepted",) * 2)
    for cluster, provider in simulation.clusters.items():
        (array,) = provider.handed.values()
        waiting = [job for job in provider.members(array) if provider.server.jobs[job].state != "R"]
        assert len(waiting) == 8
        for job in waiting:
            view = provider.view(job)
            assert (view.deadline, view.deadline_state) == (due if expected else None, expected), cluster
            if expected == "accepted":
                assert view.promised_start is not None
                assert view.promised_start <= due - 100
        for number in range(8):  # local jobs of equal rank come later
            provider.submit(f"local{number}", walltime=50, owner="bob")
    simulation.go(700, 5)
    ran = [simulation.federation.jobs[one] for one in simulation[name].shares]
    assert (simulation.over(name), len(ran)) == ("ended", 3)
    assert {one.deadline for one in ran} == {due}
    if expected == "accepted":
        assert row.promised_end is not None
        assert row.promised_end <= due - 60
        assert max(one.over_at for one in ran) <= due


def test_bags_with_the_earliest_deadlines_go_first(
    simulation: BagFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {deadline: simulation.bag(4, deadline=deadline) for deadline in (900, 300, 600)}
    done: list[str] = []
    monkeypatch.setattr(simulation.bags, "process", done.append)
    simulation.bags.round()
    assert done == [names[deadline] for deadline in (300, 600, 900)]


def test_plan_chooses_the_size_of_each_moldable_task_of_a_bag(simulation: BagFederation) -> None:
    """A task takes four cores for 300 s, three for 100 s or one for 250 s, and four cores are free. Two tasks
    take three cores, one after the other, and the third takes the core that is left.
    """
    simulation.busy("a", 1, 1000)
    begin = simulation.now
    name = simulation.bag(3, run=90, deadline=260, clusters=("a",), resources={"trl": "4@300:3@100:1@250"})
    assert simulation[name].offered_end == begin + 250
    simulation.go(20)
    assert set(simulation.ran(name)) == {0, 2}
    simulation.go(400, 5)
    assert simulation.ran(name) == Counter(range(3))


def test_large_share_is_split_into_several_arrays(simulation: BagFederation) -> None:
    name = simulation.bag(30, array=8, clusters=("a",))
    assert [simulation.federation.jobs[one].submission["array"] for one in simulation[name].shares] == [
        "0-7",
        "8-15",
        "16-23",
        "24-29",
    ]
    simulation.go(600, 5)
    assert simulation.ran(name) == Counter(range(30))


def test_refused_share_goes_to_the_next_best_cluster(simulation: BagFederation) -> None:
    simulation.clusters["b"].full = "too many jobs in the queue"
    name = simulation.bag(48)
    simulation.go(700, 5)
    assert simulation.ran(name) == Counter(range(48))
    assert {cluster: bool(provider.handed) for cluster, provider in simulation.clusters.items()} == {
        "a": True,
        "b": False,
        "c": True,
    }
    refused = [
        one
        for one in (simulation.federation.jobs[job] for job in simulation[name].shares)
        if one.over == "refused"
    ]
    assert [(one.clusters, one.text) for one in refused] == [(("b",), "b: too many jobs in the queue")]
    assert simulation.over(name) == "ended"


def test_bag_fails_if_all_clusters_refuse(simulation: BagFederation) -> None:
    for provider in simulation.clusters.values():
        provider.full = "no arrays here"
    name = simulation.bag(48)
    simulation.go(30)
    assert simulation[name].failed.startswith(
        "48 tasks have no cluster: a: no arrays here; b: no arrays here"
    )
    assert (simulation.over(name), bag_settled(simulation[name], simulation.federation.jobs)) == (
        "incomplete",
        True,
    )
    assert not simulation.ran(name)


def test_lost_share_runs_only_at_another_cluster(simulation: BagFederation) -> None:
    name = simulation.bag(48)
    simulation.cut = {"b"}
    simulation.go(60)
    assert not unassigned_tasks(simulation[name], simulation.federation.jobs), "others have it by now"
    simulation.cut = set()
    simulation.go(700, 5)
    assert simulation.ran(name) == Counter(range(48))
    assert not simulation.clusters["b"].handed
    assert (simulation.over(name), bag_settled(simulation[name], simulation.federation.jobs)) == (
        "ended",
        True,
    )


def test_released_share_stays_at_its_unreachable_cluster(simulation: BagFederation) -> None:
    name = simulation.bag(48)
    simulation.go(20)
    simulation.cut = {"b"}
    simulation.go(100)
    assert len(simulation[name].shares) == 3
    simulation.cut = set()
    simulation.go(700, 5)
    assert simulation.ran(name) == Counter(range(48))


def test_cancelled_bag_deletes_waiting_tasks_and_keeps_running_tasks(simulation: BagFederation) -> None:
    name = simulation.bag(48)
    simulation.go(20)
    running = Counter(simulation.ran(name))
    assert 0 < len(running) < 48
    simulation.federation.bag_operations.cancel(name, "ann@org")
    simulation.federation.bag_operations.cancel(name, "ann@org")
    simulation.go(300, 5)
    assert simulation.ran(name) == running
    assert (simulation.over(name), bag_settled(simulation[name], simulation.federation.jobs)) == (
        "cancelled",
        True,
    )
    assert not any(provider.server.jobs for provider in simulation.clusters.values())


def test_running_share_is_withdrawn_at_most_once(simulation: BagFederation) -> None:
    name = simulation.bag(8, run=1000, clusters=("a",))
    simulation.go(20)
    simulation.federation.bag_operations.cancel(name, "ann@org")
    simulation.go(10)
    before = len(simulation.log.read())
    simulation.go(50)
    assert len(simulation.log.read()) == before


def test_bag_cancelled_before_transfer_never_runs(simulation: BagFederation) -> None:
    name = simulation.bag(48)
    simulation.federation.bag_operations.cancel(name, "ann@org")
    simulation.go(100, 5)
    assert not simulation.ran(name)
    assert (simulation.over(name), bag_settled(simulation[name], simulation.federation.jobs)) == (
        "cancelled",
        True,
    )


def test_same_key_is_same_bag_after_a_crash(simulation: BagFederation) -> None:
    name = simulation.bag(10, key="k")
    assert simulation.bag(10, key="k") == name
    simulation.begin()
    assert simulation.bag(10, key="k") == name
    assert simulation.bag(10, key="l") != name


def test_second_bag_waits_until_first_share_is_planned(simulation: BagFederation) -> None:
    simulation.bag(10, clusters=("a",), only_if_planned=True)
    with pytest.raises(OffersOutdatedError, match="just submitted to a,"):
        simulation.bag(10, clusters=("a",), only_if_planned=True)
    simulation.bag(10, clusters=("b",), only_if_planned=True)
    simulation.go(10)
    simulation.bag(10, clusters=("a",), only_if_planned=True)


def test_bag_and_shares_are_dropped_together(simulation: BagFederation) -> None:
    name = simulation.bag(10, clusters=("a",))
    simulation.go(300, 5)
    assert bag_settled(simulation[name], simulation.federation.jobs)
    gone = simulation.federation.bags.forget(T + 10_000, list(simulation.federation.bags.by_id))
    assert gone == (name, *gone[1:])
    assert len(gone) == 2
    assert name not in simulation.federation.bags.by_id
    assert gone[1] not in simulation.federation.jobs.by_id


@pytest.mark.parametrize("on", [False, True])
def test_bag_end_is_reported_to_its_clusters(simulation: BagFederation, *, on: bool) -> None:
    simulation.change(coordinate=on)
    simulation.busy("a", 2, 300, runtime=250)
    name = simulation.bag(40, deadline=310)
    simulation.go(15)
    ends: dict[str, int] = {}
    for cluster, provider in simulation.clusters.items():
        state = provider.engine.state
        for record in state.records.values():
            if record.facts.array:
                ends[cluster] = max(state.plan.start(record.slot) + 100, ends.get(cluster, 0))
    assert len(set(ends.values())) > 1, ends
    told = {
        cluster: set(transfer_state(simulation.clusters[cluster].engine.state).bag_ends.values())
        for cluster in ends
    }
    assert told == {cluster: {max(ends.values())} if on else set() for cluster in ends}
    simulation.go(700, 5)
    assert simulation.ran(name) == Counter(range(40))


@pytest.mark.parametrize("seed", seeds(2, 8))
def test_every_task_runs_once_despite_faults(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 200))
def test_many_random_fault_sequences(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)


def play(directory: Path, seed: int) -> None:
    simulation = BagFederation(directory, "abc", seed)
    chance = simulation.chance
    names = {}
    for cluster in "abc":
        simulation.busy(
            cluster, chance.randint(0, 2), chance.randint(50, 400), runtime=chance.randint(20, 400)
        )
    for _ in range(3):
        tasks = chance.randint(1, 60)
        names[simulation.bag(tasks, run=chance.randint(5, 100), array=chance.choice([5, 1000]))] = tasks
        simulation.loss, simulation.death = 0.15, 0.03
        simulation.clusters["b"].full = chance.choice(["", "", "it is full"])
        simulation.go(chance.randint(3, 60), 2)
        simulation.cut = {chance.choice("abc")} if chance.random() < 0.4 else set()
        simulation.go(chance.randint(3, 60), 2)
        simulation.loss = simulation.death = 0.0
        simulation.cut = set()
        simulation.go(2)
    simulation.finish(2500)
    for name, tasks in names.items():
        assert simulation.over(name) == "ended", (
            seed,
            simulation[name],
            simulation.federation.bag_operations.notes,
        )
        assert simulation.ran(name) == Counter(range(tasks)), (seed, simulation.ran(name))
        if simulation[name].promised_end:
            assert bag_end(simulation[name], simulation.federation.jobs) <= simulation[name].deadline, seed
        assert bag_settled(simulation[name], simulation.federation.jobs), (seed, simulation[name])
    simulation.close()


# ---- the core ----------------------------------------------------------------------------------------------


def test_tasks_are_assigned_in_order_and_a_gap_splits_a_share() -> None:
    assert list(assign_tasks([(0, 10)], {"a": 4, "b": 6})) == [("a", (0, 4)), ("b", (4, 10))]
    assert list(assign_tasks([(2, 4), (7, 10)], {"a": 3, "b": 2})) == [
        ("a", (2, 4)),
        ("a", (7, 8)),
        ("b", (8, 10)),
    ]


def test_refused_tasks_are_unassigned_and_cancelled_tasks_are_not() -> None:
    jobs = FederationJobs()
    bags = Bags(jobs)
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
    jobs.apply(ItemEnded(how="refused", job="3", time=1, text="no"))
    jobs.apply(ItemCancelled(job="4", time=1, by="o"))
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


def test_offer_belongs_to_owner_and_is_accepted_once_before_expiry() -> None:
    now = 100.0
    told = IssuedOffers(lambda: now)
    offer = BagOffer("f0", "ann@org", bag_specification(3), None, {}, {}, expires=130)
    told.add(offer)
    assert told.find("f0", "ann@org") is offer
    with pytest.raises(LookupError, match="no offer"):
        told.find("f0", "bob@org")
    now = 130.0
    with pytest.raises(LookupError, match="expired"):
        told.find("f0", "ann@org")
    told.mark_accepted("f0", "17")
    with pytest.raises(LookupError, match="was already accepted, as bag 17"):
        told.find("f0", "ann@org")
    assert told.forget_expired(130) == []
    assert told.forget_expired(131) == ["f0"]
    with pytest.raises(LookupError, match="no offer"):
        told.find("f0", "ann@org")


def test_oldest_offer_is_dropped_above_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedd.federation.bags.issued_offers._MOST", 2)
    told = IssuedOffers(lambda: 100.0)
    for name in ("f0", "f1", "f2"):
        told.add(BagOffer(name, "ann@org", bag_specification(3), None, {}, {}, expires=130))
    with pytest.raises(LookupError, match="no offer"):
        told.find("f0", "ann@org")
    assert told.find("f1", "ann@org").id == "f1"
    assert told.forget_expired(0) == ["f0"]
    assert told.forget_expired(0) == []


@pytest.mark.parametrize("split", [None, TaskSplit({"b": 2, "c": 1}, 90, met=True)])
def test_log_has_all_fields_to_accept_an_offer(split: TaskSplit | None) -> None:
    ends = {"b": 80, "c": 90} if split is not None else {}
    plans = {"b": 4, "c": 5}
    offer = BagOffer(
        "f0", "ann@org", bag_specification(3), split, ends, plans if split is not None else {}, expires=130
    )
    told = replace(
        offer, plans={**plans, "d": 6}, offers=[ClusterOffer("b", 2, 80)], whys={"d": "no such nodes"}
    )
    event = decode(encode(told.event(100)))
    assert isinstance(event, BagOffered)
    assert offer_from_event(event) == replace(offer, offers=(), whys=None)
