"""Holds of nodes and queues: nothing new is planned there; running jobs go on."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import structlog
from fastapi import Path, Request, Response
from pydantic import Field

from schedd.api.access import Cluster, Operator, User
from schedd.api.audit import audit_act
from schedd.api.node_selection import natural_key, select_nodes
from schedd.api.planner_calls import submit_events
from schedd.api.policy import PreviewView, preview_events
from schedd.api.problems import (
    ACT_PROBLEMS,
    BODY_PROBLEMS,
    READ_PROBLEMS,
    ProblemError,
    invalid_problem,
)
from schedd.api.replies import api_answer, reply
from schedd.api.request_bodies import HoldRequest
from schedd.api.routes import RouteTable
from schedd.api.unicode_text import UnicodeRoute
from schedd.api.views import SnapshotAnswer, snapshot_fields
from schedd.engine import PlanSnapshot
from schedd.name_list import shorten_list
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.wire import PlanningHeld, PlanningReleased

router = RouteTable(prefix="/v1/clusters/{cluster}/holds", tags=["plan"], route_class=UnicodeRoute)
_log = structlog.get_logger(__name__)
_MAX_NAMES_SHOWN: Final = 20
HoldKind = Literal["node", "queue"]
_KindPath = Annotated[HoldKind, Path(description="Whether a `node` is meant, or a `queue`.")]
_NamePath = Annotated[
    str,
    Path(
        description="Its name on the server. For nodes also a range `n[001-020]`, a pattern `gpu*`, a "
        "property, a state, or several of these apart by commas: all nodes that fit.",
        max_length=512,
        examples=["n1"],
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldView:
    """A held node or queue."""

    kind: HoldKind
    name: str
    reason: Annotated[str, Field(description="Shown to all users whose jobs wait for it.")]
    since: Annotated[int, Field(description="When it was last set, in seconds since the epoch.")]
    by: Annotated[str, Field(description="Author of the hold.")]


@api_answer
class HoldsView(SnapshotAnswer):
    """All held nodes and queues."""

    holds: tuple[HoldView, ...]


@router.get("", *READ_PROBLEMS, "not-modified", answer=HoldsView)
def list_holds(request: Request, cluster: Cluster, _: User) -> Response:
    """Nodes and queues with an administrator's hold, which prevents new placements."""
    return _holds_reply(request, cluster)


@router.put("/{kind}/{name}", *ACT_PROBLEMS, *BODY_PROBLEMS, answer=HoldsView)
async def post_hold(
    request: Request, cluster: Cluster, kind: _KindPath, name: _NamePath, body: HoldRequest, caller: Operator
) -> Response:
    """Hold nodes (drain them) or a queue. Needs the role `operator` or `admin`.

    Running jobs go on. Jobs planned on the nodes are planned elsewhere, jobs of the queue have no start until
    it is released; they may be later than promised.
    """
    await hold_planning(cluster, kind, _expand_names(cluster.published, kind, name), body.reason, caller.name)
    return _holds_reply(request, cluster)


@router.delete("/{kind}/{name}", *ACT_PROBLEMS, answer=HoldsView)
async def delete_hold(
    request: Request, cluster: Cluster, kind: _KindPath, name: _NamePath, caller: Operator
) -> Response:
    """Plan for nodes or a queue again. Needs the role `operator` or `admin`."""
    await release_planning(cluster, kind, _expand_held_names(cluster.published, kind, name), caller.name)
    return _holds_reply(request, cluster)


@router.post("/{kind}/{name}/preview", *ACT_PROBLEMS, "too-hard", *BODY_PROBLEMS, answer=PreviewView)
async def preview_hold(
    request: Request, cluster: Cluster, kind: _KindPath, name: _NamePath, body: HoldRequest, caller: Operator
) -> Response:
    """What would follow if it was held? Nothing is done. Needs the role `operator` or `admin`."""
    names = _expand_names(cluster.published, kind, name)
    return reply(request, await preview_holds(request, cluster, kind, names, body.reason, caller.name))


