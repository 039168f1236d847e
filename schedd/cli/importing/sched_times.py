"""Times of pbs_sched: prime time (the file holidays) and dedicated time (dedicated_time)."""

from collections.abc import Iterator
from datetime import datetime

from schedd.cli.importing.result import Verdict
from schedd.cli.importing.sched_options import SchedConfig, SchedOption, parse_rows

__all__ = [
    "has_prime_time",
    "translate_dedicated_prefix",
    "translate_dedicated_times",
    "translate_holidays",
    "translate_prime_option",
    "translate_prime_prefix",
]

_DAYS = frozenset(("weekday", "saturday", "sunday", "monday", "tuesday", "wednesday", "thursday", "friday"))
_IN_WINDOWS = (
    "a limit with amount = 0 for that queue in windows of time keeps its jobs from running then "
    "(docs/administrators/policy.md, quotas over time)"
)


def has_prime_time(text: str) -> bool:
    """Whether the file holidays has prime time on any day: ``weekday 0600 1730``. Without a YEAR, or with 0,
    all of the time is prime time.
    """
    rows = [[word.lower() for word in message] for _, message in parse_rows(text)]
    old = any(
        len(row) >= 3 and row[0].isdecimal() and len(row[0]) == 4 and row[1].isdecimal() for row in rows
    )
    year = any(row[0] == "year" and len(row) > 1 and row[1].strip("0") for row in rows)
    days = [row for row in rows if row[0] in _DAYS and len(row) >= 3]
    return old or (year and any({row[1], row[2]} != {"all", "none"} or row[1] == "none" for row in days))


def translate_prime_prefix(option: SchedOption, source: SchedConfig) -> None:
    """primetime_prefix and nonprimetime_prefix."""
    queues = f"queues that begin with {option.value}, if there are any,"
    if has_prime_time(source.beside.get("holidays", "")):
        message = f"prime time is not supported: {queues} would run at any time; {_IN_WINDOWS}"
        source.done.note(Verdict.BLOCKER, option.line, option.name, message)
    elif option.name == "primetime_prefix":
        message = "holidays names no times, so that it is always prime time"
        source.done.note(Verdict.NO_MATTER, option.line, option.name, message)
    else:
        message = f"holidays names no times, so that {queues} never run there: stop them on the server"
        source.done.note(Verdict.DIFFERS, option.line, option.name, message)


def translate_prime_option(option: SchedOption, source: SchedConfig) -> None:
    """backfill_prime, prime_spill, prime_exempt_anytime_queues."""
    if source.on("backfill_prime") and has_prime_time(source.beside.get("holidays", "")):
        message = "prime time is not supported: jobs run across its edges"
        source.done.note(Verdict.BLOCKER, option.line, option.name, message)
    else:
        message = "backfill_prime is off, or there is no prime time in holidays"
        source.done.note(Verdict.NO_MATTER, option.line, option.name, message)


def translate_holidays(source: SchedConfig, matters: bool) -> None:
    """A finding for each line of the file; ``matters``: something in sched_config depends on it."""
    text = source.beside.get("holidays", "")
    prime = has_prime_time(text)
    for number, message in parse_rows(text):
        if prime and matters:
            said = "prime time is not supported: see what sched_config says of it"
            source.done.note(Verdict.DIFFERS, number, f"day[{message[0]}]", said, "holidays")
        else:
            said = "nothing in sched_config depends on it" if prime else "there is no prime time in it"
            source.done.note(Verdict.NO_MATTER, number, f"day[{message[0]}]", said, "holidays")


# ---- dedicated time -----------------------------------------------------------------------------


def translate_dedicated_prefix(option: SchedOption, source: SchedConfig) -> None:
    """Which queues run in dedicated time, and only then."""
    queues = f"queues that begin with {option.value}, if there are any,"
    if any(window is not None and window[1] >= source.now for _, _, window in _windows(source)):
        message = f"{queues} would run at any other time, too: stop them on the server; see dedicated_time"
        source.done.note(Verdict.BLOCKER, option.line, option.name, message)
    else:
        message = (
            f"dedicated_time has nothing ahead, so that {queues} never run there: stop them on the server"
        )
        source.done.note(Verdict.DIFFERS, option.line, option.name, message)


def translate_dedicated_times(source: SchedConfig) -> None:
    """Reservations of all nodes for future dedicated times; a finding for each line of the file."""
    prefix = source.get("dedicated_prefix")
    for number, said, window in _windows(source):
        if window is None:
            message = f"cannot be read: {said[:40]!r}; pbs_sched passes over it, too"
            source.done.note(Verdict.DIFFERS, number, "dedicated time", message, "dedicated_time")
            continue
        first, last = window
        if last < source.now:
            message = "it is over"
            source.done.note(Verdict.NO_MATTER, number, "dedicated time", message, "dedicated_time")
            continue
        if first >= last:
            message = "it ends before it begins"
            source.done.note(Verdict.BLOCKER, number, "dedicated time", message, "dedicated_time")
            continue
        name = f"dedicated-{first:%Y-%m-%dT%H%M}"
        source.done.site["zone"] = source.zone
        table = {"first": first, "last": last, "everywhere": True, "reason": "dedicated time"}
        source.done.table("reservations")[name] = table
        if prefix is None:
            message = f"the reservation {name} of all nodes, for nobody"
            source.done.note(Verdict.TRANSLATED, number, "dedicated time", message, "dedicated_time")
        else:
            message = (
                f"the reservation {name} of all nodes: name in its queues those that begin with "
                f"{prefix.value}"
            )
            source.done.note(Verdict.BLOCKER, number, "dedicated time", message, "dedicated_time")


def _windows(source: SchedConfig) -> Iterator[tuple[int, str, tuple[datetime, datetime] | None]]:
    """Number, text, begin and end of each line: ``MM/DD/YYYY HH:MM MM/DD/YYYY HH:MM``."""
    for number, message in parse_rows(source.beside.get("dedicated_time", "")):
        try:
            first, last = (_parse_time(message[i], message[i + 1]) for i in (0, 2))
        except (ValueError, IndexError):
            yield number, " ".join(message), None
        else:
            yield number, " ".join(message), (first, last)


def _parse_time(day: str, hour: str) -> datetime:
    month, date, year = map(int, day.split("/"))
    hours, minutes = map(int, hour.split(":"))
    # As there: years of two digits are of this century below 90, else of the last one.
    year += 0 if year >= 1900 else 2000 if year < 90 else 1900
    return datetime(year, month, date, hours, minutes)  # noqa: DTZ001  (on the wall clock)
