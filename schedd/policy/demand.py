"""Demand of all jobs at one time: the circumstances for computing priorities."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from schedd.policy.protocol import Applicant, OwnerShares


@dataclass(frozen=True, slots=True)
class Demand:
    """Total demand and past usage; implements ``protocol.Shares``.

    ``shares`` are the fair shares of owners. ``pressures`` by licence are (copies requested by
    waiting jobs + copies held by running jobs) / existing copies.
    """

    shares: OwnerShares | None = None
    pressures: Mapping[str, float] = field(default_factory=dict)
    shortest: int = 0
    relaxed: int = 0

    def usage(self, job: Applicant) -> float:
        """Return 1 - fair-share factor of the job's owner; 0 without fair share."""
        return 1.0 - self.shares.share(self.shares.key(job)).factor if self.shares is not None else 0.0

    def pressure(self, licence: str) -> float:
        """Return the demand for ``licence`` over its copies."""
        return self.pressures.get(licence, 0.0)

    def beside(self, walltime: int) -> "Demand":
        """Return the demand with one more waiting job of this walltime."""
        if walltime > 0 and not 0 < self.shortest <= walltime:
            return replace(self, shortest=walltime)
        return self


def demand(
    waiting: Iterable[Applicant],
    running: Iterable[Applicant] = (),
    *,
    copies: Mapping[str, int] | None = None,
    shares: OwnerShares | None = None,
) -> Demand:
    """Return the demand of these jobs. ``copies`` are the copies of each licence.

    Source: multilevel.md §3.3 (rho; copies held by running jobs are included) and §3.4 (minext).
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
        shares=shares,
        pressures=pressures,
        shortest=min((job.walltime for job in waiting if job.walltime > 0), default=0),
        relaxed=sum(pressures[name] <= 1 for name in wanted),
    )
