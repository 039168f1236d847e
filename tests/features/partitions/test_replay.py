"""Replays: jobs run in the partitions of their log, if the site has them."""

import json
from pathlib import Path

import pytest

from schedd.cli.main import main
from schedd.dialect.partition import logged_partition

HEADER = "JobID|User|Account|Partition|JobName|State|Submit|Eligible|Start|End|AllocCPUS|TimelimitRaw"


def mean_wait(folder: Path, sets: str) -> float:
    row = "{0}|ann|p|gpu|relax|COMPLETED|1000|1000|100{0}|160{0}|4|10"
    lines = [HEADER, *(row.format(job) for job in range(1, 7))]
    log = folder / "jobs.txt"
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return replay_wait(folder, log, sets)


def replay_wait(folder: Path, log: Path, sets: str) -> float:
    policy, out = folder / "schedd.toml", folder / "rows.json"
    policy.write_text(f"[clusters.main]\nsearch_every = 0\n{sets}", encoding="utf-8")
    machine = ["--nodes", "2", "--cpus-per-node", "4"]
    assert main(["replay", str(log), *machine, "--policy-file", str(policy), "--json", str(out)]) == 0
    rows = json.loads(out.read_text(encoding="utf-8"))
    return float(rows[-1]["avg_wait_s"])


def test_jobs_of_a_slurm_log_run_in_their_partitions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = '[clusters.main.site.partitions.sets.{}]\nnodes = ["n1"]\n'
    free, other, gpu = (
        mean_wait(tmp_path, "" if not name else sets.format(name)) for name in ("", "thin", "gpu")
    )
    assert free < gpu, capsys.readouterr().err
    assert free <= other < gpu, "a partition of another name holds none of them back"


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"Resource_List.partition": "gpu:thin"}, "gpu:thin"),
        ({"Resource_List.node_partition": "gpu"}, "gpu"),
        ({"x": "QOS:high;PARTITION:gpu"}, "gpu"),
        ({"Resource_List.walltime": "60"}, ""),
    ],
)
def test_the_requested_partition_of_a_logged_run_is_read(values: dict[str, str], name: str) -> None:
    assert logged_partition(values) == name


def test_jobs_of_an_accounting_log_run_in_the_partitions_that_they_requested(tmp_path: Path) -> None:
    waits = [
        mean_wait_of_pbs(tmp_path, request, 'nodes = ["n1"]')
        for request in ("", "Resource_List.partition=gpu ", "Resource_List.partition=unknown ")
    ]
    assert waits[0] < waits[1], "all of them run on the one node of the partition"
    assert waits[2] == waits[0], "a partition that the site does not have counts as none"


def mean_wait_of_pbs(folder: Path, request: str, sets: str) -> float:
    log = folder / "20260101"
    record = (
        "01/01/2026 12:00:00;E;{0}.s;user=ann group=g queue=batch etime=1000 start=1001 end=1600 "
        "Resource_List.walltime=600 Resource_List.nodes=1:ppn=4 {1}exec_host=a/0+a/1+a/2+a/3\n"
    )
    log.write_text("".join(record.format(job, request) for job in range(1, 7)), encoding="utf-8")
    return replay_wait(folder, log, f"[clusters.main.site.partitions.sets.gpu]\n{sets}\n")
