"""Clusters, and whether their jobs are started."""

import structlog
from fastapi import Request, Response

from schedd.api.access import Cluster, Daemon, Operator, User, visible_clusters
from schedd.api.audit import audit_act
from schedd.api.planner_calls import call_planner_or_cancel
from schedd.api.problems import BODY_PROBLEMS, READ_PROBLEMS
from schedd.api.replies import reply
from schedd.api.request_bodies import PauseRequest
from schedd.api.routes import RouteTable
from schedd.api.unicode_text import UnicodeRoute
from schedd.api.views import ClustersView, ClusterView, DispatchState
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read.current_faults import job_start_state
from schedd.service.read.plan_lists import count_jobs

router = RouteTable(prefix="/v1/clusters", tags=["clusters"], route_class=UnicodeRoute)
_log = structlog.get_logger(__name__)


@router.get("", "no-token", "not-ready", answer=ClustersView)
async def list_clusters(request: Request, _: Daemon, caller: User) -> Response:
    """The clusters of this daemon that the caller may see, and how each is doing."""
    return reply(
        request, ClustersView(tuple(cluster_view(loop) for loop in visible_clusters(request, caller)))
    )


@router.get("/{cluster}", *READ_PROBLEMS, answer=ClusterView)
async def get_cluster(request: Request, cluster: Cluster, _: User) -> Response:
    """One cluster, and how it is doing."""
    return reply(request, cluster_view(cluster))


@router.post(
    "/{cluster}/pause", *READ_PROBLEMS, "not-allowed", *BODY_PROBLEMS, "invalid", answer=DispatchState
)
async def pause(request: Request, cluster: Cluster, body: PauseRequest, caller: Operator) -> Response:
    """Start no jobs until `resume`; the plan goes on. Needs the role `operator` or `admin`."""
    return reply(request, DispatchState(body.reason, await set_dispatch(cluster, body.reason, caller.name)))


@router.post("/{cluster}/resume", *READ_PROBLEMS, "not-allowed", answer=DispatchState)
async def resume(request: Request, cluster: Cluster, caller: Operator) -> Response:
    """Start jobs again, due ones at once. Needs the role `operator` or `admin`."""
    return reply(request, DispatchState("", await set_dispatch(cluster, "", caller.name)))


async def set_dispatch(cluster: PlanLoop, reason: str, who: str) -> int:
    """Pause for a reason, or resume without one, audited; return the generation. Raises ProblemError."""
    act, done = ("pause", "paused") if reason else ("resume", "resumed")
    undone = "starting jobs was not paused" if reason else "starting jobs was not resumed"
    async with audit_act(cluster, who, act, reason):
        generation = await call_planner_or_cancel(
            cluster, lambda: cluster.pause(reason) if reason else cluster.resume(), undone
        )
    _log.warning(f"starting jobs was {done}", cluster=cluster.name, by=who, reason=reason)
    return generation


def cluster_view(loop: PlanLoop) -> ClusterView:
    """A cluster as readers see it."""
    published = loop.published
    return ClusterView(
        name=loop.name,
        policy=published.settings.policy,
        now=loop.now(),
        as_of=published.as_of,
        generation=published.generation,
        mode=published.mode,
        paused=published.paused,
        foreign=published.foreign,
        halted=published.halted,
        starts_refused=published.starts_refused,
        stale=published.stale,
        trouble=loop.failure or loop.trouble or loop.failing,
        jobs=count_jobs(published),
        nodes=len(published.present_nodes),
        cpus=sum(node.cpus for node in published.nodes.values()),
        events_waiting=loop.pending,
        arriving=published.arriving,
        breaches=published.breaches,
        at_risk=published.at_risk,
        alerts=len(loop.alerts.current),
        job_starts=job_start_state(loop),
        heard=loop.adapter_contact.at or None,
        adapter_version=loop.adapter_contact.version,
        adapter_ahead=round(loop.adapter_contact.clock_lead_s, 1)
        if loop.adapter_contact.clock_lead_s is not None
        else None,
        clocks=next((one.text for one in loop.alerts.current if one.kind == "clock"), ""),
        server=published.server,
        end_allowance=published.settings.end_allowance,
    )
