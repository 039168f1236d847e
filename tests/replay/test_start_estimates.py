"""Start estimates in replays: computed in the only run, or in a second, identical one."""

import random
from dataclasses import replace
from typing import Any

import pytest

from schedd.optimize import SearchSettings
from schedd.policy.slack import Slack
from schedd.replay.driver import replay
from schedd.replay.prepared import Prepared, prepare
from schedd.replay.result import TIMINGS
from schedd.replay.searches import SearchSchedule
from schedd.replay.simulation import Simulation
from schedd.replay.site import equal_node_site, single_node_site
from schedd.replay.start_estimates import StartEstimateFigures, StartEstimator
from schedd.replay.workload import Trace, TraceJob, select
from tests.property_examples import some


def busy(n: int = 160, seed: int = 1, nodes: int = 0) -> Prepared:
    """Users with habits and excessive walltimes, on a machine of 8 processors."""
    draw = random.Random(seed)
    jobs, now = [], 0
    for i in range(n):
        user = draw.randrange(5)
        now += int(draw.expovariate(1 / 330))
        run = max(1, int(300 * (1 + user) * draw.lognormvariate(0, 0.3)))
        jobs.append(
            TraceJob(id=i, submit=now, run=run, procs=draw.randint(1, 4), estimate=20_000, user=f"u{user}")
        )
    chosen = select(Trace("busy", tuple(jobs), max_procs=8), estimates="user")
    return prepare(chosen, equal_node_site(nodes, 8 // nodes) if nodes else single_node_site(8))


@pytest.mark.parametrize("policy", some(["conservative", "easy", "sjf"]))
def test_start_estimates_beat_walltime_estimates(policy: str) -> None:
    accuracy = replay(busy(), policy, slack=Slack(3600, 0.5), expected_starts=True).accuracy
    assert accuracy is not None
    assert accuracy.expected_jobs is not None
    assert accuracy.expected_jobs > 100
    assert accuracy.expected_error_ratio is not None
    assert accuracy.expected_error_ratio < 0.3
    assert accuracy.expected_p90_coverage is not None
    assert 0.8 <= accuracy.expected_p90_coverage <= 0.98
    assert accuracy.expected_p50_coverage is not None
    assert accuracy.expected_p50_coverage <= accuracy.expected_p90_coverage
    assert accuracy.expected_sharpness is not None
    assert accuracy.expected_sharpness >= 1
    assert accuracy.runtime_p90_coverage == pytest.approx(0.9, abs=0.06)
    assert accuracy.runtime_median_error_s is not None
    assert accuracy.runtime_median_error_s < 600


def test_forecasts_of_ends_are_calibrated() -> None:
    accuracy = replay(busy(n=250), "conservative", slack=Slack(3600, 0.5), expected_starts=True).accuracy
    assert accuracy is not None
    bins = accuracy.expected_ends
    assert bins is not None
    counts = [one.count for one in bins]
    assert sum(counts) == accuracy.expected_jobs
    gap = sum(one.count * abs(one.predicted - one.observed) for one in bins) / sum(counts)
    assert gap < 0.1, bins
    assert bins[-1].observed > 0.85
    assert bins[0].observed < 0.2


def test_estimates_are_counted_by_30_days_and_user_tenth() -> None:
    jobs = busy(n=240)
    month = 30 * 86_400
    slow = [replace(job, submit=job.submit + month * (i >= 120)) for i, job in enumerate(jobs.jobs)]
    accuracy = replay(replace(jobs, jobs=tuple(slow)), "conservative", expected_starts=True).accuracy
    assert accuracy is not None
    assert accuracy.expected_jobs is not None
    assert accuracy.expected_p90_coverage is not None
    months, users = accuracy.expected_months, accuracy.expected_tenths
    assert months is not None
    assert users is not None
    assert [one.number for one in months] == [1, 2]
    assert sum(one.jobs for one in months) == accuracy.expected_jobs
    assert sum(one.jobs * one.p90_coverage for one in months) / accuracy.expected_jobs == pytest.approx(
        accuracy.expected_p90_coverage
    )
    assert 1 <= len(users) <= 5, "there are five users"
    assert all(one.jobs >= 30 for one in users)
    assert sum(one.jobs for one in users) <= accuracy.expected_jobs


def test_estimates_do_not_change_the_replay_and_are_deterministic() -> None:
    jobs = busy(50)
    plain = replay(jobs, "conservative").as_row()
    rows = [replay(jobs, "conservative", expected_starts=True).as_row() for _ in range(2)]
    accuracy = StartEstimateFigures.__slots__
    assert all(plain[name] is None for name in accuracy)
    apart = {*accuracy, *TIMINGS}
    assert {k: v for k, v in rows[0].items() if k not in apart} == {
        k: v for k, v in plain.items() if k not in apart
    }
    assert [rows[0][name] for name in accuracy] == [rows[1][name] for name in accuracy]


def count_runs(monkeypatch: pytest.MonkeyPatch) -> list[Simulation]:
    runs: list[Simulation] = []

    def simulate(*args: Any, **named: Any) -> Simulation:
        runs.append(Simulation(*args, **named))
        return runs[-1]

    monkeypatch.setattr("schedd.replay.driver.Simulation", simulate)
    return runs


def test_one_run_is_enough_if_all_jobs_start_as_planned_at_their_submission(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = count_runs(monkeypatch)
    early = busy(60)
    exact = replace(early, jobs=tuple(replace(job, estimate=job.run) for job in early.jobs))
    once = replay(exact, "conservative", expected_starts=True).accuracy
    assert len(runs) == 1
    monkeypatch.setattr(StartEstimator, "has_starts", lambda *_: False)
    assert replay(exact, "conservative", expected_starts=True).accuracy == once
    assert len(runs) == 3


@pytest.mark.parametrize("policy", some(["conservative", "easy"]))
def test_two_runs_are_needed_if_jobs_start_earlier_than_planned(
    monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    runs = count_runs(monkeypatch)
    assert replay(busy(60), policy, expected_starts=True).accuracy is not None
    assert len(runs) == 2


def test_starts_are_estimated_on_several_nodes_and_with_searches() -> None:
    searching = SearchSchedule(1800, SearchSettings(moves=20))
    accuracy = replay(
        busy(60, nodes=4), "conservative", slack=Slack(3600, 0.5), searching=searching, expected_starts=True
    ).accuracy
    assert accuracy is not None
    assert accuracy.expected_jobs


def test_only_run_times_are_estimated_without_waiting_jobs() -> None:
    jobs = tuple(TraceJob(id=i, submit=i * 1000, run=10, procs=1, estimate=100) for i in range(30))
    prepared = prepare(select(Trace("idle", jobs, max_procs=4), estimates="user"), single_node_site(4))
    accuracy = replay(prepared, "conservative", expected_starts=True).accuracy
    assert accuracy is not None
    assert (accuracy.expected_jobs, accuracy.expected_p90_coverage, accuracy.expected_error_ratio) == (
        0,
        None,
        None,
    )
    assert (accuracy.expected_months, accuracy.expected_tenths) == (None, None)
    assert accuracy.runtime_p90_coverage is not None
