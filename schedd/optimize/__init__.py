"""Searches that make a plan better while there is time. They work on a fork of it."""

from schedd.optimize.report import Change, Report, WhyEnded
from schedd.optimize.search import Improvement, Search
from schedd.optimize.settings import Kind, SearchSettings
from schedd.optimize.start import Start

__all__ = [
    "Change",
    "Improvement",
    "Kind",
    "Report",
    "Search",
    "SearchSettings",
    "Start",
    "WhyEnded",
]
