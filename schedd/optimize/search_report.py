"""Report of one search run."""

from dataclasses import dataclass
from enum import StrEnum

from schedd.plan.criteria import Criterion
from schedd.plan.trials import MoveKind


class SearchEndReason(StrEnum):
    """Reason for the end of a search."""

    MOVES = "moves"  # all moves allowed were tried
    SECONDS = "seconds"  # the time limit was reached
    STOPPED = "stopped"  # `stop` was called
    MOVED_ENOUGH = "moved enough"  # the limit of moved jobs was reached
    NOTHING_LEFT = "nothing left"  # all candidate moves were tried
    NOTHING_TO_DO = "nothing to do"  # fewer than two jobs can be moved, or no order of alike jobs is better


@dataclass(frozen=True, slots=True)
class CriterionDelta:
    """Value of one criterion before and after a search; ``unit`` is ``s``, ``jobs`` or ``1``."""

    criterion: Criterion
    unit: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class SearchReport:
    """Report of one search run.

    ``jobs``: movable jobs; ``moved``: jobs with a new place; ``too_late``: moves rejected because a job would
    pass its latest start; ``pulled_left``: jobs that started earlier after accepted moves. ``gain``: weighted
    mean of the relative gains of the criteria, with expected run times (see ``scale_to_expected``);
    ``changes``: criteria of the plan by walltimes.
    """

    kind: MoveKind
    seed: int
    jobs: int
    tried: int
    accepted: int
    too_late: int
    pulled_left: int
    moved: int
    gain: float
    changes: tuple[CriterionDelta, ...]
    why_ended: SearchEndReason
    elapsed_s: float
