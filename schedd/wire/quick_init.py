"""Frozen dataclasses that are made often: an ``__init__`` that takes half of the time.

The ``__init__`` of a frozen dataclass sets each field by ``object.__setattr__``, since the class forbids
plain assignment. For records with many fields this was a tenth of the engine's processor time.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, wraps
from operator import attrgetter
from typing import Any, TypeVar

_T = TypeVar("_T")


def quick_init(cls: type[_T]) -> type[_T]:
    """Return a frozen dataclass with slots, with an ``__init__`` that sets its fields by plain assignment.

    While a new object is initialised, it has the class of an equal dataclass that is not frozen. Nothing else
    changes: the object is frozen when ``__init__`` returns. Raises TypeError for a class that inherits, that
    has no slots, or that has a ``__post_init__``.
    """
    if cls.__bases__ != (object,) or "__slots__" not in vars(cls) or hasattr(cls, "__post_init__"):
        raise TypeError(f"{cls.__name__}: a dataclass with slots, without a base and __post_init__ is needed")
    # Annotations and fields as they were declared: the defaults are no longer attributes of the class.
    declared: Any = cls
    namespace = {one.name: one for one in fields(declared)}
    template = type(cls.__name__, (), {"__annotations__": dict(cls.__annotations__), **namespace})
    plain: Any = dataclass(slots=True, eq=False, repr=False, match_args=False)(template)
    assign: Callable[..., None] = plain.__init__
    set_class = object.__setattr__

    @wraps(declared.__init__)
    def initialise(self: Any, *values: Any, **named: Any) -> None:
        set_class(self, "__class__", plain)
        try:
            assign(self, *values, **named)
        finally:
            self.__class__ = cls

    declared.__init__ = initialise
    return cls


def quick_replace(one: _T, **changes: Any) -> _T:
    """Return a copy of a record with other values of some fields: as ``dataclasses.replace``, in less than
    half of the time. Raises TypeError for a name that is no field.
    """
    kind: Any = type(one)
    names, values = _fields_of(kind)
    copy: _T = kind(**{**dict(zip(names, values(one), strict=True)), **changes})
    return copy


@cache
def _fields_of(kind: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Return the names of the fields, which are several, and a function that returns their values."""
    names = tuple(one.name for one in fields(kind))
    return names, attrgetter(*names)
