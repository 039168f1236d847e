"""What users see of a deadline with a probability: its state, the forecast, and the earliest deadline with
that probability.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from schedd.deadline_sentence import DeadlineFacts, describe_deadline_forecast
from schedd.dialect.deadline import (
    deadline_fault,
    deadline_option,
    has_other_extensions,
    read_deadline,
    read_required_probability,
)
from schedd.engine.facts.explanations import format_moment
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.deadline_forecasts.settings import DeadlineForecastSettings
from schedd.features.deadline_forecasts.state import (
    JudgedDeadline,
    PublishedForecasts,
    earliest_or_none,
    forecasts_state,
)
from schedd.model import Never
from schedd.policy.reliability import failure_rates
from schedd.predict import EndForecast, ProbabilityBin
from schedd.wire import JobFacts

_NOTHING: Final[Mapping[str, Any]] = {}


def job_details(published: PlanSnapshot, record: JobRecord, start: int) -> Mapping[str, Any]:  # noqa: ARG001
    """Return state and forecast of a deadline with a probability."""
    required = read_required_probability(record.facts.resources)
    deadline = read_deadline(record.facts.resources, record.facts.submitted)
    if required is None or deadline is None:
        return _NOTHING
    known = published.part(PublishedForecasts).judged.get(record.id)
    return _details(known, record, deadline, required, published.as_of)


def _details(
    known: JudgedDeadline | None, record: JobRecord, deadline: int, required: float, now: int
) -> dict[str, Any]:
    if known is not None and (known.deadline, known.required) != (deadline, required):
        known = None
    if now > deadline or isinstance(record.answer, Never):
        state = "missed"
    elif known is None or not known.accepted:
        state = "wished"
    else:
        state = "accepted" if known.probability >= required else "at_risk"
    refused = known is not None and state == "wished"
    return {
        "deadline_state": state,
        "deadline_required": required,
        "deadline_probability": known.probability if known is not None and state != "missed" else None,
        "earliest_deadline": earliest_or_none(known.earliest) if known is not None and refused else None,
    }


def notes(published: PlanSnapshot, record: JobRecord) -> Sequence[str]:
    """Return what the forecast of a job's deadline means, and the fault of a deadline that is not
    understood.
    """
    fault = deadline_fault(record.facts.resources, record.facts.submitted)
    if fault:
        return (fault,)
    details = job_details(published, record, -1)
    if not details or record.phase is Phase.BLOCKED:
        return ()
    deadline = read_deadline(record.facts.resources, record.facts.submitted)
    assert deadline is not None
    moment, earliest = format_moment(deadline), details["earliest_deadline"]
    if not published.part(PublishedForecasts).settings.admission:
        return (f"its deadline, {moment}, is a wish: this site accepts no deadlines with a probability",)
    if not published.settings.predicts(record.facts.queue):
        return (f"its deadline, {moment}, is a wish: nothing is predicted for its queue",)
    sentence = describe_deadline_forecast(_facts(details), format_moment)
    if earliest is not None:
        resources = record.facts.resources
        value = f"{earliest}@{100 * details['deadline_required']:g}%"
        sentence += f": qalter {deadline_option(resources)}{value}"
        if has_other_extensions(resources):
            sentence += ", with the other values of -W x, which qalter replaces together"
    return (f"its deadline, {moment}, is {sentence}",)


def _facts(details: Mapping[str, Any]) -> DeadlineFacts:
    return DeadlineFacts(
        details["deadline_state"],
        details["deadline_required"],
        details["deadline_probability"],
        details["earliest_deadline"],
    )


def comment_remarks(state: EngineState, record: JobRecord, start: int) -> Sequence[str]:  # noqa: ARG001
    """Return state and forecast of a planned job's deadline, for its comment."""
    required = read_required_probability(record.facts.resources)
    deadline = read_deadline(record.facts.resources, record.facts.submitted)
    known = forecasts_state(state).judged.get(record.id)
    settings = state.site.part(DeadlineForecastSettings)
    if required is None or deadline is None or known is None or not settings.admission:
        return ()
    details = _details(known, record, deadline, required, state.now)
    return (f"deadline {describe_deadline_forecast(_facts(details), format_moment)}",)


def what_if_details(
    published: PlanSnapshot,
    facts: JobFacts,
    understood: ParsedRequest,  # noqa: ARG001
    start: int,
    promised: int,  # noqa: ARG001
    end: EndForecast | None,
) -> Mapping[str, Any]:
    """Return the probability that a hypothetical job meets its deadline, and what admission would answer."""
    deadline = read_deadline(facts.resources, facts.submitted)
    if deadline is None:
        return _NOTHING
    part, required = published.part(PublishedForecasts), read_required_probability(facts.resources)
    found: dict[str, Any] = {}
    if required is not None:
        missed = published.as_of > deadline
        found = {"deadline_state": "missed" if missed else "wished", "deadline_required": required}
    if end is None or start < 0 or not part.settings.admission:
        return found
    prior = 1 / part.settings.node_failures
    rates = failure_rates(
        published.lives, published.as_of, published.settings.site.reliability.half_life, prior
    )
    rate = sum(rates.get(node, prior) for node in end.nodes)
    probability = part.correction.apply(end.probability(deadline, rate))
    found["deadline_probability"] = probability
    if required is None or found["deadline_state"] == "missed":
        return found
    if probability >= required:
        return {**found, "deadline_state": "accepted"}
    return {**found, "earliest_deadline": end.earliest_deadline(required, rate, part.correction.apply)}


def deadline_accuracy(published: PlanSnapshot) -> Mapping[str, Sequence[ProbabilityBin]]:
    """Return predicted and observed probabilities by kind of forecast."""
    return published.part(PublishedForecasts).accuracy
