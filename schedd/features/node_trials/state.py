"""State of trials: for each closed node the time of its next trial, and the job that tries it."""

from dataclasses import asdict, dataclass, replace
from typing import Final

from schedd.engine.facts.state import EngineState
from schedd.plan.schema import FieldRule, declared


@dataclass(frozen=True, slots=True)
class NodeTrial:
    """Next or present trial of a closed node. Times are seconds since the epoch (UTC).

    ``slot`` keeps jobs off the node that would end after the longest walltime of a trial; -1 while the node
    is closed. ``job`` tries the node. ``passed``: it succeeded, and the node is to be opened.
    """

    node: str
    again_at: int
    pause: int
    opened: int = -1
    slot: int = -1
    job: str = ""
    passed: bool = False


_TRIALS: Final = FieldRule(
    dict,
    lambda trials: list(trials.values()),
    lambda saved: {one["node"]: NodeTrial(**one) for one in saved},
    each=asdict,
    kind=NodeTrial,
)


@dataclass(slots=True)
class NodeTrials:
    """The component's part of the engine's state."""

    trials: dict[str, NodeTrial] = declared(_TRIALS, make=dict, carried=True, lasting=True)  # by node


def trial_records(state: EngineState) -> dict[str, NodeTrial]:
    return state.part(NodeTrials).trials


def shift_trials(part: NodeTrials, _: int, back: int) -> None:
    """Keep the remaining pauses when the clock was set back."""
    part.trials = {name: replace(one, again_at=one.again_at - back) for name, one in part.trials.items()}


def without_slots(part: NodeTrials) -> None:
    """Close nodes that are open for a trial: the plan is rebuilt without their slots."""
    part.trials = {name: replace(one, opened=-1, slot=-1) for name, one in part.trials.items()}
