"""The start of a job in one sentence, for all interfaces.

`Likely today 20:59 (90 % by Fri 10:49), at the latest Sun 21:58`

Commands, pages, comments on the server, webhooks and mails call `describe_start` and differ only in how they
write a time. Standard library only: users' commands and the adapter import it. So its records are named
tuples: `dataclasses` takes a fifth of the import of a command. All times are seconds since
the epoch.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, tzinfo
from typing import Final, Literal, NamedTuple, Protocol

FORECAST_FRESH_S: Final = 900  # a forecast of this age is fresh for every start; see `is_forecast_fresh`
FRESH_SHARE: Final = 4
"""A forecast also stays fresh for this part of the wait that it forecast: 6 h for a start in a day."""
_SAME_S: Final = 60  # a 90 % time this close to the likely start is left out
_DUE_S: Final = 60
"""A job that waits this long after its planned start is due, for a reason that its page names."""
_WEEK_DAYS: Final = 6

NEVER: Final = "never on this cluster"
NOT_BEFORE_STARTS_RESUME: Final = "Not before jobs are started again"
WHEN_STARTS_RESUME: Final = "Starts when jobs are started again"
NO_HISTORY: Final = "without a database nothing is kept of jobs that ended"

RIGHTS: Final[dict[str, tuple[str, str]]] = {
    "priority": ("has a higher priority", "have a higher priority"),
    "earlier": ("came earlier", "came earlier"),
    "promise": ("must start first to keep its promise", "must start first to keep their promises"),
    "optimizer": ("was moved ahead by the optimizer", "were moved ahead by the optimizer"),
    "placement": ("fills a gap before it", "fill gaps before it"),
}
"""Why another job goes first, of one job and of several."""

SUSPENDED: Final = "S"
"""State of a suspended job on the server."""

TimeFormat = Callable[[int], str]
NoForecast = Literal["", "No forecast yet", "No current forecast"]
Certainty = Literal[
    "likely",
    "any time",
    "planned",
    "latest",
    "now",
    "due",
    "stopped",
    "running",
    "suspended",
    "never",
    "unknown",
]


class StartFacts(NamedTuple):
    """The known facts of a job's start, as the API publishes them."""

    planned: int | None  # the displayed planned start
    state: str = "planned"  # as in `JobView.state`
    suspended: bool = False  # whether it keeps its nodes and does not run
    started: int | None = None
    expected: int | None = None  # P50
    expected_by: int | None = None  # P90
    expected_as_of: int | None = None
    promised: int | None = None
    at_risk: bool = False
    predicted: bool = True  # whether starts are predicted for its queue
    stopped: bool = False  # whether the cluster starts no jobs at present, although schedd is its scheduler
    waits_for: str = ""  # why it has no planned start: `waiting for a user hold`, `never on this cluster: …`


class _Prediction(Protocol):
    """Predicted and promised start, as in views of jobs and what-if results."""

    @property
    def expected_start(self) -> int | None: ...
    @property
    def expected_by(self) -> int | None: ...
    @property
    def expected_as_of(self) -> int | None: ...
    @property
    def promised_start(self) -> int | None: ...
    @property
    def predicted(self) -> bool: ...
    @property
    def starts_stopped(self) -> bool: ...


class _HypotheticalStart(_Prediction, Protocol):
    @property
    def planned_start(self) -> int | None: ...


class _JobStart(_Prediction, Protocol):
    @property
    def state(self) -> str: ...
    @property
    def job_state(self) -> str: ...
    @property
    def started(self) -> int | None: ...
    @property
    def displayed_start(self) -> int | None: ...
    @property
    def at_risk(self) -> object | None: ...


def hypothetical_start_facts(result: _HypotheticalStart) -> StartFacts:
    return StartFacts(
        planned=result.planned_start,
        expected=result.expected_start,
        expected_by=result.expected_by,
        expected_as_of=result.expected_as_of,
        promised=result.promised_start,
        predicted=result.predicted,
        stopped=result.starts_stopped,
    )


