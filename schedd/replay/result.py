"""Result of one replay of one log under one policy."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from schedd.replay.limits import LimitPeak
from schedd.replay.metrics import Metrics, Series
from schedd.replay.start_estimates import StartEstimateFigures
from schedd.replay.workload import Estimates

TIMINGS: Final = (
    "search_s",
    "wall_s",
    "cpu_s",
    "events_per_s",
    "plan_add_us_mean",
    "plan_add_us_p99",
    "repair_us_p99",
)
"""Fields that differ between two runs of the same replay; all others are equal."""


@dataclass(frozen=True, slots=True)
class SearchTotals:
    """Totals of all searches of a replay: number, moves, and seconds."""

    searches: int = 0
    moves_tried: int = 0
    moves_accepted: int = 0
    moves_too_late: int = 0
    search_s: float = 0.0

    def counts(self) -> Mapping[str, Any]:
        """Return all fields except the seconds, which depend on the computer."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "search_s"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayResult:
    """One log under one policy: job metrics, and the cost of planning.

    ``jobs`` ran on ``procs`` processors; ``skipped`` were wider than the machine. With ``kill`` jobs ended at
    their limit. ``slack`` belongs to the promises, empty without any. ``held_share`` is the share of jobs
    that started by the estimate at their arrival, ``start_delay_s`` the mean delay of the others,
    ``start_error_s`` the mean distance of the start from that estimate over jobs that wait; None without
    estimates. ``late_jobs`` missed their deadlines, with a mean delay ``tardiness_s`` over all jobs
    with a deadline; None without any. ``killed_jobs`` ended with their node and are in no other figure.
    ``wall_s`` is the real duration in seconds, ``cpu_s`` its processor time, ``events_per_s`` the rate by the
    wall clock; ``plan_add_us_*`` are microseconds for placing one new job, ``repair_us_p99`` for one repair;
    None if a policy plans or repairs nothing. ``inversions`` counts starts while a job of higher priority
    waited that would have fit in the same place (no wider, no longer); None without priorities.
    ``preempted_runs`` lost ``lost_core_s`` core-seconds of work; requeued jobs count with their last runs.
    ``unix_start_time`` is the epoch second of the log's time 0, if known. ``limits`` has the peak use of a
    site's limits. ``accuracy`` is the accuracy of start estimates, if computed. ``series`` is for pictures
    only.
    """

    log: str
    policy: str
    estimates: Estimates
    kill: bool = False
    slack: str = ""
    procs: int
    jobs: int
    skipped: int
    metrics: Metrics
    promise_breaches: int
    held_share: float | None = None
    start_delay_s: float | None = None
    start_error_s: float | None = None
    late_jobs: int | None = None
    tardiness_s: float | None = None
    killed_jobs: int = 0
    inversions: int | None = None
    preempted_runs: int = 0
    lost_core_s: int = 0
    repairs: int
    searched: SearchTotals = SearchTotals()
    wall_s: float
    cpu_s: float
    events_per_s: float
    plan_add_us_mean: float | None = None
    plan_add_us_p99: float | None = None
    repair_us_p99: float | None = None
    unix_start_time: int | None = None
    limits: tuple[LimitPeak, ...] = ()
    accuracy: StartEstimateFigures | None = None
    series: Series | None = None

    @property
    def search_s(self) -> float:
        """Total real seconds of the searches."""
        return self.searched.search_s

    def as_row(self) -> dict[str, Any]:
        """Return the fields for JSON in documented order; timings are last."""
        return {
            "log": self.log,
            "policy": self.policy,
            "estimates": self.estimates,
            "kill": self.kill,
            "slack": self.slack,
            "procs": self.procs,
            "jobs": self.jobs,
            "skipped": self.skipped,
            **asdict(self.metrics),
            "promise_breaches": self.promise_breaches,
            "inversions": self.inversions,
            "preempted_runs": self.preempted_runs,
            "lost_core_s": self.lost_core_s,
            "repairs": self.repairs,
            "held_share": self.held_share,
            "start_delay_s": self.start_delay_s,
            "start_error_s": self.start_error_s,
            "late_jobs": self.late_jobs,
            "tardiness_s": self.tardiness_s,
            "killed_jobs": self.killed_jobs,
            **asdict(self.accuracy or StartEstimateFigures()),
            **self.searched.counts(),
            "limits": [asdict(peak) for peak in self.limits],
            **{name: getattr(self, name) for name in TIMINGS},
        }
