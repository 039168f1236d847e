"""Hold of published starts: for some minutes no search and no backfilling delays a start that was published
just now.

The plan may delay a job within its promise at any event. Without a hold a start was published, and a newcomer
took its place seconds later. A hold does not bind jobs of higher rank, jobs with an earlier deadline (if the
site places by deadline), outages, and overruns. It never forbids the present planned start.
"""

from typing import TYPE_CHECKING

import numpy as np

from schedd.engine.place.dependencies import last_starts
from schedd.plan.columns import PLANNED, Ints

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState


def last_starts_on_hold(state: "EngineState") -> Ints:
    """Return by slot the last start that the optimiser may give to each job: ``last_starts``, and for jobs
    whose start was published less than ``publish_hold`` seconds ago that start plus ``publish_threshold``.
    """
    latest = last_starts(state)
    hold = state.settings.publish_hold
    if not hold or not state.publishes_starts:
        return latest
    published = state.published_start
    count = min(published.shape[0], state.plan.jobs.states.shape[0], latest.shape[0])
    held = (state.published_at[:count] >= state.now - hold) & (published[:count] >= 0)
    slots = np.flatnonzero(held & (state.plan.jobs.states[:count] == PLANNED))
    bound = np.maximum(published[slots] + state.settings.publish_threshold, state.plan.starts(slots))
    latest[slots] = np.minimum(latest[slots], bound)
    return latest
