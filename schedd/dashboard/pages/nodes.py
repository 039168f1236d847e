"""Nodes: resources, use, and the next time each is free."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, NamedTuple

import numpy as np
from fastapi import Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from schedd.api.node_selection import fold_hundreds, match_nodes, narrow_selection, natural_key
from schedd.api.problems import ProblemError
from schedd.api.routes import RouteTable
from schedd.dashboard.cluster_load import measure_load
from schedd.dashboard.ended_jobs import recently_ended
from schedd.dashboard.rendering import render_page
from schedd.dashboard.viewer import Cluster, Reader, Visibility
from schedd.dialect.node_properties import resource_name
from schedd.engine import JobView, render_job
from schedd.plan.columns import FIXED, PLANNED
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.read.gaps import Gap, gaps_on
from schedd.service.read.job_visibility import JobVisibility
from schedd.service.read.plan_lists import NodeView, node_views, used_cpus
from schedd.store import StoreError
from schedd.wire import NodeFacts

router = RouteTable()
_HORIZON_S: Final = 30 * 86_400
_PAGE_SIZE: Final = 50
_MAX_MAP_NODES: Final = 1_000  # more are drawn as groups: the page must not grow with the cluster
_MAX_MAP_GROUPS: Final = 300
_MAX_SEARCH: Final = 400
_MAX_JOBS: Final = 200
_MAX_ENDED_JOBS: Final = 50
_MAX_HISTORY_ROWS: Final = 100


@dataclass(frozen=True, slots=True)
class NodeTableRow:
    """A node, its first gap with any free cpu, and its first gap without any placement.

    ``empties``: for a draining node, the end of its last job; None without jobs. ``free_without_end``:
    nothing is planned on the free cpus within the horizon.
    """

    node: NodeView
    free: Gap | None
    idle: Gap | None
    empties: int | None = None
    free_without_end: bool = False


class MapNode(NamedTuple):
    """A node in the map; it costs a tenth of a ``NodeView``."""

    name: str
    state: str
    cpus: int
    free_cpus: int
    properties: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeGroupRow:
    """Nodes of one rack, switch or another resource, or of one hundred; without grouping all nodes, no name.

    ``search`` finds these nodes.
    """

    name: str
    nodes: Sequence[MapNode]
    search: str
    cpus: int
    """Cpus of its nodes that are up, like ``used``."""
    used: int
    drain: int
    down: int

    @classmethod
    def count(cls, name: str, nodes: Sequence[MapNode], search: str) -> "NodeGroupRow":
        up = [node for node in nodes if node.state == "up"]
        states = Counter(node.state for node in nodes)
        cpus = sum(node.cpus for node in up)
        used = cpus - sum(node.free_cpus for node in up)
        return cls(name, nodes, search, cpus, used, states["drain"], states["down"])


@router.get("/{cluster}/nodes")
def show_nodes(
    request: Request,
    cluster: Cluster,
    viewer: Reader,
    visibility: Visibility,
    q: Annotated[str, Query(max_length=_MAX_SEARCH)] = "",
    state: Literal["", "up", "drain", "down"] = "",
    most: Annotated[int, Query(ge=1, le=10_000)] = _PAGE_SIZE,
    by: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """The matching nodes as a map, by rack if nodes have one, and as a table. A map of many has groups."""
    published = cluster.published
    present = published.present_nodes
    used = used_cpus(published)
    matching = [present[name] for name in match_nodes(present, q)]
    found = [
        MapNode(one.name, one.state, one.cpus, max(0, one.cpus - used.get(one.name, 0)), one.properties)
        for one in matching
        if state in ("", one.state)
    ]
    listed = {node.name for node in found[:most]}
    views = {view.name: view for view in node_views(published, listed.__contains__, visibility.shows)}
    by = _choose_grouping(keys := _grouping_keys(present.values()), by)
    folded = len(found) > _MAX_MAP_NODES
    groups = _fold_nodes(found, by, q) if folded else _group_nodes(found, by, q)
    return render_page(
        request,
        "nodes",
        viewer,
        cluster,
        folded=folded,
        groups=groups[:_MAX_MAP_GROUPS],
        more_groups=max(0, len(groups) - _MAX_MAP_GROUPS),
        grouped_by=by,
        groupings=keys,
        gpus=any(present[node.name].gpus for node in found),
        memory=any(view.free_mem < view.mem for view in views.values()),
        rows=_table_rows(cluster, [views[node.name] for node in found[:most]]),
        total=len(found),
        node_count=len(present),
        most_in_map=_MAX_MAP_NODES,
        max_search=_MAX_SEARCH,
        load=measure_load(published),
        q=q,
        state=state,
        most=most,
        step=_PAGE_SIZE,
    )


@router.get("/{cluster}/nodes/{name}")
async def show_node(
    request: Request, cluster: Cluster, viewer: Reader, visibility: Visibility, name: str
) -> Response:
    """A node: running and planned jobs, jobs that ended there in the last day, history of its states."""
    published = cluster.published
    if name not in published.present_nodes:
        raise ProblemError("unknown-path", f"cluster {cluster.name} has no node {name[:80]}")
    (view,) = node_views(published, lambda other: other == name, sees=visibility.shows)
    here, hidden = await run_in_threadpool(_jobs_on, cluster, visibility, name)
    past = await run_in_threadpool(_node_history, request, cluster, name)
    ended = await run_in_threadpool(recently_ended, request, cluster)
    return render_page(
        request,
        "node",
        viewer,
        cluster,
        row=(await run_in_threadpool(_table_rows, cluster, [view]))[0],
        runs=[job for job in here if job.state in ("running", "starting")],
        comes=[job for job in here if job.state == "planned"],
        hidden=hidden,
        ended=[job for job in ended if name in dict(job.held) and visibility.shows_owner(job.owner)][
            :_MAX_ENDED_JOBS
        ],
        past=past,
        stored=_has_database(request),
    )


def _has_database(request: Request) -> bool:
    clusters: Clusters = request.app.state.clusters
    return clusters.durable is not None


def _jobs_on(cluster: PlanLoop, visibility: JobVisibility, name: str) -> tuple[list[JobView], int]:
    """Jobs that hold, or will hold, a part of the node, by start, and how many the reader may not see."""
    published = cluster.published
    slots = np.flatnonzero((published.states == FIXED) | (published.states == PLANNED))
    held = published.on_nodes(slots)
    rows = [row for row, other in published.names.items() if other == name]
    on = np.unique(slots[held.owner[np.isin(held.rows, rows)]]).tolist()
    records = [record for slot in on if (record := published.records[slot]) is not None]
    shown = [record for record in records if visibility.shows(record)]
    shown.sort(key=lambda record: int(published.starts[record.slot]))
    views = [visibility.redact_view(render_job(published, record), published) for record in shown[:_MAX_JOBS]]
    return views, len(records) - len(shown)


def _node_history(request: Request, cluster: PlanLoop, name: str) -> list[tuple[int, str, str]]:
    """When, state or kind of alert, and why: the latest first; nothing while there is no database."""
    clusters: Clusters = request.app.state.clusters
    if clusters.durable is None:
        return []
    store = clusters.durable.store
    try:
        known = store.find_cluster(cluster.name)
        if known is None:
            return []
        rows = [
            (one.time, one.state, "1 cpu" if one.cpus == 1 else f"{one.cpus} cpus")
            for one in store.node_history(known, name)
        ]
        rows += [
            (show_node.time, show_node.kind.replace("_", " "), show_node.text)
            for show_node in store.node_alerts(known, name)
        ]
    except StoreError:
        return []
    return sorted(rows, reverse=True)[:_MAX_HISTORY_ROWS]


def _grouping_keys(nodes: Iterable[NodeFacts]) -> list[str]:
    """Resources of nodes by which the map may be grouped, such as `rack` and `switch`."""
    distinct = {node.properties for node in nodes}
    return sorted({resource_name(one) for properties in distinct for one in properties} - {""})


def _choose_grouping(keys: Sequence[str], wanted: str | None) -> str:
    """The wanted grouping if there is one, by default `rack`; empty: none."""
    by = "rack" if wanted is None else wanted
    return by if by in keys else ""


def _group_nodes(nodes: Iterable[MapNode], by: str, q: str) -> list[NodeGroupRow]:
    alike: dict[tuple[str, ...], list[MapNode]] = {}
    for node in nodes:
        alike.setdefault(node.properties if by else (), []).append(node)
    groups: dict[str, list[MapNode]] = {}
    for properties, found in alike.items():
        name = next((one for one in properties if one.startswith(f"{by}=")), "")
        groups.setdefault(name, []).extend(found)
    order = sorted(groups, key=lambda name: (not name, natural_key(name)))
    return [
        NodeGroupRow.count(
            name.partition("=")[2] or ("none" if by else ""),
            groups[name],
            narrow_selection(q, name) if name else q,
        )
        for name in order
    ]


def _fold_nodes(nodes: Sequence[MapNode], by: str, q: str) -> list[NodeGroupRow]:
    """The groups of a map, small enough to be opened: the grouping's, else hundreds of nodes."""
    found: list[NodeGroupRow] = []
    for group in _group_nodes(nodes, by, q):
        if group.search != q and len(group.nodes) < len(nodes):
            found.append(group)
            continue
        here = {node.name: node for node in group.nodes}
        for search, names in fold_hundreds(here).items():
            name = _name_range(names[0], names[-1])
            found.append(NodeGroupRow.count(name, [here[one] for one in names], narrow_selection(q, search)))
    return found


