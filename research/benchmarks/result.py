"""What a benchmark of the planner found: as JSON for programs, as tables for people."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from rich.table import Table

from research.benchmarks.live import EngineFigures
from schedd.policy.slack import Slack


@dataclass(frozen=True, slots=True)
class GrowthStep:
    """One tenth of the growth, until ``jobs`` are planned. Times in microseconds.

    ``add_*``: the search for a job's earliest gap, and putting it there. ``repair_*``: the whole repair after
    an early end or a deletion. ``inner_gap_share``: share of the added jobs in front of a planned job on one
    of their nodes. ``checked``: placements compared with the plain checker.
    """

    jobs: int
    add_us_mean: float
    add_us_p50: float
    add_us_p99: float
    repair_us_p50: float
    repair_us_p99: float
    inner_gap_share: float
    checked: int


@dataclass(frozen=True, slots=True)
class BenchResult:
    """All of one run; ``research/benchmarks/grow.py`` says how each is measured."""

    profile: str
    nodes: int
    cpus: int
    jobs: int
    seed: int
    steps: tuple[GrowthStep, ...]
    add_us_mean: float
    """Over all jobs added."""
    add_us_p99: float
    repair_all_ms: float
    """A repair that searches every planned job as a whole, nothing skipped."""
    repair_slice_us_p99: float
    """Slices of repair, in processor time of their thread: the longest wait of an event."""
    repair_slice_us_max: float
    repair_slice_wall_us_max: float
    """The longest by the clock: what other processes took meanwhile is in it."""
    first_dispatch_ms: float
    """From an early end to the decision to start a job, in the engine; the median."""
    first_dispatch_ms_max: float
    snapshot_us: float
    """Publishing what readers see; the median."""
    fork_ms: float
    """A copy of the plan for a search; the median."""
    rss_mib: float
    """Memory of the process when the plan had grown, the interpreter included."""
    started_at_once: float
    """Share of the jobs added that could start in the moment they came."""
    horizon_s: int
    """Requested cpu-seconds divided by the cpus."""
    exponent: float
    """Of the growth of ``add_us_mean`` with the number of jobs: below 1, an added job costs less than in
    proportion."""
    engine_arrival_us: float
    """``Engine.handle`` of one arrival at full size; the mean."""
    engine_arrival_us_p50: float
    engine_arrival_us_p99: float
    engine_rest_us: float
    """The same with the repair and all else that follows, until the plan is at rest."""
    policies: tuple[EngineFigures, ...]
    """The same with limits, licences, priorities and fair share on, for each slack; none if not asked for."""
    wall_s: float


def exponent(jobs: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of log(cost) over log(jobs), least squares; 0 for fewer than two points."""
    if len(jobs) < 2:
        return 0.0
    return float(np.polyfit(np.log(jobs), np.log(costs), 1)[0])


def to_json(result: BenchResult) -> str:
    return json.dumps(asdict(result), indent=2, allow_nan=False) + "\n"


def step_table(result: BenchResult) -> Table:
    title = f"{result.profile}: {result.nodes:,} nodes, {result.cpus:,} cpus, seed {result.seed}"
    table = Table(title=title)
    for name in (
        "jobs", r"add mean \[µs]", "p50", "p99", "repair p50 \\[µs]", "p99", "inner gaps", "checked",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for step in result.steps:
        table.add_row(
            f"{step.jobs:,}",
            f"{step.add_us_mean:,.1f}",
            f"{step.add_us_p50:,.1f}",
            f"{step.add_us_p99:,.1f}",
            f"{step.repair_us_p50:,.0f}",
            f"{step.repair_us_p99:,.0f}",
            f"{step.inner_gap_share:.0%}",
            str(step.checked),
        )
    return table


def _of_arrivals(*microseconds: float) -> str:
    return ", ".join(f"{one:,.0f}" for one in microseconds)


def _with_policy(result: BenchResult) -> list[tuple[str, str]]:
    rows = []
    for one in result.policies:
        held = Slack.parse(one.slack)
        slack = f"slack {held.seconds} s + {held.share:.0%} of the wait" if held.seconds else "slack 0"
        times = one.arrival_us / result.engine_arrival_us
        rows += [
            (
                f"one arrival with all of policy, {slack}: mean, p50, p99, until at rest \\[µs]",
                _of_arrivals(one.arrival_us, one.arrival_us_p50, one.arrival_us_p99, one.rest_us)
                + f"; {times:.2f} times",
            ),
            ("of these jobs go before others", f"{one.went_before:.1%}"),
            ("early end to first dispatch with it \\[ms]", f"{one.first_dispatch_ms:.2f}"),
        ]
    return rows


def summary_table(result: BenchResult) -> Table:
    """All but the steps."""
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in (
        ("add, all jobs: mean, p99 \\[µs]", f"{result.add_us_mean:,.1f}, {result.add_us_p99:,.1f}"),
        ("exponent of the cost of an added job", f"{result.exponent:.2f}"),
        ("repair of all planned jobs \\[ms]", f"{result.repair_all_ms:,.1f}"),
        (
            "slices of repair: p99, longest, longest by the clock \\[µs]",
            ", ".join(
                f"{took:,.0f}"
                for took in (
                    result.repair_slice_us_p99,
                    result.repair_slice_us_max,
                    result.repair_slice_wall_us_max,
                )
            ),
        ),
        (
            "early end to first dispatch: median, longest \\[ms]",
            f"{result.first_dispatch_ms:.2f}, {result.first_dispatch_ms_max:.2f}",
        ),
        ("snapshot for readers \\[µs]", f"{result.snapshot_us:,.0f}"),
        ("fork \\[ms]", f"{result.fork_ms:.2f}"),
        ("memory \\[MiB]", f"{result.rss_mib:,.0f}"),
        ("started at once", f"{result.started_at_once:.1%}"),
        ("requested area \\[days of the machine]", f"{result.horizon_s / 86400:.1f}"),
        (
            "one arrival in the engine: mean, p50, p99, until at rest \\[µs]",
            _of_arrivals(
                result.engine_arrival_us,
                result.engine_arrival_us_p50,
                result.engine_arrival_us_p99,
                result.engine_rest_us,
            ),
        ),
        *_with_policy(result),
        ("this run \\[s]", f"{result.wall_s:,.1f}"),
    ):
        table.add_row(name, value)
    return table
