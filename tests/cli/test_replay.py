"""``schedd replay`` as a user calls it."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from research.__main__ import main as research
from schedd.cli import plot_support
from schedd.cli.main import main
from schedd.cli.progress import ReplayDisplay, format_simulated_time
from schedd.replay import driver
from schedd.replay.prepared import Prepared
from schedd.replay.result import TIMINGS, ReplayResult
from schedd.replay.simulation import Progress
from tests.cli.run_main import run_main

JOBS = [(0, 100, 3), (1, 100, 4), (2, 50, 1), (3, 10, 4)]


def swf_line(number: int, submit: int, run: int, procs: int, limit: int | None = None) -> str:
    wanted = run if limit is None else limit
    return f"{number} {submit} -1 {run} {procs} -1 -1 {procs} {wanted} -1 1 {number % 3} 1 1 1 1 -1 -1\n"


def swf_text(jobs: Sequence[tuple[int, ...]] = JOBS, header: str = "; MaxProcs: 4\n") -> str:
    return header + "".join(swf_line(i, *job) for i, job in enumerate(jobs, 1))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "small.swf"
    path.write_text(swf_text())
    return path


Rows = Callable[..., list[dict[str, object]]]


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    """Calls `schedd replay`; gives its JSON without the timings."""

    def run(*args: str | Path) -> list[dict[str, object]]:
        out = tmp_path / "out.json"
        assert main(["replay", *map(str, args), "--json", str(out)]) == 0
        found: list[dict[str, object]] = json.loads(out.read_text())
        for row in found:
            for name in TIMINGS:
                del row[name]
        return found

    return run


def test_start_estimates_are_shown_by_part_from_the_log(
    rows: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "waits.swf"
    path.write_text(swf_text([(i, 100, 4) for i in range(20)]))
    (row,) = rows(path, "--policy", "conservative", "--expected-starts")
    assert row["expected_months"] == [{"number": 1, "jobs": 18, "p90_coverage": row["expected_p90_coverage"]}]
    assert "days 1 to 30" in capsys.readouterr().out


def test_policies_are_compared_on_the_same_log(rows: Rows, log: Path) -> None:
    waits = {
        row["policy"]: row["avg_wait_s"]
        for row in rows(log, "--policy", "fcfs", "--policy", "conservative", "--validate")
    }
    assert waits == {"fcfs": (0 + 99 + 198 + 247) / 4, "conservative": (0 + 99 + 0 + 197) / 4}


@pytest.mark.parametrize(
    "how",
    [
        ("--policy", "sjf,easy"),
        ("--policy", "sjf", "easy"),
        ("--policy", "sjf", "--policy", "easy", "--policy", "easy"),
    ],
)
def test_policies_have_several_notations(rows: Rows, log: Path, how: tuple[str, ...]) -> None:
    assert [row["policy"] for row in rows(log, *how)] == ["sjf", "easy"]


def test_all_means_every_policy_and_none_the_planner(rows: Rows, log: Path) -> None:
    assert [row["policy"] for row in rows(log)] == ["conservative"]
    assert {row["policy"] for row in rows(log, "--policy", "all")} == {
        "conservative", "fcfs", "sjf", "easy", "aggressive"
    }  # fmt: skip


def test_searches_are_selected_by_name(rows: Rows, log: Path) -> None:
    found = rows(log, "--policy", "tabu,conservative", "--slack", "off", "--moves", "10")
    assert [row["policy"] for row in found] == ["tabu", "conservative"]
    assert [row["slack"] for row in found] == ["off", "off"]


def test_a_search_is_replayed_with_each_slack(rows: Rows, log: Path) -> None:
    how = ("--slack", "0,1h+0.5w", "--moves", "9")
    found = rows(log, "--policy", "tabu,easy,conservative", *how, "--weights", "wait=1,wait_max=2")
    assert [(row["policy"], row["slack"]) for row in found] == [
        ("tabu", "0"), ("tabu", "1h+0.5w"), ("easy", ""), ("conservative", "0"),
    ]  # fmt: skip
    assert all(row["moves_tried"] for row in found[:2])


def test_two_runs_differ_only_by_their_timings(rows: Rows, log: Path) -> None:
    again = ("--policy", "all", "--seed", "5")
    assert rows(log, *again) == rows(log, *again)


def test_the_seed_makes_the_synthetic_workload(rows: Rows) -> None:
    model = ("--lublin", "60", "--procs", "16", "--load", "1.5", "--seed")
    assert rows(*model, "1") == rows(*model, "1")
    assert rows(*model, "1")[0]["avg_response_s"] != rows(*model, "2")[0]["avg_response_s"]


def test_jobs_follow_skipped_jobs_and_wide_jobs_are_counted(rows: Rows, log: Path) -> None:
    (row,) = rows(log, "--skip", "1", "--jobs", "2", "--procs", "3")
    assert (row["jobs"], row["skipped"], row["procs"]) == (1, 1, 3)
    (row,) = rows(log, "--last", "2")
    assert (row["jobs"], row["avg_wait_s"]) == (2, 24.5)
    assert main(["replay", str(log), "--last", "2", "--jobs", "1"]) == 2


def test_a_gzipped_log_and_several_logs_are_read(rows: Rows, tmp_path: Path, log: Path) -> None:
    packed = tmp_path / "packed.swf.gz"
    packed.write_bytes(gzip.compress(swf_text(JOBS[:2]).encode()))
    assert [(row["log"], row["jobs"]) for row in rows(log, packed)] == [("small", 4), ("packed", 2)]


def test_replay_can_use_estimates_and_kill_overruns(rows: Rows, tmp_path: Path) -> None:
    # The first job asks for 400 s and takes 100, the second asks for 20 and takes 50.
    log = tmp_path / "u.swf"
    log.write_text(swf_text([(0, 100, 4, 400), (1, 50, 4, 20)]))
    exact, user, killed = (
        rows(log, *how)[0] for how in ((), ("--estimates", "user"), ("--estimates", "user", "--kill"))
    )
    assert (exact["repairs"], user["repairs"]) == (0, 1)
    assert (user["makespan_s"], killed["makespan_s"]) == (150, 120)
    assert (user["kill"], killed["kill"]) == (False, True)


def test_jobs_fit_a_single_machine_but_not_separate_nodes(rows: Rows, tmp_path: Path) -> None:
    # Each job needs 2 cpus of memory that only fits a node of its own once.
    log = tmp_path / "m.swf"
    log.write_text("".join(f"{i} 0 -1 10 2 -1 -1 2 10 700 1 1 1 1 1 1 -1 -1\n" for i in (1, 2, 3)))
    nodes = (log, "--nodes", "2", "--cpus-per-node", "4")
    assert rows(*nodes)[0]["max_wait_s"] == 0
    assert rows(*nodes, "--mem-per-node", "1400")[0]["max_wait_s"] == 10
    assert rows(*nodes, "--mem-per-node", "2800kb")[0]["max_wait_s"] == 0


def test_a_machine_file_defines_the_machine(rows: Rows, tmp_path: Path, log: Path) -> None:
    machines = tmp_path / "site.machines"
    machines.write_text("0\talpha\t2\t1\t1.0\t1048576\n1\tbeta\t1\t2\t1.0\t1048576\n")
    assert rows(log, "--machines", machines)[0]["procs"] == 4


def test_accounting_logs_are_replayed(rows: Rows, tmp_path: Path) -> None:
    (tmp_path / "acct").mkdir()
    for day, at in (("20240101", 1704103200), ("20240102", 1704189600)):
        (tmp_path / "acct" / day).write_text(
            f"01/01/2024 10:00:00;E;{day}.server;user=a group=g queue=q etime={at} start={at + 5} "
            f"end={at + 65} exec_host=n1/0-1 Resource_List.walltime=00:10:00\n"
        )
    (row,) = rows(tmp_path / "acct", "--procs", "2", "--estimates", "user")
    assert (row["jobs"], row["avg_wait_s"], row["avg_response_s"]) == (2, 0.0, 60.0)


def test_malformed_line_is_reported_and_skipped_or_fatal(
    rows: Rows, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text(swf_text() + "not a job\nnot a job\n5 x\n")
    assert rows(log)[0]["jobs"] == 4
    assert "small: lines 6 to 7: " in (said := capsys.readouterr().err)
    assert "small: line 8: " in said
    assert main(["replay", str(log), "--strict"]) == 2
    assert "small, line 6: " in capsys.readouterr().err


def test_excluded_jobs_are_reported(rows: Rows, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text(swf_text([*JOBS, (4, 0, 1), (5, 10, 9)]))
    rows(log)
    said = capsys.readouterr().err
    assert "1 job that never ran" in said
    assert "1 job skipped: 1 wider than 4 processors" in said


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "no log"),
        (("none.swf", "--procs", "4"), "none.swf"),
        (("LOG", "--policy", "best"), "no policy 'best'"),
        (("LOG", "--estimates", "guess"), "--estimates: invalid choice: "),
        (("LOG", "--procs", "0"), "must be at least 1"),
        (("LOG", "--procs", "4", "--nodes", "2"), "--procs and --nodes"),
        (("LOG", "--nodes", "2"), "--nodes needs --cpus-per-node"),
        (("LOG", "--nodes", "2", "--cpus-per-node", "0"), "must be at least 1"),
        (("LOG", "--cpus-per-node", "2"), "--cpus-per-node needs --nodes"),
        (("LOG", "--nodes", "2", "--cpus-per-node", "4", "--mem-per-node", "much"), "--mem-per-node much"),
        (("LOG", "--machines", "none.machines"), "none.machines"),
        (("LOG", "--jobs", "0"), "jobs at least 1"),
        (("LOG", "--skip", "9"), "no job is left"),
        (("LOG", "--plot", "picture.gif"), "must end in .pdf, .png, .svg"),
        (("LOG", "--json", "nowhere/out.json"), "no directory nowhere"),
        (("LOG", "--lublin", "10"), "--lublin replaces a log"),
        (("--lublin", "10"), "needs a machine"),
        (("--lublin", "0", "--procs", "4"), "must be above 0"),
        (("LOG", "--load", "0.5"), "--load needs --lublin"),
        (("LOG", "--slack", "much"), "slack 'much' is not understood: seconds"),
        (("LOG", "--policy", "tabu", "--weights", "speed=1"), "--weights speed=1: criteria with numbers"),
        (("LOG", "--policy", "tabu", "--weights", "wait=0"), "--weights wait=0: criteria with numbers"),
        (("LOG", "--policy", "tabu", "--moves", "-1"), "--moves -1: must be at least 0"),
        (("LOG", "--policy", "tabu", "--seconds", "-1"), "--seconds -1.0: must be finite"),
    ],
)
def test_replay_usage_errors_are_single_lines(
    log: Path, args: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(["replay", *(str(log) if arg == "LOG" else arg for arg in args)]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1
    assert not said.out


def test_a_log_without_a_machine_asks_for_its_size(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text(swf_text(header=""))
    assert main(["replay", str(log)]) == 2
    assert "--procs" in capsys.readouterr().err


def test_the_tables_name_units_and_the_picture_is_drawn(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(log), "--plot", str(tmp_path / "p.svg")]) == 0
    shown = capsys.readouterr().out
    assert "max [s]" in shown
    assert "wall [s]" in shown
    assert (tmp_path / "p.svg").read_text().lstrip().startswith("<?xml")


def test_an_interrupted_comparison_keeps_complete_runs(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[str] = []
    real = driver.replay

    def stop_at_the_second(prepared: Prepared, policy: str, **_how: object) -> ReplayResult:
        calls.append(policy)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(prepared, policy)

    monkeypatch.setattr(driver, "replay", stop_at_the_second)
    out = tmp_path / "out.json"
    assert main(["replay", str(log), "--policy", "all", "--json", str(out)]) == 130
    assert [row["policy"] for row in json.loads(out.read_text())] == calls[:1]
    assert "interrupted; 1 complete" in capsys.readouterr().err


# ---- how far it is ------------------------------------------------------------------------------


def test_a_terminal_shows_jobs_rate_and_simulated_date() -> None:
    console = Console(force_terminal=True, width=160, record=True, file=None)
    with (
        console.capture() as captured,
        ReplayDisplay(console) as watch,
        watch.replay("KTH easy", 843480031) as show,
    ):
        assert show is not None
        show(Progress(ended=250, jobs=1000, events=900, time=86400))
    shown = captured.get()
    assert "KTH easy" in shown
    assert "250/1000" in shown
    assert "events/s" in shown
    assert "1996-09-24" in shown


def test_no_progress_is_shown_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with ReplayDisplay() as watch:
        watch.show_status("reading")
        with watch.replay("KTH easy", None) as show:
            assert show is None
    assert capsys.readouterr() == ("", "")


def test_a_log_without_epoch_counts_its_days() -> None:
    assert format_simulated_time(86400 * 3 + 5, None) == "day 3"
    assert format_simulated_time(0, 0) == "1970-01-01 00:00"
    assert format_simulated_time(1 << 60, 5).startswith("day ")


def test_a_policy_file_adds_a_replay_under_the_sites_policy(
    rows: Rows, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "schedd.toml"
    limits = '[[clusters.east.site.limits]]\nwhat = "cpus"\nwho = "user"\namount = 3\n'
    path.write_text('[clusters.east]\nsearch_every = 60\nqueue_slack = { short = "off" }\n' + limits)
    plain, site = rows(log, "--policy-file", path, "--validate", "--moves", "20")
    assert (plain["policy"], site["policy"], site["slack"]) == ("conservative", "tabu, site", "1h+0.5w")
    assert (plain["jobs"], site["jobs"], site["skipped"]) == (2, 2, 2)
    assert plain["limits"] == []
    limit = {"limit": "at most 3 cpus of each user at once", "amount": 3, "used": 3, "by": "1"}
    assert site["limits"] == [limit]
    printed = capsys.readouterr()
    assert "2 jobs left out: the limits never allow them" in printed.err
    told = " ".join(printed.err.split())
    assert (
        f"schedd replay: site: cluster east of {path}: slack 1h+0.5w; off in queue short; policy: limits; "
        "search every 60 s, 30 s after capacity was freed, newcomers after 5 s; 20 moves each, where the "
        "daemon takes 2 s"
    ) in told
    assert "at most 3 cpus of each user at once" in printed.out


def test_a_site_that_does_not_search_is_replayed_without_searches(
    rows: Rows, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "schedd.toml"
    path.write_text('[clusters.east]\nsearch_every = 0\nslack = "1m"\n')
    _, site = rows(log, "--policy-file", path)
    assert (site["policy"], site["slack"], site["searches"]) == ("conservative, site", "1m", 0)
    assert "slack 1m; policy: none; no search (search_every = 0)" in capsys.readouterr().err


def test_multi_queue_has_the_priorities_of_queues_of_a_policy_file(rows: Rows, tmp_path: Path) -> None:
    log, path = tmp_path / "queues.swf", tmp_path / "schedd.toml"
    lines = [swf_line(1, 0, 100, 4), swf_line(2, 1, 100, 4), swf_line(3, 2, 10, 4)]
    lines[2] = lines[2].replace(" 1 1 1 1 -1 -1", " 1 1 2 1 -1 -1")
    log.write_text("; MaxProcs: 4\n" + "".join(lines))
    path.write_text("[clusters.east]\nsearch_every = 0\n[clusters.east.site.priority.queues]\n2 = 5\n")
    (plain,) = rows(log, "--policy", "multi-queue")
    ranked, _ = rows(log, "--policy", "multi-queue", "--policy-file", path)
    assert (plain["avg_wait_s"], ranked["avg_wait_s"]) == ((0 + 99 + 198) / 3, (0 + 98 + 109) / 3)


def test_a_policy_file_is_checked_as_the_daemon_checks_it(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "schedd.toml"
    path.write_text("[[clusters.east.site.limits]]\nmost = 3\n")
    assert main(["replay", str(log), "--policy-file", str(path)]) == 2
    assert "limits.0.most: no such setting; did you mean amount?" in capsys.readouterr().err


def test_without_matplotlib_a_picture_is_refused_before_anything_is_replayed(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plot_support, "find_spec", lambda _: None)
    assert main(["replay", str(log), "--plot", str(tmp_path / "waits.png")]) == 2
    assert "pip install 'schedd[pictures]'" in capsys.readouterr().err
    assert main(["replay", str(log)]) == 0
    assert research(["experiment", "paper", "--logs", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "pip install 'schedd[pictures]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_mode_is_recommended_from_one_log(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "modes.json"
    options = ("--recommend", "--moves", "9", "--expected-starts", "--json", str(out))
    assert main(["replay", str(log), *options]) == 0
    said = capsys.readouterr().out
    found = json.loads(out.read_text())
    # Search and shortest are equal here, so that processor time decides between them.
    assert found["recommendation"]["mode"] in ("shortest", "search")
    assert f"Recommended mode: {found['recommendation']['reason']}" in said
    settings = found["recommendation"]["settings"]
    assert f'[clusters.NAME]\nbackfill = "{settings["backfill"]}"\n' in said
    assert settings["search_every"] in (0, 300)
    assert [row["mode"] for row in found["results"]] == ["easy", "plan", "shortest", "search"]
    assert [row["slack"] for row in found["results"]] == ["", "1h+0.5w", "1h+0.5w", "1h+0.5w"]
    assert {row["estimates"] for row in found["results"]} == {"user"}


def test_a_recommendation_keeps_the_policy_of_a_site(log: Path, tmp_path: Path) -> None:
    settings, out = tmp_path / "schedd.toml", tmp_path / "modes.json"
    settings.write_text(
        '[clusters.a]\nsearch_every = 60\nslack = "2h"\n\n[[clusters.a.site.limits]]\nwho = "user"\n'
        "amount = 1\n"
    )
    assert main(["replay", str(log), "--recommend", "--policy-file", str(settings), "--json", str(out)]) == 0
    results = json.loads(out.read_text())["results"]
    assert [row["slack"] for row in results] == ["", "2h", "2h", "2h"]
    assert all(row["limits"] for row in results)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--policy", "easy"], "without --policy"),
        (["--until", "5"], "without --until"),
        (["--slack", "0,1h"], "one --slack"),
    ],
)
def test_options_that_contradict_a_recommendation_are_refused(
    log: Path, capsys: pytest.CaptureFixture[str], options: list[str], reason: str
) -> None:
    assert main(["replay", str(log), "--recommend", *options]) == 2
    assert reason in capsys.readouterr().err
