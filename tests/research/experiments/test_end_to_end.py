"""The comparison of a replay with a run on a real server, by an accounting log of known differences."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from research.studies import end_to_end
from schedd.replay.trace_reader import read_traces

_BEGIN = 1_795_890_633


def _record(number: int, submit: int, start: int, end: int, walltime: int) -> str:
    at = datetime.fromtimestamp(_BEGIN + end, UTC).strftime("%m/%d/%Y %H:%M:%S")
    times = f"ctime={_BEGIN + submit} qtime={_BEGIN + submit} etime={_BEGIN + submit} start={_BEGIN + start}"
    return (
        f"{at};E;{number + 3}.server;user=ann group=ann jobname=j{number} queue=workq {times} "
        f"exec_host=n1/0 exec_vnode=(n1:ncpus=4) Resource_List.ncpus=4 Resource_List.select=4:ncpus=1 "
        f"Resource_List.walltime={walltime} session=1 end={_BEGIN + end} Exit_status=0 run_count=1"
    )


def test_all_times_of_a_window_are_divided_and_no_walltime_is_shorter_than_a_real_job_needs(
    logs: Path, tmp_path: Path
) -> None:
    window = tmp_path / "window.swf"
    command = [
        "window",
        str(logs / "small.swf"),
        str(window),
        "--skip",
        "2",
        "--jobs",
        "5",
        "--divisor",
        "20",
    ]
    assert end_to_end.run(command) == 0
    before = read_traces([logs / "small.swf"])[0].jobs[2:7]
    (after,) = read_traces([window])
    assert after.max_procs == 8
    assert [job.submit for job in after.jobs] == [0, 2, 4, 6, 8]
    assert [job.run for job in after.jobs] == [round(job.run / 20) for job in before]
    assert all(job.estimate >= job.run + 15 for job in after.jobs)


def test_starts_are_compared_with_replays_of_the_window_and_of_the_recorded_times(tmp_path: Path) -> None:
    window, log, settings = tmp_path / "window.swf", tmp_path / "20261128", tmp_path / "schedd.toml"
    # one after the other on four cores: a replay starts them at 0, 100, 200; the last never ends in the log
    jobs = [f"{n} {n} -1 100 4 -1 -1 4 120" + " -1" * 9 for n in range(4)]
    window.write_text("\n".join(["; MaxProcs: 4", *jobs]) + "\n")
    settings.write_text('[clusters.main]\nsearch_every = "0s"\nend_allowance = "0s"\n')
    earlier = _record(0, -900, -800, -700, 120).replace("jobname=j0", "jobname=j3")  # of a run before
    ended = [_record(0, 0, 1, 102, 120), _record(1, 1, 104, 205, 120), _record(2, 2, 208, 309, 120)]
    log.write_text("\n".join([earlier, *ended]) + "\n")
    run = ["--run", "plan alone", str(window), str(_BEGIN), str(log), str(settings)]
    machine = ["--nodes", "2", "--cpus-per-node", "2", "--out", str(tmp_path / "out")]
    assert end_to_end.run(["compare", *machine, *run]) == 0
    planned, recorded = json.loads((tmp_path / "out/end_to_end.json").read_text())["results"]
    assert (planned["jobs"], planned["waited"], planned["not_ended"]) == (3, 2, 1)
    assert (planned["apart_median_s"], planned["apart_max_s"], planned["later_mean_s"]) == (4, 8, 13 / 3)
    assert (planned["makespan_s"], planned["makespan_replay_s"]) == (309, 300)
    assert (planned["response_s"], planned["response_replay_s"]) == (616 / 3 - 1, 199)
    assert (recorded["apart_max_s"], recorded["makespan_replay_s"]) == (6, 303)
    page = (tmp_path / "out/end_to_end.md").read_text()
    assert "| plan alone | of the window | 3 (2) | 4, 7, 8 | 4.3, 1.40% | 309, 300 |" in page
    assert page.endswith("plan alone: 1 jobs had not ended and are not compared.\n")


def test_a_run_with_searches_is_compared_with_replays_of_several_seeds(tmp_path: Path) -> None:
    window, log, settings = tmp_path / "window.swf", tmp_path / "20261128", tmp_path / "schedd.toml"
    jobs = [f"{n} {n} -1 100 4 -1 -1 4 120" + " -1" * 9 for n in range(2)]
    window.write_text("\n".join(["; MaxProcs: 4", *jobs]) + "\n")
    settings.write_text('[clusters.main]\nend_allowance = "0s"\n')
    log.write_text("\n".join([_record(0, 0, 2, 103, 120), _record(1, 1, 106, 207, 120)]) + "\n")
    run = ["--run", "with searches", str(window), str(_BEGIN), str(log), str(settings)]
    machine = ["--nodes", "2", "--cpus-per-node", "2", "--out", str(tmp_path / "out")]
    assert end_to_end.run(["compare", *machine, *run]) == 0
    planned = json.loads((tmp_path / "out/end_to_end.json").read_text())["results"][0]
    assert set(planned["response_seeds_s"]) == {149.5}  # one order only: a seed changes nothing
    assert planned["replays_apart_mean_s"] == [0, 0]
    page = (tmp_path / "out/end_to_end.md").read_text()
    line = "| with searches | of the window | 154.5 | 149.5 to 149.5 | 4.0 to 4.0 | 0.0 to 0.0 |"
    assert line in page


def test_a_log_without_jobs_of_the_window_is_refused(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text(_record(1, -50, -40, -30, 120) + "\n")
    (tmp_path / "schedd.toml").write_text("[clusters.main]\n")
    small, log, settings = logs / "small.swf", tmp_path / "log", tmp_path / "schedd.toml"
    run = ["--run", "plan", str(small), str(_BEGIN), str(log), str(settings)]
    machine = ["--nodes", "2", "--cpus-per-node", "4", "--out", str(tmp_path)]
    assert end_to_end.run(["compare", *machine, *run]) == 2
    assert "plan: the accounting log has no job of the window" in capsys.readouterr().err


def test_each_job_is_submitted_at_its_time(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    qsub, window = tmp_path / "qsub", tmp_path / "window.swf"
    qsub.write_text(f'#!/bin/sh\necho "$@" $(cat) >> {tmp_path}/submitted\n')
    qsub.chmod(0o755)
    window.write_text("; MaxProcs: 4\n7 0 -1 3 2 -1 -1 2 18" + " -1" * 9 + "\n")
    assert end_to_end.run(["submit", str(window), "--qsub", str(qsub)]) == 0
    assert (tmp_path / "submitted").read_text() == "-N j7 -l select=2:ncpus=1,walltime=18 -koe - sleep 3\n"
    assert int(capfd.readouterr().out) > 0
