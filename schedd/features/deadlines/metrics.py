"""Metrics of deadlines: accepted and refused ones, and outcomes of accepted ones."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric

from schedd.engine import PlanSnapshot
from schedd.features.deadlines.state import OUTCOMES, PublishedDeadlines


def collect_metrics(clusters: Mapping[str, PlanSnapshot]) -> Iterator[Metric]:
    """The metrics of clusters, by name."""
    deadlines = CounterMetricFamily(
        "schedd_deadlines",
        "Deadlines that were accepted or refused, and accepted ones that were kept or missed",
        labels=["cluster", "outcome"],
    )
    for name, published in clusters.items():
        counts = published.part(PublishedDeadlines).counts
        for outcome in OUTCOMES:
            deadlines.add_metric([name, outcome], counts.get(outcome, 0))
    yield deadlines
