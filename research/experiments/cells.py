"""The cells of an experiment: one replay each, described by plain values, so that equal ones run once."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from research.experiments.deadline_streams import stream
from research.experiments.random_outages import random_outages
from research.experiments.wait_bound import mean_wait_bound
from research.versions import version_of
from schedd.optimize import MoveKind, SearchSettings
from schedd.plan.criteria import parse_criteria
from schedd.policy.slack import Slack
from schedd.replay.driver import BACKFILL_POLICY, PLACEMENTS, replay
from schedd.replay.machines import read_machines
from schedd.replay.prepared import Prepared, prepare
from schedd.replay.searches import SearchSchedule
from schedd.replay.simulation import PLANNING_POLICY
from schedd.replay.site import machine_file_site, single_node_site
from schedd.replay.trace_reader import read_traces
from schedd.replay.workload import Trace, TraceError, TraceJob, select

Part = Literal["whole", "first third", "rest", "busiest"]

_BUSIEST: Final = 20_000  # jobs of the part that is called so


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs and the machine that they run on.

    ``log`` is a file's name below the directory of logs, or ``stream``. ``estimates``: ``exact``, ``user``,
    or ``xF``: run times of about F times, but never above the user's. ``part`` of the log (``busiest``: the
    20,000 consecutive jobs with the largest demand, outside of the first third, which is for tuning a
    search); ``skip`` of its jobs are passed over, and at most the next ``jobs`` taken. With ``requirements``
    off a log's node specifications and memory are ignored. ``failures``: mean hours of uptime and downtime of
    each node. ``paced`` of a stream: faster machines run jobs sooner.
    """

    log: str
    procs: int | None = None
    machines: str | None = None
    estimates: str = "exact"
    part: Part = "whole"
    skip: int = 0
    jobs: int | None = None
    requirements: bool = True
    failures: tuple[float, float] | None = None
    every_s: int | None = None
    stream_seed: int = 1
    paced: bool = False

    @property
    def title(self) -> str:
        """The log's name without what names its format."""
        return self.log.removesuffix(".gz").removesuffix(".swf")

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the needed files in the directory of logs."""
        return () if self.every_s else tuple(name for name in (self.log, self.machines) if name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search every ``every`` simulated seconds; no ``weights``: the daemon's. See ``Searching``."""

    kind: str = str(SearchSettings().kind)
    moves: int = 200
    every: int = 300
    patience: int = SearchSchedule().patience
    newcomers: int = SearchSchedule().newcomers
    seed: int = 1
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One replay: ``search`` only with the planning policy, ``slack`` as ``Slack.parse`` reads it.

    ``name`` is what tables call the policy; ``weights`` are what a placement values by, without a search;
    ``site`` is the site's policy as plain values.
    """

    workload: Workload
    name: str
    policy: str
    slack: str = "0"
    search: Search | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    site: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        found = asdict(self)
        if not self.workload.skip:  # the form without windows: older results still count
            del found["workload"]["skip"]
        if not self.site:  # the same for policies of sites
            del found["site"]
        if self.workload.failures is not None:
            found["workload"]["failures"] = list(self.workload.failures)
        return found


_TELLS: Final = (
    "schedd/replay/comparison.py", "schedd/replay/coverage.py", "schedd/replay/plan_at_time.py",
    "schedd/replay/plot.py", "schedd/replay/recommendation.py", "schedd/replay/report.py",
    "schedd/replay/timed_plan.py",
)  # fmt: skip
"""Sources that only choose runs or report results."""

_SEARCH_ALONE: Final = (
    "schedd/engine/plan_improvements.py", "schedd/engine/search_schedule.py", "schedd/optimize/",
    "schedd/plan/kernels/moves.py", "schedd/plan/kernels/propose.py", "schedd/plan/latest_starts.py",
    "schedd/plan/placement_choice.py", "schedd/plan/rebase.py", "schedd/plan/trials.py",
    "schedd/plan/trials.py", "schedd/replay/searches.py",
)  # fmt: skip
"""Sources that a replay without a search, or a placement that values, never runs: rivals need not run again
when a search gets better."""


@cache
def code_version(*, search: bool = True) -> str:
    """Return the version of the sources that determine results: results with the same version come from the
    same program.

    Without ``search``: the version of the sources that determine a replay without searches.
    """
    return version_of(__name__, (*_TELLS, *(() if search else _SEARCH_ALONE)))


def run_cell(cell: Cell, logs: str) -> dict[str, Any]:
    """Replay one cell with the logs in that directory; the result's row, with the bound of the mean wait.

    Raises TraceError, OSError, Defect.
    """
    prepared = prepared_workload(cell.workload, logs)
    searching = None
    if cell.search is not None:
        how: dict[str, Any] = {"weights": parse_criteria(cell.search.weights)} if cell.search.weights else {}
        settings = SearchSettings(
            kind=MoveKind(cell.search.kind), moves=cell.search.moves, seed=cell.search.seed, **how
        )
        searching = SearchSchedule(cell.search.every, settings, cell.search.patience, cell.search.newcomers)
    failures = cell.workload.failures
    result = replay(
        prepared,
        cell.policy,
        slack=Slack.parse(
            cell.slack if cell.policy in (PLANNING_POLICY, BACKFILL_POLICY, *PLACEMENTS) else "0"
        ),
        searching=searching,
        weights=cell.weights,
        site=cell.site or None,
        outages=random_outages(prepared, *failures, seed=1) if failures else (),
    )
    return {
        **result.as_row(),
        "bound_wait_s": None if failures or cell.workload.paced else _bound(cell.workload, logs),
    }


@lru_cache(maxsize=1)
def _trace(path: Path) -> Trace:
    (trace,) = read_traces([path])
    return trace


@lru_cache(maxsize=2)
def prepared_workload(workload: Workload, logs: str) -> Prepared:
    """Return the jobs of a workload on its machine. Raises TraceError and OSError."""
    if workload.every_s:
        trace, site = stream(
            workload.jobs or 3000, workload.every_s, workload.stream_seed, paced=workload.paced
        )
        return prepare(select(trace, procs=site.procs), site)
    trace = _trace(Path(logs, workload.log))
    groups = machine_file_site(read_machines(Path(logs, workload.machines))) if workload.machines else None
    procs = groups.procs if groups is not None else workload.procs
    trace = _blurred(trace, workload.estimates)
    if not workload.requirements:
        trace = replace(trace, jobs=tuple(_bare(job) for job in trace.jobs))
    skip, jobs = _part(trace, workload)
    exact = workload.estimates == "exact"
    chosen = select(trace, estimates="exact" if exact else "user", skip=skip, jobs=jobs, procs=procs)
    return prepare(chosen, groups or single_node_site(chosen.procs), trace.unix_start_time)


@lru_cache(maxsize=2)
def _bound(workload: Workload, logs: str) -> float:
    prepared = prepared_workload(workload, logs)
    jobs = prepared.jobs
    return mean_wait_bound(
        [job.submit for job in jobs],
        [job.run for job in jobs],
        [job.procs for job in jobs],
        prepared.site.procs,
    )


def _part(trace: Trace, workload: Workload) -> tuple[int, int | None]:
    """How many of the jobs that ran are passed over, and how many are taken then."""
    jobs = sorted((job for job in trace.jobs if job.run > 0 and job.procs > 0), key=lambda job: job.submit)
    ran, third = len(jobs), len(jobs) // 3
    if workload.part == "busiest":
        skip, most = third + busiest(jobs[third:], _BUSIEST), min(ran - third, _BUSIEST)
    else:
        parts = {"whole": (0, ran), "first third": (0, third), "rest": (third, ran - third)}
        skip, most = parts[workload.part]
    most = max(0, most - workload.skip)
    return skip + workload.skip, max(1, most if workload.jobs is None else min(most, workload.jobs))


def busiest(jobs: Sequence[TraceJob], most: int) -> int:
    """Return the index of the first of the ``most`` consecutive jobs with the largest area per time of
    arrival.
    """
    if len(jobs) <= most:
        return 0
    area = np.cumsum([0.0, *(job.run * job.procs for job in jobs)])
    submit = np.array([job.submit for job in jobs], np.int64)
    span = np.maximum(1, submit[most - 1 :] - submit[: len(jobs) - most + 1])
    return int(np.argmax((area[most:] - area[:-most]) / span))


def _bare(job: TraceJob) -> TraceJob:
    return replace(job, nodes_spec=None, select_spec=None, mem_kib_per_proc=None, mem_kib_per_node=None)


def _blurred(trace: Trace, estimates: str) -> Trace:
    """Under ``xF``: min(user's limit, F * k * run time), k normal around 1 within 0.9 and 1.1 (§6.4)."""
    if estimates in ("exact", "user"):
        return trace
    if not (estimates.startswith("x") and estimates[1:].isdecimal()):
        raise TraceError(f"estimates {estimates!r}: exact, user, or x and a whole number")
    random = np.random.default_rng(1)
    factors = np.clip(random.normal(1.0, 0.05, len(trace.jobs)), 0.9, 1.1) * int(estimates[1:])
    jobs = tuple(
        replace(job, estimate=_least(int(job.run * factor), job.estimate))
        for job, factor in zip(trace.jobs, factors.tolist(), strict=True)
    )
    return replace(trace, jobs=jobs)


def _least(blurred: int, stated: int) -> int:
    return min(blurred, stated) if stated > 0 else blurred