def _table_rows(cluster: PlanLoop, views: list[NodeView]) -> list[NodeTableRow]:
    published = cluster.published
    shown = {view.name for view in views}
    free: dict[str, Gap] = {}
    idle: dict[str, Gap] = {}
    now = published.as_of
    for gap in gaps_on(published, now, now + _HORIZON_S, shown):
        free.setdefault(gap.node, gap)
        if gap.cpus == published.nodes[gap.node].cpus:
            idle.setdefault(gap.node, gap)
    empties = _empty_times(cluster, {view.name for view in views if view.state == "drain"})
    return [
        NodeTableRow(
            view,
            free.get(view.name),
            idle.get(view.name),
            empties.get(view.name),
            free_without_end=view.name in free and free[view.name].end >= now + _HORIZON_S,
        )
        for view in views
    ]


def _empty_times(cluster: PlanLoop, names: set[str]) -> dict[str, int]:
    """By when the jobs on each of these nodes have ended; nodes without jobs are left out."""
    if not names:
        return {}
    published = cluster.published
    rows = [row for row, name in published.names.items() if name in names]
    slots = np.flatnonzero((published.states == FIXED) | (published.states == PLANNED))
    of_jobs = [published.records[slot] is not None for slot in slots.tolist()]
    slots = slots[np.array(of_jobs, np.bool_)]
    held = published.on_nodes(slots)
    ends = (published.starts[slots] + published.durations[slots])[held.owner]
    found: dict[str, int] = {}
    for i in np.flatnonzero(np.isin(held.rows, rows)).tolist():
        name = published.names[int(held.rows[i])]
        found[name] = max(found.get(name, 0), int(ends[i]))
    return found


def _name_range(first: str, last: str) -> str:
    """`n100 to 199`: the letters of the names only once."""
    head = first.rstrip("0123456789")
    same = len(head) < len(first) and last.startswith(head) and last[len(head) :].isdecimal()
    return first if first == last else f"{first} to {last[len(head) :] if same else last}"
