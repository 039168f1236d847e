"""Declaration of the parts of a plan: each table and each field once.

Parts are dataclasses with declarations of how each field is copied and saved (``declared``). Forks,
checkpoints and their restoration follow from that. A field without declaration is a reference to another
part: the caller that copies or loads the part must supply it, or KeyError is raised.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, TypeVar

import numpy as np

from schedd.plan.kernels.layout import Ints

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
    """How a field is copied for a fork and saved in a checkpoint.

    ``save`` returns a JSON-able value; with ``each`` a list, and ``each`` saves its elements; with ``arrays``
    a dict of arrays; with ``mixed`` a JSON-able value and a dict of arrays, which ``load`` gets as a pair. If
    that takes long, ``save`` is a generator, which yields nothing and returns them.
    ``load`` is the inverse. Without ``saved`` the field is not in the checkpoint.
    """

    copy: Callable[[Any], Any] = _same
    save: Callable[[Any], Any] = _same
    load: Callable[[Any], Any] = _same
    each: Callable[[Any], Any] | None = None
    arrays: bool = False
    mixed: bool = False
    saved: bool = True
    kind: type[Any] | None = None  # the dataclass with the fields that `each` saves


NUMBER: Final = FieldRule()  # a number or a boolean
NUMBERS: Final = FieldRule(
    list, lambda value: {"": np.array(value, np.int64)}, lambda a: a[""].tolist(), arrays=True
)
"""A list of integers."""
SLOTS: Final = FieldRule(_same, lambda value: {"": value}, lambda arrays: arrays[""], arrays=True)
"""An array that is replaced, never changed."""
NAMES: Final = FieldRule(dict)  # a dict from names to numbers
COUNTS: Final = FieldRule(dict, lambda value: list(value.items()), dict)
"""A dict from numbers to numbers or names."""
LISTS: Final = FieldRule(
    lambda value: {key: list(of) for key, of in value.items()},
    lambda value: list(value.items()),
    lambda pairs: {key: list(of) for key, of in pairs},
)
"""A dict from numbers to lists of integers."""
KEYS: Final = FieldRule(dict, list, dict.fromkeys)  # a dict with meaning only in its keys and their order
FOUND: Final = FieldRule(dict, saved=False)
"""A dict that is recomputed from other fields, by ``derive`` of its part or by the loader."""
SHARED: Final = FieldRule(saved=False)
"""A value that forks share, or that decides nothing in the plan and has its default in a restored one."""
OWN: Final = FieldRule(lambda value: value.copy(), saved=False)
"""A value with a ``copy`` method, recomputed or saved by the owner of the part."""
MOMENT: Final = FieldRule(lambda _: None, saved=False)
"""Work in progress that only saves time later: a copy starts without it, with None as by default."""


def declared(
    how: FieldRule, *, make: Callable[[], Any] | None = None, default: Any = MISSING, **more: Any
) -> Any:
    """Declare a field of a part with the default ``make()`` or ``default``; ``more`` is added to its
    metadata. Raises ValueError for a ``MOMENT`` with another default than the None of a copy.
    """
    if how is MOMENT and (make is not None or default is not None):
        raise ValueError("a MOMENT is None by default, as in a copy")
    field_rules = {_KEPT: how, **more}
    return (
        field(default_factory=make, metadata=field_rules)
        if make
        else field(default=default, metadata=field_rules)
    )


def map_in_parts(call: Callable[[_S], _T], values: Sequence[_S]) -> Generator[bytes, None, list[_T]]:
    """Return ``call`` of each value; yields nothing, often, so that the work may be interrupted there."""
    found: list[_T] = []
    for first in range(0, len(values), _PIECE):
        found += map(call, values[first : first + _PIECE])
        yield b""
    return found


_rules: dict[Any, Mapping[str, FieldRule | None]] = {}
"""Rules of the parts that were copied or saved: `fields` takes longer than the copy of a small part."""


def field_rule(kind: Any, name: str) -> FieldRule:
    """Return how a field of a part is copied and saved. Raises KeyError for a reference to another part."""
    how = _field_rules(kind)[name]
    if how is None:
        raise KeyError(name)
    return how


def _field_rules(kind: Any) -> Mapping[str, FieldRule | None]:
    """Return the rules by name of field; None: a reference to another part."""
    found = _rules.get(kind)
    if found is None:
        found = _rules[kind] = {one.name: one.metadata.get(_KEPT) for one in fields(kind)}
    return found


def _defaults(kind: Any) -> dict[str, Any]:
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
    """Return a copy of a part; ``others``: parts that it refers to. Raises KeyError for a missing one."""
    return _build(
        type(part),
        {
            name: others[name] if how is None else how.copy(getattr(part, name))
            for name, how in _field_rules(type(part)).items()
        },
    )


def copy_fields(part: _P, other: _P) -> None:
    """Copy all fields of ``other``, except references, into a part."""
    for name, how in _field_rules(type(part)).items():
        if how is not None:
            setattr(part, name, how.copy(getattr(other, name)))


def save_part(part: Any) -> Generator[bytes, None, tuple[dict[str, Any], Arrays]]:
    """Return a part as plain values and arrays, by names of fields. Pass a copy: this may take a while."""
    plain: dict[str, Any] = {}
    arrays: Arrays = {}
    for name, how in _field_rules(type(part)).items():
        if how is None or not how.saved:
            continue
        saved = how.save(getattr(part, name))
        yield b""
        if isinstance(saved, Generator):
            saved = yield from saved
        if how.mixed:
            plain[name], saved = saved
        if how.arrays or how.mixed:
            arrays |= {f"{name}.{key}" if key else name: array for key, array in saved.items()}
        elif how.each is not None:
            plain[name] = yield from map_in_parts(how.each, saved)
        else:
            plain[name] = saved
    return plain, arrays


def arrays_below(name: str, arrays: Mapping[str, Ints]) -> Arrays:
    """Return the arrays named ``name`` or ``name.*``, by the rest of their names."""
    cut = {key: key.partition(".") for key in arrays}
    return {after: arrays[key] for key, (first, _, after) in cut.items() if first == name}


def load_part(kind: type[_P], plain: Mapping[str, Any], arrays: Arrays, **others: Any) -> _P:
    """Return the part that ``save_part`` saved; fields newer than the checkpoint get their defaults.

    Raises KeyError for a missing reference, and TypeError or ValueError for anything that was not saved this
    way.
    """
    values = _defaults(kind) | others
    for name, how in _field_rules(kind).items():
        if how is None and name not in others:
            raise KeyError(name)
        if how is None or not how.saved:
            continue
        own = arrays_below(name, arrays) if how.arrays or how.mixed else {}
        if how.mixed:
            if name in plain:
                values[name] = how.load((plain[name], own))
        elif how.arrays:
            if own:
                values[name] = how.load(own)
        elif name in plain:
            values[name] = how.load(plain[name])
    part = _build(kind, values)
    derive: Callable[[], None] | None = getattr(part, "derive", None)
    if derive is not None:
        derive()
    return part
