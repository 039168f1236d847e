"""Calendar: when which nodes are under maintenance or kept for some."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from schedd.api.node_names import natural
from schedd.dashboard.calendar import entries, windows_of
from schedd.dashboard.rendering import page
from schedd.dashboard.viewer import Cluster, Reader

__all__ = ["router"]

router = APIRouter()


@router.get("/{cluster}/calendar")
def calendar(request: Request, cluster: Cluster, viewer: Reader) -> Response:
    """Reservations that people made, standing ones of the next 60 days, and what is drained or held now."""
    published = cluster.published
    found = entries(published.reservations)
    return page(
        request,
        "calendar",
        viewer,
        cluster,
        entries=found,
        windows=windows_of(found),
        holds=sorted(published.holds, key=lambda one: (one.kind, natural(one.name))),
    )
