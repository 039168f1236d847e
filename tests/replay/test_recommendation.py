"""Recommendation of a planning mode from replays: ratios to EASY, the rule, and its reason."""

from dataclasses import replace

from schedd.replay.recommendation import MODES, REFERENCE, ModeResults, recommend_mode
from schedd.replay.report import modes_table
from schedd.replay.result import ReplayResult
from tests.replay.test_report import printed, result

BASE = result(log="site")


def run(mean: float, slowdown: float, p999: float, longest: float, cpu_s: float) -> ReplayResult:
    metrics = replace(
        BASE.metrics,
        avg_wait_s=1_000 * mean,
        avg_bounded_slowdown_10s=10 * slowdown,
        p999_wait_s=50_000 * p999,
        max_wait_s=int(100_000 * longest),
    )
    return replace(BASE, metrics=metrics, cpu_s=cpu_s)


def log_results(**modes: tuple[float, float, float, float, float]) -> ModeResults:
    """Results of one log; modes that are not given are as EASY."""
    same = (1.0, 1.0, 1.0, 1.0, 1.0)
    return {name: run(*modes.get(name, same)) for name in (REFERENCE, *MODES)}


def test_the_mode_with_the_best_score_is_recommended_with_its_settings() -> None:
    found = recommend_mode([log_results(search=(0.6, 0.5, 1.0, 1.1, 50), shortest=(0.9, 0.8, 1.0, 1.0, 9))])
    assert found.mode == "search"
    assert found.settings == {"backfill": "oldest", "search_every": 300}
    assert round(found.ratios["search"].score, 3) == 0.758
    assert found.reason.startswith("search: 40 % less mean wait, 50 % less bounded slowdown, the same 99.9th")


def test_of_equal_scores_the_one_with_less_processor_time_is_recommended() -> None:
    found = recommend_mode(
        [log_results(search=(0.6, 0.5, 1.0, 1.1, 50), shortest=(0.61, 0.51, 1.0, 1.1, 10))]
    )
    assert (found.mode, found.settings["search_every"]) == ("shortest", 0)
    assert (
        "search has nearly the same score (0.76 against 0.76) for 5.0 times the processor time"
        in found.reason
    )


def test_a_mode_with_a_far_longer_tail_is_passed_over() -> None:
    search = (0.3, 0.3, 1.0, 1.5, 50.0)
    found = recommend_mode([log_results(search=search, shortest=(0.8, 0.8, 1.1, 1.0, 9))])
    assert found.mode == "shortest"
    assert "search has a better score (0.61 against 0.92), but a tail of 1.50 times EASY's" in found.reason
    slower = (0.9, 0.9, 1.0, 1.5, 9.0)
    found = recommend_mode([log_results(search=slower, shortest=(0.8, 0.8, 1.1, 1.0, 9))])
    assert "search is left out for a tail of 1.50 times EASY's." in found.reason
    worse = (0.9, 0.9, 1.6, 1.6, 9.0)
    found = recommend_mode([log_results(search=search, shortest=worse, plan=worse)])
    assert found.mode == "search"
    assert "Each mode has a tail of more than 1.25 times EASY's" in found.reason


def test_few_jobs_are_no_sound_reason() -> None:
    few = log_results(search=(0.6, 0.5, 1.0, 1.1, 50))
    words = (
        "jobs are too few, since one job decides the tails: compare some thousand jobs of a loaded period."
    )
    assert f"3 {words}" in recommend_mode([few]).reason
    many = {mode: replace(one, jobs=1_000) for mode, one in few.items()}
    assert words not in recommend_mode([many]).reason


def test_several_logs_count_equally() -> None:
    logs = [log_results(search=(0.5, 1, 1, 1, 5)), log_results(search=(1.6, 1, 1, 1, 5))]
    assert round(recommend_mode(logs).ratios["search"].mean_wait, 4) == round(0.8**0.5, 4)
    assert recommend_mode(logs).ratios["search"].cpu_s == 10


def test_waits_of_seconds_decide_nothing() -> None:
    quick = {"shortest": (0.05, 1.0, 1.0, 1.0, 9.0), "search": (0.04, 1.0, 1.0, 1.0, 9.0)}
    short = log_results(easy=(0.06, 1, 1, 1, 1), plan=(0.06, 1, 1, 1, 1), **quick)
    assert recommend_mode([short]).mode == "plan"


def test_the_table_marks_the_recommended_mode() -> None:
    logs = [log_results(shortest=(0.5, 0.5, 1, 1, 2))]
    found = recommend_mode(logs)
    shown = printed(modes_table(logs, found.ratios, found.mode))
    assert "shortest (recommended)" in shown
    assert shown.count("site") == 1
    assert found.as_row()["scores"]["shortest"] == found.ratios["shortest"].score
