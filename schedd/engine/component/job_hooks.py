"""Hooks about jobs: labels, refusals, runs and their outcomes, predictions, charges, and views."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from schedd.engine.component.hook_values import ForecastRounds, RunTimeSource, StartBarrier
from schedd.engine.component.registry import (
    component_calls,
    components,
    find_named,
    job_calls,
    note_idle_hooks,
    select_calls,
    working_calls,
)
from schedd.engine.facts.bookkeeping import note_failed_bookkeeping
from schedd.model import Never, WaitingFor
from schedd.policy.job_selection import JobSelection
from schedd.policy.limits import label_scope
from schedd.predict import DelayRisk, ProbabilityBin
from schedd.wire import JobDeleted, JobEnded, JobFacts, ShareFacts

if TYPE_CHECKING:
    from schedd.engine.facts.records import JobRecord
    from schedd.engine.facts.state import EngineState
    from schedd.engine.show.plan_snapshot import PlanSnapshot


def report_about_job(state: "EngineState", hook: str, facts: JobFacts, what: str, *about: object) -> None:
    """Call a hook of the components for bookkeeping about a job, with ``about``. An error in one is reported
    as ``what``, followed by the name of the component, and has no other effect.

    It does the same as ``Bookkeeping`` around each call, without a block for each: most have nothing to do.
    """
    idle = state.idle_hooks
    if idle is None:
        idle = note_idle_hooks(state)
    # As `working_job_calls`, but without its call: several times for each job.
    for name, call in select_calls(hook, idle, find_named(tuple(facts.resources)))(state.parts):
        try:
            call(state, *about)
        except Exception as error:
            if not note_failed_bookkeeping(state, facts.id, f"{what} {name}", error):
                raise


def report_end(state: "EngineState", event: JobDeleted | JobEnded) -> None:
    """Report to the components, in the same way, that a job is gone from the server."""
    for name, call in select_calls("job_gone")(state.parts):
        try:
            call(state, event)
        except Exception as error:
            if not note_failed_bookkeeping(state, event.job_id, f"its end in the component {name}", error):
                raise


def run_time_predictions(state: "EngineState") -> RunTimeSource | None:
    """Return the source of predicted run times of the first component that has one; None: none has."""
    for _, call in component_calls("run_time_predictions"):
        found: RunTimeSource | None = call(state)
        if found is not None:
            return found
    return None


def forecast_rounds(state: "EngineState") -> ForecastRounds:
    """Return when expected starts were computed, by the first component that computes them."""
    for _, call in component_calls("forecast_rounds"):
        found: ForecastRounds | None = call(state)
        if found is not None:
            return found
    return ForecastRounds()


def start_barrier(published: "PlanSnapshot", record: "JobRecord") -> StartBarrier | None:
    """Return why a component lets a planned job start no earlier, by the first component that keeps it."""
    for _, call in component_calls("start_barrier"):
        found: StartBarrier | None = call(published, record)
        if found is not None:
            return found
    return None


def job_delay_risk(published: "PlanSnapshot", facts: JobFacts, *, runs: bool) -> DelayRisk | None:
    """Return the risk that later jobs delay a job while it waits or ``runs``, by the first component that
    knows one.
    """
    for _, call in component_calls("delay_risk"):
        found: DelayRisk | None = call(published, facts, runs)
        if found is not None:
            return found
    return None


def first_estimates(state: "EngineState", job: str) -> dict[str, int]:
    """Return the first expected start of a job by kind of estimate."""
    found: dict[str, int] = {}
    for _, call in component_calls("first_estimates"):
        found |= call(state, job)
    return found


def deadline_accuracy(published: "PlanSnapshot") -> dict[str, Sequence[ProbabilityBin]]:
    """Return predicted and observed probabilities of ends in time, by kind of forecast."""
    found: dict[str, Sequence[ProbabilityBin]] = {}
    for one in components():
        if one.deadline_accuracy is not None:
            found |= one.deadline_accuracy(published)
    return found


def judge_run(
    state: "EngineState", record: "JobRecord", nodes: Sequence[str], event: str, *, failed: bool
) -> None:
    """Report to the components whether a job failed early on nodes, or was refused there."""
    for _, call in working_calls(state, "run_judged"):
        call(state, record, nodes, event, failed)


def note_busy_refusal(state: "EngineState", record: "JobRecord", share: ShareFacts, event: str) -> None:
    """Report to the components that the server refused the start of a job on one node as busy."""
    for _, call in component_calls("refused_as_busy"):
        call(state, record, share, event)


def note_dispatch(state: "EngineState", record: "JobRecord", nodes: Sequence[str], event: str) -> None:
    """Report to the components a run decision for a job on these nodes."""
    for _, call in working_calls(state, "job_dispatched"):
        call(state, record, nodes, event)


def job_labels(known: "EngineState | PlanSnapshot", facts: JobFacts) -> dict[str, str]:
    """The labels of a job, by kind."""
    return {
        kind: name
        for _, find in job_calls(known, "labels", facts)
        for kind, name in find(known, facts).items()
    }


def job_scopes(known: "EngineState | PlanSnapshot", facts: JobFacts) -> frozenset[str]:
    """The labels of a job as the scopes of limits that count it: see ``Limit.scope``."""
    labels = job_labels(known, facts)
    return frozenset(map(label_scope, labels, labels.values()))


def selects_job(selection: JobSelection, known: "EngineState | PlanSnapshot", facts: JobFacts) -> bool:
    """Return whether the selection has the job, which may be by its QOS."""
    return selection.selects(facts, job_labels(known, facts).get("qos", "") if selection.qos else "")


def job_refusal(known: "EngineState | PlanSnapshot", facts: JobFacts) -> Never | None:
    """Why a job can never run as it was submitted; None: it can."""
    for _, find in job_calls(known, "refusal", facts):
        found: Never | None = find(known, facts)
        if found is not None:
            return found
    return None


def charge_factor(known: "EngineState | PlanSnapshot", facts: JobFacts) -> float:
    """The factor of the cost of a job: the product of all components' factors."""
    factor = 1.0
    for _, find in job_calls(known, "charge_factor", facts):
        factor *= find(known, facts)
    return factor


