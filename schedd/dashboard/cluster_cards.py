"""Cards of the landing page: health, jobs, free capacity and current faults of each cluster."""

from dataclasses import dataclass
from typing import Final

from fastapi import Request

from schedd.api.alerts import alerts_for
from schedd.dashboard.viewer import Viewer
from schedd.engine import PlanSnapshot
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read.current_faults import CurrentFault, JobStartState, current_faults, job_start_state
from schedd.service.read.gaps import capacity_steps
from schedd.service.read.job_visibility import visibility_for
from schedd.service.read.plan_lists import count_jobs

_HORIZON_S: Final = 30 * 86_400


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """The first free cores in the plan: ``cpus`` from ``start`` on, ``idle_nodes`` without any job."""

    start: int
    cpus: int
    idle_nodes: int


@dataclass(frozen=True, slots=True)
class ClusterCard:
    """One cluster on the landing page. ``free`` is None if no core is free within 30 days."""

    name: str
    starts: JobStartState
    as_of: int
    outdated: bool  # the plan may have changed since `as_of`
    running: int
    waiting: int
    stuck: int  # waiting jobs without a planned start
    cpus: int
    free: FreeCapacity | None
    faults: tuple[CurrentFault, ...]
    may_act: bool  # whether the viewer may run the commands that help

    @property
    def severe(self) -> bool:
        """Whether jobs do not start, or the plan may be wrong."""
        return not self.starts.starts or any(fault.severe for fault in self.faults)


def summarise_cluster(request: Request, loop: PlanLoop, viewer: Viewer) -> ClusterCard:
    """Return a cluster's card, with the faults that the viewer may see."""
    published = loop.published
    bearer = viewer.at(request, loop.name).bearer
    visibility = visibility_for(bearer, request.app.state.callers.auth, published)
    alerts = alerts_for(loop, visibility, everything=bearer.may("see all"))
    counts = count_jobs(published)
    return ClusterCard(
        name=loop.name,
        starts=job_start_state(loop),
        as_of=published.as_of,
        outdated=bool(published.stale),
        running=counts.running + counts.starting,
        waiting=counts.planned + counts.without_start,
        stuck=counts.without_start,
        cpus=sum(node.cpus for node in published.nodes.values() if node.state == "up"),
        free=next_free(published),
        faults=tuple(one for one in current_faults(loop, alerts) if one.kind != "dispatch"),
        may_act=bearer.may("steer"),
    )


def next_free(published: PlanSnapshot) -> FreeCapacity | None:
    """Return the first free capacity in the plan, from now on."""
    begin = published.as_of
    for step in capacity_steps(published, begin, begin + _HORIZON_S):
        if step.cpus:
            return FreeCapacity(step.start, step.cpus, step.idle_nodes)
    return None
