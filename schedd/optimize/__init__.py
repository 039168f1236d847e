"""Searches that make a plan better while there is time. They work on a fork of it."""

from schedd.optimize.limits import latest_starts
from schedd.optimize.rebase import rebase
from schedd.optimize.report import Change, Report, WhyEnded
from schedd.optimize.search import Improvement, Search
from schedd.optimize.settings import DEFAULT_WEIGHTS, Kind, SearchSettings

__all__ = [
    "DEFAULT_WEIGHTS",
    "Change",
    "Improvement",
    "Kind",
    "Report",
    "Search",
    "SearchSettings",
    "WhyEnded",
    "latest_starts",
    "rebase",
]
