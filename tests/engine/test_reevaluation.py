"""A queue or limit that concerns thousands of jobs is followed in slices; nothing forbidden starts."""

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from schedd.engine import Engine, EngineSettings
from schedd.engine.facts import arrivals, reevaluation_queue
from schedd.engine.facts.records import Cause, ChangeSet, JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.place.placement import plan_job
from schedd.engine.run import reevaluation
from schedd.engine.show.job_view import job_view
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.wire import (
    Event,
    JobFacts,
    JobQueued,
    NodeChanged,
    NodeFacts,
    PlanningHeld,
    PlanningReleased,
    PolicyChanged,
    QueueChanged,
    QueueFacts,
    Reserve,
    Run,
    ServerChanged,
    ServerFacts,
    Snapshot,
    Unreserve,
)
from tests.engine.cluster import Cluster

NOW = 1_000_000
SLICE = arrivals.ARRIVALS_PER_CALL
MANY = 3 * SLICE
Q, OTHER = QueueFacts(name="q"), QueueFacts(name="other")


def facts(number: int, **other: object) -> JobFacts:
    resources = {"nodes": f"1:ppn={1 + number % 4}", "walltime": str(600 + number)}
    chosen: dict[str, object] = {"owner": f"u{number % 7}@x", "queue": "q", "resources": resources, **other}
    return JobFacts(id=f"{number}.s", submitted=NOW - 10, **chosen)  # type: ignore[arg-type]


def engine(*jobs: JobFacts, nodes: int = 40, paused: str = "for now", **settings: object) -> Engine:
    one = Engine(EngineSettings(validate=True, slack="0", publish_starts=False, **settings), NOW)  # type: ignore[arg-type]
    one.pause(paused)
    machines = tuple(NodeFacts(name=f"n{i}", cpus=4, mem=8 << 20) for i in range(nodes))
    one.handle([Snapshot(id="s:1", time=NOW, jobs=jobs, nodes=machines, queues=(Q, OTHER))], NOW)
    settled(one)
    return one


def settled(one: Engine, now: int = NOW) -> int:
    """Until nothing is to be done at once; returns the number of calls."""
    for calls in range(1_000):
        if one.next_wake is None or one.next_wake > now:
            return calls
        one.handle([], now)
    raise AssertionError("it comes to no rest")


def planned(one: Engine) -> int:
    return sum(
        record.slot >= 0 and one.state.plan.start(record.slot) >= 0 for record in one.state.records.values()
    )


def queue(number: int, *, started: bool) -> QueueChanged:
    return QueueChanged(id=f"q:{number}", time=NOW, queue=QueueFacts(name="q", started=started))


def limits(number: int, **limited: str) -> ServerChanged:
    return ServerChanged(id=f"l:{number}", time=NOW, server=ServerFacts(limits=limited))


def cpus(number: int, most: int) -> ServerChanged:
    limited = {"max_run_res.ncpus": f"[u:PBS_GENERIC={most}]"}
    return ServerChanged(id=f"l:{number}", time=NOW, server=ServerFacts(limits=limited))


def test_large_queue_is_stopped_and_started_in_slices() -> None:
    one = engine(*map(facts, range(MANY)))
    assert planned(one) == MANY
    one.handle([queue(1, started=False)], NOW)
    assert MANY - planned(one) == SLICE
    assert settled(one) == MANY // SLICE - 1
    assert planned(one) == 0
    view = job_view(publish_snapshot(one.state), "5.s")
    assert view is not None
    assert (view.answer, view.why) == ("waiting", "waiting for queue q, which is stopped")
    one.handle([queue(2, started=True)], NOW)
    assert planned(one) == SLICE
    settled(one)
    assert planned(one) == MANY


def test_unexamined_job_of_a_stopped_queue_does_not_start() -> None:
    jobs = [*map(facts, range(MANY)), *(facts(i, queue="other") for i in range(MANY, MANY + 40))]
    one = engine(*jobs, nodes=MANY)
    one.resume()
    made = list(one.handle([queue(1, started=False)], NOW).decisions)
    while one.next_wake == NOW:
        made += one.handle([], NOW).decisions
    started = {decision.job_id for decision in made if isinstance(decision, Run)}
    assert started == {f"{i}.s" for i in range(MANY, MANY + 40)}


