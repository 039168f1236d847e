"""Displayed start: the planned start with hysteresis, used by all interfaces.

The plan is repaired at every event, so a planned start may change within seconds. A published start stays
until the plan differs by more than a threshold, and then until a pause since its publication is over. A text
with the same start may be written meanwhile: it neither renews the publication nor delays the next one.
The pause is short if both the published and the planned start are near. There is no pause if only the new
start is near, if the job has lost its start, or if the published start has passed. Where jobs are started
here, a start within seconds is not published: the job is seen to start. Times are seconds since the epoch,
-1: none; arrays are (n,), by job.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from schedd.engine.facts.records import JobRecord, Phase
from schedd.plan.columns import Ints

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState

NEAR: Final = 600  # starts within this many seconds are published at once
_NEAR_PAUSE_S: Final = 30  # maximum pause between two near starts of one job
_SOON_S: Final = 5  # a start within this many seconds is not published
LATE_S: Final = 5
"""A job that waits this long after its published start gets another text: that start has passed."""
_WAITS: Final = (Phase.WAITING, Phase.BLOCKED)


def are_outdated(published: Ints, planned: Ints, threshold: int) -> npt.NDArray[np.bool_]:
    """Return where the published start is outdated: lost, new, or moved by more than the threshold."""
    found: npt.NDArray[np.bool_] = (np.abs(planned - published) > threshold) | (
        (planned < 0) != (published < 0)
    )
    return found


def is_outdated(published: int, planned: int, threshold: int) -> bool:
    return abs(planned - published) > threshold or (planned < 0) != (published < 0)


def remains_published(published: int, planned: int, now: int, threshold: int) -> bool:
    """Return whether a text that is written now has the start published before."""
    return published > now and planned > now and not is_outdated(published, planned, threshold)


def next_update(
    published: Ints, since: Ints, planned: Ints, now: int, pause: int, *, dispatching: bool
) -> Ints:
    """Return from when on each job may be written again; ``since``: when its present start was published, if
    that is outdated, else when a text was written. ``dispatching``: due jobs start here.
    """
    steady = (published > now) & (planned > now + NEAR)
    near = (published > now) & (published <= now + NEAR) & (planned >= 0) & ~steady
    soon = (planned > now - LATE_S) & (planned <= now + _SOON_S)
    update = np.where(steady, since + pause, np.where(near, since + min(pause, _NEAR_PAUSE_S), now))
    return np.where(soon, planned + LATE_S, update) if dispatching else update


def next_job_update(
    published: int, since: int, planned: int, now: int, pause: int, *, dispatching: bool
) -> int:
    if dispatching and now - LATE_S < planned <= now + _SOON_S:
        return planned + LATE_S
    if published <= now:
        return now
    if planned > now + NEAR:
        return since + pause
    return since + min(pause, _NEAR_PAUSE_S) if published <= now + NEAR and planned >= 0 else now


def displayed_start(published: int, planned: int, now: int) -> int:
    """Return the start to display for a planned job; -1: none."""
    return published if planned > now and published > now else planned


def mark_requeued(state: "EngineState", before: JobRecord, record: JobRecord) -> None:
    """Mark a job that waits again: nothing was published while it started. What was published before it ran
    is replaced at once.
    """
    if state.publishes_starts and record.phase in _WAITS and before.phase not in _WAITS:
        state.first_start_ahead = None
        if before.phase is Phase.RUNNING:
            state.published_start[record.slot] = -1
        slot = slice(record.slot, record.slot + 1)
        planned = np.array([state.plan.start(record.slot)])
        state.updates_marked = True
        state.update_due[slot] |= are_outdated(
            state.published_start[slot], planned, state.settings.publish_threshold
        )
