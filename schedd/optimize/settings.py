"""What may be set about a search."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from schedd.plan.evaluate import DEFAULT_WEIGHTS, Criterion
from schedd.plan.trials import Kind

__all__ = ["Kind", "SearchSettings"]


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """One search.

    ``moves`` and ``seconds`` bound it (None: no bound; or both); with a bound on moves alone the same plan
    and ``seed`` give the same result. ``lifted`` is the most jobs that one move lifts (at least 2).
    ``whole``: so many waiting jobs, of more the foremost, are first tried in whole orders, each a move; with
    half of all moves, and of the time, at most (0: none). ``threshold`` is that of the bounded slowdown, in
    seconds. With ``most_moved`` the search ends when so many jobs were moved (a few more may be).
    Raises ValueError.
    """

    kind: Kind = Kind.TABU
    weights: Mapping[Criterion, float] = field(default_factory=lambda: DEFAULT_WEIGHTS)
    moves: int | None = 200
    seconds: float | None = None
    seed: int = 0
    lifted: int = 8
    whole: int = 200
    threshold: int = 10
    most_moved: int | None = None

    def __post_init__(self) -> None:
        if self.moves is None and self.seconds is None:
            raise ValueError("a search needs a bound: moves, seconds or both")
        if self.moves is not None and self.moves < 0:
            raise ValueError(f"moves {self.moves}: must be at least 0")
        if self.seconds is not None and not 0 <= self.seconds < float("inf"):
            raise ValueError(f"seconds {self.seconds}: must be finite, at least 0")
        if self.lifted < 2:
            raise ValueError(f"lifted {self.lifted}: must be at least 2")
        for name, least in (("whole", 0), ("threshold", 1), ("most_moved", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} {value}: must be at least {least}")
