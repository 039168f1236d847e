"""Hard cost limits: a job is planned and started only where it costs no more than its owner allows.

The start of a job with an effective limit is also its earliest start, so that neither repair nor a search
moves it to a more expensive time. An earlier affordable placement is sought every few minutes.
"""

from typing import TYPE_CHECKING

from schedd.dialect.cost_limit import read_cost_limit
from schedd.engine.facts.job_requests import is_eligible
from schedd.engine.facts.pools import make_claim
from schedd.engine.facts.records import JobRecord
from schedd.engine.place.placement_policy import place_by_site_policy
from schedd.model import FOREVER, WaitingFor
from schedd.policy.accounts import SCALE, dearest
from schedd.policy.affordable_places import Tariff, held_portions, move_to_affordable_place, too_expensive

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState

_DAY = 86_400


def _tariff(state: "EngineState") -> Tariff:
    """Return the prices, computed once per day."""
    day = state.now - state.now % _DAY
    if state.tariff is None or state.tariff.day != day:
        nodes = {name: facts.properties for name, facts in state.node_facts.items()}
        state.tariff = Tariff(state.site.economy, nodes, day)
    return state.tariff


def effective_cost_limit(state: "EngineState", record: JobRecord) -> float | None:
    """Return the maximum cost of a job; None where no placement can exceed it, or where limits are soft."""
    site, request = state.site, record.understood.request
    if not site.hard_limits or not site.economy.prices or state.policy is not None or request is None:
        return None
    most = read_cost_limit(record.facts.resources)
    if most is None:
        return None
    amounts = make_claim(record.facts, record.understood).amounts
    seconds = record.understood.walltime
    if not request.exclusive:
        upper = dearest("money", amounts["cpus"], amounts.get("gpus", 0), seconds, site.economy, 0.0)
        if upper <= most * SCALE["money"]:
            return None
    return most


def place_affordably(state: "EngineState", record: JobRecord, event: str) -> WaitingFor | None:
    """Move a placed job to an affordable placement; if none, unplace it and return the reason."""
    state.capped.pop(record.id, None)
    most = effective_cost_limit(state, record)
    if most is None:
        return None
    state.capped[record.id] = None
    state.cost_check_due = state.cost_check_due or state.now + state.settings.priority_every
    slot, plan = record.slot, state.plan
    start, first = move_to_affordable_place(
        plan,
        slot,
        _tariff(state),
        most,
        state.now,
        lambda: place_by_site_policy(state, record, event, ahead=False)[0],
    )
    if start < 0:
        return too_expensive(most, first, state.site.economy.currency)
    plan.set_ready(slot, start)
    return None


def over_limit(state: "EngineState", record: JobRecord) -> bool:
    """Return whether a planned job exceeds its cost limit at its planned start."""
    return record.id in state.capped and exceeds_limit(state, record)


def exceeds_limit(state: "EngineState", record: JobRecord) -> bool:
    """Return whether a planned job would exceed its cost limit with the walltime of this record, on the nodes
    and at the start that are planned.
    """
    most = effective_cost_limit(state, record)
    if most is None:
        return False
    start = max(state.now, state.plan.start(record.slot))
    seconds = record.understood.walltime
    return _tariff(state).cost(held_portions(state.plan, record.slot), start, start + seconds) > most + 1e-9


def move_earlier_affordably(state: "EngineState", record: JobRecord, event: str) -> int:
    """Move a planned job to an earlier affordable placement. Return the previous start; -1: not moved."""
    plan, slot = state.plan, record.slot
    old, takes = plan.start(slot), plan.takes(slot)
    ready = max(state.now, record.facts.not_before or 0, record.back_off.until)
    if old <= ready or record.behind or not is_eligible(record.facts, state.now):
        return -1
    plan.remove(slot, state.now)
    plan.set_ready(slot, ready)
    found = place_by_site_policy(state, record, event, ahead=False)[0]
    if found >= 0 and (place_affordably(state, record, event) is not None or plan.start(slot) >= old):
        found = -1
    if found < 0:
        if plan.start(slot) >= 0:
            plan.remove(slot, state.now)
        plan.place_at(slot, old, takes)
        plan.set_ready(slot, old)
        return -1
    return old


def next_cost_check(state: "EngineState") -> int:
    """Return when earlier affordable placements are sought next; FOREVER: no job has an effective limit."""
    return state.cost_check_due if state.capped else FOREVER
