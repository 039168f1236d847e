"""Expected start of a hypothetical job, from a plan with predicted run times."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from schedd.dialect.throughput import read_work
from schedd.engine import job_delay_risk, rank_in_what_if
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.features.prediction.expected_starts import ExpectedStarts, cap_at_promise, delay_start
from schedd.features.prediction.rules import job_features
from schedd.features.prediction.throughput import rated_nodes, run_time, with_measured_run_time
from schedd.model import StartKnown
from schedd.plan.backfill import EXPECTED_QUANTILE
from schedd.plan.columns import Ints
from schedd.plan.plan import Plan
from schedd.plan.projection import project_plan
from schedd.predict import (
    CalibratedStart,
    EndForecast,
    JobFeatures,
    PlannedSpeeds,
    Prediction,
    StartDistribution,
    StartSampler,
    draw_levels,
    sample_run_times,
    speed_range,
    start_quantiles,
)
from schedd.service.questions.expectations import UNKNOWN, Expectation
from schedd.service.questions.open_questions import cancellation_check
from schedd.service.questions.plan_fork import PlanFork, RequestForm
from schedd.service.questions.what_if import WhatIfAnswer
from schedd.wire import JobFacts

_DRAWING_S: Final = 2.0
"""Seconds after which no further run times are drawn: a busy daemon answers with fewer draws."""


def expectation_source(
    fork: PlanFork, found: ExpectedStarts, predict: Callable[[JobFeatures], Prediction | None]
) -> "ExpectationSource":
    """Return the source for questions about further jobs; ``fork`` has the plan of ``found.sampler``."""
    return ExpectationSource(fork, found, predict, fork.with_plan(found.plan))


@dataclass(frozen=True, slots=True)
class ExpectationSource:
    """Result of the last round of predictions, for questions about further jobs. Any thread may use it."""

    fork: PlanFork  # with the plan by walltimes, before the round
    found: ExpectedStarts
    predict: Callable[[JobFeatures], Prediction | None]
    """Predicts a job's run time; None if that takes too long."""
    medians: PlanFork  # with the plan by median predicted run times

    @property
    def as_of(self) -> int:
        """Time of the plan with predicted run times."""
        return self.found.as_of

    def expect_start(
        self,
        facts: JobFacts,
        asked: WhatIfAnswer,
        promise: int,
        *,
        instead_of: str = "",
        form: RequestForm | None = None,
    ) -> Expectation:
        """Return the expected start of a job with the what-if result ``asked``.

        ``instead_of``: a job of the plan that it replaces; ``promise``: the latest promised start;
        ``form``: its request with a change. Raises WorkSpent.
        """
        settings = self.fork.published.settings
        if not isinstance(asked.answer, StartKnown) or not settings.predicts(facts.queue):
            return UNKNOWN
        planned = asked.answer.placement.start
        understood = self.fork.understand(facts)
        if form is not None:
            understood = replace(understood, request=form[0], walltime=form[1])
        prediction = self._predict_run_time(facts, understood, asked.answer)
        run_time = prediction.p50 if prediction is not None else -1
        if planned <= asked.now + 1:  # the plan is newer than the prediction
            delay = self.found.start_delay
            expected = CalibratedStart(planned + delay.p50, planned + delay.p90)
            samples = np.array([planned], np.int64)
            return self._expectation(facts, asked, samples, expected, promise, prediction)
        samples = self._starts(facts, asked.now, asked.walltime, prediction, promise, instead_of, form)
        if asked.means and form is None:  # jobs that the draws leave in place would be moved or preempted
            samples = np.minimum(samples, planned)
        found = start_quantiles(samples)
        start, late = int(found.p50[0]), int(found.p90[0])
        if start < 0:
            return replace(UNKNOWN, run_time=run_time)
        risk = job_delay_risk(self.fork.published, facts, runs=False)
        if risk is not None and late >= 0:
            start, late = delay_start(samples[:, 0], risk, asked.now, start, late)
        expected = self.found.kinds["submission"].estimate(
            asked.now, start, planned, late, self.found.start_delay
        )
        expected = cap_at_promise(expected, asked.now, promise)
        return self._expectation(facts, asked, samples[:, 0], expected, promise, prediction)

    def predict_run_time(self, facts: JobFacts, start: StartKnown) -> Prediction | None:
        """Return the run time of the job at this place; None if it is not predicted."""
        if not self.fork.published.settings.predicts(facts.queue):
            return None
        return self._predict_run_time(facts, self.fork.understand(facts), start)

    def _predict_run_time(
        self, facts: JobFacts, understood: ParsedRequest, start: StartKnown
    ) -> Prediction | None:
        """Return the predicted run time where the job is planned, by its throughput if that is known."""
        plan, nodes = self.found.plan, start.placement.nodes
        prediction = self.predict(job_features(facts, understood, speed_range(plan)))
        if prediction is None:
            return None
        speeds, work = PlannedSpeeds.from_plan(plan), read_work(facts.resources)
        if speeds is not None:
            prediction = prediction.at_speed(speeds.slowest(nodes))
        apps = self.fork.published.settings.site.throughput
        seconds = run_time(work, rated_nodes(plan, nodes), apps) if work is not None else None
        return with_measured_run_time(prediction, seconds) if seconds is not None else prediction

    def _expectation(
        self,
        facts: JobFacts,
        asked: WhatIfAnswer,
        samples: Ints,
        expected: CalibratedStart,
        promise: int,
        prediction: Prediction | None,
    ) -> Expectation:
        """Return the expectation of a job with these sampled starts."""
        if prediction is None or not isinstance(asked.answer, StartKnown):
            return Expectation(expected.p50, expected.p90, self.as_of, -1)
        start = StartDistribution.from_samples(asked.now, samples, expected, promise, facts.not_before or 0)
        risk = job_delay_risk(self.fork.published, facts, runs=True)
        end = EndForecast.for_waiting_job(start, prediction, tuple(asked.answer.placement.nodes), risk)
        return Expectation(expected.p50, expected.p90, self.as_of, prediction.p50, end)

    def _starts(
        self,
        facts: JobFacts,
        now: int,
        walltime: int,
        prediction: Prediction | None,
        promise: int,
        instead_of: str,
        form: RequestForm | None,
    ) -> Ints:
        """Return its start in each draw, shape (draws, 1); -1: no start."""
        sampler = self.found.sampler
        expected = walltime if prediction is None else min(prediction.quantiles[EXPECTED_QUANTILE], walltime)
        rank = None
        if sampler.rule is not None:
            rank = rank_in_what_if(self.fork.published, facts, self.fork.understand(facts))
        starts = self.fork.with_job(
            facts, now, partial(_run_on, sampler, expected, promise, rank), instead_of=instead_of, form=form
        )
        if starts is None:
            return np.full((len(self.found.drawn), 1), -1, np.int64)
        lasts = np.full(starts.shape[0], walltime, np.int64)
        if prediction is not None:
            levels = draw_levels([facts.id], starts.shape[0])
            lasts = sample_run_times([prediction], np.zeros(1, np.int64), levels)[0] + sampler.turnaround
            lasts = np.minimum(lasts, walltime)
        for k in np.flatnonzero(starts < 0).tolist():  # it starts after the simulated interval of the draw
            drawn = self.found.drawn[k]
            at_end, moment = self.fork.with_plan(drawn.plan.unpack()), max(now, drawn.now)
            start = at_end.earliest_start(facts, moment, int(lasts[k]), instead_of=instead_of, form=form)
            starts[k] = start if start is not None else -1
        return starts.reshape(-1, 1)


