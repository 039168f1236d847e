"""The experiments by name: which logs, policies, estimates, slacks and seeds make each, as data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from research.experiments.cells import Cell, Part, Search, Workload
from research.experiments.promises import NO_ADMISSION
from schedd.engine import SITE_SLACK
from schedd.replay.comparison import GROUPS
from schedd.replay.driver import BACKFILL_POLICY, PLACEMENTS
from schedd.replay.searches import SEARCH_POLICY
from schedd.replay.simulation import PLANNING_POLICY

Figure = Literal[
    "wait", "slowdown", "p999", "longest", "held", "late", "tardiness", "utilisation", "weighted", "fairness",
    "killed",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One question, the cells that answer it, and the reported figures.

    ``against``: the search is compared with all others, figure by figure. ``curve``: the picture has lines
    over the workloads of a log or over slacks, instead of bars. ``ratios``: each workload has the ratios of
    the search's figures to the figures of ``easy``, with their geometric means.
    """

    name: str
    about: str
    cells: tuple[Cell, ...]
    figures: tuple[Figure, ...] = ("wait", "slowdown", "p999", "longest")
    against: bool = False
    curve: Literal["", "slack", "estimates", "every_s"] = ""
    ratios: bool = False


_SEEDS: Final = (1, 2, 3)
_STREAMS: Final = (1, 2)  # seeds of synthetic streams
_RIVALS: Final = tuple(dict.fromkeys((*GROUPS["all"], *GROUPS["rivals"])))

_KTH: Final = Workload(log="KTH-SP2-1996-2.swf.gz")
_CTC: Final = Workload(log="CTC-SP2-1996-3.1-cln.swf.gz")
_SDSC: Final = Workload(log="SDSC-SP2-1998-4.2-cln.swf.gz")
_BLUE: Final = Workload(log="SDSC-BLUE-2000-4.1-cln.swf.gz")
_HPC2N: Final = Workload(log="HPC2N-2002-2.1-cln.swf.gz")
_META: Final = Workload(log="METACENTRUM-2009-2.swf.gz", procs=806)
_WAGAP: Final = Workload(log="wagap-2013.swf.gz", machines="wagap-2013.swf.machines")

_DEFAULT: Final = str(SITE_SLACK)
"""The daemon's default slack."""


def _rivals(workload: Workload, names: Iterable[str], slack: str = "0") -> list[Cell]:
    return [Cell(workload=workload, name=name, policy=name, slack=slack) for name in names]


def _searches(
    workload: Workload,
    slack: str,
    seeds: Iterable[int] = _SEEDS,
    name: str = SEARCH_POLICY,
    every: int = Search().every,
    site: Mapping[str, Any] | None = None,
    **weights: float,
) -> list[Cell]:
    return [
        Cell(
            workload=workload,
            name=name,
            policy=PLANNING_POLICY,
            slack=slack,
            search=Search(seed=seed, every=every, weights=weights),
            site=site or {},
        )
        for seed in seeds
    ]


def _paper() -> Experiment:
    cells: list[Cell] = []
    for workload in (_KTH, _CTC, _SDSC, _META, _HPC2N, _BLUE):
        cells += [*_rivals(workload, _RIVALS), *_searches(workload, "off", (1,))]
    return Experiment(
        name="paper",
        about="The six logs of Chlumský, Klusáček and Ruda (2012) with exact estimates. No promise holds "
        "(slack off), as there, so that the search is as free as its rivals.",
        cells=tuple(cells),
        against=True,
    )


_WINDOW: Final = 10_000
WINDOWS: Final = (
    (_KTH, (10_000,)),
    (_CTC, (30_000, 40_000, 50_000, 60_000)),
    (_SDSC, (20_000, 30_000, 40_000)),
    (_BLUE, (80_000, 110_000, 140_000, 170_000, 200_000)),
    (_HPC2N, (70_000, 100_000, 130_000, 160_000, 190_000)),
)
"""How many jobs of each log that ran are passed over: all beyond its first third."""


