"""Data of the chart of plan metrics."""

import pytest

from schedd.dashboard.plan_metrics import metric_columns
from schedd.engine import EngineSettings
from schedd.service.clusters import Clusters
from schedd.store.records import PlanMetricsSample
from tests.service.planner_harness import StillClock, T


@pytest.mark.parametrize("seconds", [120, 150, 179, 180, 600])
def test_a_thinned_chart_ends_with_the_last_sample(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    monkeypatch.setattr("schedd.dashboard.plan_metrics._MAX_POINTS", 2)
    clusters = Clusters({"main": EngineSettings()}, StillClock())
    log = clusters.metrics_logs["main"]
    for moment in range(T - 600, T + 1, 20):
        log.record_metrics(PlanMetricsSample(moment, 1, 0, {}))
    found = metric_columns(clusters, clusters["main"], seconds)["time"]
    assert found[-1] == T
    assert len(found) <= 3
