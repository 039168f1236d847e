"""Runs that the server accepted and whose start was not seen yet: some come back to the queue untold."""

import time
from collections.abc import Iterable, Mapping
from typing import Final

from schedd.wire import Event, JobDeleted, JobEnded, JobQueued, JobStarted
from server_adapter.bridge.facts import ACTIVE
from server_adapter.bridge.state import ServerState

_RETURNED: Final = 5.0  # real seconds after which an accepted job that is still queued has come back
_RECENT: Final = 120.0  # seconds for which a run asked for before a restart is watched for that


class AcceptedRuns:
    """Accepted runs by job, with the real moment (monotonic seconds) at which each was accepted.

    Mostly the server's own count of starts tells that a job came back; this is for servers without one, and
    for a restart of ours.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def note(self, job: str) -> None:
        """The server accepted a run now."""
        self._since[job] = time.monotonic()

    def recall(self, asked: Mapping[str, float], now: float) -> None:
        """Runs asked for before a restart of ours, by the time of asking (of the same clock as `now`)."""
        began = time.monotonic()
        for job, moment in asked.items():
            if now - moment < _RECENT:
                self._since.setdefault(job, began - (now - moment))

    def forget(self, events: Iterable[Event]) -> None:
        """What became of some of them is known."""
        for event in events:
            match event:
                case JobStarted() | JobEnded() | JobDeleted():
                    self._since.pop(event.job_id, None)
                case JobQueued():
                    self._since.pop(event.job.id, None)
                case _:
                    pass

    def returned(self, state: ServerState, read_at: float) -> list[str]:
        """Jobs that are queued in `state`, whose reading began at `read_at` (monotonic), long after they were
        accepted. Each is named once.
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
