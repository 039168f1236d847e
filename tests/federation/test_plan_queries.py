"""Queries for a new kind of job: the selected clusters and the time of the decision."""

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.federations.field import ClusterSpec, FieldCluster
from schedd.federation.event_log import FederationLog
from schedd.federation.routing.cluster_status import PlanOffer
from schedd.federation.routing.jobs import PlanQuestion
from schedd.federation.routing.plan_offers import NEVER, PlanOffers
from schedd.federation.routing.request_sizes import is_no_larger, request_size
from schedd.federation.settings import FederationSettings
from schedd.federation.state.federation_state import ClusterPollResult, FederationState
from schedd.policy.slack import NONE
from schedd.wire import JobFacts, JobQueued, NodeFacts
from tests.property_examples import examples

START = 1_700_000_000


def question(queue: str = "", user: str = "ann", **resources: str) -> PlanQuestion:
    return PlanQuestion(tuple(sorted(resources.items())), queue, user)


# ---- which of two is smaller -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("small", "large"),
    [
        ({"nodes": "2:ppn=4", "walltime": "3600"}, {"nodes": "3:ppn=4", "walltime": "3600"}),
        ({"nodes": "2:ppn=2", "walltime": "60"}, {"nodes": "2:ppn=4", "walltime": "00:10:00"}),
        ({"nodes": "1:ppn=4:fast"}, {"nodes": "2:ppn=4:fast"}),
        ({"procs": "4", "mem": "2gb"}, {"procs": "5", "mem": "2048mb"}),
        ({"select": "1:ncpus=2:mem=1gb"}, {"select": "4:ncpus=2:mem=2gb"}),
    ],
)
def test_request_with_no_larger_amounts_is_no_larger(small: dict[str, str], large: dict[str, str]) -> None:
    one, other = request_size(question(**small)), request_size(question(**large))
    assert is_no_larger(one, other)
    assert is_no_larger(one, one)
    assert not is_no_larger(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"nodes": "2:ppn=4"}, {"nodes": "4:ppn=2"}),
        ({"nodes": "1:ppn=4:fast"}, {"nodes": "2:ppn=4"}),
        ({"nodes": "1:ppn=4+1"}, {"nodes": "2:ppn=4+1"}),
        ({"nodes": "n1"}, {"nodes": "n2"}),
        ({"nodes": "1", "walltime": "soon"}, {"nodes": "1", "walltime": "60"}),
        ({"nodes": "1"}, {"procs": "1"}),
        ({"nodes": "1", "matlab": "1"}, {"nodes": "1"}),
        ({"nodes": "1", "matlab": "1"}, {"nodes": "1", "matlab": "2"}),
    ],
)
def test_other_requests_are_incomparable(one: dict[str, str], other: dict[str, str]) -> None:
    sizes = request_size(question(**one)), request_size(question(**other))
    assert not is_no_larger(*sizes)
    assert not is_no_larger(*reversed(sizes))
    a, b = request_size(question(nodes="1")), request_size(question("long", nodes="2"))
    assert not is_no_larger(a, b), "another queue has other limits"
    assert not is_no_larger(a, request_size(question(user="bob", nodes="2")))


# ---- bounds ----------------------------------------------------------------------------------------------


def answered(plan_offers: PlanOffers, one: PlanQuestion, start: int | None, now: int) -> None:
    plan_offers.store_answers({one: (PlanOffer(start, None if start is None else start + 60), 1)}, now)


def test_larger_job_never_starts_before_a_smaller_equal_job() -> None:
    plan_offers = PlanOffers(2.0, 60.0)
    new = question(nodes="3")
    assert plan_offers.start_bound(new, 0) is None
    for nodes, start in (("1", 100), ("2", 300), ("4", 900)):
        answered(plan_offers, question(nodes=nodes), start, 0)
    assert plan_offers.start_bound(new, 1) is None, "what was found a moment ago counts"
    assert plan_offers.start_bound(new, 2) == plan_offers.bounds[new] == 300
    answered(plan_offers, question(nodes="2"), None, 3)
    assert plan_offers.start_bound(new, 4) == NEVER
    answered(plan_offers, new, 500, 5)
    assert not plan_offers.bounds
    assert not plan_offers.is_pending(new)


