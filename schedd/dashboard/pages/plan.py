"""The plan: nodes over time, and the next starts in words."""

import hashlib
import json
from typing import Final

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from schedd.dashboard.columns import plan_columns
from schedd.dashboard.figures import FIGURES, figure_json
from schedd.dashboard.listing import Wanted, listed
from schedd.dashboard.load import load_of
from schedd.dashboard.rendering import page
from schedd.dashboard.viewer import Cluster, Reader, Seen

__all__ = ["router"]

router = APIRouter()
_NEXT: Final = 10


@router.get("/{cluster}/plan")
def plan(request: Request, cluster: Cluster, viewer: Reader, seen: Seen) -> Response:
    """The page; its chart asks for its columns."""
    published = cluster.published
    soon = listed(published, seen, Wanted(state="planned", most=_NEXT))
    return page(request, "plan", viewer, cluster, load=load_of(published), soon=soon)


@router.get("/{cluster}/plan.json")
def columns(request: Request, cluster: Cluster, seen: Seen) -> Response:
    """Everything placed from the plan's time on, as columns."""
    published = cluster.published
    tag = f'W/"{request.app.state.life}-{cluster.name}-{published.generation}-{published.as_of}{seen.tag}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(None, 304, headers)
    body = json.dumps(plan_columns(published, seen.sees), separators=(",", ":"))
    return Response(body, 200, headers, media_type="application/json")


@router.get("/-/figures/{name}.json")
def figure(request: Request, name: str) -> Response:
    """A chart without data."""
    if name not in FIGURES:
        raise HTTPException(404)
    body = figure_json(name)
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(None, 304, headers)
    return Response(body, 200, headers, media_type="application/json")
