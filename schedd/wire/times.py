"""Times in the settings: ``4h``, ``30s``, or a number in the setting's unit."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field
from pydantic.fields import FieldInfo

from schedd.wire.durations import NOTATION, format_duration, parse_duration

LONGEST: Final = 10 * 366 * 86_400  # ten years in seconds


@dataclass(frozen=True, slots=True)
class AllowedValues:
    """Description of a setting's values for the reference, if its type does not show them."""

    words: str


@dataclass(frozen=True, slots=True)
class TimeIn:
    """Marks a setting as a time; ``unit`` is the unit of a plain number, in seconds."""

    unit: int = 1


def _read(unit: int) -> BeforeValidator:
    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return float(value) if "." in value else int(value)
        except ValueError:
            pass
        try:
            seconds = parse_duration(value)
        except ValueError:
            raise ValueError(f"a time such as {NOTATION}, or a number of {_NAMES[unit]}") from None
        return seconds if unit == 1 else seconds / unit

    return BeforeValidator(read)


_NAMES = {1: "seconds", 3600: "hours", 86_400: "days"}

Whole = Annotated[int, _read(1), TimeIn()]  # whole seconds, with bounds of its own
Seconds = Annotated[int, _read(1), Field(ge=0, le=LONGEST), TimeIn()]  # whole seconds
Step = Annotated[int, _read(1), Field(ge=1, le=LONGEST), TimeIn()]  # whole seconds, at least one
FloatSeconds = Annotated[float, _read(1), TimeIn()]  # seconds, with bounds of its own
Hours = Annotated[float, _read(3600), TimeIn(3600)]  # hours, with bounds of its own
Days = Annotated[float, _read(86_400), TimeIn(86_400)]  # days, with bounds of its own


def setting_unit(field: FieldInfo) -> int | None:
    """Return the unit of the setting in seconds, or None for a setting without time."""
    return next((mark.unit for mark in field.metadata if isinstance(mark, TimeIn)), None)


def written(field: FieldInfo, value: Any) -> Any:
    """Return a setting's value in text form: times as ``4h``."""
    unit = setting_unit(field)
    known = unit is not None and isinstance(value, int | float)
    return format_duration(value * unit) if known else value
