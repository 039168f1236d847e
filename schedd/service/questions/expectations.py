"""Expected start of a hypothetical job: the answer, and the interface of what computes it."""

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from schedd.engine import gets_no_promise, queue_slack
from schedd.model import FOREVER, StartKnown
from schedd.predict import EndForecast, Prediction
from schedd.service.questions.plan_fork import PlanFork, RequestForm
from schedd.service.questions.what_if import WhatIfAnswer
from schedd.wire import JobFacts


@dataclass(frozen=True, slots=True)
class Expectation:
    """Expected start of a job. Seconds since the epoch; -1 if unknown."""

    start: int  # P50
    by: int  # P90
    as_of: int  # time of the plan with predicted run times
    run_time: int  # predicted run time (P50), in seconds
    end: EndForecast | None = None  # distribution of its end; None: unknown


UNKNOWN: Final = Expectation(-1, -1, -1, -1)


def hypothetical_promise(fork: PlanFork, asked: WhatIfAnswer, facts: JobFacts) -> int:
    """Return the start that would be promised to a job that arrives now; FOREVER: none."""
    if isinstance(asked.answer, StartKnown) and asked.promise is not None:
        return asked.promise
    if not isinstance(asked.answer, StartKnown) or gets_no_promise(fork.published, facts):
        return FOREVER
    planned = asked.answer.placement.start
    return queue_slack(fork.published.settings, facts.queue).latest(planned, max(0, planned - asked.now))


class StartForecast(Protocol):
    """Forecast of all starts, for questions about further jobs. Any thread may use it."""

    @property
    def as_of(self) -> int:
        """Time of the plan with predicted run times, in seconds since the epoch."""

    @property
    def medians(self) -> PlanFork:
        """Copy with the plan by median predicted run times."""

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

    def predict_run_time(self, facts: JobFacts, start: StartKnown) -> Prediction | None:
        """Return the run time of the job at this place; None if it is not predicted."""


@runtime_checkable
class ForecastSource(Protocol):
    """Background service of a feature that forecasts the starts of a cluster."""

    @property
    def latest_forecast(self) -> StartForecast | None:
        """Result of the last round; None: not yet, or nothing is predicted."""

    def seconds_to_forecast(self) -> float | None:
        """Return the real time in which new jobs probably have a forecast; None: none is expected."""
