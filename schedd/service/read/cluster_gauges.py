"""Prometheus gauges and counters of clusters, read from the plan snapshots at each scrape."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from schedd import __version__
from schedd.engine import alert_kinds
from schedd.feature_list import feature_modules
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.read.cluster_report import longest_waits
from schedd.service.read.plan_lists import count_jobs


class ClusterGauges(Collector):
    """Collector for the clusters ``shown``."""

    def __init__(self, clusters: Clusters, shown: Sequence[PlanLoop]) -> None:
        self._clusters = clusters
        self._shown = shown

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families."""
        jobs = GaugeMetricFamily("schedd_jobs", "Jobs by where they stand", labels=["cluster", "state"])
        nodes = GaugeMetricFamily("schedd_nodes", "Nodes by state", labels=["cluster", "state"])
        waiting = _gauge("schedd_events_waiting", "Events that came and are not handled yet")
        behind = _gauge("schedd_history_events_behind", "Stored events that the history does not include yet")
        arriving = _gauge("schedd_jobs_arriving", "New jobs of a snapshot that are not taken in yet")
        decisions = _gauge("schedd_decisions_open", "Decisions whose outcome is not known yet")
        age = _gauge("schedd_plan_age_seconds", "Since the plan was brought up to date")
        ahead = _gauge("schedd_plan_ahead_seconds", "From now to the last planned end")
        heard = _gauge("schedd_adapter_age_seconds", "Since the adapter was last heard of, or expected")
        clock = _gauge("schedd_clock_ahead_seconds", "How far the adapter's clock is before the daemon's")
        busy = _gauge("schedd_planner_busy_seconds", "For how long the planner is at its present work")
        paused = _gauge("schedd_paused", "1 while no jobs are started by an admin's order")
        halted = _gauge("schedd_halted", "1 while no jobs are started though the mode is scheduler")
        stale = _gauge("schedd_stale", "1 while the server's state is not known for sure")
        failing = _gauge("schedd_failing", "1 when the planner stopped or waits for its database")
        leading = _gauge("schedd_leading", "1 while this daemon decides, 0 while it stands by")
        alerts = GaugeMetricFamily("schedd_alerts_open", "Alerts that are open", labels=["cluster", "kind"])
        covered = GaugeMetricFamily(
            "schedd_expected_coverage",
            "Share of the latest published expected starts with a past P90 whose job started by P50 or P90",
            labels=["cluster", "published", "percentile"],
        )
        halted_waits = CounterMetricFamily(
            "schedd_expected_halted",
            "Expected starts that do not count in the coverage: all starts were halted during the wait",
            labels=["cluster", "published"],
        )
        generations = _counter("schedd_generations", "Batches that the planner took in")
        at_risk = _gauge("schedd_promises_at_risk", "Promises that cannot be kept as planned now")
        pressures = GaugeMetricFamily(
            "schedd_licence_pressure",
            "Copies that waiting jobs ask for and running ones hold, over the copies there are",
            labels=["cluster", "licence"],
        )
        oldest = GaugeMetricFamily(
            "schedd_longest_wait_seconds",
            "For how long the oldest job of a queue waits that may run; 0 where none waits",
            labels=["cluster", "queue"],
        )
        breaches = _counter("schedd_promise_breaches", "Promises that were not kept")
        for loop in self._shown:
            name, published = [loop.name], loop.published
            for state, count in asdict(count_jobs(published)).items():
                jobs.add_metric([*name, state], count)
            for state, count in Counter(node.state for node in published.present_nodes.values()).items():
                nodes.add_metric([*name, state], count)
            placed = published.starts >= 0
            last = int((published.starts[placed] + published.durations[placed]).max(initial=0))
            waiting.add_metric(name, loop.pending)
            behind.add_metric(name, loop.history_events_behind)
            arriving.add_metric(name, published.arriving)
            decisions.add_metric(name, len(loop.decisions))
            age.add_metric(name, max(0, loop.now() - published.as_of))
            ahead.add_metric(name, max(0, last - loop.now()))
            if not loop.on_standby:
                heard.add_metric(name, loop.adapter_contact.age_s)
                apart = loop.adapter_contact.clock_lead_s
                clock.add_metric(name, apart if apart is not None else math.nan)
            busy.add_metric(name, loop.busy_for)
            paused.add_metric(name, bool(published.paused))
            halted.add_metric(name, published.starts_stopped)
            stale.add_metric(name, bool(published.stale))
            failing.add_metric(name, bool(loop.failure or loop.trouble or loop.failing))
            opened = Counter(alert.kind for alert in loop.alerts.current)
            for kind in alert_kinds():
                alerts.add_metric([*name, kind], opened[kind])
            for kind, (_, p50, p90) in published.forecasts.held.items():
                covered.add_metric([*name, kind, "50"], p50)
                covered.add_metric([*name, kind, "90"], p90)
            for kind, number in published.forecasts.halted.items():
                halted_waits.add_metric([*name, kind], number)
            leading.add_metric(name, loop.is_leader)
            generations.add_metric(name, published.generation)
            at_risk.add_metric(name, published.at_risk)
            breaches.add_metric(name, published.breaches)
            for licence, pressure in published.pressures.items():
                pressures.add_metric([*name, licence], pressure)
            for queue, wait in longest_waits(published).items():
                oldest.add_metric([*name, queue], wait)
        yield from (
            jobs,
            nodes,
            waiting,
            behind,
            arriving,
            decisions,
            age,
            ahead,
            heard,
            clock,
            busy,
        )
        yield from (paused, halted, stale, failing, alerts, covered, leading, generations, at_risk, breaches)
        yield from (halted_waits, pressures, oldest)
        shown = {loop.name: loop.published for loop in self._shown}
        for module in feature_modules("metrics"):
            yield from module.collect_metrics(shown)
        yield from self._background()
        durable = self._clusters.durable
        if durable is not None and durable.opened.is_set():
            about = "The leader's term; 0 while it is not this daemon"
            yield GaugeMetricFamily("schedd_term", about, durable.lead.term)
        build = GaugeMetricFamily("schedd_build", "1, with the program's version", labels=["version"])
        build.add_metric([__version__], 1)
        yield build

    def _background(self) -> Iterator[Metric]:
        labels = ["cluster", "work"]
        failures = CounterMetricFamily(
            "schedd_background_failures",
            "Failures of background work, each followed by a restart",
            labels=labels,
        )
        down = GaugeMetricFamily(
            "schedd_background_down",
            "1 while background work waits for its restart",
            labels=labels,
        )
        shown = {"", *(loop.name for loop in self._shown)}
        for record in self._clusters.supervisor.records:
            if record.cluster in shown:
                failures.add_metric([record.cluster, record.name], record.failures)
                down.add_metric([record.cluster, record.name], record.down)
        yield failures
        yield down


class FilteredCollector(Collector):
    """Another collector's metrics of some clusters, and those without a cluster."""

    def __init__(self, whole: Collector, clusters: frozenset[str]) -> None:
        self._whole = whole
        self._clusters = clusters

    def collect(self) -> Iterator[Metric]:
        """Yield the filtered metric families."""
        for family in self._whole.collect():
            kept = Metric(family.name, family.documentation, family.type, family.unit)
            kept.samples = [
                one for one in family.samples if one.labels.get("cluster", "") in self._clusters | {""}
            ]
            yield kept


def _gauge(name: str, about: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, about, labels=["cluster"])


def _counter(name: str, about: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, about, labels=["cluster"])