def _windows() -> Experiment:
    cells: list[Cell] = []
    shortest: list[Cell] = []
    for log, begins in WINDOWS:
        for skip in begins:
            window = replace(log, estimates="user", skip=skip, jobs=_WINDOW)
            cells += [*_rivals(window, ("easy",)), *_searches(window, _DEFAULT, (1,))]
            shortest += _rivals(window, (BACKFILL_POLICY,), _DEFAULT)
    return Experiment(
        name="windows",
        about=f"Users' estimates and the default slack ({_DEFAULT}), which is what a site lives with, on 18 "
        "windows of 10,000 jobs of five logs, all beyond the first thirds, on which the search was tuned. A "
        "longest wait is that of one job: many windows say more of it than five whole logs.",
        cells=(*cells, *shortest),
        figures=("wait", "slowdown", "p999", "longest", "held"),
        ratios=True,
    )


def _slack_curve() -> Experiment:
    cells: list[Cell] = []
    for log in (_KTH, _SDSC):
        workload = replace(log, estimates="user", jobs=10_000)
        cells += _rivals(workload, ("easy", PLANNING_POLICY))
        for slack in ("0", "1h", "4h", "12h", "0.5w", "1w", _DEFAULT, "off"):
            cells += _searches(workload, slack, (1,))
    return Experiment(
        name="slack-curve",
        about="What a promise costs: waits, and the share of jobs that started by their first published "
        "start, by the slack between that start and the promised one. The first 10,000 jobs of two logs with "
        "users' estimates.",
        cells=tuple(cells),
        figures=("wait", "slowdown", "longest", "held"),
        curve="slack",
    )


_SEARCHED: Final = "tabu U+BSD"
_SEARCH_WEIGHTS: Final = {"late_jobs": 1.0, "bounded_slowdown": 1.0}

_PLACEMENT_WEIGHTS: Final = {"late_jobs": 1.0, "bounded_slowdown": 1.0, "weighted_utilisation": 1.0}
"""The workloads of Klusáček's second experiment (2011)."""


_ADMITTED: Final = f"{_SEARCHED}, admission"


def _placed(workload: Workload, name: str, **weights: float) -> Cell:
    return Cell(workload=workload, name=name, policy=name, slack="off", weights=weights, site=NO_ADMISSION)


def _searched(workload: Workload, name: str, every: int, site: Mapping[str, Any]) -> list[Cell]:
    return _searches(workload, "off", (1,), name, 5 * every, site, **_SEARCH_WEIGHTS)


def _deadlines() -> Experiment:
    cells: list[Cell] = []
    for seed in _STREAMS:
        for every in (1, 3, 5):
            workload = Workload(log="stream", every_s=every, stream_seed=seed)
            cells += _rivals(workload, ("fcfs", "edf", "easy", "flexible", PLANNING_POLICY))
            cells += [_placed(workload, name, **_PLACEMENT_WEIGHTS) for name in PLACEMENTS]
            cells += _searched(workload, _SEARCHED, every, NO_ADMISSION)
            cells += _searched(workload, _ADMITTED, every, {})
    return Experiment(
        name="deadlines",
        about="Synthetic streams of 3,000 jobs on 150 machines, 70 % with a deadline, one job every 1, 3 "
        "or 5 s in the mean, two seeds each (the thesis has twenty): 6 to 1.2 times what the machines can "
        "serve. After every five arrivals in the mean there is a search, which weighs late jobs and slowdown "
        "alike; no promise holds, and deadlines are wishes. With `admission` a deadline that the plan meets "
        "is accepted, and no search may make that job late. `best-gap` and `best-gap-edf` value late jobs, "
        "slowdown and weighted utilisation alike when they place a job at its arrival.",
        cells=tuple(cells),
        figures=("late", "tardiness", "wait", "slowdown", "utilisation", "weighted"),
        curve="every_s",
    )


