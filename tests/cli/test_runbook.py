"""Every symptom of docs/administrators/runbook.md, with an emulated server, the real adapter and daemon."""

import asyncio
import html
import os
import re
import resource
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from schedd.wire.adapter_troubles import NO_CONTACT
from server_adapter.emulator import JobState, NodeSpec
from server_adapter.emulator.lifecycle import delete, start
from tests.conftest import ROOT
from tests.server_adapter.bridge.processes import ADMIN, MEMORY, ProcessHarness
from tests.store.forked_processes import start_program
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

Said = tuple[int, str]
ELSEWHERE = {
    "Mail to users fails": ("tests/features/notices/test_notices.py", "alert_about_a_relay"),
    "Fail over by hand": ("tests/store/test_standby.py", "killed"),
}
"""Symptoms that need two daemons on PostgreSQL, and the tests that walk them."""


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProcessHarness]:
    folder = tmp_path_factory.mktemp("site")
    nodes = [NodeSpec(f"node{number}", 8, (), MEMORY) for number in range(1, 5)]
    made = ProcessHarness(folder, "6.1", nodes=nodes, silence=5, alone_starts=3)
    async with made.running(keep_completed="3600"):
        made.adapter.start()
        await wait_until_normal(made)
        yield made


async def run_command(house: ProcessHarness, *args: str) -> Said:
    """Run a command; return its exit status and both outputs."""
    environment = {
        **os.environ,
        "SCHEDD_URL": house.urls[0],
        "SCHEDD_TOKEN": ADMIN,
        "SCHEDD_CONFIG": str(house.directory / "schedd0.toml"),
        "XDG_CONFIG_HOME": str(house.directory),
        "COLUMNS": "200",
    }
    process = start_program(
        *("schedd.cli.main", *args),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    out, _ = await asyncio.to_thread(process.communicate)
    return process.returncode, out


async def wait_for_output(house: ProcessHarness, right: Callable[[Said], bool], *args: str) -> str:
    """Repeat a command until its output satisfies ``right``; return the output."""
    said: Said = (0, "")
    for _ in range(int(WAIT_S)):
        said = await run_command(house, *args)
        if right(said):
            return said[1]
        await asyncio.sleep(0.5)
    raise AssertionError(f"schedd {' '.join(args)}: {said}\n{house.adapter.log.read_text()[-2000:]}")


async def wait_until_normal(house: ProcessHarness) -> None:
    """Wait for the normal state: every component is present, and jobs are started."""
    shown: dict[str, object] = {}
    for _ in range(2 * int(WAIT_S)):
        shown = await house.request("")
        if shown["heard"] is not None and not (shown["stale"] or shown["halted"]):
            return
        await asyncio.sleep(0.5)
    raise AssertionError(shown)


async def wait_for_alert(house: ProcessHarness, kind: str) -> None:
    """Wait until an alert of this kind is open; the engine's environment is checked each second."""
    for _ in range(int(WAIT_S)):
        if kind in [one["kind"] for one in (await house.request("/alerts"))["alerts"]]:
            return
        await asyncio.sleep(0.5)
    raise AssertionError(f"no alert {kind}")


def submit_short_job(house: ProcessHarness, **resources: str) -> str:
    return house.server.submit(resources={"walltime": "00:10:00", **resources}, runtime=1.0)


async def test_nothing_starts(house: ProcessHarness) -> None:
    code, said = await run_command(house, "pause", "--reason", "the cooling failed")
    assert (code, "no jobs are started" in said) == (0, True)
    job = submit_short_job(house, nodes="1:ppn=1")
    said = await wait_for_output(house, lambda found: job.partition(".")[0] in found[1], "showq")
    assert "no jobs are started: paused: the cooling failed" in said
    assert house.server.job(job).state is JobState.QUEUED
    assert "the cooling failed" in (await run_command(house, "doctor", "--adapter", "/none"))[1]
    assert (await run_command(house, "resume"))[0] == 0
    await house.server.until(lambda: house.server.job(job).state is JobState.COMPLETE, WAIT_S)
    house.server.set_scheduling(False)
    await wait_for_output(
        house, lambda found: "no jobs are started: the server's scheduling is off" in found[1], "showq"
    )
    code, said = await run_command(house, "doctor", "--adapter", "/none")
    assert (code, "qmgr -c 'set server scheduling = True'" in said) == (2, True)
    house.server.set_scheduling(True)
    await wait_until_normal(house)


async def test_one_job_does_not_start(house: ProcessHarness) -> None:
    job = submit_short_job(house, nodes="1:ppn=4", mem="999gb").partition(".")[0]
    await wait_for_output(house, lambda found: "never here: " in found[1], "checkjob", job)
    _, said = await run_command(house, "showstart", job, "-l", "nodes=1:ppn=4,mem=1gb")
    assert "altered to" in said


async def test_the_daemon_is_down(house: ProcessHarness) -> None:
    house.daemon.kill()
    code, said = await run_command(house, "showq")
    assert (code, "no daemon answers" in said) == (4, True)
    assert (await run_command(house, "doctor", "--adapter", "/none"))[0] == 2
    house.daemon.start()
    await house.ready()
    await wait_until_normal(house)


async def test_the_adapter_is_down(house: ProcessHarness) -> None:
    house.adapter.kill()
    said = await wait_for_output(house, lambda found: f"{NO_CONTACT} since" in found[1], "showq")
    assert f"no jobs are started, and the plan may be out of date: {NO_CONTACT} since" in said
    code, said = await run_command(house, "doctor", "--adapter", "/none")
    assert (code, "systemctl restart pbs-adapter" in said) == (2, True)
    await wait_for_alert(house, "adapter")
    house.adapter.start()
    await wait_until_normal(house)
    await wait_for_output(
        house, lambda found: "no contact" not in found[1], "doctor", "--quiet", "--adapter", "/none"
    )


def metric(page: str, name: str) -> float:
    (value,) = re.findall(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
    return float(value)


async def collect_reports(house: ProcessHarness, job: str) -> dict[str, Any]:
    """Return the reports about the cluster: API, health, metrics, users' commands, dashboard pages in lower
    case.
    """
    headers = {"Authorization": f"Bearer {ADMIN}"}
    async with httpx2.AsyncClient(base_url=house.urls[0], timeout=WAIT_S) as client:
        cluster = (await client.get("/v1/clusters/main", headers=headers)).json()
        alerts = (await client.get("/v1/clusters/main/alerts", headers=headers)).json()["alerts"]
        health = await client.get("/readyz", headers=headers)
        numbers = (await client.get("/metrics", headers=headers)).text
        await client.post("/dashboard/login", data={"token": ADMIN})
        page = await client.get("/dashboard/main/queue", headers={"Accept": "text/html"})
        admin = await client.get("/dashboard/main/admin", headers={"Accept": "text/html"})
    said = [await run_command(house, *args) for args in (("showq",), ("showstart", job), ("checkjob", job))]
    return {
        "stale": cluster["stale"],
        "halted": cluster["halted"],
        "kinds": sorted(one["kind"] for one in alerts),
        "ready": health.status_code,
        "metrics": {
            name: metric(numbers, f'schedd_{name}{{cluster="main"}}') for name in ("stale", "halted")
        },
        "raised": {
            kind: metric(numbers, f'schedd_alerts_total{{cluster="main",kind="{kind}"}}')
            for kind in ("adapter", "by_hand", "foreign")
        },
        "commands": [text for _, text in said],
        "page": html.unescape(page.text).casefold(),
        "admin": html.unescape(admin.text).casefold(),
    }


async def test_a_dead_adapter_is_reported_everywhere_until_its_return(house: ProcessHarness) -> None:
    """kill -9: the plan is in the past before any job could be started."""
    # It runs for long enough that a busy machine has looked at everything before it ends.
    fills = [house.server.submit(resources={"walltime": "00:00:25", "nodes": "4:ppn=8"}, runtime=20.0)]
    job = house.server.submit(resources={"walltime": "00:00:30", "nodes": "4:ppn=8"}, runtime=1.0)
    name = job.partition(".")[0]
    await wait_for_output(house, lambda found: "no job" not in found[1], "checkjob", name)
    await house.server.until(lambda: house.server.job(fills[0]).state is JobState.RUNNING, WAIT_S)
    before = await collect_reports(house, name)
    assert (before["stale"], before["ready"], before["metrics"]) == ("", 200, {"stale": 0, "halted": 0})
    house.adapter.kill()
    words = f"{NO_CONTACT} since"
    await wait_for_output(house, lambda found: words in found[1], "showq")
    await wait_for_alert(house, "adapter")
    said = await collect_reports(house, name)
    assert (said["ready"], said["metrics"]) == (503, {"stale": 1, "halted": 1})
    assert "adapter" in said["kinds"]
    assert said["raised"]["adapter"] == before["raised"]["adapter"] + 1
    for where in ("stale", "halted", "page", "admin", *range(3)):
        text = said["commands"][where] if isinstance(where, int) else said[where]
        assert words in str(text), where
        assert not re.search(r"(?<![\d-])-\d\d:\d\d:\d\d", str(text)), where
    await wait_for_output(house, lambda found: " due " in found[1] or "overdue" in found[1], "showq")
    house.adapter.start()
    await wait_until_normal(house)
    after = await collect_reports(house, name)
    assert (after["stale"], after["ready"], after["metrics"]) == ("", 200, {"stale": 0, "halted": 0})
    assert all(words not in text for text in (*after["commands"], after["page"]))
    await house.server.until(lambda: house.server.job(job).state is JobState.COMPLETE, WAIT_S)


async def test_several_qruns_halt_dispatch_and_are_reported_everywhere(house: ProcessHarness) -> None:
    """Four nodes are full; a job behind is started by hand, then three more."""
    blocks = [submit_long_job(house, "1:ppn=5") for _ in range(4)]
    await house.server.until(
        lambda: all(house.server.job(one).state is JobState.RUNNING for one in blocks), WAIT_S
    )
    waiting = [submit_long_job(house, "1:ppn=4") for _ in range(4)]
    probe = waiting[-1].partition(".")[0]
    await wait_for_output(house, lambda found: "no job" not in found[1], "checkjob", probe)
    start_by_hand(house, waiting[0], "node1")
    await wait_for_output(house, lambda found: "was started by" in found[1], "showq")
    said = await collect_reports(house, probe)
    assert (said["halted"], said["ready"], said["raised"]["foreign"]) == ("", 200, 0)
    assert said["raised"]["by_hand"] == 1
    small = submit_short_job(house, nodes="1:ppn=1")  # and what we start goes on
    await house.server.until(lambda: house.server.job(small).state is JobState.COMPLETE, WAIT_S)
    for job, node in zip(waiting[1:3], ("node2", "node3"), strict=True):
        start_by_hand(house, job, node)
    words = "stopped until somebody resumes"
    await wait_for_output(house, lambda found: words in found[1], "showq")
    said = await collect_reports(house, probe)
    assert (said["ready"], said["metrics"]["halted"]) == (503, 1)
    assert "foreign" in said["kinds"]
    assert said["raised"]["foreign"] == 1
    assert [words in text for text in (*said["commands"], said["page"], said["halted"])] == [True] * 5
    assert (await run_command(house, "resume"))[0] == 0
    for job in (*blocks, *waiting):
        delete(house.server.cluster, house.server.job(job))
    await wait_until_normal(house)


def submit_long_job(house: ProcessHarness, nodes: str) -> str:
    return house.server.submit(resources={"walltime": "01:00:00", "nodes": nodes}, runtime=3000.0)


def start_by_hand(house: ProcessHarness, job: str, node: str) -> None:
    """Start a job as qrun does, without a decision of the daemon."""
    start(house.server.cluster, house.server.job(job), f"{node}:ppn=3", synchronous=True)


async def test_the_server_is_down(house: ProcessHarness) -> None:
    down = asyncio.create_task(house.server.restart(down=25))
    said = await wait_for_output(
        house, lambda found: "the adapter has not reached the server since" in found[1], "showq"
    )
    assert "no jobs are started" in said
    await down
    await wait_until_normal(house)


async def test_the_disk_is_full_or_the_database_is_down(house: ProcessHarness) -> None:
    process = house.daemon.pid
    before = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        submit_short_job(house, nodes="1:ppn=1")
        said = await wait_for_output(house, lambda found: "the database is unavailable" in found[1], "showq")
        assert "no jobs are started" in said
        code, said = await run_command(house, "pause", "--reason", "the disk is full")
        assert (code, "was not paused: the database is unavailable" in said) == (4, True)
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, before)
    await wait_until_normal(house)
    assert (await house.request(""))["paused"] == ""


async def test_a_node_flaps_or_jobs_fail_on_it(house: ProcessHarness) -> None:
    for change in (house.server.kill_node, house.server.revive_node):
        change("node4")
        state = "down" if change == house.server.kill_node else "up"
        nodes: dict[str, str] = {}
        for _ in range(int(WAIT_S)):
            nodes = {one["name"]: one["state"] for one in (await house.request("/nodes"))["nodes"]}
            if nodes["node4"] == state:
                break
            await asyncio.sleep(0.5)
        assert nodes["node4"] == state
    said = await wait_for_output(
        house, lambda found: found[1].count(" up ") >= 2, "history", "--node", "node4"
    )
    assert " down " in said
    assert (await run_command(house, "hold", "-w", "node4", "--reason", "flaps"))[0] == 0
    assert (await run_command(house, "release", "-w", "node4"))[0] == 0


async def test_a_promise_was_missed(house: ProcessHarness) -> None:
    job = submit_short_job(house, nodes="1:ppn=1")
    await house.server.until(lambda: house.server.job(job).state is JobState.COMPLETE, WAIT_S)
    said = await wait_for_output(house, lambda found: "ended" in found[1], "history", job)
    assert re.search(r"promise\s+at the latest \d", said)
    assert re.search(r"decision d\w+\s+start ordered", said)


async def test_the_plan_looks_wrong(house: ProcessHarness) -> None:
    for args in (("showplan",), ("audit",), ("optimise",), ("policy", "show")):
        code, said = await run_command(house, *args)
        assert (code, bool(said)) == (0, True), (args, said)


async def test_upgrade_and_back(house: ProcessHarness) -> None:
    code, said = await run_command(house, "migrate", "current")
    assert code == 0
    found = re.search(r"version (\w+); this program needs (\w+)", said)
    assert found is not None
    assert found[1] == found[2]
    code, said = await run_command(house, "migrate", "downgrade", "--to", "base")
    assert (code, "a daemon uses it; stop that" in said) == (1, True)


def test_every_symptom_has_a_test() -> None:
    page = (ROOT / "docs" / "administrators" / "runbook.md").read_text()
    walked = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    for symptom in re.findall(r"^## (.*)$", page, re.MULTILINE):
        if symptom in ELSEWHERE:
            path, words = ELSEWHERE[symptom]
            assert re.search(rf"def test_\w*{words}", (ROOT / Path(path)).read_text())
        else:
            assert re.sub(r"\W+", "_", symptom.lower()) in walked, symptom