def test_hold_of_a_queue_is_applied_in_slices() -> None:
    one = engine(*map(facts, range(MANY)))
    held = PlanningHeld(id="h:1", time=NOW, kind="queue", name="q", reason="audit", by="root")
    one.handle([held], NOW)
    assert planned(one) == MANY - SLICE
    settled(one)
    assert planned(one) == 0
    answer = one.state.records["5.s"].answer
    assert answer is not None
    assert "which is held: audit" in str(answer)
    one.handle(
        [queue(1, started=False), PlanningReleased(id="h:2", time=NOW, kind="queue", name="q")],
        NOW,
    )
    settled(one)
    assert "which is stopped" in str(one.state.records["5.s"].answer)  # the remaining reason is published
    one.handle([queue(2, started=True)], NOW)
    settled(one)
    assert planned(one) == MANY


@pytest.mark.parametrize("seed", range(2))
def test_lowered_limit_holds_in_the_plan_and_at_each_start(seed: int) -> None:
    random = Random(seed)
    jobs = [facts(i, owner=f"u{random.randint(0, 4)}@x") for i in range(MANY)]
    one = engine(*jobs)
    one.resume()
    per_user = random.choice(["3", "8", "20"])
    made = list(one.handle([limits(1, max_run=f"[u:PBS_GENERIC={per_user}]")], NOW).decisions)
    assert one.state.to_reevaluate
    calls = 0
    while one.next_wake == NOW:
        made += one.handle([], NOW).decisions
        calls += 1
    assert calls > 2
    users = Counter(
        one.state.records[decision.job_id].facts.owner for decision in made if isinstance(decision, Run)
    )
    assert users
    assert max(users.values()) <= int(per_user)
    assert _most_at_once(one) <= int(per_user)
    one.handle([limits(2)], NOW)
    settled(one)
    assert not one.state.plan.pools
    assert planned(one) == MANY


def _most_at_once(one: Engine) -> int:
    """Of one user's jobs, at any moment of the plan."""
    most = 0
    for owner in {record.facts.owner for record in one.state.records.values()}:
        slots = [record.slot for record in one.state.records.values() if record.facts.owner == owner]
        edges = sorted(
            [(one.state.plan.start(slot), 1) for slot in slots]
            + [(one.state.plan.end(slot), -1) for slot in slots]
        )
        running = 0
        for _, step in edges:
            running += step
            most = max(most, running)
    return most


def test_limit_below_a_request_blocks_the_job_until_it_is_raised() -> None:
    one = engine(*map(facts, range(MANY)))
    one.handle([cpus(1, 3)], NOW)
    settled(one)
    large = [record for record in one.state.records.values() if int(record.id.split(".")[0]) % 4 == 3]
    assert {record.phase for record in large} == {Phase.BLOCKED}
    assert planned(one) == MANY - len(large)
    one.handle([cpus(2, 8)], NOW)
    settled(one)
    assert planned(one) == MANY


def test_a_checkpoint_between_two_slices_leads_to_the_same() -> None:
    one = engine(*map(facts, range(MANY)))
    one.handle([limits(0, max_run="[u:PBS_GENERIC=9]")], NOW)
    settled(one)
    one.handle([limits(1, max_run="[u:PBS_GENERIC=5]"), queue(1, started=True)], NOW)
    lowered = one.state.limits.lowered
    assert lowered == Engine.restore(one.checkpoint()).state.limits.lowered != set()
    one.handle([], NOW)
    other = Engine.restore(one.checkpoint())
    assert list(other.state.to_reevaluate.items()) == list(one.state.to_reevaluate.items())
    settled(one)
    settled(other)
    assert {n: one.state.plan.start(r.slot) for n, r in one.state.records.items()} == {
        n: other.state.plan.start(r.slot) for n, r in other.state.records.items()
    }


def test_event_of_a_job_is_handled_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reevaluation, "_LOOKS", SLICE)
    one = engine(*map(facts, range(MANY)))
    one.handle([limits(1, max_run="[u:PBS_GENERIC=2]")], NOW)
    new = facts(9_999, queue="other", owner="new@x")
    one.handle([JobQueued(id="new", time=NOW, job=new)], NOW)
    assert one.state.to_reevaluate
    assert one.state.plan.start(one.state.records["9999.s"].slot) >= NOW


