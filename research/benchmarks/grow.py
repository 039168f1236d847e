"""Grows a plan job by job and measures what each operation costs.

Jobs arrive in random order at a clock that goes on by some seconds with every event. Now and then a running
job ends early or a planned one is deleted; then the repair runs to its end, in slices as in the daemon. At
every tenth of the growth a sample of placements is compared with the plain checker, and no node may be
over-committed.
"""

import gc
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns, thread_time_ns

import numpy as np

from research.benchmarks.live import POLICIES, engine_figures
from research.benchmarks.plain import Holding, Plain
from research.benchmarks.result import BenchResult, GrowthStep, exponent
from research.benchmarks.workload import BenchJob, Profile, cluster, jobs
from schedd.dialect import parse_torque
from schedd.engine import EngineSettings
from schedd.model import Request
from schedd.plan.columns import PLANNED
from schedd.plan.plan import Plan

_START = 1_700_000_000
_STEPS = 10
_SAMPLE = 5
_SLICE = EngineSettings().repair_slice


class CheckFailed(Exception):
    """The plan and the plain checker disagree."""


@dataclass(slots=True)
class _MeasuredTimes:
    """Microseconds measured since the last step."""

    add: list[float] = field(default_factory=list)
    repair: list[float] = field(default_factory=list)
    inner: int = 0


