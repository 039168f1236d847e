"""Slurm's accounting as sacct prints it: tables and JSON become runs as a PBS log does."""

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.dialect.accounting import EndedRun, node_shares
from schedd.dialect.slurm_accounting import is_slurm_header, read_slurm_json, read_slurm_table

T = 1_700_000_000
COLUMNS = (
    "JobID|User|Group|Account|Partition|JobName|QOS|State|ExitCode|Submit|Eligible|Start|End|AllocCPUS|AllocNodes|"
    "Timelimit|ReqTRES|AllocTRES|NodeList"
)
TRES = "billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=2"


def row(job: str = "12", **more: str) -> str:
    values = {
        "JobID": job,
        "User": "ann",
        "Group": "chem",
        "Account": "proj1",
        "Partition": "gpu",
        "JobName": "relax",
        "QOS": "normal",
        "State": "COMPLETED",
        "ExitCode": "0:0",
        "Submit": str(T),
        "Eligible": str(T + 10),
        "Start": str(T + 100),
        "End": str(T + 700),
        "AllocCPUS": "8",
        "AllocNodes": "2",
        "Timelimit": "1-02:03:04",
        "ReqTRES": TRES,
        "AllocTRES": TRES,
        "NodeList": "n[001-002]",
        **more,
    }
    return "|".join(values[name] for name in COLUMNS.split("|"))


def runs(*rows: str) -> tuple[EndedRun, ...]:
    found = read_slurm_table([COLUMNS, *rows])
    assert found.faults == ()
    return found.runs


def test_a_row_becomes_a_run_with_the_keys_of_a_pbs_record() -> None:
    (run,) = runs(row())
    assert (run.id, run.eligible, run.start, run.end, run.procs, run.lost) == (
        "12",
        T + 10,
        T + 100,
        T + 700,
        8,
        False,
    )
    assert run.values == {
        "user": "ann",
        "group": "chem",
        "account": "proj1",
        "queue": "gpu",
        "jobname": "relax",
        "qos": "normal",
        "Exit_status": "0",
        "Resource_List.walltime": str(26 * 3600 + 184),
        "Resource_List.mem": f"{64 << 20}kb",
        "exec_host": "n001/0*4+n002/0*4",
        "exec_gpus": "n001-gpu/0+n002-gpu/0",
    }
    assert node_shares(run) == [("n001", 4, 1), ("n002", 4, 1)]


def test_steps_waiting_running_and_never_started_jobs_are_no_runs() -> None:
    assert (
        runs(
            row("12.batch"),
            row("12.extern"),
            row("12.0"),
            row("12_3.batch"),
            row("13_[4-9%2]", Start="Unknown", End="Unknown", State="PENDING"),
            row("14", State="RUNNING", End="Unknown"),
            row("15", State="CANCELLED by 1001", Start="None", AllocCPUS="0"),
            row("16", State="CANCELLED", Start=str(T + 700)),
        )
        == ()
    )


def test_tasks_of_an_array_and_parts_of_a_heterogeneous_job_are_jobs() -> None:
    assert [run.id for run in runs(row("12_3"), row("12_4"), row("20+0"), row("20+1"))] == [
        "12[3]",
        "12[4]",
        "20+0",
        "20+1",
    ]


def test_a_requeued_job_has_a_lost_run_and_waits_again_from_its_end() -> None:
    first = row(State="NODE_FAIL", End=str(T + 300))
    second = row(State="PREEMPTED", Start=str(T + 400), End=str(T + 500))
    third = row(Start=str(T + 600))
    assert [(run.start, run.eligible, run.lost) for run in runs(third, first, second)] == [
        (T + 100, T + 10, True),
        (T + 400, T + 300, True),
        (T + 600, T + 500, False),
    ]
    assert runs(row(State="REQUEUED"))[0].lost


@pytest.mark.parametrize(
    ("state", "code", "status"),
    [
        ("COMPLETED", "0:0", "0"),
        ("FAILED", "3:0", "3"),
        ("TIMEOUT", "0:0", "1"),
        ("CANCELLED by 7", "0:15", "271"),
        ("OUT_OF_MEMORY", "0:125", "1"),
    ],
)
def test_states_become_exit_statuses(state: str, code: str, status: str) -> None:
    assert runs(row(State=state, ExitCode=code))[0].values["Exit_status"] == status


@pytest.mark.parametrize(
    ("columns", "seconds"),
    [
        ({"Timelimit": "30:00"}, "1800"),
        ({"Timelimit": "02:00:00"}, "7200"),
        ({"Timelimit": "UNLIMITED"}, None),
        ({"Timelimit": "Partition_Limit"}, None),
    ],
)
def test_time_limits_are_read_in_each_form(columns: dict[str, str], seconds: str | None) -> None:
    assert runs(row(**columns))[0].values.get("Resource_List.walltime") == seconds


