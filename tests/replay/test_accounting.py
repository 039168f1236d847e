"""Accounting logs of TORQUE and OpenPBS, record by record."""

import gzip
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.dialect.accounting import is_record, node_shares, parse_ended_run
from schedd.dialect.deadline import read_deadline
from schedd.replay.accounting import parse_ended, read_accounting, read_accounting_lines
from schedd.replay.prepared import prepare
from schedd.replay.site import single_node_site
from schedd.replay.workload import PROCS_LIMIT, TIME_LIMIT, UNKNOWN, Trace, TraceError, TraceJob, select

TORQUE = (
    "04/14/2024 12:00:03;E;123.head.example.org;user=alice group=chem jobname=my job queue=long "
    "ctime=1713080000 qtime=1713080001 etime=1713080100 start=1713081000 owner=alice@login "
    "exec_host=n1/0-3+n2/0,2 Resource_List.neednodes=1:ppn=4+1:ppn=2 Resource_List.nodect=2 "
    "Resource_List.nodes=1:ppn=4+1:ppn=2 Resource_List.mem=6gb Resource_List.pmem=500mb "
    "Resource_List.walltime=1:02:00:00 session=4242 total_execution_slots=6 unique_node_count=2 "
    "end=1713088200 Exit_status=0 resources_used.cput=11:00:00 resources_used.mem=3145729kb "
    "resources_used.vmem=4194304kb resources_used.walltime=02:00:00"
)
OPENPBS = (
    '04/14/2024 12:00:03;E;77.pbs;user=bob group=phys project=_pbs_project_default jobname="a b" queue=workq '
    "ctime=1000 qtime=1000 etime=1000 start=1060 exec_host=vn1/0*4+vn2/1*2+vn3/0 "
    "exec_vnode=(vn1:ncpus=4:mem=2097152kb)+(vn2:ncpus=2) Resource_List.mem=2gb Resource_List.ncpus=7 "
    "Resource_List.nodect=3 Resource_List.place=scatter Resource_List.select=1:ncpus=4:mem=2gb+1:ncpus=2 "
    "Resource_List.walltime=3600 session=1 end=1120 Exit_status=271 resources_used.cpupct=0 "
    "resources_used.mem=0kb resources_used.ncpus=7 run_count=1"
)


def ended(line: str) -> TraceJob:
    job = parse_ended(line)
    assert job is not None
    return job


def test_torque_record_fills_every_job_field() -> None:
    assert ended(TORQUE) == TraceJob(
        id="123.head.example.org",
        submit=1713080100,
        run=7200,
        procs=6,
        estimate=26 * 3600,
        user="alice",
        group="chem",
        queue="long",
        mem_kib_per_proc=1024 * 1024,
        used_mem_kib_per_proc=524289,
        nodes_spec="1:ppn=4+1:ppn=2",
        wait=900,
        status=1,
        name="my job",
    )


