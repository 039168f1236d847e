"""Background prediction of starts, on a fork in a thread of its own, so that events need not wait."""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, cast

import numpy as np
import structlog

from schedd.engine import Engine, EngineState, Phase, PlanSnapshot, published_record
from schedd.feature_list import feature_modules
from schedd.features.prediction.expected_starts import (
    ExpectedStarts,
    ExpectedStartsInput,
    NearStarts,
    compute_expected_starts,
    compute_near_starts,
    expected_starts_input,
)
from schedd.features.prediction.hypothetical_start import ExpectationSource, expectation_source
from schedd.features.prediction.settings import prediction_settings
from schedd.features.prediction.state import find_predictor
from schedd.plan.columns import PLANNED
from schedd.plan.plan import Plan
from schedd.predict import JobFeatures, Prediction
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.cluster.errors import Overloaded, PlannerStopped
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.questions.plan_fork import PlanFork
from schedd.wire import Event, StartsExpected

_log = structlog.get_logger(__name__)
_LOOK_S: Final = 1.0
_PATIENCE_S: Final = 60.0
_ASK_S: Final = 0.5  # maximum wait of a question for its job's predicted run time
_SOON_S: Final = 5.0  # minimum time between two rounds while there are jobs without an estimate
_EVERY_S: Final = 60.0  # minimum time between two rounds of one kind otherwise, in real or in cluster seconds
_NEAREST: Final = 100  # jobs in a round of near starts, which are refreshed more often than the others
_SHARE: Final = 10
"""Minimum interval as a multiple of the last round's processor time: rounds of one kind take at most a tenth
of a processor. As a multiple of real time, forecasts of a busy machine would be old as well as slow."""

_LONG_REST_S: Final = 20.0  # rounds of near starts come between rounds of all starts that rest longer

RoundKind = Literal["", "all", "near"]


class RoundFollower(Protocol):
    """Part of another feature in a round; see ``forecast_round`` in its folder."""

    def events(
        self, given: ExpectedStartsInput, found: ExpectedStarts | NearStarts, name: str
    ) -> Iterable[Event]:
        """Return events for the engine; ``name`` is the prefix of their ids."""


class _FollowingModule(Protocol):
    """The module ``forecast_round`` of a feature."""

    def begin_round(self, state: EngineState) -> RoundFollower | None:
        """Copy what the round needs; called between two batches."""

    def is_forecast_needed(self, published: PlanSnapshot) -> bool:
        """Return whether a round is needed even if no job waits."""

    def is_forecast_urgent(self, published: PlanSnapshot) -> bool:
        """Return whether the next round is needed as early as possible."""


@dataclass(slots=True)
class _RoundTimes:
    """When the last round of one kind ended, how long it took, and the time of the cluster then."""

    ended: float = float("-inf")
    took: float = float("-inf")  # seconds of the processor
    lasted: float = float("-inf")  # real seconds
    moment: int = -1

    def rest(self, now: float) -> float:
        """Return the seconds until the next round may begin at the earliest."""
        return max(0.0, self.ended + max(_SHARE * self.took, _SOON_S) - now)

    def may_begin(self, now: float, moment: int, *, soon: bool = False) -> bool:
        """Return whether the next round may begin; ``soon``: as early as possible."""
        if self.rest(now) > 0:
            return False
        return soon or now >= self.ended + _EVERY_S or moment >= self.moment + _EVERY_S


class _Stopwatch:
    """Time since its creation, in the thread that created it."""

    def __init__(self) -> None:
        self._real, self._busy = time.monotonic(), time.thread_time()

    def read(self) -> tuple[float, float]:
        """Return the seconds of the processor that the thread took, and the real seconds."""
        return time.thread_time() - self._busy, time.monotonic() - self._real


def cluster_service(loop: PlanLoop, durable: DaemonStore | None) -> "ExpectedStartWorker":  # noqa: ARG001
    return ExpectedStartWorker(loop)


