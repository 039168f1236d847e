"""Translation of pbs_sched's prime time (the file holidays) to windows of limits."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Final

from schedd.cli.importing.sched_options import parse_rows

_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAY: Final = "weekday"
_CODES: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_DAY_MIN: Final = 24 * 60
_NO_PRIME: Final = (0, 0)
_Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PrimeTime:
    """Prime time of each weekday, as minutes ``[start, end)`` from midnight, and the days without any."""

    week: tuple[_Span, ...]
    holidays: tuple[date, ...]
    year: int

    @property
    def longest(self) -> dict[bool, int]:
        """Longest continuous prime (True) and non-prime (False) time in minutes, without holidays; -1 if it
        never changes.
        """
        edges = sorted((day * _DAY_MIN + at, prime) for day, at, prime in self._edges())
        found = {True: 0, False: 0}
        for (at, prime), (following, _) in zip(edges, [*edges[1:], *edges[:1]], strict=True):
            found[prime] = max(found[prime], (following - at) % (7 * _DAY_MIN))
        return found if edges else {True: -1, False: -1}

    def windows(self, prime: bool, today: date) -> Iterator[dict[str, Any]]:
        """Yield windows of a limit that cover prime or non-prime time, from ``today`` on."""
        off = [day for day in self.holidays if day >= today]
        by_span: dict[_Span, list[int]] = {}
        for day, span in enumerate(self.week):
            parts = [span] if prime else [(0, span[0]), (span[1], _DAY_MIN)]
            for start, end in [(0, _DAY_MIN)] if not prime and span == _NO_PRIME else parts:
                if start < end:
                    by_span.setdefault((start, end), []).append(day)
        for span, days in by_span.items():
            yield _weekly(span, days, off if prime else (), today)
        if off and not prime:
            yield {
                "first": datetime.combine(off[0], time()),
                "last": datetime.combine(off[0] + timedelta(days=1), time()),
                "rule": "FREQ=YEARLY;BYYEARDAY="
                + ",".join(str(day.timetuple().tm_yday) for day in off)
                + f";UNTIL={self.year}1231",
            }

    def edges(self, today: date) -> Iterator[dict[str, Any]]:
        """Yield windows of one second before each change between prime and non-prime time."""
        off = [day for day in self.holidays if day >= today]
        by_time: dict[int, list[int]] = {}
        for day, at, _ in self._edges():
            by_time.setdefault(at, []).append(day)
        second = timedelta(seconds=1)
        for at, days in by_time.items():
            window = _weekly((at, at + 1), days, off, today)
            first = window["first"]
            if not at:  # the second before midnight is on the day before
                days_before = [(day - 1) % 7 for day in days]
                window = _weekly((0, 1), days_before, (), today)
                first = window["first"] + timedelta(days=1)
            yield window | {"first": first - second, "last": first}

    def _edges(self) -> Iterator[tuple[int, int, bool]]:
        """Yield weekday and minute of each change, and whether prime time begins."""
        before = self.week[-1][1] == _DAY_MIN
        for day, (start, end) in enumerate(self.week):
            prime = start == 0 and end > 0
            if prime != before:
                yield day, 0, prime
            if 0 < start < end:
                yield day, start, True
            if start < end < _DAY_MIN:
                yield day, end, False
            before = end == _DAY_MIN


def has_prime_time(text: str) -> bool:
    """Return whether the file holidays separates prime from non-prime time, as in ``weekday 0600 1730``.
    Without a YEAR, or with YEAR 0, it is always prime time.
    """
    rows = [[word.lower() for word in words] for _, words in parse_rows(text)]
    old = any(
        len(row) >= 3 and row[0].isdecimal() and len(row[0]) == 4 and row[1].isdecimal() for row in rows
    )
    year = any(row[0] == "year" and len(row) > 1 and row[1].strip("0") for row in rows)
    days = [row for row in rows if row[0] in (*_DAYS, _WEEKDAY) and len(row) >= 3]
    return old or (year and any({row[1], row[2]} != {"all", "none"} or row[1] == "none" for row in days))


def read_prime_time(text: str) -> PrimeTime:
    """Parse the file holidays. A weekday without a line has no prime time, as in pbs_sched. Raises ValueError
    with the line and the reason.
    """
    week = [_NO_PRIME] * 7
    off: list[date] = []
    year = 0
    for number, words in parse_rows(text):
        name = words[0].lower()
        try:
            if name == "year":
                year = int(words[1])
            elif name in (*_DAYS, _WEEKDAY):
                span = _span(words[1].lower(), words[2].lower())
                for day in range(5) if name == _WEEKDAY else (_DAYS.index(name),):
                    week[day] = span
            else:
                off.append(date(year, 1, 1) + timedelta(days=int(name) - 1))
        except (ValueError, IndexError, OverflowError):
            raise ValueError(
                f"holidays line {number} is not understood: {' '.join(words)[:40]!r}; a line is YEAR and a "
                "year, a weekday with the starts of prime and non-prime time (0600 1730), or the day of "
                "the year of a holiday"
            ) from None
    return PrimeTime(tuple(week), tuple(sorted({day for day in off if day.year == year})), year)


def _span(prime: str, other: str) -> _Span:
    """Return the prime time of a day. Raises ValueError."""
    if "none" in (prime, other) or "all" in (prime, other):
        if (prime, other) == ("all", "none"):
            return 0, _DAY_MIN
        if (prime, other) == ("none", "all"):
            return _NO_PRIME
        raise ValueError(prime)
    start, end = (int(text[:-2]) * 60 + int(text[-2:]) for text in (prime, other))
    if not 0 <= start < end <= _DAY_MIN:
        raise ValueError(prime)
    return start, end


def _weekly(span: _Span, days: list[int], off: tuple[date, ...] | list[date], today: date) -> dict[str, Any]:
    """Return a window on these weekdays, from the first such day on."""
    first = next(day for n in range(7) if (day := today + timedelta(days=n)).weekday() in days)
    midnight = datetime.combine(first, time())
    start, end = (midnight + timedelta(minutes=minute) for minute in span)
    rule = "FREQ=WEEKLY;BYDAY=" + ",".join(_CODES[day] for day in sorted(days))
    without = [day for day in off if day.weekday() in days]
    return {"first": start, "last": end, "rule": rule} | ({"without": without} if without else {})
