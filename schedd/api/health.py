"""Health and metrics of the daemon, for monitoring."""

from collections.abc import Mapping
from typing import Final

from fastapi import Request, Response
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from schedd import __version__
from schedd.api.access import PEER_UID_KEY, Daemon, Reader, authenticate, get_daemon, visible_clusters
from schedd.api.problems import ProblemError, problem_responses
from schedd.api.replies import reply
from schedd.api.routes import RouteTable
from schedd.api.views import HealthView, ReadinessView
from schedd.service.cluster.adapter_contact import NO_ADAPTER_YET
from schedd.service.cluster.errors import PlannerStopped, StandingBy
from schedd.service.read.cluster_gauges import ClusterGauges, FilteredCollector
from schedd.service.read.current_faults import add_fault_start

router = RouteTable(tags=["health"])

_ADAPTER_REMARKS: Final[Mapping[str, str]] = {
    "registration": "an adapter is not registered as scheduler",
    "writing": "plans are not written on jobs",
    "stuck_vnodes": "a server holds vnodes for ended jobs",
    "adapter_work": "a part of an adapter's work fails",
}
"""Remarks on lasting troubles of adapters, by kind."""


@router.get("/healthz", answer=HealthView)
async def get_health(request: Request) -> Response:
    """The process lives and answers. Needs no token."""
    return reply(request, HealthView("ok", __version__))


@router.get("/readyz", "not-ready", answer=ReadinessView)
async def get_readiness(request: Request) -> Response:
    """Whether every planner works and has its server's state. Needs no token; reasons are shown only with
    one.

    Before its first contact with an adapter a daemon is ready, and says so, until `adapter_silence` has
    passed: programs that start after the daemon wait for this answer. A proxy should ask `/leadz`: an adapter
    must reach a daemon that misses it.
    """
    failures = get_daemon(request).failures
    if failures:
        raise await _not_ready_problem(request, failures)
    clusters = list(get_daemon(request))
    remarks = [
        words
        for words, applies in (
            (NO_ADAPTER_YET, any(loop.adapter_contact.absence and not loop.on_standby for loop in clusters)),
            ("clocks differ", any(loop.clock_problem for loop in clusters)),
            ("the settings have a fault", any(loop.settings_problem for loop in clusters)),
            ("a server does not call its scheduler", any(loop.scheduler_not_called for loop in clusters)),
            *(
                (words, any(kind in loop.adapter_troubles for loop in clusters))
                for kind, words in _ADAPTER_REMARKS.items()
            ),
        )
        if applies
    ]
    return reply(request, ReadinessView(f"ready, but {' and '.join(remarks)}" if remarks else "ready"))


@router.get("/leadz", "not-ready", answer=ReadinessView)
async def get_leadership(request: Request) -> Response:
    """Whether this daemon is in office, for a proxy before two daemons on one database. Needs no token."""
    for loop in get_daemon(request):
        try:
            loop.check_leads()
        except StandingBy:
            raise
        except PlannerStopped as error:
            raise await _not_ready_problem(request, {loop.name: str(error)}) from None
    return reply(request, ReadinessView("ready"))


async def _not_ready_problem(request: Request, failures: Mapping[str, str]) -> ProblemError:
    """Names of clusters, databases and hosts, and errors there, are hidden from unknown callers, and from
    callers without access to the cluster.
    """
    shows = "authorization" in request.headers or hasattr(request.state, PEER_UID_KEY)
    try:
        caller = await authenticate(request) if shows else None
    except ProblemError:
        caller = None
    visible = [loop.name for loop in visible_clusters(request, caller)] if caller is not None else []
    daemon = get_daemon(request)
    known = [
        f"{name}: {add_fault_start(daemon[name], why)}" for name, why in failures.items() if name in visible
    ]
    if known:
        return ProblemError("not-ready", "; ".join(known))
    return ProblemError(
        "not-ready",
        "a planner has stopped, waits for its database, or does not know its server's state",
        hint="see the log for which and why, or ask with a token",
    )


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus' format"},
        **problem_responses("no-token", "not-ready"),
    },
)
def get_metrics(request: Request, daemon: Daemon, caller: Reader) -> Response:
    """Metrics for Prometheus. A scrape counts over columns; it never waits for a planner. A role that is
    limited to some clusters gets the metrics of these.
    """
    shown = visible_clusters(request, caller, "see all")
    state = CollectorRegistry()
    state.register(ClusterGauges(daemon, shown))
    ProcessCollector(registry=state)
    counted: Collector = daemon.metrics.registry
    if len(shown) < len(list(daemon)):
        counted = FilteredCollector(counted, frozenset(loop.name for loop in shown))
    registries = (counted, request.app.state.request_metrics, state)
    return Response(b"".join(map(generate_latest, registries)), media_type=CONTENT_TYPE_LATEST)
