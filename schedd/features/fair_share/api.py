"""Fair share: the tree of target and received shares."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final

from fastapi import Query, Request, Response
from starlette.concurrency import run_in_threadpool

from schedd.api.access import Cluster, Visibility
from schedd.api.planner_calls import TIMEOUTS, await_planner, database_errors
from schedd.api.problems import READ_PROBLEMS
from schedd.api.replies import api_answer, reply
from schedd.api.routes import RouteTable
from schedd.api.views import SnapshotAnswer
from schedd.engine import Engine
from schedd.features.fair_share.background import ShareHistoryWorker
from schedd.features.fair_share.rules import rate_tree
from schedd.features.fair_share.tree import RatedTree, ShareRow
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.read.job_visibility import JobVisibility
from schedd.store.records import ShareSample

router = RouteTable(prefix="/v1/clusters/{cluster}", tags=["jobs"])
_RETRY_HINT: Final = "ask again in a moment"
_MAX_TIME: Final = 2**62
_MAX_SAMPLES: Final = 400


@api_answer
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


@api_answer
class FairShareView(SnapshotAnswer):
    """Target and received shares of the site's tree."""

    levels: tuple[str, ...]
    """Attributes of jobs that name their owners, from the top; empty where the site has no fair share."""
    places: tuple[FairShareEntry, ...]
    """Parents before children."""
    mean_waited: float | None
    """Mean of the users' normalised wait times (`waited`), of all users with usage; null: there are none."""
    unfairness: float | None
    """Sum of squared differences of the users' normalised wait times from this mean; 0 is fair."""


@api_answer
class ShareCourseView:
    """Target and received share of one place over time."""

    path: str
    user: str
    """The user whose place it is; empty: a place above users."""
    target: tuple[float | None, ...]
    """By sample: the part of the whole; null where the place was not recorded."""
    received: tuple[float | None, ...]


@api_answer
class FairShareHistory:
    """Fair shares over time. One sample an hour is kept, of the 300 largest places."""

    times: tuple[int, ...]
    """Seconds since the epoch."""
    places: tuple[ShareCourseView, ...]
    """The place with the largest share in the last sample first."""


@router.get("/fair-share", *READ_PROBLEMS, "invalid", answer=FairShareView)
async def get_fair_share(request: Request, cluster: Cluster, visibility: Visibility) -> Response:
    """The tree of shares: target share, received share and factor of each account, group or user. Users that
    see only their own jobs do not see the entries of other users.
    """
    return reply(request, await fetch_fair_share(cluster, visibility))


@router.get("/fair-share/history", *READ_PROBLEMS, "invalid", answer=FairShareHistory)
async def get_fair_share_history(
    request: Request,
    cluster: Cluster,
    visibility: Visibility,
    since: Annotated[int, Query(description="Samples of this second and later.", ge=0, le=_MAX_TIME)],
    until: Annotated[int | None, Query(description="And before this second.", ge=0, le=_MAX_TIME)] = None,
    path: Annotated[str, Query(description="Only this place.", max_length=2048)] = "",
) -> Response:
    """Target and received shares over time: at most 400 samples, evenly spread over the period. Users that
    see only their own jobs do not see the places of other users.
    """
    end = until if until is not None else cluster.now() + 1
    clusters: Clusters = request.app.state.clusters
    with database_errors():
        found = await run_in_threadpool(share_courses, clusters, cluster, visibility, since, end)
    if path:
        found = replace(found, places=tuple(one for one in found.places if one.path == path))
    return reply(request, found)


def share_courses(
    clusters: Clusters, cluster: PlanLoop, visibility: JobVisibility, since: int, until: int
) -> FairShareHistory:
    """The visible history in ``[since, until)``. Waits for the database. Raises StoreError."""
    every = max(1, -(-(until - since) // max(1, _MAX_SAMPLES - 1)))  # the first of them may be a partial one
    history = clusters.service(cluster.name, ShareHistoryWorker).history
    samples = history.samples(since, until, _MAX_SAMPLES, every)
    return FairShareHistory(
        times=tuple(one.time for one in samples), places=tuple(_courses(samples, visibility))
    )


def _courses(samples: Sequence[ShareSample], visibility: JobVisibility) -> list[ShareCourseView]:
    found: dict[str, tuple[str, list[float | None], list[float | None]]] = {}
    for number, sample in enumerate(samples):
        for one in sample.shares:
            if one.user and not visibility.shows_owner(one.user):
                continue
            nothing: list[float | None] = [None] * len(samples)
            _, target, received = found.setdefault(one.place, (one.user, nothing, list(nothing)))
            target[number], received[number] = one.target, one.received
    courses = [
        ShareCourseView(path=path, user=user, target=tuple(target), received=tuple(received))
        for path, (user, target, received) in found.items()
    ]
    return sorted(courses, key=lambda one: (-max(one.target[-1] or 0, one.received[-1] or 0), one.path))


async def fetch_fair_share(cluster: PlanLoop, visibility: JobVisibility) -> FairShareView:
    """The visible part of the tree of shares. Raises ProblemError."""
    return await await_planner(
        cluster,
        cluster.call_between_batches(lambda engine: _fair_share_view(engine, visibility)),
        TIMEOUTS.read,
        _RETRY_HINT,
    )


def _fair_share_view(engine: Engine, visibility: JobVisibility) -> FairShareView:
    state = engine.state
    shares = rate_tree(state)
    places = []
    if shares is not None:
        user_at = shares.users_by_place()
        rows = ((row, user_at(row.place)) for row in shares.rows())
        places = [
            _fair_share_entry(row, user) for row, user in rows if not user or visibility.shows_owner(user)
        ]
    mean, spread = _fairness(shares)
    return FairShareView(
        mean_waited=mean,
        unfairness=spread,
        levels=shares.tree.levels if shares is not None else (),
        places=tuple(places),
        as_of=state.now,
        generation=state.generation,
        stale=state.stale,
    )


def _fairness(shares: RatedTree | None) -> tuple[float | None, float | None]:
    """Mean of the users' normalised waits, and the sum of squared differences from it (thesis, 2.33 and
    2.34), over all users with usage; None without any.
    """
    if shares is None or "user" not in shares.tree.levels:
        return None, None
    at = shares.tree.levels.index("user")
    sums: dict[str, tuple[float, float]] = {}
    for names, (used, waited) in shares.used.items():
        before = sums.get(names[at], (0.0, 0.0))
        sums[names[at]] = before[0] + used, before[1] + waited
    waits = [waited / used for used, waited in sums.values() if used > 0]
    if not waits:
        return None, None
    mean = sum(waits) / len(waits)
    return mean, sum((one - mean) ** 2 for one in waits)


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
