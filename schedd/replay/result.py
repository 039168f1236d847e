"""What one replay of one log under one policy gave."""

from dataclasses import asdict, dataclass
from typing import Any, Final

from schedd.replay.limits import Peak
from schedd.replay.metrics import Metrics, Series
from schedd.replay.workload import Estimates

__all__ = ["TIMINGS", "ReplayResult"]

TIMINGS: Final = (
    "wall_s",
    "cpu_s",
    "events_per_s",
    "plan_add_us_mean",
    "plan_add_us_p99",
    "repair_us_p99",
)
"""The fields that differ between two runs of the same replay; all others must agree."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayResult:
    """One log under one policy: how the jobs fared, and what the planning cost.

    ``jobs`` ran on ``procs`` processors; ``skipped`` were wider than the machine. With ``kill`` jobs ended
    at their limit. ``wall_s`` is the duration of the replay in seconds of this computer, ``cpu_s`` the time
    that its processor spent on it, ``events_per_s`` the rate by the wall; ``plan_add_us_*`` are microseconds
    for placing one new job, ``repair_us_p99`` for one repair; None where a policy plans or repairs nothing.
    ``unix_start_time`` is the epoch second of the log's time 0, if known. ``limits`` says how far those of a
    site's policy were used. ``series`` is for pictures only.
    """

    log: str
    policy: str
    estimates: Estimates
    kill: bool = False
    procs: int
    jobs: int
    skipped: int
    metrics: Metrics
    promise_breaches: int
    repairs: int
    searches: int = 0
    wall_s: float
    cpu_s: float
    events_per_s: float
    plan_add_us_mean: float | None = None
    plan_add_us_p99: float | None = None
    repair_us_p99: float | None = None
    unix_start_time: int | None = None
    limits: tuple[Peak, ...] = ()
    series: Series | None = None

    def as_row(self) -> dict[str, Any]:
        """Field to value for JSON, in the order that the documentation gives; the timings come last."""
        return {
            "log": self.log,
            "policy": self.policy,
            "estimates": self.estimates,
            "kill": self.kill,
            "procs": self.procs,
            "jobs": self.jobs,
            "skipped": self.skipped,
            **asdict(self.metrics),
            "promise_breaches": self.promise_breaches,
            "repairs": self.repairs,
            "searches": self.searches,
            "limits": [asdict(peak) for peak in self.limits],
            **{name: getattr(self, name) for name in TIMINGS},
        }
