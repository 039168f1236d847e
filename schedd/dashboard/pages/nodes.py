"""Nodes: what each has, what is in use, and when it is free next."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from schedd.dashboard.load import load_of
from schedd.dashboard.rendering import page
from schedd.dashboard.viewer import Cluster, Reader, Seen
from schedd.dashboard.words import natural
from schedd.service.gaps import Gap, gaps
from schedd.service.loop import PlanLoop
from schedd.service.reading import NodeView, nodes

__all__ = ["router"]

router = APIRouter()
_AHEAD_S: Final = 30 * 86_400
_MOST_GAPS: Final = 100_000
_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class Row:
    """A node, its first gap with any free cpu, and its first one in which nothing is planned at all."""

    node: NodeView
    free: Gap | None
    idle: Gap | None


@router.get("/{cluster}/nodes")
def show(
    request: Request,
    cluster: Cluster,
    viewer: Reader,
    seen: Seen,
    q: Annotated[str, Query(max_length=200)] = "",
    state: Literal["", "up", "drain", "down"] = "",
    most: Annotated[int, Query(ge=1, le=10_000)] = _PAGE,
) -> Response:
    """All nodes as a map, and those that fit the filter as a table."""
    published = cluster.published
    views = sorted(nodes(published, sees=seen.sees), key=lambda view: natural(view.name))
    words = q.lower().split()
    found = [
        view
        for view in views
        if state in ("", view.state)
        and all(word in f"{view.name} {' '.join(view.properties)}".lower() for word in words)
    ]
    return page(
        request,
        "nodes",
        viewer,
        cluster,
        views=views,
        rows=_rows(cluster, found[:most]),
        total=len(found),
        load=load_of(published),
        q=q,
        state=state,
        most=most,
        step=_PAGE,
    )


def _rows(cluster: PlanLoop, views: list[NodeView]) -> list[Row]:
    published = cluster.published
    shown = {view.name for view in views}
    free: dict[str, Gap] = {}
    idle: dict[str, Gap] = {}
    now = published.as_of
    for gap in gaps(published, now, now + _AHEAD_S, limit=_MOST_GAPS).gaps:
        if gap.node in shown:
            free.setdefault(gap.node, gap)
            if gap.cpus == published.nodes[gap.node].cpus:
                idle.setdefault(gap.node, gap)
    return [Row(view, free.get(view.name), idle.get(view.name)) for view in views]
