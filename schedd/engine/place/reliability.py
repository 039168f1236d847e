"""Failure history of nodes.

A node has failed when it was up, went down by itself, and stays down beyond the grace for nodes. A node that
was drained or switched off before has not failed.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from schedd.policy.reliability import Life, failure_rates

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState

_BLOCK = 300  # failure rates are recomputed at this interval, seconds


def note_node_state(state: "EngineState", name: str, now_is: str, *, away: bool) -> None:
    """Record a node's state (up, drain, down) by the server; ``away``: power saving switched it off."""
    half = state.site.reliability.half_life
    life = state.lives.get(name, Life(state.now)).aged(state.now, half)
    fell = now_is == "down" and not away and (life.is_up or life.fell)
    state.lives[name] = replace(life, is_up=now_is == "up", fell=fell)


def note_node_failure(state: "EngineState", name: str) -> None:
    """Count a failure of a node that is down beyond the grace."""
    life = state.lives.get(name)
    if life is not None and life.fell:
        life = life.aged(state.now, state.site.reliability.half_life)
        state.lives[name] = replace(life, failures=life.failures + 1, fell=False)
        state.failure_rates = None


def failure_rates_by_row(state: "EngineState") -> dict[int, float]:
    """Return failures per second by row of the plan; empty where all nodes fail equally often."""
    block = state.now - state.now % _BLOCK
    if state.failure_rates is None or state.failure_rates[0] != block:
        rates = failure_rates(state.lives, block, state.site.reliability.half_life)
        rows = state.plan.node_rows
        found = {rows[name]: rate for name, rate in rates.items() if name in rows}
        state.failure_rates = (block, found if any(found.values()) else {})
    return state.failure_rates[1]
