"""Standing windows: recurring intervals of wall-clock time, as seconds UTC.

The rule is that of RFC 5545 (section 3.3.10), expanded on the wall clock of a time zone. A window from 20:00
to 08:00 is so on every day, also when clocks are changed in between: it is then an hour shorter or longer,
and the window that begins at 08:00 joins it without gap or overlap.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dateutil.rrule import rrule, rrulestr

__all__ = ["Recurrence", "RecurrenceError", "occurrences"]

_LONGEST = timedelta(days=366)
_PARTS = (
    "FREQ",
    "INTERVAL",
    "COUNT",
    "UNTIL",
    "BYDAY",
    "BYMONTHDAY",
    "BYYEARDAY",
    "BYWEEKNO",
    "BYMONTH",
    "BYSETPOS",
    "WKST",
    "BYHOUR",
    "BYMINUTE",
)
_FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_CHECKED = 64, timedelta(days=8 * 366 + 1)
"""So many of the first windows, within so long, are looked at to see that they do not overlap."""


class RecurrenceError(ValueError):
    """A rule that cannot be followed; the message says which part, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A window that comes again.

    ``first`` and ``last`` are begin and end of the first window on the clock of ``zone`` (an IANA name);
    ``rule`` is an RRULE such as ``FREQ=WEEKLY;BYDAY=MO``, empty for a window that comes once. The window of a
    day in ``without`` is left out; the day is the one on which it would begin. Raises RecurrenceError.
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
    def of_text(cls, text: str) -> "Recurrence":
        """The window that ``text`` says. Raises RecurrenceError, ValueError."""
        return _of_text(text)

    @property
    def text(self) -> str:
        """The same on one line: begin and end, rule, zone, days left out."""
        window = f"{self.first.isoformat()}/{self.last.isoformat()}"
        without = ",".join(day.isoformat() for day in self.without)
        return " ".join((window, self.rule or "once", self.zone, without)).rstrip()

    @property
    def words(self) -> str:
        """As a person would say it."""
        short = self.length <= timedelta(days=1)
        until = f"{self.last:%H:%M}" if short else f"{self.last:%Y-%m-%d %H:%M}"
        when = f"from {self.first:%H:%M} to {until} {self.zone}"
        return f"{when}, {self.rule}" if self.rule else f"on {self.first:%Y-%m-%d} {when}"

    @property
    def length(self) -> timedelta:
        """From begin to end on the wall clock."""
        return self.last - self.first


@lru_cache(maxsize=256)
def _of_text(text: str) -> Recurrence:
    window, rule, zone, *without = text.split()
    first, last = window.split("/")
    return Recurrence(
        first=datetime.fromisoformat(first),
        last=datetime.fromisoformat(last),
        rule="" if rule == "once" else rule,
        zone=zone,
        without=tuple(date.fromisoformat(day) for part in without for day in part.split(",")),
    )


def occurrences(recurrence: Recurrence, begin: int, end: int) -> tuple[tuple[int, int], ...]:
    """The windows that overlap ``[begin, end)``, as half-open intervals in seconds UTC, in order and whole.

    A time that clocks skip is the moment of the skip; of one that comes twice the first is meant. A window
    that lies wholly in a skipped hour does not take place.
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
    """Begins on the wall clock within ``[after, before]``."""
    if not recurrence.rule:
        starts = iter((recurrence.first,))
    else:
        rule, count, until = _rule(recurrence.rule, recurrence.first, recurrence.zone)
        # Without a bound, a rule that fits no day would be followed to the end of the calendar.
        bounded = rule.replace(until=before if until is None else min(before, until))
        starts = bounded.xafter(after, inc=True) if count is None else islice(bounded, count)
    for start in starts:
        if start > before:
            return
        if start >= after and start.date() not in recurrence.without:
            yield start


@lru_cache(maxsize=256)
def _rule(text: str, first: datetime, zone: str) -> tuple[rrule, int | None, datetime | None]:
    """The rule without its bounds, how often at most, and the last possible begin on the wall clock."""
    parts = dict(part.partition("=")[::2] for part in text.upper().split(";"))
    count, until = parts.pop("COUNT", None), parts.pop("UNTIL", None)
    if count is not None and not (count.isdecimal() and 1 <= int(count) <= 10_000):
        raise RecurrenceError(f"{text}: COUNT must be a number from 1 to 10000")
    try:
        rule = rrulestr(";".join(f"{name}={value}" for name, value in parts.items()), dtstart=first)
    except ValueError as error:
        raise RecurrenceError(f"{text}: {error}") from None
    assert isinstance(rule, rrule)
    return rule, int(count) if count else None, _until(until, zone) if until is not None else None


def _until(value: str, zone: str) -> datetime:
    """A bound in UTC (as RFC 5545 wants it), or as a date or time of the zone, on the zone's wall clock."""
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
    if not text:
        return
    parts = [part.partition("=")[::2] for part in text.upper().split(";")]
    names = [name for name, _ in parts]
    for name in names:
        if name not in _PARTS:
            raise RecurrenceError(
                f"{text}: no part {name or 'without a name'!r}; there is {', '.join(sorted(_PARTS))}"
            )
    if len(set(names)) < len(names):
        raise RecurrenceError(f"{text}: a part is given twice")
    if {"COUNT", "UNTIL"} <= set(names):
        raise RecurrenceError(f"{text}: COUNT and UNTIL cannot both be given")
    if dict(parts).get("FREQ") not in _FREQUENCIES:
        raise RecurrenceError(f"{text}: FREQ must be one of {', '.join(_FREQUENCIES)}")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise RecurrenceError(
            f"no time zone {name!r}; zones are called such as Europe/Prague or UTC"
        ) from None


def _seconds(wall: datetime, zone: ZoneInfo) -> int:
    """When the clock of ``zone`` first shows ``wall`` or, if it skips it, a later time."""
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
