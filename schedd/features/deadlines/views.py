"""What users see of a deadline: its state, the earliest deadline that can be kept, and remarks."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from schedd.dialect.deadline import (
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
from schedd.features.deadlines.lost import shortest_walltime
from schedd.features.deadlines.settings import DeadlineSettings
from schedd.features.deadlines.state import PublishedDeadlines, deadlines_state
from schedd.model import FOREVER, Never
from schedd.policy.priority import latest_start
from schedd.predict import EndForecast
from schedd.wire import JobFacts

_NOTHING: Final[Mapping[str, Any]] = {}


def job_details(published: PlanSnapshot, record: JobRecord, start: int) -> Mapping[str, Any]:
    """Return a job's deadline, its state, and the earliest one possible if it was refused."""
    deadline = read_deadline(record.facts.resources, record.facts.submitted)
    if deadline is None:
        return _NOTHING
    part, walltime = published.part(PublishedDeadlines), record.understood.walltime
    shortest = shortest_walltime(record.facts, walltime)
    accepted = _is_accepted(part, record, deadline)
    soonest = published.as_of if record.phase is Phase.RUNNING else published.as_of + shortest
    in_time = 0 <= start <= latest_start(deadline, walltime)
    if record.phase is Phase.RUNNING:  # suspensions and extensions make it longer
        in_time = record.run_end(published.as_of) <= deadline
    # A running job may exceed its walltime.
    if in_time and published.as_of <= deadline:
        state = "accepted" if accepted else "wished"
    elif soonest > deadline or isinstance(record.answer, Never):
        state = "missed"
    else:
        state = "at_risk" if accepted else "wished"
    found: dict[str, Any] = {"deadline": deadline, "deadline_state": state}
    refused = part.refused.get(record.id) == deadline and part.settings.admits(record.facts)
    if refused and start >= 0 and record.phase is Phase.WAITING:
        found["earliest_deadline"] = start + shortest + part.settings.margin
    return found


def _is_accepted(part: PublishedDeadlines, record: JobRecord, deadline: int) -> bool:
    known = part.accepted.get(record.id)
    return known is not None and known.deadline == deadline


def notes(published: PlanSnapshot, record: JobRecord) -> Sequence[str]:
    """Return what the admission of a waiting job's deadline means."""
    deadline = _guarded_deadline(record.facts)
    if deadline is None or record.phase not in (Phase.WAITING, Phase.DISPATCHED):
        return ()
    start = int(published.starts[record.slot]) if record.slot >= 0 else -1
    details = job_details(published, record, start)
    moment, earliest = format_moment(deadline), details.get("earliest_deadline")
    match details["deadline_state"]:
        case "accepted":
            return (f"its deadline, {moment}, is accepted: only causes that may break a promise delay it",)
        case "at_risk":
            cause = f" ({record.risk.cause})" if record.risk is not None else ""
            return (f"its accepted deadline, {moment}, is at risk{cause}",)
        case "wished" if earliest is not None:
            option = deadline_option(record.facts.resources)
            offer = f"the earliest that can be kept is {format_moment(earliest)}: qalter {option}{earliest}"
            if has_other_extensions(record.facts.resources):
                offer += ", with the other values of -W x, which qalter replaces together"
            return (f"its deadline, {moment}, was refused; {offer}",)
        case "wished" if not published.part(PublishedDeadlines).settings.admits(record.facts):
            return (f"its deadline, {moment}, is a wish: this site accepts no deadlines of such jobs",)
    return ()


def comment_remarks(state: EngineState, record: JobRecord, start: int) -> Sequence[str]:
    """Return the state of a planned job's deadline, for its comment."""
    deadline = _guarded_deadline(record.facts)
    if deadline is None:
        return ()
    part, walltime = deadlines_state(state), record.understood.walltime
    in_time = start <= latest_start(deadline, walltime)
    known = part.accepted.get(record.id)
    if known is not None and known.deadline == deadline:
        return ("deadline accepted" if in_time else "accepted deadline at risk",)
    settings = state.site.part(DeadlineSettings)
    if part.refused.get(record.id) == deadline and settings.admits(record.facts):
        earliest = format_moment(start + shortest_walltime(record.facts, walltime) + settings.margin)
        return (f"deadline refused, {earliest} can be kept",)
    return ()


def _guarded_deadline(facts: JobFacts) -> int | None:
    """Return the deadline of a job; None: it has none, or one that a forecast decides on."""
    if read_required_probability(facts.resources) is not None:
        return None
    return read_deadline(facts.resources, facts.submitted)


def latest_end(known: EngineState | PlanSnapshot, facts: JobFacts) -> int:
    """Return the latest end of a job that meets its deadline with the margin; FOREVER: it has no deadline."""
    deadline = _guarded_deadline(facts)
    site = known.site if isinstance(known, EngineState) else known.settings.site
    return FOREVER if deadline is None else deadline - site.part(DeadlineSettings).margin


def what_if_details(
    published: PlanSnapshot,
    facts: JobFacts,
    understood: ParsedRequest,
    start: int,
    promised: int,
    _end: EndForecast | None,
) -> Mapping[str, Any]:
    """Return whether the deadline of a hypothetical job would be accepted, and the promise that follows."""
    deadline = _guarded_deadline(facts)
    if deadline is None:
        return _NOTHING
    settings, walltime = published.part(PublishedDeadlines).settings, understood.walltime
    latest = latest_start(deadline, walltime) - settings.margin
    shortest = shortest_walltime(facts, walltime)
    missed = latest_start(deadline, shortest) < published.as_of
    if start < 0:
        return {"deadline_state": "missed" if missed else "wished"}
    if settings.admits(facts) and start <= latest:
        return {"deadline_state": "accepted", "promised_start": min(latest, promised)}
    if missed:
        return {"deadline_state": "missed", "earliest_deadline": start + shortest + settings.margin}
    found = {"deadline_state": "wished"}
    if not settings.admits(facts):
        return found
    return {**found, "earliest_deadline": start + shortest + settings.margin}
