"""What the engine knows of policy periods: the present one, and when it ends."""

from dataclasses import dataclass

from schedd.engine.facts.state import EngineState
from schedd.plan.schema import NUMBER, declared


@dataclass(slots=True)
class PeriodState:
    """The component's part of the engine's state."""

    name: str = declared(NUMBER, default="", carried=True)
    """The present period; empty: none."""
    until: int = declared(NUMBER, default=0, carried=True)
    """When another one may begin, in seconds since the epoch; 0: the site has no periods."""


def examine_again(part: PeriodState, now: int, _: int) -> None:
    """Find the present period again, after the clock was set back."""
    part.until = min(part.until, now)


def period_state(state: EngineState) -> PeriodState:
    """The component's part of the engine's state."""
    return state.part(PeriodState)
