"""Each field of each component survives a copy and a restart, with a value that is not its default."""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel

from schedd.engine.component.declaration import Component
from schedd.engine.component.parts import empty_parts, fork_parts, load_parts, save_parts
from schedd.engine.component.registry import components
from schedd.features.fair_share.usage import ChargedRun, Usage
from schedd.features.limits.tallies import JobTally
from schedd.features.reservations.state import ReservationRecord
from schedd.plan.schema import MOMENT, field_rule
from schedd.policy.limits import Limit
from schedd.predict.probability_calibration import ProbabilityCalibration
from schedd.predict.run_time_predictor import RunTimePredictor
from schedd.wire import Reserve

_COMPUTED_AGAIN = {
    "accounts": {"held"},
    "deadlines": {"holds_lost"},
    "formula": {"rows", "basis", "in_force"},
    "limits": {"pools", "last", "parsed"},
    "node_choice": {"ranks"},
    "normalised_walltimes": {"table"},
    "partitions": {"table", "table_site", "trial"},
    "power": {"kinds", "saves"},
    "reservations": {"stands"},
    "walltime_extensions": {"selects"},
}
"""Fields that are not saved, besides work in progress (``MOMENT``): they follow from the settings or
other fields, or hold within a batch.
"""


def _usage() -> Usage:
    usage = Usage(("user",), 3600)
    usage.record(ChargedRun(("ann",), 1000, 10, 20))
    return usage


def _predictor() -> RunTimePredictor:
    predictor = RunTimePredictor()
    predictor.record_dispatch("1", 10)
    predictor.record_start_delay("1", 13)
    return predictor


def _calibration() -> ProbabilityCalibration:
    calibration = ProbabilityCalibration()
    calibration.issue("1", 7, 100, 0.5, 0.6)
    return calibration


def _reservation() -> ReservationRecord:
    event = _build(Reserve)
    # Not saved, see there: `down_followed`.
    return ReservationRecord(event, 7, ("n1",), ("gate",))


_MADE = {
    JobTally: lambda: JobTally({"1": 2}, {"2": 3}, 2),
    ProbabilityCalibration: _calibration,
    ReservationRecord: _reservation,
    RunTimePredictor: _predictor,
    Usage: _usage,
}
"""Classes with values that depend on each other, or that are not fields."""


def _build(kind: Any, number: int = 7) -> Any:
    """Return a value of this type that differs from its default."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _MADE:
        return _MADE[kind]()
    if isinstance(kind, UnionType):
        return _build(next(one for one in inner if one is not NoneType), number)
    if origin is Literal:
        return inner[-1]
    if origin is tuple and inner[-1] is not Ellipsis:
        return tuple(_build(one, number + i) for i, one in enumerate(inner))
    if origin in {dict, Mapping}:
        value = _build(inner[1], number + 1)
        return {value.pool if isinstance(value, Limit) else _build(inner[0], number): value}
    if origin in {tuple, list, set, frozenset, deque}:
        return origin([_build(inner[0], number)])
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        given = (one.name for one in fields(kind) if one.init)
        return kind(**{name: _build(hints[name], number + i) for i, name in enumerate(given)})
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        types = {name: one.annotation for name, one in kind.model_fields.items()}
        return kind.model_construct(**{name: _build(types[name], number + i) for i, name in enumerate(types)})
    return {None: None, str: "some", int: number, bool: True, float: number + 0.5}[kind]


def _saved(parts: Mapping[type[Any], Any]) -> tuple[Any, Any]:
    """Return the components' part of a checkpoint."""
    saving = save_parts(parts)
    try:
        while True:
            next(saving)
    except StopIteration as end:
        plain, arrays = end.value
        return json.loads(json.dumps(plain)), arrays


@pytest.mark.parametrize("one", components(), ids=lambda one: one.name)
def test_each_field_of_a_component_survives_a_copy_and_a_restart(one: Component[Any]) -> None:
    hints = get_type_hints(one.state)
    parts = empty_parts()
    part = parts[one.state]
    kept = [each.name for each in fields(one.state) if field_rule(one.state, each.name).saved]
    for name in kept:
        value, default = _build(hints[name]), getattr(part, name)
        setattr(part, name, not default if hints[name] is bool else value)
        assert getattr(part, name) != default, name
    copied, restored = fork_parts(parts), load_parts(*_saved(parts))
    for other in (copied, restored):
        for name in kept:
            there, rule = getattr(other[one.state], name), field_rule(one.state, name)
            if type(there) in {Usage, RunTimePredictor}:  # they compare by identity
                assert str(rule.save(there)) == str(rule.save(getattr(part, name))), name
            else:
                assert there == getattr(part, name), name


@pytest.mark.parametrize("one", components(), ids=lambda one: one.name)
def test_fields_that_are_not_saved_are_listed(one: Component[Any]) -> None:
    rules = {each.name: field_rule(one.state, each.name) for each in fields(one.state)}
    unsaved = {name for name, rule in rules.items() if not rule.saved and rule is not MOMENT}
    assert unsaved == _COMPUTED_AGAIN.get(one.name, set())
