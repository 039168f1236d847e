"""What clusters were worth over a period: balance, deadlines, slowdown, use of processors and licences."""

from typing import Annotated, Final

from fastapi import Query, Request, Response
from starlette.concurrency import run_in_threadpool

from schedd.api.access import Daemon, User, visible_clusters
from schedd.api.planner_calls import database_errors
from schedd.api.problems import READ_PROBLEMS, ProblemError, invalid_problem
from schedd.api.replies import api_answer, documented, reply
from schedd.api.routes import RouteTable
from schedd.api.unicode_text import UnicodeRoute
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.read.cluster_report import (
    ClusterReport,
    LicenceReport,
    QueueReport,
    TooManyError,
    report_clusters,
)

router = RouteTable(prefix="/v1/report", tags=["plan metrics"], route_class=UnicodeRoute)
DAY_S: Final = 86_400
_MAX_TIME: Final = 1 << 40
PeriodBegin = Annotated[
    int | None,
    Query(description="From this second on; a day before its end unless given.", ge=0, lt=_MAX_TIME),
]
PeriodEnd = Annotated[
    int | None, Query(description="Up to this second; now unless given.", ge=1, lt=_MAX_TIME)
]
_VIEWS: Final[tuple[type, ...]] = (ClusterReport, LicenceReport, QueueReport)
for _view_class in _VIEWS:
    documented(_view_class)


@api_answer
class ClusterReports:
    """Clusters over a period."""

    since: int
    until: int
    """The period ends before this second."""
    clusters: tuple[ClusterReport, ...]
    """Visible clusters, by name."""


@router.get("", *READ_PROBLEMS, "invalid", answer=ClusterReports)
async def get_quality_report(
    request: Request,
    daemon: Daemon,
    caller: User,
    since: PeriodBegin = None,
    until: PeriodEnd = None,
    cluster: Annotated[str, Query(description="Only this cluster.", max_length=200)] = "",
) -> Response:
    """Balance, deadlines, slowdown and use of clusters over a period; waits by queue.

    Ended jobs are read from the database, which has them some minutes later; jobs deleted before they started
    are not counted. Shares are of the clusters in the response.
    """
    loops = [loop for loop in visible_clusters(request, caller) if cluster in ("", loop.name)]
    if cluster and not loops:
        raise ProblemError("unknown-cluster", f"there is no cluster {cluster}")
    now = max((loop.now() for loop in loops), default=0)
    end = min(until, now) if until is not None else now
    begin = since if since is not None else max(0, (until if until is not None else now) - DAY_S)
    if loops and begin >= end:
        why = "it lies ahead" if begin >= now else f"it ends at {end}"
        what = f"the period from {begin} on is empty: {why}"
        raise invalid_problem("query.since", what, f"a moment before {end}")
    found = await run_in_threadpool(_read_reports, daemon, loops, begin, end)
    return reply(request, ClusterReports(since=begin, until=end, clusters=found))


def _read_reports(
    daemon: Clusters, loops: list[PlanLoop], since: int, until: int
) -> tuple[ClusterReport, ...]:
    with database_errors():
        try:
            return report_clusters(daemon, sorted(loops, key=lambda loop: loop.name), since, until)
        except TooManyError as error:
            hint = "ask for a shorter period, or for one cluster"
            raise ProblemError("invalid", str(error), hint=hint) from None
