"""What is seen of nodes' failures.

A node has failed when it was up, went down by itself, and is down for longer than the grace for nodes. Nodes
that were drained or switched off first have not.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from schedd.policy.reliability import Life, failure_rates

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState

__all__ = ["failure_rates_by_row", "note_node_failure", "note_node_state"]

_BLOCK = 300
"""Rates are worked out anew so often, in seconds."""


def note_node_state(state: "EngineState", name: str, now_is: str, *, away: bool) -> None:
    """The server shows a node ``now_is`` (up, drain, down); ``away``: we switched it off."""
    half = state.site.reliability.half_life
    life = state.lives.get(name, Life(state.now)).aged(state.now, half)
    fell = now_is == "down" and not away and (life.is_up or life.fell)
    state.lives[name] = replace(life, is_up=now_is == "up", fell=fell)


def note_node_failure(state: "EngineState", name: str) -> None:
    """A node is down for longer than the grace."""
    life = state.lives.get(name)
    if life is not None and life.fell:
        life = life.aged(state.now, state.site.reliability.half_life)
        state.lives[name] = replace(life, failures=life.failures + 1, fell=False)
        state.flaky = None


def failure_rates_by_row(state: "EngineState") -> dict[int, float]:
    """Failures per second by row of the plan; empty where all nodes fail alike."""
    block = state.now - state.now % _BLOCK
    if state.flaky is None or state.flaky[0] != block:
        rates = failure_rates(state.lives, block, state.site.reliability.half_life)
        rows = state.plan.node_rows
        found = {rows[name]: rate for name, rate in rates.items() if name in rows}
        state.flaky = (block, found if any(found.values()) else {})
    return state.flaky[1]
