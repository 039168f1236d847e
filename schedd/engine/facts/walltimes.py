"""Used share of requested walltimes: the plan overestimates durations by its inverse."""

from typing import Final, NamedTuple, Self

_MEMORY: Final = 1000  # number of runs after which the weight of a run is 1/e

_DOUBT: Final = 50  # weight, in runs, of the prior assumption that walltimes are used in full

_LEAST: Final = 0.1  # less is not believed: a day of planned waiting would count for next to nothing


class WalltimeUse(NamedTuple):
    """Of the latest runs: how many, and the cpu-seconds that they asked for and used; older ones fade."""

    runs: float = 0.0
    asked: float = 0.0
    used: float = 0.0

    def after(self, cpus: int, walltime: int, run: int) -> Self:
        """The same with a run more, of ``run`` of its ``walltime`` seconds; past that nothing counts."""
        kept = 1.0 - 1.0 / _MEMORY
        return type(self)(
            self.runs * kept + 1.0,
            self.asked * kept + cpus * walltime,
            self.used * kept + cpus * min(run, walltime),
        )

    @property
    def share(self) -> float:
        """Used of asked, by cpu-seconds, between 0.1 and 1; 1 before anything ran."""
        if self.asked <= 0:
            return 1.0
        believed = (self.runs * self.used / self.asked + _DOUBT) / (self.runs + _DOUBT)
        return max(_LEAST, believed)
