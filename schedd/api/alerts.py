"""Alerts that are open."""

from dataclasses import dataclass, replace

from fastapi import APIRouter, Request, Response

from schedd.api.access import Cluster, Seen, User
from schedd.api.bodies import Dated, dated
from schedd.api.problems import answers
from schedd.api.replies import documented, reply
from schedd.engine.facts.alerts import OpenAlert
from schedd.service.cluster.alarms import FOR_USERS
from schedd.service.cluster.loop import PlanLoop
from schedd.service.read.sight import Sight

__all__ = ["alerts_for", "router"]

router = APIRouter(prefix="/v1/clusters/{cluster}", tags=["clusters"])
documented(OpenAlert)


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsView(Dated):
    """What is wrong and not over yet, the oldest first."""

    alerts: tuple[OpenAlert, ...]


@router.get(
    "/alerts", response_model=AlertsView, responses=answers("no-token", "unknown-cluster", "not-ready")
)
async def get_alerts(request: Request, cluster: Cluster, seen: Seen, asker: User) -> Response:
    """Alerts that are open. A `user` gets those that concern everybody who waits for a job."""
    everything = asker.may("see all")
    found = alerts_for(cluster, seen, everything=everything)
    published = cluster.published
    return reply(request, AlertsView(alerts=found, **dated(published)), published)


def alerts_for(cluster: PlanLoop, seen: Sight, *, everything: bool) -> tuple[OpenAlert, ...]:
    """All alerts that are open, or those for users, without ids of jobs that are not ``seen``."""
    found = cluster.alarms.open
    if everything:
        return found
    published = cluster.published
    return tuple(replace(one, text=seen.words(one.text, published)) for one in found if one.kind in FOR_USERS)
