"""Calendar: when which nodes are under maintenance or kept for some, and which cores are booked."""

from fastapi import Request
from starlette.responses import Response

from schedd.api.bookings import booking_view, may_see_booking
from schedd.api.node_selection import natural_key
from schedd.api.routes import RouteTable
from schedd.dashboard.calendar import calendar_entries, calendar_windows
from schedd.dashboard.rendering import render_page
from schedd.dashboard.viewer import Cluster, Reader
from schedd.engine.facts.booking import LIVE

__all__ = ["router"]

router = RouteTable()


@router.get("/{cluster}/calendar")
def show_calendar(request: Request, cluster: Cluster, viewer: Reader) -> Response:
    """Reservations, windows of standing ones in the next 60 days, visible bookings, and present holds."""
    published = cluster.published
    found = calendar_entries(published.reservations)
    live = [one for one in published.bookings.values() if one.phase in LIVE]
    live.sort(key=lambda one: (one.start, one.name))
    shown = [booking_view(published, one) for one in live if may_see_booking(viewer.bearer, one)]
    return render_page(
        request,
        "calendar",
        viewer,
        cluster,
        entries=found,
        windows=calendar_windows(found),
        bookings=shown,
        others=len(live) - len(shown),
        holds=sorted(published.holds, key=lambda one: (one.kind, natural_key(one.name))),
    )
