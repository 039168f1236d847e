"""Metrics of partitions."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from schedd.engine import PlanSnapshot
from schedd.features.partitions.capacity import list_partitions


def collect_metrics(clusters: Mapping[str, PlanSnapshot]) -> Iterator[Metric]:
    """The metrics of clusters, by name."""
    labels = ["cluster", "partition"]
    cpus = GaugeMetricFamily("schedd_partition_cpus", "Cpus of a partition", labels=labels)
    free = GaugeMetricFamily(
        "schedd_partition_free_cpus", "Free cpus of a partition's nodes that take new jobs", labels=labels
    )
    jobs = GaugeMetricFamily(
        "schedd_partition_jobs", "Jobs of a partition, running or waiting", labels=[*labels, "state"]
    )
    for name, published in clusters.items():
        for one in list_partitions(published):
            cpus.add_metric([name, one.name], one.cpus)
            free.add_metric([name, one.name], one.free_cpus)
            jobs.add_metric([name, one.name, "running"], one.running)
            jobs.add_metric([name, one.name, "waiting"], one.waiting)
    yield from (cpus, free, jobs)