def test_job_with_a_failing_reevaluation_is_quarantined_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    one = engine(*map(facts, range(MANY)))
    one.state.settings = one.state.settings.with_changes(validate_=False)
    look = reevaluation._reevaluate_job

    def fails(state: object, record: object, *why: str) -> bool:
        if getattr(record, "id", "") == "7.s":
            raise RuntimeError("broken on purpose")
        return look(state, record, *why)  # type: ignore[arg-type]

    monkeypatch.setattr(reevaluation, "_reevaluate_job", fails)
    one.handle([queue(1, started=False)], NOW)
    settled(one)
    aside = [record.id for record in one.state.records.values() if record.quarantine]
    assert aside == ["7.s"]
    assert planned(one) == 0


EVERY = [NodeFacts(name=f"n{i}", cpus=4, mem=8 << 20) for i in range(40)]
WIDE = 25
"""Nodes that a wide job asks for."""


def reserve(number: int, start: int, end: int, **other: object) -> Reserve:
    chosen: dict[str, object] = {"everywhere": True, "reason": "service", **other}
    return Reserve(id=f"r:{number}", time=NOW, name="r", start=start, end=end, **chosen)  # type: ignore[arg-type]


def calls(one: Engine, *events: Event) -> tuple[list[int], list[ChangeSet]]:
    """How many jobs each call of the engine moved until it came to rest, but for repairs; and all moves."""
    counts: list[int] = []
    found: list[ChangeSet] = []
    batch = list(events)
    while batch or (one.next_wake is not None and one.next_wake <= NOW):
        moves = one.handle(batch, NOW).moves
        counts.append(sum(change.slots.shape[0] for change in moves if change.words != "capacity was freed"))
        found += moves
        batch = []
    return counts, found


def _overlap(one: Engine, start: int, end: int) -> set[str]:
    """The jobs that are planned at some moment of the interval."""
    plan = one.state.plan
    return {
        record.id
        for record in one.state.records.values()
        if plan.start(record.slot) >= 0 and plan.start(record.slot) < end and plan.end(record.slot) > start
    }


def test_reservation_of_all_nodes_is_applied_in_slices_by_start() -> None:
    one = engine(*map(facts, range(MANY)))
    one.resume()
    start, end = NOW + 1_000, NOW + 500_000
    assert len(_overlap(one, start, end)) > 2 * SLICE
    counts, found = calls(one, reserve(1, start, end))
    assert len(counts) > 2
    assert max(counts) <= 2 * SLICE  # the same number may be replanned after displaced jobs
    assert not _overlap(one, start, end)
    assert planned(one) == MANY
    why = {change.cause for change in found if change.words == "reservation r was made"}
    assert why == {Cause.RESERVATION}


def test_unexamined_job_does_not_start_in_a_reservation() -> None:
    one = engine(*map(facts, range(MANY)), nodes=MANY)
    one.resume()
    made = list(one.handle([reserve(1, NOW, NOW + 500_000)], NOW).decisions)
    while one.next_wake == NOW:
        made += one.handle([], NOW).decisions
    assert not [decision for decision in made if isinstance(decision, Run)]


def test_access_list_is_applied_to_its_users_in_slices() -> None:
    one = engine(*map(facts, range(MANY)))
    start, end = NOW + 1_000, NOW + 500_000
    counts, _ = calls(one, reserve(1, start, end, users=("u1",)))
    assert len(counts) > 2
    assert max(counts) <= SLICE + reevaluation._STEP
    owners = {one.state.records[job].facts.owner for job in _overlap(one, start, end)}
    assert owners == {"u1@x"}
    calls(one, Unreserve(id="r:2", time=NOW, name="r"))
    assert planned(one) == MANY
    assert len(_overlap(one, start, end)) > 2 * SLICE


def test_wide_jobs_count_as_many_though_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reevaluation_queue, "_UNITS", 10 * WIDE)
    monkeypatch.setattr(reevaluation, "_STEP", 5)
    monkeypatch.setattr(reevaluation, "_WORK", 1)
    wide = [facts(i, resources={"nodes": f"{WIDE}:ppn=4", "walltime": "1000"}) for i in range(60)]
    one = engine(*wide)
    counts, _ = calls(one, reserve(1, NOW + 1_500, NOW + 100_000))
    assert max(counts) <= 5
    assert sum(counts) >= 58
    assert len(_overlap(one, NOW + 1_500, NOW + 100_000)) == 0