def test_raw_time_limits_are_minutes() -> None:
    found = read_slurm_table([COLUMNS.replace("Timelimit", "TimelimitRaw"), row(Timelimit="90")])
    assert found.runs[0].values["Resource_List.walltime"] == "5400"


@pytest.mark.parametrize(
    ("memory", "kib"),
    [("4Gc", 8 * 4 << 20), ("16Gn", 2 * 16 << 20), ("16G", 16 << 20), ("512M", 512 << 10), ("1.5G", 3 << 19)],
)
def test_requested_memory_is_that_of_the_job(memory: str, kib: int) -> None:
    found = read_slurm_table([COLUMNS.replace("ReqTRES", "ReqMem"), row(ReqTRES=memory, AllocTRES="cpu=8")])
    assert found.runs[0].values["Resource_List.mem"] == f"{kib}kb"


def test_times_without_zone_are_those_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Prague")
    time.tzset()
    try:
        (run,) = runs(row(Start="2024-01-31T12:00:00", End="2024-07-31T12:00:00"))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (run.start, run.end) == (1_706_698_800, 1_722_420_000)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[1-3,07]", ["n1", "n2", "n3", "n07"]),
        ("n001", ["n001"]),
        ("a[1-2]x,b,c[9]", ["a1x", "a2x", "b", "c9"]),
        ("None assigned", [""]),
        ("n[1-999999999]", [""]),
    ],
)
def test_host_lists_are_expanded(text: str, names: list[str]) -> None:
    assert [name for name, _, _ in node_shares(runs(row(NodeList=text, AllocTRES="cpu=8"))[0])] == names


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (row() + "|more", "20 fields where the header has 19"),
        (row(Start="yesterday"), "Start 'yesterday' is no time"),
        (row(End=str(T)), "ends .* before it starts"),
        (row("x"), "JobID 'x' is no id of a job"),
        (row(AllocCPUS="", ReqTRES="", AllocTRES=""), "neither AllocCPUS nor ReqCPUS"),
        (row(AllocCPUS="999999999999"), "has 999999999999 CPUs"),
        (row(Start="2024-13-99T12:00:00"), "is no time"),
    ],
)
def test_a_malformed_row_is_a_fault_with_its_line_and_others_are_read(line: str, reason: str) -> None:
    found = read_slurm_table([COLUMNS, line, row()])
    assert len(found.runs) == 1
    ((number, why),) = found.faults
    assert number == 2
    assert re.search(reason, why)


def test_a_table_without_its_columns_is_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match="without --noheader"):
        read_slurm_table([row()])
    with pytest.raises(ValueError, match="column Start is missing: print the log with --format=ALL"):
        read_slurm_table(["JobID|User|Submit|End"])


def test_joined_files_and_final_separators_are_read() -> None:
    lines = [COLUMNS + "|", row("1") + "|", "", COLUMNS, row("2")]
    assert [run.id for run in read_slurm_table(lines).runs] == ["1", "2"]


def test_only_a_header_is_one() -> None:
    assert is_slurm_header(COLUMNS)
    assert not is_slurm_header(row())
    assert not is_slurm_header("04/14/2024 12:00:03;E;1.s;user=a")


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


def json_job(**more: Any) -> dict[str, Any]:
    tres = [
        {"type": "cpu", "name": "", "id": 1, "count": 8},
        {"type": "mem", "name": "", "id": 2, "count": 65536},
        {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 1},
        {"type": "gres", "name": "gpu:v100", "id": 1003, "count": 1},
    ]
    return {
        "job_id": 12,
        "array": {"job_id": 0, "task_id": {"set": False, "infinite": False, "number": 0}},
        "user": "ann",
        "group": "chem",
        "account": "proj1",
        "partition": "gpu",
        "name": "relax",
        "qos": "normal",
        "nodes": "n[001-002]",
        "allocation_nodes": 2,
        "state": {"current": ["COMPLETED"], "reason": "None"},
        "exit_code": {"return_code": number(0)},
        "time": {
            "submission": T,
            "eligible": T + 10,
            "start": T + 100,
            "end": T + 700,
            "limit": number(1563),
        },
        "required": {"CPUs": 8},
        "tres": {"requested": tres, "allocated": tres},
        **more,
    }


def test_json_and_table_give_the_same_run() -> None:
    (of_table,) = runs(row(Timelimit="1-02:03:00"))
    found = read_slurm_json(json.dumps({"meta": {}, "jobs": [json_job()]}))
    assert found.faults == ()
    assert found.runs == (of_table,)


