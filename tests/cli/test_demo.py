"""``schedd demo``: a daemon, a cluster, and a table of what was planned and what came."""

import re
import signal
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from schedd.cli.arrivals import of_log, synthetic
from schedd.cli.demo_table import Table, between
from schedd.replay.workload import Trace, TraceError, TraceJob

T = 1_700_000_000
WAIT = 280
"""Real seconds: kernels may have to be compiled, by a busy machine."""


def demo(*arguments: str, through: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*through, sys.executable, "-m", "schedd.cli.main", "demo", "--port", "0", *arguments],
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
    runs = re.search(
        r"^Runs that the server took from the adapter: (\d+); jobs run twice: 0\.", out, re.MULTILINE
    )
    assert runs is not None
    assert int(runs[1]) >= len(started)


@pytest.mark.timeout(WAIT)
@pytest.mark.parametrize(
    ("number", "through"),
    [
        (signal.SIGINT, ()),
        (signal.SIGTERM, ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")),  # as a shell starts it behind "&"
    ],
)
def test_a_signal_ends_it_cleanly_with_the_processes_that_it_started(
    number: signal.Signals, through: tuple[str, ...]
) -> None:
    process = demo(through=through)
    assert process.stdout is not None
    for line in process.stdout:
        if " started " in line:
            break
    parts = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(parts) == 2, "the daemon and the adapter"
    process.send_signal(number)
    out, err = process.communicate(timeout=WAIT)
    assert (process.returncode, err) == (0, "")
    assert "jobs queued" in out
    assert out.rstrip().endswith("Ended.")
    assert not any(Path(f"/proc/{part}").exists() for part in parts)


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


# ---- workloads and the table -------------------------------------------------------------------------


def test_the_workload_is_the_same_for_the_same_seed_and_fits_the_cluster() -> None:
    workload = synthetic(4, 8, 50, 3, 10)
    assert workload == synthetic(4, 8, 50, 3, 10)
    assert (len(workload.arrivals), workload.cpus) == (50, 32)
    times = [arrival.at for arrival in workload.arrivals]
    assert times[:10] == [0] * 10
    assert all(0 <= b - a <= 3600 for a, b in pairwise(times))
    assert all("walltime" in arrival.order.resources for arrival in workload.arrivals)


def test_a_log_gets_a_machine_of_its_own_size() -> None:
    jobs = (TraceJob(1, 5, 100, 20, 200), TraceJob(2, 9, 50, 40, 60))
    workload = of_log(Trace("small", jobs, max_procs=33), 16)
    assert [node.slots for node in workload.nodes] == [16, 16, 16]
    assert [arrival.order.resources["nodes"] for arrival in workload.arrivals] == [
        "1:ppn=16+1:ppn=4",
        "2:ppn=16+1:ppn=8",
    ]
    with pytest.raises(TraceError, match="no jobs"):
        of_log(Trace("empty", ()), 16)


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
    ("days", "text"), [(0, "Tue 22:13"), (5, "Sun 22:13"), (7, "21 Nov"), (14, "28 Nov")]
)
def test_a_start_more_than_a_week_ahead_has_its_date(days: int, text: str) -> None:
    shown = {
        "id": "1.demo",
        "owner": "ann@x",
        "resources": {},
        "walltime": 60,
        "planned_nodes": [],
        "why": "",
    }
    start = T + days * 86_400
    line = Table().arrived(T, {**shown, "planned_start": start, "promised_start": start})[-1]
    assert line.split("1m")[1].split() == text.split() * 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (-59, "59s"), (90, "2m"), (3599, "1h00"), (400_000, "111h")],
)
def test_spans_are_short(seconds: int, text: str) -> None:
    assert between(seconds) == text
