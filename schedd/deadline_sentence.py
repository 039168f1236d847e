"""The forecast of a deadline with a probability in one clause, for all interfaces.

`accepted at 95 % (97 % now): a forecast, no guarantee`

Standard library only: users' commands import it.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol


class DeadlineFacts(NamedTuple):
    """The known facts of a deadline with a probability, as the API publishes it."""

    state: str  # as in `JobView.deadline_state`
    required: float
    probability: float | None  # by the latest forecast; None: there is none
    earliest: int | None
    """Of a refused deadline: the earliest one with the required probability; None: none has it."""


class _DeadlineView(Protocol):
    """A deadline, as in views of jobs and what-if results."""

    @property
    def deadline_state(self) -> str: ...
    @property
    def deadline_required(self) -> float | None: ...
    @property
    def deadline_probability(self) -> float | None: ...
    @property
    def earliest_deadline(self) -> int | None: ...


def deadline_facts(view: _DeadlineView) -> DeadlineFacts | None:
    """Return the facts of a job's view or a what-if result; None: no probability is requested."""
    if view.deadline_required is None:
        return None
    return DeadlineFacts(
        view.deadline_state, view.deadline_required, view.deadline_probability, view.earliest_deadline
    )


def describe_deadline_forecast(facts: DeadlineFacts, time: Callable[[int], str]) -> str:
    """Return the clause, to follow "the deadline is"; ``time`` writes a time."""
    required, now = format_percent(facts.required), facts.probability
    if facts.state == "missed":
        return "missed"
    if now is None:
        return f"not judged yet: there is no forecast ({required} is requested)"
    if facts.state == "accepted":
        return f"accepted at {required} ({format_probability(now)} now): a forecast, no guarantee"
    if facts.state == "at_risk":
        return f"at risk: accepted at {required}, {format_probability(now)} now"
    if facts.earliest is None:
        return f"refused: {format_probability(now)}; none has {required}, since nodes may fail"
    return f"refused: {format_probability(now)}; with {required} by {time(facts.earliest)}"


def format_percent(share: float) -> str:
    """A requested percentage: `95 %`, `99.5 %`."""
    return f"{round(100 * share, 2):g} %"


def format_probability(probability: float) -> str:
    """A forecast, rounded down so that it does not seem to reach a percentage that it does not reach."""
    return f"{int(100 * probability + 1e-9)} %"
