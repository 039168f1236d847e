"""Settings of a search."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from schedd.plan.criteria import DEFAULT_WEIGHTS, Criterion
from schedd.plan.trials import MoveKind


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Settings of one search. Raises ValueError for values out of range.

    ``moves`` and ``seconds`` limit the search (None: no limit; at least one is needed); without a time limit
    the same plan and ``seed`` give the same result. ``lifted``: largest number of jobs in one move (>= 2).
    ``whole``: number of waiting jobs tried in whole orders, which use at most half of the moves and of the
    time (0: none). ``threshold``: of the bounded slowdown, in seconds. ``most_moved``: the search ends at
    about this number of moved jobs. ``parallel``: number of searches at the same time, each within the limits
    of time and moves (see ``ParallelSearch``).
    """

    kind: MoveKind = MoveKind.TABU
    weights: Mapping[Criterion, float] = field(default_factory=lambda: DEFAULT_WEIGHTS)
    moves: int | None = 200
    seconds: float | None = None
    seed: int = 0
    lifted: int = 8
    whole: int = 200
    threshold: int = 10
    most_moved: int | None = None
    parallel: int = 1

    def __post_init__(self) -> None:
        if self.moves is None and self.seconds is None:
            raise ValueError("a search needs a bound: moves, seconds or both")
        if self.moves is not None and self.moves < 0:
            raise ValueError(f"moves {self.moves}: must be at least 0")
        if self.seconds is not None and not 0 <= self.seconds < float("inf"):
            raise ValueError(f"seconds {self.seconds}: must be finite, at least 0")
        if self.lifted < 2:
            raise ValueError(f"lifted {self.lifted}: must be at least 2")
        for name, least in (("whole", 0), ("threshold", 1), ("most_moved", 0), ("parallel", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} {value}: must be at least {least}")
