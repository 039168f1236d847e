"""Metrics of waiting times by queue and QOS."""

from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric

from schedd.engine import PlanSnapshot
from schedd.features.qos.state import WAIT_BOUNDS_S, PublishedQos


def collect_metrics(clusters: Mapping[str, PlanSnapshot]) -> Iterator[Metric]:
    """The metrics of clusters, by name."""
    waits = HistogramMetricFamily(
        "schedd_job_wait_seconds",
        "From the time at which a job became eligible to its start, by queue and QOS",
        labels=["cluster", "queue", "qos"],
    )
    bounds = [*(str(float(bound)) for bound in WAIT_BOUNDS_S), "+Inf"]
    for name, published in clusters.items():
        for (queue, qos), one in published.part(PublishedQos).waits.items():
            buckets = list(zip(bounds, accumulate(one.counts), strict=True))
            waits.add_metric([name, queue, qos], buckets, one.sum)
    yield waits
