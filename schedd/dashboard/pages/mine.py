"""My jobs: where a user lands."""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from schedd.dashboard.ended import recently_ended
from schedd.dashboard.listing import Wanted, listed
from schedd.dashboard.rendering import page
from schedd.dashboard.viewer import Cluster, Reader, Seen

__all__ = ["router"]

router = APIRouter()
_MOST: Final = 2_000
_ENDED: Final = 50


@router.get("/{cluster}/mine")
def mine(
    request: Request,
    cluster: Cluster,
    viewer: Reader,
    seen: Seen,
    user: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """The jobs of who looks, or of a ``user`` whose jobs are shown to who looks; and what ended of late."""
    own = viewer.bearer.name.partition("@")[0] if viewer.bearer.role == "user" else ""
    whose = user or own
    found = listed(cluster.published, seen, Wanted(user=whose, sort="start", most=_MOST if whose else 1))
    ended = [
        one
        for one in recently_ended(request, cluster)
        if whose and one.owner.partition("@")[0] == whose and seen.sees_owner(one.owner)
    ]
    return page(
        request,
        "mine",
        viewer,
        cluster,
        whose=whose,
        own=own,
        found=found,
        rows=found.rows if whose else (),
        ended=ended[:_ENDED],
    )
