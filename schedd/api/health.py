"""For those who watch the daemon: is it there, is it ready, how is it doing?"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from schedd import __version__
from schedd.api.access import Daemon, Reader, daemon_of
from schedd.api.bodies import Health, Ready
from schedd.api.problems import ProblemError, answers
from schedd.api.replies import reply
from schedd.service.clusters import Clusters
from schedd.service.reading import counts

__all__ = ["router"]

router = APIRouter(tags=["health"])


@router.get("/healthz", response_model=Health)
async def healthz(request: Request) -> Response:
    """The process lives and answers. Needs no token."""
    return reply(request, Health("ok", __version__))


@router.get("/readyz", response_model=Ready, responses=answers("not-ready"))
async def readyz(request: Request) -> Response:
    """Whether every planner can do its work. Needs no token."""
    failures = daemon_of(request).failures
    if failures:
        words = "; ".join(f"{name}: {why}" for name, why in failures.items())
        raise ProblemError("not-ready", words)
    return reply(request, Ready("ready"))


@router.get("/leadz", response_model=Ready, responses=answers("not-ready"))
async def leadz(request: Request) -> Response:
    """Whether this daemon decides, for what stands before two on one database. Needs no token."""
    for loop in daemon_of(request):
        loop.check_leads()
    return reply(request, Ready("ready"))


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus' format"},
        **answers("no-token", "not-ready"),
    },
)
def metrics(daemon: Daemon, _: Reader) -> Response:
    """Numbers for Prometheus. A scrape counts over columns; it never waits for a planner."""
    registry = CollectorRegistry()
    registry.register(_Numbers(daemon))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _Numbers(Collector):
    """What the publications say at the moment of the scrape."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def collect(self) -> Iterator[Metric]:
        """One family after another."""
        jobs = GaugeMetricFamily("schedd_jobs", "Jobs by where they stand", labels=["cluster", "state"])
        nodes = GaugeMetricFamily("schedd_nodes", "Nodes by state", labels=["cluster", "state"])
        waiting = _gauge("schedd_events_waiting", "Events that came and are not handled yet")
        decisions = _gauge("schedd_decisions_open", "Decisions whose outcome is not known yet")
        age = _gauge("schedd_plan_age_seconds", "Since the plan was brought up to date")
        busy = _gauge("schedd_planner_busy_seconds", "For how long the planner is at its present work")
        paused = _gauge("schedd_paused", "1 while no jobs are started by an admin's order")
        stale = _gauge("schedd_stale", "1 while the server's state is not known for sure")
        failing = _gauge("schedd_failing", "1 when the planner stopped or waits for its database")
        generations = _counter("schedd_generations", "Batches that the planner took in")
        breaches = _counter("schedd_promise_breaches", "Promises that were not kept")
        for loop in self._clusters:
            name, published = [loop.name], loop.published
            for state, count in asdict(counts(published)).items():
                jobs.add_metric([*name, state], count)
            for state, count in Counter(node.state for node in published.nodes.values()).items():
                nodes.add_metric([*name, state], count)
            waiting.add_metric(name, loop.pending)
            decisions.add_metric(name, len(loop.decisions))
            age.add_metric(name, max(0, loop.now() - published.as_of))
            busy.add_metric(name, loop.busy_for)
            paused.add_metric(name, bool(published.paused))
            stale.add_metric(name, bool(published.stale))
            failing.add_metric(name, bool(loop.failure or loop.trouble))
            generations.add_metric(name, published.generation)
            breaches.add_metric(name, published.breaches)
        yield from (jobs, nodes, waiting, decisions, age, busy, paused, stale, failing, generations, breaches)


def _gauge(name: str, about: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, about, labels=["cluster"])


def _counter(name: str, about: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, about, labels=["cluster"])
