"""One-line descriptions of criteria and objectives."""

from collections.abc import Mapping
from typing import Final

CRITERION_HELP: Final[Mapping[str, str]] = {
    "makespan": "time until the last job of the plan ends",
    "utilisation": "share of the cpus in use until the last job ends",
    "weighted_utilisation": "utilisation, each cpu weighted by the speed of its node",
    "wait": "mean wait of the planned jobs, each from the time at which it may start",
    "wait_rms": "root mean square of the waits: long waits count more",
    "wait_max": "longest wait",
    "response": "mean time from when a job may start to its end",
    "response_max": "longest time from when a job may start to its end",
    "slowdown": "mean of response time divided by run time",
    "slowdown_max": "largest slowdown",
    "bounded_slowdown": "slowdown, run times below 10 s counted as 10 s",
    "bounded_slowdown_max": "largest bounded slowdown",
    "late_jobs": "jobs that end after their deadline",
    "tardiness": "mean time by which jobs miss their deadline",
    "tardiness_max": "longest time by which a job misses its deadline",
    "nuwt": "normalised user wait time: a user's wait per cpu-second, mean over users",
    "nuwt_max": "largest normalised user wait time",
    "unfairness": "how much users differ in normalised user wait time",
    "non_utilisation": "idle time of nodes before their last job ends, mean over nodes",
    "lateness": "deadlines missed; long delays count exponentially more",
    "cost_overrun": "cost above the limits that owners set, mean over jobs",
    "cost": "cost of all jobs from now on",
    "expected_loss": "core-hours that failing nodes are expected to destroy",
    "energy": "energy of nodes and jobs from now on",
}
"""By name: the criteria of searches, and the objectives of alternative plans."""


def criterion_help(name: str) -> str:
    """A line about one; empty for a name that is not known."""
    return CRITERION_HELP.get(name, "")