def charged_jobs(state: "EngineState", record: "JobRecord") -> Sequence[JobFacts]:
    """Return the jobs that name the owners charged with an ended run; usually the job itself."""
    for one in components():
        found = one.charged_jobs(state, record) if one.charged_jobs is not None else None
        if found is not None:
            return found
    return (record.facts,)


def is_requeued_on_purpose(state: "EngineState", record: "JobRecord") -> bool:
    """Whether a component requeued a running job that is back in its queue."""
    checks = (one.requeued_on_purpose for one in components())
    return any(check(state, record) for check in checks if check is not None)


def comment_remarks(state: "EngineState", record: "JobRecord", start: int) -> list[str]:
    """Remarks of all components for the comment of a job with a planned start."""
    return [remark for _, call in component_calls("comment_remarks") for remark in call(state, record, start)]


def job_details(published: "PlanSnapshot", record: "JobRecord", start: int) -> dict[str, Any]:
    """By field of a job's view: the values of components."""
    found: dict[str, Any] = {}
    for _, find in component_calls("job_details"):
        found |= find(published, record, start)
    return found


def component_notes(published: "PlanSnapshot", record: "JobRecord") -> list[str]:
    return [note for one in components() if one.notes is not None for note in one.notes(published, record)]


def present_wait(published: "PlanSnapshot", record: "JobRecord") -> WaitingFor | None:
    """What a waiting job waits for, if its words change while it waits."""
    for one in components():
        if one.present_wait is not None and (found := one.present_wait(published, record)) is not None:
            return found
    return None


def leave_components(state: "EngineState", key: str) -> None:
    """Report to the components that a job or use left the plan and does not run."""
    for _, call in working_calls(state, "job_left_plan"):
        call(state, key)


def awaits(state: "EngineState", decision: Any) -> bool | None:
    """Whether what the decision led to is still awaited; None for a decision of no component."""
    for one in components():
        check = one.open_decisions.get(type(decision))
        if check is not None:
            return check(state, decision)
    return None
