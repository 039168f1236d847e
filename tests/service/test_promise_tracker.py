"""Promise changes for the journal: each promise and each breach is reported once."""

from dataclasses import replace

from schedd.engine import Cause, Engine, EngineSettings
from schedd.engine.facts.texts import REQUEST_ENLARGED
from schedd.engine.recovery import rebuild_state
from schedd.service.cluster.promise_tracker import PromiseTracker
from schedd.wire import (
    ClockSet,
    Event,
    JobAltered,
    JobDeleted,
    JobFacts,
    JobQueued,
    NodeChanged,
    NodeFacts,
    Reserve,
    Snapshot,
    Unreserve,
)
from schedd.wire.adapter_troubles import CLOCK_SET_BACK

T = 1_700_000_000


def node(name: str, state: str = "up") -> NodeChanged:
    facts = NodeFacts(name=name, cpus=4, state=state)  # type: ignore[arg-type]
    return NodeChanged(id=f"{name}:{state}", time=T, node=facts)


def job(number: int) -> JobQueued:
    resources = {"nodes": "1:ppn=4", "walltime": "600"}
    facts = JobFacts(id=f"{number}.s", owner="ann", queue="q", submitted=T, resources=resources, version="v")
    return JobQueued(id=f"j{number}", time=T, job=facts)


def handle_and_compare(
    engine: Engine, promised: PromiseTracker, events: list[Event], now: int
) -> tuple[list[str], list[str]]:
    engine.handle(events, now)
    made, broken = promised.changes(engine)
    return [promise.job for promise in made], [one.job for one in broken if one.kind == "broken"]


def test_promise_and_its_breach_are_each_reported_once() -> None:
    engine = Engine(EngineSettings(node_grace=10), T)
    promised = PromiseTracker()
    promised.reset(engine)
    assert handle_and_compare(engine, promised, [node("a"), node("b")], T) == ([], [])
    made, broken = handle_and_compare(engine, promised, [job(n) for n in range(6)], T)
    assert (sorted(made), broken) == ([f"{n}.s" for n in range(6)], [])
    assert handle_and_compare(engine, promised, [], T + 1) == ([], [])
    engine.handle([node("b", "down")], T + 2)
    assert promised.changes(engine) == ([], [])
    assert handle_and_compare(engine, promised, [], T + 13) == ([], [])
    late = 1 + min(
        int(engine.state.promise[engine.state.records[job_id].slot]) for job_id in engine.state.risks
    )
    made, broken = handle_and_compare(engine, promised, [], late)
    assert broken
    assert set(broken) <= set(made), "a broken promise is replaced by a new one"
    assert handle_and_compare(engine, promised, [], late + 1) == ([], [])


def test_promises_before_the_first_check_are_not_new() -> None:
    engine = Engine(EngineSettings(), T)
    engine.handle([node("a"), job(1), job(2)], T)
    promised = PromiseTracker()
    promised.reset(engine)
    assert promised.changes(engine) == ([], [])


def test_reused_slot_reports_its_new_job() -> None:
    engine = Engine(EngineSettings(), T)
    promised = PromiseTracker()
    promised.reset(engine)
    handle_and_compare(engine, promised, [node("a"), job(1), job(2)], T)
    handle_and_compare(engine, promised, [JobDeleted(id="d", time=T, job_id="2.s")], T + 1)
    made, _ = handle_and_compare(engine, promised, [job(3)], T + 2)
    assert made == ["3.s"]


def test_equal_promise_to_another_job_in_a_reused_slot_is_reported() -> None:
    engine = Engine(EngineSettings(), T)
    promised = PromiseTracker()
    promised.reset(engine)
    handle_and_compare(engine, promised, [node("a"), job(1), job(2)], T)
    slot = engine.state.records["2.s"].slot
    before = int(engine.state.promise[slot])
    made, _ = handle_and_compare(engine, promised, [JobDeleted(id="d", time=T, job_id="2.s"), job(3)], T)
    assert (engine.state.records["3.s"].slot, int(engine.state.promise[slot])) == (slot, before)
    assert made == ["3.s"]


