"""Predicted run times and expected starts: learned from events, pure functions of what was learned."""

from schedd.predict.decode import decoded, running, waiting
from schedd.predict.layout import LEVELS, P50, P90, Ask, Prediction
from schedd.predict.learner import Learner
from schedd.predict.run_times import RunTimes
from schedd.predict.starts import Calibration, Expected

__all__ = [
    "LEVELS",
    "P50",
    "P90",
    "Ask",
    "Calibration",
    "Expected",
    "Learner",
    "Prediction",
    "RunTimes",
    "decoded",
    "running",
    "waiting",
]
