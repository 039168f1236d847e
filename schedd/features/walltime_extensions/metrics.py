"""Metric of walltime extensions."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric

from schedd.engine import PlanSnapshot
from schedd.features.walltime_extensions.state import PublishedExtensions


def collect_metrics(clusters: Mapping[str, PlanSnapshot]) -> Iterator[Metric]:
    """The metric of clusters, by name."""
    extensions = CounterMetricFamily(
        "schedd_walltime_extensions",
        "Extensions of walltimes that the server accepted or refused",
        labels=["cluster", "outcome"],
    )
    for name, published in clusters.items():
        part = published.part(PublishedExtensions)
        extensions.add_metric([name, "extended"], part.extended)
        extensions.add_metric([name, "refused"], part.refused)
    yield extensions
