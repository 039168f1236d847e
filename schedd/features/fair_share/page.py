"""Fair-share page: target against received share by account and user."""

from typing import Final

from fastapi import Request
from starlette.responses import Response

from schedd.api.routes import RouteTable
from schedd.dashboard.menu import MenuPage
from schedd.dashboard.rendering import render_page
from schedd.dashboard.viewer import Cluster, Reader, Viewer, Visibility
from schedd.engine import PlanSnapshot
from schedd.features.fair_share.api import fetch_fair_share
from schedd.features.fair_share.settings import FairShareSettings
from schedd.policy.site import site_policy

__all__ = ["PAGE", "router"]

router = RouteTable()
_MAX_PLACES_SHOWN: Final = 1000


def _is_shown(_: Viewer, published: PlanSnapshot) -> bool:
    return published.settings.site.get("fair_share") is not None


PAGE: Final = MenuPage("fair-share", "Fair share", _is_shown)


@router.get("/{cluster}/fair-share")
async def show_fair_share(
    request: Request, cluster: Cluster, viewer: Reader, visibility: Visibility
) -> Response:
    """The part of the tree that the viewer may see."""
    shares = await fetch_fair_share(cluster, visibility)
    settings = site_policy(cluster.published.settings.site).part(FairShareSettings)
    return render_page(
        request,
        "fair-share",
        viewer,
        cluster,
        shares=shares,
        places=shares.places[:_MAX_PLACES_SHOWN],
        more=max(0, len(shares.places) - _MAX_PLACES_SHOWN),
        settings=settings,
        all_seen=visibility.viewer is None,
    )
