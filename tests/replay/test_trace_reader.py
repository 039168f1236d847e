"""Logs on a command line are distinguished by their content."""

from pathlib import Path

import pytest

from schedd.replay.trace_reader import read_traces
from schedd.replay.workload import TraceError

SWF = "1 0 0 10 4 -1 -1 4 -1 -1 1 1 1 1 1 1 -1 -1\n"
ACCOUNTING = "04/14/2024 12:00:03;E;1.s;user=a etime=90 start=100 end=160\n"


def test_workload_files_are_separate_and_accounting_files_merged(tmp_path: Path) -> None:
    for name, text in {
        "a.swf": SWF,
        "20240413": ACCOUNTING,
        "b.swf": SWF * 2,
        "20240414": ACCOUNTING,
    }.items():
        (tmp_path / name).write_text(text)
    traces = read_traces([tmp_path / name for name in ("20240413", "a.swf", "20240414", "b.swf")])
    assert [(trace.name, len(trace.jobs)) for trace in traces] == [("a", 1), ("b", 2), ("20240413", 2)]


def test_directory_expands_to_accounting_files(tmp_path: Path) -> None:
    (tmp_path / "20240414").write_text(ACCOUNTING * 2)
    (tmp_path / "20240413").write_text(ACCOUNTING)
    (tmp_path / "README").write_text("kept for audits\n")
    (tmp_path / "old").mkdir()
    (trace,) = read_traces([tmp_path])
    assert (trace.name, len(trace.jobs), trace.faults) == ("20240413", 3, ())


def test_file_without_jobs_is_an_explained_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("some prose\n")
    with pytest.raises(TraceError, match=r"notes.txt: the file has no job .*line 1: 2 fields where 18"):
        read_traces([tmp_path / "notes.txt"])


def test_a_directory_without_accounting_files_and_a_missing_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="the directory has no accounting log"):
        read_traces([tmp_path])
    with pytest.raises(TraceError, match="nowhere"):
        read_traces([tmp_path / "nowhere"])


def test_strict_reaches_the_readers(tmp_path: Path) -> None:
    (tmp_path / "a.swf").write_text(SWF + "rubbish\n")
    (tmp_path / "20240414").write_text(ACCOUNTING + "rubbish\n")
    for name in ("a.swf", "20240414"):
        assert len(read_traces([tmp_path / name])[0].faults) == 1
        with pytest.raises(TraceError, match="line 2"):
            read_traces([tmp_path / name], strict=True)
