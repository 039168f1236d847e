"""Fair-share page: target against received share, now and over time, by account and user."""

from typing import Annotated, Final

from fastapi import Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from schedd.api.planner_calls import database_errors
from schedd.api.routes import RouteTable
from schedd.dashboard.menu import MenuPage
from schedd.dashboard.rendering import render_page
from schedd.dashboard.viewer import Cluster, Reader, Viewer, Visibility
from schedd.engine import PlanSnapshot
from schedd.features.fair_share.api import fetch_fair_share, share_courses
from schedd.features.fair_share.plot import build_share_plot
from schedd.features.fair_share.settings import FairShareSettings

router = RouteTable()
_MAX_PLACES_SHOWN: Final = 1000
_DAY_S: Final = 86_400


def _is_shown(_: Viewer, published: PlanSnapshot) -> bool:
    return published.settings.site.has_table("fair_share")


PAGE: Final = MenuPage("fair-share", "Fair share", _is_shown)


@router.get("/{cluster}/fair-share")
async def show_fair_share(
    request: Request,
    cluster: Cluster,
    viewer: Reader,
    visibility: Visibility,
    place: Annotated[str, Query(max_length=2048)] = "",
    days: Annotated[int, Query(ge=1, le=366)] = 7,
) -> Response:
    """The part of the tree that the viewer may see, and the chart of ``place`` in the last ``days``."""
    shares = await fetch_fair_share(cluster, visibility)
    now = cluster.now()
    with database_errors():
        history = await run_in_threadpool(
            share_courses, request.app.state.clusters, cluster, visibility, now - days * _DAY_S, now + 1
        )
    course = next((one for one in history.places if one.path == place), None)
    if course is None and history.places:
        course = history.places[0]
    return render_page(
        request,
        "fair-share",
        viewer,
        cluster,
        shares=shares,
        places=shares.places[:_MAX_PLACES_SHOWN],
        more=max(0, len(shares.places) - _MAX_PLACES_SHOWN),
        settings=cluster.published.settings.site.part(FairShareSettings),
        all_seen=visibility.viewer is None,
        course=course,
        plot=build_share_plot(history.times, course) if course is not None else None,
        recorded=[one.path for one in history.places],
        days=days,
    )
