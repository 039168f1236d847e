"""Order of the events of one batch."""

from collections import Counter
from collections.abc import Iterator, Sequence

from schedd.wire import (
    DeadlinesForecast,
    Event,
    JobDeleted,
    JobEnded,
    JobQueued,
    PlanChosen,
    PlanImproved,
    Snapshot,
    StartsExpected,
)


def sort_events(events: Sequence[Event]) -> Sequence[Event]:
    """Sort events: ends, then state changes, then arrivals. Events about one job keep their order.

    No event moves past a snapshot, which describes one moment.
    """
    if len(events) < 2:
        return events
    found: list[Event] = []
    for part in _parts(events):
        found += _sorted(part)
    return found


def _parts(events: Sequence[Event]) -> Iterator[list[Event]]:
    part: list[Event] = []
    for event in events:
        if isinstance(event, Snapshot):
            yield part
            yield [event]
            part = []
        else:
            part.append(event)
    yield part


def _sorted(events: list[Event]) -> list[Event]:
    if len(events) < 2:
        return events
    arriving = {event.job.id for event in events if isinstance(event, JobQueued)}
    reports = Counter(map(_job_id, events))

    def rank(event: Event) -> int:
        job = _job_id(event)
        if isinstance(event, PlanImproved | PlanChosen | StartsExpected | DeadlinesForecast):
            return 3  # found on a plan that knew nothing of all this
        if job in arriving:
            return 2
        return 0 if isinstance(event, JobEnded | JobDeleted) and reports[job] == 1 else 1

    return sorted(events, key=rank)


def _job_id(event: Event) -> str:
    job = getattr(event, "job", None)
    return job.id if job is not None else getattr(event, "job_id", "")
