"""Contact with a cluster's adapter: last request, clock difference, one adapter per cluster."""

import time
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from schedd.wire import Event, JobQueued
from schedd.wire.adapter_troubles import NO_CONTACT

_LOOKS: Final = 3
_JOBS: Final = 20
_LONG_PAUSE_S: Final = 20.0
_REFUSAL_COUNTS_S: Final = 60.0  # an adapter with a wrong token comes again every few seconds
NO_ADAPTER_YET: Final = "no adapter has connected yet"
ADAPTER_REFUSED: Final = "the requests of an adapter are refused"


class AdapterContact:
    """Contact with the adapter. Any thread may read; ages are in real seconds."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        """Last request by the monotonic clock; before the first one, the earliest time at which it could
        arrive."""
        self.at = 0  # last request by the cluster's clock, in seconds since the epoch; 0: none yet
        self.awaited_since = 0  # time from which the first request is expected, by the same clock
        self.version = ""  # version in its last report; empty: unknown
        self.scheduler_not_called = ""
        """Its last report that the server does not call its scheduler; empty otherwise."""
        self.troubles: Mapping[str, str] = {}
        """Lasting troubles by its last report, by kind (`ADAPTER_TROUBLES`)."""
        self._measured_server_clock_lead_s = 0  # by the adapter's last report
        self._holder: tuple[str, str] | None = None
        """Id and host of the accepted adapter; None before the first."""
        self._clock_leads: deque[float] = deque(maxlen=_LOOKS)
        self._server_clock_leads: deque[int] = deque(maxlen=_JOBS)
        self._read: tuple[float, int] | None = None
        """Its last read of the server, by both clocks, if reported."""
        self._refused: tuple[float, str] | None = None
        """When a request of an adapter was last refused by its token, by the monotonic clock, and why."""
        self._pause: tuple[float, float] = (0.0, 0.0)
        """Length of its last long pause between two requests, and the end by the monotonic clock."""

    def reset(self, now: int) -> None:
        """Expect the first request from ``now`` (cluster's clock) on, because this daemon leads now."""
        self.last, self.at, self.awaited_since, self._read = time.monotonic(), 0, now, None
        self.version = self.scheduler_not_called = ""
        self.troubles, self._measured_server_clock_lead_s = {}, 0
        self._holder = None
        self._clock_leads.clear()
        self._server_clock_leads.clear()

    def record_refusal(self, why: str) -> None:
        """Record that a request of an adapter was refused by its token."""
        self._refused = time.monotonic(), why

    def record_report(self, version: str, ahead: float | None) -> None:
        """Record its version and clock difference; missing values leave the old ones."""
        self.version = version or self.version
        if ahead is not None:
            self._clock_leads.append(ahead)

    def record_server_clock_lead(self, lead: int) -> None:
        """Record the lead of the server's clock over the adapter's in seconds, as measured at starts."""
        if lead != self._measured_server_clock_lead_s:
            self._measured_server_clock_lead_s = lead
            self._server_clock_leads.clear()  # the jobs were submitted before

    def record_job_stamps(self, events: Iterable[Event]) -> None:
        """Compare submissions (server's clock) of new jobs with event times (adapter's clock)."""
        found = [one.job.submitted - one.time for one in events if isinstance(one, JobQueued)]
        self._server_clock_leads.extend(found[-_JOBS:])

    @property
    def clock_lead_s(self) -> float | None:
        """Lead of its clock over the cluster's in seconds; None if unknown.

        Reports arrive late, so the largest of the last few is the most accurate.
        """
        return max(self._clock_leads.copy(), default=None)

    @property
    def server_clock_lead_s(self) -> int:
        """Lead of the server's clock over the adapter's in seconds: measured, or a lower bound from recent
        jobs. Before the first start after its last change a clock may be further ahead than measured.
        """
        return self._measured_server_clock_lead_s or max([0, *self._server_clock_leads.copy()])

    def clock_problem(self, most: int) -> str:
        """Return a text about clocks that differ by more than ``most`` seconds; empty without a known
        difference.
        """
        found = []
        ahead = self.clock_lead_s
        if ahead is not None and abs(ahead) > most:
            found.append(f"the clock of the adapter's host is {_describe_difference(ahead)} the daemon's")
        if abs(self.server_clock_lead_s) > most:
            difference = _describe_difference(self.server_clock_lead_s)
            found.append(f"the clock of the server's host is {difference} the adapter's")
        return f"{'; '.join(found)}: starts are early or late by as much" if found else ""

    def refusal(self, adapter: str, host: str, most: float) -> str:
        """Return why this adapter is refused; empty if it is accepted, and then it is the only one.

        A cluster has one adapter at a time. Another one is accepted when the first was silent for ``most``
        seconds. An adapter keeps its id over restarts; one without an id is replaced by one with an id.
        """
        if self._holder is not None and self._holder[0] not in ("", adapter) and self.age_s <= most:
            where = f" on host {self._holder[1]}" if self._holder[1] else ""
            return f"another adapter{where} serves this cluster; its last request came {self.age_s:.0f} s ago"
        self._holder = adapter, host
        return ""

    def seconds_until_silent(self, most: float) -> float:
        """Return after how many seconds without a request the adapter counts as silent for ``most``."""
        return max(0.0, most - self.age_s)

    def record_request(self, now: int, read_age: float | None = None) -> None:
        """Record a request at ``now`` (cluster's clock); it read the server ``read_age`` seconds before."""
        moment = time.monotonic()
        if moment - self.last > _LONG_PAUSE_S:
            self._pause = moment - self.last, moment
        self.last, self.at = moment, now
        if read_age is not None:
            self._read = self.last - read_age, int(now - read_age)

    @property
    def age_s(self) -> float:
        """Real seconds since its last request, or since the first one was expected."""
        return time.monotonic() - self.last

    @property
    def absence(self) -> str:
        """A sentence while no adapter has connected yet, before its silence counts as a fault; else empty."""
        return "" if self.at else NO_ADAPTER_YET

    def is_silent(self, most: float) -> bool:
        """Return whether the adapter itself has been silent for more than ``most`` seconds."""
        return self.age_s > most

    def silence(self, most: float) -> str:
        """Return a sentence if the adapter or its server has been silent for more than ``most`` seconds.

        The server counts as silent only if it had not been read for half of that time at the adapter's last
        request. A pause of the adapter itself does not count.
        """
        since = self.silent_since(most)
        if since is None:
            return ""
        if not self.is_silent(most):
            if why := self.troubles.get("unreadable", ""):
                return f"the adapter has not read the server's state since {_format_time(since)}: {why}"
            return f"the adapter has not reached the server since {_format_time(since)}"
        refused = self._refused
        why = ""
        if refused is not None and time.monotonic() - refused[0] < _REFUSAL_COUNTS_S:
            why = f"{ADAPTER_REFUSED}: {refused[1]}"
        if not self.at:
            words = f"no contact with an adapter since the daemon started at {_format_time(since)}"
            return f"{words}{f'; {why}' if why else ''}"
        why = why or self.troubles.get("registration", "")
        return f"{NO_CONTACT} since {_format_time(since)}{f'; {why}' if why else ''}"

    def silent_since(self, most: float) -> int | None:
        """Return the last contact of the silent adapter, or with its silent server, by the cluster's clock.

        Before its first contact: since when it is expected. None: neither is silent.
        """
        if self.is_silent(most):
            return self.at or self.awaited_since
        read = self._read
        if read is None:
            return None
        paused, resumed = self._pause
        since = max(read[0], resumed) if paused > most else read[0]
        return read[1] if time.monotonic() - since > most and self.last - since > most / 2 else None


def _format_time(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _describe_difference(ahead: float) -> str:
    return f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'}"
