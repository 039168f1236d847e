"""Placement of an arriving or replanned job by the site's placement policy."""

from schedd.engine.component.placement_hooks import rearrange_nodes
from schedd.engine.facts.records import Cause, JobRecord, PlacementChoice
from schedd.engine.facts.state import HORIZON, EngineState
from schedd.engine.place.dependencies import last_starts
from schedd.engine.place.node_preferences import move_to_better_nodes
from schedd.engine.rank.promises import record_plan_moves
from schedd.model import FOREVER
from schedd.plan.criteria import parse_criteria
from schedd.plan.evaluate import CriterionWeights
from schedd.plan.latest_starts import latest_starts
from schedd.plan.placement_choice import DisplaceableJobs, choose_placement
from schedd.policy.site import Placing


def place_by_site_policy(
    state: EngineState, record: JobRecord, event: str, *, ahead: bool
) -> tuple[int, PlacementChoice | None]:
    """Place an unplaced job. Return its start, or -1, and the reason if it is not the earliest start.

    ``ahead``: planned jobs with later deadlines may be displaced, if the site allows it; their moves are
    recorded.
    """
    plan, slot, now = state.plan, record.slot, state.now
    placement = state.site.placement
    edf = ahead and placement is Placing.BEST_GAP_EDF
    if placement is Placing.FIRST_GAP or (plan.tiers == 1 and not edf):
        start = plan.place(slot, now, now + HORIZON)
        if start >= 0:
            rearrange_nodes(state, record)
            move_to_better_nodes(state, record, placed_now=True)
        return start, None
    state.describe(record)
    columns = state.columns
    others = None
    if edf:
        patience, use = state.settings.search_patience, state.walltime_use.share
        # An earlier deadline goes before: a start that was just published does not hold here.
        latest = latest_starts(plan, last_starts(state), columns, state.now, patience, use)
        others = DisplaceableJobs(latest, state.rank)
    weights = CriterionWeights(parse_criteria(state.settings.criteria))
    found, promised = None, int(state.promise[slot])
    if now <= promised < FOREVER:  # no better gap is worth a broken promise
        found = choose_placement(plan, slot, columns, now, promised + 1, weights, others)
    if found is None:
        found = choose_placement(plan, slot, columns, now, now + HORIZON, weights, others)
    if found is None:
        return -1, None
    rearrange_nodes(state, record)
    if len(found.moves):
        state.next_due = None
    words = f"job {record.id} with an earlier deadline goes before"
    record_plan_moves(state, event, Cause.DEADLINE, words, found.moves)
    if found.start <= found.first:
        return found.start, None
    return found.start, PlacementChoice(found.start, found.first, plan.slowest(found.tier))