def test_promise_risk_rescue_and_breach_are_each_reported_once() -> None:
    engine = Engine(EngineSettings(slack="100"), T)
    promised = PromiseTracker()
    promised.reset(engine)
    handle_and_compare(engine, promised, [node("a"), job(1), job(2)], T)

    def handle_and_list(events: list[Event], now: int) -> list[tuple[str, str, str, int | None]]:
        engine.handle(events, now)
        return [(one.job, one.kind, one.cause, one.planned) for one in promised.changes(engine)[1]]

    away = Reserve(id="r", time=T, name="r", nodes=("a",), start=T + 700, end=T + 5000)
    why = Cause.RESERVATION
    assert handle_and_list([away], T + 1) == [("2.s", "risk", why, T + 5000)]
    assert handle_and_list([], T + 2) == []
    ((job_id, kind, cause, planned),) = handle_and_list([Unreserve(id="u", time=T, name="r")], T + 3)
    assert (job_id, kind, cause) == ("2.s", "kept", "")
    assert planned is not None
    assert planned < T + 1000
    assert handle_and_list([away], T + 4) == [("2.s", "risk", why, T + 5000)]
    late = int(engine.state.promise[engine.state.records["2.s"].slot]) + 1
    assert handle_and_list([], late) == [("2.s", "broken", why, T + 5000)]
    assert handle_and_list([], late + 1) == []


def test_a_promise_that_ended_without_a_breach_has_a_record_of_its_end() -> None:
    engine = Engine(EngineSettings(slack="100"), T)
    promised = PromiseTracker()
    promised.reset(engine)
    handle_and_compare(engine, promised, [node("a"), job(1), job(2)], T)
    before = int(engine.state.promise[engine.state.records["2.s"].slot])
    facts = replace(job(2).job, resources={"nodes": "1:ppn=4", "walltime": "900"}, version="w")
    engine.handle([JobAltered(id="longer", time=T + 1, job=facts)], T + 1)
    (ended,) = promised.changes(engine)[1]
    assert (ended.kind, ended.event, ended.cause) == ("ended", "longer", REQUEST_ENLARGED)
    assert (ended.job, ended.promised) == ("2.s", before)
    engine.handle([], T + 2)
    assert promised.changes(engine) == ([], [])


def test_a_promise_at_risk_that_ends_is_not_reported_as_safe() -> None:
    engine = Engine(EngineSettings(slack="100"), T)
    promised = PromiseTracker()
    promised.reset(engine)
    handle_and_compare(engine, promised, [node("a"), job(1), job(2)], T)
    away = Reserve(id="r", time=T, name="r", nodes=("a",), start=T + 700, end=T + 5000)
    engine.handle([away], T + 1)
    assert [one.kind for one in promised.changes(engine)[1]] == ["risk"]
    facts = replace(job(2).job, resources={"nodes": "1:ppn=4", "walltime": "900"}, version="w")
    engine.handle([JobAltered(id="longer", time=T + 2, job=facts)], T + 2)
    assert [one.kind for one in promised.changes(engine)[1]] == ["ended"]


def test_promises_of_many_jobs_end_with_a_record_when_the_clock_is_set_back() -> None:
    """The rebuilt plan has fewer slots than the one before."""
    engine = Engine(EngineSettings(), T)
    promised = PromiseTracker()
    promised.reset(engine)
    handle_and_compare(engine, promised, [node("a"), *map(job, range(100))], T)
    engine.handle([ClockSet(id="clock", time=T - 5000)], T - 5000)
    made, changed = promised.changes(engine)
    assert made == []
    assert {(one.kind, one.event, one.cause) for one in changed} == {("ended", "clock", CLOCK_SET_BACK)}
    assert len(changed) == 100


def test_the_promise_of_a_job_that_leaves_has_a_record_of_its_end_before_a_new_one() -> None:
    """A job that leaves with its queue is deleted for this scheduler, and may come back."""
    engine = Engine(EngineSettings(slack="100"), T)
    promised = PromiseTracker()
    promised.reset(engine)
    handle_and_compare(engine, promised, [node("a"), job(1), job(2)], T)
    before = int(engine.state.promise[engine.state.records["2.s"].slot])
    engine.handle([JobDeleted(id="left", time=T + 1, job_id="2.s")], T + 1)
    made, changed = promised.changes(engine)
    assert made == []
    assert [(one.job, one.kind, one.event, one.promised) for one in changed] == [
        ("2.s", "ended", "left", before)
    ]
    assert handle_and_compare(engine, promised, [job(2)], T + 9) == (["2.s"], [])


def test_promises_of_jobs_that_are_gone_after_the_plan_was_rebuilt_have_a_record_of_their_end() -> None:
    engine = Engine(EngineSettings(slack="100"), T)
    promised = PromiseTracker()
    promised.reset(engine)
    handle_and_compare(engine, promised, [node("a"), job(1), job(2)], T)
    before = {one.job: one.promised for one in promised.current_promises(engine)}
    rebuild_state(engine.state, {})
    promised.reset(engine)
    there = Snapshot(id="s", time=T + 5, jobs=(job(1).job,), nodes=(node("a").node,))
    engine.handle([there], T + 5)
    ended = [(one.job, one.kind, one.promised) for one in promised.changes(engine)[1]]
    assert ended == [("2.s", "ended", before["2.s"])]
