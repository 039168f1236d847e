"""A restored engine continues exactly like the saved one, and an incident can be run again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from random import Random
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import schedd.engine.checkpoint as checkpoint_module
import schedd.engine.engine as engine_module
from schedd.engine import CheckpointError, Engine, EngineSettings, Incident, Outcome
from schedd.engine.checkpoint import FORMAT, FrozenState
from schedd.engine.facts import encoding
from schedd.engine.facts.slot_columns import _column
from schedd.engine.facts.state import EngineState
from schedd.engine.incident import IncidentError, dump_incident, read_incident, rerun_incident
from schedd.model import Chunk, Request
from schedd.plan.columns import Ints
from schedd.plan.kernels.layout import (
    DUR,
    FREED,
    FREED_BASE,
    PARTIAL,
    PARTIAL_START,
    PARTIAL_TOP,
    READY,
    SEARCH_FLAGS,
    SEEN,
    START,
    STATE,
)
from schedd.plan.schema import NAMES, declared
from schedd.wire import Decision, Event, ResourceFacts, ShareFacts
from tests.engine.chaos.lives import Chaos, Ranked, play
from tests.engine.cluster import Cluster
from tests.property_examples import examples


class Recorded(Chaos):
    """Random events, with every call of the engine and a checkpoint in the middle."""

    def __init__(self, calls_before: int) -> None:
        super().__init__()
        self.calls: list[tuple[tuple[Event, ...], int, tuple[Decision, ...]]] = []
        self.saved = b""
        self.calls_before = calls_before
        engine, handle = self.engine, self.engine.handle

        def recorded(batch: list[Event], now: int) -> Outcome:
            events = tuple(batch)
            outcome = handle(events, now)
            if len(self.calls) == self.calls_before:
                self.saved = engine.checkpoint()
            self.calls.append((events, now, outcome.decisions))
            return outcome

        engine.handle = recorded  # type: ignore[assignment, method-assign]


@settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), before=st.integers(0, 200))
def test_replay_of_the_log_since_a_checkpoint_makes_the_same_decisions(seed: int, before: int) -> None:
    world = Recorded(before)
    play(world, Random(seed), 100)
    incident = read_incident(dump_incident(world.engine.incident()))
    assert incident == world.engine.incident()
    if world.saved:
        assert incident.checkpoint == world.saved
    logged = [i for i, batch in enumerate(incident.batches) if batch.paused is None]
    found = list(rerun_incident(incident.checkpoint, incident.batches))
    expected = [decisions for _, _, decisions in world.calls[-len(logged) :]] if logged else []
    assert [found[i] for i in logged] == expected


@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), steps=st.integers(0, 120))
def test_restored_state_is_saved_as_the_same_bytes(seed: int, steps: int) -> None:
    world = Chaos()
    play(world, Random(seed), steps)
    encoding = world.engine.checkpoint()
    restored = Engine.restore(encoding)
    assert restored.checkpoint() == encoding
    assert restored.next_wake == world.engine.next_wake
    assert restored.state.records == world.engine.state.records


class Twins(Chaos):
    """After the first interrupted repair, a restored engine gets the same calls."""

    def __init__(self, calls_before: int) -> None:
        super().__init__()
        self.twin: Engine | None = None
        engine, handle = self.engine, self.engine.handle
        calls = 0

        def both(batch: list[Event], now: int) -> Outcome:
            nonlocal calls
            calls += 1
            outcome = handle(batch, now)
            if self.twin is not None:
                assert self.twin.handle(batch, now).decisions == outcome.decisions
                assert self.twin.next_wake == engine.next_wake
                assert _plan(self.twin) == _plan(engine)
            elif calls > calls_before and engine.state.plan.freed:
                self.twin = self.twin_of(engine)
            return outcome

        engine.handle = both  # type: ignore[assignment, method-assign]

    def twin_of(self, engine: Engine) -> Engine:
        return Engine.restore(engine.checkpoint())

    def pause(self, why: str) -> None:
        super().pause(why)
        if self.twin is not None:
            self.twin.pause(why) if why else self.twin.resume()


class RankedTwins(Twins):
    settings = Ranked.settings


class Forked(Twins):
    """The same with a fork."""

    def twin_of(self, engine: Engine) -> Engine:
        before = FrozenState(engine.state, {}).encode()
        # A trial on a fork has no effect here.
        engine.fork().handle([], engine.state.now + 1000)
        assert FrozenState(engine.state, {}).encode() == before
        return engine.fork()


class RankedForked(Forked):
    settings = Ranked.settings


def _plan(engine: Engine) -> dict[str, list[int]]:
    """Return places, promises, and the progress of the repair."""
    state = engine.state
    ctl, jobs = state.plan.tables.ctl, state.plan.tables.jobs
    return {
        "jobs": jobs[[START, DUR, READY, STATE, SEEN]].ravel().tolist(),
        "promises": state.promise.tolist(),
        "repair": ctl[[FREED, FREED_BASE, SEARCH_FLAGS, PARTIAL, PARTIAL_START, PARTIAL_TOP]].tolist(),
    }


@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 1 << 32),
    before=st.integers(0, 60),
    kind=st.sampled_from([Twins, RankedTwins, Forked, RankedForked]),
)
def test_interrupted_repair_has_the_same_result_from_a_checkpoint_or_on_a_fork(
    seed: int, before: int, kind: type[Twins]
) -> None:
    world = kind(before)
    play(world, Random(seed), 60)
    if world.twin is not None:
        assert world.twin.state.records == world.engine.state.records


@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32))
def test_frozen_state_is_unaffected_by_later_events(seed: int) -> None:
    world = Chaos()
    frozen: list[tuple[FrozenState, bytes]] = []
    handle = world.engine.handle

    def watched(batch: list[Event], now: int) -> Outcome:
        outcome = handle(batch, now)
        if len(frozen) < 30:
            state = world.engine.freeze()
            frozen.append((state, state.encode()))
        return outcome

    world.engine.handle = watched  # type: ignore[assignment, method-assign]
    play(world, Random(seed), 80)
    assert len(frozen) > 20
    for state, then in frozen:
        assert state.encode() == then


@dataclass(slots=True)
class _More(EngineState):
    """The state of a later version, which has fields more."""

    notes: dict[str, int] = declared(NAMES, make=dict)
    seconds: Ints = _column(7)


def test_fields_more_travel_by_being_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    older = _some_engine().checkpoint()
    for module in (checkpoint_module, engine_module):
        monkeypatch.setattr(module, "EngineState", _More)
    engine = _some_engine()
    state = engine.state
    assert isinstance(state, _More)
    slots = state.plan.jobs.size
    assert state.seconds.tolist() == [7] * slots, "as long as the plan has slots"
    state.seconds[3], state.notes["a"] = 5, 2
    for copy in (engine.fork().state, Engine.restore(engine.checkpoint()).state):
        assert isinstance(copy, _More)
        assert (copy.seconds[3], copy.notes) == (5, {"a": 2})
        copy.seconds[3] = copy.notes["b"] = 0
    assert (state.seconds[3], state.notes) == (5, {"a": 2})
    state.drop_slot(state.new_slot(Request((Chunk(1, 1),)), 60))
    assert state.seconds[3] == 5
    loaded = Engine.restore(older).state
    assert isinstance(loaded, _More)
    assert loaded.notes == {}
    assert loaded.seconds.tolist() == [7] * slots, "of a checkpoint that did not have it"


def _some(kind: Any, name: str) -> Any:
    """A value of a field's type that is not its default."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return inner[-1]
    if origin is tuple:
        return (_some(inner[0], name), _some(inner[0], name))
    if origin is Mapping:
        return {"a": _some(inner[1], name)}
    if isinstance(kind, UnionType):
        return _some(next(one for one in inner if one is not type(None)), name)
    if kind is ShareFacts:
        return ShareFacts("n1", 2, 3, 4)
    if kind is ResourceFacts:
        return ResourceFacts("size", "nh")
    return {str: f"some {name}", int: 7, bool: False, float: 2.5}[kind]