class ExpectedStartWorker:
    """Expected starts of one cluster. Public methods may be called from any thread."""

    def __init__(self, loop: PlanLoop) -> None:
        self.latest_forecast: ExpectationSource | None = None
        """Result of the last round, for questions about further jobs."""
        self._loop = loop
        self._condition = threading.Condition()
        self._stopping = False
        self._plan: Plan | None = None
        self._epoch = time.time_ns()
        self._rounds = 0
        self._all = _RoundTimes()
        self._near = _RoundTimes()
        self._generation = -1
        self._thread = loop.supervisor.thread("expected starts", self._run, cluster=loop.name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End at once and abandon a running round."""
        with self._condition:
            self._stopping = True
            if self._plan is not None:
                self._plan.stop()
            self._condition.notify()
        self._thread.join(10)

    def seconds_to_forecast(self) -> float | None:
        """Return the real seconds until new jobs probably have a forecast; None: no forecast is due."""
        if (
            self._loop.on_standby
            or not prediction_settings(self._loop.published.settings).predict
            or self._all.lasted < 0
        ):
            return None
        return self._all.rest(time.monotonic()) + self._all.lasted

    # ---- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._condition:
                if not self._stopping:
                    self._condition.wait(_LOOK_S)
                if self._stopping:
                    return
            try:
                kind = self._next_round_kind(time.monotonic())
                if kind == "all":
                    self.run_once()
                elif kind == "near":
                    self.run_near()
            except (PlannerStopped, Overloaded, TimeoutError) as error:
                if not self._stopping:
                    _log.warning("expected starts were not computed", cluster=self._loop.name, why=str(error))
            except Exception:
                self._all.ended = self._near.ended = time.monotonic()
                raise

    def _next_round_kind(self, now: float) -> RoundKind:
        loop = self._loop
        published = loop.published
        if loop.on_standby or not prediction_settings(published.settings).predict:
            return ""
        if published.arriving:  # a round would be outdated before it ends
            return ""
        if not (_has_queued_jobs(published) or _is_any_forecast_needed(published)):
            return ""
        moment, new = loop.now(), _has_new_jobs(published, self._generation) or _is_urgent(published)
        if self._all.may_begin(now, moment, soon=new):
            return "all"
        rests_long = _SHARE * self._all.took > _LONG_REST_S
        if self.latest_forecast is None or not rests_long or published.settings.policy != "conservative":
            return ""
        return "near" if self._near.may_begin(now, moment) else ""

    def run_once(self) -> ExpectedStarts | None:
        """Run one round: predict all starts, and submit the estimates to publish.

        Return None if prediction is off, or the worker was stopped. Raises PlannerStopped, Overloaded and
        TimeoutError.
        """
        loop, stopwatch = self._loop, _Stopwatch()
        self._generation = loop.published.generation
        begins = loop.call_between_batches(self._prepare).result(_PATIENCE_S)
        if begins is None:
            self.latest_forecast = None
            return None
        given, fork, followers = begins
        found = compute_expected_starts(given, self._register_plan)
        self._all.took, self._all.lasted = stopwatch.read()
        loop.metrics.foretold.observe(self._all.lasted)
        with self._condition:
            self._plan = None
            if self._stopping:
                return None
        self.latest_forecast = expectation_source(fork, found, self._predict)
        self._publish(given, found, followers)
        # The near starts are fresh, too.
        self._all.ended = self._near.ended = time.monotonic()
        self._all.moment = self._near.moment = found.as_of
        return found

    def run_near(self) -> NearStarts | None:
        """Run one round for the nearest jobs; see ``run_once``."""
        stopwatch = _Stopwatch()
        begins = self._loop.call_between_batches(self._copy_input).result(_PATIENCE_S)
        if begins is None or not _has_queued_jobs(self._loop.published):
            return None
        given, followers = begins
        found = compute_near_starts(given, _NEAREST, self._register_plan)
        self._near.took, self._near.lasted = stopwatch.read()
        self._loop.metrics.foretold.observe(self._near.lasted)
        with self._condition:
            self._plan = None
            if self._stopping:
                return None
        self._publish(given, found, followers)
        self._near.ended, self._near.moment = time.monotonic(), found.as_of
        return found

    def _publish(
        self,
        given: ExpectedStartsInput,
        found: ExpectedStarts | NearStarts,
        followers: Iterable[RoundFollower],
    ) -> None:
        """Submit the estimates of a round, and the events of other features that follow from it."""
        self._rounds += 1
        name = f"expected:{self._epoch}:{self._rounds}"
        for source in (found.events(name), *(one.events(given, found, name) for one in followers)):
            for event in source:
                if isinstance(event, StartsExpected):
                    event = _mark_unseen(event, self._loop.published, self._loop.now())
                self._loop.submit([event]).result(_PATIENCE_S)

    def _prepare(self, engine: Engine) -> tuple[ExpectedStartsInput, PlanFork, list[RoundFollower]] | None:
        copied = self._copy_input(engine)
        if copied is None:
            return None
        given, followers = copied
        return given, self._loop.wrap_fork(engine, given.plan), followers

    def _copy_input(self, engine: Engine) -> tuple[ExpectedStartsInput, list[RoundFollower]] | None:
        given = expected_starts_input(engine.state, self._loop.published)
        if given is None:
            return None
        begun = (module.begin_round(engine.state) for module in _following_modules())
        return given, [follower for follower in begun if follower is not None]

    def _predict(self, ask: JobFeatures) -> Prediction | None:
        """Return a job's predicted run time; None if unknown, or if the planner is busy for too long."""

        def predicted(engine: Engine) -> Prediction | None:
            predictor = find_predictor(engine.state)
            return predictor.learner.run_times.predict(ask) if predictor is not None else None

        try:
            return self._loop.call_between_batches(predicted).result(_ASK_S)
        except (PlannerStopped, TimeoutError):
            return None

    def _register_plan(self, plan: Plan) -> None:
        with self._condition:
            self._plan = plan
            if self._stopping:
                plan.stop()


def _mark_unseen(event: StartsExpected, published: PlanSnapshot, now: int) -> StartsExpected:
    """Return the event, with estimates that nobody saw marked as intermediate.

    Their P90 passed during the round, or their jobs started. The accuracy does not count them.
    """

    def is_waiting(job: str) -> bool:
        record = published_record(published, job)
        return record is not None and record.phase is Phase.WAITING

    jobs = (one if one.by > now and is_waiting(one.job_id) else replace(one, kind="") for one in event.jobs)
    return replace(event, jobs=tuple(jobs))


def _following_modules() -> tuple[_FollowingModule, ...]:
    return cast("tuple[_FollowingModule, ...]", feature_modules("forecast_round"))


def _is_any_forecast_needed(published: PlanSnapshot) -> bool:
    return any(module.is_forecast_needed(published) for module in _following_modules())


def _is_urgent(published: PlanSnapshot) -> bool:
    return any(module.is_forecast_urgent(published) for module in _following_modules())


def _has_queued_jobs(published: PlanSnapshot) -> bool:
    return bool((published.states == PLANNED).any()) or published.settings.policy != "conservative"


def _has_new_jobs(published: PlanSnapshot, generation: int) -> bool:
    """Whether there are new or changed jobs without an estimate."""
    n = min(published.expected.shape[0], published.states.shape[0])
    new = (published.expected[:n] < 0) & (published.states[:n] == PLANNED)
    return bool(np.any(new & (published.changed[:n] > generation)))
