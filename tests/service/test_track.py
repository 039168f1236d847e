"""How a plan's track record is kept: in memory, and in a database across lives of the daemon."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from schedd.optimize import SearchEndReason, SearchReport
from schedd.optimize.search_report import CriterionDelta
from schedd.optimize.settings import MoveKind
from schedd.plan.evaluate import Criterion
from schedd.service.background.plan_metrics_log import (
    MemoryPlanMetricsLog,
    PlanMetricsLog,
    SearchRun,
    StoredPlanMetricsLog,
)
from schedd.service.background.plan_metrics_sampler import PlanMetricsSampler
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.settings.file import StoreSettings
from schedd.store import StoreError
from schedd.store.records import PlanMetricsSample, SearchRecord
from tests.service.build import T, job, node, planner

WAIT = 120
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


def run(number: int) -> SearchRun:
    return SearchRun(number, T + number, "periodic", 4, 2, REPORT)


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[DaemonStore]:
    opened = DaemonStore(StoreSettings(url=f"sqlite:///{tmp_path}/a.sqlite"))
    opened.open()
    opened.store.register_cluster("main", T)
    yield opened
    opened.close()


@pytest.fixture(params=["memory", "store"])
def track(request: pytest.FixtureRequest) -> PlanMetricsLog:
    if request.param == "memory":
        return MemoryPlanMetricsLog()
    return StoredPlanMetricsLog(request.getfixturevalue("durable"), "main")


def test_stored_searches_are_read_back_by_page(track: PlanMetricsLog) -> None:
    assert (track.last_search(), track.searches(5).runs) == (0, ())
    for number in (1, 2, 3):
        track.record_search(run(number))
    assert track.last_search() == 3
    page = track.searches(2)
    assert (page.runs, page.following) == ((run(3), run(2)), 2)
    page = track.searches(2, page.following)
    assert (page.runs, page.following) == ((run(1),), None)
    assert track.searches(3).following is None


def test_plan_metrics_are_thinned_on_request(track: PlanMetricsLog) -> None:
    made = [PlanMetricsSample(at, 1, 5, {"wait": at / 7}) for at in (60, 90, 120, 121, 200)]
    for one in made:
        track.record_metrics(one)
    track.record_metrics(replace(made[-1], generation=2))
    made[-1] = replace(made[-1], generation=2)
    assert track.metrics(0, 1000, 10) == made
    assert track.metrics(60, 200, 2) == made[:2]
    assert track.metrics(0, 1000, 10, 60) == [made[1], made[3], made[4]]


def test_unreadable_reports_of_other_versions_are_left_out(durable: DaemonStore) -> None:
    track = StoredPlanMetricsLog(durable, "main")
    track.record_search(run(1))
    durable.store.save_search(1, SearchRecord(2, T, '{"kind": "of a later version"}'))
    track.record_search(run(3))
    assert track.searches(9).runs == (run(3), run(1))
    assert track.searches(1, 3).following == 2  # a page may be empty, and is not the last


def test_before_the_database_is_open_it_says_so(tmp_path: Path) -> None:
    track = StoredPlanMetricsLog(DaemonStore(StoreSettings(url=f"sqlite:///{tmp_path}/a.sqlite")), "main")
    for call in (lambda: track.searches(1), lambda: track.metrics(0, 1, 1), track.last_search):
        with pytest.raises(StoreError, match="not opened yet"):
            call()


def until(found: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not found():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_plan_is_evaluated_while_it_goes_on() -> None:
    track = MemoryPlanMetricsLog()
    with planner(end_allowance=0) as loop:
        sampler = PlanMetricsSampler(loop, track, 0.02)
        loop.submit([node("n1"), job("1"), job("2")]).result(WAIT)
        sampler.start()
        until(lambda: bool(track.metrics(0, 2 * T, 9)))
        (one,) = track.metrics(0, 2 * T, 9)
        assert (one.time, one.generation, one.jobs) == (T, loop.published.generation, 1)
        assert one.values["wait"] == 3600.0
        loop.submit([job("3")]).result(WAIT)
        until(lambda: track.metrics(0, 2 * T, 9)[-1].jobs == 2)
        sampler.end()
        sampler.join()
        assert not sampler._thread.is_alive()


def test_nothing_is_evaluated_while_nothing_goes_on_or_another_leads() -> None:
    track = MemoryPlanMetricsLog()
    with planner() as loop:
        loop.submit([node("n1"), job("1")]).result(WAIT)
        sampler = PlanMetricsSampler(loop, track, 60)
        loop.on_standby = True
        sampler.sample()
        assert track.metrics(0, 2 * T, 9) == []
        loop.on_standby = False
        sampler.sample()
        made = track.metrics(0, 2 * T, 9)
        assert len(made) == 1
        sampler.sample()
        assert track.metrics(0, 2 * T, 9)[0] is made[0]
