"""Bounds of the numbers and names in events."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from typing import Any, Final, get_type_hints

from schedd.api.problems import Fault
from schedd.wire import Event, JobFacts
from schedd.wire.bounds import AMOUNT_END, CORES_END, TIME_END

_TIME_FIELDS: Final = frozenset(
    {"time", "submitted", "eligible", "not_before", "started", "start", "end", "server_age"}
)
_SIGNED_FIELDS: Final = frozenset({"priority", "exit_status", "code"})
_NAME_FIELDS: Final = frozenset({"id", "job_id", "name", "node", "decision_id"})
MAX_NAME_LENGTH: Final = 512
_MAX_FAULTS: Final = 20


def find_range_faults(events: Iterable[Event]) -> list[Fault]:
    """The first numbers and names in ``events`` that exceed the planner's ranges."""
    found: list[Fault] = []
    for number, event in enumerate(events):
        for fault in _check_fields(event, f"body.events[{number}]"):
            found.append(fault)
            if len(found) == _MAX_FAULTS:
                return found
    return found


@dataclass(frozen=True, slots=True)
class _FieldChecks:
    """What to look at in values of one dataclass."""

    names: tuple[str, ...]
    numbers: tuple[str, ...]
    inner: tuple[str, ...]
    get_names: Any
    get_numbers: Any


_checks_by_class: dict[type, _FieldChecks] = {}


def _tuple_getter(names: tuple[str, ...]) -> Any:
    """A function that gets all of them as a tuple."""
    if not names:
        return lambda _: ()
    if len(names) == 1:
        get = attrgetter(names[0])
        return lambda value: (get(value),)
    return attrgetter(*names)


def _checks_for(kind: type) -> _FieldChecks:
    found = _checks_by_class.get(kind)
    if found is None:
        hints = get_type_hints(kind)
        all_names = [field.name for field in fields(kind)]
        named = _NAME_FIELDS - {"name"} if kind is JobFacts else _NAME_FIELDS  # a job's name may be empty
        names = tuple(name for name in all_names if name in named and hints[name] is str)
        numbers = tuple(name for name in all_names if hints[name] in (int, int | None, float))
        plain = (*names, *numbers, "type")
        inner = tuple(name for name in all_names if name not in plain and hints[name] not in (str, bool))
        found = _checks_by_class[kind] = _FieldChecks(
            names, numbers, inner, _tuple_getter(names), _tuple_getter(numbers)
        )
    return found


def _check_fields(value: Any, where: str) -> Iterator[Fault]:
    kind = _checks_for(type(value))
    for name, number in zip(kind.numbers, kind.get_numbers(value), strict=True):
        if number is None:
            continue
        least, end = _allowed_range(name)
        if not least <= number < end:
            shown = str(number)[:30]
            yield Fault(
                where=f"{where}.{name}", what=f"{shown} is out of range", allowed=f"{least} to {end - 1}"
            )
    for name, text in zip(kind.names, kind.get_names(value), strict=True):
        if not 0 < len(text) <= MAX_NAME_LENGTH or "\x00" in text:
            yield Fault(
                where=f"{where}.{name}",
                what="not a name",
                allowed=f"1 to {MAX_NAME_LENGTH} characters, no NUL",
            )
    for name in kind.inner:
        part = getattr(value, name)
        if isinstance(part, tuple):
            for i, one in enumerate(part):
                if is_dataclass(one):
                    yield from _check_fields(one, f"{where}.{name}[{i}]")
        elif isinstance(part, dict):
            for key, one in part.items():
                if isinstance(one, int) and not 0 <= one < AMOUNT_END:
                    shown = f"{where}.{name}.{str(key)[:40]}"
                    yield Fault(where=shown, what="out of range", allowed=f"0 to {AMOUNT_END - 1}")
        elif is_dataclass(part):
            yield from _check_fields(part, f"{where}.{name}")


def _allowed_range(name: str) -> tuple[int, int]:
    if name in _TIME_FIELDS:
        return 0, TIME_END
    if name in _SIGNED_FIELDS:
        return 1 - AMOUNT_END, AMOUNT_END
    if name in ("cpus", "gpus"):
        return 0, CORES_END
    return 0, AMOUNT_END
