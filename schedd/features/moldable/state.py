"""What the engine knows of moldable jobs: the choice for each."""

from dataclasses import dataclass

from schedd.engine.facts.state import EngineState
from schedd.plan.schema import NAMES, NUMBER, declared


@dataclass(slots=True)
class MoldableState:
    """The component's part of the engine's state."""

    chosen: dict[str, int] = declared(NAMES, make=dict, carried=True)
    """By job: the walltime in seconds, or the number of the alternative."""
    examined: int = declared(NUMBER, default=0)  # when better choices were last considered
    choice_second: int = declared(NUMBER, default=0)
    """The last second with repeated choices: choices for jobs that had one."""
    choices: int = declared(NUMBER, default=0)  # number of repeated choices in that second


def moldable_state(state: EngineState) -> MoldableState:
    """The component's part of the engine's state."""
    return state.part(MoldableState)
