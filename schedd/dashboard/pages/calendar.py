"""Calendar: when which nodes are under maintenance or kept for some, and which cores are booked."""

from typing import Any

from fastapi import Request
from starlette.responses import Response

from schedd.api.routes import RouteTable
from schedd.dashboard.calendar import calendar_entries, calendar_windows
from schedd.dashboard.folded_holds import MAX_ROWS, fold_holds
from schedd.dashboard.rendering import render_page
from schedd.dashboard.viewer import Cluster, Reader
from schedd.feature_list import feature_modules

router = RouteTable()


@router.get("/{cluster}/calendar")
def show_calendar(request: Request, cluster: Cluster, viewer: Reader) -> Response:
    """Reservations, windows of standing ones in the next 60 days, visible bookings, and present holds."""
    published = cluster.published
    found = calendar_entries(published.node_blocks)
    of_features: dict[str, Any] = {}
    for module in feature_modules("calendar"):
        of_features |= module.calendar_context(published, viewer.bearer)
    return render_page(
        request,
        "calendar",
        viewer,
        cluster,
        entries=found,
        windows=calendar_windows(found),
        holds=fold_holds(published.holds),
        most_holds=MAX_ROWS,
        **of_features,
    )
