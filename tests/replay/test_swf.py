"""Standard Workload Format, as found in practice."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.replay.swf import MalformedLine, parse_job, read_swf, read_swf_lines
from schedd.replay.workload import UNKNOWN, TraceError, TraceJob, select

LINE = "    7  120   60   3600   16  12.50  2048   32   7200  4096  1  11  3 -1  2  1 -1 -1"
LOG = f"""\
; Computer: a machine
;MaxNodes: 338 (batch partition; 512 total)
; MaxProcs: 676
; UnixStartTime: 835823160
; MaxProcs: 9
;

{LINE}
"""


def test_swf_line_fills_every_job_field() -> None:
    assert parse_job(LINE) == TraceJob(
        id=7,
        submit=120,
        run=3600,
        procs=16,
        estimate=7200,
        user="11",
        group="3",
        queue="2",
        mem_kib_per_proc=4096,
        used_mem_kib_per_proc=2048,
        wait=60,
        status=1,
    )
    assert parse_job(LINE.replace("11  3 -1  2", "11  3 85  2")).name == "85", "its application's number"


def test_unknown_fields_differ_from_zero() -> None:
    job = parse_job("1 0 -1 10 -1 -1 -1 4 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1")
    assert job.procs == 4, "requested processors stand in for allocated ones"
    assert (job.estimate, job.wait, job.mem_kib_per_proc, job.used_mem_kib_per_proc) == (0, None, None, None)
    assert (job.user, job.group, job.queue) == (UNKNOWN, UNKNOWN, UNKNOWN)
    assert parse_job("1 0 0 10 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1").procs == 0


def test_submission_before_the_log_is_negative() -> None:
    assert parse_job("1 -500 -1 10 2 -1 -1 2 -1 -1 1 1 1 1 1 1 -1 -1").submit == -500


def test_integers_may_have_decimals() -> None:
    job = parse_job("1 10.0 2.00 99.6 4 -1 -1 4 1e3 -1 1 1 1 1 1 1 -1 -1")
    assert (job.submit, job.wait, job.run, job.estimate) == (10, 2, 100, 1000)


def test_long_form_has_node_memory_queue_and_node_specification() -> None:
    job = parse_job(
        "0 1356996147 0 56011 64 1 1024 64 86400 68719476737 1 62 1 1 -1 1 1 1 "
        "{1241,1241} q_1d 2:ppn=32:x86_64:cl_zewura#excl"
    )
    assert (job.mem_kib_per_node, job.mem_kib_per_proc) == (67108865, None), "bytes of a node, rounded up"
    assert (job.queue, job.nodes_spec) == ("q_1d", "2:ppn=32:x86_64:cl_zewura#excl")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 2 3", "3 fields where 18"),
        (LINE + " 1", "19 fields where 18"),
        (LINE.replace("3600", "soon"), "'soon' is not a number"),
        (LINE.replace("3600", "nan"), "'nan' is not a number"),
        (LINE.replace("3600", "1e400"), "'1e400' is not a number"),
        (LINE.replace("3600", "9" * 30), "too far from any log"),
        (LINE.replace(" 16 ", " 99999999999 "), "than any machine"),
    ],
)
def test_malformed_line_is_explained(line: str, reason: str) -> None:
    with pytest.raises(MalformedLine, match=reason):
        parse_job(line)


@pytest.mark.parametrize("zipped", [False, True])
def test_a_file_is_read_whether_compressed_or_not_whatever_its_name(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "KTH.swf.gz"
    path.write_bytes(gzip.compress(LOG.encode()) if zipped else LOG.encode())
    log = read_swf(path)
    assert (log.name, len(log.jobs), log.faults) == ("KTH", 1, ())
    assert (log.max_procs, log.max_nodes, log.unix_start_time) == (676, 338, 835823160)


def test_a_log_without_a_header_has_no_size() -> None:
    assert read_swf_lines([LINE], "log").max_procs is None


def test_a_malformed_line_is_reported_with_its_number_and_skipped() -> None:
    log = read_swf_lines(["; MaxProcs: 4\n", LINE, "rubbish\n", "\n", LINE], "log")
    assert len(log.jobs) == 2
    assert [str(fault) for fault in log.faults] == ["line 3: 1 fields where 18 are expected"]


def test_malformed_line_is_fatal_in_strict_mode() -> None:
    with pytest.raises(TraceError, match="log, line 2: 1 fields"):
        read_swf_lines([LINE, "rubbish\n"], "log", strict=True)


def test_a_file_cut_short_or_missing_is_an_error_that_names_it(tmp_path: Path) -> None:
    whole = gzip.compress(LOG.encode() * 100)
    (tmp_path / "cut.gz").write_bytes(whole[:-20])
    for name in ("cut.gz", "missing.swf"):
        with pytest.raises(TraceError, match=name):
            read_swf(tmp_path / name)


NUMBERISH = st.one_of(
    st.integers().map(str), st.floats().map(str), st.sampled_from(["-1", "0", "1", "{1,2}", "x", "1_0", "٣"])
)


@given(
    st.lists(st.one_of(st.text(), st.lists(NUMBERISH, min_size=17, max_size=22).map(" ".join)), max_size=20)
)
def test_whatever_the_lines_reading_ends_in_jobs_and_faults(lines: list[str]) -> None:
    log = read_swf_lines(lines, "log")
    assert len(log.jobs) + len(log.faults) <= len(lines)
    assert all(1 <= fault.line <= len(lines) for fault in log.faults)
    for job in log.jobs:
        assert job.procs >= 0
        assert job.estimate >= 0
        assert max(abs(job.submit), job.run, job.estimate) < 2**37


@given(
    st.lists(
        st.tuples(
            st.integers(-(10**6), 10**9),
            st.integers(-1, 10**6),
            st.integers(-1, 5000),
            st.integers(-1, 10**6),
        ),
        max_size=20,
    )
)
def test_written_log_is_parsed_unchanged(rows: list[tuple[int, int, int, int]]) -> None:
    lines = [
        f"{i} {submit} 0 {run} {procs} -1 -1 -1 {limit} -1 1 1 1 1 1 1 -1 -1"
        for i, (submit, run, procs, limit) in enumerate(rows)
    ]
    jobs = read_swf_lines(lines, "log", strict=True).jobs
    assert [(j.submit, j.run, j.procs, j.estimate) for j in jobs] == [
        (submit, run, max(0, procs), max(0, limit)) for submit, run, procs, limit in rows
    ]


def _job_line(number: int, submit: int, run: int = 60) -> str:
    return f"{number} {submit} 0 {run} 4 -1 -1 -1 90 -1 1 1 1 1 1 1 -1 -1"


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 1)), min_size=1, max_size=20),
    st.booleans(),
    st.integers(0, 5),
    st.integers(1, 9),
)
def test_reading_ends_early_only_if_nothing_later_is_needed(
    rows: list[tuple[int, int]], in_order: bool, skip: int, jobs: int
) -> None:
    rows = sorted(rows, key=lambda row: row[0]) if in_order else rows
    lines = [_job_line(i, submit, run) for i, (submit, run) in enumerate(rows)]
    part = read_swf_lines(lines, "log", first=skip + jobs)
    found = []
    for log in (read_swf_lines(lines, "log"), part):
        try:
            found.append(select(log, jobs=jobs, skip=skip, procs=4).jobs)
        except TraceError:  # none ran
            found.append(())
    assert found[0] == found[1]
    if in_order and sum(job.has_run for job in part.jobs) >= skip + jobs:
        assert sum(job.has_run for job in part.jobs) == skip + jobs
        assert part.jobs[-1].has_run


@pytest.mark.parametrize(
    "later",
    ["7 99 0 60", "; MaxProcs: 9", "no job", _job_line(7, 99)],
    ids=["short", "header", "text", "early"],
)
def test_a_log_is_read_whole_where_a_later_line_matters(later: str) -> None:
    lines = [_job_line(1, 100), _job_line(2, 200), later, ""]
    log = read_swf_lines(lines, "log", first=1)
    assert (len(log.jobs) + len(log.faults) > 1) or log.max_procs == 9
    assert len(read_swf_lines([*lines[:2], "; a comment", ""], "log", first=1).jobs) == 1
    assert len(read_swf_lines(lines[:2], "log", first=1, strict=True).jobs) == 2


LONG = pytest.mark.soak


@pytest.mark.parametrize(
    ("name", "jobs", "max_procs", "max_nodes", "started", "never_ran"),
    [
        ("KTH-SP2-1996-2", 28_489, 100, 100, 843480031, 8),
        ("SDSC-SP2-1998-4.2-cln", 59_715, 128, 128, 893466664, 5_681),
        pytest.param(
            "LLNL-Thunder-2007-1.1-cln", 121_039, 4008, 1002, 1170175078, 7_426, marks=pytest.mark.soak
        ),
        pytest.param("METACENTRUM-2009-2", 103_656, None, None, None, 3_712, marks=pytest.mark.soak),
    ],
)
def test_real_log_is_parsed_completely(
    workloads: Path,
    name: str,
    jobs: int,
    max_procs: int | None,
    max_nodes: int | None,
    started: int | None,
    never_ran: int,
) -> None:
    log = read_swf(workloads / f"{name}.swf.gz", strict=True)
    assert len(log.jobs) == jobs
    assert (log.name, log.max_procs, log.max_nodes, log.unix_start_time) == (
        name,
        max_procs,
        max_nodes,
        started,
    )
    assert sum(job.run <= 0 for job in log.jobs) == never_ran


def test_the_long_form_log_gives_node_memory_for_every_job(workloads: Path) -> None:
    jobs = read_swf(workloads / "wagap-2013.swf.gz", strict=True).jobs
    assert len(jobs) == 17_900
    assert all(job.nodes_spec for job in jobs)
    assert [job.id for job in jobs if (job.mem_kib_per_node or 0) > 529_426_432] == [
        8687
    ]  # 512 GiB, one node's full name
