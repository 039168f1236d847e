"""A cluster in simulated time with rounds of forecasts, as the daemon runs it, and their coverage.

The machine starts empty and gets all jobs of its queue at once; then jobs arrive as fast as it runs them.
"""

import heapq
import random
from dataclasses import dataclass, field
from itertools import count
from math import sqrt
from statistics import mean, median
from typing import Any

from schedd.cli.demo.steady import MAX_RUN_S, SteadyWorkload, core_seconds, requested_cores
from schedd.engine import Engine, EngineSettings
from schedd.features.prediction.expected_starts import compute_expected_starts, expected_starts_input
from schedd.features.prediction.state import find_predictor
from schedd.model import FOREVER
from schedd.predict import EstimateKind, JobFeatures
from schedd.wire import (
    Event,
    ExpectedFacts,
    JobEnded,
    JobFacts,
    JobQueued,
    JobStarted,
    NodeChanged,
    NodeFacts,
    Run,
)
from server_adapter.emulator import JobOrder

__all__ = ["Coverage", "ForecastWorld"]

_BEGIN = 1_700_000_000
_CPUS = 16
_NEAR_S = 600


@dataclass(frozen=True)
class Coverage:
    """Shares of jobs that started by their P50 and by their P90, each of the estimates whose time has passed,
    and the median of P90 - P50 in seconds.
    """

    p50: float
    p50_jobs: int
    p90: float
    p90_jobs: int
    width: int = 0

    @property
    def p50_holds(self) -> bool:
        """Whether 45 to 60 % start by their P50, or at most two binomial standard deviations less or more."""
        return _is_within(self.p50, self.p50_jobs, 0.45, 0.60)

    @property
    def p90_holds(self) -> bool:
        """Whether 87 to 95 % start by their P90, or at most two binomial standard deviations less or more."""
        return _is_within(self.p90, self.p90_jobs, 0.87, 0.95)


def _is_within(share: float, jobs: int, low: float, high: float) -> bool:
    below, above = (2 * sqrt(bound * (1 - bound) / jobs) for bound in (low, high))
    return low - below <= share <= high + above


