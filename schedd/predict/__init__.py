"""Predicted run times and expected starts: learned from events, pure functions of what was learned."""

from schedd.predict.accuracy import Figures, Outcomes, figures
from schedd.predict.decode import decode, decoded, running, waiting
from schedd.predict.layout import LEVELS, P50, P90, Ask, Prediction
from schedd.predict.learner import Learner
from schedd.predict.outlook import KINDS, Kind, Outlook, calm, kind_of
from schedd.predict.run_times import RunTimes
from schedd.predict.starts import Calibration, Expected

__all__ = [
    "KINDS",
    "LEVELS",
    "P50",
    "P90",
    "Ask",
    "Calibration",
    "Expected",
    "Figures",
    "Kind",
    "Learner",
    "Outcomes",
    "Outlook",
    "Prediction",
    "RunTimes",
    "calm",
    "decode",
    "decoded",
    "figures",
    "kind_of",
    "running",
    "waiting",
]
