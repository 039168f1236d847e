"""Log of plan metrics and searches: in memory, and in a database across restarts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from schedd.optimize import SearchEndReason, SearchReport
from schedd.optimize.search_report import CriterionDelta
from schedd.plan.criteria import Criterion
from schedd.plan.trials import MoveKind
from schedd.service.background.plan_metrics_log import (
    MemoryPlanMetricsLog,
    PlanMetricsLog,
    SearchRun,
    StoredPlanMetricsLog,
)
from schedd.service.background.plan_metrics_sampler import PlanMetricsSampler
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.settings.daemon import StoreSettings
from schedd.store import StoreError
from schedd.store.records import PlanMetricsSample, SearchRecord
from tests.service.planner_harness import T, job, node, planner
from tests.waits import WAIT_S, wait_until

REPORT = SearchReport(
    kind=next(iter(MoveKind)),
    seed=1,
    jobs=3,
    tried=10,
    accepted=2,
    too_late=1,
    pulled_left=0,
    moved=2,
    gain=0.25,
    changes=(CriterionDelta(Criterion.WAIT, "s", 20.0, 1 / 3),),
    why_ended=SearchEndReason.SECONDS,
    elapsed_s=0.5,
)


def search_run(number: int) -> SearchRun:
    return SearchRun(number, T + number, "periodic", 4, 2, REPORT)


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[DaemonStore]:
    opened = DaemonStore(StoreSettings(url=f"sqlite:///{tmp_path}/a.sqlite"))
    opened.open()
    opened.store.register_cluster("main", T)
    yield opened
    opened.close()


@pytest.fixture(params=["memory", "store"])
def metrics_log(request: pytest.FixtureRequest) -> PlanMetricsLog:
    if request.param == "memory":
        return MemoryPlanMetricsLog()
    return StoredPlanMetricsLog(request.getfixturevalue("durable"), "main")


def test_stored_searches_are_read_by_page(metrics_log: PlanMetricsLog) -> None:
    assert (metrics_log.last_search(), metrics_log.searches(5).runs) == (0, ())
    for number in (1, 2, 3):
        metrics_log.record_search(search_run(number))
    assert metrics_log.last_search() == 3
    page = metrics_log.searches(2)
    assert (page.runs, page.following) == ((search_run(3), search_run(2)), 2)
    page = metrics_log.searches(2, page.following)
    assert (page.runs, page.following) == ((search_run(1),), None)
    assert metrics_log.searches(3).following is None


def test_plan_metrics_are_thinned_on_request(metrics_log: PlanMetricsLog) -> None:
    made = [PlanMetricsSample(at, 1, 5, {"wait": at / 7}) for at in (60, 90, 120, 121, 200)]
    for one in made:
        metrics_log.record_metrics(one)
    metrics_log.record_metrics(replace(made[-1], generation=2))
    made[-1] = replace(made[-1], generation=2)
    assert metrics_log.metrics(0, 1000, 10) == made
    assert metrics_log.metrics(60, 200, 2) == made[:2]
    assert metrics_log.metrics(0, 1000, 10, 60) == [made[1], made[3], made[4]]


def test_unreadable_reports_from_other_versions_are_left_out(durable: DaemonStore) -> None:
    metrics_log = StoredPlanMetricsLog(durable, "main")
    metrics_log.record_search(search_run(1))
    durable.store.save_search(1, SearchRecord(2, T, '{"kind": "of a later version"}'))
    metrics_log.record_search(search_run(3))
    assert metrics_log.searches(9).runs == (search_run(3), search_run(1))
    assert metrics_log.searches(1, 3).following == 2  # a page may be empty, and is not the last


def test_unopened_database_is_reported(tmp_path: Path) -> None:
    metrics_log = StoredPlanMetricsLog(
        DaemonStore(StoreSettings(url=f"sqlite:///{tmp_path}/a.sqlite")), "main"
    )
    for call in (
        lambda: metrics_log.searches(1),
        lambda: metrics_log.metrics(0, 1, 1),
        metrics_log.last_search,
    ):
        with pytest.raises(StoreError, match="not opened yet"):
            call()


def test_sampler_records_metrics_after_plan_changes() -> None:
    metrics_log = MemoryPlanMetricsLog()
    with planner(end_allowance=0) as loop:
        sampler = PlanMetricsSampler(loop, metrics_log, 0.02)
        loop.submit([node("n1"), job("1"), job("2")]).result(WAIT_S)
        sampler.start()
        wait_until(lambda: bool(metrics_log.metrics(0, 2 * T, 9)))
        (one,) = metrics_log.metrics(0, 2 * T, 9)
        assert (one.time, one.generation, one.jobs) == (T, loop.published.generation, 1)
        assert one.values["wait"] == 3600.0
        loop.submit([job("3")]).result(WAIT_S)
        wait_until(lambda: metrics_log.metrics(0, 2 * T, 9)[-1].jobs == 2)
        sampler.end()
        sampler.join()
        assert not sampler._thread.is_alive()


def test_sampler_records_nothing_for_an_unchanged_plan_or_on_standby() -> None:
    metrics_log = MemoryPlanMetricsLog()
    with planner() as loop:
        loop.submit([node("n1"), job("1")]).result(WAIT_S)
        sampler = PlanMetricsSampler(loop, metrics_log, 60)
        loop.on_standby = True
        sampler.sample()
        assert metrics_log.metrics(0, 2 * T, 9) == []
        loop.on_standby = False
        sampler.sample()
        made = metrics_log.metrics(0, 2 * T, 9)
        assert len(made) == 1
        sampler.sample()
        assert metrics_log.metrics(0, 2 * T, 9)[0] is made[0]
