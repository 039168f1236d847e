"""Facts that outlive the checkpoint format: user and admin data that the server does not have.

They are stored as JSON with each checkpoint. A daemon that cannot read the checkpoint, because it is damaged
or of another version, continues with these facts and the next snapshot of the server. Each section is read
separately: unreadable ones are reported, the others are used. Sections and fields may therefore be added
without a new format.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from schedd.engine.component.cluster_hooks import rebuild_components
from schedd.engine.component.declaration import Component
from schedd.engine.component.parts import lasting_fields, lasting_value
from schedd.engine.component.registry import components
from schedd.engine.facts.alerts import raise_alert
from schedd.engine.facts.carried_jobs import load_carried_job, save_carried_job
from schedd.engine.facts.carry_over import carry_job
from schedd.engine.facts.encoding import known_fields, load_facts, save_facts
from schedd.engine.facts.state import EngineState
from schedd.engine.handlers import apply_all
from schedd.error_text import describe_error
from schedd.plan.schema import Arrays, FieldRule, field_rule
from schedd.policy.engine_settings import EngineSettings
from schedd.policy.site import site_policy
from schedd.wire import (
    Event,
    NodeChanged,
    NodeFacts,
    PlanningHeld,
    QueueChanged,
    QueueFacts,
    ServerChanged,
    ServerFacts,
)

_JOBS: Final = 200  # jobs between two pieces
_BYTES: Final = 3 << 18
"""Bytes of an array in one piece: a multiple of three, which base64 writes without padding."""
_UNREADABLE: Final = (KeyError, TypeError, ValueError, IndexError, AttributeError)
_EVENT: Final = "lasting-facts"
_FIELDS: Final = (
    *("paused", "paused_since", "unscheduled_since", "foreign", "adapter_mode"),
    *("decision_number", "change_number", "generation", "breaches"),
    *("lost", "walltime_use", "aside", "lives"),
    *("black_holes", "failures"),
    "holds",
)
"""Fields of the state that are kept as a checkpoint keeps them, each a section of its own."""
_SECTIONS: Final = (
    *_FIELDS,
    "jobs",
    "policy",
    "server",
    "queues",
    "nodes",
)
_KINDS: Final[Mapping[str, type[Any]]] = {
    "holds": PlanningHeld,
}
"""Sections that are lists of such: fields of another version's are left out."""


def sections() -> tuple[str, ...]:
    """Return the names of all sections; sections of components are ``component.field``."""
    return (*_SECTIONS, *(f"{one.name}.{name}" for one in components() for name in lasting_fields(one)))


# ---- writing ------------------------------------------------------------------------------------


def dump_lasting_facts(state: EngineState) -> Iterator[bytes]:
    """The facts in pieces: no piece takes long to make. Give a copy of the state."""
    yield b"{" + _member("now", state.now)
    for name in _FIELDS:
        yield b"," + _member(name, _saved(field_rule(EngineState, name), getattr(state, name)))
    for one in components():
        for name in lasting_fields(one):
            how, value = field_rule(one.state, name), lasting_value(one, state.part(one.state), name)
            if how.mixed and value is not None:
                yield from _mixed_member(f"{one.name}.{name}", *how.save(value))
            elif not how.mixed:
                yield b"," + _member(f"{one.name}.{name}", _saved(how, value))
    yield b"," + _member("policy", _policy(state))
    yield b"," + _member("server", save_facts(state.server))
    yield b"," + _member("queues", list(map(save_facts, state.queues.values())))
    yield b"," + _member("nodes", list(map(save_facts, state.node_facts.values())))
    yield b',"jobs":'
    yield from _jobs(state)
    yield b"}"


def _mixed_member(key: str, plain: Any, arrays: Arrays) -> Iterator[bytes]:
    """A member with plain values, and arrays in base64."""
    yield b"," + _text(key).encode() + b":{" + _member("plain", plain) + b',"arrays":{'
    opening = b""
    for name, array in arrays.items():
        yield opening + _text(name).encode() + b":[" + _text(list(array.shape)).encode() + b',"'
        content = np.ascontiguousarray(array, "<i8").tobytes()
        for first in range(0, len(content), _BYTES):
            yield base64.b64encode(content[first : first + _BYTES])
        yield b'"]'
        opening = b","
    yield b"}}"


def _member(name: str, value: Any) -> bytes:
    return (_text(name) + ":" + _text(value)).encode("utf-8", "surrogatepass")


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _policy(state: EngineState) -> dict[str, Any] | None:
    """Return the policy that was set at run time; None: the policy of the settings is in force."""
    if not state.policy_version:
        return None
    return {"version": state.policy_version, "site": dict(state.site.plain)}


def _jobs(state: EngineState) -> Iterator[bytes]:
    opening = "{"
    found = {name: save_carried_job(one) for name, one in state.carried_jobs.items()}
    records = list(state.records.values())
    for first in range(0, len(records) + 1, _JOBS):
        for record in records[first : first + _JOBS]:
            kept = carry_job(state, record)
            if kept is not None:
                found[record.id] = save_carried_job(kept)
        if found:
            yield (opening + _text(found)[1:-1]).encode("utf-8", "surrogatepass")
            opening, found = ",", {}
    yield b"}" if opening == "," else b"{}"


