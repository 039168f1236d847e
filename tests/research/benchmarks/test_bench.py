"""Benchmark `plan`: options, output, and detection of a wrong planner."""

import json
from pathlib import Path

import pytest

from research.benchmarks.command import run
from research.benchmarks.grow import CheckFailed, Grower, run_bench
from schedd.plan.plan import NOT_BOUND, Plan

STEP = {
    "jobs", "add_us_mean", "add_us_p50", "add_us_p99", "repair_us_p50", "repair_us_p99", "inner_gap_share",
}  # fmt: skip
WHOLE = {
    "repair_all_ms", "first_dispatch_ms", "snapshot_us", "fork_ms", "rss_mib", "started_at_once", "horizon_s",
    "exponent", "engine_arrival_us",
}  # fmt: skip


@pytest.mark.parametrize("profile", ["metacentrum", "uniform", "large"])
def test_a_run_writes_ten_steps_and_the_figures_of_the_whole(profile: str, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    arguments = ["plan", "--nodes", "24", "--jobs", "200", "--profile", profile, "--seed", "7"]
    assert run([*arguments, "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found.keys() >= WHOLE
    assert [step["jobs"] for step in found["steps"]] == list(range(20, 201, 20))
    assert all(step.keys() >= STEP for step in found["steps"])
    assert all(step["checked"] > 5 for step in found["steps"])
    assert all(step["add_us_p50"] <= step["add_us_p99"] for step in found["steps"])
    assert 0 < found["started_at_once"] < 1
    assert found["horizon_s"] > 0


def test_the_same_seed_grows_the_same_plan() -> None:
    def shares(seed: int) -> tuple[list[float], float, int]:
        result = run_bench("metacentrum", 24, 100, seed)
        return [step.inner_gap_share for step in result.steps], result.started_at_once, result.horizon_s

    assert shares(3) == shares(3)
    assert shares(3) != shares(4)


def test_a_planner_that_passes_over_gaps_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Plan.place

    def late(self: Plan, slot: int, now: int, bound: int = NOT_BOUND) -> int:
        return place(self, slot, now + 3600, bound)

    monkeypatch.setattr(Plan, "place", late)
    monkeypatch.setattr(Grower, "repair", lambda self: self.plan.discard_freed() or 0.0)
    with pytest.raises(CheckFailed, match="by itself"):
        run_bench("metacentrum", 24, 100, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--nodes", "4", "--jobs", "9"], "at least 10"), (["--nodes", "0", "--jobs", "10"], "at least 1")],
)
def test_bad_arguments_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_engine_costs_are_measured_with_and_without_features(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    arguments = ["engine", "--nodes", "12", "--jobs", "30", "--arrivals", "5"]
    assert run([*arguments, "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    plain, full = found["costs"]
    assert (plain["policy"], full["policy"]) == ("without a policy", "all features")
    for one in (plain, full):
        assert 0 < one["arrival_us_least"] <= one["arrival_us_p50"] <= one["arrival_us_p99"]
        assert 0 < one["idle_calls"] < one["arrival_calls"]
    assert found["ratio"] == pytest.approx(full["arrival_us_p50"] / plain["arrival_us_p50"], abs=0.01)
    assert 100 < found["replay_calls"] < 1500
    assert run(["engine", "--jobs", "0"]) == 2
