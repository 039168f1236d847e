"""Quality: what the plan is worth, told against actual starts, broken promises."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from schedd.dashboard.quality import criteria_of, kept_of
from schedd.dashboard.rendering import page
from schedd.dashboard.viewer import Cluster, Reader, Seen
from schedd.service.clusters import Clusters
from schedd.service.sight import EVERYTHING

__all__ = ["router"]

router = APIRouter()


@router.get("/{cluster}/quality")
def quality(request: Request, cluster: Cluster, viewer: Reader, seen: Seen) -> Response:
    """Criteria of the plan, and how well its words were kept."""
    clusters: Clusters = request.app.state.clusters
    all_seen = seen == EVERYTHING
    return page(
        request,
        "quality",
        viewer,
        cluster,
        plan=criteria_of(cluster.published),
        kept=kept_of(clusters, cluster, singly=all_seen),
        all_seen=all_seen,
    )
