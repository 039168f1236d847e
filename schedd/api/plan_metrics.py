"""Plan metrics, accuracy of start estimates, and each user's share."""

from typing import Annotated, Final

from fastapi import Query, Request, Response
from starlette.concurrency import run_in_threadpool

from schedd.api.access import Cluster, Daemon, Visibility
from schedd.api.planner_calls import database_errors, get_plan_fork
from schedd.api.problems import READ_PROBLEMS, invalid_problem
from schedd.api.question_runner import run_question
from schedd.api.replies import reply
from schedd.api.result_views import (
    AccuracyView,
    DeadlineAccuracy,
    EvaluationSample,
    EvaluationsView,
    EvaluationView,
    HorizonAccuracy,
    StartErrorView,
    UsersView,
)
from schedd.api.routes import RouteTable
from schedd.api.views import snapshot_fields
from schedd.engine import PlanSnapshot, deadline_accuracy
from schedd.plan.criteria import UNITS
from schedd.predict import Halts
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.questions.summaries import evaluate_criteria, summarise_users
from schedd.service.read.estimate_accuracy import EstimateAccuracy, estimate_accuracy
from schedd.store.records import StartAccuracy, StartErrorStatistics

router = RouteTable(prefix="/v1/clusters/{cluster}", tags=["plan metrics"])
DAY_S: Final = 86_400
MAX_TIME: Final = 2**62
_CRITERION_UNITS: Final = {criterion.value: unit for criterion, unit in UNITS.items()}
_OBJECTIVE_UNITS: Final = {
    "non_utilisation": "s",
    "lateness": "1",
    "energy": "kWh",
    "expected_loss": "core-h",
}
"""Of objectives that are no criteria; what counts money has the site's currency."""


@router.get("/users", *READ_PROBLEMS, "not-modified", answer=UsersView)
def get_users(request: Request, cluster: Cluster, visibility: Visibility) -> Response:
    """Each user's jobs, counted: running, planned and when next, waiting and for how long."""
    published = cluster.published
    found = tuple(one for one in summarise_users(published) if visibility.shows_owner(one.user))
    return reply(request, UsersView(users=found, **snapshot_fields(published)), published)


@router.get("/plan/evaluation", *READ_PROBLEMS, "not-modified", answer=EvaluationView)
async def get_evaluation(request: Request, cluster: Cluster, _: Visibility) -> Response:
    """The present plan by each criterion, over planned jobs. Waits and slowdowns assume full walltimes."""
    copy = await get_plan_fork(cluster)
    found = await run_question(request, evaluate_criteria, copy)
    view = EvaluationView(criteria=found, walltime_use=copy.walltime_use, **snapshot_fields(copy.published))
    return reply(request, view, copy.published)


@router.get("/plan/evaluation/history", *READ_PROBLEMS, "invalid", answer=EvaluationsView)
def get_evaluations(
    request: Request,
    cluster: Cluster,
    daemon: Daemon,
    _: Visibility,
    since: Annotated[
        int | None,
        Query(description="Values of this second and later; default: a day ago.", ge=0, le=MAX_TIME),
    ] = None,
    until: Annotated[int | None, Query(description="Those before this second.", ge=0, le=MAX_TIME)] = None,
    every: Annotated[
        int,
        Query(description="Only the last value of every so many seconds, for charts.", ge=1, le=DAY_S * 366),
    ] = 1,
    limit: Annotated[int, Query(description="Maximum number of values.", ge=1, le=10_000)] = 1_500,
) -> Response:
    """Earlier values of the plan metrics, in the order of time, recorded every minute while the plan changes.

    Read from the database, unlike the metrics of the present plan.
    """
    begin = since if since is not None else cluster.now() - DAY_S
    end = until if until is not None else MAX_TIME
    with database_errors():
        found = daemon.metrics_logs[cluster.name].metrics(begin, end, limit + 1, every)
    views = tuple(EvaluationSample(one.time, one.generation, one.jobs, one.values) for one in found[:limit])
    # Start of the period covered by this page.
    following = found[limit - 1].time + 1 if len(found) > limit else None
    currency = cluster.published.settings.site.economy.currency
    units = {**_CRITERION_UNITS, **_OBJECTIVE_UNITS, "cost": currency, "cost_overrun": currency}
    return reply(request, EvaluationsView(units, views, following))


