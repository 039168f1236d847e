"""Reservations: nodes that are kept free of jobs, or kept for the jobs of some users."""

from typing import Annotated, Final

from fastapi import Path, Request, Response

from schedd.api.access import Cluster, Operator, Visibility
from schedd.api.policy import PreviewView
from schedd.api.problems import ACT_PROBLEMS, BODY_PROBLEMS, READ_PROBLEMS
from schedd.api.replies import reply
from schedd.api.request_bodies import ReservationRequest
from schedd.api.reservations import (
    reservation_view,
    reserve,
    run_reservation_preview,
    unreserve,
)
from schedd.api.result_views import ReservationResult, ReservationsView
from schedd.api.routes import RouteTable
from schedd.api.unicode_text import UnicodeRoute
from schedd.api.views import snapshot_fields
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.wire.object_names import OBJECT_NAME

router = RouteTable(
    prefix="/v1/clusters/{cluster}/reservations", tags=["reservations"], route_class=UnicodeRoute
)


_ACT_PROBLEMS: Final = (*ACT_PROBLEMS, "too-much")


_Name = Annotated[
    str,
    Path(
        description="The reservation's name: letters, digits, '.', '_' and '-'.",
        pattern=f"^{OBJECT_NAME.pattern}$",
        examples=["repair"],
    ),
]


@router.get("", *READ_PROBLEMS, "not-modified", answer=ReservationsView)
def list_reservations(request: Request, cluster: Cluster, _: Visibility) -> Response:
    """All present and future reservations, including those of the site's settings."""
    published = cluster.published
    rows = sorted(map(reservation_view, published.node_blocks), key=lambda one: (one.start, one.name))
    return reply(request, ReservationsView(reservations=tuple(rows), **snapshot_fields(published)), published)


@router.put("/{name}", *_ACT_PROBLEMS, *BODY_PROBLEMS, answer=ReservationResult)
async def post_reservation(
    request: Request, cluster: Cluster, name: _Name, body: ReservationRequest, caller: Operator
) -> Response:
    """Create or replace a reservation. Needs the role `operator` or `admin`.

    Running jobs on its nodes stay. Planned jobs in its way are planned again, and may be later than promised:
    `at_risk` counts the promises at risk. Nodes that are added later and have its features are included.
    """
    before = cluster.published.at_risk
    await reserve(cluster, name, body, caller.name)
    return _reservation_reply(request, cluster, name, before)


@router.post("/{name}/preview", *_ACT_PROBLEMS, "too-hard", *BODY_PROBLEMS, answer=PreviewView)
async def preview_reservation(
    request: Request, cluster: Cluster, name: _Name, body: ReservationRequest, _: Operator
) -> Response:
    """Preview the effects of a reservation; nothing is changed. Needs the role `operator` or `admin`.

    Lists running jobs that hold its nodes beyond its start, and waiting jobs that would move, those with
    promises at risk first.
    """
    return reply(request, await run_reservation_preview(request, cluster, name, body))


@router.delete("/{name}", *_ACT_PROBLEMS, "unknown-reservation", answer=ReservationResult)
async def delete_reservation(request: Request, cluster: Cluster, name: _Name, caller: Operator) -> Response:
    """Remove a reservation; jobs are planned on its nodes at once. Needs the role `operator` or `admin`."""
    before = cluster.published.at_risk
    await unreserve(cluster, name, caller.name)
    return _reservation_reply(request, cluster, name, before)


def _reservation_reply(request: Request, cluster: PlanLoop, name: str, before: int) -> Response:
    published = cluster.published
    made = next((reservation_view(one) for one in published.node_blocks if one.name == name), None)
    return reply(
        request,
        ReservationResult(
            reservation=made, at_risk=max(0, published.at_risk - before), **snapshot_fields(published)
        ),
    )
