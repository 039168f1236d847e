"""Routing decisions: no job runs twice and none is lost, despite cuts, kills, refusals and repetitions."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.federation.events import (
    AttemptHeld,
    AttemptReleased,
    AttemptReleaseRequested,
    ClusterChosen,
    FederationEvent,
    ItemEnded,
    JobSubmitted,
    WithdrawalRequested,
    decode,
    encode,
)
from schedd.federation.items import ImpossibleError
from schedd.federation.routing.candidates import compute_loads, job_priority
from schedd.federation.routing.cluster_status import ClusterStatus, PlanOffer, RoutingRules, TransferStatus
from schedd.federation.routing.decisions import decide, observe_transfers, pending_actions
from schedd.federation.routing.jobs import FederationJobs, PlanQuestion
from schedd.federation.routing.policies import RoutingCandidate, RoutingPolicy
from schedd.federation.routing.priorities import LEVELS, Backlog
from tests.federation.cluster_model import RandomCluster
from tests.property_examples import examples

JOB = {"script": "sleep 1", "resources": {"nodes": "1"}, "cpu_seconds": 100}
USERS = {"ann@org": {"a": "ann", "b": "ann", "c": "ann1"}}
RULES = RoutingRules(patience=5, threshold=100, moves=2)
ASKED = (("nodes", "1"),)


def offered(start: int, end: int, user: str = "ann", **more: float) -> dict[PlanQuestion, PlanOffer]:
    """What a plan says of a job such as JOB."""
    return {PlanQuestion(ASKED, "", user): PlanOffer(start, end, **more)}  # type: ignore[arg-type]


class RoutingModel:
    """A federation with an event log; after a kill only the log remains."""

    def __init__(self, clusters: dict[str, RandomCluster], chance: random.Random) -> None:
        self.clusters = clusters
        self.chance = chance
        self.log: list[str] = []
        self.now = 0
        self.known: dict[str, dict[str, TransferStatus]] = {}
        """Transfers reported since the last kill."""
        self.lives = 0
        self.kill()

    def kill(self) -> None:
        self.jobs = FederationJobs()
        for text in self.log:
            event = decode(text)
            assert isinstance(event, FederationEvent)
            self.jobs.apply(event)
        self.seen = {name: ClusterStatus("not contacted yet", self.now) for name in self.clusters}
        self.known.clear()
        self.lives += 1

    def commit(self, events: list[FederationEvent]) -> None:
        for event in events:
            self.log.append(encode(event))
            self.jobs.apply(event)
            if self.chance.random() < 0.02:
                self.kill()  # between two events of one decision
                return

    def round(self, name: str) -> None:
        """One cluster is asked; each request and each answer may be lost."""
        cluster = self.clusters[name]
        lossy = self.chance.random() < 0.3
        for action in list(pending_actions(self.jobs, RULES, name)):
            if not cluster.cut and not (lossy and self.chance.random() < 0.5):
                cluster.handle(action)
        if cluster.cut or (lossy and self.chance.random() < 0.5):
            since = self.seen[name].since if self.seen[name].away else self.now
            self.seen[name] = ClusterStatus("cut off", since, self.seen[name].transfers)
        else:
            start = self.chance.randrange(100, 9000)
            offers = offered(start, start + 100, USERS["ann@org"][name])
            self.seen[name] = ClusterStatus("", self.now, dict(cluster.transfers), offers, cpus=10)
            old = self.known.get(name)
            changed = None  # the first look after a kill is at all of them
            if old is not None:
                changed = [one for one, seen in cluster.transfers.items() if old.get(one) != seen]
            lives = self.lives
            for _ in range(4):
                events = observe_transfers(self.jobs, RULES, name, cluster.transfers, self.now, changed)
                self.commit(events)
                if not events or self.lives != lives:
                    break
            if self.lives == lives:
                self.known[name] = dict(cluster.transfers)
        self.commit(decide(self.jobs, RULES, self.seen, self.now, USERS))


@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(150))
def test_no_job_runs_twice_and_none_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    ran: Counter[str] = Counter()
    clusters = {name: RandomCluster(name, chance, ran) for name in "abc"}
    fed = RoutingModel(clusters, chance)
    for step in range(400):
        fed.now += chance.randrange(4)
        if step < 200 and len(fed.jobs.by_id) < 8 and chance.random() < 0.1:
            number = str(len(fed.jobs.by_id) + 1)
            fed.commit([JobSubmitted(job=number, time=fed.now, owner="ann@org", submission=JOB)])
        if chance.random() < 0.05:
            cluster = chance.choice(list(clusters.values()))
            cluster.cut = not cluster.cut
        if chance.random() < 0.02:
            fed.kill()
        fed.round(chance.choice("abc"))
        for cluster in clusters.values():
            cluster.live()
        assert not ran or max(ran.values()) == 1
    for cluster in clusters.values():
        cluster.cut = False
    for _ in range(2000):  # after all faults end, open jobs complete
        fed.now += 1
        fed.round(chance.choice("abc"))
        for cluster in clusters.values():
            cluster.live()
        if not fed.jobs.open:
            break
    assert not fed.jobs.open, [fed.jobs[name] for name in fed.jobs.open]
    for job in fed.jobs.by_id.values():
        assert ran[job.id] == (job.over == "ended"), job
        # Only where every cluster refused it a job does not run.
        assert job.over == "ended" or {a.cluster for a in job.attempts if a.phase == "refused"} == set("abc")


def apply_events(*events: FederationEvent) -> FederationJobs:
    jobs = FederationJobs()
    jobs.apply(JobSubmitted(job="1", time=0, owner="ann@org", submission=JOB))
    for event in events:
        jobs.apply(event)
    return jobs


def chosen(attempt: int, cluster: str, start: int = 50, end: int = 150) -> ClusterChosen:
    return ClusterChosen(
        job="1", attempt=attempt, time=1, cluster=cluster, user="ann", start=start, end=end, why="plan"
    )


def attempt_event(kind: type, attempt: int, **more: object) -> FederationEvent:
    return kind(job="1", attempt=attempt, time=2, **more)  # type: ignore[no-any-return]


OUT = (
    chosen(1, "a"),
    attempt_event(AttemptHeld, 1, server_job="7.a"),
    attempt_event(AttemptReleaseRequested, 1),
    attempt_event(AttemptReleased, 1),
)


def test_at_most_a_single_attempt_is_released() -> None:
    jobs = apply_events(*OUT, chosen(2, "b"), attempt_event(AttemptHeld, 2, server_job="8.b"))
    with pytest.raises(ImpossibleError):
        jobs.apply(attempt_event(AttemptReleaseRequested, 2))
    jobs.apply(attempt_event(WithdrawalRequested, 1, why="moves"))
    with pytest.raises(ImpossibleError):  # it may still be running there
        jobs.apply(attempt_event(AttemptReleaseRequested, 2))


def cluster_statuses(**more: ClusterStatus) -> dict[str, ClusterStatus]:
    there = TransferStatus("released", "7.a", "planned", True, planned_start=5000, planned_end=9000)
    found = {
        "a": ClusterStatus(transfers={"fed.1.1": there}),
        "b": ClusterStatus(offers=offered(1000, 5000)),
    }
    return {**found, **more}


def test_waiting_job_moves_for_an_end_earlier_by_the_threshold() -> None:
    jobs = apply_events(*OUT)
    (event,) = decide(jobs, RULES, cluster_statuses(), 10, USERS)
    assert isinstance(event, ClusterChosen)
    assert (event.cluster, event.attempt) == ("b", 2)
    little = cluster_statuses(b=ClusterStatus(offers=offered(4950, 8950)))
    assert decide(jobs, RULES, little, 10, USERS) == []
    assert decide(jobs, RoutingRules(moves=0), cluster_statuses(), 10, USERS) == []


@pytest.mark.parametrize("done", range(2, 5))
def test_attempt_that_its_cluster_has_withdrawn_is_over(done: int) -> None:
    """By a request that was repeated, or that a restored log does not know: it cannot run there any more."""
    jobs = apply_events(*OUT[:done])
    gone = {"fed.1.1": TransferStatus("withdrawn", "7.a")}
    for _ in range(2):
        for event in observe_transfers(jobs, RULES, "a", gone, 10):
            jobs.apply(event)
    assert jobs["1"].attempts[0].phase == "withdrawn"
    (event,) = decide(jobs, RULES, cluster_statuses(a=ClusterStatus(transfers=gone)), 10, USERS)
    assert isinstance(event, ClusterChosen)


def test_job_named_twice_is_decided_once() -> None:
    jobs = apply_events(*OUT)
    assert len(decide(jobs, RULES, cluster_statuses(), 10, USERS, ["1", "1"])) == 1


def test_job_never_moves_past_its_promise() -> None:
    jobs = apply_events(*OUT)
    there = TransferStatus(
        "released", "7.a", "planned", True, planned_start=5000, planned_end=9000, promised_start=900
    )
    late = cluster_statuses(a=ClusterStatus(transfers={"fed.1.1": there}))
    assert decide(jobs, RULES, late, 10, USERS) == []


def held(start: int | None, end: int | None) -> ClusterStatus:
    """The cluster of the second attempt, which is on hold there with its place kept."""
    state = "planned" if start is not None else "waiting"
    place = TransferStatus("held", "8.b", state, planned_start=start, planned_end=end)
    return ClusterStatus(transfers={"fed.1.2": place})


def test_old_attempt_is_withdrawn_after_the_new_place_is_planned() -> None:
    jobs = apply_events(*OUT, chosen(2, "b", 1000, 5000))
    (asked,) = pending_actions(jobs, RULES, "b")
    assert (asked.body or {})["keep_for"] > 0
    assert decide(jobs, RULES, cluster_statuses(), 10, USERS) == []
    jobs.apply(attempt_event(AttemptHeld, 2, server_job="8.b"))
    assert decide(jobs, RULES, cluster_statuses(b=held(None, None)), 3, USERS) == []  # the place may come yet
    (event,) = decide(jobs, RULES, cluster_statuses(b=held(1000, 5000)), 10, USERS)
    assert (event.type, getattr(event, "attempt", 0)) == ("withdrawal_requested", 1)


def test_move_without_a_reserved_place_is_abandoned() -> None:
    jobs = apply_events(*OUT, chosen(2, "b", 1000, 5000), attempt_event(AttemptHeld, 2, server_job="8.b"))
    for there in (held(None, None), held(4990, 8990)):
        (event,) = decide(jobs, RULES, cluster_statuses(b=there), 10, USERS)
        assert (event.type, getattr(event, "attempt", 0)) == ("withdrawal_requested", 2)
    promised = TransferStatus("released", "7.a", "planned", True, planned_end=9000, promised_start=1500)
    late = cluster_statuses(a=ClusterStatus(transfers={"fed.1.1": promised}), b=held(1600, 5600))
    (event,) = decide(jobs, RULES, late, 10, USERS)
    assert (event.type, getattr(event, "attempt", 0)) == ("withdrawal_requested", 2)


@pytest.mark.parametrize("speed", [0.25, 1.0, 4.0])
def test_ends_of_a_move_are_compared_in_the_time_of_the_clusters(speed: float) -> None:
    """The place at b has the walltime that the job needs there, whatever the speed of b."""
    jobs = apply_events(*OUT, chosen(2, "b", 1000, 5000), attempt_event(AttemptHeld, 2, server_job="8.b"))
    for end, withdrawn in ((8900, 1), (8901, 2)):
        there = replace(held(1000, end), speed=speed)
        (event,) = decide(jobs, RULES, cluster_statuses(b=there), 10, USERS)
        assert (event.type, getattr(event, "attempt", 0)) == ("withdrawal_requested", withdrawn)


def test_running_job_stays_and_new_attempt_is_withdrawn() -> None:
    jobs = apply_events(*OUT, chosen(2, "b", 1000, 5000), attempt_event(AttemptHeld, 2, server_job="8.b"))
    runs = TransferStatus("released", "7.a", "running", True)
    (event,) = decide(jobs, RULES, cluster_statuses(a=ClusterStatus(transfers={"fed.1.1": runs})), 10, USERS)
    assert isinstance(event, WithdrawalRequested)
    assert event.attempt == 2


def test_unreachable_cluster_is_skipped_and_released_job_stays() -> None:
    jobs = apply_events(chosen(1, "a"))
    away = {"a": ClusterStatus("cut off", 0), "b": ClusterStatus(offers=offered(1, 2))}
    assert decide(jobs, RULES, away, 4, USERS) == []  # it may answer yet
    (event,) = decide(jobs, RULES, away, 20, USERS)
    assert isinstance(event, WithdrawalRequested)
    jobs.apply(event)
    (event,) = decide(jobs, RULES, away, 21, USERS)
    assert isinstance(event, ClusterChosen)
    assert event.cluster == "b"
    assert decide(apply_events(*OUT), RULES, away, 10_000, USERS) == []


def test_owner_without_user_names_gets_an_explanation() -> None:
    jobs = FederationJobs()
    jobs.apply(JobSubmitted(job="1", time=0, owner="eve@else", submission=JOB))
    (event,) = decide(jobs, RULES, cluster_statuses(), 10, {"eve@else": {}})
    assert isinstance(event, ItemEnded)
    assert event.how == "refused"
    assert event.text == "a, b: eve@else has no user there"


def test_work_in_transit_counts_as_load() -> None:
    """Else all jobs that come at once would go to the same cluster."""
    jobs = FederationJobs()
    for number in range(1, 11):
        jobs.apply(JobSubmitted(job=str(number), time=0, owner="ann@org", submission=JOB))
    offers = offered(0, 10)
    clusters = {name: ClusterStatus(offers=offers, cpus=cpus) for name, cpus in (("a", 4), ("b", 1))}
    events = decide(jobs, RULES, clusters, 1, USERS)
    assert Counter(e.cluster for e in events if isinstance(e, ClusterChosen)) == {"a": 8, "b": 2}


def test_each_policy_applies_its_rule() -> None:
    early = RoutingCandidate("early", "ann", start=10, end=1000)
    short = RoutingCandidate("short", "ann", start=500, end=600)
    assert RoutingPolicy.PLAN.best([early, short], 0, "1") is short
    assert RoutingPolicy.LEAST_LOADED.best([early, short], 0, "1") is early
    far = RoutingCandidate("far", "ann", start=0, end=10, handicap=10_000)
    assert RoutingPolicy.PLAN.best([far, short], 0, "1") is short
    lots = Backlog()
    lots.add(5000, 0)
    early, short = replace(early, backlog=lots, power=10), replace(short, power=10)
    assert RoutingPolicy.LOAD.best([early, short], 0, "1") is short
    urgent = Backlog()
    urgent.add(1, 5)
    first = replace(early, priority=3)
    assert RoutingPolicy.LOAD.best([first, replace(short, backlog=urgent, priority=3)], 0, "1") is first
    drawn = Counter(RoutingPolicy.RANDOM.best([early, short], 0, str(n)).cluster for n in range(400))  # type: ignore[union-attr]
    assert min(drawn.values()) > 150


def test_data_prices_and_handicap_count_as_time() -> None:
    jobs = FederationJobs()
    job = {**JOB, "data": ["climate"]}
    jobs.apply(JobSubmitted(job="1", time=0, owner="ann@org", submission=job))

    def goes(rules: RoutingRules, **more: ClusterStatus) -> str:
        clusters = {
            "a": ClusterStatus(offers=offered(0, 100)),
            "b": ClusterStatus(offers=offered(0, 150)),
            **more,
        }
        (event,) = decide(jobs, rules, clusters, 10, USERS)
        assert isinstance(event, ClusterChosen)
        return event.cluster

    there = ClusterStatus(offers=offered(0, 150), data=frozenset({"climate"}))
    assert goes(RULES) == "a"
    assert goes(RoutingRules(fetch=60), b=there) == "b"
    assert goes(RoutingRules(fetch=40), b=there) == "a"
    dear = ClusterStatus(offers=offered(0, 100, cost=3.0))
    assert goes(RoutingRules(price_weight=10), a=dear) == "a"
    assert goes(RoutingRules(price_weight=20), a=dear) == "b"
    assert goes(RULES, a=ClusterStatus(offers=offered(0, 100), handicap=60)) == "b"


def test_priority_combines_deadline_licences_and_user() -> None:
    jobs = FederationJobs()

    def level(rules: RoutingRules, owner: str, deadline: int | None = None, **resources: str) -> int:
        job = {"resources": {"nodes": "1", **resources}, "walltime": 9000}
        return job_priority(jobs, rules, owner, job, deadline, 0)

    plain = RoutingRules()
    assert level(plain, "ann@org") == 0
    assert level(plain, "ann@org", 9000 + 100) > level(plain, "ann@org", 9000 + 20_000)
    of_users = RoutingRules(classes={"ann@org": "gold", "bob@org": "silver"})
    assert [level(of_users, f"{who}@org") for who in ("ann", "bob", "eve")] == [4, 2, 0]
    licensed = RoutingRules(licences=("matlab", "fluent"))
    assert level(licensed, "ann@org", fluent="1", matlab="1") > level(licensed, "ann@org", fluent="1") > 0
    jobs.apply(JobSubmitted(job="1", time=0, owner="o", submission={"walltime": 9000}, deadline=12_500))
    assert level(plain, "ann@org", 9000 + 100) == LEVELS


def test_recomputed_backlog_equals_incremental_backlog() -> None:
    """The paper's LOAD and COUNT: never more of a higher priority, and equal to a recount."""
    chance = random.Random(7)
    jobs = FederationJobs()
    clusters = {name: ClusterStatus(offers=offered(0, 10), cpus=4) for name in "ab"}
    load = compute_loads(jobs, clusters, RULES)
    for number in range(1, 60):
        one = str(number)
        work = {**JOB, "cpu_seconds": chance.randrange(1, 900)}
        level = chance.randrange(LEVELS + 1)
        jobs.apply(JobSubmitted(job=one, time=0, owner="ann@org", submission=work, priority=level))
        for event in decide(jobs, RoutingRules(policy=RoutingPolicy.LOAD), clusters, 1, USERS, [one], load):
            jobs.apply(event)
    again = compute_loads(jobs, clusters, RULES)
    assert again.backlog == load.backlog
    assert again.sent == load.sent
    for backlog in again.backlog.values():
        assert backlog.load == sorted(backlog.load, reverse=True)
        assert backlog.count == sorted(backlog.count, reverse=True)
    assert sum(backlog.count[0] for backlog in again.backlog.values()) == 59


@pytest.mark.parametrize(("since", "goes_on"), [(5_000, True), (140, False), (80, True)])
def test_a_clock_that_was_set_back_ends_the_patience(since: int, goes_on: bool) -> None:
    """The wait for a submission lasted as long as the clock was set back; some seconds are another host's."""
    jobs = FederationJobs()
    jobs.apply(JobSubmitted(job="1", time=since, owner="ann@org", submission=JOB))
    chosen = ClusterChosen(
        job="1", attempt=1, time=since, cluster="a", user="ann", start=None, end=None, why="plan"
    )
    jobs.apply(chosen)
    found = decide(jobs, RULES, {"a": ClusterStatus("it does not answer", 90)}, 100, USERS)
    assert [type(event) for event in found] == ([WithdrawalRequested] if goes_on else [])
