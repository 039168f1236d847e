"""Table of phases: a step clears and sets the fields of its row, all others stay unchanged."""

from collections.abc import Callable
from dataclasses import fields, replace
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.engine.facts import phases
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.phases import TABLE, IllegalStep, Step, apply_step, find_fault, initial_value
from schedd.engine.facts.records import (
    BackOff,
    Breach,
    Cause,
    CurrentRun,
    DependencyLink,
    EndedPromise,
    JobRecord,
    Phase,
    PlacementChoice,
    Risk,
    StartAttempt,
)
from schedd.model import WaitingFor
from schedd.wire import JobFacts, Run
from tests.engine.chaos.lives import Chaos, play
from tests.engine.cluster import Cluster
from tests.engine.test_recovery import passed

_GROUPS = {"attempt": StartAttempt, "back_off": BackOff, "run": CurrentRun}
_FACTS = JobFacts(id="1", owner="ada@hub", queue="batch", state="Q", submitted=0)
_READ = ParsedRequest(None, 60, False, "no request")


def _full(phase: Phase) -> JobRecord:
    """Return a record without any initial value."""
    return JobRecord(
        _FACTS,
        _READ,
        3,
        phase,
        answer=WaitingFor("hold", "its owner"),
        eligible_since=7,
        attempt=StartAttempt("d1", 8, 9, accepted=True),
        back_off=BackOff(1, 2, 3, "no", 4, ("n1",)),
        run=CurrentRun(5, 6, 7, 8, 9),
        weak=True,
        lost=Cause.NODE_LOST,
        risk=Risk(1, "e", Cause.OVERRUN),
        quarantine="broken",
        breaches=(Breach(1, "e", Cause.OVERRUN, 2, 3),),
        ended=EndedPromise(1, "e", "held", 2),
        behind=(DependencyLink("afterok", "2"),),
        choice=PlacementChoice(1, 2, 3.0),
    )


_SET: dict[str, Any] = {
    "facts": replace(_FACTS, state="R"),
    "understood": replace(_READ, walltime=61),
    "slot": 4,
    "answer": WaitingFor("queue", "it is stopped"),
    "eligible_since": 70,
    "attempt": StartAttempt("d2", 80, 90),
    "back_off": BackOff(10, 20, 30, "not now", 40, ("n2",)),
    "run": CurrentRun(50, 60, 70, 80, 90),
    "weak": False,
    "lost": Cause.LICENCE,
    "risk": Risk(10, "f", Cause.LICENCE),
    "quarantine": "broken again",
    "breaches": (),
    "ended": EndedPromise(10, "f", "moved", 20),
    "behind": (DependencyLink("afterany", "3"),),
    "choice": PlacementChoice(10, 20, 30.0),
}
_LEAVES = [
    name
    for one in fields(JobRecord)
    for name in (
        [f"{one.name}.{inner.name}" for inner in fields(_GROUPS[one.name])]
        if one.name in _GROUPS
        else [one.name]
    )
]


def _covers(names: tuple[str, ...], leaf: str) -> bool:
    return leaf in names or leaf.partition(".")[0] in names


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("what", Step)
def test_step_changes_exactly_the_fields_of_its_row(what: Step, phase: Phase) -> None:
    rule, before = TABLE[what], _full(phase)
    sets = {name: _SET[name] for name in rule.sets}
    if phase not in rule.of:
        with pytest.raises(IllegalStep, match=f"it is {phase.value}"):
            apply_step(before, what, **sets)
        return
    now = apply_step(before, what, **sets)
    for leaf in _LEAVES:
        found, was = attrgetter(leaf)(now), attrgetter(leaf)(before)
        if leaf == "phase":
            assert found is (rule.to or phase)
        elif _covers(rule.sets, leaf):
            wanted = sets[leaf.partition(".")[0]]
            assert found == (attrgetter(leaf.partition(".")[2])(wanted) if "." in leaf else wanted)
        elif _covers(rule.clears, leaf):
            assert found == initial_value(leaf), f"{leaf} survived"
            assert found != was, "or this shows nothing"
        else:
            assert found == was, f"{leaf} is none of its business"


