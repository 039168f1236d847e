"""Recurring windows of wall-clock time, as seconds UTC.

The rule follows RFC 5545 (section 3.3.10), expanded on the wall clock of a time zone. A window from 20:00 to
08:00 has these times on every day, also across clock changes: it is then an hour shorter or longer, and a
window that begins at 08:00 follows without gap or overlap.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dateutil.rrule import rrule, rrulestr

_LONGEST = timedelta(days=366)
_NUMBERS: Final = {
    "BYMONTHDAY": (-31, 31),
    "BYYEARDAY": (-366, 366),
    "BYWEEKNO": (-53, 53),
    "BYMONTH": (1, 12),
    "BYSETPOS": (-366, 366),
    "BYHOUR": (0, 23),
    "BYMINUTE": (0, 59),
    "INTERVAL": (1, 1000),
    "COUNT": (1, 10_000),
}
"""Numeric parts and their ranges; negative values count from the end, and 0 is then invalid."""
_ONE: Final = frozenset({"INTERVAL", "COUNT"})  # parts with a single number; other parts are lists
_PARTS: Final = (*_NUMBERS, "BYDAY", "FREQ", "UNTIL", "WKST")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,5}")
_DAY: Final = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_WEEKS: Final = {"MONTHLY": 5, "YEARLY": 53}  # maximum ordinal before a weekday: the second Monday is `2MO`
_MOST_A_DAY: Final = 96  # maximum begins in one day, BYHOUR times BYMINUTE
_DAYS: Final = {"DAILY": 1, "WEEKLY": 7, "MONTHLY": 31, "YEARLY": 366}  # days in one period
_SHOWN: Final = 200  # maximum characters of a rule in a message
_YEARS: Final = (1970, 2399)
_CYCLE: Final = 400  # years after which the calendar repeats, including weekdays
_FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_PERIODS: Final = {"DAILY": 1, "WEEKLY": 7}
"""Days from one period of a rule to the next, for periods of equal length."""
_CHECKED = 64, timedelta(days=8 * 366 + 1)
"""Number of first windows, and time span, that are checked for overlaps."""


class RecurrenceError(ValueError):
    """An invalid rule; the message names the part and the allowed values."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurring window. ``first`` and ``last`` are begin and end of the first window on the clock of
    ``zone`` (an IANA name).

    ``rule`` is an RRULE such as ``FREQ=WEEKLY;BYDAY=MO``, or empty for a single window. Days in ``without``
    are excluded, by the day of the begin. Raises RecurrenceError.
    """

    first: datetime
    last: datetime
    rule: str = ""
    zone: str = "UTC"
    without: tuple[date, ...] = ()

    def __post_init__(self) -> None:
        if self.first.tzinfo is not None or self.last.tzinfo is not None:
            raise RecurrenceError(
                "begin and end are times on the clock of the zone: they must be without an offset"
            )
        if not self.first < self.last:
            raise RecurrenceError(f"it ends at {self.last} and begins at {self.first}: it must end later")
        if self.last - self.first > _LONGEST:
            raise RecurrenceError(f"it lasts {self.last - self.first}: at most {_LONGEST.days} days")
        if not _YEARS[0] <= self.first.year <= _YEARS[1]:
            raise RecurrenceError(f"it begins at {self.first}: from {_YEARS[0]} to {_YEARS[1]}")
        _zone(self.zone)
        _check_rule(self.rule)
        most, ahead = _CHECKED
        begins = list(islice(_starts(self, self.first, self.first + ahead), most))
        if not begins:
            raise RecurrenceError(f"{self.rule}: no window from {self.first} on in {ahead.days // 366} years")
        for one, other in pairwise(begins):
            if other < one + self.length:
                raise RecurrenceError(
                    f"{self.rule}: the window of {one} has not ended when the next begins at {other}"
                )

    @classmethod
    def parse(cls, text: str) -> "Recurrence":
        """Return the window of the text. Raises RecurrenceError, ValueError."""
        return _parse_text(text)

    @property
    def text(self) -> str:
        """One line with begin and end, rule, zone and excluded days."""
        window = f"{self.first.isoformat()}/{self.last.isoformat()}"
        without = ",".join(day.isoformat() for day in self.without)
        return " ".join((window, self.rule or "once", self.zone, without)).rstrip()

    @property
    def description(self) -> str:
        short = self.length <= timedelta(days=1)
        until = f"{self.last:%H:%M}" if short else f"{self.last:%Y-%m-%d %H:%M}"
        when = f"from {self.first:%H:%M} to {until} {self.zone}"
        return f"{when}, {self.rule}" if self.rule else f"on {self.first:%Y-%m-%d} {when}"

    @property
    def length(self) -> timedelta:
        """Duration on the wall clock."""
        return self.last - self.first


@lru_cache(maxsize=256)
def _parse_text(text: str) -> Recurrence:
    window, *rest = text.split()
    if len(rest) < 2 or window.count("/") != 1:
        raise RecurrenceError("a part is missing")
    (first, last), (rule, zone, *without) = window.split("/"), rest
    return Recurrence(
        first=datetime.fromisoformat(first),
        last=datetime.fromisoformat(last),
        rule="" if rule == "once" else rule,
        zone=zone,
        without=tuple(date.fromisoformat(day) for part in without for day in part.split(",")),
    )


def occurrences(recurrence: Recurrence, begin: int, end: int) -> tuple[tuple[int, int], ...]:
    """Return the complete windows that overlap ``[begin, end)``, as half-open intervals in seconds UTC, in
    order.

    A skipped clock time maps to the time of the skip; for a repeated time the first is used. A window within
    a skipped hour does not occur.
    """
    if begin >= end:
        return ()
    zone = _zone(recurrence.zone)
    # One day more on either side: no zone is further from UTC, and no clock is changed by more.
    day = timedelta(days=1)
    after = datetime.fromtimestamp(begin, UTC).replace(tzinfo=None) - recurrence.length - day
    before = datetime.fromtimestamp(end, UTC).replace(tzinfo=None) + day
    found = []
    for start in _starts(recurrence, after, before):
        window = _seconds(start, zone), _seconds(start + recurrence.length, zone)
        if window[0] < window[1] and window[0] < end and begin < window[1]:
            found.append(window)
    return tuple(found)


def _starts(recurrence: Recurrence, after: datetime, before: datetime) -> Iterator[datetime]:
    """Return the begins on the wall clock within ``[after, before]``."""
    if not recurrence.rule:
        starts = iter((recurrence.first,))
    else:
        starts = _expanded(recurrence, after, before)
    for start in starts:
        if start > before:
            return
        if start >= after and start.date() not in recurrence.without:
            yield start


def _expanded(recurrence: Recurrence, after: datetime, before: datetime) -> Iterator[datetime]:
    """Yield the begins of the rule up to ``before``, perhaps some before ``after``.

    The work is independent of the distance of the first and the next window: dateutil would follow an
    unsatisfiable rule to the year 9999, so everything is moved near that year by whole calendar cycles.
    """
    rule, count, until, period = _rule(recurrence.rule, recurrence.first, recurrence.zone)
    last = before if until is None else min(before, until)
    first = recurrence.first
    if last < first:
        return
    if period is not None and count is None:  # from a begin of the same rule on, not long before `after`
        first += max(0, (after - first) // period - 1) * period
    years = (MAXYEAR - last.year) // _CYCLE * _CYCLE
    moved = rule.replace(dtstart=_moved(first, years), until=_moved(last, years))
    for start in moved if count is None else islice(moved, count):
        yield _moved(start, -years)


def _moved(moment: datetime, years: int) -> datetime:
    return moment.replace(year=moment.year + years)


class _Rule(NamedTuple):
    """A rule without bounds, with its maximum count and last possible begin on the wall clock. ``period``:
    the rule repeats after this duration; None if months differ in length.
    """

    rule: rrule
    most: int | None
    until: datetime | None
    period: timedelta | None


@lru_cache(maxsize=256)
def _rule(text: str, first: datetime, zone: str) -> _Rule:
    parts = dict(part.partition("=")[::2] for part in text.upper().split(";"))
    count, until = parts.pop("COUNT", None), parts.pop("UNTIL", None)
    try:
        rule = rrulestr(";".join(f"{name}={value}" for name, value in parts.items()), dtstart=first)
    except ValueError as error:
        raise RecurrenceError(f"{text}: {error}") from None
    assert isinstance(rule, rrule)
    days = _PERIODS.get(parts["FREQ"])
    return _Rule(
        rule,
        int(count) if count else None,
        _until(until, zone) if until is not None else None,
        timedelta(days=days * int(parts.get("INTERVAL", 1))) if days is not None else None,
    )


def _until(value: str, zone: str) -> datetime:
    """Return a bound in UTC (as in RFC 5545), or a date or time of the zone, on the zone's wall clock."""
    for form in ("%Y%m%dT%H%M%SZ", "%Y%m%dT%H%M%S", "%Y%m%d"):
        try:
            found = datetime.strptime(value, form)  # noqa: DTZ007  (on the wall clock)
        except ValueError:
            continue
        if form.endswith("Z"):
            return found.replace(tzinfo=UTC).astimezone(_zone(zone)).replace(tzinfo=None)
        return found + timedelta(days=1, seconds=-1) if form == "%Y%m%d" else found
    raise RecurrenceError(f"UNTIL={value}: a moment such as 20271231T230000Z, or a date such as 20271231")