def test_gpus_listed_as_a_whole_and_by_type_count_once() -> None:
    job = json_job()
    job["tres"]["allocated"] += [{"type": "gres", "name": "gpu", "id": 1001, "count": 2}]
    (of_json,) = read_slurm_json(json.dumps({"jobs": [job]})).runs
    (of_table,) = runs(row(AllocTRES="cpu=8,mem=64G,gres/gpu=2,gres/gpu:a100=1,gres/gpu:v100=1"))
    assert of_json.values["exec_gpus"] == of_table.values["exec_gpus"] == "n001-gpu/0+n002-gpu/0"


def test_json_of_older_releases_and_of_arrays_is_read() -> None:
    old = json_job(
        state={"current": "FAILED"},
        exit_code={"return_code": 2},
        array={"job_id": 7, "task_id": 3},
        tres={},
        required={"CPUs": 4, "memory_per_cpu": number(1024)},
        time={"submission": T, "eligible": T, "start": T, "end": T + 5, "limit": {"set": False}},
    )
    (run,) = read_slurm_json(json.dumps({"jobs": [old]})).runs
    assert (run.id, run.procs, run.values["Exit_status"]) == ("7[3]", 4, "2")
    assert run.values["Resource_List.mem"] == f"{4 << 20}kb"
    assert "Resource_List.walltime" not in run.values


@pytest.mark.parametrize("text", ["{", "{}", '{"jobs": 1}', "[1]", "[" * 100_000])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no JSON document|the list \"jobs\" is missing"):
        read_slurm_json(text)


def test_a_malformed_json_job_is_a_fault_with_its_number() -> None:
    jobs = [json_job(job_id="x"), "job", json_job(time={"start": -1}), json_job()]
    found = read_slurm_json(json.dumps({"jobs": jobs}))
    assert ([number for number, _ in found.faults], len(found.runs)) == ([1, 2, 3], 1)


@given(
    st.lists(st.text(alphabet="|_[]-,+0123456789:TZabGMn.\n", max_size=60), max_size=4), st.integers(0, 18)
)
def test_any_text_is_read_or_a_fault(texts: list[str], place: int) -> None:
    fields = row().split("|")
    lines = [COLUMNS, *texts]
    for text in texts:
        fields[place] = text.replace("\n", "")
        lines.append("|".join(fields))
    found = read_slurm_table(lines)
    for run in found.runs:
        assert run.eligible <= run.start <= run.end
        assert run.procs >= 1


def test_texts_of_users_may_have_separators() -> None:
    (run,) = runs(row(JobName="a | b || c"))
    assert (run.values["jobname"], run.start, run.procs) == ("a | b || c", T + 100, 8)
    found = read_slurm_table([COLUMNS, f"{row()}|more"])
    assert [reason for _, reason in found.faults] == ["20 fields where the header has 19"]


def test_a_last_text_that_is_empty_is_no_separator_at_the_end() -> None:
    """Without a separator at the end of the header an empty last field is one field, not one too many."""
    found = read_slurm_table([COLUMNS, f"{row(NodeList='')}|"])
    assert [reason for _, reason in found.faults] == ["20 fields where the header has 19"]
    (run,) = read_slurm_table([f"{COLUMNS}|", row(JobName="a|b") + "|"]).runs
    assert run.values["jobname"] == "a|b"


def test_the_reservation_of_a_run_is_read() -> None:
    (run,) = read_slurm_table([f"{COLUMNS}|Reservation", f"{row()}|course"]).runs
    assert run.values["Resource_List.advres"] == "course"
    job = json_job(reservation={"id": 3, "name": "course"})
    (run,) = read_slurm_json(json.dumps({"jobs": [job]})).runs
    assert run.values["Resource_List.advres"] == "course"


@pytest.mark.parametrize(
    ("start", "end", "elapsed", "wanted"),
    [
        ("2024-10-27T02:50:00", "2024-10-27T02:10:00", "", 1_200),
        ("2024-10-27T02:10:00", "2024-10-27T02:50:00", "2400", 2_400),
        ("2024-10-27T02:10:00", "2024-10-27T02:50:00", "6000", 6_000),
        ("2024-10-27T01:50:00", "2024-10-27T02:10:00", "4800", 4_800),
        ("2024-10-27T02:10:00", "2024-10-27T04:10:00", "7200", 7_200),
        ("2024-10-27T02:10:00", "2024-10-27T04:10:00", "10800", 10_800),
    ],
)
def test_local_times_of_the_hour_that_a_clock_repeats_are_told_apart(
    start: str, end: str, elapsed: str, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        times = row(Submit="2024-10-26T10:00:00", Eligible="2024-10-26T10:00:00", Start=start, End=end)
        (run,) = read_slurm_table([f"{COLUMNS}|ElapsedRaw", f"{times}|{elapsed}"]).runs
        assert run.end - run.start == wanted
    finally:
        monkeypatch.undo()
        time.tzset()