@pytest.mark.parametrize("what", Step)
def test_step_requires_exactly_the_fields_that_it_sets(what: Step) -> None:
    rule = TABLE[what]
    record = _full(min(rule.of))
    sets = {name: _SET[name] for name in rule.sets}
    with pytest.raises(IllegalStep, match="sets"):
        apply_step(record, what, **sets, unheard_of=1)
    for name in sets:
        with pytest.raises(IllegalStep, match="sets"):
            apply_step(record, what, **{one: value for one, value in sets.items() if one != name})


_PLAIN = {
    "answer": st.just(WaitingFor("hold", "its owner")),
    "attempt": st.builds(StartAttempt, st.just("d1"), st.integers(0, 9), st.integers(10, 19), st.booleans()),
    "back_off": st.builds(BackOff, st.integers(0, 9), st.integers(0, 9)),
    "behind": st.sampled_from([(), (DependencyLink("afterok", "2"),)]),
    "run": st.builds(CurrentRun, st.integers(0, 9), st.integers(0, 3)),
}
_ALWAYS = {**{name: st.just(value) for name, value in _SET.items()}, **_PLAIN}


@given(st.data())
def test_whatever_happens_a_record_fits_its_phase(data: st.DataObject) -> None:
    record = JobRecord(_FACTS, _READ, 3, Phase.WAITING)
    assert not find_fault(record)
    for _ in range(12):
        possible = [what for what in Step if record.phase in TABLE[what].of]
        if record.phase in (Phase.RUNNING, Phase.DISPATCHED):
            possible.remove(Step.DESCRIBED)
        what = data.draw(st.sampled_from(possible))
        sets = {name: data.draw(_ALWAYS[name]) for name in TABLE[what].sets}
        if what is Step.ANSWERED and record.phase is Phase.WAITING and record.answer is None:
            continue
        record = apply_step(record, what, **sets)
        assert not find_fault(record), what


def test_all_phases_can_be_reached_and_left() -> None:
    start = {Phase.WAITING}
    for _ in Phase:
        start |= {rule.to for rule in TABLE.values() if rule.to is not None and rule.of & start}
    assert start == set(Phase)
    for phase in Phase:
        assert any(phase in rule.of and rule.to not in (None, phase) for rule in TABLE.values())


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (replace(_full(Phase.WAITING), run=CurrentRun()), "waiting with a run decision"),
        (replace(_full(Phase.WAITING), attempt=StartAttempt()), "waiting with a run"),
        (JobRecord(_FACTS, _READ, 3, Phase.BLOCKED), "blocked with no answer"),
        (JobRecord(_FACTS, _READ, 3, Phase.DISPATCHED), "dispatched with no run decision"),
        (JobRecord(_FACTS, _READ, 3, Phase.RUNNING), "running with no start"),
        (
            _full(Phase.RUNNING),
            "; ".join(
                f"running with {what}"
                for what in ("an answer", "a wait for others", "a quarantine", "a back-off")
            ),
        ),
    ],
)
def test_inconsistency_of_record_and_phase_is_reported(record: JobRecord, words: str) -> None:
    assert find_fault(record) == words


def _refused() -> None:
    cluster = Cluster()
    cluster.obeys = False
    cluster.submit("1")
    (decision,) = (one for one in cluster.decisions if isinstance(one, Run))
    cluster.send(*cluster.server.refuse(decision, 15043, "no"))


