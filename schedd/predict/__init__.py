"""Predicted run times and expected starts: learned from events, pure functions of what was learned."""

from schedd.predict.accuracy import Figures, Outcomes, figures
from schedd.predict.decode import decode, running, waiting
from schedd.predict.draws import drawn, lasting
from schedd.predict.layout import LEVELS, P50, P90, Ask, Prediction
from schedd.predict.learner import Learner
from schedd.predict.open_jobs import OpenJobs
from schedd.predict.outlook import KINDS, Kind, Outlook, calm, kind_of
from schedd.predict.run_times import RunTimes
from schedd.predict.scene import Drawn, Likely, Scene, likely
from schedd.predict.starts import Calibration, Expected

__all__ = [
    "KINDS",
    "LEVELS",
    "P50",
    "P90",
    "Ask",
    "Calibration",
    "Drawn",
    "Expected",
    "Figures",
    "Kind",
    "Learner",
    "Likely",
    "OpenJobs",
    "Outcomes",
    "Outlook",
    "Prediction",
    "RunTimes",
    "Scene",
    "calm",
    "decode",
    "drawn",
    "figures",
    "kind_of",
    "lasting",
    "likely",
    "running",
    "waiting",
]
