"""Read-only views of a plan: start windows of a request, blockers of a job, unmet requirements."""

from schedd.plan.views.blockers import Blockers, LackingRow, PlanBlocker, find_blockers
from schedd.plan.views.blocking_chain import BlockedInterval, blocking_chain
from schedd.plan.views.start_windows import StartWindow, find_windows, join_windows
from schedd.plan.views.unmet_requirements import empty_plan, find_unmet_requirement, has_room_for_a_chunk

__all__ = [
    "BlockedInterval",
    "Blockers",
    "LackingRow",
    "PlanBlocker",
    "StartWindow",
    "blocking_chain",
    "empty_plan",
    "find_blockers",
    "find_unmet_requirement",
    "find_windows",
    "has_room_for_a_chunk",
    "join_windows",
]