@pytest.mark.parametrize("kind", encoding._KINDS)
def test_each_field_of_server_facts_survives_a_restart(kind: Any) -> None:
    facts = kind(**{one.name: _some(one.type, one.name) for one in fields(kind) if one.init})
    plain = json.loads(json.dumps(encoding.save_facts(facts)))
    assert encoding.load_facts(kind, plain) == facts


def test_field_of_unknown_type_is_an_error_at_import() -> None:
    @dataclass
    class More:
        seen: set[str]

    with pytest.raises(TypeError, match="seen"):
        encoding._codecs([More])


def _some_engine() -> Engine:
    world = Chaos()
    play(world, Random(1), 60)
    return world.engine


def test_a_damaged_checkpoint_is_refused_whatever_was_lost() -> None:
    encoding = _some_engine().checkpoint()
    for wrong, words in (
        (b"", "no checkpoint"),
        (b"SQLite format 3\x00", "no checkpoint"),
        (encoding[:20], "cut short"),
        (encoding[:-1], "damaged"),
        (encoding[:-9] + b"\x01" + encoding[-8:], "damaged"),
        (encoding.replace(b"schedd-engine %d\n" % FORMAT, b"schedd-engine 99\n"), "format 99"),
    ):
        with pytest.raises(CheckpointError, match=words):
            Engine.restore(wrong)