def _speeds() -> Experiment:
    cells: list[Cell] = []
    for seed in _STREAMS:
        for every in (2, 3, 4):
            workload = Workload(log="stream", every_s=every, stream_seed=seed, paced=True)
            cells += _rivals(workload, ("edf", "easy", "flexible", PLANNING_POLICY))
            cells += [_placed(workload, name, **_PLACEMENT_WEIGHTS) for name in PLACEMENTS]
            cells += _searched(workload, _SEARCHED, every, NO_ADMISSION)
    return Experiment(
        name="speeds",
        about="The streams of the experiment `deadlines` on machines of three speeds, which run a job in its "
        "walltime, in half of it, or in a third. The planner knows the speeds and plans walltimes all the "
        "same. Two seeds each; weights as there.",
        cells=tuple(cells),
        figures=("late", "tardiness", "wait", "slowdown", "utilisation", "weighted"),
        curve="every_s",
    )


_FIRST_JOBS: Final = ((_KTH, 10_000), (_CTC, 60_000))
"""The first job of the 5,000 of each log, beyond its first third, where many jobs wait."""


def _inaccurate() -> Experiment:
    cells: list[Cell] = []
    for log, skip in _FIRST_JOBS:
        for estimates in ("exact", "x2", "x10", "x50", "user"):
            workload = replace(log, estimates=estimates, skip=skip, jobs=5_000)
            cells += _rivals(workload, ("easy", "aggressive", PLANNING_POLICY))
            cells += _searches(workload, "off", (1,))
    return Experiment(
        name="inaccurate",
        about="Estimates that are too long by a factor, up to those of the users themselves; no promise "
        "holds. Of the thesis's logs MetaCentrum 2008 and DataStar cannot be had, LLNL-Thunder has no waits "
        "and MetaCentrum 2009 no estimates: 5,000 jobs of each of two others.",
        cells=tuple(cells),
        figures=("wait", "slowdown", "longest", "fairness"),
        curve="estimates",
    )


def _failures() -> Experiment:
    cells: list[Cell] = []
    for requirements in (False, True):
        for failures in (None, (720.0, 12.0)):
            workload = replace(_WAGAP, requirements=requirements, failures=failures)
            cells += _rivals(workload, ("fcfs", "easy", "aggressive", PLANNING_POLICY))
            cells += _searches(workload, "off")
    return Experiment(
        name="failures",
        about="Machines that fail and jobs that ask for certain nodes, each alone and both together. "
        "Failures are drawn: every node is up for 30 days and then down for 12 hours in the mean; what "
        "runs there is killed and not run again. Requirements are the log's node specifications and "
        "memory; without them jobs ask for processors anywhere on the same nodes. Estimates are exact; the "
        "search is bound by no promise. Killed jobs are in no mean; they are long ones, so that with "
        "failures there is a sixth less to run, and all wait less.",
        cells=tuple(cells),
        figures=("wait", "slowdown", "p999", "longest", "killed"),
    )


EXPERIMENTS: Final = {
    experiment.name: experiment
    for experiment in (
        _paper(), _windows(), _slack_curve(), _deadlines(), _speeds(), _inaccurate(),
        _failures(),
    )
}  # fmt: skip

_QUICK_JOBS: Final = 300


def quick(experiment: Experiment) -> Experiment:
    """The same on the first 300 jobs of each workload, with one seed: to see that all works."""
    cells = [
        replace(cell, workload=replace(cell.workload, jobs=_QUICK_JOBS))
        for cell in experiment.cells
        if (cell.search is None or cell.search.seed == 1) and cell.workload.stream_seed == 1
    ]
    return replace(experiment, name=f"{experiment.name}-quick", cells=tuple(cells))


def of_part(experiment: Experiment, part: Part) -> Experiment:
    """The same on a part of each log."""
    cells = tuple(replace(cell, workload=replace(cell.workload, part=part)) for cell in experiment.cells)
    name = experiment.name if part == "whole" else f"{experiment.name}-{part.replace(' ', '-')}"
    return replace(experiment, name=name, cells=cells)
