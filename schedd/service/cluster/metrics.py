"""Prometheus counters and histograms of the planner.

Label values come from closed lists, so that the number of series does not grow with jobs, users or nodes.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from schedd.alternatives.objective_weights import Objective
from schedd.alternatives.objectives import ObjectiveVector
from schedd.engine import Cause, ChangeSet, Engine, PlanSnapshot, alert_kinds, first_estimates
from schedd.predict import ESTIMATE_KINDS
from schedd.wire import Event, JobStarted, LogLost

disable_created_metrics()  # type: ignore[no-untyped-call]  # one more series for each, of no use here

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_ROUNDS: Final = (0.01, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0)
_PARTS: Final = ("keep", "plan", "record", "publish")
_ERRORS: Final = (-86_400, -3_600, -600, -60, 0, 60, 600, 3_600, 21_600, 86_400)
_APART: Final = (60, 300, 900, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600, 86_400, 3 * 86_400)
NOTICES: Final = ("sent", "failed", "given_up", "limited", "late")
"""Outcomes of a notice; ``failed`` is one attempt, which may be followed by another."""
WEBHOOKS: Final = ("taken", "failed", "refused")
"""Outcomes of a request to a webhook; ``failed`` is one attempt, which is followed by another."""


class PlannerMetrics:
    """The metrics of all clusters, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        one = ["cluster"]
        self.parts = Histogram(
            "schedd_batch_seconds",
            "Handling of a batch of events, by part: store the events, plan, store the results, publish",
            [*one, "part"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.lag = Histogram(
            "schedd_event_lag_seconds",
            "Time from the arrival of events until they are handled and acknowledged",
            one,
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.events = Counter("schedd_events", "Events that were handled", one, registry=self.registry)
        self.moves = Counter(
            "schedd_moves",
            "Moves of planned starts, by cause; first starts and lost starts are not counted",
            [*one, "cause"],
            registry=self.registry,
        )
        self.earlier = Counter(
            "schedd_moves_earlier",
            "Moves of planned starts to an earlier time",
            one,
            registry=self.registry,
        )
        self.gaps = Counter(
            "schedd_gaps_filled",
            "Jobs whose first planned start is before that of a job planned earlier",
            one,
            registry=self.registry,
        )
        self.searches = Counter(
            "schedd_searches",
            "Searches for a better plan; outcome `taken`: jobs of the live plan moved",
            [*one, "effect"],
            registry=self.registry,
        )
        self.foretold = Histogram(
            "schedd_expected_starts_seconds",
            "Computation of the expected starts of all waiting jobs, in the background",
            one,
            buckets=_ROUNDS,
            registry=self.registry,
        )
        self.losses = Counter(
            "schedd_log_losses",
            "Number of times that a part of the log was missing, or differed from what was written",
            one,
            registry=self.registry,
        )
        self.errors = Histogram(
            "schedd_published_start_error_seconds",
            "Actual start minus the last published start; above 0: later than published",
            one,
            buckets=_ERRORS,
            registry=self.registry,
        )
        self.expected = Histogram(
            "schedd_expected_start_error_seconds",
            "Absolute difference of the actual and the expected start, by the time of its first publication",
            [*one, "published"],
            buckets=_APART,
            registry=self.registry,
        )

        self.objectives = Gauge(
            "schedd_plan_objective",
            "Objectives of the plan, each in its unit; NaN if unknown",
            [*one, "objective"],
            registry=self.registry,
        )
        self.notices = Counter(
            "schedd_notices",
            "Notices to users, by outcome: sent, one attempt failed, given up, postponed by the hourly "
            "limit, too late",
            [*one, "outcome"],
            registry=self.registry,
        )
        self.webhooks = Counter(
            "schedd_webhook_requests",
            "Requests to webhooks, by outcome: accepted, one attempt failed, refused for good",
            [*one, "outcome"],
            registry=self.registry,
        )
        self.alerts = Counter(
            "schedd_alerts", "Alerts raised, by kind", [*one, "kind"], registry=self.registry
        )

    def for_cluster(self, cluster: str) -> "ClusterMetrics":
        return ClusterMetrics(self, cluster)


class ClusterMetrics:
    """The metrics of one cluster, written by its planner's thread."""

    def __init__(self, meters: PlannerMetrics, cluster: str) -> None:
        self._parts = {part: meters.parts.labels(cluster, part) for part in _PARTS}
        self._lag = meters.lag.labels(cluster)
        self._events = meters.events.labels(cluster)
        self._moves = {cause: meters.moves.labels(cluster, cause.value) for cause in Cause}
        self._earlier = meters.earlier.labels(cluster)
        self._gaps = meters.gaps.labels(cluster)
        self._searches = {effect: meters.searches.labels(cluster, effect) for effect in ("taken", "none")}
        self.foretold = meters.foretold.labels(cluster)
        self._losses = meters.losses.labels(cluster)
        self._errors = meters.errors.labels(cluster)
        self._expected: dict[str, Histogram] = {
            kind: meters.expected.labels(cluster, kind) for kind in ESTIMATE_KINDS
        }
        self._objectives = {one: meters.objectives.labels(cluster, one.value) for one in Objective}
        for gauge in self._objectives.values():
            gauge.set(math.nan)
        self._notices = {outcome: meters.notices.labels(cluster, outcome) for outcome in NOTICES}
        self._webhooks = {outcome: meters.webhooks.labels(cluster, outcome) for outcome in WEBHOOKS}
        self._alerts = {kind: meters.alerts.labels(cluster, kind) for kind in alert_kinds()}

    def count_notice(self, outcome: str) -> None:
        """Count a notice by its outcome (see ``NOTICES``)."""
        self._notices[outcome].inc()

    def count_webhook(self, outcome: str) -> None:
        """Count a request to a webhook."""
        self._webhooks[outcome].inc()

    def count_alert(self, kind: str) -> None:
        """Count an alert by its kind (see ``KINDS``)."""
        if kind in self._alerts:  # an unknown kind must not stop the planner
            self._alerts[kind].inc()

    @contextmanager
    def time_part(self, part: str) -> Iterator[None]:
        """Measure the duration of a part of a batch."""
        begun = time.perf_counter()
        yield
        self._parts[part].observe(time.perf_counter() - begun)

    def count_events(self, count: int, came: float) -> None:
        """Count handled events, which arrived at ``came`` (monotonic)."""
        self._events.inc(count)
        self._lag.observe(time.monotonic() - came)

    def count_search(self, moved: int) -> None:
        """Count a search, which moved this number of jobs of the live plan."""
        self._searches["taken" if moved else "none"].inc()

    def set_objectives(self, vector: ObjectiveVector) -> None:
        """Set the present objectives of the plan."""
        for one in vector:
            self._objectives[one.objective].set(math.nan if one.value is None else one.value)

    def observe_events(self, engine: Engine, events: Sequence[Event]) -> None:
        """Observe log losses and errors of published starts, before the engine handles the events."""
        state = engine.state
        for event in events:
            if isinstance(event, LogLost) and not event.state_only:
                self._losses.inc()
            if not isinstance(event, JobStarted):
                continue
            record = state.records.get(event.job_id)
            if record is None or record.slot < 0:
                continue
            published = int(state.published_start[record.slot])
            if published >= 0:
                self._errors.observe(event.time - published)
            for kind, start in first_estimates(state, event.job_id).items():
                self._expected[kind].observe(abs(event.time - start))

    def count_moves(self, moves: Sequence[ChangeSet], published: PlanSnapshot) -> None:
        """Count ``moves``; ``published`` is the plan before them."""
        if not moves:
            return
        latest = int(published.starts.max(initial=-1))
        by_cause: dict[Cause, list[ChangeSet]] = {}
        for change in moves:
            by_cause.setdefault(change.cause, []).append(change)
        for cause, changes in by_cause.items():  # a batch has hundreds of changes, most of one job
            old = np.concatenate([change.old for change in changes])
            new = np.concatenate([change.new for change in changes])
            moved = (old >= 0) & (new >= 0)
            count = int(np.count_nonzero(moved))
            if count:
                self._moves[cause].inc(count)
                self._earlier.inc(int(np.count_nonzero(moved & (new < old))))
            if cause is Cause.ARRIVED:
                first = (old < 0) & (new >= 0) & (new < latest)
                self._gaps.inc(int(np.count_nonzero(first)))
