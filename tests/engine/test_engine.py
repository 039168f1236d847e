"""The engine's main flow: plan on arrival, dispatch when due, repair after an early end."""

from dataclasses import replace
from functools import partial

from schedd.engine import Engine, EngineSettings
from schedd.engine.settle import next_wake
from schedd.model import FOREVER, Never
from schedd.wire import (
    Decision,
    JobDeleted,
    JobEnded,
    JobFacts,
    JobHeld,
    JobQueued,
    JobReleased,
    JobStarted,
    NodeFacts,
    QueueFacts,
    Run,
    Snapshot,
)


def _cluster(nodes: int, cpus: int, policy: str = "conservative") -> Engine:
    engine = Engine(EngineSettings(policy=policy, end_allowance=0, publish_starts=False, validate=True), 0)
    facts = tuple(NodeFacts(name=f"n{i}", cpus=cpus) for i in range(nodes))
    queues = (QueueFacts(name="batch"),)
    engine.handle([Snapshot(id="a:1", time=0, jobs=(), nodes=facts, queues=queues)], 0)
    return engine


def _queued(number: int, nodes: str, walltime: int, time: int = 0) -> JobQueued:
    resources = {"nodes": nodes, "walltime": str(walltime)}
    job = JobFacts(id=f"{number}.s", owner="alice", queue="batch", submitted=time, resources=resources)
    return JobQueued(id=f"a:{number + 1}", time=time, job=job)


def _start(engine: Engine, decisions: tuple[Decision, ...], now: int) -> None:
    runs = [d for d in decisions if isinstance(d, Run)]
    engine.handle([JobStarted(id=f"s:{d.id}", time=now, job_id=d.job_id, shares=d.shares) for d in runs], now)


def _planned(engine: Engine, job: str) -> int:
    return engine.state.plan.start(engine.state.records[job].slot)


def test_every_queued_job_has_a_start_and_a_promise() -> None:
    engine = _cluster(4, 4)
    decisions = engine.handle(
        [_queued(1, "4:ppn=4", 100), _queued(2, "2:ppn=2", 50), _queued(3, "1", 30)], 0
    ).decisions
    assert [d.job_id for d in decisions if isinstance(d, Run)] == ["1.s"]
    assert [_planned(engine, f"{i}.s") for i in (1, 2, 3)] == [0, 100, 100]
    assert engine.state.promise[engine.state.records["2.s"].slot] == 100


def test_an_early_end_lets_waiting_jobs_start_at_once_and_breaks_no_promise() -> None:
    engine = _cluster(4, 4)
    _start(engine, engine.handle([_queued(1, "4:ppn=4", 100), _queued(2, "2:ppn=2", 50)], 0).decisions, 0)
    decisions = engine.handle([JobEnded(id="a:9", time=40, job_id="1.s")], 40).decisions
    assert [(d.job_id, d.cause) for d in decisions if isinstance(d, Run)] == [("2.s", "a:9")]
    assert engine.state.breaches == 0


def test_a_request_that_no_node_can_meet_is_answered_with_never() -> None:
    engine = _cluster(2, 4)
    engine.handle([_queued(1, "1:ppn=8", 10)], 0)
    assert engine.state.records["1.s"].answer == Never("8 cpus on a node; the largest has 4")


def test_a_held_job_loses_its_place_and_promise_until_it_is_released() -> None:
    engine = _cluster(1, 4)
    _start(engine, engine.handle([_queued(1, "1:ppn=4", 100)], 0).decisions, 0)
    engine.handle([_queued(2, "1:ppn=4", 100)], 0)
    engine.handle([JobHeld(id="a:7", time=10, job_id="2.s", holds="u")], 10)
    assert _planned(engine, "2.s") == -1
    assert engine.state.promise[engine.state.records["2.s"].slot] == FOREVER
    engine.handle([JobReleased(id="a:8", time=20, job_id="2.s")], 20)
    assert _planned(engine, "2.s") == 100


def test_easy_starts_a_short_job_early_if_it_delays_no_other() -> None:
    started = {}
    for policy in ("fcfs", "easy"):
        engine = _cluster(1, 4, policy)
        _start(engine, engine.handle([_queued(1, "1:ppn=3", 100)], 0).decisions, 0)
        decisions = engine.handle([_queued(2, "1:ppn=4", 100), _queued(3, "1:ppn=1", 50)], 1).decisions
        started[policy] = [d.job_id for d in decisions if isinstance(d, Run)]
    assert started == {"fcfs": [], "easy": ["3.s"]}


def test_the_wake_up_that_is_remembered_is_that_of_the_present_state() -> None:
    """A pause or a resumption between two calls changes it."""
    engine = _cluster(1, 1)
    later = _queued(2, "1", 100)
    engine.handle([replace(later, job=replace(later.job, not_before=50))], 0)
    found = []
    for change in (engine.resume, partial(engine.pause, "for a test"), engine.resume):
        found.append(engine.next_wake)
        change()
        assert engine._find_wake() == next_wake(engine.state)
    assert found[1] != found[2]
    assert engine.next_wake == found[1]
    engine.handle([JobDeleted(id="a:9", time=1, job_id="2.s")], 1)
    assert engine._find_wake() == next_wake(engine.state)
