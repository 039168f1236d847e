"""Times of pbs_sched: prime time (the file holidays) and dedicated time (dedicated_time)."""

from collections.abc import Iterator
from datetime import datetime

from schedd.cli.importing.prime_time import PrimeTime, has_prime_time, read_prime_time
from schedd.cli.importing.result import Verdict
from schedd.cli.importing.sched_options import SchedConfig, SchedOption, parse_rows


def translate_prime_prefix(option: SchedOption, source: SchedConfig) -> None:
    """Translate primetime_prefix and nonprimetime_prefix: their queues are closed in the other time."""
    prime = option.name == "primetime_prefix"
    queues = f"queues whose names begin with {option.value}"
    if not has_prime_time(source.companions.get("holidays", "")):
        if prime:
            message = "the file holidays has no times: it is always prime time"
            source.done.note(Verdict.NOT_NEEDED, option.line, option.name, message)
        else:
            message = (
                f"the file holidays has no times, so that {queues}, if there are any, never run in "
                "pbs_sched: stop them"
            )
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
    message += "; jobs must also end within it, which pbs_sched requires only with backfill_prime"
    if longest >= 0:
        message += f": jobs with walltimes over {longest / 60:g} h wait without a start"
    source.done.note(Verdict.DIFFERS, option.line, option.name, message)


def translate_prime_option(option: SchedOption, source: SchedConfig) -> None:
    """Translate backfill_prime, prime_spill and prime_exempt_anytime_queues."""
    if not source.on("backfill_prime") or not has_prime_time(source.companions.get("holidays", "")):
        message = "backfill_prime is off, or the file holidays has no prime time"
        source.done.note(Verdict.NOT_NEEDED, option.line, option.name, message)
        return
    found = _prime_time(option, source)
    if found is None:
        return
    if option.name == "prime_spill":
        spill = option.value.strip("0:")
        message = (
            f"jobs cannot run {option.value} beyond the change of times: they end before it"
            if spill
            else "no job runs across a change of times"
        )
        verdict = Verdict.DIFFERS if spill else Verdict.NOT_NEEDED
        source.done.note(verdict, option.line, option.name, message)
        return
    if option.name == "prime_exempt_anytime_queues":
        message = (
            "only queues with a prefix are restricted to a time"
            if option.on
            else "jobs of all queues end before the next change: see backfill_prime"
        )
        source.done.note(Verdict.TRANSLATED, option.line, option.name, message)
        return
    if source.on("prime_exempt_anytime_queues"):
        message = "jobs of queues with a prefix end within their time; other queues are exempt"
    else:
        for window in found.edges(source.now.date()):
            source.done.limit(amount=0, **window)
        source.done.site["zone"] = source.zone
        message = "limits of 0 jobs in the second before each change: no job runs across it"
    source.done.note(Verdict.TRANSLATED, option.line, option.name, message)


def _prime_time(option: SchedOption, source: SchedConfig) -> PrimeTime | None:
    """Return the prime time in the file holidays; None, with a finding, if the file is not understood."""
    try:
        return read_prime_time(source.companions.get("holidays", ""))
    except ValueError as error:
        source.done.note(Verdict.BLOCKER, option.line, option.name, f"jobs would run at any time: {error}")
        return None


def translate_holidays(source: SchedConfig, matters: bool) -> None:
    """Add a finding for each line of the file holidays; ``matters``: sched_config depends on it."""
    text = source.companions.get("holidays", "")
    prime = has_prime_time(text)
    for number, message in parse_rows(text):
        if prime and matters:
            said = (
                "see the options for prime time in sched_config; holidays apply until the end of their year"
            )
            source.done.note(Verdict.DIFFERS, number, f"day[{message[0]}]", said, "holidays")
        else:
            said = "nothing in sched_config depends on it" if prime else "it has no prime time"
            source.done.note(Verdict.NOT_NEEDED, number, f"day[{message[0]}]", said, "holidays")


# ---- dedicated time -----------------------------------------------------------------------------


def translate_dedicated_prefix(option: SchedOption, source: SchedConfig) -> None:
    """Add a finding: which queues run only in dedicated time."""
    queues = f"queues whose names begin with {option.value}, if there are any,"
    if any(window is not None and window[1] >= source.now for _, _, window in _windows(source)):
        message = (
            f"jobs of {queues} would also run outside of dedicated time: stop these queues on the server; "
            "see dedicated_time"
        )
        source.done.note(Verdict.BLOCKER, option.line, option.name, message)
    else:
        message = (
            f"dedicated_time has no future times, so that in pbs_sched jobs of {queues} never run: "
            "stop them on the server"
        )
        source.done.note(Verdict.DIFFERS, option.line, option.name, message)


def translate_dedicated_times(source: SchedConfig) -> None:
    """Write reservations of all nodes for future dedicated times, with a finding for each line."""
    prefix = source.get("dedicated_prefix")
    for number, said, window in _windows(source):
        if window is None:
            message = f"not understood: {said[:40]!r}; pbs_sched ignores it, too"
            source.done.note(Verdict.DIFFERS, number, "dedicated time", message, "dedicated_time")
            continue
        first, last = window
        if last < source.now:
            message = "it is in the past"
            source.done.note(Verdict.NOT_NEEDED, number, "dedicated time", message, "dedicated_time")
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
            message = f"the reservation {name} of all nodes, without access for anybody"
            source.done.note(Verdict.TRANSLATED, number, "dedicated time", message, "dedicated_time")
        else:
            message = (
                f"the reservation {name} of all nodes: name in its queues those whose names begin with "
                f"{prefix.value}"
            )
            source.done.note(Verdict.BLOCKER, number, "dedicated time", message, "dedicated_time")


def _windows(source: SchedConfig) -> Iterator[tuple[int, str, tuple[datetime, datetime] | None]]:
    """Yield number, text, begin and end of each line ``MM/DD/YYYY HH:MM MM/DD/YYYY HH:MM``."""
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
    # As in pbs_sched: years of two digits are in this century below 90, else in the last one.
    year += 0 if year >= 1900 else 2000 if year < 90 else 1900
    return datetime(year, month, date, hours, minutes)  # noqa: DTZ001  (on the wall clock)