def _check_rule(text: str) -> None:
    """Reject an invalid rule before expansion."""
    if not text:
        return
    parts = [part.partition("=")[::2] for part in text.upper().split(";")]
    names = [name for name, _ in parts]
    for name in names:
        if name not in _PARTS:
            shown = repr(name[:40]) if name else "without a name"
            raise _wrong(text, f"no part {shown}; there is {', '.join(sorted(_PARTS))}")
    if len(set(names)) < len(names):
        raise _wrong(text, "a part is given twice")
    if {"COUNT", "UNTIL"} <= set(names):
        raise _wrong(text, "COUNT and UNTIL cannot both be given")
    said = {name: value.split(",") for name, value in parts}
    frequency = dict(parts).get("FREQ", "")
    if frequency not in _FREQUENCIES:
        raise _wrong(text, f"FREQ must be one of {', '.join(_FREQUENCIES)}")
    for name in sorted(_NUMBERS.keys() & said.keys()):
        _check_numbers(text, name, said[name])
    most = _WEEKS.get(frequency, 0)
    for day in said.get("BYDAY", ()):
        match = _DAY.fullmatch(day)
        if match is None or (match[1] and not 1 <= abs(int(match[1])) <= most):
            raise _wrong(
                text, "BYDAY lists days such as MO, with FREQ=MONTHLY or YEARLY also such as 2MO or -1FR"
            )
    begins = len(set(said.get("BYHOUR", ["-"]))) * len(set(said.get("BYMINUTE", ["-"])))
    if begins > _MOST_A_DAY:
        raise _wrong(text, f"BYHOUR times BYMINUTE are at most {_MOST_A_DAY} begins a day")
    in_one = begins * _DAYS[frequency]
    for place in said.get("BYSETPOS", ()):
        if abs(int(place)) > in_one:
            raise _wrong(text, f"BYSETPOS={place}: there are at most {in_one} begins to choose from")


