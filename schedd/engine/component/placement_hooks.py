"""Hooks about the place of a job in the plan: conditions, restrictions, nodes, and named reservations."""

from typing import TYPE_CHECKING

from schedd.engine.component.hook_values import Confinement, Restriction
from schedd.engine.component.registry import components, job_calls, working_calls, working_job_calls
from schedd.model import FOREVER, Never, WaitingFor
from schedd.wire import JobFacts

if TYPE_CHECKING:
    from schedd.engine.facts.records import Cause, JobRecord
    from schedd.engine.facts.state import EngineState
    from schedd.engine.show.plan_snapshot import PlanSnapshot


def component_wait(state: "EngineState", record: "JobRecord") -> WaitingFor | Never | None:
    """What a job must wait for before it may be planned, or why it can never run; None: it may be planned."""
    for name, check in job_calls(state, "must_wait", record.facts):
        wait: WaitingFor | Never | None = check(state, record)
        if wait is not None:
            for other, leave in working_calls(state, "job_left_plan"):
                if other != name:  # what the others hold for the job is not needed while it waits
                    leave(state, record.id)
            return wait
    return None


def component_confinement(state: "EngineState", record: "JobRecord") -> Confinement | None:
    """Return the only place and time of a job; None: any."""
    for _, check in working_job_calls(state, "confinement", record.facts):
        found: Confinement | None = check(state, record)
        if found is not None:
            return found
    return None


def job_restriction(known: "EngineState | PlanSnapshot", facts: JobFacts) -> Restriction | None:
    """The nodes and times to which a job is restricted; None: to none.

    If several components restrict it, all restrictions hold. At most one of them has a pool.
    """
    found: Restriction | None = None
    for _, restricts in job_calls(known, "restriction", facts):
        other = restricts(known, facts)
        if other is not None and found is not None:
            found = Restriction(
                f"{found.place} in {other.place}",
                (*found.nodes, *other.nodes),
                found.pool or other.pool,
                " or ".join(filter(None, (found.remedy, other.remedy))),
            )
        elif other is not None:
            found = other
    return found


def planned_facts(state: "EngineState", facts: JobFacts) -> JobFacts:
    """The facts of a job with the alternatives of its request that components chose."""
    for _, replaces in job_calls(state, "planned_facts", facts):
        facts = replaces(state, facts)
    return facts


def latest_end(known: "EngineState | PlanSnapshot", facts: "JobFacts") -> int:
    """Return the time by which a job with a range of walltimes should end; FOREVER: any."""
    calls = (one.latest_end for one in components())
    return min((call(known, facts) for call in calls if call is not None), default=FOREVER)


def may_lengthen(state: "EngineState", record: "JobRecord") -> bool:
    """Whether all components allow a planned or running job the longer walltime of this record."""
    return all(one.may_lengthen(state, record) for one in components() if one.may_lengthen is not None)


def prepare_start(state: "EngineState", record: "JobRecord") -> "JobRecord":
    """Let components change the request or the placement of a job that is started now."""
    for _, prepares in job_calls(state, "before_start", record.facts):
        record = prepares(state, record) or record
    return record


def walltime_at_start(state: "EngineState", record: "JobRecord") -> int | None:
    """The walltime to set on the server before a job runs; None: the server keeps the present one."""
    for _, find in job_calls(state, "walltime_at_start", record.facts):
        found: int | None = find(state, record)
        if found is not None:
            return found
    return None


def form_must_wait(state: "EngineState", record: "JobRecord") -> bool:
    """Return whether a component would let a job wait with the request of this record."""
    calls = job_calls(state, "form_must_wait", record.facts)
    return any(check(state, record) for _, check in calls)


def node_order(known: "EngineState | PlanSnapshot", facts: JobFacts) -> str:
    """The name of the order of nodes that is preferred for a job; empty: none."""
    for _, find in job_calls(known, "node_order", facts):
        name: str = find(known, facts)
        if name:
            return name
    return ""


def rearrange_nodes(state: "EngineState", record: "JobRecord") -> None:
    """Let components move a job that was placed just now to other nodes at its start."""
    for _, arranges in job_calls(state, "after_placement", record.facts):
        arranges(state, record)


def is_known_reservation(known: "EngineState | PlanSnapshot", name: str) -> bool:
    """Whether a component has, or had, a reservation of this name that jobs may name."""
    checks = (one.knows_reservation for one in components())
    return any(check(known, name) for check in checks if check is not None)


def is_own_reservation(known: "EngineState | PlanSnapshot", facts: JobFacts, name: str) -> bool:
    """Whether the owner of a job has a reservation of this name for himself."""
    checks = (one.owns_reservation for one in components())
    return any(check(known, facts, name) for check in checks if check is not None)


def reason_to_replan(state: "EngineState", record: "JobRecord") -> "tuple[Cause, str] | None":
    """Why a due job must be planned again instead of started; None: it may start."""
    for _, call in job_calls(state, "reason_to_replan", record.facts):
        found: tuple[Cause, str] | None = call(state, record)
        if found is not None:
            return found
    return None


def unmovable_jobs(known: "EngineState | PlanSnapshot") -> list[str]:
    """Planned jobs that components keep where they are."""
    return [
        job for one in components() if one.unmovable_jobs is not None for job in one.unmovable_jobs(known)
    ]


def is_planned_on_hold(state: "EngineState", record: "JobRecord") -> bool:
    """Return whether a job is planned although it is on hold."""
    for _, check in working_calls(state, "planned_on_hold"):  # noqa: SIM110  (no generator: each arrival asks)
        if check(state, record):
            return True
    return False
