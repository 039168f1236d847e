"""Accounting logs that cannot be read: the daemon and ``config check`` say where and why."""

import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from schedd.dialect.accounting_files import log_fault
from schedd.service.cluster.accounting_logs import ended_runs

HEADER = "JobID|User|Submit|Start|End|AllocCPUS|State"
RUN = "7|ann|100|110|200|4|COMPLETED"
RECORD = "04/20/2026 12:00:00;E;7.srv;user=ann start=110 end=200 Exit_status=0\n"


def test_malformed_records_are_named_with_line_and_reason(tmp_path: Path) -> None:
    log = tmp_path / "sacct.txt"
    log.write_text("\n".join([HEADER, RUN, "8|ann", RUN.replace("110", "noon"), *["x"] * 9]))
    with capture_logs() as said:
        assert [run.id for run in ended_runs(log, 0, "main", "use")] == ["7"]
    (one,) = [entry for entry in said if entry["log_level"] == "warning"]
    assert (one["file"], one["records"]) == (str(log), 11)
    assert one["first"].startswith(
        "record 3: 2 fields where the header has 7; record 4: Start 'noon' is no time"
    )
    log.write_text(RECORD + RECORD.replace("end=200 ", ""))
    with capture_logs() as said:
        assert [run.id for run in ended_runs(log, 0, "main", "use")] == ["7.srv"]
    (one,) = [entry for entry in said if entry["log_level"] == "warning"]
    assert one["first"] == "record 2: E record of job 7.srv without start or end"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"{RUN}\n{RUN}\n",
            "neither records of a PBS accounting log nor output of sacct: print Slurm's log with",
        ),
        (
            f"{HEADER.replace('Start', 'Begin')}\n",
            "the column Start is missing: print the log with --format=ALL",
        ),
        ('{"jobs": [', "no JSON document"),
        ('{"meta": 1}', 'the list "jobs" is missing'),
    ],
)
def test_a_log_in_no_known_format_is_refused_with_its_reason(tmp_path: Path, text: str, reason: str) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    assert reason in log_fault(log)
    with capture_logs() as said:
        assert list(ended_runs(log, 0, "main", "use")) == []
    (one,) = [entry for entry in said if entry["log_level"] == "error"]
    assert (one["file"], reason in one["why"]) == (str(log), True)


def test_readable_logs_have_no_fault(tmp_path: Path) -> None:
    for text in (
        "",
        f"\n{HEADER}\n{RUN}\n",
        RECORD,
        f"a rest of a record\n{RECORD}",
        json.dumps({"jobs": []}),
    ):
        (tmp_path / "log").write_text(text)
        assert log_fault(tmp_path / "log") == "", text
    assert log_fault(tmp_path) == ""
    assert log_fault(tmp_path / "missing") == "no such file or directory"
