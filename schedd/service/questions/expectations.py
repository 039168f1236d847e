"""When a job that nobody submitted is expected to start: tried in the plan with predicted run times."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from schedd.engine.facts.foresight import ask_of
from schedd.engine.rank.promises import slack_of
from schedd.engine.show.foretelling import Foretold, within
from schedd.model import FOREVER, StartKnown
from schedd.plan.backfill import EXPECTED_QUANTILE
from schedd.plan.columns import Ints
from schedd.plan.plan import Plan
from schedd.plan.projection import project_plan
from schedd.predict import (
    JobFeatures,
    Prediction,
    StartSampler,
    draw_levels,
    sample_run_times,
    start_quantiles,
)
from schedd.service.questions.open_questions import cancellation_check
from schedd.service.questions.plan_fork import PlanFork, WhatIfAnswer
from schedd.wire import JobFacts

__all__ = ["UNKNOWN", "Expectation", "ExpectationSource", "expectation_source", "hypothetical_promise"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is expected of a job. Seconds since the epoch; -1 where nothing is."""

    start: int
    """In half of the cases by then,"""
    by: int
    """in nine of ten by then."""
    as_of: int
    """When the plan with predicted run times was made."""
    run_time: int
    """How long it is predicted to run, in seconds: half of such jobs run no longer."""


UNKNOWN: Final = Expectation(-1, -1, -1, -1)


def hypothetical_promise(fork: PlanFork, asked: WhatIfAnswer, queue: str) -> int:
    """The start that would be promised to a job that arrives now; FOREVER: none would be."""
    if not isinstance(asked.answer, StartKnown):
        return FOREVER
    planned = asked.answer.placement.start
    return slack_of(fork.published.settings, queue).latest(planned, max(0, planned - asked.now))


def expectation_source(
    fork: PlanFork, found: Foretold, predict: Callable[[JobFeatures], Prediction | None]
) -> "ExpectationSource":
    """To ask of further jobs; ``fork`` has the plan of ``found.scene``."""
    after = tuple(fork.with_plan(one.plan) for one in found.drawn)
    return ExpectationSource(fork, found, predict, after, fork.with_plan(found.plan))


@dataclass(frozen=True, slots=True)
class ExpectationSource:
    """What the latest round of predictions found, to ask of further jobs. Any thread may ask."""

    fork: PlanFork
    """Its plan goes by walltimes: the one that the round began with."""
    found: Foretold
    predict: Callable[[JobFeatures], Prediction | None]
    """How long a job runs; None where that cannot be said soon."""
    after: tuple[PlanFork, ...]
    """Of each draw of run times the plan that it ended with."""
    medians: PlanFork
    """Its plan has the medians of predicted run times."""

    def expect_start(
        self, facts: JobFacts, asked: WhatIfAnswer, promise: int, *, instead_of: str = ""
    ) -> Expectation:
        """When a job is expected to start of which the plan said ``asked``.

        ``instead_of`` a job of the plan; ``promise`` is the latest start that is promised. Raises WorkSpent.
        """
        settings = self.fork.published.settings
        if not isinstance(asked.answer, StartKnown) or not settings.predicts(facts.queue):
            return UNKNOWN
        planned, as_of = asked.answer.placement.start, self.found.as_of
        understood = self.fork.understand(facts)
        prediction = self.predict(ask_of(facts, understood))
        run_time = prediction.p50 if prediction is not None else -1
        if planned <= asked.now + 1:  # the plan is newer than what was predicted from it
            return Expectation(planned, planned, as_of, run_time)
        found = start_quantiles(
            self._starts(facts, asked.now, understood.walltime, prediction, promise, instead_of)
        )
        start, late = int(found.p50[0]), int(found.p90[0])
        if start < 0:
            return replace(UNKNOWN, run_time=run_time)
        expected = self.found.kinds["submission"].estimate(asked.now, start, planned, late)
        expected = within(expected, asked.now, promise)
        return Expectation(expected.p50, expected.p90, as_of, run_time)

    def _starts(
        self,
        facts: JobFacts,
        now: int,
        walltime: int,
        prediction: Prediction | None,
        promise: int,
        instead_of: str,
    ) -> Ints:
        """When it starts in each draw, (draws, 1); -1: not at all."""
        scene = self.found.scene
        expected = walltime if prediction is None else min(prediction.quantiles[EXPECTED_QUANTILE], walltime)
        starts = self.fork.with_job(
            facts, now, partial(_run_on, scene, expected, promise), instead_of=instead_of
        )
        if starts is None:
            return np.full((len(self.after), 1), -1, np.int64)
        lasts = np.full(len(self.after), walltime, np.int64)
        if prediction is not None:
            levels = draw_levels([facts.id], len(self.after))
            lasts = np.minimum(sample_run_times([prediction], np.zeros(1, np.int64), levels)[0], walltime)
        for k in np.flatnonzero(starts < 0).tolist():  # it comes behind what the draws were run on to
            moment = max(now, self.found.drawn[k].now)
            start = self.after[k].earliest_start(facts, moment, int(lasts[k]), instead_of=instead_of)
            starts[k] = start if start is not None else -1
        return starts.reshape(-1, 1)


def _run_on(scene: StartSampler, expected: int, latest: int, plan: Plan, slot: int) -> Ints:
    """When a further job of the scene's plan, ``expected`` to run for so long, starts in each draw, by the
    ``latest`` start that it would be promised.

    -1: not within the work that a draw may do. Raises WorkSpent.
    """
    size = plan.jobs.starts.shape[0]
    rule = scene.rule.with_job(size, slot, scene.now, expected, latest) if scene.rule is not None else None
    starts = np.full(scene.sampled_run_times.shape[0], -1, np.int64)
    for k, drawn_lasts in enumerate(scene.sampled_run_times):
        fork = plan.fork()
        go_on = cancellation_check(fork)
        lasts = np.zeros(size, np.int64)
        lasts[: drawn_lasts.shape[0]] = drawn_lasts
        lasts[slot] = plan.jobs.durations[slot]  # how long it runs matters to its own start no more
        at = project_plan(fork, lasts, scene.now, scene.work_limit, (slot,), scene.arrays, rule)
        starts[k] = at.started[slot]
        go_on()
    return starts
