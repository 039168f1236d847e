"""Hooks about promised starts."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from schedd.engine.component.registry import components, job_calls
from schedd.model import FOREVER
from schedd.wire import JobFacts

if TYPE_CHECKING:
    from schedd.engine.facts.records import Cause, JobRecord
    from schedd.engine.facts.state import EngineState
    from schedd.engine.show.plan_snapshot import PlanSnapshot


@cache
def promise_ends() -> frozenset[str]:
    """The kinds of waiting for a condition of a component that end the promise of a job."""
    return frozenset().union(*(one.ends_promise for one in components()))


@cache
def wait_causes() -> Mapping[str, "Cause"]:
    """The causes of lost starts by the kind of waiting for a condition of a component."""
    return {kind: cause for one in components() for kind, cause in one.wait_causes.items()}


def gets_no_promise(known: "EngineState | PlanSnapshot", facts: JobFacts) -> bool:
    """Whether a component wants no promise for a job."""
    for _, check in job_calls(known, "promises_nothing", facts):  # noqa: SIM110  (no generator: each arrival asks)
        if check(known, facts):
            return True
    return False


def guaranteed_start(state: "EngineState", record: "JobRecord", planned: int) -> int:
    """The latest start that components guarantee to a job that is planned for then; FOREVER: none."""
    latest = FOREVER
    for _, find in job_calls(state, "guaranteed_start", record.facts):
        latest = min(latest, find(state, record, planned))
    return latest


def lost_by_alteration(known: "EngineState | PlanSnapshot", job: str) -> str:
    """Why an altered request cannot keep the place of a job, which ends its promise; empty: it can."""
    checks = (one.lost_by_alteration for one in components())
    return next((why for check in checks if check is not None and (why := check(known, job))), "")


def report_ended_promise(state: "EngineState", record: "JobRecord") -> None:
    """Report to the components that the promise of a job ended without being broken."""
    for one in components():
        if one.promise_ended is not None:
            one.promise_ended(state, record)
