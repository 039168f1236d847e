"""The plan as a whole: nodes, what is placed in a period, and gaps in one."""

from typing import Annotated, Final

from fastapi import Query, Request, Response

from schedd.api.access import Cluster, Visibility
from schedd.api.background_rendering import rendered_in_background
from schedd.api.jobs import FieldSelection, PageCursor
from schedd.api.problems import READ_PROBLEMS, Fault, ProblemError
from schedd.api.replies import parse_field_selection, reply
from schedd.api.reservations import reservation_view
from schedd.api.routes import RouteTable
from schedd.api.views import GapsView, NodePage, PlanPage, snapshot_fields
from schedd.engine import PlanSnapshot
from schedd.service.read.cursors import decode_cursor, encode_cursor
from schedd.service.read.gaps import find_gaps
from schedd.service.read.plan_lists import Bar, NodeView, bars_in_window, node_views
from schedd.wire.facts import NodeStateName

router = RouteTable(prefix="/v1/clusters/{cluster}", tags=["plan"])
_DAY_S: Final = 86_400
_TIME_END: Final = 1 << 36

_Begin = Annotated[
    int | None,
    Query(description="Seconds since the epoch; without it, the plan's own time.", ge=0, lt=_TIME_END),
]
_End = Annotated[
    int | None, Query(description="Behind the last second; without it, a day later.", ge=0, lt=_TIME_END)
]


@router.get("/nodes", *READ_PROBLEMS, "invalid", "not-modified", answer=NodePage)
@rendered_in_background
def list_nodes(
    request: Request,
    cluster: Cluster,
    visibility: Visibility,
    state: Annotated[NodeStateName | None, Query(description="Only nodes in this state.")] = None,
    cursor: PageCursor = None,
    limit: Annotated[int, Query(description="Maximum number per page.", ge=1, le=10_000)] = 1_000,
    fields: FieldSelection = None,
) -> Response:
    """Nodes by name: resources, free capacity now, and the jobs that hold the rest."""
    only = parse_field_selection(fields, NodeView)
    published = cluster.published
    behind: str = decode_cursor(cursor, "nodes", str)[0] if cursor is not None else ""
    names = sorted(
        name
        for name, facts in published.present_nodes.items()
        if name > behind and (state is None or facts.state == state)
    )
    page = frozenset(names[:limit])
    following = encode_cursor("nodes", names[limit - 1]) if len(names) > limit else None
    rows = node_views(published, page.__contains__, visibility.shows)
    found = NodePage(nodes=rows, next=following, **snapshot_fields(published))
    return reply(request, found, published, "nodes", only)


@router.get("/plan", *READ_PROBLEMS, "invalid", "not-modified", answer=PlanPage)
@rendered_in_background
def get_plan(
    request: Request,
    cluster: Cluster,
    visibility: Visibility,
    begin: _Begin = None,
    end: _End = None,
    cursor: PageCursor = None,
    limit: Annotated[int, Query(description="Maximum number of jobs per page.", ge=1, le=10_000)] = 1_000,
    fields: FieldSelection = None,
) -> Response:
    """What runs or is planned at any time in `[begin, end)`, by start: the data of a Gantt chart.

    Jobs that the caller may not see are there without id, owner and queue.
    """
    only = parse_field_selection(fields, Bar)
    published = cluster.published
    first, last = _resolve_window(published, begin, end, cursor, "plan", int, int)
    page = bars_in_window(published, first, last, sees=visibility.shows, cursor=cursor, limit=limit)
    found = PlanPage(
        begin=first,
        end=last,
        jobs=page.rows,
        reservations=tuple(
            reservation_view(r)
            for r in published.node_blocks
            if r.start < last and (r.end is None or r.end > first)
        ),
        next=page.next,
        **snapshot_fields(published),
    )
    return reply(request, found, published, "jobs", only)


@router.get("/gaps", *READ_PROBLEMS, "invalid", "not-modified", answer=GapsView)
@rendered_in_background
def get_gaps(
    request: Request,
    cluster: Cluster,
    _: Visibility,
    begin: _Begin = None,
    end: _End = None,
    cpus: Annotated[int, Query(description="Leave out pieces with fewer free cpus.", ge=1, le=1 << 24)] = 1,
    from_begin: Annotated[
        bool,
        Query(
            description="Only gaps that are free from `begin` on without a break: what could start "
            "then, and for how long. `totals` is empty."
        ),
    ] = False,
    cursor: PageCursor = None,
    limit: Annotated[
        int, Query(description="A page ends with the node that fills it up to here.", ge=1, le=10_000)
    ] = 1_000,
) -> Response:
    """Free capacity in `[begin, end)`, in total and by node; never before the plan's time. Nodes that are
    down, offline or closed have no gaps.
    """
    published = cluster.published
    first, last = _resolve_window(published, begin, end, cursor, "gaps", str)
    found = find_gaps(
        published,
        first,
        last,
        cpus=cpus,
        from_begin=from_begin,
        cursor=cursor,
        limit=limit,
    )
    view = GapsView(
        begin=first,
        end=last,
        totals=found.totals,
        gaps=found.gaps,
        next=found.next,
        **snapshot_fields(published),
    )
    return reply(request, view, published)


def _resolve_window(
    published: PlanSnapshot,
    begin: int | None,
    end: int | None,
    cursor: str | None,
    kind: str,
    *position: type[int] | type[str],
) -> tuple[int, int]:
    """The window of a page: that of the page before, as its cursor has it, unless the query names one."""
    if cursor is not None:
        *_, former_begin, former_end = decode_cursor(cursor, kind, *position, int, int)
        begin = former_begin if begin is None else begin
        end = former_end if end is None else end
    first = published.as_of if begin is None else begin
    last = first + _DAY_S if end is None else end
    if last <= first:
        fault = Fault(where="query.end", what="the window is empty", allowed=f"above {first}, its begin")
        raise ProblemError("invalid", "query.end: the window is empty", errors=[fault])
    return first, last