@router.get("/accuracy", *READ_PROBLEMS, "not-modified", "invalid", answer=AccuracyView)
async def get_accuracy(
    request: Request,
    cluster: Cluster,
    daemon: Daemon,
    visibility: Visibility,
    since: Annotated[
        int | None,
        Query(
            description="Estimates published at this second and later; default: 30 days before the end.",
            ge=0,
            le=MAX_TIME,
        ),
    ] = None,
    until: Annotated[
        int | None, Query(description="And before this second; now unless given.", ge=0, le=MAX_TIME)
    ] = None,
    queue: Annotated[str, Query(description="Only jobs in this queue.", max_length=512)] = "",
    user: Annotated[
        str, Query(description="Only jobs of this owner: `ann`, or `ann@host`.", max_length=512)
    ] = "",
) -> Response:
    """Accuracy of start estimates of jobs that have started since: estimated against actual starts.

    `overall` and `by_lead` are of planned starts: errors are actual minus estimated, in seconds, so positive
    is later than estimated. `expected` is of expected starts; a job that still waits at its P90 counts as a
    miss, and `halted` ones do not count. Each is of the latest 100,000 estimates of the period:
    `planned_since` and `expected_since` say from when on, if there were more. Needs a database. Estimates are
    recorded some minutes later. `deadlines` has predicted and observed probabilities of ends in time; it
    needs no database, and is of all jobs.
    """
    if user and not visibility.shows_owner(user):
        what = f"you may not see jobs of {user}"
        raise invalid_problem("query.user", what)
    now = cluster.now()
    end = until if until is not None else now + 1
    begin = since if since is not None else max(0, end - 30 * DAY_S)
    if begin >= end:
        why = "it lies ahead" if begin > now else f"it ends at {end}"
        what = f"the period from {begin} on is empty: {why}"
        raise invalid_problem("query.since", what, f"a moment before {end}")
    found = await run_in_threadpool(_read_accuracy, daemon, cluster, begin, end, now, queue, user)
    deadlines = deadline_accuracy_rows(cluster.published)
    if found is None:
        none = AccuracyView(
            kept=False, overall=None, by_lead=(), expected=(), breaches=None, deadlines=deadlines
        )
        return reply(request, none)
    accuracy, right = found
    by_lead = tuple(_start_error_view(error, lead) for lead, error in sorted(accuracy.by_lead.items()))
    horizons = tuple(HorizonAccuracy(one.kind, one.lead, one.figures, one.halted) for one in right.horizons)
    overall = _start_error_view(accuracy.overall, 0)
    view = AccuracyView(
        True, overall, by_lead, horizons, right.breaches, accuracy.since, right.since, deadlines
    )
    return reply(request, view)


def deadline_accuracy_rows(published: PlanSnapshot) -> tuple[DeadlineAccuracy, ...]:
    """Return the accuracy of forecasts for deadlines, by kind and tenth of the probability."""
    return tuple(
        DeadlineAccuracy(kind, one.low, one.high, one.count, one.predicted, one.observed)
        for kind, bins in deadline_accuracy(published).items()
        for one in bins
    )


def _read_accuracy(
    daemon: Clusters, cluster: PlanLoop, since: int, until: int, now: int, queue: str, user: str
) -> tuple[StartAccuracy, EstimateAccuracy] | None:
    if daemon.durable is None:
        return None
    with database_errors():
        store = daemon.durable.store
        number = store.find_cluster(cluster.name) or 0
        halts = Halts(cluster.published.forecasts.halts)
        right = estimate_accuracy(store, number, since, until, now, halts, queue=queue, user=user)
        return store.accuracy(number, since, until, queue=queue, user=user), right


def _start_error_view(error: StartErrorStatistics, lead: int) -> StartErrorView:
    return StartErrorView(lead, error.count, error.mean, error.median_absolute, error.p90_absolute)