def test_an_openpbs_record_gives_its_selection() -> None:
    job = ended(OPENPBS)
    assert (job.procs, job.run, job.wait, job.estimate) == (7, 60, 60, 3600)
    assert (job.select_spec, job.nodes_spec) == ("1:ncpus=4:mem=2gb+1:ncpus=2", None)
    assert job.mem_kib_per_proc == -(-2 * 1024 * 1024 // 7)
    assert job.used_mem_kib_per_proc is None
    assert job.status == 5, "killed by a signal: taken as cancelled"


@pytest.mark.parametrize("account", ['"x start=1 end=9 queue=fast"', "'x \"start=1 end=9 queue=fast'"])
def test_keys_inside_a_quoted_value_are_no_keys(account: str) -> None:
    job = ended(OPENPBS.replace("project=", f"account={account} project="))
    assert (job.run, job.wait, job.queue) == (60, 60, "workq")


@pytest.mark.parametrize(
    "account",
    [
        'x" start=1 end=2 foo="',
        'x" jobname=j queue=fast ctime=1 etime=2 start=3 exec_host=vn1/0 Resource_List.walltime=9 foo="',
        'x" end=1061 resources_used.walltime=00:00:01 resources_used.ncpus=1 Exit_status=0 foo="',
    ],
)
def test_an_account_that_ends_its_quotes_forges_no_record(account: str) -> None:
    honest = OPENPBS.replace(" run_count", " resources_used.walltime=00:01:00 run_count")
    forged = honest.replace("project=", f'account="{account}" project=')
    assert replace(ended(forged), account="") == ended(honest)


def test_larger_memory_per_processor_counts() -> None:
    line = TORQUE.replace("Resource_List.mem=6gb", "Resource_List.mem=600mb")
    assert ended(line).mem_kib_per_proc == 500 * 1024


@pytest.mark.parametrize(
    ("size", "kib"),
    [("6gb", 1 << 20), ("6000", 1), ("6144", 1), ("768kw", 1024), ("6MB", 1024), ("much", None), ("0", None)],
)
def test_sizes_are_parsed_in_every_pbs_unit(size: str, kib: int | None) -> None:
    line = TORQUE.replace("Resource_List.mem=6gb Resource_List.pmem=500mb", f"Resource_List.mem={size}")
    assert ended(line).mem_kib_per_proc == kib


@pytest.mark.parametrize(
    ("walltime", "seconds"), [("90", 90), ("01:30", 90), ("10:00:00", 36000), ("UNLIMITED", 0), ("", 0)]
)
def test_walltime_limit_is_parsed_in_every_form(walltime: str, seconds: int) -> None:
    assert ended(TORQUE.replace("=1:02:00:00", f"={walltime}")).estimate == seconds


@pytest.mark.parametrize(
    ("left", "submit"),
    [("etime=1713080100 ", 1713080001), ("qtime=1713080001 etime=1713080100 ", 1713080000)],
)
def test_submission_defaults_to_queue_and_creation_time(left: str, submit: int) -> None:
    assert ended(TORQUE.replace(left, "")).submit == submit


@pytest.mark.parametrize(
    ("hosts", "procs"),
    [
        ("exec_host=n1/0-3+n2/0,2 ", 6),
        ("exec_host=n1/3+n1/2+n1/1+n1/0+n2/0+n2/1 ", 6),
        ("exec_host=n1/3+n1/2+n2/0 ", 6),
        ("exec_host=n1/0-11+n2/0-11 ", 6),
        ("", 6),
    ],
)
def test_processors_are_host_slots_by_default(hosts: str, procs: int) -> None:
    assert ended(TORQUE.replace("exec_host=n1/0-3+n2/0,2 ", hosts)).procs == procs


@pytest.mark.parametrize(
    ("fields", "procs"),
    [
        ("exec_host=n1/0 Resource_List.nodes=2:ppn=8", 16),
        ("exec_host=n1/0-15 Resource_List.nodes=1:ppn=2", 16),
        ("exec_host=n1/0 exec_vnode=(n1:ncpus=16:mem=1gb)+(n2:ncpus=8) Resource_List.ncpus=24", 24),
        ("exec_host=n1/0*4 resources_used.ncpus=8", 8),
        ("exec_host=n1/0*4 Resource_List.ncpus=4", 4),
        ("exec_host=n1/0-3", 4),
        ("Resource_List.procs=12 Resource_List.ncpus=1", 12),
        ("Resource_List.nodes=1:ppn=4+n7:ppn=2:gpus=1#excl", 6),
    ],
)
def test_host_list_does_not_override_other_fields(fields: str, procs: int) -> None:
    assert ended(f"04/14/2024 12:00:03;E;1.s;user=a start=100 end=160 {fields}").procs == procs


def test_processors_are_divided_over_the_hosts_as_their_slots_are() -> None:
    line = "04/14/2024 12:00:03;E;1.s;start=100 end=160 exec_host=n1/0+n2/0 total_execution_slots=17"
    run = parse_ended_run(line)
    assert run is not None
    assert node_shares(run) == [("n1", 9, 0), ("n2", 8, 0)]


def test_times_may_have_a_fraction() -> None:
    job = ended("04/14/2024 12:00:03;E;1.s;user=a etime=90.75 start=100.5 end=160.25")
    assert (job.submit, job.wait, job.run) == (90, 10, 60)


RERUN = [
    "04/14/2024 14:00:00;S;5.s;user=a etime=1713088000 start=1713088800 exec_host=n1/0-3",
    "04/14/2024 14:10:00;R;5.s;",
    "04/14/2024 14:30:00;S;5.s;user=a etime=1713088000 start=1713090600 exec_host=n2/0-3",
    "04/14/2024 14:40:00;E;5.s;user=a etime=1713088000 start=1713090600 end=1713091200 exec_host=n2/0-3",
]
RERUN_OPENPBS = [
    "04/14/2024 14:10:00;R;5.s;user=a etime=1713088000 start=1713088800 end=1713089400 exec_host=n1/0*4",
    RERUN[3],
]


@pytest.mark.parametrize("log", [RERUN, RERUN_OPENPBS])
def test_a_run_lost_to_a_rerun_is_no_waiting_but_a_run(log: list[str]) -> None:
    lost, last = read_accounting_lines(log, "log", strict=True).jobs
    assert (lost.id, lost.submit, lost.wait, lost.run, lost.procs) == (
        "5.s@1713088800",
        1713088000,
        800,
        600,
        4,
    )
    assert (last.id, last.submit, last.wait, last.run) == ("5.s", 1713089400, 1200, 600)
    assert (lost.status, last.status) == (0, -1)


@pytest.mark.parametrize(
    ("between", "hour", "run"),
    [
        (["04/14/2024 14:05:00;S;6.s;start=1713092700"], 14, 4200),  # clock set back after the start
        (["04/14/2024 15:05:00;S;6.s;start=1713089100"], 15, 600),  # set forward
        (["04/14/2024 14:50:00;Q;7.s;queue=workq"], 14, 4200),  # seen only by the order of the records
        (["04/14/2024 14:50:00;S;6.s;start=1713091800"], 15, 4200),  # not changed
        ([], 14, 600),
    ],
)
def test_a_rerun_after_a_change_of_the_clock_has_its_length(between: list[str], hour: int, run: int) -> None:
    log = [RERUN[0], *between, f"04/14/2024 {hour}:10:00;R;5.s;"]
    (lost,) = read_accounting_lines(log, "log", strict=True).jobs
    assert (lost.run, lost.id) == (run, "5.s@1713088800")


def test_unknown_rerun_is_ignored() -> None:
    (job,) = read_accounting_lines(RERUN[1:], "log", strict=True).jobs
    assert (job.submit, job.wait) == (1713088000, 2600)


def test_a_rerun_goes_on_in_the_next_file(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("\n".join(RERUN[:2]) + "\n")
    (tmp_path / "2").write_text("\n".join(RERUN[2:]) + "\n")
    assert len(read_accounting([tmp_path / "1", tmp_path / "2"], "log").jobs) == 2


def test_job_without_processors_counts_as_serial() -> None:
    line = "04/14/2024 12:00:03;E;1.s;user=a start=100 end=160"
    assert (ended(line).procs, ended(line).submit, ended(line).group) == (1, 100, UNKNOWN)


def test_start_before_eligibility_means_no_wait() -> None:
    line = "04/14/2024 12:00:03;E;1.s;user=a etime=120 start=100 end=160"
    assert (ended(line).submit, ended(line).wait) == (100, 0)


@pytest.mark.parametrize("kind", ["Q", "S", "D", "A", "R", "L", "B", "F"])
def test_other_records_are_skipped(kind: str) -> None:
    assert parse_ended(f"04/14/2024 12:00:00;{kind};1.s;queue=batch requestor=a@b") is None


def test_array_parent_is_not_a_job() -> None:
    assert parse_ended(OPENPBS.replace("77.pbs", "77[].pbs")) is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("rubbish", "no accounting record"),
        ("04/14/2024 12:00:03;E;1.s;user=a end=160", "job 1.s without start or end"),
        ("04/14/2024 12:00:03;E;1.s;user=a start=soon end=160", "start=soon is no time"),
        ("04/14/2024 12:00:03;E;1.s;start=1 end=2 exec_host=n/0-99999999", "100000000 processors"),
        ("04/14/2024 12:00:03;E;1.s;user=a start=161 end=160", "ends .160. before it starts .161."),
    ],
)
def test_a_malformed_record_is_reported_with_its_place_or_fatal(line: str, reason: str) -> None:
    log = read_accounting_lines([TORQUE, "", line, OPENPBS], "20240414")
    assert len(log.jobs) == 2
    assert len(log.faults) == 1
    assert str(log.faults[0]).startswith("20240414, line 3: ")
    with pytest.raises(TraceError, match=reason):
        read_accounting_lines([TORQUE, line], "20240414", strict=True)


