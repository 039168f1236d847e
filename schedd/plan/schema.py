"""What a plan consists of, each table and each field declared once.

A plan is made of parts, dataclasses whose fields say how they are copied and saved (``declared``). A fork, a
checkpoint and the way back follow from that. A field that says nothing is a reference to another part: who
copies or loads the part must give it, or KeyError is raised.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, TypeVar

import numpy as np

from schedd.plan.kernels.layout import Ints

__all__ = [
    "COUNTS",
    "FOUND",
    "KEYS",
    "LISTS",
    "MOMENT",
    "NAMES",
    "NUMBER",
    "NUMBERS",
    "OWN",
    "SHARED",
    "SLOTS",
    "Arrays",
    "FieldRule",
    "arrays_below",
    "copy_fields",
    "declared",
    "field_rule",
    "fork_part",
    "load_part",
    "map_in_pieces",
    "save_part",
]

Arrays = dict[str, Ints]
_P = TypeVar("_P")
_S = TypeVar("_S")
_T = TypeVar("_T")
_PIECE: Final = 200
_KEPT: Final = "kept"


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class FieldRule:
    """How a kind of value is copied for a fork and saved in a checkpoint.

    ``save`` makes it JSON-able; with ``each`` a list, of which every element is then saved by that; with
    ``arrays`` it makes a dict of arrays instead. ``load`` is the way back. Without ``saved`` it is no part of
    a checkpoint.
    """

    copy: Callable[[Any], Any] = _same
    save: Callable[[Any], Any] = _same
    load: Callable[[Any], Any] = _same
    each: Callable[[Any], Any] | None = None
    arrays: bool = False
    saved: bool = True
    kind: type[Any] | None = None
    """The dataclass of which ``each`` saves the fields."""


NUMBER: Final = FieldRule()
"""A number, a truth value."""
NUMBERS: Final = FieldRule(
    list, lambda value: {"": np.array(value, np.int64)}, lambda a: a[""].tolist(), arrays=True
)
"""A list of integers."""
SLOTS: Final = FieldRule(_same, lambda value: {"": value}, lambda arrays: arrays[""], arrays=True)
"""An array that is replaced, never changed."""
NAMES: Final = FieldRule(dict)
"""A dict from names to numbers."""
COUNTS: Final = FieldRule(dict, lambda value: list(value.items()), dict)
"""A dict from numbers to numbers or names."""
LISTS: Final = FieldRule(
    lambda value: {key: list(of) for key, of in value.items()},
    lambda value: list(value.items()),
    lambda pairs: {key: list(of) for key, of in pairs},
)
"""A dict from numbers to lists of integers."""
KEYS: Final = FieldRule(dict, list, dict.fromkeys)
"""A dict of which only the keys and their order count."""
FOUND: Final = FieldRule(dict, saved=False)
"""A dict that is found again from other fields, by ``derive`` of its part or by who loads it."""
SHARED: Final = FieldRule(saved=False)
"""What forks share, or a number that begins anew with a checkpoint."""
OWN: Final = FieldRule(lambda value: value.copy(), saved=False)
"""What copies itself, and is found again or saved by who saves the part."""
MOMENT: Final = FieldRule(lambda _: None, saved=False)
"""Work under way that only saves time later: a copy begins without it."""


def declared(
    how: FieldRule, *, make: Callable[[], Any] | None = None, default: Any = MISSING, **more: Any
) -> Any:
    """A field of a part, which begins as ``make`` or ``default`` says; ``more`` stands in its metadata."""
    told = {_KEPT: how, **more}
    return field(default_factory=make, metadata=told) if make else field(default=default, metadata=told)


def map_in_pieces(call: Callable[[_S], _T], values: Sequence[_S]) -> Generator[bytes, None, list[_T]]:
    """``call`` of each value; yields nothing, often, so that the work may be interrupted there."""
    found: list[_T] = []
    for first in range(0, len(values), _PIECE):
        found += map(call, values[first : first + _PIECE])
        yield b""
    return found


def field_rule(kind: Any, name: str) -> FieldRule:
    """How a field of a part is copied and saved. Raises KeyError for a reference to another part."""
    how = dict(_field_rules(kind))[name]
    if how is None:
        raise KeyError(name)
    return how


def _field_rules(kind: Any) -> list[tuple[str, FieldRule | None]]:
    return [(one.name, one.metadata.get(_KEPT)) for one in fields(kind)]


def _defaults(kind: Any) -> dict[str, Any]:
    """The values with which fields begin."""
    found = {one.name: one.default for one in fields(kind) if one.default is not MISSING}
    return found | {
        one.name: one.default_factory() for one in fields(kind) if one.default_factory is not MISSING
    }


def _build(kind: type[_P], values: Mapping[str, Any]) -> _P:
    part = object.__new__(kind)
    for name, value in values.items():
        setattr(part, name, value)
    return part


def fork_part(part: _P, **others: Any) -> _P:
    """A copy of a part, ``others`` being the parts to which it refers. Raises KeyError for one left out."""
    return _build(
        type(part),
        {
            name: others[name] if how is None else how.copy(getattr(part, name))
            for name, how in _field_rules(part)
        },
    )


def copy_fields(part: _P, other: _P) -> None:
    """Let a part be as ``other`` is; its references stay."""
    for name, how in _field_rules(part):
        if how is not None:
            setattr(part, name, how.copy(getattr(other, name)))


def save_part(part: Any) -> Generator[bytes, None, tuple[dict[str, Any], Arrays]]:
    """A part as plain values and arrays, by the names of its fields. Give a copy: this may take a while."""
    plain: dict[str, Any] = {}
    arrays: Arrays = {}
    for name, how in _field_rules(part):
        if how is None or not how.saved:
            continue
        saved = how.save(getattr(part, name))
        yield b""
        if how.arrays:
            arrays |= {f"{name}.{key}" if key else name: array for key, array in saved.items()}
        elif how.each is not None:
            plain[name] = yield from map_in_pieces(how.each, saved)
        else:
            plain[name] = saved
    return plain, arrays


def arrays_below(name: str, arrays: Mapping[str, Ints]) -> Arrays:
    """Those of ``arrays`` whose names begin with ``name``, by what follows it: nothing, or behind a dot."""
    cut = {key: key.partition(".") for key in arrays}
    return {after: arrays[key] for key, (first, _, after) in cut.items() if first == name}


def load_part(kind: type[_P], plain: Mapping[str, Any], arrays: Arrays, **others: Any) -> _P:
    """The part that ``save_part`` saved; a field that is younger than that begins as it does in a new part.

    Raises KeyError for a reference that is not given, and TypeError or ValueError for what was not saved so.
    """
    values = _defaults(kind) | others
    for name, how in _field_rules(kind):
        if how is None and name not in others:
            raise KeyError(name)
        if how is None or not how.saved:
            continue
        if how.arrays:
            own = arrays_below(name, arrays)
            if own:
                values[name] = how.load(own)
        elif name in plain:
            values[name] = how.load(plain[name])
    part = _build(kind, values)
    derive: Callable[[], None] | None = getattr(part, "derive", None)
    if derive is not None:
        derive()
    return part
