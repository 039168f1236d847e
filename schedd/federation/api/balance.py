"""Performance of a federation's clusters over a period, and the balance of work between them."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from starlette.concurrency import run_in_threadpool

from schedd.api.cluster_reports import DAY_S, PeriodBegin, PeriodEnd
from schedd.api.problems import invalid_problem
from schedd.api.routes import RouteTable
from schedd.client import ClientError
from schedd.client.json_object import json_members
from schedd.federation.api.answers import BalanceView, ClusterBalance
from schedd.federation.api.app import Caller, LeadingFederation
from schedd.federation.api.audited_route import FederationRoute
from schedd.federation.cluster_failures import describe_failure
from schedd.federation.report import job_figures
from schedd.federation.routing.jobs import FederationJob
from schedd.federation.state.federation_state import FederationState
from schedd.federation.workers.cluster_worker import connect_cluster
from schedd.parallel_calls import call_in_parallel

router = RouteTable(route_class=FederationRoute)
_MAX_THREADS: Final = 32
_REPORTED: Final = frozenset(ClusterBalance.__dataclass_fields__) - {"why", "ours"}


@router.get("/v1/federation/balance", "no-token", "not-ready", "invalid")
async def _get_balance(
    federation: LeadingFederation,
    _: Caller,
    since: PeriodBegin = None,
    until: PeriodEnd = None,
) -> BalanceView:
    """Each cluster over a period, as its daemon reports it: deadlines, slowdown, use of processors and
    licences, and its share of the work and of the cpus.

    ``ours``: the federation's jobs that ended there, if they are still stored. Only clusters that disclose
    their load are queried.
    """
    now = federation.now
    end = min(until, now) if until is not None else now
    begin = since if since is not None else max(0, end - DAY_S)
    if begin >= end:
        what = f"the period from {begin} on is empty: it ends at {end}"
        raise invalid_problem("query.since", what, f"a time before {end}")
    rows = await run_in_threadpool(_balance_rows, federation, begin, end)
    return BalanceView(since=begin, until=end, clusters=rows)


def _balance_rows(federation: FederationState, since: int, until: int) -> list[ClusterBalance]:
    names = list(federation.settings.clusters)
    answers = call_in_parallel(
        lambda name: _query_cluster(federation, name, since, until), names, _MAX_THREADS
    )
    reports = dict(zip(names, answers, strict=True))
    work, cpus = (sum(one.get(what) or 0 for one in reports.values()) for what in ("work", "cpus"))
    jobs = [job for job in list(federation.jobs.by_id.values()) if since <= job.over_at < until]
    return [
        ClusterBalance(
            **{
                **one,
                "cluster": name,
                "share": one["work"] / work if work and one["work"] is not None else None,
                "optimal": one["cpus"] / cpus if cpus and one["cpus"] is not None else None,
            },
            ours=job_figures(_jobs_at(name, jobs)),
        )
        for name, one in reports.items()
    ]


def _query_cluster(federation: FederationState, name: str, since: int, until: int) -> dict[str, Any]:
    """Return a cluster's report of the period, or ``why`` there is none."""
    chosen = federation.settings.clusters[name]
    tokens: Mapping[str, str] = federation.cluster_tokens
    if not chosen.discloses("load"):
        return {"why": "it does not disclose its load", "work": None, "cpus": None}
    try:
        with connect_cluster(chosen, tokens[name]) as client:
            found = client.quality_report(since=since, until=until, cluster=chosen.cluster).clusters
    except ClientError as error:
        return {"why": describe_failure(error), "work": None, "cpus": None}
    if not found:
        return {"why": "it has no report of this period", "work": None, "cpus": None}
    # A newer schedd reports more fields, an older one fewer.
    said = {name: value for name, value in json_members(found[0]).items() if name in _REPORTED}
    return {"why": "", "work": None, "cpus": None, **said}


def _jobs_at(name: str, jobs: Iterable[FederationJob]) -> list[FederationJob]:
    return [job for job in jobs if job.active is not None and job.active.cluster == name]
