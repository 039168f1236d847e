"""Searches for a better plan: their outcomes, and a search on demand."""

from concurrent.futures import Future
from typing import Annotated, Final

import structlog
from fastapi import Query, Request, Response

from schedd.api.access import Cluster, Daemon, Operator, User
from schedd.api.audit import audit_act
from schedd.api.jobs import PageCursor
from schedd.api.planner_calls import TIMEOUTS, await_planner, database_errors
from schedd.api.problems import ACT_PROBLEMS, READ_PROBLEMS
from schedd.api.replies import reply
from schedd.api.result_views import SearchesView, SearchResult, search_view
from schedd.api.routes import RouteTable
from schedd.api.unicode_text import UnicodeRoute
from schedd.service.background.plan_metrics_log import SearchRun
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.read.cursors import decode_cursor, encode_cursor

router = RouteTable(prefix="/v1/clusters/{cluster}/searches", tags=["plan"], route_class=UnicodeRoute)
_log = structlog.get_logger(__name__)
_HINT: Final = "the search goes on; GET the searches shows its outcome"


@router.get("", *READ_PROBLEMS, "invalid", answer=SearchesView)
def list_searches(
    request: Request,
    cluster: Cluster,
    daemon: Daemon,
    _: User,
    cursor: PageCursor = None,
    limit: Annotated[int, Query(description="Maximum number per page.", ge=1, le=1_000)] = 100,
) -> Response:
    """Searches for a better plan and their outcomes, newest first, for as long as they are kept."""
    behind: int | None = decode_cursor(cursor, "searches", int)[0] if cursor is not None else None
    with database_errors():
        page = daemon.metrics_logs[cluster.name].searches(limit, behind)
    following = encode_cursor("searches", page.following) if page.following is not None else None
    return reply(request, SearchesView(tuple(map(search_view, page.runs)), following))


@router.post("", *ACT_PROBLEMS, answer=SearchResult)
async def search_now(request: Request, cluster: Cluster, daemon: Daemon, caller: Operator) -> Response:
    """Look for a better plan now, and take it over. Needs the role `operator` or `admin`.

    The answer comes when it is done. No promise is broken by it, and events do not wait for it.
    """
    run = await await_planner(
        cluster, await start_search(cluster, daemon, caller.name), TIMEOUTS.search, _HINT
    )
    return reply(request, SearchResult(search_view(run) if run is not None else None))


async def start_search(cluster: PlanLoop, daemon: Clusters, who: str) -> "Future[SearchRun | None]":
    """Start a search, with an audit entry; None: nothing could be searched. Raises PlannerStopped."""
    cluster.check_leads()
    async with audit_act(cluster, who, "search"):
        _log.info("a search was asked for", cluster=cluster.name, by=who)
        return daemon.search_workers[cluster.name].search_now()
