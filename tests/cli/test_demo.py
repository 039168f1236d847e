"""``schedd demo``: a daemon, a cluster, and a table of planned and actual starts."""

import asyncio
import heapq
import io
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import httpx2
import pytest

from schedd.cli.demo import change_job
from schedd.cli.demo.arrivals import workload_from_log
from schedd.cli.demo.past_runs import write_past_runs
from schedd.cli.demo.processes import DemoError
from schedd.cli.demo.run import DemoOutput, DemoRun, _query_cluster, await_ready
from schedd.cli.demo.steady import SteadyWorkload, core_seconds, requested_cores
from schedd.cli.demo.table import DemoTable, format_span
from schedd.engine import EngineSettings
from schedd.features.prediction.earlier import past_runs
from schedd.replay.workload import Trace, TraceError, TraceJob
from tests.features.prediction.forecast_world import Coverage
from tests.store.forked_processes import start_program
from tests.waits import WAIT_S, wait_until

T = 1_700_000_000


def demo(*arguments: str, through: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    if not through:
        words = ("schedd.cli.main", "demo", "--port", "0", *arguments)
        return start_program(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return subprocess.Popen(
        [*through, sys.executable, "-m", "schedd.cli.main", "demo", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _other_warnings(said: str) -> list[str]:
    """Return the lines of standard error, without those about a busy machine: at 900 times real time, a busy
    second of it lets jobs end a quarter of an hour late, and a decision expires before it is read.
    """
    busy = ("is due, but others that run or may start hold", "the decision expired")
    return [line for line in said.splitlines() if not any(words in line for words in busy)]


@pytest.mark.timeout(WAIT_S)
def test_demo_shows_planned_starts_and_ends_on_time() -> None:
    process = demo("--exit-after", "8", "--speed", "900")
    out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, _other_warnings(err)) == (0, [])
    assert re.search(r"http://127\.0\.0\.1:\d+/docs", out)
    assert len(_check_table(out)) >= 20  # two hours; a busy machine brings fewer of them in that time


def _check_table(out: str) -> list[str]:
    """The rows are complete, and agree with the summary. Returns the queued jobs."""
    queued = re.findall(r"^\w{3} \d\d:\d\d ([\d\[\]]+\.\w+…?) +queued ", out, re.MULTILINE)
    started = re.findall(r"^\w{3} \d\d:\d\d ([\d\[\]]+\.\w+…?) +started .*$", out, re.MULTILINE)
    assert all(len(line) <= 80 for line in out.splitlines()), "it fits a terminal"
    link = re.search(r"http://\S+/dashboard/enter\?key=\S+", out)
    assert link is not None
    assert re.search(r"^  admin +\S{20,}$", out, re.MULTILINE)
    assert re.search(r"^  user1 \(a user\) +\S{20,}$", out, re.MULTILINE)
    # Many jobs that come at once have no rows.
    without_row = sum(int(many) for many in re.findall(r"^(\d+) jobs planned\. ", out, re.MULTILINE))
    assert len(set(started) - set(queued)) <= without_row
    count = re.search(r"^(\d+) jobs queued, (\d+) started", out, re.MULTILINE)
    assert count is not None
    assert (int(count[1]), int(count[2])) == (len(queued) + without_row, len(started))
    runs = re.search(
        r"^Runs that the server took from the adapter: (\d+); jobs run twice: 0\.", out, re.MULTILINE
    )
    assert runs is not None
    assert int(runs[1]) >= len(started)
    return queued


@pytest.mark.timeout(WAIT_S)
@pytest.mark.parametrize(
    ("number", "options", "cluster", "through"),
    [
        (signal.SIGINT, ("--federation", "2"), "north", ()),
        # as a shell starts it behind "&"
        (signal.SIGTERM, ("--server", "openpbs"), "demo", ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")),
    ],
)
def test_demo_takes_jobs_and_a_signal_ends_it_with_its_processes(
    number: signal.Signals, options: tuple[str, ...], cluster: str, through: tuple[str, ...]
) -> None:
    process = demo(*options, through=through)
    try:
        said = _read_until_start(process)
        _check_logins(said, cluster)
        _check_examples(said, cluster)
        _check_submissions(said, cluster)
        several = "--federation" in options
        if several:
            _check_federation(said)
        _check_changes(said, cluster)
        if several:
            said += _kill_adapter(process)
        # The daemon, the adapters, and a federation of several.
        parts = wait_until(lambda: _children(process) if len(_children(process)) == 2 + 2 * several else [])
    finally:
        process.send_signal(number)
        out, err = _read_rest(process)
        status = process.wait(WAIT_S)
    assert (status, _other_warnings(err)) == (0, [])
    _check_table(said + out)
    assert out.rstrip().endswith("Ended.")
    assert not any(Path(f"/proc/{part}").exists() for part in parts)


def _read_until_start(process: subprocess.Popen[str]) -> str:
    """The output up to the row of the first start."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if " started " in line:
            break
    return said


def _read_rest(process: subprocess.Popen[str]) -> tuple[str, str]:
    """The rest of the output, and all of the errors; ``communicate`` would lose what was read ahead."""
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        return process.stdout.read(), process.stderr.read()


def _check_logins(said: str, cluster: str) -> None:
    """Log in by the link repeatedly and by the printed tokens."""
    link = re.findall(r"http://\S+/dashboard/enter\?key=\S+", said)[0]
    base = link.partition("/dashboard")[0]
    for _ in range(2):
        with httpx2.Client() as browser:
            assert browser.get(link).status_code == 303
            page = browser.get(f"{base}/dashboard/{cluster}/admin")
            assert page.status_code == 200
    for name, role in (("admin", "admin"), (r"user1 \(a user\)", "user")):
        token = re.findall(rf"^  {name} +(\S+)$", said, re.MULTILINE)[0]
        answer = httpx2.post(f"{base}/dashboard/login", data={"token": token})
        assert answer.status_code == 303
        asked = httpx2.get(f"{base}/v1/clusters/{cluster}", headers={"Authorization": f"Bearer {token}"})
        assert asked.status_code == 200, role


def _check_examples(said: str, cluster: str) -> None:
    """The cluster has reservations, watts and prices; user1 has example jobs and gets mail."""
    base, token = _user_access(said)
    with httpx2.Client(base_url=f"{base}/v1/clusters/{cluster}") as client:
        reservations = client.get("/reservations").json()["reservations"]
        names = {one["name"].partition("@")[0] for one in reservations}
        assert names == {"memory", "course"}

        def example_jobs() -> dict[str, Any]:
            jobs = client.get("/jobs?user=user1&limit=1000").json()["jobs"]
            named = {job["name"]: job for job in jobs}
            return named if any(name.startswith("sweep") for name in named) else {}

        by_name = wait_until(example_jobs)
        assert by_name["check-first"]["why"] == "waiting for a user hold"
        assert by_name["evaluate"]["planned_start"] >= by_name["simulate"]["planned_end"]
        question = {"request": "nodes=1:ppn=4,walltime=10:00:00"}
        assert client.post("/what-if", json=question).json()["cost"] > 0
    with _login(base, token) as browser:
        assert wait_until(
            lambda: "to user1@demo.example" in browser.get(f"/dashboard/{cluster}/mailbox").text
        )


def _check_submissions(said: str, cluster: str) -> None:
    """A job comes from the shell by the printed command, another one from the page."""
    base, token = _user_access(said)
    job = _run_printed(r"^  export .* \\\n.*\n  JOB=\$\(echo .*\n.* demo qsub .*$", said, "; echo $JOB")
    assert re.fullmatch(rf"\d+\.{cluster}", job)
    known = wait_until(partial(_known_job, base, cluster, job))
    assert known["owner"].partition("@")[0] == "user1"
    with _login(base, token) as browser:
        path = f"/dashboard/{cluster}/submit"
        page = browser.get(path).text
        assert 'data-later="?answer=now"' in page
        assert 'id="answer"' in browser.get(path, params={"answer": "now"}).text
        fields = dict(re.findall(r'name="(csrf|request|name)" value="([^"]*)"', page))
        script = "sleep 3600"
        tried = browser.post(
            f"/dashboard/{cluster}/submit", data={**fields, "script": script, "act": "what-if"}
        )
        assert tried.status_code == 200
        sent = browser.post(
            f"/dashboard/{cluster}/submit", data={**fields, "script": script, "act": "submit"}
        )
        assert sent.status_code == 303
        job = sent.headers["location"].partition("done=")[2]
        assert wait_until(partial(_known_job, base, cluster, job))["name"] == fields["name"]
        for wrong in ("#PBS -X", "#PBS -q nowhere"):
            refused = browser.post(
                path,
                data={**fields, "request": "", "script": f"{wrong}\nsleep 1", "act": "submit"},
            )
            assert refused.status_code == 422
            assert 'role="alert"' in refused.text
    nameless = httpx2.post(f"{base}/v1/clusters/{cluster}/submissions", json={"script": "sleep 1"})
    assert nameless.status_code == 401


def _check_changes(said: str, cluster: str) -> None:
    """A user alters, holds, releases and deletes a job by commands, and no other user's; an admin may."""
    base, token = _user_access(said)
    admin = re.findall(r"^  admin +(\S+)$", said, re.MULTILINE)[0]
    job = _run_printed(r"^  export .* \\\n.*\n  JOB=\$\(echo .*\n.* demo qsub .*$", said, "; echo $JOB")

    def run(act: str, *arguments: str, token: str = token) -> tuple[int, str]:
        access = {"SCHEDD_URL": base, "SCHEDD_TOKEN": token, "SCHEDD_CLUSTER": cluster}
        with mock.patch.dict(os.environ, access), redirect_stderr(io.StringIO()) as shown:
            return change_job.run(act, arguments), shown.getvalue()

    def await_job(field: str, value: object) -> None:
        wait_until(lambda: _known_job(base, cluster, job).get(field) == value)

    def hold_job_of_other_user() -> str:
        """A job that is not held could end before it is asked for: a minute passes there in a second."""

        def find_and_hold() -> str:
            jobs = httpx2.get(f"{base}/v1/clusters/{cluster}/jobs?state=planned&limit=1000").json()["jobs"]
            others = [one for one in jobs if one["owner"].partition("@")[0] != "user1"]
            for one in reversed(others):  # the last ones start last
                if run("qhold", one["id"], token=admin)[0] == 0 and _known_job(base, cluster, one["id"]):
                    return str(one["id"])
            return ""

        return wait_until(find_and_hold)

    number = job.partition(".")[0]
    await_job("id", job)
    assert run("qhold", number) == (0, "")
    await_job("holds", "u")
    assert run("qalter", "-l", "walltime=0:07:00", number) == (0, "")
    await_job("walltime", 420)
    assert run("qrls", job) == (0, "")
    await_job("holds", "")
    assert "give NAME=VALUE" in run("qalter", "-l", "walltime", number)[1]
    other = hold_job_of_other_user()
    assert run("qdel", other) == (5, f"schedd demo qdel: job {other} is not of user1\n")
    assert run("qdel", "99999")[0] == 3
    assert run("qdel", job, token=admin) == (0, "")
    wait_until(lambda: not _known_job(base, cluster, job))


def _children(process: subprocess.Popen[str]) -> list[str]:
    return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()


def _kill_adapter(process: subprocess.Popen[str]) -> str:
    """Kill an adapter; return what the demo says until it is started again."""
    os.kill(int(_children(process)[1]), signal.SIGKILL)  # the first is the daemon
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("The adapter of "):
            break
    assert "ended: killed by SIGKILL." in said
    return said


def _user_access(said: str) -> tuple[str, str]:
    """The demo's address, and the token of user1."""
    base = re.findall(r"http://\S+/dashboard/enter\?key=\S+", said)[0].partition("/dashboard")[0]
    return base, re.findall(r"^  user1 \(a user\) +(\S+)$", said, re.MULTILINE)[0]


@contextmanager
def _login(base: str, token: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=base, timeout=WAIT_S) as browser:
        assert browser.post("/dashboard/login", data={"token": token}).status_code == 303
        yield browser


def _check_federation(said: str) -> None:
    """A job that is submitted by the printed command goes to a cluster, at the clusters' time."""
    url = re.findall(r"SCHEDD_FEDERATION=(\S+)", said)[0]
    page = re.findall(r"A federation of all clusters.*\n  (\S+)", said)[0]
    assert httpx2.get(page).status_code == 200
    job = _run_printed(r"^  export .* \\\n.*\n.* submit .*$", said)
    with httpx2.Client(base_url=f"{url}/v1/federation", timeout=WAIT_S) as client:
        client.headers["Authorization"] = f"Bearer {_user_access(said)[1]}"

        def routed() -> dict[str, Any]:
            one: dict[str, Any] = client.get(f"/jobs/{job}").json()
            return one if one["cluster"] else {}

        found = wait_until(routed)
        assert found["cluster"] in ("north", "south")
        assert found["owner"] == "user1@demo"
        assert client.get("/clusters").json()["now"] > time.time()


def _run_printed(pattern: str, said: str, then: str = "") -> str:
    """Run the printed shell command that the pattern matches, and ``then``; return what they print."""
    shell = re.findall(pattern, said, re.MULTILINE)[0] + then
    command = re.sub(r"(^| )schedd (demo|submit)", rf"\1{sys.executable} -m schedd.cli.main \2", shell)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _known_job(base: str, cluster: str, job: str) -> dict[str, Any]:
    answer = httpx2.get(f"{base}/v1/clusters/{cluster}/jobs/{job}")
    found: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
    return found


@pytest.mark.timeout(WAIT_S)
def test_demo_plays_a_log(tmp_path: Path) -> None:
    log = tmp_path / "small.swf"
    rows = [f"{i} {i} -1 60 4 -1 -1 4 120 -1 1 1 1 -1 1 -1 -1 -1" for i in range(1, 4)]
    log.write_text("; MaxProcs: 16\n" + "\n".join(rows) + "\n")
    process = demo("--log", str(log), "--speed", "100", "--exit-after", "60")
    out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, err) == (0, "")
    assert "3 jobs queued, 3 started, 3 ended." in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--log", "/nothing/here"], "/nothing/here"),
        (["--speed", "0"], "--speed 0.0: must be above 0"),
        (["--nodes", "0"], "--nodes 0: must be from 1 to 20,000"),
        (["--jobs", "200000"], "--jobs 200000: must be from 1 to 100,000"),
        (["--log", "x.swf", "--nodes", "5"], "leave out --nodes or --log"),
        (["--federation", "1"], "--federation 1: must be from 2 to 5"),
        (["--federation", "3", "--server", "openpbs"], "--federation: leave out --log and --server"),
        (["--exit-after", "-1"], "--exit-after -1.0: must be at least 0"),
    ],
)
def test_bad_arguments_are_explained(arguments: list[str], said: str) -> None:
    process = demo(*arguments)
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 2
    assert err.startswith("schedd demo: ")
    assert said in err


def test_busy_requested_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        process = demo("--port", port)
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in err


# ---- workloads and the table -------------------------------------------------------------------------


def queue_at_arrivals(steady: SteadyWorkload, jobs: int, run: float) -> list[tuple[int, float]]:
    """Number of waiting jobs and their requests at each arrival, if every job that fits is started.

    ``run`` is the factor between actual and stated run times, for a machine with less capacity than assumed.
    """
    now, room = 0.0, steady.cpus
    queue: list[tuple[int, float, float]] = []
    running: list[tuple[float, int]] = []
    found = []

    def waiting() -> tuple[int, float]:
        return len(queue), sum(one[2] for one in queue)

    for arrival in islice(steady.arrivals(waiting, lambda: now), jobs):  # noqa: B023 (called at once)
        assert arrival.at >= now
        assert arrival.order.outcome is not None
        while running and running[0][0] <= arrival.at:
            now, cpus = heapq.heappop(running)
            room = _start(queue, running, room + cpus, now)
        now = arrival.at
        queue.append(
            (requested_cores(arrival.order), run * arrival.order.outcome.runtime, core_seconds(arrival.order))
        )
        room = _start(queue, running, room, now)
        found.append(waiting())
    assert now > 2 * 86_400, "it goes on for days of the cluster"
    return found


def _start(
    queue: list[tuple[int, float, float]], running: list[tuple[float, int]], room: int, now: float
) -> int:
    for one in list(queue):  # as a planner fills gaps: large jobs wait, small ones pass them
        if one[0] <= room:
            queue.remove(one)
            room -= one[0]
            heapq.heappush(running, (now + one[1], one[0]))
    return room


@pytest.mark.parametrize("run", [0.7, 1.0, 1.5])
@pytest.mark.parametrize(("nodes", "waiting"), [(20, 60), (4, 10)])
def test_load_stays_bounded_at_any_throughput(nodes: int, waiting: int, run: float) -> None:
    steady = SteadyWorkload(nodes, 16, waiting, 1)
    found = queue_at_arrivals(steady, 3_000, run)
    lengths = [count for count, _ in found[1_000:]]
    assert waiting / 3 < sum(lengths) / len(lengths) < waiting * 3
    assert max(lengths) < waiting * 5 + 10
    ahead = [asked / steady.cpus for _, asked in found]
    assert max(ahead[1_000:]) < 2 * max(ahead[:1_000]), "nor does the plan grow, though small jobs pass"
    assert max(ahead) < 12 * 86_400


def test_workload_depends_only_on_the_seed_and_fits_the_cluster() -> None:
    steady = SteadyWorkload(4, 8, 10, 3)
    first = [
        list(islice(SteadyWorkload(4, 8, 10, 3).arrivals(lambda: (10, 0.0), lambda: 0.0), 50))
        for _ in range(2)
    ]
    assert first[0] == first[1]
    assert (len(steady.nodes), steady.cpus) == (4, 32)
    assert all(requested_cores(arrival.order) <= 32 for arrival in first[0])
    assert all("walltime" in arrival.order.resources for arrival in first[0])
    at_once = [arrival for arrival in first[0] if arrival.at == 0]
    assert len(at_once) >= 10
    assert sum(requested_cores(arrival.order) for arrival in at_once[:-10]) >= 32, (
        "the machine is full, 10 wait"
    )


def test_daemon_learns_the_run_times_of_jobs_that_ended_before_the_demo(tmp_path: Path) -> None:
    steady, log = SteadyWorkload(4, 8, 10, 3), tmp_path / "log"
    write_past_runs(steady, log, T)
    runs = steady.past_orders()
    learned = past_runs(EngineSettings().with_changes(predict=True, predict_from=str(log)), "demo", T)
    assert learned is not None
    assert learned.ends == len(runs) > 1_000, "none of them ended later"
    arrivals = [one.order for one in islice(steady.arrivals(lambda: (10, 0.0), lambda: 0.0), 50)]
    assert not any(order in runs for order in arrivals)


def test_many_waiting_jobs_are_played_at_a_speed_that_keeps_forecasts_fresh() -> None:
    assert SteadyWorkload(20, 16, 60, 1).speed(60, 2) == 60
    many, most = SteadyWorkload(1_000, 16, 800, 1), SteadyWorkload(1_000, 16, 10_000, 1)
    assert 20 <= many.speed(60, 64) < 60, "one thread makes the forecasts"
    assert many.speed(60, 0.5) == pytest.approx(many.speed(60, 64) / 2, abs=1)
    assert 1 <= most.speed(60, 64) < 5


def test_a_frozen_daemon_does_not_end_the_demo() -> None:
    """The daemon closes idle connections once it goes on, which the demo took for its end."""
    shown, calls = io.StringIO(), 0

    async def report_changes() -> None:
        nonlocal calls
        calls += 1
        if calls <= 2:
            client = mock.Mock(get=mock.AsyncMock(side_effect=httpx2.ReadError("")))
            await _query_cluster(client, "demo")

    daemon = SimpleNamespace(alive=True)
    trial = SimpleNamespace(finished=True, summary=lambda: SimpleNamespace(ended=0))
    run = DemoRun(daemon, "", mock.Mock(), mock.Mock(speed=60), "torque", DemoOutput(shown), str)  # type: ignore[arg-type]
    run._trials.append(trial)  # type: ignore[arg-type]
    reporter: Any = SimpleNamespace(report_changes=report_changes)
    asyncio.run(run._watch([reporter], [], None))
    assert calls == 3
    assert shown.getvalue().count("The demo goes on") == 1
    calls, daemon.alive = 0, False
    with pytest.raises(DemoError, match="the daemon does not answer"):
        asyncio.run(run._watch([reporter], [], None))


def test_daemon_that_ends_during_its_start_is_named() -> None:
    """Its closed connection was shown instead, as 60 lines of the client's code."""

    def hang_up(_: httpx2.Request) -> httpx2.Response:
        daemon.alive = False
        raise httpx2.ReadError("closed")

    async def wait() -> None:
        async with httpx2.AsyncClient(
            base_url="http://demo", transport=httpx2.MockTransport(hang_up)
        ) as client:
            await await_ready(client, daemon, DemoOutput(io.StringIO()))  # type: ignore[arg-type]

    daemon = SimpleNamespace(alive=True)
    with pytest.raises(DemoError, match="ended while it was getting ready"):
        asyncio.run(wait())


def test_progress_is_printed_at_intervals_and_overwritten_on_a_terminal() -> None:
    plain = io.StringIO()
    said = DemoOutput(plain)
    for _ in range(50):
        said.step("planning: 1 of 5 jobs")
    said("done")
    assert plain.getvalue() == "... planning: 1 of 5 jobs\ndone\n"
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    said = DemoOutput(terminal)
    said.step("starting")
    said("done")
    assert terminal.getvalue() == "\r\x1b[K... starting\r\x1b[Kdone\n"


def test_a_log_determines_the_size_for_its_machine() -> None:
    jobs = (TraceJob(1, 5, 100, 20, 200), TraceJob(2, 9, 50, 40, 60))
    workload = workload_from_log(Trace("small", jobs, max_procs=33), 16)
    assert [node.slots for node in workload.nodes] == [16, 16, 16]
    assert [arrival.order.resources["nodes"] for arrival in workload.arrivals] == [
        "1:ppn=16+1:ppn=4",
        "2:ppn=16+1:ppn=8",
    ]
    with pytest.raises(TraceError, match="no jobs"):
        workload_from_log(Trace("empty", ()), 16)


def test_the_table_compares_starts_with_the_first_estimate() -> None:
    table = DemoTable(tolerated=60)
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
        line = table.started(start, f"{i}.demo", ["n1"], {}, 0)[-1]
        assert ("on time", "2h00 earlier", "1m later")[i] in line
    summary = " ".join(table.summary(0))
    assert "3 jobs queued, 3 started, 0 ended." in summary
    assert "1 on time (within 1m), 1 earlier, 1 later; median difference 1m" in summary


@pytest.mark.parametrize(
    ("resources", "text"),
    [({"nodes": "2:ppn=4"}, "2:ppn=4 1h00"), ({"select": "3:ncpus=8"}, "3:ncpus=8 1h00"), ({}, "1 cpu 1h00")],
)
def test_a_started_job_without_a_row_for_its_arrival_shows_its_request(
    resources: dict[str, str], text: str
) -> None:
    assert text in DemoTable().started(T, "1.demo", ["n1"], resources, 3600)[-1]


@pytest.mark.parametrize(
    ("days", "text"), [(0, "Tue 22:13"), (5, "Sun 22:13"), (7, "21 Nov"), (14, "28 Nov")]
)
def test_a_start_after_a_week_has_its_date(days: int, text: str) -> None:
    shown = {
        "id": "1.demo",
        "owner": "ann@x",
        "resources": {},
        "walltime": 60,
        "planned_nodes": [],
        "why": "",
    }
    start = T + days * 86_400
    line = DemoTable().arrived(T, {**shown, "planned_start": start, "promised_start": start})[-1]
    assert line.split("1m")[1].split() == text.split() * 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (-59, "59s"), (90, "2m"), (3599, "1h00"), (400_000, "111h")],
)
def test_durations_are_written_shortly(seconds: int, text: str) -> None:
    assert format_span(seconds) == text


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        (("--nodes", "1000", "--jobs", "800", "--speed", "10"), 1_800),  # at 1, 27 jobs an hour come
        (("--nodes", "1000", "--jobs", "800"), 900),  # at the pace that the demo chooses
        (("--nodes", "1000", "--jobs", "800", "--speed", "20"), 900),
        (("--nodes", "1000", "--jobs", "800", "--speed", "60"), 900),
        (("--nodes", "100", "--jobs", "120", "--speed", "30"), 1_800),  # 900 s at 20: 71 to 83 forecasts
        (("--speed", "60"), 600),
    ],
)
def test_forecasts_of_a_running_demo_come_true(
    options: tuple[str, ...], seconds: int, tmp_path: Path
) -> None:
    """About half of the jobs start by P50 and nine tenths by P90, also of the forecasts at half of the wait
    and an hour ahead, where enough are decided; no promise is broken.
    """
    text = tmp_path / "output"
    with text.open("w") as output:
        words = ("schedd.cli.main", "demo", "--port", "0", *options)
        process = start_program(*words, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: "  admin " in text.read_text() or process.poll() is not None)
        said = text.read_text()
        url, token = re.search(r"http://[\d.:]+", said), re.search(r"^  admin +(\S+)$", said, re.MULTILINE)
        assert url is not None
        assert token is not None
        time.sleep(seconds)
        bearer = {"Authorization": f"Bearer {token[1]}"}
        found = httpx2.get(f"{url[0]}/v1/clusters/demo/accuracy", headers=bearer, timeout=WAIT_S).json()
        cluster = httpx2.get(f"{url[0]}/v1/clusters/demo", headers=bearer, timeout=WAIT_S).json()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(WAIT_S)
    figures = {one["kind"]: one["figures"] for one in found["expected"] if one["lead"] is None}
    assert figures["submission"]["count"] >= 100
    covered = {
        kind: Coverage(one["p50_coverage"], one["count"], one["p90_coverage"], one["count"])
        for kind, one in figures.items()
        if one["count"] >= 100
    }
    assert {kind: one for kind, one in covered.items() if not (one.p50_holds and one.p90_holds)} == {}
    assert (cluster["breaches"], cluster["alerts"]) == (0, 0)
