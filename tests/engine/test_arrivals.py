"""Thousands of new jobs in a snapshot are taken in a slice at a time; events go on meanwhile."""

import json
from dataclasses import replace
from random import Random

import pytest

from schedd.engine import Engine, EngineSettings
from schedd.engine.facts import arrivals
from schedd.engine.facts.arrivals import ARRIVALS_PER_CALL, defer_arrivals
from schedd.engine.facts.encoding import ARRIVING, save_facts
from schedd.engine.facts.records import Phase
from schedd.engine.facts.state import EngineState
from schedd.wire import (
    Decision,
    Event,
    JobAltered,
    JobDeleted,
    JobEnded,
    JobFacts,
    JobQueued,
    NodeFacts,
    QueueChanged,
    QueueFacts,
    Run,
    ShareFacts,
    Snapshot,
)

NOW = 1_000_000
GIB = 1 << 20
MANY = 3 * ARRIVALS_PER_CALL


def facts(number: int, **other: object) -> JobFacts:
    resources = {"nodes": "1:ppn=1", "walltime": "600"}
    chosen: dict[str, object] = {"queue": "q", "submitted": NOW - 10, "resources": resources, **other}
    return JobFacts(id=f"{number}.s", owner="ann@x", **chosen)  # type: ignore[arg-type]


def running(number: int, node: str) -> JobFacts:
    return facts(number, state="R", started=NOW - 100, shares=(ShareFacts(node, 4),))


def snapshot(*jobs: JobFacts, number: int = 1, now: int = NOW) -> Snapshot:
    nodes = tuple(NodeFacts(name=f"n{i}", cpus=4, mem=8 * GIB) for i in range(40))
    return Snapshot(id=f"s:{number}", time=now, jobs=jobs, nodes=nodes)


def engine() -> Engine:
    return Engine(EngineSettings(validate=True, slack="0"), NOW)


def settled(one: Engine, now: int = NOW) -> list[Decision]:
    """Until nothing is to be done at once."""
    made: list[Decision] = []
    for _ in range(10 * MANY // ARRIVALS_PER_CALL + 100):
        if one.next_wake is None or one.next_wake > now:
            return made
        made += one.handle([], now).decisions
    raise AssertionError("it comes to no rest")


def starts(one: Engine) -> dict[str, int]:
    return {name: one.state.plan.start(record.slot) for name, record in one.state.records.items()}


def test_a_snapshot_with_many_new_jobs_is_handled_before_they_are_planned() -> None:
    one = engine()
    made = one.handle([snapshot(*map(facts, range(MANY)))], NOW).decisions
    assert (len(one.state.records), len(one.state.arriving)) == (0, MANY)
    assert not made
    assert one.next_wake == NOW
    one.handle([], NOW)
    assert (len(one.state.records), len(one.state.arriving)) == (ARRIVALS_PER_CALL, MANY - ARRIVALS_PER_CALL)
    settled(one)
    assert len(one.state.records) == MANY
    assert min(starts(one).values()) >= NOW


def test_the_plan_is_the_same_as_when_they_come_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "ARRIVALS_PER_CALL", 50)
    jobs = [facts(i, resources={"nodes": f"1:ppn={1 + i % 4}", "walltime": str(600 + i)}) for i in range(150)]
    at_once, one_by_one = engine(), engine()
    at_once.handle([snapshot(*jobs)], NOW)
    settled(at_once)
    one_by_one.handle([snapshot()], NOW)
    for job in jobs:
        one_by_one.handle([JobQueued(id=job.id, time=NOW, job=job)], NOW)
    settled(one_by_one)
    assert starts(at_once) == starts(one_by_one)


def test_nothing_is_started_before_all_that_runs_is_known() -> None:
    one = engine()
    busy = [running(i, f"n{i}") for i in range(40)]
    more = [running(1_000 + i, f"n{i % 40}") for i in range(ARRIVALS_PER_CALL)]
    waiting = [facts(100 + i) for i in range(ARRIVALS_PER_CALL)]
    # Running jobs come last, and there are more of them than fit one slice.
    one.handle([snapshot(*waiting, *busy, *(replace(job, shares=()) for job in more))], NOW)
    made: list[Decision] = []
    while one.state.arriving:
        made += one.handle([JobQueued(id="new", time=NOW, job=facts(5_000))], NOW).decisions
        if len(one.state.records) < 200:
            assert one.state.halted
    made += settled(one)
    assert not [decision for decision in made if isinstance(decision, Run)]
    assert one.state.records["0.s"].run.started == NOW - 100