def test_unused_bounds_are_dropped() -> None:
    plan_offers = PlanOffers(2.0, 60.0)
    answered(plan_offers, question(nodes="1"), 100, 0)
    assert plan_offers.start_bound(question(nodes="2"), 0) == 100
    plan_offers.due_questions(1, 301, 10)
    assert not plan_offers.bounds


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=8), st.integers(1, 9))
def test_bound_never_exceeds_the_real_start(room: list[tuple[int, int]], nodes: int) -> None:
    free = {start: count for count, start in room} | {10: 9}

    def start(wanted: int) -> int:
        return min(at for at, count in free.items() if count >= wanted)

    plan_offers = PlanOffers(2.0, 60.0)
    for count, _ in room:
        answered(plan_offers, question(nodes=str(count)), start(count), 0)
    bound = plan_offers.start_bound(question(nodes=str(nodes)), 0)
    assert bound is None or bound <= start(nodes)


def test_real_engines_start_no_larger_job_before_a_smaller_equal_job() -> None:
    compared: list[bool] = []

    @given(st.data())
    @settings(max_examples=examples(30), deadline=None)
    def check(data: st.DataObject) -> None:
        nodes = tuple(
            NodeFacts(name=f"n{i}", cpus=4, properties=("fast",) if i % 2 else ()) for i in range(4)
        )
        place = FieldCluster(ClusterSpec("a", nodes), "conservative", START, {}, NONE)

        def facts(name: str) -> tuple[PlanQuestion, JobFacts]:
            draw = data.draw
            count, cores = draw(st.integers(1, 4)), draw(st.integers(1, 4))
            units = f"{count}:ppn={cores}{draw(st.sampled_from(['', ':fast']))}"
            asks = {"nodes": units, "walltime": str(draw(st.integers(1, 9)) * 100)}
            job = JobFacts(
                id=name, owner="ann", queue="batch", submitted=START, family="torque", resources=asks
            )
            return question(**asks), job

        for number in range(data.draw(st.integers(1, 8))):
            _, job = facts(f"{number}.s")
            place.engine.handle([JobQueued(id=f"q{number}", time=START, job=job)], START)
        asked = [facts("") for _ in range(6)]
        starts = [place.offer(job, START) for _, job in asked]
        for ((one, _), first), ((other, _), second) in permutations(zip(asked, starts, strict=True), 2):
            if second is not None and is_no_larger(request_size(one), request_size(other)):
                compared.append(other != one)
                assert first is not None
                assert first[0] <= second[0], (one, other)

    check()
    assert any(compared), "different requests are compared"


# ---- selection of clusters ---------------------------------------------------------------------------------

NAMES = [f"c{number:02}" for number in range(30)]


class ThirtyClusterFederation:
    """Federation over thirty reachable clusters; cluster n starts one-node jobs ``n * 100`` seconds from
    now.
    """

    def __init__(self, path: Path, **more: Any) -> None:
        self.now = 1_700_000_000
        place = {"url": "http://127.0.0.1:9", "token_file": str(path), "realms": ["org"]}
        chosen = {"clusters": {name: {**place, "cluster": name} for name in NAMES}, **more}
        self.log = FederationLog(f"sqlite:///{path}/fed.sqlite", "here", 600.0)
        assert self.log.leadership.try_acquire()
        self.federation = FederationState(
            FederationSettings.model_validate(chosen), self.log, dict.fromkeys(NAMES, "x"), lambda: self.now
        )
        self.poll(*NAMES)
        assert self.submit("1").attempts == ()
        for number, name in enumerate(NAMES):
            self.answer(name, 100 * number)
        assert self.chosen("1") == "c00" or self.federation.settings.routing.policy == "random"

    def poll(self, *names: str) -> None:
        for name in names:
            self.federation.apply_report(name, ClusterPollResult(transfers={}, generation=1))

    def submit(self, nodes: str, walltime: int = 60) -> Any:
        asks = {"nodes": nodes, "walltime": str(walltime)}
        job = {"script": "x", "resources": asks, "attributes": {}, "variables": {}, "queues": {}}
        return self.federation.submit("ann@org", {**job, "cpu_seconds": 0, "walltime": walltime})

    def pending_clusters(self) -> list[str]:
        """Return the clusters with unanswered questions."""
        return [name for name in NAMES if self.federation.due_questions(name)]

    def answer(self, name: str, after: int | None, length: int = 60) -> None:
        start = self.now + after if after is not None else None
        offer = PlanOffer(start, start + length if start is not None else None)
        self.federation.store_answers(name, dict.fromkeys(self.federation.due_questions(name), (offer, 1)))

    def chosen(self, job: str) -> str:
        attempts = self.federation.jobs[job].attempts
        return attempts[0].cluster if attempts else ""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ThirtyClusterFederation]:
    made = ThirtyClusterFederation(tmp_path)
    yield made
    made.log.close()


