"""What all jobs together come to at one moment: the circumstances under which priorities are computed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from schedd.policy.fair_share import FairShare, Path, factors
from schedd.policy.protocol import Applicant

__all__ = ["Demand", "demand"]


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked for and has been used; implements ``protocol.Shares``.

    ``factors`` are fair-share factors by leaf of ``tree``; ``pressures`` by licence: copies asked for by
    waiting jobs and held by running ones, over the copies there are.
    """

    tree: FairShare | None = None
    factors: Mapping[Path, float] = field(default_factory=dict)
    pressures: Mapping[str, float] = field(default_factory=dict)
    shortest: int = 0
    relaxed: int = 0

    def usage(self, job: Applicant) -> float:
        """1 less the fair-share factor of whom the job belongs to; 0 without a tree."""
        return 1.0 - self.factors.get(self.tree.path(job), 1.0) if self.tree is not None else 0.0

    def pressure(self, licence: str) -> float:
        """How much is asked of ``licence``, over what there is."""
        return self.pressures.get(licence, 0.0)

    def beside(self, walltime: int) -> "Demand":
        """With one more waiting job of this length, which may be the shortest."""
        if walltime > 0 and not 0 < self.shortest <= walltime:
            return replace(self, shortest=walltime)
        return self


def demand(
    waiting: Iterable[Applicant],
    running: Iterable[Applicant] = (),
    *,
    copies: Mapping[str, int] | None = None,
    tree: FairShare | None = None,
    used: Mapping[Path, tuple[float, float]] | None = None,
) -> Demand:
    """The demand of these jobs; ``copies`` are how many there are of each licence, ``used`` what
    ``Usage.decayed`` says.

    Source: multilevel.md §3.3 (rho; of running jobs the copies they hold count too) and §3.4 (minext).
    """
    waiting = list(waiting)
    copies = copies or {}
    asked: dict[str, int] = {}
    for job in (*waiting, *running):
        for name, amount in job.licences:
            asked[name] = asked.get(name, 0) + amount
    pressures = {name: amount / max(1, copies.get(name, 0)) for name, amount in sorted(asked.items())}
    wanted = {name for job in waiting for name, _ in job.licences}
    return Demand(
        tree=tree,
        factors=factors(tree, used or {}, {tree.path(job) for job in waiting}) if tree is not None else {},
        pressures=pressures,
        shortest=min((job.walltime for job in waiting if job.walltime > 0), default=0),
        relaxed=sum(pressures[name] <= 1 for name in wanted),
    )
