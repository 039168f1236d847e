"""The plan: nodes over time, and the next starts in words."""

import hashlib
import json
from typing import Annotated, Final

from fastapi import Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from schedd.api.routes import RouteTable
from schedd.dashboard.chart_files import figure_json
from schedd.dashboard.cluster_load import measure_load
from schedd.dashboard.ended_jobs import recently_ended
from schedd.dashboard.job_list import JobFilter, list_jobs
from schedd.dashboard.node_rows import list_groupings
from schedd.dashboard.plan_columns import PlanViewport, plan_columns
from schedd.dashboard.rendering import render_page
from schedd.dashboard.viewer import Cluster, Reader, Visibility

router = RouteTable()
_MAX_NEXT_STARTS: Final = 10
_ROWS: Final = 36
_MAX_ROWS: Final = 200
_Text = Annotated[str, Field(max_length=400)]


@router.get("/{cluster}/plan")
def show_plan(request: Request, cluster: Cluster, viewer: Reader, visibility: Visibility) -> Response:
    """The page; its chart asks for its columns."""
    published = cluster.published
    soon = list_jobs(published, visibility, JobFilter(state="planned", most=_MAX_NEXT_STARTS))
    groups = list_groupings(published.present_nodes.values(), published.node_sets)
    return render_page(
        request, "plan", viewer, cluster, load=measure_load(published), soon=soon, groups=groups
    )


class PlanViewQuery(BaseModel):
    """What of the plan is looked at; the page's address has the same names."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    first: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    count: Annotated[int, Field(ge=1, le=_MAX_ROWS)] = _ROWS
    nodes: _Text = ""
    group: _Text = ""
    open: Annotated[str, Field(max_length=4_000)] = ""
    find: _Text = ""
    job: _Text = ""


@router.get("/{cluster}/plan.json")
def get_columns(
    request: Request, cluster: Cluster, visibility: Visibility, view: Annotated[PlanViewQuery, Query()]
) -> Response:
    """The visible rows as columns; and an overview of all rows."""
    published = cluster.published
    asked = hashlib.blake2b(view.model_dump_json().encode(), digest_size=6).hexdigest()
    ended = recently_ended(request, cluster)  # an end is known some seconds after its generation
    version = f"{published.generation}-{published.as_of}-{len(ended)}-{ended[0].ended if ended else 0}"
    tag = f'W/"{request.app.state.instance_id}-{cluster.name}-{version}-{asked}{visibility.cache_tag}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(None, 304, headers)
    looked = PlanViewport(
        first=view.first,
        count=view.count,
        only=view.nodes,
        group=view.group,
        opened=tuple(view.open.split("|")) if view.open else (),
        find=view.find,
        job=view.job,
    )
    past = [(one, visibility.shows_owner(one.owner)) for one in ended]
    body = json.dumps(plan_columns(published, visibility.shows, looked, past), separators=(",", ":"))
    return Response(body, 200, headers, media_type="application/json")


@router.get("/-/figures/{name}.json")
def get_figure(request: Request, name: str) -> Response:
    """A chart without data."""
    try:
        body = figure_json(name)
    except KeyError:
        raise HTTPException(404) from None
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(None, 304, headers)
    return Response(body, 200, headers, media_type="application/json")
