"""Searches that improve a plan in idle time, on a fork of it."""

from schedd.optimize.parallel_search import ParallelSearch, run_sequentially
from schedd.optimize.search import Improvement, PlanSearch
from schedd.optimize.search_input import SearchInput
from schedd.optimize.search_report import CriterionDelta, SearchEndReason, SearchReport
from schedd.optimize.settings import SearchSettings
from schedd.plan.trials import MoveKind

__all__ = [
    "CriterionDelta",
    "Improvement",
    "MoveKind",
    "ParallelSearch",
    "PlanSearch",
    "SearchEndReason",
    "SearchInput",
    "SearchReport",
    "SearchSettings",
    "run_sequentially",
]