class _DestinationStart(Protocol):
    """Start of a hypothetical job in a destination of a routing queue."""

    @property
    def planned_start(self) -> int | None: ...
    @property
    def expected_start(self) -> int | None: ...
    @property
    def expected_by(self) -> int | None: ...


def destination_start_facts(one: _DestinationStart, *, stopped: bool) -> StartFacts:
    """Return the facts of a destination, which has no promise and names no missing forecast."""
    return StartFacts(
        planned=one.planned_start,
        expected=one.expected_start,
        expected_by=one.expected_by,
        predicted=False,
        stopped=stopped,
    )


def job_start_facts(job: _JobStart) -> StartFacts:
    """Return the facts of a job's view."""
    return StartFacts(
        state=job.state,
        suspended=job.job_state == SUSPENDED,
        started=job.started,
        planned=job.displayed_start,
        expected=job.expected_start,
        expected_by=job.expected_by,
        expected_as_of=job.expected_as_of,
        promised=job.promised_start,
        at_risk=job.at_risk is not None,
        predicted=job.predicted,
        stopped=job.starts_stopped,
    )


class StartSentence(NamedTuple):
    """Parts of the sentence; a part that is None is left out."""

    certainty: Certainty
    likely: int | None = None  # P50, or the planned start without a forecast
    by: int | None = None  # P90
    latest: int | None = None  # the promised start
    at_risk: bool = False
    no_forecast: NoForecast = ""  # starts are predicted, but this one has none, or none that is fresh
    stopped: bool = False  # no jobs are started at present, so nothing but the promise is sure
    waits_for: str = ""  # why the start is not known

    def text(self, time: TimeFormat) -> str:
        """Return the sentence, without a full stop; ``time`` writes one time."""
        return "".join(self.parts(time))

    def brief(self, time: TimeFormat) -> str:
        """Return the first part for a cell of a table, in the same words: `20:59` of a likely start, `plan
        20:59`, `due`; empty without one.
        """
        likely = time(self.likely) if self.likely is not None else ""
        return {
            "likely": likely,
            "any time": "any time now",
            "planned": f"plan {likely}" if self.no_forecast else likely,
            "latest": "",
            "now": "now",
            "due": "due",
            "stopped": "when started again",
            "running": f"since {likely}" if likely else "running",
            "suspended": "suspended",
            "never": "",
            "unknown": "",
        }[self.certainty]

    def parts(self, time: TimeFormat) -> tuple[str, str]:
        """Return the most important words of the sentence, and the rest; either may be empty."""
        likely = time(self.likely) if self.likely is not None else ""
        unknown = f"Start not known: {self.waits_for}" if self.waits_for else "Start not known"
        first = {
            "likely": f"Likely {likely}",
            "any time": "Any time now",
            "planned": f"Planned {likely}",
            "latest": "",
            "now": "Starts now",
            "due": f"Due since {likely}",
            "stopped": WHEN_STARTS_RESUME,
            "running": f"Running since {likely}" if likely else "Running",
            "suspended": f"Suspended, started {likely}" if likely else "Suspended",
            "never": self.waits_for[:1].upper() + self.waits_for[1:],
            "unknown": unknown,
        }[self.certainty]
        if self.no_forecast:
            first = f"{self.no_forecast}; {first[:1].lower()}{first[1:]}" if first else self.no_forecast
        rest = f" (90 % by {time(self.by)})" if self.by is not None else ""
        if self.stopped and self.certainty == "due":
            rest = "; no jobs are started at present"
        elif self.stopped and self.certainty in ("likely", "planned", "latest"):
            rest = f"; if that is in time, {first[:1].lower()}{first[1:]}" if first else ""
            first = NOT_BEFORE_STARTS_RESUME
        if self.latest is not None:
            risk = " (at risk)" if self.at_risk else ""
            latest = f"t the latest {time(self.latest)}{risk}"
            if not first:
                return f"A{latest}", rest
            rest += f", a{latest}"
        return first, rest


