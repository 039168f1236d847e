"""Application of search results and chosen plans to the live plan. No promise is broken by it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from schedd.engine.facts.explanations import format_length
from schedd.engine.facts.records import Cause, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.place.dependencies import last_starts
from schedd.engine.place.start_holds import last_starts_on_hold
from schedd.engine.rank.promises import record_plan_moves
from schedd.plan.columns import PLANNED, Ints
from schedd.plan.criteria import parse_criteria
from schedd.plan.evaluate import CriterionWeights
from schedd.plan.latest_starts import latest_starts
from schedd.plan.placements import Allocation
from schedd.plan.plan import Plan
from schedd.plan.rebase import rebase
from schedd.plan.records import NO_MOVES, Moves, Take
from schedd.wire import PlaceFacts, PlanChosen, PlanImproved, UnitsFacts

IMPROVED_BY_SEARCH: Final = "the optimizer improved the plan"


def movable_slots(state: EngineState) -> Ints:
    """The slots that a search could move: of planned jobs that do not start now."""
    jobs = state.plan.jobs
    found: Ints = np.flatnonzero((jobs.states == PLANNED) & (jobs.starts > state.now))
    return found


def improvement_event(
    event: str, now: int, plan: Plan, jobs: Mapping[int, str], places: Iterable[Allocation]
) -> PlanImproved:
    """Return the event for ``places`` on ``plan`` or a fork of it; ``jobs``: job ids by slot."""
    return PlanImproved(id=event, time=now, places=place_facts(plan, jobs, places))


def place_facts(plan: Plan, jobs: Mapping[int, str], places: Iterable[Allocation]) -> tuple[PlaceFacts, ...]:
    """Return ``places`` on ``plan`` in the form of events; ``jobs``: job ids by slot."""
    return tuple(_place_facts(plan, jobs[place.slot], place) for place in places)


def _place_facts(plan: Plan, job_id: str, place: Allocation) -> PlaceFacts:
    units = (UnitsFacts(plan.node_names[take.row], take.chunk, take.units) for take in place.takes)
    return PlaceFacts(job_id, place.start, tuple(units))


def on_plan_improved(state: EngineState, event: PlanImproved) -> None:
    """Move jobs to the places that the search found for them: see ``rebase``. No promise is broken by it."""
    _note_moves(state, event, Cause.IMPROVED, IMPROVED_BY_SEARCH, _apply_places(state, event, must_gain=True))


def on_plan_chosen(state: EngineState, event: PlanChosen) -> None:
    """Move all waiting jobs to the plan that an admin chose, or none. No promise is broken."""
    words = f"{event.by} chose another plan" if event.by else Cause.CHOSEN.value
    _note_moves(state, event, Cause.CHOSEN, words, _apply_places(state, event, must_gain=False))


def _note_moves(
    state: EngineState, event: PlanImproved | PlanChosen, cause: Cause, words: str, moves: Moves
) -> None:
    record_plan_moves(state, event.id, cause, f"{words} ({_describe_total(moves)})", moves)
    state.jobs_moved_by[event.id] = len(moves)


def _describe_total(moves: Moves) -> str:
    """Return `2 jobs start 11 h earlier in all, 1 job 1 min later`."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for slot, old, new in zip(moves.slots.tolist(), moves.old.tolist(), moves.new.tolist(), strict=True):
        first.setdefault(slot, old)
        last[slot] = new
    later = [last[slot] - start for slot, start in first.items() if min(start, last[slot]) >= 0]
    gains, losses = [-one for one in later if one < 0], [one for one in later if one > 0]
    parts: list[str] = []
    for found, how in ((gains, "earlier"), (losses, "later")):
        if found:
            jobs = "1 job" if len(found) == 1 else f"{len(found)} jobs"
            does = "" if parts else " starts" if len(found) == 1 else " start"
            parts.append(f"{jobs}{does} {format_length(sum(found))} {how}{' in all' * (len(found) > 1)}")
    return ", ".join(parts) or "only nodes were changed"


def _apply_places(state: EngineState, event: PlanImproved | PlanChosen, *, must_gain: bool) -> Moves:
    places = [place for facts in event.places if (place := _place(state, facts)) is not None]
    if state.policy is not None or not places:
        return NO_MOVES
    plan, columns = state.plan, state.columns
    weights = CriterionWeights(parse_criteria(state.settings.criteria))
    patience = state.settings.search_patience
    use = state.walltime_use.share
    # An admin's choice may move starts that were just published, a search's may not.
    bound = last_starts_on_hold(state) if must_gain else last_starts(state)
    latest = latest_starts(plan, bound, columns, state.now, patience, use)
    rebased = rebase(
        plan,
        places,
        columns,
        latest,
        state.now,
        weights,
        patience=patience,
        use=use,
        must_gain=must_gain,
    )
    state.next_due = None
    return rebased.moves


def _place(state: EngineState, facts: PlaceFacts) -> Allocation | None:
    """The place as the plan has it; None when the job is not planned, or not of this shape, any more."""
    record = state.records.get(facts.job_id)
    if record is None or record.phase is not Phase.WAITING or record.slot < 0:
        return None
    return find_allocation(state.plan, record.slot, facts)


def find_allocation(plan: Plan, slot: int, facts: PlaceFacts) -> Allocation | None:
    """Return the place of an event as an allocation for the job in ``slot``, free or not; None if the job is
    not planned, or its request has another shape than the place.
    """
    takes = _takes(plan, slot, facts) if plan.state(slot) == PLANNED else None
    return None if takes is None else Allocation(slot, facts.start, takes)


def _takes(plan: Plan, slot: int, facts: PlaceFacts) -> tuple[Take, ...] | None:
    chunks, exclusive = plan.chunks(slot), plan.request(slot).exclusive
    nothing = (0,) * len(plan.resource_columns)
    counts: Counter[int] = Counter()
    seen: set[int] = set()
    takes = []
    for units in facts.units:
        row = plan.node_rows.get(units.node)
        if row is None or not 0 <= units.chunk < len(chunks) or units.units < 1:
            return None
        chunk = chunks[units.chunk]
        if units.units > chunk.per_node or (chunk.per_node == 1 and row in seen):
            return None
        if exclusive:
            amounts = nothing if row in seen else plan.whole_node_amounts(row, chunk.need)
        else:
            amounts = tuple(units.units * need for need in chunk.need)
        takes.append(Take(row, units.chunk, units.units, amounts))
        counts[units.chunk] += units.units
        seen.add(row)
    wanted = {i: chunk.count for i, chunk in enumerate(chunks)}
    return tuple(takes) if counts == wanted else None
