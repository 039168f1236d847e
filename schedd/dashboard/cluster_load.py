"""How full the cluster is at the plan's own time."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from schedd.engine import PlanSnapshot
from schedd.plan.columns import FIXED, PLANNED
from schedd.service.read.plan_lists import NodeView, node_views


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


def measure_load(published: PlanSnapshot, views: Collection[NodeView] | None = None) -> ClusterLoad:
    """Counted over the nodes, whose ``views`` a caller may have already."""
    if views is None:
        views = node_views(published)
    up = [node for node in views if node.state == "up"]
    starts = published.starts
    placed = np.flatnonzero((published.states == PLANNED) | (published.states == FIXED))
    of_jobs = np.array([published.records[slot] is not None for slot in placed.tolist()], np.bool_)
    ends = (starts + published.durations)[placed[of_jobs]]
    return ClusterLoad(
        used=sum(node.cpus - node.free_cpus for node in up),
        cpus=sum(node.cpus for node in up),
        drain_cpus=sum(node.cpus for node in views if node.state == "drain"),
        down_cpus=sum(node.cpus for node in views if node.state == "down"),
        up=len(up),
        drain=sum(node.state == "drain" for node in views),
        down=sum(node.state == "down" for node in views),
        until=int(ends.max()) if ends.size else None,
    )
