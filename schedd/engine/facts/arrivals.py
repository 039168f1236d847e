"""New jobs of a large snapshot, added to the plan in slices while other events are handled.

Jobs that hold resources on the server come first: nothing is started before all of them are added, because
their nodes look free. An event about a job in this queue adds the job at once.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from schedd.engine.facts.job_requests import holds_resources
from schedd.engine.facts.state import EngineState
from schedd.model import FOREVER
from schedd.wire import Event, JobFacts, JobQueued

ARRIVALS_PER_CALL = 200
"""Jobs that are taken in by one call of the engine: about a tenth of a second on 10,000 nodes."""


def defer_arrivals(state: EngineState, found: Iterable[Event]) -> Sequence[Event]:
    """Return the events of a snapshot to handle at once: all but new jobs, if these are many."""
    events = list(found)
    new = [event for event in events if isinstance(event, JobQueued) and event.job.id not in state.records]
    if len(new) <= ARRIVALS_PER_CALL and not state.carried_jobs:
        return events
    new.sort(key=lambda event: _order(state, event.job))
    names = {event.job.id for event in new}
    known = [event for event in events if not (isinstance(event, JobQueued) and event.job.id in names)]
    if len(new) <= ARRIVALS_PER_CALL:
        return known + new
    state.arriving = {event.job.id: event for event in new}
    return known


def _order(state: EngineState, job: JobFacts) -> tuple[int, int]:
    """Running jobs first; then jobs of a plan that is rebuilt in the order of their starts in that plan, so
    that each finds its place, and its promise can be kept; then all others.
    """
    kept = state.carried_jobs.get(job.id)
    planned = kept.planned if kept is not None and kept.planned >= 0 else FOREVER
    return (0, 0) if holds_resources(job) else (1, planned)


def pop_arrivals(state: EngineState) -> Sequence[JobQueued]:
    """The next slice, which does not wait any more."""
    some = list(islice(state.arriving.values(), ARRIVALS_PER_CALL))
    for event in some:
        del state.arriving[event.job.id]
    return some


def pop_arrival(state: EngineState, event: Event) -> JobQueued | None:
    """The arrival of the job that ``event`` speaks of, which waits no more; None where it did not."""
    job = getattr(event, "job", None)
    return state.arriving.pop(job.id if job is not None else getattr(event, "job_id", ""), None)
