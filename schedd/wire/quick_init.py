"""Frozen dataclasses that are made often: an ``__init__`` that takes half of the time.

The ``__init__`` of a frozen dataclass sets each field by ``object.__setattr__``, since the class forbids
plain assignment. For records with many fields this was a tenth of the engine's processor time.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache, update_wrapper
from operator import attrgetter
from typing import Any, Final, TypeVar

_T = TypeVar("_T")
_FILLS: Final[dict[type[Any], Callable[[Any, list[Any]], None]]] = {}
"""By class: sets the fields of a new object, in their order."""


def quick_init(cls: type[_T]) -> type[_T]:
    """Return a frozen dataclass with slots, with an ``__init__`` that sets its fields by plain assignment.

    While a new object is initialised, it has a class with the same slots that is not frozen. Nothing else
    changes: the object is frozen when ``__init__`` returns, and ``__post_init__`` finds it frozen. Raises
    TypeError for a class that inherits, that has no slots, or a field without a parameter.
    """
    declared: Any = cls
    if cls.__bases__ != (object,) or "__slots__" not in vars(cls):
        raise TypeError(f"{cls.__name__}: a dataclass with slots and without a base is needed")
    if not all(one.init for one in fields(declared)):
        raise TypeError(f"{cls.__name__}: all fields must be parameters")
    names: dict[str, Any] = {
        "_kind": cls,
        "_plain": type(cls.__name__, (), {"__slots__": declared.__slots__}),
        "_set_class": object.__setattr__,
        "_missing": MISSING,
    }
    parameters, assignments = ["self"], []
    named: list[str] = []
    for one in fields(declared):
        text, value = one.name, one.name
        if one.default_factory is not MISSING:
            names[f"_make_{one.name}"] = one.default_factory
            text = f"{one.name}=_missing"
            value = f"_make_{one.name}() if {one.name} is _missing else {one.name}"
        elif one.default is not MISSING:
            names[f"_default_{one.name}"] = one.default
            text = f"{one.name}=_default_{one.name}"
        (named if one.kw_only else parameters).append(text)
        assignments.append(f" self.{one.name} = {value}")
    begin, end = " _set_class(self, '__class__', _plain)", " self.__class__ = _kind"
    if hasattr(cls, "__post_init__"):
        end += "; self.__post_init__()"
    targets = ", ".join(f"self.{one.name}" for one in fields(declared))
    lines = [f"def initialise({', '.join([*parameters, *(['*', *named] if named else [])])}):", begin]
    lines += [*assignments, end, "def fill(self, values):", begin, f" {targets}, = values", end]
    exec("\n".join(lines), names)
    declared.__init__ = update_wrapper(names["initialise"], declared.__init__)
    _FILLS[cls] = names["fill"]
    return cls


def quick_replace(one: _T, **changes: Any) -> _T:
    """Return a copy of a record with other values of some fields: as ``dataclasses.replace``, in less than
    half of the time. Raises TypeError for a name that is no field.
    """
    kind: Any = type(one)
    places, values_of = _field_getter(kind)
    values = list(values_of(one))
    for name, value in changes.items():
        if name not in places:
            raise TypeError(f"{kind.__name__} has no field {name}")
        values[places[name]] = value
    fill = _FILLS.get(kind)
    if fill is None:
        return kind(**dict(zip(places, values, strict=True)))  # type: ignore[no-any-return]
    copy: _T = object.__new__(kind)
    fill(copy, values)
    return copy


@cache
def _field_getter(kind: Any) -> tuple[dict[str, int], Callable[[Any], tuple[Any, ...]]]:
    """Return the places of the fields, which are several, and a function that returns their values."""
    names = tuple(one.name for one in fields(kind))
    return {name: place for place, name in enumerate(names)}, attrgetter(*names)
