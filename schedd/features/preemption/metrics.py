"""Metrics of preemptions: how many runs were preempted, and the work that they lost."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric

from schedd.engine import PlanSnapshot
from schedd.features.preemption.state import PublishedPreemptions


def collect_metrics(clusters: Mapping[str, PlanSnapshot]) -> Iterator[Metric]:
    """The metrics of clusters, by name."""
    runs = CounterMetricFamily("schedd_preempted_runs", "Runs that were preempted", labels=["cluster"])
    lost = CounterMetricFamily(
        "schedd_preempted_core_seconds", "Core-seconds of work that preempted runs lost", labels=["cluster"]
    )
    for name, published in clusters.items():
        part = published.part(PublishedPreemptions)
        runs.add_metric([name], part.count)
        lost.add_metric([name], part.lost)
    yield from (runs, lost)