async def hold_planning(
    cluster: PlanLoop, kind: HoldKind, names: Sequence[str], reason: str, who: str
) -> None:
    """Hold nodes or queues, with an audit entry. Raises ProblemError."""
    what = _join_names(names)
    async with audit_act(cluster, who, "hold", f"{kind} {what}: {reason}"):
        events = [_hold_event(cluster, kind, name, reason, who) for name in names]
        await submit_events(cluster, events, "the holds")
    _log.warning("planning was held", cluster=cluster.name, by=who, kind=kind, name=what, reason=reason)


async def preview_holds(
    request: Request, cluster: PlanLoop, kind: HoldKind, names: Sequence[str], reason: str, who: str
) -> PreviewView:
    """What would follow if they were held. Raises ProblemError."""
    return await preview_events(
        request, cluster, [_hold_event(cluster, kind, name, reason, who) for name in names]
    )


async def release_planning(cluster: PlanLoop, kind: HoldKind, names: Sequence[str], who: str) -> None:
    """Release them, with an audit entry. Raises ProblemError."""
    what = _join_names(names)
    async with audit_act(cluster, who, "release", f"{kind} {what}"):
        held = [one.name for one in cluster.published.holds if one.kind == kind]
        for name in names:
            if name not in held:
                allowed = ", ".join(sorted(held)) or f"none: no {kind} is held"
                raise _invalid_name(f"planning of {kind} {name[:80]} is not held", allowed)
        now = cluster.now()
        events = [
            PlanningReleased(id=f"api:{secrets.token_hex(8)}", time=now, kind=kind, name=name)
            for name in names
        ]
        await submit_events(cluster, events, "the holds")
    _log.warning("planning was released", cluster=cluster.name, by=who, kind=kind, name=what)


def _expand_names(published: PlanSnapshot, kind: HoldKind, text: str) -> list[str]:
    """What a name of the path means: itself, or the nodes that fit. Raises ProblemError."""
    if kind == "queue" or text in published.nodes:
        return [text]
    try:
        return select_nodes(published.nodes, text)
    except ValueError as error:
        some = ", ".join(sorted(published.nodes, key=natural_key)[:_MAX_NAMES_SHOWN])
        raise _invalid_name(str(error)[:200], some or "no nodes are known yet") from None


def _expand_held_names(published: PlanSnapshot, kind: HoldKind, text: str) -> list[str]:
    """The same of the held ones. Raises ProblemError."""
    held = [one.name for one in published.holds if one.kind == kind]
    if kind == "queue" or text in held or text in published.nodes:
        return [text]
    found = [name for name in _expand_names(published, kind, text) if name in held]
    return found or [text]


def _join_names(names: Sequence[str]) -> str:
    """Their names, shortened where they are many."""
    return shorten_list(names, _MAX_NAMES_SHOWN)


def _hold_event(cluster: PlanLoop, kind: HoldKind, name: str, reason: str, who: str) -> PlanningHeld:
    known = _known_names(cluster.published, kind)
    if name not in known:
        raise _invalid_name(
            f"no {kind} {name[:80]}", ", ".join(sorted(known)[:20]) or f"no {kind}s are known yet"
        )
    return PlanningHeld(
        id=f"api:{secrets.token_hex(8)}", time=cluster.now(), kind=kind, name=name, reason=reason, by=who
    )


def _known_names(published: PlanSnapshot, kind: HoldKind) -> frozenset[str]:
    return frozenset(published.nodes if kind == "node" else published.queues)


def _invalid_name(what: str, allowed: str) -> ProblemError:
    return invalid_problem("path.name", what, allowed)


def _holds_reply(request: Request, cluster: PlanLoop) -> Response:
    published = cluster.published
    rows = tuple(
        HoldView(kind=one.kind, name=one.name, reason=one.reason, since=one.time, by=one.by)
        for one in sorted(published.holds, key=lambda one: (one.kind, natural_key(one.name)))
    )
    return reply(request, HoldsView(holds=rows, **snapshot_fields(published)), published)
