"""The Grid Workload Format: recognition, fields, and malformed lines."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.replay.gwf import is_gwf_log, parse_gwf_job, read_gwf_lines
from schedd.replay.swf import MalformedLine
from schedd.replay.trace_reader import read_traces
from schedd.replay.workload import UNKNOWN, TraceError, TraceJob

FIELDS = [
    *("17", "1109087545", "12", "600.4", "4", "-1", "2048", "8", "3600", "1024", "1"),
    *("user7", "group2", "app3", "batch", "fs0", "fs1", "fs1", "UNITARY"),
    *["-1"] * 10,
]
LINE = "\t".join(FIELDS)


def with_field(number: int, value: str) -> str:
    return "\t".join([*FIELDS[: number - 1], value, *FIELDS[number:]])


def test_fields_are_read() -> None:
    assert parse_gwf_job(LINE) == TraceJob(
        17, 1109087545, 600, 4, 3600, "user7", "group2", "batch", 1024, 2048, wait=12, status=1, name="app3"
    )
    unknown = parse_gwf_job("\t".join([*FIELDS[:2], *["-1"] * 27]))
    assert (unknown.run, unknown.procs, unknown.estimate, unknown.wait) == (-1, 0, 0, None)
    assert (unknown.user, unknown.queue, unknown.mem_kib_per_proc, unknown.status) == (
        UNKNOWN,
        UNKNOWN,
        None,
        -1,
    )


def test_requested_processors_stand_for_unknown_ones() -> None:
    assert parse_gwf_job(with_field(5, "-1")).procs == 8


def test_the_format_is_recognised_by_its_fields(tmp_path: Path) -> None:
    grid = tmp_path / "das2.gwf.gz"
    grid.write_bytes(gzip.compress(f"# a header\n#\n{LINE}\n".encode()))
    blanks = tmp_path / "blanks.gwf"
    blanks.write_text(" ".join(FIELDS) + "\n")
    swf = tmp_path / "a.swf"
    swf.write_text("; MaxProcs: 4\n1 0 -1 10 1 -1 -1 1 10 -1 1 1 1 1 1 1 -1 -1\n")
    assert [is_gwf_log(path) for path in (grid, blanks, swf)] == [True, True, False]
    first, second, third = read_traces([grid, blanks, swf])
    assert [trace.name for trace in (first, second, third)] == ["das2", "blanks", "a"]
    assert first.unix_start_time == 0
    assert first.jobs == second.jobs


def test_malformed_lines_are_faults_with_their_numbers() -> None:
    trace = read_gwf_lines(["# x", LINE, "1\t2\t3", with_field(4, "soon"), with_field(5, "99999999")], "log")
    assert len(trace.jobs) == 1
    assert [str(fault) for fault in trace.faults] == [
        "line 3: 3 fields where 29 are expected",
        "line 4: 'soon' is not a number",
        "line 5: more processors or memory than any machine",
    ]
    with pytest.raises(TraceError, match="log, line 1: 'inf' is not a number"):
        read_gwf_lines([with_field(2, "inf")], "log", strict=True)


@given(st.lists(st.text(st.characters(exclude_characters="\t\r\n"), max_size=8), min_size=29, max_size=29))
def test_any_line_is_a_job_or_malformed(fields: list[str]) -> None:
    try:
        job = parse_gwf_job("\t".join(fields))
    except MalformedLine:
        return
    assert job.procs >= 0