def test_promising_clusters_suffice_for_a_decision(fleet: ThirtyClusterFederation) -> None:
    job = fleet.submit("2").id
    assert fleet.pending_clusters() == NAMES[:8]
    for name in NAMES[:3]:
        fleet.answer(name, 1_000)
    assert fleet.chosen(job) == "", "the fourth may start it in 300 s"
    fleet.answer("c03", 350)
    assert fleet.chosen(job) == "c03", "no other starts it before 400 s"
    assert fleet.pending_clusters() == NAMES[4:8]


def test_next_batch_is_queried_if_the_first_is_no_better(fleet: ThirtyClusterFederation) -> None:
    job = fleet.submit("2").id
    for name in NAMES[:4]:
        fleet.answer(name, 9_000)
    assert fleet.pending_clusters() == NAMES[4:16]
    for name in NAMES[4:16]:
        fleet.answer(name, 9_000 if name != "c10" else 1_650)
    assert fleet.pending_clusters()[0] == "c16"
    assert fleet.chosen(job) == "", "the sixteenth may start it in 1,600 s"
    fleet.answer("c16", None)
    assert fleet.chosen(job) == "c10"


def test_equal_job_is_decided_immediately(fleet: ThirtyClusterFederation) -> None:
    fleet.submit("2")
    for name in NAMES[:4]:
        fleet.answer(name, 310)
    again = fleet.submit("2")
    assert again.attempts
    assert again.attempts[0].cluster in NAMES[:4]


def test_hanging_cluster_delays_a_job_briefly(fleet: ThirtyClusterFederation) -> None:
    job = fleet.submit("2").id
    fleet.answer("c01", 2_750)
    for count in (16, 24, 30):
        fleet.now += 2
        fleet.poll("c05")
        assert fleet.pending_clusters() == [name for name in NAMES[:count] if name != "c01"]
    for name in NAMES[1:]:
        fleet.answer(name, 9_000)
    assert fleet.chosen(job) == "", "the first has not said anything"
    fleet.now += 31
    fleet.poll("c05")
    assert fleet.chosen(job) == "c01"


def test_incomparable_job_queries_all_clusters(fleet: ThirtyClusterFederation) -> None:
    fleet.submit("1:fast")
    assert fleet.pending_clusters() == NAMES


def test_policies_without_plans_query_all_clusters(tmp_path: Path) -> None:
    fleet = ThirtyClusterFederation(tmp_path, routing={"policy": "random"})
    fleet.submit("2")
    assert fleet.pending_clusters() == NAMES
    fleet.log.close()


def test_answers_are_outdated_after_the_clock_was_set_back() -> None:
    plan_offers, asked = PlanOffers(2.0, 60.0), question(nodes="1")
    plan_offers.subscribe(asked, 10_000, new=True)
    plan_offers.store_answers({asked: (PlanOffer(10_000, 10_060), 1)}, 10_000)
    assert plan_offers.due_questions(2, 6_400, 9) == [asked]
    plan_offers.expire_answers(2, 6_400)
    assert plan_offers.offers == {}
