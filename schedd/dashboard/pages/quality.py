"""Quality: what the plan is worth, told against actual starts, broken promises."""

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from schedd.api.outcomes import search_view
from schedd.api.ranks import shares_of
from schedd.api.waiting import a_copy
from schedd.dashboard.quality import criteria_of, kept_of
from schedd.dashboard.rendering import page
from schedd.dashboard.viewer import Cluster, Reader, Seen
from schedd.service.clusters import Clusters
from schedd.service.sight import EVERYTHING
from schedd.service.summaries import evaluated

__all__ = ["router"]

router = APIRouter()


@router.get("/{cluster}/quality")
async def quality(
    request: Request, cluster: Cluster, viewer: Reader, seen: Seen, quick: bool = False
) -> Response:
    """Criteria of the plan, and how well its words were kept.

    ``quick``: without the evaluation and the shares, for which the planner must be asked, and which the page
    does not repeat by itself.
    """
    clusters: Clusters = request.app.state.clusters
    all_seen = seen == EVERYTHING
    copy = await a_copy(cluster) if not quick else None
    kept = await run_in_threadpool(kept_of, clusters, cluster, singly=all_seen)
    return page(
        request,
        "quality",
        viewer,
        cluster,
        plan=criteria_of(cluster.published),
        kept=kept,
        all_seen=all_seen,
        criteria=await run_in_threadpool(evaluated, copy) if copy is not None else (),
        searches=[search_view(run) for run in kept.searches],
        shares=await shares_of(cluster, seen) if not quick else None,
        evaluated_at=copy.as_of if copy is not None else None,
    )
