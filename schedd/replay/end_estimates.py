"""Forecasts of ends within a replay, as the daemon makes them for deadlines, and their outcomes.

Each waiting job is forecast at submission for a deadline of a drawn probability.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from schedd.engine import EngineState
from schedd.policy.reliability import failure_rates
from schedd.predict import (
    EndForecast,
    ProbabilityBin,
    ProbabilityCalibration,
    ProbabilityOutcome,
    probability_bins,
    uncorrected,
)

REQUIRED: Final = (0.5, 0.8, 0.9, 0.95)
"""Probabilities that are requested with a deadline."""
_GOLDEN: Final = 0.6180339887498949  # its multiples, without their whole part, are spread evenly


@dataclass(frozen=True, slots=True)
class AcceptedDeadlines:
    """Earliest deadlines that are accepted with the probability ``required``: their number, and the share
    that was met.
    """

    required: float
    count: int
    met: float


class EndEstimator:
    """Forecasts of the ends of ``jobs`` jobs, by number. Times are those of the engine's clock."""

    def __init__(self, jobs: int) -> None:
        self._calibration = ProbabilityCalibration()
        self._deadline = np.full(jobs, -1, np.int64)
        self._raw = np.zeros(jobs)
        self._probability = np.zeros(jobs)
        self._accepted = np.full((len(REQUIRED), jobs), -1, np.int64)
        """Earliest deadline with each of the required probabilities."""
        self._end = np.full(jobs, -1, np.int64)

    def estimate_end(self, i: int, now: int, state: EngineState, forecast: EndForecast) -> None:
        """Forecast the end of a waiting job with the failure rates of its nodes; without failures these are
        0.
        """
        self._calibration.advance_clock(now)
        rates = failure_rates(state.lives, state.now, state.site.reliability.half_life)
        rate = sum(rates.get(node, 0.0) for node in forecast.nodes)
        correction = self._calibration.correction
        wanted = [((i * _GOLDEN) % 1, uncorrected), *((required, correction.apply) for required in REQUIRED)]
        deadline, *accepted = forecast.earliest_deadlines(wanted, rate)
        if deadline is None:
            return
        raw = forecast.probability(deadline, rate)
        self._deadline[i], self._raw[i] = deadline, raw
        self._probability[i] = correction.apply(raw)
        self._calibration.issue(str(i), now, deadline, raw, float(self._probability[i]))
        self._accepted[:, i] = [earliest if earliest is not None else -1 for earliest in accepted]

    def record_end(self, i: int, now: int, *, killed: bool) -> None:
        """Learn from a job that ended, normally or with its node."""
        self._calibration.advance_clock(now)
        if not killed:
            self._end[i] = now
            self._calibration.record_end(str(i), now)

    def bins(self, first: int) -> tuple[ProbabilityBin, ...]:
        """Return predicted and observed shares of the forecasts for the jobs from number ``first`` on."""
        met = (self._end >= 0) & (self._end <= self._deadline)
        rows = zip(self._deadline, self._raw.tolist(), self._probability.tolist(), met.tolist(), strict=True)
        known = [ProbabilityOutcome(*row[1:]) for row in list(rows)[first:] if row[0] >= 0]
        return probability_bins(known)

    def accepted(self, first: int) -> tuple[AcceptedDeadlines, ...]:
        """Return the shares of met deadlines of the jobs from number ``first`` on, by required
        probability.
        """
        found = []
        for required, deadlines in zip(REQUIRED, self._accepted[:, first:], strict=True):
            known = deadlines >= 0
            end = self._end[first:][known]
            met = (end >= 0) & (end <= deadlines[known])
            found.append(
                AcceptedDeadlines(required, int(known.sum()), float(met.mean()) if met.size else 0.0)
            )
        return tuple(found)


def planned_nodes(state: EngineState, slot: int) -> tuple[str, ...]:
    """Return the planned nodes of the job in this slot."""
    names = state.plan.node_names
    return tuple(names[take.row] for take in state.plan.takes(slot) if take.row in names)
