"""Phases of a job: a table of all steps, each with the fields that it clears and sets.

All changes of records are steps. A step that the job's phase does not allow raises ``IllegalStep``: a defect
of the engine, which quarantines only that job. ``docs/reference/job-phases.md`` shows the table.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final

from schedd.engine.facts.records import BackOff, CurrentRun, JobRecord, Phase, StartAttempt
from schedd.wire.quick_init import quick_replace


class IllegalStep(AssertionError):
    """A step that the job's phase does not allow, or with missing or surplus fields."""


class Step(StrEnum):
    """What may happen to a job."""

    DESCRIBED = "described by the server"
    READ = "read anew"
    GIVEN_SLOT = "given a slot of the plan"
    ELIGIBLE = "eligible since then"
    CHAINED = "placed behind jobs it waits for"
    PLANNED = "planned, or queued under a policy"
    NO_PLACE = "without a place"
    BLOCKED = "blocked"
    ANSWERED = "waits for something else"
    PUT_OFF = "put off"
    FORGIVEN = "forgiven what failed before"
    SET_ASIDE = "set aside"
    DISPATCHED = "sent to the server"
    ACCEPTED = "taken by the server"
    REFUSED = "refused by the server"
    VOID = "its run decision void"
    STARTED = "started"
    RUN_AGAIN = "its run was reported differently"
    OVERRAN = "past its walltime"
    EXTENDED = "its walltime ordered to be another"
    CAME_BACK = "back in its queue"
    PROMISED = "promised a start"
    BLAMED = "without its start, by a cause"
    RISKED = "its promise judged"
    BROKEN = "its promise broken"
    UNPROMISED = "its promise ended"


@dataclass(frozen=True, slots=True)
class Rule:
    """Row of the table: allowed phases, next phase ``to`` (None: unchanged), fields reset to their initial
    values, and fields to set. A dot separates a group and its field.
    """

    of: frozenset[Phase]
    to: Phase | None
    clears: tuple[str, ...]
    sets: tuple[str, ...]


def _rule(of: str, to: Phase | None, clears: str, sets: str) -> Rule:
    return Rule(frozenset(_OF[letter] for letter in of), to, tuple(clears.split()), tuple(sets.split()))


_OF: Final = {"B": Phase.BLOCKED, "W": Phase.WAITING, "D": Phase.DISPATCHED, "R": Phase.RUNNING}
_DECISION: Final = "attempt.decision attempt.accepted"

TABLE: Final[Mapping[Step, Rule]] = {
    Step.DESCRIBED: _rule("BWDR", None, "", "facts"),
    Step.READ: _rule("BW", None, "", "facts understood"),
    Step.GIVEN_SLOT: _rule("BWDR", None, "", "slot"),
    # ---- planning -------------------------------------------------------------------------------
    Step.CHAINED: _rule("BW", None, "", "behind"),
    Step.ELIGIBLE: _rule("BW", None, "", "eligible_since"),
    Step.PLANNED: _rule("BW", Phase.WAITING, "answer", "choice"),
    Step.NO_PLACE: _rule("BW", Phase.WAITING, "choice", "answer"),
    Step.BLOCKED: _rule("BW", Phase.BLOCKED, "choice", "answer"),
    Step.ANSWERED: _rule("BW", None, "", "answer"),
    Step.PUT_OFF: _rule("BW", None, "", "back_off"),
    Step.FORGIVEN: _rule("BW", None, "back_off quarantine", ""),
    Step.SET_ASIDE: _rule("BW", Phase.BLOCKED, "behind choice", "quarantine answer"),
    # ---- starting -------------------------------------------------------------------------------
    Step.DISPATCHED: _rule("W", Phase.DISPATCHED, "answer", "attempt"),
    Step.ACCEPTED: _rule("D", None, "", "attempt"),
    Step.REFUSED: _rule("D", Phase.WAITING, _DECISION, "back_off"),
    Step.VOID: _rule("D", Phase.WAITING, _DECISION, ""),
    # ---- running --------------------------------------------------------------------------------
    Step.STARTED: _rule(
        "BWDR",
        Phase.RUNNING,
        "answer behind choice quarantine attempt.decided"
        " back_off.until back_off.refusals back_off.busy back_off.refusal",
        "facts understood run",
    ),
    Step.RUN_AGAIN: _rule("R", None, "", "facts understood run"),
    Step.OVERRAN: _rule("R", None, "", "run"),
    Step.EXTENDED: _rule("R", None, "", "run"),
    Step.CAME_BACK: _rule("DR", Phase.WAITING, _DECISION + " run answer", "back_off"),
    # ---- promises -------------------------------------------------------------------------------
    Step.PROMISED: _rule("W", None, "", "weak"),
    Step.BLAMED: _rule("BW", None, "", "lost"),
    Step.RISKED: _rule("BWDR", None, "", "lost risk"),
    Step.BROKEN: _rule("BWDR", None, "risk", "breaches"),
    Step.UNPROMISED: _rule("BWDR", None, "weak lost risk eligible_since", "ended"),
}
"""All steps. Other fields of a record stay unchanged."""

