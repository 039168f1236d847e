"""Recurring windows, and other common parts of tables of the site's policy."""

from datetime import date, datetime
from functools import lru_cache
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator

from schedd.policy.recurrence import Recurrence
from schedd.wire.section import Section

_RULE = r"^[A-Za-z0-9=;,+-]*$"


def _zoneless(moment: datetime) -> datetime:
    if moment.tzinfo is not None:
        raise ValueError(f"{moment.isoformat()}: a time on the clock of the site's zone, without an offset")
    return moment


def _checked_window(text: str) -> str:
    try:
        return Recurrence.parse(text).text
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{text}: {error}; write the begin and end of the first window, a rule of RFC 5545 or once, and "
            "a time zone: 2026-01-05T08:00/2026-01-05T18:00 FREQ=DAILY Europe/Berlin"
        ) from None


WindowText = Annotated[str, AfterValidator(_checked_window)]
"""A recurring window in one line."""
VARIABLE_TABLES: Final = ("priority", "classes", "formula", "node_choice", "preemption")
"""Tables of the site's policy that may be others at certain times."""
OptionalName = Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{0,255}$")]
QueueName = Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{1,255}$")]
LocalTime = Annotated[datetime, AfterValidator(_zoneless)]


class WindowSettings(Section):
    """A recurring window of time, in local time of the site's zone."""

    first: LocalTime | None = None
    """Start of the first window of validity, in local time of `zone`: `2026-01-05T08:00:00`.
    Without it, it always applies."""
    last: LocalTime | None = None
    """End of the first window."""
    rule: Annotated[str, Field(pattern=_RULE, max_length=500)] = ""
    """Recurrence rule of the window (RFC 5545): `FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR`. Empty: it does not
    recur."""
    without: tuple[date, ...] = ()
    """Days without a start of the window: `[2026-12-24, 2026-12-25]`."""

    @model_validator(mode="after")
    def _validate_window(self) -> Self:
        if (self.first is None) != (self.last is None):
            raise ValueError("first and last are needed together")
        if self.first is None and (self.rule or self.without):
            raise ValueError("rule and without need first and last")
        if self.first is not None and self.last is not None:
            Recurrence(self.first, self.last, self.rule, without=self.without)  # raises RecurrenceError
        return self

    def window(self, zone: str) -> Recurrence | None:
        """Return the window on the clock of this zone; None: always. Raises RecurrenceError."""
        if self.first is None or self.last is None:
            return None
        return recurring_window(self.first, self.last, self.rule, zone, self.without)


recurring_window: Final = lru_cache(maxsize=256)(Recurrence)
