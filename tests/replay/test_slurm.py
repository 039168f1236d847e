"""Logs printed by sacct are replayed like others."""

import gzip
import json
from pathlib import Path

import pytest

from schedd.cli.main import main
from schedd.replay.trace_reader import read_traces
from schedd.replay.workload import TraceError, TraceJob

HEADER = "JobID|User|Account|Partition|JobName|State|Submit|Eligible|Start|End|AllocCPUS|TimelimitRaw"


def row(job: str, start: int, end: int, state: str = "COMPLETED", cpus: int = 4) -> str:
    return f"{job}|ann|p|main|relax|{state}|{start - 60}|{start - 50}|{start}|{end}|{cpus}|60"


def write_log(path: Path, *rows: str) -> Path:
    text = "\n".join([HEADER, *rows]) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def test_a_row_becomes_a_job(tmp_path: Path) -> None:
    (trace,) = read_traces([write_log(tmp_path / "jobs.txt", row("7_2", 1000, 1600, "TIMEOUT"))])
    assert trace.jobs == (
        TraceJob(
            "7[2]", 950, 600, 4, 3600, "ann", queue="main", wait=50, status=0, name="relax", account="p"
        ),
    )


def test_files_of_one_cluster_are_one_log_beside_others(tmp_path: Path) -> None:
    first = write_log(tmp_path / "2024-01.txt", row("1", 1000, 1600))
    second = write_log(tmp_path / "2024-02.txt.gz", row("2", 2000, 2600), row("3", 2000, 2700))
    pbs = tmp_path / "20240413"
    pbs.write_text("04/14/2024 12:00:03;E;1.s;user=a etime=90 start=100 end=160\n")
    expected = [("20240413", 1), ("2024-01.txt", 3)]
    assert [(trace.name, len(trace.jobs)) for trace in read_traces([first, pbs, second])] == expected
    assert [(trace.name, len(trace.jobs)) for trace in read_traces([tmp_path])] == expected


def test_json_is_recognised(tmp_path: Path) -> None:
    job = {
        "job_id": 1,
        "user": "ann",
        "partition": "main",
        "state": {"current": ["COMPLETED"]},
        "time": {"submission": 900, "start": 1000, "end": 1600, "limit": {"set": True, "number": 60}},
        "required": {"CPUs": 4},
    }
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps({"jobs": [job]}, indent=1))
    (trace,) = read_traces([path])
    assert [(one.id, one.submit, one.run, one.procs, one.estimate) for one in trace.jobs] == [
        ("1", 900, 600, 4, 3600)
    ]


def test_a_malformed_row_is_reported_and_fatal_if_strict(tmp_path: Path) -> None:
    path = write_log(tmp_path / "jobs.txt", row("1", 1000, 1600), "rubbish")
    (trace,) = read_traces([path])
    assert [str(fault) for fault in trace.faults] == ["jobs.txt, line 3: 1 fields where the header has 12"]
    with pytest.raises(TraceError, match=r"jobs.txt, line 3"):
        read_traces([path], strict=True)


def test_a_missing_column_is_an_explained_error(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text("JobID|Submit|Start|Elapsed\n1|1|2|3\n")
    with pytest.raises(TraceError, match=r"jobs.txt: the column End is missing: .*--format=ALL"):
        read_traces([path])


def test_the_command_replays_such_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(str(number), 1000 + 10 * number, 1600 + 10 * number) for number in range(1, 21)]
    path = write_log(tmp_path / "jobs.txt", *rows, row("4", 4000, 4100))
    figures = tmp_path / "figures.json"
    args = ["replay", str(path), "--procs", "16", "--policy", "conservative,easy", "--json", str(figures)]
    assert main(args) == 0
    assert [one["jobs"] for one in json.loads(figures.read_text())] == [21, 21]
    assert "jobs.txt" in capsys.readouterr().out


def test_gpus_of_a_row_are_replayed_on_nodes(tmp_path: Path) -> None:
    header = f"{HEADER}|AllocTRES|NodeList|AllocNodes"
    row_with_gpus = f"{row('1', 1000, 1600)}|cpu=4,node=2,gres/gpu=4|n[1-2]|2"
    path = tmp_path / "jobs.txt"
    path.write_text(f"{header}\n{row_with_gpus}\n")
    (trace,) = read_traces([path])
    assert (trace.jobs[0].gpus, trace.jobs[0].node_count) == (4, 2)
