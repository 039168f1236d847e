"""How full the cluster is at the plan's own time."""

from dataclasses import dataclass

import numpy as np

from schedd.engine import PlanSnapshot
from schedd.plan.columns import FIXED, PLANNED
from schedd.service.read.plan_lists import used_cpus


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """Cpus in use, in total, and on nodes that are not up; nodes by state; the last planned end."""

    used: int
    cpus: int
    drain_cpus: int
    down_cpus: int
    up: int
    drain: int
    down: int
    until: int | None


def measure_load(published: PlanSnapshot) -> ClusterLoad:
    """Counted over the nodes, without their views: a page of a large cluster shows few of them."""
    nodes = [published.nodes[name] for name in published.present_nodes]
    up = [node for node in nodes if node.state == "up"]
    used = used_cpus(published)
    starts = published.starts
    placed = np.flatnonzero((published.states == PLANNED) | (published.states == FIXED))
    of_jobs = np.array([published.records[slot] is not None for slot in placed.tolist()], np.bool_)
    ends = (starts + published.durations)[placed[of_jobs]]
    return ClusterLoad(
        used=sum(min(node.cpus, used.get(node.name, 0)) for node in up),
        cpus=sum(node.cpus for node in up),
        drain_cpus=sum(node.cpus for node in nodes if node.state == "drain"),
        down_cpus=sum(node.cpus for node in nodes if node.state == "down"),
        up=len(up),
        drain=sum(node.state == "drain" for node in nodes),
        down=sum(node.state == "down" for node in nodes),
        until=int(ends.max()) if ends.size else None,
    )