def _run_on(
    sampler: StartSampler, expected: int, latest: int, rank: int | None, plan: Plan, slot: int
) -> Ints:
    """Return the start of a further job in each draw, by its ``latest`` promised start.

    ``expected`` is its predicted run time; ``rank`` is None where it is unknown. -1: not found within the
    work limit of a draw. After ``_DRAWING_S`` seconds the draws made until then must do. Raises WorkSpent.
    """
    until = time.monotonic() + _DRAWING_S
    size = plan.jobs.starts.shape[0]
    rule = None
    if sampler.rule is not None:
        rule = sampler.rule.with_job(size, slot, sampler.now, expected, latest, rank)
    starts = np.full(sampler.sampled_run_times.shape[0], -1, np.int64)
    ahead = sampler.with_arrivals(plan, rule, (slot,))
    for k, drawn_lasts in enumerate(sampler.sampled_run_times):
        fork = ahead.plan.fork()
        go_on = cancellation_check(fork)
        lasts = np.zeros(size, np.int64)
        lasts[: drawn_lasts.shape[0]] = drawn_lasts
        lasts[slot] = plan.jobs.durations[slot]  # its own run time does not affect its start
        lasts, come = ahead.run_times(k, lasts), ahead.begin(fork, k)
        work = sampler.work_limit
        at = project_plan(fork, lasts, sampler.now, work, (slot,), sampler.arrays, ahead.rule, come)
        starts[k] = at.started[slot]
        go_on()
        if time.monotonic() > until:
            return starts[: k + 1]
    return starts
