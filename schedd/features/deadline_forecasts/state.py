"""What the engine keeps of deadlines with a probability: judged ones, and the calibration of forecasts."""

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from operator import index
from typing import Any, Final

from schedd.engine.facts.state import EngineState
from schedd.features.deadline_forecasts.settings import DeadlineForecastSettings
from schedd.model import FOREVER
from schedd.plan.schema import KEYS, MOMENT, FieldRule, declared
from schedd.predict import Correction, ProbabilityBin, ProbabilityCalibration, probability_bins

OUTCOMES: Final = ("accepted", "refused", "kept", "missed")
"""Counted outcomes: of requests for admission, and of accepted deadlines when their jobs ended."""


@dataclass(frozen=True, slots=True)
class JudgedDeadline:
    """A deadline with a required probability, and the forecast of ``time``; times in seconds since the epoch.

    ``earliest`` is the earliest deadline with the required probability (FOREVER: none has it).
    """

    deadline: int
    required: float
    accepted: bool
    probability: float
    earliest: int
    time: int


def _load_judged(saved: Mapping[str, Mapping[str, Any]]) -> dict[str, JudgedDeadline]:
    return {job: JudgedDeadline(**one) for job, one in saved.items()}


_JUDGED: Final = FieldRule(dict, lambda found: {job: asdict(one) for job, one in found.items()}, _load_judged)
_COUNTS: Final = FieldRule(
    dict, load=lambda saved: {outcome: index(number) for outcome, number in saved.items()}
)
_CALIBRATION: Final = FieldRule(
    lambda found: found.copy(), lambda found: found.save(), ProbabilityCalibration.load
)


def _learned(found: ProbabilityCalibration) -> ProbabilityCalibration:
    return found.without_open()


def _calibration() -> Any:
    return declared(_CALIBRATION, make=ProbabilityCalibration, carried=_learned, lasting=_learned)


@dataclass(slots=True)
class DeadlineForecastsState:
    """The component's part of the engine's state."""

    judged: dict[str, JudgedDeadline] = declared(_JUDGED, make=dict, carried=True, lasting=True)  # by job
    requested: dict[str, None] = declared(KEYS, make=dict)  # jobs with such a deadline, judged or not
    waiting: ProbabilityCalibration = _calibration()  # of forecasts for waiting jobs
    running: ProbabilityCalibration = _calibration()  # of forecasts for running jobs
    counts: dict[str, int] = declared(_COUNTS, make=dict, carried=True, lasting=True)
    """Number of deadlines by outcome, since the first start of the engine."""
    published: "PublishedForecasts | None" = declared(MOMENT, default=None)
    """The value for readers; None: something was changed."""

    def count(self, outcome: str) -> None:
        """Count one deadline."""
        self.counts = dict(Counter(self.counts) + Counter([outcome]))
        self.published = None


@dataclass(frozen=True, slots=True)
class PublishedForecasts:
    """What other threads may read of the component."""

    settings: DeadlineForecastSettings
    requested: AbstractSet[str]
    judged: Mapping[str, JudgedDeadline]
    counts: Mapping[str, int]
    correction: Correction  # of forecasts for waiting jobs
    accuracy: Mapping[str, tuple[ProbabilityBin, ...]]
    """By kind of forecast: for `waiting` and for `running` jobs."""


def forecasts_state(state: EngineState) -> DeadlineForecastsState:
    """The component's part of the engine's state."""
    return state.part(DeadlineForecastsState)


def publish_forecasts(state: EngineState) -> PublishedForecasts:
    """A value for other threads."""
    part, settings = forecasts_state(state), state.site.part(DeadlineForecastSettings)
    if part.published is None or part.published.settings is not settings:
        kinds = {"waiting": part.waiting, "running": part.running}
        part.published = PublishedForecasts(
            settings,
            frozenset(part.requested),
            dict(part.judged),
            dict(part.counts),
            part.waiting.correction,
            {kind: probability_bins(tuple(one.outcomes)) for kind, one in kinds.items()},
        )
    return part.published


def earliest_or_none(earliest: int) -> int | None:
    """Return the earliest deadline; None: no deadline has the required probability."""
    return earliest if earliest < FOREVER else None