@dataclass
class ForecastWorld:
    """Runs the demo's workload on ``nodes`` nodes with ``waiting`` jobs in the queue.

    ``start_delay`` is the mean time in seconds from a run decision to the start, ``end_delay`` from an end to
    its report. A round of forecasts is computed after ``first_round`` seconds and then every ``round_every``.
    Between the two times of ``stop``, in seconds after the begin, the daemon does not run; estimates which
    this spoils do not count in the coverage.
    With ``past`` the runs before the begin are known, as the demo's daemon knows them from its log.
    Workloads of different ``seed`` have no job in common.
    """

    nodes: int
    waiting: int
    start_delay: int = 0
    end_delay: int = 0
    first_round: int = 300
    round_every: int = 900
    past: bool = False
    stop: tuple[int, int] = (0, 0)
    seed: int = 0
    now: int = _BEGIN
    started: dict[str, int] = field(default_factory=dict)
    issued: list[tuple[int, ExpectedFacts]] = field(default_factory=list)
    """Estimates that count, with their time."""

    def __post_init__(self) -> None:
        work = SteadyWorkload(self.nodes, _CPUS, self.waiting, 1 + 1_000 * self.seed)
        self._dice = random.Random(1 + self.seed)
        self._moments: list[tuple[int, int, str, Any]] = []
        self._orders: dict[str, JobOrder] = {}
        self._queued: dict[str, JobOrder] = {}
        self._number = 0
        self._sequence = count()
        settings = EngineSettings(
            slack="30m+0.5w",
            end_allowance=0,
            decision_expiry=3_600,
            publish_starts=False,
            hole_failures=0,
        ).with_changes(predict=True)
        self.engine = Engine(settings, self.now)
        self._arrivals = work.arrivals(self._measure_queue, lambda: self.now - _BEGIN)
        if self.past:
            self._learn_past_runs(work)
        self._handle(
            [
                NodeChanged(id=one.name, time=self.now, node=NodeFacts(name=one.name, cpus=one.slots))
                for one in work.nodes
            ]
        )
        self._schedule_arrival()
        self._schedule(self.now + self.first_round, "round", None)

    def _learn_past_runs(self, work: SteadyWorkload) -> None:
        predictor = find_predictor(self.engine.state)
        assert predictor is not None
        orders = work.past_orders()
        first = _BEGIN - MAX_RUN_S - int(work.gap * len(orders)) - 1
        runs = []
        for number, order in enumerate(orders):
            assert order.outcome is not None
            start = first + int(work.gap * number)
            runs.append((start, 1, number, order))
            runs.append((start + max(1, round(order.outcome.runtime)), 0, number, order))
        for moment, begins, number, order in sorted(runs, key=lambda one: one[:3]):
            if begins:
                walltime = round(core_seconds(order) / requested_cores(order))
                features = JobFeatures(order.user, walltime, requested_cores(order), order.name)
                predictor.learner.predict_job(f"past{number}", features, moment)
                predictor.learner.record_start(f"past{number}", moment)
            else:
                predictor.learner.record_end(f"past{number}", moment)

    def run(self, hours: int) -> None:
        """Go on until this many hours after the begin."""
        until = _BEGIN + hours * 3_600
        while True:
            wake = self.engine.next_wake
            moment = max(self.now, min(self._moments[0][0], wake if wake is not None else until + 1))
            if self.stop[0] <= moment - _BEGIN < self.stop[1]:
                moment = _BEGIN + self.stop[1]
            if moment > until:
                return
            self.now = moment
            batch: list[Event] = []
            rounds = 0
            while self._moments and self._moments[0][0] <= moment:
                _, _, kind, what = heapq.heappop(self._moments)
                if kind == "round":
                    rounds += 1
                else:
                    batch += self._events(kind, what)
            self._handle(batch)
            if rounds:
                self._forecast()

    def coverage(self, *kinds: str) -> Coverage:
        """Return the coverage of the estimates of these kinds (none: all)."""
        return self._coverage([(at, one) for at, one in self.issued if not kinds or one.kind in kinds])

    def final_outcomes(self, kind: EstimateKind, hours: int) -> list[bool]:
        """Return for each estimate of ``kind`` in the first ``hours`` whether P90 covers the start.

        The world must have run for long enough after that: estimates with a late P90 count, too.
        """
        until = _BEGIN + hours * 3_600
        chosen = [one for at, one in self.issued if one.kind == kind and at <= until]
        assert all(one.job_id in self.started or one.by <= self.now for one in chosen)
        return [self._started_by(one.by, one) for one in chosen]

    def near_coverage(self) -> Coverage:
        """The same for starts within ten minutes."""
        return self._coverage([(at, one) for at, one in self.issued if one.start <= at + _NEAR_S])

    def _coverage(self, issued: list[tuple[int, ExpectedFacts]]) -> Coverage:
        # Estimates are chosen by their own time, not by the start: the first ones to start are early ones.
        estimates = [one for at, one in issued if not self._is_stopped(at, one)]
        p50 = [self._started_by(one.start, one) for one in estimates if one.start <= self.now]
        p90 = [self._started_by(one.by, one) for one in estimates if one.by <= self.now]
        width = median(one.by - one.start for one in estimates)
        return Coverage(mean(p50), len(p50), mean(p90), len(p90), round(width))

    def _is_stopped(self, at: int, estimate: ExpectedFacts) -> bool:
        """Whether a stop of the daemon spoils the estimate, as the engine knows it."""
        predictor = find_predictor(self.engine.state)
        assert predictor is not None
        until = min(estimate.by, self.started.get(estimate.job_id, FOREVER))
        return predictor.halts.affect(at, estimate.by, until)

    def _started_by(self, moment: int, estimate: ExpectedFacts) -> bool:
        return self.started.get(estimate.job_id, FOREVER) <= moment

    def _forecast(self) -> None:
        given = expected_starts_input(self.engine.state)
        if given is not None and self._queued:
            found = compute_expected_starts(given)
            self.issued += [(self.now, one) for one in found.expected if one.kind]
            for event in found.events(f"round{self.now}"):
                self._handle([event])
        self._schedule(self.now + self.round_every, "round", None)

    def _handle(self, batch: list[Event]) -> None:
        for decision in self.engine.handle(batch, self.now).decisions:
            if isinstance(decision, Run):
                self._schedule(self.now + self._delay(self.start_delay), "start", decision)

    def _events(self, kind: str, what: Any) -> list[Event]:
        if kind == "arrival":
            self._number += 1
            job, order = str(self._number), what
            self._orders[job] = self._queued[job] = order
            self._schedule_arrival()
            facts = JobFacts(
                id=job, owner=order.user, group=order.group, queue="batch", submitted=self.now,
                family="torque", name=order.name, resources=dict(order.resources),
            )  # fmt: skip
            return [JobQueued(id=f"q{job}", time=self.now, job=facts)]
        if kind == "start":
            job = what.job_id
            del self._queued[job]
            self.started[job] = self.now
            outcome = self._orders[job].outcome
            assert outcome is not None
            end = self.now + max(1, round(outcome.runtime))
            self._schedule(end + self._delay(self.end_delay), "end", (job, end))
            return [JobStarted(id=f"s{job}", time=self.now, job_id=job, shares=what.shares)]
        job, end = what
        return [JobEnded(id=f"e{job}", time=end, job_id=job)]

    def _delay(self, mean: int) -> int:
        return max(1, round(self._dice.gauss(mean, mean / 3))) if mean else 0

    def _schedule_arrival(self) -> None:
        one = next(self._arrivals)
        self._schedule(max(self.now, _BEGIN + int(one.at)), "arrival", one.order)

    def _schedule(self, moment: int, kind: str, what: object) -> None:
        heapq.heappush(self._moments, (moment, next(self._sequence), kind, what))

    def _measure_queue(self) -> tuple[int, float]:
        return len(self._queued), sum(map(core_seconds, self._queued.values()))