def test_several_files_form_a_single_epoch_log(tmp_path: Path) -> None:
    (tmp_path / "20240413").write_text(OPENPBS + "\n")
    (tmp_path / "20240414.gz").write_bytes(gzip.compress(TORQUE.encode()))
    log = read_accounting([tmp_path / "20240413", tmp_path / "20240414.gz"], "april")
    assert [job.id for job in log.jobs] == ["77.pbs", "123.head.example.org"]
    assert (log.name, log.unix_start_time, log.max_procs) == ("april", 0, None)


WORDS = st.sampled_from(
    [
        "user=",
        "start=5",
        "end=9",
        "start=",
        "exec_host=",
        "n/0-9,3*2",
        "n/0-99999999999",
        "etime=7",
        "Resource_List.walltime=1:2:3:4:5",
        "Resource_List.walltime=999999999999:0:0:0",
        " ",
        "=",
        "x",
    ]
)


@given(st.one_of(st.text(), st.lists(st.one_of(WORDS, st.text()), max_size=12).map(" ".join)))
def test_arbitrary_record_gives_a_job_an_error_or_nothing(message: str) -> None:
    for line in (message, *(f"04/14/2024 12:00:03;{kind};1.s;{message}" for kind in "ESR")):
        log = read_accounting_lines(["04/14/2024 12:00:03;S;1.s;start=4", line], "log")
        assert len(log.jobs) + len(log.faults) <= 1
        for job in log.jobs:
            assert 0 <= job.run <= TIME_LIMIT
            assert 0 <= job.estimate <= TIME_LIMIT
            assert 1 <= job.procs <= PROCS_LIMIT
        is_record(line)


