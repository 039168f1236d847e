"""``schedd demo``: a daemon, a cluster, and a table of what was planned and what came."""

import re
import signal
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from schedd.cli.demo_cluster import DemoCluster, DemoJob, synthetic
from schedd.cli.demo_table import Table, between
from schedd.wire import (
    JobEnded,
    JobFacts,
    JobQueued,
    JobStarted,
    NodeFacts,
    Run,
    RunAccepted,
    RunRefused,
    ShareFacts,
)

T = 1_700_000_000
WAIT = 280
"""Real seconds: kernels may have to be compiled, by a busy machine."""


def demo(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "schedd.cli.main", "demo", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.timeout(WAIT)
def test_it_shows_planned_and_actual_starts_and_ends_by_itself() -> None:
    process = demo("--exit-after", "4")
    out, err = process.communicate(timeout=WAIT)
    assert (process.returncode, err) == (0, "")
    assert re.search(r"http://127\.0\.0\.1:\d+/docs", out)
    queued = re.findall(r"^\w{3} \d\d:\d\d (\d+\.demo) +queued ", out, re.MULTILINE)
    started = re.findall(
        r"^\w{3} \d\d:\d\d (\d+\.demo) +started .*(on time|earlier|later)", out, re.MULTILINE
    )
    assert len(queued) >= 60
    assert started
    assert {job for job, _ in started} <= set(queued)
    count = re.search(r"^(\d+) jobs queued, (\d+) started", out, re.MULTILINE)
    assert count is not None
    assert (int(count[1]), int(count[2])) == (len(queued), len(started))


@pytest.mark.timeout(WAIT)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(number: signal.Signals) -> None:
    process = demo()
    assert process.stdout is not None
    for line in process.stdout:
        if " started " in line:
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=WAIT)
    assert (process.returncode, err) == (0, "")
    assert "jobs queued" in out
    assert out.rstrip().endswith("Ended.")


@pytest.mark.timeout(WAIT)
def test_a_log_can_be_played(tmp_path: Path) -> None:
    log = tmp_path / "small.swf"
    rows = [f"{i} {i} -1 60 4 -1 -1 4 120 -1 1 1 1 -1 1 -1 -1 -1" for i in range(1, 4)]
    log.write_text("; MaxProcs: 16\n" + "\n".join(rows) + "\n")
    process = demo("--log", str(log), "--speed", "100", "--exit-after", "60")
    out, err = process.communicate(timeout=WAIT)
    assert (process.returncode, err) == (0, "")
    assert "3 jobs queued, 3 started, 3 ended." in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--log", "/nothing/here"], "/nothing/here"),
        (["--speed", "0"], "speed 0.0: must be above 0"),
        (["--exit-after", "-1"], "--exit-after -1.0: must be at least 0"),
    ],
)
def test_bad_arguments_are_explained(arguments: list[str], said: str) -> None:
    process = demo(*arguments)
    _, err = process.communicate(timeout=WAIT)
    assert process.returncode == 2
    assert err.startswith("schedd demo: ")
    assert said in err


def test_a_taken_port_is_named_when_it_was_asked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        process = demo("--port", port)
        _, err = process.communicate(timeout=WAIT)
    assert process.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in err


# ---- the simulated cluster --------------------------------------------------------------------------


def cluster() -> DemoCluster:
    facts = [
        JobFacts(id=f"{i}.demo", owner="ann", queue="", submitted=0, resources={"nodes": "1:ppn=4"})
        for i in (1, 2)
    ]
    jobs = [DemoJob(facts[0], 0, 100), DemoJob(facts[1], 10, 50)]
    found = DemoCluster([NodeFacts(name="n1", cpus=4)], jobs, "e")
    found.snapshot(T)
    return found


def decision(number: int, job: str) -> Run:
    return Run(
        id=f"d{number}",
        cause="",
        time=T,
        job_id=job,
        shares=(ShareFacts("n1", 4),),
        version="1",
        expires=T + 60,
    )


def test_jobs_arrive_run_and_end_in_their_time() -> None:
    here = cluster()
    (first,) = here.advance(T)
    assert isinstance(first, JobQueued)
    assert (first.job.id, first.job.submitted, here.next_moment) == ("1.demo", T, T + 10)
    accepted, started = here.start(decision(1, "1.demo"), T + 3)
    assert isinstance(accepted, RunAccepted)
    assert isinstance(started, JobStarted)
    assert [type(event) for event in here.advance(T + 60)] == [JobQueued]
    (ended,) = here.advance(T + 500)
    assert isinstance(ended, JobEnded)
    assert (ended.job_id, ended.time) == ("1.demo", T + 103)
    here.start(decision(2, "2.demo"), T + 500)
    here.advance(T + 600)
    assert here.over


def test_what_does_not_fit_or_is_not_there_is_refused() -> None:
    here = cluster()
    here.advance(T + 10)
    here.start(decision(1, "1.demo"), T + 10)
    for job, code in (("2.demo", 15046), ("1.demo", 0), ("9.demo", 0)):
        (refused,) = here.start(decision(2, job), T + 11)
        assert isinstance(refused, RunRefused)
        assert refused.code == code


def test_the_workload_is_the_same_for_the_same_seed_and_fits_the_cluster() -> None:
    workload = synthetic(4, 8, 50, 3, 10)
    jobs = workload.jobs()
    assert jobs == synthetic(4, 8, 50, 3, 10).jobs()
    assert [job.after for job in jobs[:10]] == [0] * 10
    assert all(0 <= b.after - a.after <= 3600 for a, b in pairwise(jobs))
    assert len({job.facts.id for job in jobs}) == 50
    assert all("walltime" in job.facts.resources for job in jobs)


def test_the_table_compares_with_what_was_told_first() -> None:
    table = Table(tolerated=60)
    shown = {
        "id": "1.demo",
        "owner": "ann@x",
        "resources": {"nodes": "1:ppn=4"},
        "walltime": 3600,
        "planned_start": T,
        "promised_start": T + 60,
        "planned_nodes": [{"node": "n1"}],
        "why": "",
    }
    for i, start in enumerate((T + 60, T - 7200, T + 61)):
        table.arrived(T, {**shown, "id": f"{i}.demo"})
        line = table.started(start, f"{i}.demo", ["n1"])[-1]
        assert ("on time", "2h00 earlier", "1m later")[i] in line
    summary = " ".join(table.summary(0))
    assert "3 jobs queued, 3 started, 0 ended." in summary
    assert "1 on time (within 1m), 1 earlier, 1 later; median difference 1m" in summary


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (-59, "59s"), (90, "2m"), (3599, "1h00"), (400_000, "111h")],
)
def test_spans_are_short(seconds: int, text: str) -> None:
    assert between(seconds) == text