def test_event_of_a_pending_arrival_is_applied() -> None:
    one = engine()
    one.handle([snapshot(*map(facts, range(MANY)))], NOW)
    last = MANY - 1
    held = facts(last - 1, state="H", holds="u")
    events: list[Event] = [
        JobDeleted(id="e:1", time=NOW, job_id=f"{last}.s"),
        JobAltered(id="e:2", time=NOW, job=held),
        JobEnded(id="e:3", time=NOW, job_id=f"{last - 2}.s"),
        JobQueued(id="e:4", time=NOW, job=facts(9_999)),
    ]
    one.handle(events, NOW)
    settled(one)
    known = one.state.records
    assert f"{last}.s" not in known
    assert f"{last - 2}.s" not in known
    assert known[f"{last - 1}.s"].facts == held
    assert "9999.s" in known
    assert len(known) == MANY - 1


def test_next_snapshot_replaces_pending_arrivals_without_an_alert() -> None:
    one = engine()
    one.handle([snapshot(*map(facts, range(MANY)))], NOW)
    one.handle([], NOW)
    now = [facts(i, queue="other") for i in range(MANY - 3)]
    made = list(one.handle([snapshot(*now, number=2)], NOW).decisions)
    assert len(one.state.arriving) == MANY - 3 - ARRIVALS_PER_CALL
    made += settled(one)
    assert not [d for d in made if d.type == "alert" and "job queued" in d.text]
    assert {record.facts.queue for record in one.state.records.values()} == {"other"}
    assert len(one.state.records) == MANY - 3


@pytest.mark.parametrize("seed", range(3))
def test_a_checkpoint_in_between_leads_to_the_same(seed: int) -> None:
    random = Random(seed)
    jobs = [
        facts(i, resources={"nodes": f"1:ppn={random.randint(1, 4)}", "walltime": "600"}) for i in range(MANY)
    ]
    jobs += [running(10_000 + i, f"n{i}") for i in range(10)]
    one = engine()
    one.handle([snapshot(*jobs)], NOW)
    one.handle([], NOW)
    other = Engine.restore(one.checkpoint())
    assert other.state.arriving == one.state.arriving
    assert list(other.state.arriving) == list(one.state.arriving)
    assert settled(one) == settled(other)
    assert starts(one) == starts(other)


def test_arrivals_in_a_checkpoint_of_an_older_version_are_read() -> None:
    events = [JobQueued(id="s:1", time=NOW, job=facts(i)) for i in range(3)]
    saved = [[event.id, event.time, save_facts(event.job)] for event in events]
    found = ARRIVING.load((json.loads(json.dumps(saved)), {}))
    assert list(found.items()) == [(event.job.id, event) for event in events]


def test_changed_defaults_of_a_large_queue_are_applied_in_slices() -> None:
    one = engine()
    before = QueueFacts(name="q", defaults={"mem": "1gb"})
    one.handle([snapshot(*map(facts, range(MANY))), QueueChanged(id="q:1", time=NOW, queue=before)], NOW)
    settled(one)
    after = QueueChanged(id="q:2", time=NOW + 1, queue=replace(before, defaults={"mem": "2gb"}))
    one.handle([after], NOW + 1)
    waiting = len(one.state.to_reevaluate)
    assert waiting > ARRIVALS_PER_CALL
    assert one.next_wake == NOW + 1
    one.handle([JobDeleted(id="e:1", time=NOW, job_id=f"{MANY - 1}.s")], NOW + 1)
    assert len(one.state.to_reevaluate) == waiting - ARRIVALS_PER_CALL
    other = Engine.restore(one.checkpoint())
    assert settled(other, NOW + 1) == settled(one, NOW + 1)
    assert starts(one) == starts(other)
    asked = {
        record.understood.request.chunks[0].mem
        for record in one.state.records.values()
        if record.understood.request is not None and record.phase is Phase.WAITING
    }
    assert asked == {2 * GIB}


@pytest.mark.parametrize("count", [ARRIVALS_PER_CALL, ARRIVALS_PER_CALL + 1])
def test_only_many_new_jobs_are_deferred(count: int) -> None:
    state = EngineState.empty(EngineSettings(), NOW)
    known = JobQueued(id="e:0", time=NOW, job=facts(0))
    state.records["0.s"] = None  # type: ignore[assignment]  # any known value
    other = QueueChanged(id="e:q", time=NOW, queue=QueueFacts(name="q"))
    new = [JobQueued(id=f"e:{i}", time=NOW, job=facts(i)) for i in range(1, count)]
    new.append(JobQueued(id="e:r", time=NOW, job=running(count, "n1")))
    late = count > ARRIVALS_PER_CALL
    assert list(defer_arrivals(state, [known, other, *new])) == (
        [known, other] if late else [known, other, *new]
    )
    assert list(state.arriving)[:1] == ([f"{count}.s"] if late else []), "what holds resources stands first"
    assert len(state.arriving) == (count if late else 0)
