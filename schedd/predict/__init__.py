"""Run-time prediction and expected starts, learned from job events. Pure: no I/O and no clock."""

from schedd.predict.accuracy import AccuracyFigures, EstimateOutcomes, measure_accuracy
from schedd.predict.arrivals import RecentArrivals
from schedd.predict.delay_risks import DelayRisk, delayed_quantiles
from schedd.predict.delays import LONGEST_DELAY_S, NO_DELAY, Delay, RecentDelays
from schedd.predict.end_forecasts import EndForecast, StartDistribution, uncorrected
from schedd.predict.halts import NO_HALTS, Halts
from schedd.predict.learner import Learner
from schedd.predict.open_jobs import OpenJobs
from schedd.predict.planned_speeds import PlannedSpeeds, speed_range
from schedd.predict.predicted_starts import decode_starts, running_slots, waiting_slots
from schedd.predict.predictions import LEVELS, P50_INDEX, P90_INDEX, JobFeatures, Prediction
from schedd.predict.probability_calibration import (
    Correction,
    ProbabilityBin,
    ProbabilityCalibration,
    ProbabilityOutcome,
    probability_bins,
)
from schedd.predict.run_time_predictor import (
    ESTIMATE_KINDS,
    EstimateKind,
    RunTimePredictor,
    classify_estimate,
    is_unchanged,
)
from schedd.predict.run_times import RunTimes
from schedd.predict.sampling import draw_levels, sample_run_times
from schedd.predict.start_calibration import CalibratedStart, StartCalibration, WaitBand
from schedd.predict.start_sampler import (
    Dependency,
    SampledPlan,
    StartQuantiles,
    StartSampler,
    release_dependents,
    start_quantiles,
)

__all__ = [
    "ESTIMATE_KINDS",
    "LEVELS",
    "LONGEST_DELAY_S",
    "NO_DELAY",
    "NO_HALTS",
    "P50_INDEX",
    "P90_INDEX",
    "AccuracyFigures",
    "CalibratedStart",
    "Correction",
    "Delay",
    "DelayRisk",
    "Dependency",
    "EndForecast",
    "EstimateKind",
    "EstimateOutcomes",
    "Halts",
    "JobFeatures",
    "Learner",
    "OpenJobs",
    "PlannedSpeeds",
    "Prediction",
    "ProbabilityBin",
    "ProbabilityCalibration",
    "ProbabilityOutcome",
    "RecentArrivals",
    "RecentDelays",
    "RunTimePredictor",
    "RunTimes",
    "SampledPlan",
    "StartCalibration",
    "StartDistribution",
    "StartQuantiles",
    "StartSampler",
    "WaitBand",
    "classify_estimate",
    "decode_starts",
    "delayed_quantiles",
    "draw_levels",
    "is_unchanged",
    "measure_accuracy",
    "probability_bins",
    "release_dependents",
    "running_slots",
    "sample_run_times",
    "speed_range",
    "start_quantiles",
    "uncorrected",
    "waiting_slots",
]