def describe_start(facts: StartFacts, now: int) -> StartSentence:
    """Return the sentence for a job at ``now``.

    No forecast in the past is shown: after its P50 the job may start *any time now*, and after its P90 there
    is no forecast. A P90 that is no earlier than the promise says nothing and is left out. While no jobs are
    started, no job starts *now* or *any time now*, no P90 is shown, and the sentence begins with the halt.
    """
    found = _describe_running_cluster(facts, now)
    if not facts.stopped or facts.state in ("running", "starting", "never"):
        return found._replace(latest=None, at_risk=False) if found.certainty == "now" else found
    if found.certainty in ("now", "any time"):
        return found._replace(certainty="stopped", by=None)
    return found._replace(stopped=True, by=None, no_forecast="")


def _describe_running_cluster(facts: StartFacts, now: int) -> StartSentence:
    """Return the sentence for a job of a cluster that starts jobs."""
    if facts.state == "running":
        return StartSentence("suspended" if facts.suspended else "running", facts.started)
    if facts.state == "starting":
        return StartSentence("now")
    if facts.state == "never":
        return StartSentence("never", waits_for=facts.waits_for or NEVER)
    latest = facts.promised if facts.promised is not None and facts.promised > now else None
    risk = facts.at_risk and latest is not None
    planned = facts.planned
    if planned is not None and planned <= now:
        if planned > now - _DUE_S:
            return StartSentence("now", None, None, latest, risk)
        return StartSentence("due", planned, None, latest, risk)
    expected, by = facts.expected, facts.expected_by
    end = by if by is not None else latest
    fresh = expected is not None and is_forecast_fresh(expected, end, facts.expected_as_of, now)
    if expected is not None and fresh:
        if latest is not None and expected >= latest:
            return StartSentence("latest", latest=latest, at_risk=risk)
        if by is not None and (by - max(expected, now) < _SAME_S or (latest is not None and by >= latest)):
            by = None
        certainty: Certainty = "likely" if expected > now else "any time"
        return StartSentence(certainty, expected if expected > now else None, by, latest, risk)
    missing: NoForecast = ""
    if facts.predicted:
        missing = "No forecast yet" if expected is None else "No current forecast"
    if planned is not None:
        return StartSentence("planned", planned, None, latest, risk, no_forecast=missing)
    return StartSentence("unknown", None, None, latest, risk, waits_for=facts.waits_for)


def history_entry_parts(kind: str, words: str) -> tuple[str, str]:
    """Return the words before and after the time of an entry in a job's history: `likely start `, `, 90 %
    by …`.

    ``kind`` and ``words`` are the kind and the text of a `JobMoment`. The time is the published, predicted or
    promised start.
    """
    if kind == "published":
        return "planned start ", "" if words in ("", "planned") else f" ({words})"
    if kind == "forecast":
        return "likely start ", f", {words}"
    if kind == "promise" and not words.startswith("ended"):
        return "at the latest ", f", {words}" if words else ""
    if kind == "promise":
        return f"{_name_event(words)}; it was ", ""
    if kind in ("risk", "breach"):
        cause, by, event = words.partition(", by ")
        return f"{_name_event(describe_cause(cause) + by + event)}; planned start ", ""
    return f"{words}: " if words else "", ""


def _name_event(words: str) -> str:
    """Name the event in `it was held, by 1796055611:323`, which is the `stimulus` in the daemon's log."""
    cause, _, event = words.partition(", by ")
    return f"{cause} (event {event})" if event else words


def describe_forecast_wait(seconds: int) -> str:
    """Return when the first forecast of a job is expected: `none yet; expected in about 6 s`."""
    return (
        f"none yet; expected in about {seconds} s"
        if seconds < 100
        else (f"none yet; expected in about {round(seconds / 60)} min")
    )


