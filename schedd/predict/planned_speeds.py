"""Speed of the nodes on which jobs are planned: run times follow the slowest of them."""

from collections.abc import Iterable
from dataclasses import dataclass

from schedd.plan.plan import Plan


def speed_range(plan: Plan) -> tuple[float, float]:
    """Return the speeds of the slowest and the fastest node; 1 without nodes."""
    speeds = plan.speeds
    return min(speeds, default=1.0), max(speeds, default=1.0)


@dataclass(frozen=True, slots=True)
class PlannedSpeeds:
    """Speeds of the nodes of one plan.

    ``typical`` is assumed for a job without planned nodes: the median over the nodes.
    """

    plan: Plan
    typical: float

    @classmethod
    def from_plan(cls, plan: Plan) -> "PlannedSpeeds | None":
        """Return the speeds; None: all nodes have speed 1."""
        if all(speed == 1.0 for speed in plan.speeds):
            return None
        return cls(plan, plan.typical_speed)

    def job_speed(self, slot: int) -> float:
        """Return the speed of the slowest planned node of the job in this slot; -1: it has no slot."""
        if slot < 0 or self.plan.start(slot) < 0:
            return self.typical
        names = self.plan.node_names
        return self.slowest(names[take.row] for take in self.plan.takes(slot) if take.row in names)

    def slowest(self, names: Iterable[str]) -> float:
        """Return the speed of the slowest of these nodes; the typical speed if none is known."""
        nodes = self.plan.nodes
        return min((nodes[name].speed for name in names if name in nodes), default=self.typical)