def _check_numbers(text: str, name: str, numbers: list[str]) -> None:
    """Check ranges and count of a part's numbers."""
    least, most = _NUMBERS[name]
    for number in numbers:
        good = _NUMBER.fullmatch(number) is not None and least <= int(number) <= most
        if not good or (least < 0 and int(number) == 0):
            allowed = f"from {least} to {most}" if least >= 0 else f"from 1 to {most}, or from {least} to -1"
            raise _wrong(text, f"{name}={number[:20]}: {allowed}")
    if len(numbers) > (1 if name in _ONE else most - least + 1):
        raise _wrong(text, f"{name} has too many numbers")


def _wrong(text: str, what: str) -> RecurrenceError:
    return RecurrenceError(f"{text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}: {what}")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise RecurrenceError(
            f"no time zone {name!r}; zones are called such as Europe/Prague or UTC"
        ) from None


def _seconds(wall: datetime, zone: ZoneInfo) -> int:
    """Return when the clock of ``zone`` first shows ``wall``, or later if ``wall`` is skipped."""
    second = int(wall.replace(tzinfo=zone, fold=0).timestamp())
    early = int(wall.replace(tzinfo=zone, fold=1).timestamp())
    if early >= second:  # it is shown, once or twice
        return second
    # Skipped: the clock jumps somewhere in (early, second].
    while second - early > 1:
        middle = (early + second) // 2
        shown = datetime.fromtimestamp(middle, zone).replace(tzinfo=None)
        early, second = (early, middle) if shown >= wall else (middle, second)
    return second
