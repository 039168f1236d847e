"""State of predictions: learned run times, calibrations of expected starts, and the open jobs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from schedd.engine.component.hook_values import ForecastRounds
from schedd.engine.facts.state import EngineState
from schedd.plan.schema import Arrays, FieldRule, declared
from schedd.predict import PlannedSpeeds, Prediction, RunTimePredictor


def _save(predictor: RunTimePredictor | None) -> tuple[dict[str, Any] | None, Arrays]:
    return predictor.save() if predictor is not None else (None, {})


def _load(saved: tuple[Mapping[str, Any] | None, Arrays]) -> RunTimePredictor | None:
    plain, arrays = saved
    return RunTimePredictor.load(plain, arrays) if plain is not None else None


def is_blank(part: "PredictionState") -> bool:
    """Whether there are predictions, and none of them was learned from a job that ended."""
    return part.predictor is not None and part.predictor.learner.run_times.ends == 0


def _without_jobs(predictor: RunTimePredictor | None) -> RunTimePredictor | None:
    return predictor.without_jobs() if predictor is not None else None


_PREDICTOR: Final = FieldRule(
    lambda predictor: predictor.copy() if predictor is not None else None, _save, _load, mixed=True
)


@dataclass(slots=True)
class PredictionState:
    """The component's part of the engine's state."""

    predictor: RunTimePredictor | None = declared(
        _PREDICTOR, default=None, carried=_without_jobs, lasting=_without_jobs
    )
    """None: the site has no predictions."""


def find_predictor(state: EngineState) -> RunTimePredictor | None:
    """Return the predictor; None: the site has no predictions."""
    return state.part(PredictionState).predictor


def run_time_predictions(state: EngineState) -> Callable[[str], Prediction | None] | None:
    """Return a function: job id to prediction at submission, on its planned nodes; None: there are none."""
    predictor = find_predictor(state)
    if predictor is None:
        return None
    find, speeds = predictor.learner.find_prediction, PlannedSpeeds.from_plan(state.plan)
    if speeds is None:
        return find
    records = state.records

    def find_at_speed(job: str) -> Prediction | None:
        prediction, record = find(job), records.get(job)
        slot = record.slot if record is not None else -1
        return prediction.at_speed(speeds.job_speed(slot)) if prediction is not None else None

    return find_at_speed


def forecast_rounds(state: EngineState) -> ForecastRounds | None:
    """Return when expected starts were computed, and how well earlier ones came true."""
    predictor = find_predictor(state)
    if predictor is None:
        return None
    held: dict[str, tuple[int, float, float]] = {
        kind: (len(one.recent_hits), *one.coverage)
        for kind, one in predictor.calibrations.items()
        if one.recent_hits
    }
    halted: dict[str, int] = {kind: one.halted for kind, one in predictor.calibrations.items()}
    near = (predictor.near_as_of, predictor.near_until)
    return ForecastRounds(predictor.as_of, near, held, halted, predictor.halts.times)


def first_estimates(state: EngineState, job: str) -> dict[str, int]:
    """Return the first P50 of a waiting job's start by kind of estimate."""
    predictor = find_predictor(state)
    if predictor is None:
        return {}
    found = ((kind, one.estimates.get(job)) for kind, one in predictor.calibrations.items())
    return {kind: first.expected.p50 for kind, first in found if first is not None}