def test_very_wide_job_is_replanned_in_its_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reevaluation_queue, "_UNITS", 3)
    one = engine(facts(1, resources={"nodes": "4:ppn=4", "walltime": "600"}))
    racks = [replace(node, properties=(f"rack={i % 4}",)) for i, node in enumerate(EVERY)]
    one.handle([NodeChanged(id="n:1", time=NOW, node=node) for node in racks], NOW)
    site = {"node_sets": {"by": "rack", "strict": True}}
    one.handle([PolicyChanged(id="p:1", time=NOW, version=1, site=site)], NOW)
    settled(one)
    plan = one.state.plan
    names = [plan.node_names[take.row] for take in plan.takes(one.state.records["1.s"].slot)]
    assert len({int(name[1:]) % 4 for name in names}) == 1, names


def test_another_policy_is_followed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reevaluation, "_LOOKS", SLICE)
    racks = [replace(node, properties=(f"rack={i % 4}",)) for i, node in enumerate(EVERY)]
    jobs = [facts(i, resources={"nodes": "4:ppn=4", "walltime": "600"}) for i in range(MANY)]
    one = engine(*jobs)
    one.handle([NodeChanged(id="n:1", time=NOW, node=node) for node in racks], NOW)
    settled(one)
    asked = {record.id: one.state.plan.request(record.slot) for record in one.state.records.values()}
    assert {request.together for request in asked.values()} == {None}
    site = {"node_sets": {"by": "rack", "strict": True}}
    one.handle([PolicyChanged(id="p:1", time=NOW, version=1, site=site)], NOW)
    left = [r for r in one.state.records.values() if one.state.plan.request(r.slot).together is None]
    assert 0 < len(left) < MANY
    settled(one)
    for record in one.state.records.values():
        assert one.state.plan.request(record.slot).together is not None
        names = [one.state.plan.node_names[take.row] for take in one.state.plan.takes(record.slot)]
        assert len({int(name[1:]) % 4 for name in names}) == 1, names


@pytest.mark.parametrize("how", ["hold", "offline", "down"])
def test_nodes_that_are_closed_together_are_left_by_each_job_once(how: str) -> None:
    one = engine(*map(facts, range(MANY)), node_grace=0)
    many = EVERY[:30]
    if how == "hold":
        events: list[Event] = [
            PlanningHeld(id=f"h:{i}", time=NOW, kind="node", name=node.name, reason="new", by="root")
            for i, node in enumerate(many)
        ]
    else:
        state = "drain" if how == "offline" else "down"
        events = [
            NodeChanged(id=f"n:{i}", time=NOW, node=replace(node, state=state))  # type: ignore[arg-type]
            for i, node in enumerate(many)
        ]
    counts, found = calls(one, *events)
    assert max(counts) <= 2 * SLICE
    moved = Counter(
        slot for change in found if change.words != "capacity was freed" for slot in change.slots.tolist()
    )
    assert max(moved.values()) == 1
    closed = {node.name for node in many}
    for record in one.state.records.values():
        names = {one.state.plan.node_names[take.row] for take in one.state.plan.takes(record.slot)}
        assert not names & closed
    assert planned(one) == MANY


def test_returning_nodes_are_processed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    one = engine(*map(facts, range(MANY)))
    held = [
        PlanningHeld(id=f"h:{i}", time=NOW, kind="node", name=node.name, reason="new", by="root")
        for i, node in enumerate(EVERY)
    ]
    calls(one, *held)
    assert planned(one) == 0
    tried = Counter[str]()

    def counted(state: EngineState, record: JobRecord, *why: Any) -> None:
        tried[record.id] += 1
        plan_job(state, record, *why)

    monkeypatch.setattr(reevaluation, "plan_job", counted)
    released = [
        PlanningReleased(id=f"g:{i}", time=NOW, kind="node", name=node.name) for i, node in enumerate(EVERY)
    ]
    counts, _ = calls(one, *released)
    assert max(counts) <= SLICE
    assert planned(one) == MANY
    assert set(tried.values()) == {1}


def test_dependent_job_has_no_start_in_a_stopped_queue() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", walltime=100)
    cluster.submit("2", queue="night", state="H", holds="s", depend="afterok:1")
    assert cluster.start("2") == 100
    cluster.send(*cluster.server.change_queue(QueueFacts(name="night", started=False)))
    assert cluster.start("2") is None
    assert cluster.view("2").why == "waiting for queue night, which is stopped"
    cluster.send(*cluster.server.change_queue(QueueFacts(name="night")))
    assert cluster.start("2") == 100
