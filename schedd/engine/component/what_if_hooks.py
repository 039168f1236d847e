"""Hooks about hypothetical jobs, explanations and previews."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from schedd.engine.component.hook_values import PreemptedRun
from schedd.engine.component.registry import components
from schedd.predict import EndForecast
from schedd.wire import JobFacts

if TYPE_CHECKING:
    from schedd.engine.facts.job_requests import ParsedRequest
    from schedd.engine.facts.records import JobRecord
    from schedd.engine.facts.state import EngineState
    from schedd.engine.show.plan_snapshot import PlanSnapshot


def rank_in_what_if(published: "PlanSnapshot", facts: JobFacts, understood: "ParsedRequest") -> int | None:
    """The rank of a hypothetical job by the first component that ranks jobs now; None: unknown."""
    for one in components():
        found = None
        if one.rank_in_what_if is not None:
            found = one.rank_in_what_if(published, facts, understood)
        if found is not None:
            return found
    return None


def preempted_runs(state: "EngineState") -> list[PreemptedRun]:
    """Return the running jobs that would be preempted; ``state`` is a copy for a preview."""
    calls = (one.preempted_in_preview for one in components())
    return [run for call in calls if call is not None for run in call(state)]


def arrival_note(state: "EngineState", record: "JobRecord") -> str:
    """Return what the first component with an effect on others does for a hypothetical job that arrived in
    this copy of the state; empty: nothing.
    """
    calls = (one.arrival_note for one in components())
    return next((note for call in calls if call is not None and (note := call(state, record))), "")


def variants_in_what_if(published: "PlanSnapshot", facts: JobFacts) -> Sequence[JobFacts]:
    """The forms of a hypothetical job; the job itself if it has only one."""
    found: Sequence[JobFacts] = (facts,)
    for one in components():
        if one.variants_in_what_if is not None:
            found = [other for job in found for other in one.variants_in_what_if(published, job) or (job,)]
    return found


def walltimes_in_what_if(published: "PlanSnapshot", facts: JobFacts) -> tuple[int, int] | None:
    """Return the shortest and the longest walltime of a hypothetical job with a range; None: no range."""
    calls = (one.walltimes_in_what_if for one in components())
    found = (call(published, facts) for call in calls if call is not None)
    return next((one for one in found if one is not None), None)


def slots_named(published: "PlanSnapshot", name: str, caller: str) -> Sequence[int] | None:
    """Return the slots of a caller's object with a name; None: unknown to all components."""
    for one in components():
        found = one.slots_named(published, name, caller) if one.slots_named is not None else None
        if found is not None:
            return found
    return None


def jobs_of_slots(published: "PlanSnapshot") -> dict[int, str]:
    """Return by slot the jobs for which components hold it."""
    found: dict[int, str] = {}
    for one in components():
        if one.jobs_of_slots is not None:
            found |= one.jobs_of_slots(published)
    return found


def what_if_details(
    published: "PlanSnapshot",
    facts: JobFacts,
    understood: "ParsedRequest",
    start: int,
    promised: int,
    end: EndForecast | None,
) -> dict[str, Any]:
    """By field of a what-if result: the values of components."""
    found: dict[str, Any] = {}
    for one in components():
        if one.what_if_details is not None:
            found |= one.what_if_details(published, facts, understood, start, promised, end)
    return found
