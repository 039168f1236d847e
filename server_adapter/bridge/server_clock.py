"""Difference between the server's clock and the adapter's, measured at starts; corrected times of the server.

A start that the adapter requested lies between its request and the reading that shows it. If the server
reports another time, its clock differs. Uncorrected, a job on a server whose clock is behind would seem to
have run before its start, and the plan would count it as over.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Final

from schedd.wire import JobFacts
from server_adapter.bridge.facts import ACTIVE, Ending
from server_adapter.bridge.state import ServerState

_TOLERANCE_S: Final = 2  # rounding, and a request that takes a moment
_SETTLES_S: Final = 5  # maximum later correction of a start time by the server


class ServerClock:
    """Corrects times of the server by the `lead` of its clock over the adapter's in seconds, if they differ.

    The lead is 0 until a start shows another one. It changes only if a start contradicts it, so that
    corrected times do not move with each start.
    """

    def __init__(self) -> None:
        self.lead = 0
        self._range = (-inf, inf)
        """Bounds of the lead by the starts since its last change."""
        self._judged: dict[str, int] = {}  # reported starts by job
        self._corrected: dict[str, tuple[int, int]] = {}  # reported and corrected starts of running jobs

    def correct(
        self, before: ServerState | None, state: ServerState, requested: Mapping[str, float], now: float
    ) -> ServerState:
        """Return the state with times by the adapter's clock.

        `before` is the result for the reading before; `requested` has the time of each recently requested
        run, `now` is the time of the reading's end.
        """
        for name, asked in requested.items():
            job = state.jobs.get(name)
            if job is None or job.started is None or job.state not in ACTIVE:
                continue
            if self._judged.get(name) != job.started:
                self._observe(job.started, asked, now, before)
                self._judged[name] = job.started
        self._judged = {name: start for name, start in self._judged.items() if name in requested}
        if not self.lead and not self._corrected:
            return state
        jobs = {name: changed for name, job in state.jobs.items() if (changed := self._job(job)) is not job}
        ended = {name: self._ending(name, end, int(now)) for name, end in state.ended.items()}
        known = state.jobs.keys() | state.ended.keys()
        self._corrected = {name: one for name, one in self._corrected.items() if name in known}
        held = {
            name: replace(one, start=one.start - self.lead, end=one.end - self.lead)
            for name, one in state.reservations.items()
        }
        return replace(state, jobs={**state.jobs, **jobs}, ended=ended, reservations=held)

    def _observe(self, reported: int, earliest: float, latest: float, before: ServerState | None) -> None:
        low, high = reported - latest - _TOLERANCE_S, reported - earliest + _TOLERANCE_S
        if low > high:  # the adapter's clock was set between request and reading
            return
        known_low, known_high = self._range
        if max(low, known_low) > min(high, known_high):  # the clock was set
            self._range = low, high
        else:
            self._range = max(low, known_low), min(high, known_high)
        low, high = self._range
        if low <= self.lead <= high:
            return
        if before is not None:  # earlier starts were stamped by the clock as it was
            for name, job in before.jobs.items():
                if job.state in ACTIVE and job.started is not None and name not in self._corrected:
                    self._corrected[name] = job.started + self.lead, job.started
        self.lead = 0 if low <= 0 <= high else round((low + high) / 2)

    def _job(self, job: JobFacts) -> JobFacts:
        changed = job
        if job.started is not None and job.state in ACTIVE:
            corrected = self._start(job.id, job.started)
            if corrected != job.started:
                changed = replace(changed, started=corrected)
        if self.lead and job.not_before is not None:
            changed = replace(changed, not_before=job.not_before - self.lead)
        return changed

    def _start(self, name: str, reported: int) -> int:
        known = self._corrected.get(name)
        if known is None or abs(known[0] - reported) > _SETTLES_S:
            known = self._corrected[name] = reported, reported - self.lead
        return known[1]

    def _ending(self, name: str, end: Ending, now: int) -> Ending:
        started = None if end.started is None else self._start(name, end.started)
        completed = end.completed
        if completed is not None:
            completed = min(completed - self.lead, now)
            if started is not None:
                completed = max(completed, started)
        return replace(end, started=started, completed=completed)