def is_forecast_fresh(expected: int, by: int | None, as_of: int | None, now: int) -> bool:
    """Return whether a forecast still holds: ``by``, its P90 or the promise, or P50 without both, lies ahead,
    and its age is at most `max(FORECAST_FRESH_S, (expected - as_of) / 4)`.
    """
    if max(expected, by if by is not None else expected) <= now:
        return False
    return as_of is None or now - as_of <= max(FORECAST_FRESH_S, (expected - as_of) // FRESH_SHARE)


def is_likely_no_sooner(changed: int, unchanged: int | None) -> bool:
    """Return whether a changed request is likely to start no sooner than the unchanged one."""
    return unchanged is not None and changed > unchanged - _SAME_S


def format_near_time(moment: int, now: int, zone: tzinfo | None = None) -> str:
    """A time in a text that is read at once: `today 20:59`, `Fri 10:49` within six days, `Fri 4 Dec 10:49`,
    `4 Dec 2027 10:49`. ``zone``: the reader's, by default the local one.
    """
    at, today = _read_times(moment, now, zone)
    if at is None:
        return "beyond the calendar"
    days = (at.date() - today.date()).days
    if not days:
        return f"today {at:%H:%M}"
    if 0 < days <= _WEEK_DAYS:
        return f"{at:%a %H:%M}"
    return _format_date(at, today)


def format_day_time(moment: int, now: int, zone: tzinfo | None = None) -> str:
    """A time for a text that is read later: `Fri 27 Nov 20:59`, in another year `27 Nov 2027 20:59`."""
    at, today = _read_times(moment, now, zone)
    return _format_date(at, today) if at is not None else "beyond the calendar"


_CAUSE_WORDS: Final[Mapping[str, str]] = {
    "licence lost": "fewer licences are there than before",
    "node lost": "a node was lost",
    "overrun ahead": "a job ahead runs longer than planned",
    "run refused": "its start was refused",
    "server, adapter or daemon outage": "the server, the adapter or the daemon was slow or away",
}
"""Causes of delays whose names in the API are too short for sentences."""


def describe_cause(cause: str) -> str:
    """Return the cause of a move, a risk or a breach as a clause for users."""
    return _CAUSE_WORDS.get(cause, cause)


def format_utc(moment: int) -> str:
    """A time for programs and for readers that convert it to their zone: `2026-11-27 20:59:00 UTC`."""
    at, _ = _read_times(moment, moment, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at is not None else "beyond the calendar"


def _format_date(at: datetime, today: datetime) -> str:
    return f"{at:%a} {at.day} {at:%b %H:%M}" if at.year == today.year else f"{at.day} {at:%b %Y %H:%M}"


def _read_times(moment: int, now: int, zone: tzinfo | None) -> tuple[datetime | None, datetime]:
    today = datetime.fromtimestamp(now, UTC).astimezone(zone)
    try:
        return datetime.fromtimestamp(moment, UTC).astimezone(zone), today
    except (ValueError, OverflowError, OSError):
        return None, today


def describe_requested_start(
    by: int, late: int | None, likely: int | None, sure: int | None, length: Callable[[int], str]
) -> str:
    """Return whether a job starts ``by`` a wished time: as planned, likely, or not.

    ``late``: how much later it is planned, in seconds; None: no start is known. ``likely`` and ``sure``: P50
    and P90 of its start. ``length`` formats seconds.
    """
    if late is None:
        return "not met, no start is known"
    if late == 0:
        return "met as planned"
    planned = f"planned {length(late)} after it"
    if sure is not None and sure <= by:
        return f"met with a probability of 90 % or more, though {planned}"
    if likely is not None and likely <= by:
        return f"met with a probability of 50 % or more, though {planned}"
    return f"not met: {planned}"