_GROUPS: Final[Mapping[str, Any]] = {"attempt": StartAttempt(), "back_off": BackOff(), "run": CurrentRun()}
_BEGINS: Final[Mapping[str, Any]] = {
    one.name: one.default for one in fields(JobRecord) if one.default is not MISSING
}


def initial_value(name: str) -> Any:
    """What a field of a record, or of a group in it, begins as. Raises KeyError."""
    group, _, inner = name.partition(".")
    return getattr(_GROUPS[group], inner) if inner else _BEGINS[name]


def _cleared(rule: Rule) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What a row clears: whole fields, and by group those in a group."""
    whole = {name: initial_value(name) for name in rule.clears if "." not in name}
    if rule.to is not None:
        whole["phase"] = rule.to
    grouped: dict[str, dict[str, Any]] = {}
    for name in rule.clears:
        group, _, inner = name.partition(".")
        if inner:
            grouped.setdefault(group, {})[inner] = initial_value(name)
    return whole, grouped


_NAMES: Final = tuple(one.name for one in fields(JobRecord))
_VALUES: Final = attrgetter(*_NAMES)
_PLACE: Final = {name: place for place, name in enumerate(_NAMES)}


def _changes(
    rule: Rule,
) -> tuple[frozenset[Phase], frozenset[str], list[tuple[int, Any]], list[tuple[int, dict[str, Any]]]]:
    """Phases and fields to set of a row, and by place of a field what the row clears: the field, or parts of
    it.
    """
    whole, grouped = _cleared(rule)
    return (
        rule.of,
        frozenset(rule.sets),
        [(_PLACE[name], value) for name, value in whole.items()],
        [(_PLACE[name], inner) for name, inner in grouped.items()],
    )


_CHANGES: Final = {one: _changes(rule) for one, rule in TABLE.items()}


def apply_step(record: JobRecord, what: Step, **sets: Any) -> JobRecord:
    """The record after a step; ``sets`` are exactly the fields that the step sets. Raises IllegalStep."""
    phases, names, cleared, grouped = _CHANGES[what]
    if record.phase not in phases:
        raise IllegalStep(f"job {record.id} cannot be {what.value}: it is {record.phase.value}")
    if sets.keys() != names:
        wanted = ", ".join(TABLE[what].sets) or "nothing"
        raise IllegalStep(f"{what.value} sets {wanted}, not {', '.join(sets)}")
    # Not by `replace`, which takes twice as long: each job of a long queue comes here more than once.
    values = list(_VALUES(record))
    for place, value in cleared:
        values[place] = value
    for place, inner in grouped:
        values[place] = quick_replace(values[place], **inner)
    for name, value in sets.items():
        values[_PLACE[name]] = value
    return JobRecord(*values)


def find_fault(record: JobRecord) -> str:
    """What of a record does not fit its phase; empty when all does."""
    phase, attempt = record.phase, record.attempt
    if phase is Phase.DISPATCHED:
        wrong = {"no run decision": not attempt.decision, "an answer": record.answer is not None}
    elif phase is Phase.RUNNING:
        wrong = {
            "no start": record.run.started < 0,
            "an answer": record.answer is not None,
            "a wait for others": bool(record.behind),
            "a quarantine": bool(record.quarantine),
            "a back-off": record.back_off
            != BackOff(returns=record.back_off.returns, failed_on=record.back_off.failed_on),
        }
    else:
        wrong = {
            "a run decision": bool(attempt.decision) or attempt.accepted,
            "a run": record.run != CurrentRun(),
            "no answer": phase is Phase.BLOCKED and record.answer is None,
        }
    return "; ".join(f"{phase.value} with {what}" for what, is_so in wrong.items() if is_so)