def _not_answered() -> None:
    cluster = Cluster(decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    cluster.submit("1")
    cluster.at(100)


def _asks_for_others() -> None:
    cluster = Cluster()
    cluster.submit("1")
    cluster.submit("2")
    cluster.alter_request("2", nodes="1:ppn=1")


def _waits_for_another() -> None:
    cluster = Cluster()
    cluster.submit("1")
    cluster.submit("2", depend="afterok:1", state="H", holds="s")


def _waits_for_something_else() -> None:
    cluster = Cluster()
    cluster.submit("1", holds="u", state="H")
    cluster.submit("2", depend="afterok:1", state="H", holds="s")
    cluster.send(*cluster.server.hold("1", "o"))


def _runs_too_long() -> None:
    cluster = Cluster(slack=0)
    cluster.submit("1", walltime=100, runtime=1000)
    cluster.submit("2")
    cluster.at(900)


def _is_extended() -> None:
    cluster = Cluster(site={"walltime_extensions": {"jobs": {"queues": ["batch"]}}})
    cluster.submit("1", walltime=1_000)
    cluster.at(900)


def _altered_on_a_lost_node() -> None:
    cluster = Cluster(node_grace=300)
    cluster.submit("1", walltime=100)
    cluster.submit("2", walltime=100)
    cluster.node("n1", state="down")
    cluster.alter_request("2", walltime="90")
    cluster.node("n1", state="up")


def _comes_back() -> None:
    cluster = Cluster()
    cluster.submit("1")
    cluster.send(*cluster.server.requeue("1"))


def _fails() -> None:
    cluster = Cluster()
    cluster.engine.pause("for now")
    cluster.submit("1")
    passed(cluster, jobs=("1",))


def _is_described_differently() -> None:
    cluster = Cluster()
    cluster.submit("1")
    cluster.alter_request("1", walltime="200")


_STORIES = {
    _refused: {Step.REFUSED},
    _not_answered: {Step.VOID, Step.PUT_OFF},
    _asks_for_others: {Step.GIVEN_SLOT},
    _waits_for_another: {Step.CHAINED},
    _waits_for_something_else: {Step.ANSWERED},
    _runs_too_long: {Step.OVERRAN, Step.BROKEN},
    _is_extended: {Step.EXTENDED},
    _is_described_differently: {Step.RUN_AGAIN},
    _altered_on_a_lost_node: {Step.BLAMED},
    _comes_back: {Step.CAME_BACK},
    _fails: {Step.SET_ASIDE},
}


@pytest.fixture
def recorded_steps(monkeypatch: pytest.MonkeyPatch) -> set[Step]:
    """The steps that are taken from here on."""
    steps: set[Step] = set()
    monkeypatch.setattr(phases, "_CHANGES", _StepRecorder(steps))
    return steps


@pytest.mark.parametrize("story", _STORIES, ids=lambda story: story.__name__[1:])
def test_engine_performs_the_rare_steps_when_due(
    recorded_steps: set[Step], story: Callable[[], None]
) -> None:
    story()
    assert _STORIES[story] <= recorded_steps


def test_engine_performs_all_other_steps_of_the_table(recorded_steps: set[Step]) -> None:
    """A cluster at random, with every invariant checked after each batch, ``find_fault`` among them."""
    for seed in range(3):
        play(Chaos(), Random(seed), 150)
    assert set(Step) - recorded_steps <= set().union(*_STORIES.values())


class _StepRecorder(dict[Step, Any]):
    def __init__(self, recorded_steps: set[Step]) -> None:
        super().__init__(phases._CHANGES)
        self._recorded = recorded_steps

    def __getitem__(self, what: Step) -> Any:
        self._recorded.add(what)
        return super().__getitem__(what)


def test_the_table_in_the_docs_is_this_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "job-phases.md").read_text("utf-8")
    _, _, behind = text.partition("| step | of | leads to | clears | sets |\n|---|---|---|---|---|\n")
    shown = behind.partition("\n\n")[0].splitlines()
    assert shown == [_row(what) for what in Step]


def _row(what: Step) -> str:
    rule = TABLE[what]
    of = ", ".join(phase.value for phase in Phase if phase in rule.of)
    to = rule.to.value if rule.to is not None else "the same"
    clears = ", ".join(f"`{name}`" for name in rule.clears)
    sets = ", ".join(f"`{name}`" for name in rule.sets)
    return f"| {what.value} | {'any' if len(rule.of) == len(Phase) else of} | {to} | {clears} | {sets} |"
