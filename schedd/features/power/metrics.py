"""Metrics of power saving."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from schedd.engine import PlanSnapshot
from schedd.features.power.state import PublishedPower

_COUNTED_PHASES: Final = ("stopping", "off", "booting", "failed")


def collect_metrics(clusters: Mapping[str, PlanSnapshot]) -> Iterator[Metric]:
    """The metrics of clusters, by name."""
    nodes = GaugeMetricFamily(
        "schedd_nodes_switched", "Nodes that were switched, by phase", labels=["cluster", "power"]
    )
    saved = CounterMetricFamily(
        "schedd_power_saved_joules", "Energy not drawn by nodes that were switched off", labels=["cluster"]
    )
    for name, published in clusters.items():
        power = published.part(PublishedPower)
        counts = Counter(one.phase for one in power.nodes.values())
        for phase in _COUNTED_PHASES:
            nodes.add_metric([name, phase], counts[phase])
        saved.add_metric([name], power.saved_joules)
    yield from (nodes, saved)