class Grower:
    """Cost of a growing plan; times are in microseconds, except where a name has another unit."""

    def __init__(self, profile: Profile, nodes: int, n_jobs: int, seed: int) -> None:
        self.nodes = cluster(profile, nodes)
        self.plan = Plan(self.nodes, _START)
        self.now = _START
        self.requests: dict[int, tuple[Request, int]] = {}
        self.jobs: dict[int, BenchJob] = {}
        self.running: list[int] = []
        self.planned = 0
        self.added = 0
        self.at_once = 0
        self.area = 0
        self.slices: list[float] = []
        self.slice_walls: list[float] = []
        self._source = jobs(profile, 1 << 40, seed)
        self._rng = np.random.default_rng([seed, 1])
        # At least some events in each tenth, however few the jobs.
        self._every = max(2, n_jobs // 400)

    # ---- events ---------------------------------------------------------------------------------

    def fill(self, planned: int) -> None:
        """Wait until this number of jobs is planned."""
        self.grow_to(planned, _MeasuredTimes())

    def grow_to(self, planned: int, times: _MeasuredTimes) -> None:
        """Add jobs, with ends and deletions between, until this number is planned."""
        while self.planned < planned:
            self._add(times)
            if self.added % self._every == 0:
                self._pass_time(int(self._rng.exponential(20)) + 1)
                if (self.added // self._every) % 2 and self.running:
                    self._end_early(times)
                else:
                    self._delete(times)

    def _add(self, times: _MeasuredTimes) -> None:
        job = next(self._source)
        request = parse_torque(job.resources)
        slot = self.plan.add_job(request, job.walltime, self.now)
        before = thread_time_ns()
        start = self.plan.place(slot, self.now)
        times.add.append((thread_time_ns() - before) / 1e3)
        if start < 0:  # no node is large enough
            self.plan.drop_job(slot, self.now)
            return
        self.added += 1
        self.planned += 1
        self.at_once += start == self.now
        self.area += request.cpus * job.walltime
        self.requests[slot] = (request, job.walltime)
        self.jobs[slot] = job
        times.inner += self._is_inner(slot)

    def _is_inner(self, slot: int) -> bool:
        end = self.plan.end(slot)
        return any(self.plan.last_change(take.row) > end for take in self.plan.takes(slot))

    def _pass_time(self, seconds: int) -> None:
        """Start jobs that are due, and end jobs that are over."""
        self.now += seconds
        for slot in [slot for slot in self.running if self.plan.end(slot) <= self.now]:
            self.running.remove(slot)
            self._forget(slot)
        slots = self.plan.planned()
        for slot in slots[: int(np.searchsorted(self.plan.starts(slots), self.now, "right"))].tolist():
            self.plan.fix_in_place(slot)
            self.running.append(slot)
            self.planned -= 1
        self.plan.forget_past(self.now)

    def _end_early(self, times: _MeasuredTimes) -> None:
        at = int(self._rng.integers(len(self.running)))
        slot = self.running[at]
        self.running[at] = self.running[-1]
        self.running.pop()
        self._forget(slot)
        times.repair.append(self.repair())

    def _delete(self, times: _MeasuredTimes) -> None:
        if self.planned < 2:
            return
        slots = self.plan.planned()
        self._forget(int(slots[int(self._rng.integers(slots.shape[0]))]))
        self.planned -= 1
        times.repair.append(self.repair())

    def _forget(self, slot: int) -> None:
        self.plan.drop_job(slot, self.now)
        del self.requests[slot]
        del self.jobs[slot]

    def spare(self, n: int) -> list[BenchJob]:
        """Jobs that come next."""
        return [next(self._source) for _ in range(n)]

    def repair(self) -> float:
        """Carry out a whole repair as the daemon does: jobs that can start now first, others in slices."""
        begin = thread_time_ns()
        self.plan.repair_now(self.now)
        done = False
        while not done:
            before, wall = thread_time_ns(), perf_counter_ns()
            _, done = self.plan.repair(self.now, _SLICE)
            self.slices.append((thread_time_ns() - before) / 1e3)
            self.slice_walls.append((perf_counter_ns() - wall) / 1e3)
        return (thread_time_ns() - begin) / 1e3

    # ---- checks ---------------------------------------------------------------------------------

    def check(self) -> int:
        """Compare with the plain checker; returns how many placements. Raises CheckFailed."""
        holdings = {slot: self._holdings(slot) for slot in self.requests}
        everything = [holding for held in holdings.values() for holding in held]
        bad = Plain(self.nodes, everything).over_committed()
        if bad:
            raise CheckFailed(f"over-committed (node, moment): {bad[:5]}")
        if self.plan.freed:
            raise CheckFailed("a repair that came to its end left something to do")
        slots = [slot for slot in self.requests if self.plan.state(slot) == PLANNED]
        sample = [slots[int(i)] for i in self._rng.integers(len(slots), size=_SAMPLE)] if slots else []
        for slot in sample:
            request, walltime = self.requests[slot]
            others = [h for other, held in holdings.items() if other != slot for h in held]
            alone = Plain(self.nodes, others).earliest(request, walltime, self.now)
            start = self.plan.start(slot)
            if alone != start:
                raise CheckFailed(f"{request}: planned at {start}, could start at {alone} by itself")
        return len(sample) + self._check_new(Plain(self.nodes, everything))

    def _check_new(self, plain: Plain) -> int:
        """Where jobs would go that come now."""
        for _ in range(_SAMPLE):
            job = next(self._source)
            request = parse_torque(job.resources)
            slot = self.plan.add_job(request, job.walltime, self.now)
            start = self.plan.probe(slot, self.now)
            self.plan.drop_job(slot, self.now)
            expected = plain.earliest(request, job.walltime, self.now)
            if start != expected:
                raise CheckFailed(f"{request}: would be planned at {start}, not at {expected}")
        return _SAMPLE

    def _holdings(self, slot: int) -> list[Holding]:
        start, end = self.plan.start(slot), self.plan.end(slot)
        exclusive = self.requests[slot][0].exclusive
        name = self.plan.node_names
        return [
            Holding(name[take.row], start, end, take.amounts[0], take.amounts[2], take.amounts[3], exclusive)
            for take in self.plan.takes(slot)
        ]


def run_bench(
    profile: Profile,
    nodes: int,
    n_jobs: int,
    seed: int,
    tell: Callable[[GrowthStep], None] = lambda _: None,
    *,
    policy: bool = False,
) -> BenchResult:
    """Grow a plan to ``n_jobs`` planned jobs on ``nodes`` nodes; ``tell`` is called for every step.

    With ``policy`` the engine is measured again with all of a site's policy on, for each of two slacks.

    Raises CheckFailed when a placement is not what the plain checker says, ValueError for no jobs or nodes.
    """
    if n_jobs < _STEPS:
        raise ValueError(f"{n_jobs} jobs: at least {_STEPS} are needed")
    begin = perf_counter_ns()
    _warm_up()
    grower = Grower(profile, nodes, n_jobs, seed)
    steps: list[GrowthStep] = []
    added: list[float] = []
    for k in range(1, _STEPS + 1):
        times = _MeasuredTimes()
        # As the daemon does after a snapshot: no look for garbage goes through all the jobs.
        gc.collect()
        gc.freeze()
        grower.grow_to(n_jobs * k // _STEPS, times)
        added += times.add
        steps.append(_step(grower, times))
        tell(steps[-1])
    memory = _rss_mib()
    forks = [_timed(grower.plan.fork) for _ in range(5)]
    grower.plan.mark_all_for_search()
    repair_all = grower.repair()
    cpus = sum(node.cpus for node in grower.nodes)
    queued, arriving = list(grower.jobs.values()), grower.spare(200)
    live = engine_figures(grower.nodes, queued, arriving)
    ruled = [engine_figures(grower.nodes, queued, arriving, one) for one in (POLICIES if policy else ())]
    return BenchResult(
        profile=profile,
        nodes=nodes,
        cpus=cpus,
        jobs=n_jobs,
        seed=seed,
        steps=tuple(steps),
        add_us_mean=float(np.mean(added)),
        add_us_p99=float(np.percentile(added, 99)),
        repair_all_ms=repair_all / 1e3,
        repair_slice_us_p99=float(np.percentile(grower.slices, 99)),
        repair_slice_us_max=max(grower.slices),
        repair_slice_wall_us_max=max(grower.slice_walls),
        first_dispatch_ms=live.first_dispatch_ms,
        first_dispatch_ms_max=live.first_dispatch_ms_max,
        snapshot_us=live.snapshot_us,
        fork_ms=float(np.median(forks)) / 1e3,
        rss_mib=memory,
        started_at_once=grower.at_once / grower.added,
        horizon_s=grower.area // cpus,
        exponent=exponent([s.jobs for s in steps], [s.add_us_mean for s in steps]),
        engine_arrival_us=live.arrival_us,
        engine_arrival_us_p50=live.arrival_us_p50,
        engine_arrival_us_p99=live.arrival_us_p99,
        engine_rest_us=live.rest_us,
        policies=tuple(ruled),
        wall_s=(perf_counter_ns() - begin) / 1e9,
    )


def _warm_up() -> None:
    """Compile all kernels, or load them."""
    grower = Grower("metacentrum", 20, 60, 0)
    grower.grow_to(60, _MeasuredTimes())
    grower.plan.mark_all_for_search()
    grower.repair()
    grower.check()
    grower.plan.fork()
    for one in (None, *POLICIES):
        engine_figures(grower.nodes, list(grower.jobs.values()), grower.spare(5), one)


def _step(grower: Grower, times: _MeasuredTimes) -> GrowthStep:
    return GrowthStep(
        jobs=grower.planned,
        add_us_mean=float(np.mean(times.add)),
        add_us_p50=float(np.percentile(times.add, 50)),
        add_us_p99=float(np.percentile(times.add, 99)),
        repair_us_p50=float(np.percentile(times.repair, 50)) if times.repair else 0.0,
        repair_us_p99=float(np.percentile(times.repair, 99)) if times.repair else 0.0,
        inner_gap_share=times.inner / len(times.add),
        checked=grower.check(),
    )


def _timed(action: Callable[[], object]) -> float:
    before = thread_time_ns()
    action()
    return (thread_time_ns() - before) / 1e3


def _rss_mib() -> float:
    """Memory of this process that is in RAM, in MiB."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
