"""Metrics at the start of a job: errors of published starts."""

from typing import Final

from prometheus_client import generate_latest

from schedd.predict import EstimateKind
from schedd.service.cluster.metrics import PlannerMetrics
from schedd.wire import ExpectedFacts, JobStarted, ShareFacts, StartsExpected
from tests.engine.cluster import Cluster, T

HOUR = 3600
TOLD: Final[tuple[tuple[EstimateKind, int], ...]] = (("submission", 600), ("waiting", 900))


def count_and_sum(meters: PlannerMetrics) -> dict[str, tuple[float, float]]:
    """Return, by kind of estimate, the number and the sum in seconds."""

    def value(kind: str, part: str) -> float:
        labels = {"cluster": "main", "published": kind}
        name = f"schedd_expected_start_error_seconds_{part}"
        return meters.registry.get_sample_value(name, labels) or 0.0

    return {kind: (value(kind, "count"), value(kind, "sum")) for kind in ("submission", "waiting", "hour")}


def test_expected_start_error_uses_the_first_estimate() -> None:
    cluster = Cluster(predict=True)
    meters = PlannerMetrics()
    counted = meters.for_cluster("main")
    cluster.submit("runs", walltime=HOUR)
    cluster.submit("waits", walltime=HOUR)
    for kind, at in TOLD:
        told = ExpectedFacts("waits", T + at, T + HOUR, T + HOUR, kind, -1)
        cluster.send(StartsExpected(id=kind, time=T, jobs=(told,)))
    counted.observe_events(
        cluster.engine, [JobStarted(id="s", time=T + 1_000, job_id="waits", shares=(ShareFacts("n1", 4),))]
    )
    assert count_and_sum(meters) == {"submission": (1, 400), "waiting": (1, 100), "hour": (0, 0)}
    assert b'published="submission"' in generate_latest(meters.registry)


def test_no_errors_are_counted_without_predictions() -> None:
    cluster = Cluster()
    meters = PlannerMetrics()
    cluster.submit("a", walltime=HOUR)
    meters.for_cluster("main").observe_events(
        cluster.engine, [JobStarted(id="s", time=T, job_id="a", shares=(ShareFacts("n1", 4),))]
    )
    assert count_and_sum(meters) == {"submission": (0, 0), "waiting": (0, 0), "hour": (0, 0)}
