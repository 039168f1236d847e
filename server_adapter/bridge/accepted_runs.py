"""Accepted runs without a visible start yet: some return to the queue without a message."""

import time
from collections.abc import Iterable, Mapping
from typing import Final

from schedd.wire import Event, JobDeleted, JobEnded, JobQueued, JobStarted
from server_adapter.bridge.facts import ACTIVE
from server_adapter.bridge.state import ServerState

_RETURNED: Final = 5.0  # real seconds after which an accepted job that is still queued counts as returned
_RECENT: Final = 120.0  # watch time in seconds of runs requested before a restart


class AcceptedRuns:
    """Accepted runs by job, with the real time of acceptance (monotonic seconds).

    Usually the server's count of starts shows that a job returned; this class serves servers without that
    count, and restarts of the adapter.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def note(self, job: str) -> None:
        """Record that the server has accepted a run."""
        self._since[job] = time.monotonic()

    def recall(self, asked: Mapping[str, float], now: float) -> None:
        """Record runs requested before a restart of the adapter, with their times by the clock of `now`."""
        began = time.monotonic()
        for job, moment in asked.items():
            if now - moment < _RECENT:
                self._since.setdefault(job, began - (now - moment))

    def forget(self, events: Iterable[Event]) -> None:
        """Remove the runs of the outcomes in these events."""
        for event in events:
            match event:
                case JobStarted() | JobEnded() | JobDeleted():
                    self._since.pop(event.job_id, None)
                case JobQueued():
                    self._since.pop(event.job.id, None)
                case _:
                    pass

    def returned(self, state: ServerState, read_at: float) -> list[str]:
        """Return, once each, the jobs that are queued in `state` long after their acceptance. The reading of
        `state` began at `read_at` (monotonic).
        """
        found = []
        for name, moment in list(self._since.items()):
            job = state.jobs.get(name)
            if job is None or job.state in ACTIVE:
                if read_at > moment:
                    del self._since[name]
            elif read_at - moment > _RETURNED:
                del self._since[name]
                found.append(name)
        return found
