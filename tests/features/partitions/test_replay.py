"""A replay of a Slurm log: its jobs run in the partitions of the log, if the site has them."""

import json
from pathlib import Path

import pytest

from schedd.cli.main import main

HEADER = "JobID|User|Account|Partition|JobName|State|Submit|Eligible|Start|End|AllocCPUS|TimelimitRaw"


def mean_wait(folder: Path, sets: str) -> float:
    row = "{0}|ann|p|gpu|relax|COMPLETED|1000|1000|100{0}|160{0}|4|10"
    lines = [HEADER, *(row.format(job) for job in range(1, 7))]
    log, policy, out = folder / "jobs.txt", folder / "schedd.toml", folder / "rows.json"
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
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
