"""Ends of listed complete jobs that the daemon has got already: a server may list them for days."""

from collections.abc import Iterable, Mapping

from schedd.wire import Event, JobDeleted, JobEnded
from server_adapter.bridge.facts import Ending


class ReportedEnds:
    """Ends by job, as the server listed them when they were sent."""

    def __init__(self) -> None:
        self._sent: dict[str, Ending] = {}

    def note(self, events: Iterable[Event], ended: Mapping[str, Ending]) -> None:
        """Record the ends that these sent events report."""
        for event in events:
            if isinstance(event, JobEnded | JobDeleted) and event.job_id in ended:
                self._sent[event.job_id] = ended[event.job_id]

    def pop_unreported(self, ended: Mapping[str, Ending]) -> dict[str, Ending]:
        """Return the listed ends that were not sent yet, which now count as sent."""
        found = {name: end for name, end in ended.items() if self._sent.get(name) != end}
        self._sent = dict(ended)
        return found

    def forget(self) -> None:
        """Forget all: the daemon may have lost them."""
        self._sent.clear()
