"""The start that people are told of a waiting job: the planned one, calmed. One rule for every face.

A plan is repaired with every event, so a planned start may come and go within seconds. What is told stands
until the plan is further from it than a threshold, and then for as long as a pause since it was last told.
The pause is short for a job that was told a near start and has a near one. There is none for one whose start
has become near, that has no start any more, or that was told a moment which is over. A job that starts within
seconds is told nothing: its start will be seen. Times are seconds since the epoch, -1 where there is none;
arrays are (n,), of one job each.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from schedd.engine.facts.records import JobRecord, Phase
from schedd.plan.columns import Ints

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState

__all__ = ["LATE_S", "NEAR", "back", "ripe_at", "shown", "wrong", "wrong_one"]

NEAR: Final = 600
"""Who starts within so many seconds is told at once."""
_NEAR_PAUSE_S: Final = 30
"""Longest pause between two near starts of one job."""
_SOON_S: Final = 5
"""A start within so many seconds is not told."""
LATE_S: Final = 5
"""A job that still waits so long after its start was written gets other words: that start is in the past."""
_WAITS: Final = (Phase.WAITING, Phase.BLOCKED)


def wrong(told: Ints, planned: Ints, threshold: int) -> npt.NDArray[np.bool_]:
    """Where what was told does not hold any more: it moved by more, was lost, or is known now."""
    found: npt.NDArray[np.bool_] = (np.abs(planned - told) > threshold) | ((planned < 0) != (told < 0))
    return found


def wrong_one(told: int, planned: int, threshold: int) -> bool:
    """The same of one job."""
    return abs(planned - told) > threshold or (planned < 0) != (told < 0)


def ripe_at(told: Ints, told_when: Ints, planned: Ints, now: int, pause: int) -> Ints:
    """From when on each may be told anew."""
    calm = (told > now) & (planned > now + NEAR)
    near = (told > now) & (told <= now + NEAR) & (planned >= 0) & ~calm
    soon = (planned > now - LATE_S) & (planned <= now + _SOON_S)
    ripe = np.where(calm, told_when + pause, np.where(near, told_when + min(pause, _NEAR_PAUSE_S), now))
    return np.where(soon, planned + LATE_S, ripe)


def shown(told: int, planned: int, now: int) -> int:
    """The start that people see of a job that is planned; -1: none is."""
    return told if planned > now and told > now else planned


def back(state: "EngineState", before: JobRecord, record: JobRecord) -> None:
    """A job waits again: it was told nothing while it was started, and may stand where it moved to before."""
    if state.tells and record.phase in _WAITS and before.phase not in _WAITS:
        slot = slice(record.slot, record.slot + 1)
        planned = np.array([state.plan.start(record.slot)])
        state.tell_due[slot] |= wrong(state.told[slot], planned, state.settings.tell_threshold)