@pytest.mark.parametrize(
    ("more", "deadline"),
    [
        ("Resource_List.deadline=1713100000", 1713100000),
        ("Resource_List.deadline=+10:00:00", 1713080000 + 36_000),
        ("x=QOS:high;DEADLINE:+10:00:00", 1713080000 + 36_000),
        ("x=deadline=2024-04-15T00:00Z", 1713139200),
        ("Resource_List.deadline=+10:00:00@95%", None),
        ("Resource_List.deadline=soon", None),
        ("x=QOS", None),
        ("", None),
    ],
)
def test_the_deadline_of_a_logged_job_reaches_the_engine(more: str, deadline: int | None) -> None:
    line = re.sub(r" ctime=\d+", " ctime=1713080000", f"{TORQUE} {more}".strip())
    job = ended(line)
    assert job.deadline == deadline
    selection = select(Trace(name="log", jobs=(job,), unix_start_time=0), procs=64)
    facts = prepare(selection, single_node_site(64), 0).facts(0)
    assert read_deadline(facts.resources, facts.submitted) == deadline


def test_gpus_resources_and_wishes_of_a_record_are_read() -> None:
    job = ended(f"{TORQUE} Resource_List.gres=fpga:1 x=TOPOLOGY:switch:2 Resource_List.advres=lab")
    assert (job.gres, job.topology, job.reservation, job.ignored) == ("fpga:1", "switch:2", "lab", ())
    job = ended(f"{OPENPBS} Resource_List.topology=island Resource_List.software=matlab")
    assert (job.topology, job.ignored) == ("island", ("software",))


OPENPBS_LINES = [  # by a 23.06.06, for `qsub -A` with a line break
    '11/30/2026 01:53:22;Q;8087.pbsr;user=rua group=rua account="x',
    (
        '11/30/2026 01:50:00;E;9999.pbsr;user=root group=root project=_pbs_project_default" '
        "project=_pbs_project_default jobname=STDIN queue=short ctime=1796003602 qtime=1796003602 "
        "etime=1796003602 Resource_List.ncpus=1 Resource_List.walltime=00:00:30 "
    ),
    '11/30/2026 01:53:29;E;8087.pbsr;user=rua group=rua account="x',
    (
        '11/30/2026 01:50:00;E;9999.pbsr;user=root group=root project=_pbs_project_default" '
        "project=_pbs_project_default jobname=STDIN queue=short ctime=1796003602 qtime=1796003602 "
        "etime=1796003602 start=1796003607 exec_host=pbsr/0 exec_vnode=(h1_0:ncpus=1) Resource_List.ncpus=1 "
        "Resource_List.walltime=00:00:30 session=0 end=1796003609 Exit_status=0 resources_used.ncpus=1 "
        "resources_used.walltime=00:00:01 run_count=1"
    ),
]
TORQUE_LINES = [  # by a 6.1-dev, which quotes no text
    "11/30/2026 02:04:32;E;596.tor61;user=rua group=rua account=x",
    (
        "11/30/2026 01:50:00;E;9999.pbsr;user=root group=root project=_pbs_project_default jobname=STDIN "
        "queue=batch ctime=1796004203 qtime=1796004203 etime=1796004203 start_count=1 start=1796004261 "
        "owner=rua@tor61 exec_host=tn2/2 Resource_List.nodes=1 Resource_List.walltime=00:00:30 session=1 "
        "end=1796004272 Exit_status=0 resources_used.walltime=00:00:11"
    ),
]


@pytest.mark.parametrize(("lines", "job"), [(OPENPBS_LINES, "8087.pbsr"), (TORQUE_LINES, "596.tor61")])
def test_lines_of_an_account_with_line_breaks_are_no_records(lines: list[str], job: str) -> None:
    after = TORQUE.replace("123.head", "124.head")
    found = read_accounting_lines([*lines, after], "log", strict=True)
    assert [(one.id, one.user) for one in found.jobs] == [(job, "rua"), ("124.head.example.org", "alice")]


def test_a_record_that_does_not_end_is_a_fault_and_the_next_ones_are_read() -> None:
    cut = '11/30/2026 01:53:22;E;8087.pbsr;user=rua group=rua account="x'
    found = read_accounting_lines([cut, *["y"] * 49, TORQUE], "log")
    assert [fault.reason for fault in found.faults] == [f"a record that does not end: {cut[:60]}"]
    assert [one.id for one in found.jobs] == ["123.head.example.org"]
