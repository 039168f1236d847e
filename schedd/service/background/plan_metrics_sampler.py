"""Periodic measurement of plan metrics."""

from typing import Final

import structlog

from schedd.plan.columns import PLANNED
from schedd.service.background.plan_metrics_log import PlanMetricsLog
from schedd.service.cluster.errors import PlannerStopped
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.questions.objectives import known_values, measure_fork
from schedd.service.questions.summaries import evaluate_criteria
from schedd.store import StoreError
from schedd.store.records import PlanMetricsSample
from schedd.supervision import PeriodicWork

_log = structlog.get_logger(__name__)
_PATIENCE_S: Final = 60.0


class PlanMetricsSampler(PeriodicWork):
    """Measures one cluster's changed plan every ``every`` seconds (0: never), in a thread."""

    def __init__(self, loop: PlanLoop, track: PlanMetricsLog, every: float) -> None:
        super().__init__(loop.supervisor, "plan values", every, cluster=loop.name, wait_first=True)
        self._loop = loop
        self._track = track
        self._generation = -1

    def start(self) -> None:
        """Start the thread, unless it is off."""
        if self._period_s:
            super().start()

    def join(self, timeout: float | None = 10) -> None:
        """Wait for the end of the thread; stop its planner first, because the thread may wait for it."""
        super().join(timeout)

    def run_step(self) -> None:
        """Take a sample; an error that may pass is logged."""
        try:
            self.sample()
        except (PlannerStopped, TimeoutError, StoreError) as error:
            if not self._stopping.is_set():
                _log.warning("the plan was not evaluated", cluster=self._loop.name, why=str(error))

    def sample(self) -> None:
        """Measure and record the plan if it changed and this daemon leads.

        Raises PlannerStopped, TimeoutError and StoreError.
        """
        loop = self._loop
        if loop.on_standby or loop.published.generation == self._generation:
            return
        copy = loop.fork().result(_PATIENCE_S)
        vector = measure_fork(copy)
        loop.metrics.set_objectives(vector)
        values = known_values(vector) | {one.criterion: one.value for one in evaluate_criteria(copy)}
        planned = int((copy.published.states == PLANNED).sum())
        self._track.record_metrics(PlanMetricsSample(copy.as_of, copy.generation, planned, values))
        self._generation = copy.generation
