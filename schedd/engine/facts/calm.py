"""The start that people are told of a waiting job: the planned one, calmed. One rule for every face.

A plan is repaired with every event, so a planned start may come and go within seconds. What is told stands
until the plan is further from it than a threshold, and then for as long as a pause since it was last told; of
a job that starts soon, that has no start any more, or that was told a moment which is over, no pause is made.
Times are seconds since the
epoch, -1 where there is none; arrays are (n,), of one job each.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from schedd.engine.facts.records import JobRecord, Phase
from schedd.plan.columns import Ints

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState

__all__ = ["NEAR", "back", "ripe_at", "shown", "wrong", "wrong_one"]

NEAR: Final = 600
"""Who starts within so many seconds is told at once."""
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
    return np.where(calm, told_when + pause, now)


def shown(told: int, planned: int, now: int) -> int:
    """The start that people see of a job that is planned; -1: none is."""
    return told if planned > now and told > now else planned


def back(state: "EngineState", before: JobRecord, record: JobRecord) -> None:
    """A job waits again: it was told nothing while it was started, and may stand where it moved to before."""
    if state.tells and record.phase in _WAITS and before.phase not in _WAITS:
        slot = slice(record.slot, record.slot + 1)
        planned = np.array([state.plan.start(record.slot)])
        state.tell_due[slot] |= wrong(state.told[slot], planned, state.settings.tell_threshold)
