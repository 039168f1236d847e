"""Run times before the daemon's first start, from accounting logs."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from schedd.engine import EngineSettings
from schedd.features.prediction.earlier import past_runs
from schedd.features.prediction.state import find_predictor
from schedd.predict import JobFeatures, RunTimes
from schedd.service.cluster.clock import SystemClock
from schedd.service.cluster.log_follower import LogFollower
from schedd.service.clusters import Clusters
from schedd.store import Store

DAY = 86_400
NOW = 1_700_000_000
ASK = JobFeatures("ann", 3600, 4, "relax")


def accounting_record(
    end: int, run: int = 60, *, user: str = "ann", queue: str = "batch", walltime: str = "01:00:00"
) -> str:
    start = end - run
    day = f"{datetime.fromtimestamp(end, UTC):%m/%d/%Y %H:%M:%S}"
    asked = f" Resource_List.walltime={walltime}" if walltime else ""
    since = start - 9
    return (
        f"{day};E;{end}.head;user=ann group=g jobname=relax queue={queue} ctime={since} qtime={since} "
        f"etime={since} start={start} exec_host=n1/0-3 end={end} Exit_status=0{asked}\n"
    )


def settings(where: Path, **more: Any) -> EngineSettings:
    return EngineSettings().with_changes(predict=True, predict_from=str(where), **more)


def learn_past_runs(where: Path, **more: Any) -> RunTimes:
    found = past_runs(settings(where, **more), "main", NOW)
    assert found is not None
    return found


def test_new_site_predicts_run_times_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(accounting_record(NOW - DAY + 100 * i) for i in range(50)))
    told = learn_past_runs(log).predict(ASK)
    assert 55 <= told.p50 <= 70
    assert told.p90 < 900
    assert learn_past_runs(log).ends == 50


def test_subjobs_are_learned_under_the_array_name(tmp_path: Path) -> None:
    log = tmp_path / "log"
    arrays = (accounting_record(NOW - 2 * DAY + 100 * i).replace(".head", f"[{i}].head") for i in range(20))
    named = [line.replace("=relax", f"=relax-{i}") for i, line in enumerate(arrays)]
    others = [accounting_record(NOW - DAY + 100 * i, 3000).replace("=relax", "=steep") for i in range(40)]
    log.write_text("".join(named + others))
    assert learn_past_runs(log).predict(ASK).p50 < 600


def test_file_order_does_not_affect_learning(tmp_path: Path) -> None:
    lines = [accounting_record(NOW - DAY + 37 * i, 20 + i % 7 * 50) for i in range(200)]
    for name, order in (("a", lines), ("b", lines[::-1])):
        (tmp_path / name).write_text("".join(order))
    first, second = (learn_past_runs(tmp_path / name).predict(ASK).quantiles.tolist() for name in ("a", "b"))
    assert first == second


def test_runs_without_walltime_are_skipped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        accounting_record(NOW - 60)
        + accounting_record(NOW - 60, walltime="")
        + accounting_record(NOW - 60, walltime="soon")
        + accounting_record(NOW - 60, walltime="0")
        + accounting_record(NOW - 400 * DAY)
        + accounting_record(NOW + DAY)
        + accounting_record(NOW - 60, queue="debug")
        + accounting_record(NOW - 60, run=0)
        + "04/14/2024 12:00:03;E;5.head;user=x start=no end=1\n"
    )
    with capture_logs() as said:
        assert learn_past_runs(log, queue_predict={"debug": False}).ends == 2
    assert [one["malformed"] for one in said if "malformed" in one] == [1]
    with capture_logs() as said:
        assert learn_past_runs(tmp_path / "none").ends == 0
    assert "an accounting log cannot be read" in str(said)


def test_without_logs_or_prediction_nothing_is_read(tmp_path: Path) -> None:
    assert past_runs(EngineSettings().with_changes(predict=True), "main", NOW) is None
    assert past_runs(EngineSettings().with_changes(predict_from=str(tmp_path)), "main", NOW) is None


def test_daemon_reads_accounting_logs_at_its_first_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    now = int(SystemClock().now())
    log.write_text("".join(accounting_record(now - DAY + 100 * i) for i in range(30)))
    plain = find_predictor(Clusters({"main": settings(log)}, SystemClock())["main"]._planner.engine.state)
    store = Store.open(f"sqlite:///{tmp_path / 'a.sqlite'}")
    recovered = find_predictor(LogFollower(store, "main", settings(log), now).engine.state)
    assert plain is not None
    assert recovered is not None
    told = plain.learner.run_times.predict(ASK).quantiles.tolist()
    assert told == recovered.learner.run_times.predict(ASK).quantiles.tolist()
    assert told[6] <= 70


@pytest.mark.parametrize("form", ["table", "json"])
def test_run_times_are_learned_from_the_output_of_sacct(form: str, tmp_path: Path) -> None:
    log = tmp_path / "sacct.txt"
    ends = range(NOW - DAY, NOW - DAY + 5000, 100)
    if form == "table":
        columns = "JobID|User|JobName|State|Submit|Start|End|AllocCPUS|TimelimitRaw|Partition"
        rows = [
            f"{i}|ann|relax|COMPLETED|{end - 69}|{end - 60}|{end}|4|60|batch" for i, end in enumerate(ends, 1)
        ]
        log.write_text("\n".join([columns, *rows, "rubbish"]))
    else:
        jobs = [
            {
                "job_id": i,
                "user": "ann",
                "name": "relax",
                "partition": "batch",
                "state": {"current": ["COMPLETED"]},
                "time": {
                    "submission": end - 69,
                    "start": end - 60,
                    "end": end,
                    "limit": {"set": True, "infinite": False, "number": 60},
                },
                "required": {"CPUs": 4},
            }
            for i, end in enumerate(ends, 1)
        ]
        log.write_text(json.dumps({"jobs": [*jobs, "rubbish"]}, indent=1))
    with capture_logs() as logs:
        learned = learn_past_runs(log)
    assert learned.ends == 50
    assert 55 <= learned.predict(ASK).p50 <= 70
    (said,) = [one for one in logs if "was read from accounting logs" in one["event"]]
    assert (said["runs"], said["malformed"]) == (50, 1)


def test_a_document_of_sacct_without_jobs_is_logged_and_nothing_is_learned(tmp_path: Path) -> None:
    log = tmp_path / "sacct.json"
    log.write_text('{"meta": {}}\n')
    with capture_logs() as logs:
        assert learn_past_runs(log).ends == 0
    (said,) = [one for one in logs if one["event"] == "an accounting log cannot be read"]
    assert said["why"] == 'no output of `sacct --json`: the list "jobs" is missing'


def test_a_table_of_sacct_without_columns_is_logged_and_nothing_is_learned(tmp_path: Path) -> None:
    log = tmp_path / "sacct.txt"
    log.write_text("JobID|User|State|Submit\n1|ann|COMPLETED|5\n")
    with capture_logs() as logs:
        assert learn_past_runs(log).ends == 0
    (said,) = [one for one in logs if one["event"] == "an accounting log cannot be read"]
    assert said["why"] == "the column Start is missing: print the log with --format=ALL"
