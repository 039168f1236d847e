"""``schedd replay --until`` and ``--step``: the plan at moments of a log."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schedd.cli.main import main
from tests.cli.test_replay import swf_text

DATED = "; MaxProcs: 4\n; UnixStartTime: 1000000000\n"
JOBS = [(0, 100, 3, 200), (1, 100, 4, 300), (2, 50, 1, 60), (3, 10, 4, 20)]
"""Submission, run time, processors, limit: the first runs, and the third next to it."""

Plans = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "small.swf"
    path.write_text(swf_text(JOBS))
    return path


@pytest.fixture
def plans(tmp_path: Path, log: Path) -> Plans:
    """Calls `schedd replay`; gives its JSON."""

    def run(*args: str) -> list[dict[str, Any]]:
        out = tmp_path / "out.json"
        assert main(["replay", str(log), "--estimates", "user", *args, "--json", str(out)]) == 0
        found: list[dict[str, Any]] = json.loads(out.read_text())
        return found

    return run


def states_and_starts(plan: dict[str, Any]) -> dict[str, tuple[str, int]]:
    return {
        one["id"]: (one["standing"], one["started"] if one["started"] is not None else one["planned_start"])
        for one in plan["jobs"]
    }


def test_plan_after_each_moment_includes_its_events(plans: Plans) -> None:
    first, second, third = plans("--until", "3", "--until", "99,100")
    assert [plan["time"] for plan in (first, second, third)] == [3, 99, 100]
    assert states_and_starts(first) == {
        "1": ("running", 0),
        "3": ("running", 2),
        "2": ("planned", 200),
        "4": ("planned", 500),
    }
    counts = ("running", "planned", "waiting", "ended", "to_come", "procs", "procs_used", "next")
    assert [first[name] for name in counts] == [2, 2, 0, 0, 0, 4, 4, 52]
    assert [second[name] for name in counts] == [1, 2, 0, 1, 0, 4, 3, 100]
    # The first ended early, and the second began in the same second.
    assert states_and_starts(third) == {"2": ("running", 100), "4": ("planned", 400)}
    one = next(one for one in first["jobs"] if one["id"] == "2")
    assert (one["estimated_start"], one["planned_end"], one["procs"], one["walltime"]) == (200, 500, 4, 300)
    assert (one["user"], one["submitted"], one["nodes"]) == ("2", 1, ["machine"])
    assert first["unix_time"] is None


def test_waiting_jobs_show_promised_and_expected_starts(plans: Plans, log: Path) -> None:
    """Of forty jobs that requested ten times their run time, the next is predicted to take less."""
    jobs = [(600 * n, 50, 4, 500) for n in range(40)]
    log.write_text(swf_text([*jobs, (24_000, 50, 4, 500), (24_001, 50, 4, 500)]))
    (plan,) = plans("--until", "24001", "--slack", "100")
    last = plan["jobs"][-1]
    assert (last["planned_start"], last["promised_start"]) == (24_500, 24_600)
    assert 24_001 < last["expected_start"] < 24_200
    running = plan["jobs"][0]
    assert (running["expected_start"], running["promised_start"]) == (None, None)


def test_policies_without_plan_show_waiting_jobs(plans: Plans) -> None:
    (plan,) = plans("--until", "3", "--policy", "fcfs")
    waiting = [one for one in plan["jobs"] if one["standing"] != "running"]
    assert {one["waits_for"] for one in waiting} != {""}
    assert {one["planned_start"] for one in waiting} == {None}
    assert plan["waiting"] == len(waiting) > 0


def test_before_the_first_job_and_after_the_last_there_is_no_plan(plans: Plans) -> None:
    early, late = plans("--until", "0,7d")
    assert (early["to_come"], early["running"]) == (3, 1)
    assert (late["ended"], late["next"], late["jobs"]) == (4, None, [])


def test_dates_are_log_times_in_utc(plans: Plans, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text(swf_text(JOBS, DATED))
    (plan,) = plans("--until", "2001-09-09T01:46:43")
    assert (plan["time"], plan["unix_time"]) == (3, 1_000_000_003)
    shown = capsys.readouterr().out
    assert "small, conservative, at 2001-09-09 01:46:43" in shown
    assert "2001-09-09 01:50:00" in shown, "the second job's planned start"


@pytest.mark.parametrize(
    ("typed", "times"),
    [
        ("", [0]),
        ("\n\n", [0, 40, 80]),
        ("100\n\nq\n\n", [0, 100, 140]),
        ("e\ne\n", [0, 1, 2]),
        ("a\n", [0, 210]),
        ("50\n1\nsoon\n\n", [0, 50, 90]),
        ("30d\n\n\n", [0, 2_592_000]),
    ],
)
def test_steps_follow_the_typed_lines(
    plans: Plans, monkeypatch: pytest.MonkeyPatch, typed: str, times: list[int]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert [plan["time"] for plan in plans("--step", "40")] == times


def test_step_to_the_next_event_can_start_at_a_moment(plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n\n"))
    found = plans("--until", "50", "--step", "event")
    assert [plan["time"] for plan in found] == [50, 52, 100]


def test_typing_errors_are_reported_and_prompted_again(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("50\n1\nsoon\n2001-01-01\n"))
    assert main(["replay", str(log), "--step", "40"]) == 0
    said = capsys.readouterr().err
    assert "1: it is 50 already" in said
    assert "soon: not a time" in said
    assert "does not say when it began" in said


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--until", "soon"), "soon: not a time"),
        (("--until", ","), "--until: give a moment"),
        (("--until", "2001-09-09"), "does not say when it began"),
        (("--step", "0"), "--step 0: a time above 0"),
        (("--step", "often"), "--step often"),
        (("--until", "3", "--policy", "fcfs,easy"), "need a single policy"),
        (("--until", "3", "--expected-starts"), "without --expected-starts and --plot"),
        (("--until", "3", "--estimates", "none"), "choose from 'exact', 'user'"),
    ],
)
def test_impossible_step_options_are_single_line_errors(
    log: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], said: str
) -> None:
    try:
        status: object = main(["replay", str(log), *args])
    except SystemExit as end:  # a value that is none of an option's choices
        status = end.code
    assert status == 2
    assert said in capsys.readouterr().err


def test_stepping_through_two_logs_is_refused(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = log.with_name("other.swf")
    other.write_text(swf_text(JOBS))
    assert main(["replay", str(log), str(other), "--until", "3"]) == 2
    assert "go through one log: name one" in capsys.readouterr().err


def test_policy_file_alone_replaces_the_default_policies(plans: Plans, tmp_path: Path) -> None:
    settings = tmp_path / "schedd.toml"
    limit = '[[clusters.main.site.limits]]\nwhat = "cpus"\nwho = "user"\namount = 3\n'
    settings.write_text(f"[clusters.main]\nslack = 50\n\n{limit}")
    (plan,) = plans("--until", "3", "--policy-file", str(settings))
    assert plan["policy"] == "conservative site"
    assert states_and_starts(plan) == {"1": ("running", 0), "3": ("running", 2)}, (
        "the limit leaves the wide ones out"
    )


def test_many_jobs_are_shortened_in_the_table_but_complete_in_the_file(
    plans: Plans, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text(swf_text([(0, 100, 4, 100) for _ in range(80)]))
    (plan,) = plans("--until", "0")
    assert len(plan["jobs"]) == 80
    assert "… and 30 more; --json has all" in capsys.readouterr().out


def test_a_span_counts_from_the_first_job_of_a_log_in_seconds_of_the_epoch(
    plans: Plans, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = 1_700_000_000
    log.write_text(
        swf_text([(begin + at, *more) for at, *more in JOBS], "; MaxProcs: 4\n; UnixStartTime: 0\n")
    )
    (plan,) = plans("--until", "1m")
    assert (plan["time"], plan["running"]) == (begin + 60, 1)
    (plan,) = plans("--until", str(begin + 100))
    assert states_and_starts(plan)["2"] == ("running", begin + 100)
    assert main(["replay", str(log), "--estimates", "user", "--until", "86400"]) != 0
    error = capsys.readouterr().err
    assert f"86400: the seconds of small are those of the epoch, and it begins at {begin}" in error
