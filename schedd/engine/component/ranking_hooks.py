"""Hooks about ranks and fair shares, the order of planning."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from schedd.engine.component.hook_values import Floats
from schedd.engine.component.registry import component_calls, components, job_calls, working_job_calls
from schedd.policy.protocol import Breakdown, OwnerShares
from schedd.wire import JobFacts

if TYPE_CHECKING:
    from schedd.engine.facts.records import JobRecord
    from schedd.engine.facts.state import EngineState
    from schedd.engine.show.plan_snapshot import PlanSnapshot


def goes_last(state: "EngineState", record: "JobRecord") -> bool:
    """Whether a component wants a job planned after all others."""
    for _, check in working_job_calls(state, "goes_last", record.facts):  # noqa: SIM110  (each arrival asks)
        if check(state, record.id):
            return True
    return False


def ranking_setting(published: "PlanSnapshot") -> str:
    """The setting of a component that ranks jobs; empty: jobs are ranked by weights."""
    found = (one.ranked_by(published) for one in components() if one.ranked_by is not None)
    return next(filter(None, found), "")


def policy_note(published: "PlanSnapshot") -> str:
    """What components put in force in place of parts of the policy; empty: nothing."""
    found = (one.policy_note(published) for one in components() if one.policy_note is not None)
    return " ".join(filter(None, found))


def component_ranks(state: "EngineState", records: Sequence["JobRecord"]) -> Sequence[int] | None:
    """The ranks of these jobs by the first component that ranks jobs now; None: none does."""
    for _, call in job_calls(state, "ranks"):
        found: Sequence[int] | None = call(state, records)
        if found is not None:
            return found
    return None


def owner_shares(state: "EngineState") -> OwnerShares | None:
    """The fair shares of owners as of the last ranking; None: there is no fair share."""
    for _, call in component_calls("owner_shares"):
        shares: OwnerShares | None = call(state)
        if shares is not None:
            return shares
    return None


def present_shares(state: "EngineState", *, keep: bool = False) -> OwnerShares | None:
    """Fair shares of owners now; None: no fair share. ``keep``: for the ranking that begins now."""
    found = (one.present_shares(state, keep) for one in components() if one.present_shares is not None)
    return next((shares for shares in found if shares is not None), None)


def usage_history(state: "EngineState") -> Floats | None:
    """By number of user: (seconds waited, cpu-seconds used) of earlier jobs; None: unknown."""
    found = (one.usage_history(state) for one in components() if one.usage_history is not None)
    return next((history for history in found if history is not None), None)


def component_breakdown(state: "EngineState", record: "JobRecord") -> Breakdown | None:
    """How the rank of a job comes about by the first component that ranks jobs now; None: none does."""
    for one in components():
        found = one.priority_breakdown(state, record) if one.priority_breakdown is not None else None
        if found is not None:
            return found
    return None


def label_points(known: "EngineState | PlanSnapshot", facts: JobFacts) -> float:
    """The points of a job by its labels, for the priority term ``qos``."""
    points: float = sum(call(known, facts) for _, call in job_calls(known, "label_points", facts))
    return points
