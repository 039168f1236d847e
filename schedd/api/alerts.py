"""Alerts that are open."""

from dataclasses import replace

from fastapi import Request, Response

from schedd.api.access import Cluster, User, Visibility
from schedd.api.problems import READ_PROBLEMS
from schedd.api.replies import api_answer, reply
from schedd.api.routes import RouteTable
from schedd.api.views import SnapshotAnswer, snapshot_fields
from schedd.engine import OpenAlert
from schedd.service.cluster.open_alerts import FOR_USERS
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read.current_faults import AlertView, alert_view
from schedd.service.read.job_visibility import JobVisibility

router = RouteTable(prefix="/v1/clusters/{cluster}", tags=["clusters"])


@api_answer
class AlertsView(SnapshotAnswer):
    """Open alerts, oldest first."""

    alerts: tuple[AlertView, ...]


@router.get("/alerts", *READ_PROBLEMS, answer=AlertsView)
async def get_alerts(request: Request, cluster: Cluster, visibility: Visibility, caller: User) -> Response:
    """Open alerts, each with the command that helps. A `user` gets only those that concern everybody with a
    queued job.
    """
    alerts = alerts_for(cluster, visibility, everything=caller.may("see all"))
    found = tuple(alert_view(one, cluster.name) for one in alerts)
    published = cluster.published
    return reply(request, AlertsView(alerts=found, **snapshot_fields(published)), published)


def alerts_for(cluster: PlanLoop, visibility: JobVisibility, *, everything: bool) -> tuple[OpenAlert, ...]:
    """All alerts that are open, or those for users, without ids of jobs that are not ``visibility``."""
    found = cluster.alerts.current
    if everything:
        return found
    published = cluster.published
    return tuple(
        replace(one, text=visibility.redact_text(one.text, published))
        for one in found
        if one.kind in FOR_USERS
    )
