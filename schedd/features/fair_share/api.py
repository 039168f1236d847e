"""Fair share: the tree of target and received shares."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fastapi import Request, Response

from schedd.api.access import Cluster, Visibility
from schedd.api.planner_calls import await_planner
from schedd.api.problems import problem_responses
from schedd.api.replies import documented, reply
from schedd.api.routes import RouteTable
from schedd.api.views import SnapshotAnswer
from schedd.engine import Engine
from schedd.features.fair_share.rules import rate_tree
from schedd.features.fair_share.tree import Place, ShareRow
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read.job_visibility import JobVisibility

__all__ = ["FairShareEntry", "FairShareView", "fetch_fair_share", "router"]

router = RouteTable(prefix="/v1/clusters/{cluster}", tags=["jobs"])
_PLANNER_TIMEOUT_S: Final = 2.0
_RETRY_HINT: Final = "ask again in a moment"
_READ: Final = problem_responses("no-token", "unknown-cluster", "not-ready", "invalid")


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class FairShareEntry:
    """One place of the fair-share tree."""

    path: str
    """Names from the top, such as `physics/ann`; `-` where jobs name nothing."""
    user: str
    """The user whose place it is; empty: a group, an account, or another place above users."""
    share: float
    """The shares, relative to its siblings."""
    target: float
    """Target share: part of the whole."""
    used: float
    """Charged cpu-seconds, with decay."""
    usage: float
    """Received share: part of all usage."""
    effective_usage: float
    """Received share, with a part of the usage of the place above; the factor uses it."""
    factor: float
    """1 without use, 0.5 at the target, going to 0."""
    waited: float
    """Seconds waited per cpu-second used (normalised user wait time)."""


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class FairShareView(SnapshotAnswer):
    """Target and received shares of the site's tree."""

    levels: tuple[str, ...]
    """Attributes of jobs that name their owners, from the top; empty where the site has no fair share."""
    places: tuple[FairShareEntry, ...]
    """Parents before children."""


@router.get("/fair-share", response_model=FairShareView, responses=_READ)
async def get_fair_share(request: Request, cluster: Cluster, visibility: Visibility) -> Response:
    """The tree of shares: target share, received share and factor of each account, group or user. Users that
    see only their own jobs do not see the entries of other users.
    """
    return reply(request, await fetch_fair_share(cluster, visibility))


async def fetch_fair_share(cluster: PlanLoop, visibility: JobVisibility) -> FairShareView:
    """The visible part of the tree of shares. Raises ProblemError."""
    return await await_planner(
        cluster.call_between_batches(lambda engine: _fair_share_view(engine, visibility)),
        _PLANNER_TIMEOUT_S,
        _RETRY_HINT,
    )


def _fair_share_view(engine: Engine, visibility: JobVisibility) -> FairShareView:
    state = engine.state
    shares = rate_tree(state)
    users = shares.users() if shares is not None else {}
    places = []
    for row in shares.rows() if shares is not None else ():
        user = next((users[above] for above in _above(row.place) if above in users), "")
        if not user or visibility.shows_owner(user):
            places.append(_fair_share_entry(row, user))
    return FairShareView(
        levels=shares.tree.levels if shares is not None else (),
        places=tuple(places),
        as_of=state.now,
        generation=state.generation,
        stale=state.stale,
    )


def _above(place: Place) -> Iterator[Place]:
    """Yield the place, and those above it."""
    yield from (place[:n] for n in range(len(place), 0, -1))


def _fair_share_entry(row: ShareRow, user: str) -> FairShareEntry:
    return FairShareEntry(
        path="/".join(row.place),
        user=user,
        share=row.share,
        target=row.target,
        used=row.used,
        usage=row.usage,
        effective_usage=row.effective_usage,
        factor=row.factor,
        waited=row.waited,
    )