# ---- reading ------------------------------------------------------------------------------------


def load_lasting_facts(data: bytes, settings: EngineSettings) -> tuple[EngineState, list[str]]:
    """Return a state with these facts, which waits for a snapshot of the server, and the unreadable sections.

    Raises ValueError for other data.
    """
    facts = json.loads(data.decode("utf-8", "surrogatepass"))
    if not isinstance(facts, dict) or not isinstance(facts.get("now"), int):
        raise ValueError("these are no facts of an engine")
    unread: list[str] = []

    def read(name: str, take: Callable[[Any], None]) -> None:
        if facts.get(name) is not None:
            try:
                take(facts[name])
            except _UNREADABLE as error:
                unread.append(f"{name} ({describe_error(error)})")

    state = EngineState.empty(settings, facts["now"])
    unread += [f"{name} (not known to this version)" for name in facts if name not in (*sections(), "now")]

    def policy(saved: Any) -> None:
        nonlocal state
        state = EngineState.empty(settings.with_changes(site=site_policy(saved["site"])), facts["now"])
        state.configured, state.policy_version = dict(settings.site.plain), saved["version"]

    read("policy", policy)
    for name in _FIELDS:
        read(name, partial(_load_field, state, name))
    for one in components():
        for name in lasting_fields(one):
            read(f"{one.name}.{name}", partial(_load_component_field, state, one, name))
        if one.without_plan is not None:
            one.without_plan(state.part(one.state))
        if one.begin is not None:
            one.begin(state)
    state.gather_limits()
    state.update_request_reader()
    read("jobs", lambda saved: _load_jobs(state, saved))
    decided = state.decision_number
    for name, make in _CLUSTER.items():
        read(name, partial(_apply_section, state, make))
    rebuild_components(state)
    for name, words in state.black_holes.items():
        raise_alert(state, "black_hole", name, f"{words}; it gets no new jobs")
    state.decisions, state.moves, state.decision_number = [], [], decided
    state.stale = "the plan is rebuilt"
    state.lose_track()
    return state, unread


def _load_field(state: EngineState, name: str, saved: Any) -> None:
    _set_field(state, name, _field(name, saved))


def _saved(how: FieldRule, value: Any) -> Any:
    saved = how.save(value)
    return list(map(how.each, saved)) if how.each is not None else saved


def _load_component_field(state: EngineState, one: Component[Any], name: str, saved: Any) -> None:
    how, part = field_rule(one.state, name), state.part(one.state)
    if how.mixed:
        saved = _load_mixed(saved)
    if how.kind is not None:
        saved = [known_fields(how.kind, each) for each in saved]
    _set_field(part, name, how.load(saved))


def _set_field(part: Any, name: str, value: Any) -> None:
    """Raises TypeError for a value of another type than it has now."""
    now = getattr(part, name)
    if now is not None and not isinstance(value, type(now)):
        raise TypeError(f"a {type(value).__name__}, not a {type(now).__name__}")
    setattr(part, name, value)


def _field(name: str, saved: Any) -> Any:
    kind = _KINDS.get(name)
    if kind is not None:
        saved = [known_fields(kind, one) for one in saved]
    return field_rule(EngineState, name).load(saved)


def _load_jobs(state: EngineState, saved: Any) -> None:
    state.carried_jobs = {name: load_carried_job(one) for name, one in saved.items()}


def _load_mixed(saved: Any) -> tuple[Any, Arrays]:
    arrays = {
        name: np.frombuffer(base64.b64decode(text, validate=True), "<i8").reshape(shape).astype(np.int64)
        for name, (shape, text) in saved["arrays"].items()
    }
    return saved["plain"], arrays


def _apply_section(state: EngineState, make: Callable[[int, Any], list[Event]], saved: Any) -> None:
    apply_all(state, make(state.now, saved))


def _server(now: int, saved: Any) -> list[Event]:
    facts = load_facts(ServerFacts, known_fields(ServerFacts, saved))
    return [ServerChanged(id=_EVENT, time=now, server=facts)]


def _queues(now: int, saved: Any) -> list[Event]:
    found = [load_facts(QueueFacts, known_fields(QueueFacts, one)) for one in saved]
    return [QueueChanged(id=_EVENT, time=now, queue=one) for one in found]


def _nodes(now: int, saved: Any) -> list[Event]:
    found = [load_facts(NodeFacts, known_fields(NodeFacts, one)) for one in saved]
    return [NodeChanged(id=_EVENT, time=now, node=one) for one in found]


_CLUSTER: Final[Mapping[str, Callable[[int, Any], list[Event]]]] = {
    "server": _server,
    "queues": _queues,
    "nodes": _nodes,
}
"""Sections that are applied as events."""
