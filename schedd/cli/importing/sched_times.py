"""Times of pbs_sched: prime time (the file holidays) and dedicated time (dedicated_time)."""

from collections.abc import Iterator
from datetime import datetime

from schedd.cli.importing.prime_time import PrimeTime, has_prime_time, read_prime_time
from schedd.cli.importing.result import Verdict
from schedd.cli.importing.sched_options import SchedConfig, SchedOption, parse_rows


def translate_prime_prefix(option: SchedOption, source: SchedConfig) -> None:
    """primetime_prefix and nonprimetime_prefix: their queues are closed in the other time."""
    prime = option.name == "primetime_prefix"
    queues = f"queues that begin with {option.value}"
    if not has_prime_time(source.companions.get("holidays", "")):
        if prime:
            message = "holidays names no times, so that it is always prime time"
            source.done.note(Verdict.NO_MATTER, option.line, option.name, message)
        else:
            message = f"holidays names no times, so that {queues}, if any, never run there: stop them"
            source.done.note(Verdict.DIFFERS, option.line, option.name, message)
        return
    found = _prime_time(option, source)
    if found is None:
        return
    for window in found.windows(not prime, source.now.date()):
        source.done.limit(amount=0, queue=f"{option.value}*", **window)
    source.done.site["zone"] = source.zone
    longest = found.longest[prime]
    times = "prime time" if prime else "non-prime time"
    message = f"limits of 0 jobs in {queues}, outside {times}"
    if source.on("backfill_prime"):
        source.done.note(Verdict.TRANSLATED, option.line, option.name, message)
        return
    message += "; jobs must end in it, too, which pbs_sched requires only with backfill_prime"
    if longest >= 0:
        message += f": walltimes over {longest / 60:g} h wait without a start"
    source.done.note(Verdict.DIFFERS, option.line, option.name, message)


def translate_prime_option(option: SchedOption, source: SchedConfig) -> None:
    """backfill_prime, prime_spill, prime_exempt_anytime_queues."""
    if not source.on("backfill_prime") or not has_prime_time(source.companions.get("holidays", "")):
        message = "backfill_prime is off, or there is no prime time in holidays"
        source.done.note(Verdict.NO_MATTER, option.line, option.name, message)
        return
    found = _prime_time(option, source)
    if found is None:
        return
    if option.name == "prime_spill":
        spill = option.value.strip("0:")
        message = (
            f"jobs may not run into the next time by {option.value}: they end before it"
            if spill
            else "jobs never run into the next time"
        )
        verdict = Verdict.DIFFERS if spill else Verdict.NO_MATTER
        source.done.note(verdict, option.line, option.name, message)
        return
    if option.name == "prime_exempt_anytime_queues":
        message = (
            "only the queues with a prefix are bound to a time"
            if option.on
            else "see backfill_prime: jobs of all queues end before the next change"
        )
        source.done.note(Verdict.TRANSLATED, option.line, option.name, message)
        return
    if source.on("prime_exempt_anytime_queues"):
        message = "jobs of the queues with a prefix end within their time; others are exempt"
    else:
        for window in found.edges(source.now.date()):
            source.done.limit(amount=0, **window)
        source.done.site["zone"] = source.zone
        message = "limits of 0 jobs in the second before each change: no job runs across it"
    source.done.note(Verdict.TRANSLATED, option.line, option.name, message)


def _prime_time(option: SchedOption, source: SchedConfig) -> PrimeTime | None:
    """The prime time of the file holidays; None, with a finding, if it cannot be read."""
    try:
        return read_prime_time(source.companions.get("holidays", ""))
    except ValueError as error:
        source.done.note(Verdict.BLOCKER, option.line, option.name, f"jobs would run at any time: {error}")
        return None


def translate_holidays(source: SchedConfig, matters: bool) -> None:
    """A finding for each line of the file; ``matters``: something in sched_config depends on it."""
    text = source.companions.get("holidays", "")
    prime = has_prime_time(text)
    for number, message in parse_rows(text):
        if prime and matters:
            said = "see what sched_config says of prime time; holidays count until the end of their year"
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
    for number, message in parse_rows(source.companions.get("dedicated_time", "")):
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
