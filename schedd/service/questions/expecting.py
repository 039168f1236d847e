"""When a job that nobody submitted is expected to start: tried in the plan with predicted run times."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from schedd.engine.facts.foresight import ask_of
from schedd.engine.facts.intake import Understood
from schedd.engine.rank.promises import slack_of
from schedd.engine.show.foretelling import Foretold, within
from schedd.model import FOREVER, StartKnown
from schedd.predict import Ask, Prediction
from schedd.service.questions.forks import Asked, Fork
from schedd.wire import JobFacts

__all__ = ["UNKNOWN", "Expectation", "Expecting", "promise_of"]


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


def promise_of(fork: Fork, asked: Asked, queue: str) -> int:
    """The start that would be promised to a job that arrives now; FOREVER: none would be."""
    if not isinstance(asked.answer, StartKnown):
        return FOREVER
    planned = asked.answer.placement.start
    return slack_of(fork.published.settings, queue).latest(planned, max(0, planned - asked.now))


@dataclass(frozen=True, slots=True)
class Expecting:
    """What the latest round of predictions found, to ask of further jobs. Any thread may ask."""

    fork: Fork
    """Its plan has predicted run times."""
    found: Foretold
    predict: Callable[[Ask], Prediction | None]
    """How long a job runs; None where that cannot be said soon."""

    def of(self, facts: JobFacts, asked: Asked, promise: int, *, instead_of: str = "") -> Expectation:
        """When a job is expected to start of which the plan said ``asked``.

        ``instead_of`` a job of the plan; ``promise`` is the latest start that is promised. Raises WorkSpent.
        """
        settings = self.fork.published.settings
        if not isinstance(asked.answer, StartKnown) or not settings.predicts(facts.queue):
            return UNKNOWN
        planned, as_of = asked.answer.placement.start, self.found.as_of
        predictions: list[Prediction] = []

        def lasts(understood: Understood) -> int:
            found = self.predict(ask_of(facts, understood))
            if found is None:
                return understood.walltime
            predictions.append(found)
            return min(found.p50, understood.walltime)

        start = self.fork.start(facts, asked.now, lasts, instead_of=instead_of)
        run_time = predictions[0].p50 if predictions else -1
        if planned <= asked.now + 1:  # the plan is newer than what was predicted from it
            return Expectation(planned, planned, as_of, run_time)
        if start is None:
            return replace(UNKNOWN, run_time=run_time)
        expected = self.found.kinds["submission"].estimate(asked.now, start, planned)
        expected = within(expected, asked.now, promise)
        return Expectation(expected.p50, expected.p90, as_of, run_time)
