"""Metrics of deadlines with a probability: outcomes, and predicted against observed probabilities."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from schedd.engine import PlanSnapshot
from schedd.features.deadline_forecasts.state import OUTCOMES, PublishedForecasts


def collect_metrics(clusters: Mapping[str, PlanSnapshot]) -> Iterator[Metric]:
    """The metrics of clusters, by name."""
    outcomes = CounterMetricFamily(
        "schedd_deadline_forecasts",
        "Deadlines with a probability that were accepted or refused, and accepted ones kept or missed",
        labels=["cluster", "outcome"],
    )
    shares = GaugeMetricFamily(
        "schedd_deadline_probability",
        "Mean predicted probability, and share that ended in time, of the latest forecasts of ends",
        labels=["cluster", "jobs", "bin", "share"],
    )
    for name, published in clusters.items():
        part = published.part(PublishedForecasts)
        for outcome in OUTCOMES:
            outcomes.add_metric([name, outcome], part.counts.get(outcome, 0))
        for kind, bins in part.accuracy.items():
            for one in bins:
                shares.add_metric([name, kind, f"{one.high:g}", "predicted"], one.predicted)
                shares.add_metric([name, kind, f"{one.high:g}", "observed"], one.observed)
    yield outcomes
    yield shares
