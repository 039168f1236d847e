"""Whether a cluster's adapter is still heard of."""

import time
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from schedd.wire import Event, JobQueued

__all__ = ["AdapterContact"]

_LOOKS: Final = 3
_JOBS: Final = 20


class AdapterContact:
    """When the adapter was last heard of. Any thread may ask; ages are in real seconds."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        """Of its last request by the monotonic clock; before the first one, when it could first be heard."""
        self.at = 0
        """The same by the cluster's clock, in seconds since the epoch; 0: it was not heard of yet."""
        self.version = ""
        """As it last said; empty: it did not."""
        self.scheduler_not_called = ""
        """That the server does not call its scheduler, as the adapter last said."""
        self._holder: tuple[str, str] | None = None
        """Id and host of the one adapter that is let in; None: there was none yet."""
        self._clock_leads: deque[float] = deque(maxlen=_LOOKS)
        self._server_clock_leads: deque[int] = deque(maxlen=_JOBS)
        self._read: tuple[float, int] | None = None
        """When it last read the server, by both clocks, as far as it said so."""

    def reset(self) -> None:
        """From now on it is expected to be heard of: this daemon leads."""
        self.last, self.at, self._read = time.monotonic(), 0, None
        self.version = self.scheduler_not_called = ""
        self._holder = None
        self._clock_leads.clear()
        self._server_clock_leads.clear()

    def record_report(self, version: str, ahead: float | None) -> None:
        """Its version, and how far its clock is ahead; what it does not say stays as it was."""
        self.version = version or self.version
        if ahead is not None:
            self._clock_leads.append(ahead)

    def record_job_stamps(self, events: Iterable[Event]) -> None:
        """New jobs have two stamps: that of the server, and that of the adapter, which is never sooner."""
        found = [one.job.submitted - one.time for one in events if isinstance(one, JobQueued)]
        self._server_clock_leads.extend(found[-_JOBS:])

    @property
    def clock_lead_s(self) -> float | None:
        """By how many seconds its clock is before the cluster's; None: it did not say.

        What it says arrives late, so the largest of the last few is the nearest.
        """
        return max(self._clock_leads.copy(), default=None)

    @property
    def server_clock_lead_s(self) -> int:
        """By how many seconds at least the server's clock is before the adapter's, by the latest new jobs."""
        return max([0, *self._server_clock_leads.copy()])

    def clock_problem(self, most: int) -> str:
        """Which clocks are more than ``most`` seconds apart; empty when none are known to be."""
        found = []
        ahead = self.clock_lead_s
        if ahead is not None and abs(ahead) > most:
            found.append(f"the clock of the adapter's host is {_describe_difference(ahead)} the daemon's")
        if self.server_clock_lead_s > most:
            difference = _describe_difference(self.server_clock_lead_s)
            found.append(f"the clock of the server's host is {difference} the adapter's")
        return f"{'; '.join(found)}: starts are early or late by as much" if found else ""

    def refusal(self, adapter: str, host: str, most: float) -> str:
        """Return why this adapter is not let in; empty where it is, and no other is from then on.

        A cluster has one adapter at a time. Another one takes the place when the first has been silent for
        ``most`` seconds. An adapter keeps its id over restarts; one without an id makes room for one with.
        """
        if self._holder is not None and self._holder[0] not in ("", adapter) and self.age_s <= most:
            where = f" on host {self._holder[1]}" if self._holder[1] else ""
            return f"another adapter{where} serves it; it was heard of {self.age_s:.0f} s ago"
        self._holder = adapter, host
        return ""

    def record_request(self, now: int, read_age: float | None = None) -> None:
        """It is there, at this second of the cluster's clock; it read the server so many seconds before."""
        self.last, self.at = time.monotonic(), now
        if read_age is not None:
            self._read = self.last - read_age, int(now - read_age)

    @property
    def age_s(self) -> float:
        """Real seconds since it was last heard of, or since it is expected to be."""
        return time.monotonic() - self.last

    def silence(self, most: float) -> str:
        """That it, or the server behind it, is silent for longer than ``most`` seconds, if it is."""
        if self.age_s > most:
            if not self.at:
                return "no contact with an adapter since the daemon started"
            return f"no contact with the adapter since {_format_time(self.at)}"
        read = self._read
        if read is not None and time.monotonic() - read[0] > most:
            return f"the adapter has not reached the server since {_format_time(read[1])}"
        return ""


def _format_time(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _describe_difference(ahead: float) -> str:
    return f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'}"
