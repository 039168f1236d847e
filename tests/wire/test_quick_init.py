"""Frozen dataclasses with a quick ``__init__`` differ from usual ones in nothing but the time."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from schedd.engine.facts.records import ChangeSet, JobRecord
from schedd.policy.protocol import Applicant
from schedd.wire import JobFacts, JobQueued, JobStarted, Run, ShareFacts, WriteAttributes
from schedd.wire.quick_init import quick_init, quick_replace


@dataclass(frozen=True, slots=True)
class _Usual:
    first: int
    second: list[int] = field(default_factory=list)
    third: str = field(default="c", compare=False)
    fourth: int = field(default=4, kw_only=True)


@quick_init
@dataclass(frozen=True, slots=True)
class _Quick:
    first: int
    second: list[int] = field(default_factory=list)
    third: str = field(default="c", compare=False)
    fourth: int = field(default=4, kw_only=True)


def test_values_and_defaults_are_those_of_a_usual_dataclass() -> None:
    for values, named in (((1,), {}), ((1, [2]), {"fourth": 5}), ((), {"first": 1, "third": "x"})):
        usual, quick = _Usual(*values, **named), _Quick(*values, **named)
        assert [getattr(quick, one.name) for one in fields(quick)] == [
            getattr(usual, one.name) for one in fields(usual)
        ]
    assert _Quick(1).second is not _Quick(1).second
    assert _Quick(1, third="x") == _Quick(1) != _Quick(2)
    assert replace(_Quick(1), first=2) == _Quick(2)


def test_quick_copy_is_that_of_a_usual_replacement() -> None:
    facts = JobFacts(id="1", owner="u", queue="q", submitted=5, resources={"nodes": "1"}, starts=2)
    more: dict[str, Any] = {"state": "R", "shares": (), "started": 7, "holds": "u"}
    for changes in ({}, {"starts": 3}, more):
        assert quick_replace(facts, **changes) == replace(facts, **changes)
    with pytest.raises(TypeError, match="fifth"):
        quick_replace(_Quick(1), fifth=5)


def test_object_is_frozen_and_of_its_class_after_its_initialisation() -> None:
    quick = _Quick(1)
    assert type(quick) is _Quick
    with pytest.raises(FrozenInstanceError):
        quick.first = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match="first"):
        _Quick()  # type: ignore[call-arg]
    assert pickle.loads(pickle.dumps(quick)) == copy.deepcopy(quick) == quick


def test_new_object_and_copy_are_checked() -> None:
    @quick_init
    @dataclass(frozen=True, slots=True)
    class Checked:
        first: int
        second: int = 0

        def __post_init__(self) -> None:
            if self.first + self.second < 0:
                raise ValueError(self.first)

    assert quick_replace(Checked(1), first=2) == Checked(2)
    with pytest.raises(ValueError, match="-1"):
        Checked(-1)
    with pytest.raises(ValueError, match="-2"):
        quick_replace(Checked(1), first=-2)


def test_class_that_would_lose_something_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Heir(_Usual):
        fifth: int = 5

    @dataclass(frozen=True)
    class WithoutSlots:
        first: int

    @dataclass(frozen=True, slots=True)
    class Counted:
        first: int = field(default=1, init=False)

    with pytest.raises(TypeError, match="parameters"):
        quick_init(Counted)
    for kind in (Heir, WithoutSlots):
        with pytest.raises(TypeError, match="slots"):
            quick_init(kind)


@pytest.mark.parametrize(
    "kind",
    [JobRecord, ChangeSet, JobFacts, JobQueued, JobStarted, Run, WriteAttributes, Applicant, ShareFacts],
)
def test_records_made_for_each_event_are_frozen(kind: type) -> None:
    made = kind(**{one.name: one.name for one in fields(kind) if one.init})
    assert type(made) is kind
    for one in fields(kind):
        assert getattr(made, one.name) == one.name
        with pytest.raises(FrozenInstanceError):
            setattr(made, one.name, "other")