def test_a_restored_engine_follows_the_settings_it_is_given() -> None:
    encoding = _some_engine().checkpoint()
    changed = EngineSettings().with_changes(slack="77")
    assert Engine.restore(encoding, changed).state.settings.slack == "77"
    assert Engine.restore(encoding).state.settings == Chaos.settings


def test_a_pause_holds_over_a_checkpoint() -> None:
    engine = _some_engine()
    engine.pause("upgrade of the switch")
    assert Engine.restore(engine.checkpoint()).state.paused == "upgrade of the switch"


def test_an_incident_with_lost_batches_cannot_be_run_again() -> None:
    incident = _some_engine().incident()
    with pytest.raises(IncidentError, match="decisions were made before it"):
        list(rerun_incident(incident.checkpoint, incident.batches[20:]))


@pytest.mark.parametrize("lines", [[], ["{}"], ["[]"], ["no json"], ['{"schedd_incident": 9}']])
def test_invalid_incident_is_reported_with_its_line(lines: list[str]) -> None:
    with pytest.raises(IncidentError, match="line 1"):
        read_incident(lines)


def test_a_damaged_line_is_named() -> None:
    incident = _some_engine().incident()
    lines = list(dump_incident(Incident(incident.checkpoint, incident.batches[:3], 0)))
    lines[2] = lines[2].replace('"events"', '"evens"')
    with pytest.raises(IncidentError, match="line 3"):
        read_incident(lines)
    with pytest.raises(IncidentError, match="3 batches were written, 1 are here"):
        read_incident(lines[:2])


def test_free_capacity_is_used_after_a_recovery_despite_oversized_requests() -> None:
    """What jobs ask for may be beyond all that the log of freed room knows, until a larger node comes."""
    cluster = Cluster(2)
    cluster.submit("long", "2:ppn=4", walltime=1000)
    cluster.submit("huge", "1:ppn=500", walltime=50)
    cluster.submit("small", "1:ppn=2", walltime=100)
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    assert (cluster.start("small"), cluster.start("huge")) == (1000, None)
    cluster.at(10)
    cluster.send(*cluster.server.delete("long"))
    assert cluster.runs("small") == [10]
    cluster.node("big", cpus=512)
    assert cluster.runs("huge") == [10]
    cluster.submit("next", "1:ppn=500", walltime=50, owner="bob@login")
    assert cluster.start("next") == 60
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    cluster.at(20)
    cluster.send(*cluster.server.delete("huge"))
    assert cluster.runs("next") == [20]


def test_notes_stay_with_their_job_though_requests_with_other_notes_are_equal() -> None:
    cluster = Cluster()
    cluster.submit("1", resources={"ncpus": "8"})
    cluster.submit("2")
    restored = Engine.restore(cluster.engine.checkpoint()).state.records
    requests = [restored[job].understood.request for job in "12"]
    assert [one.notes for one in requests if one] == [("ncpus=8 was not followed: nodes= wins",), ()]


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=30,
)


@given(_PLAIN, st.integers(0, 9))
def test_pieces_of_text_are_the_json_of_the_whole(value: object, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_module, "_PIECE", 1 + limit)
        text = b"".join(checkpoint_module._text(value))
    assert text == json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def test_small_objects_are_text_together() -> None:
    """Another thread may work after each piece, and every wait for it costs more than a small piece."""
    nodes = {f"n{i}": {"cpus": i, "features": ["fast"]} for i in range(2_000)}
    pieces = list(checkpoint_module._text(nodes))
    assert json.loads(b"".join(pieces)) == nodes
    assert len(pieces) < 40
    assert max(map(len, pieces)) < 10_000
