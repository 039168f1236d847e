"""An emulated TORQUE, the real adapter and the real daemon: partitions, QOS and deadlines are obeyed and
shown.
"""

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import httpx2
import pytest

from schedd.cli.main import main
from server_adapter.emulator import NodeSpec
from tests.server_adapter.bridge.processes import ADMIN, MEMORY, ProcessHarness
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

POLICY = {
    "qos": {"default": "normal", "levels": {"normal": {}, "gold": {"priority": 100}}},
    "partitions": {
        "sets": {
            "big": {"properties": ["ib"], "charge": 2},
            "small": {"nodes": ["node3"]},
            "mine": {"nodes": ["node1"], "users": ["bob"]},
        }
    },
    "node_choice": {"partitions": {"big": {"prefer": {"node2": 1}}}},
}


async def view_of(house: ProcessHarness, path: str, true: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with asyncio.timeout(WAIT_S):
        while not (found and true(found)):
            await asyncio.sleep(0.2)
            with suppress(HTTPError):  # the job is not known yet
                found = await house.request(path)
    return found


def _nodes(job: dict[str, Any]) -> list[str]:
    return [share["node"] for share in job["planned_nodes"]]


def _read(url: str) -> str:
    with urlopen(Request(url, headers={"Authorization": f"Bearer {ADMIN}"}), timeout=WAIT_S) as answer:
        text: str = answer.read().decode()
        return text


def _read_page(url: str, page: str) -> str:
    with httpx2.Client(base_url=f"{url}/dashboard", follow_redirects=True, timeout=WAIT_S) as browser:
        browser.post("/login", data={"token": ADMIN})
        answer = browser.get(f"/main/{page}", headers={"Accept": "text/html"})
        assert answer.status_code == 200, answer.text
        return answer.text


async def test_partitions_qos_and_deadlines_are_obeyed_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [NodeSpec(f"node{i}", 8, ("ib",) if i < 3 else (), MEMORY) for i in (1, 2, 3)]
    house = ProcessHarness(tmp_path, "6.1", nodes=nodes, interval=0.3)
    async with house.server:
        house.server.cluster.attributes["scheduling"] = "True"
        house.configure()
        try:
            house.daemon.start()
            await house.ready()
            await house.request("/policy", "PUT", POLICY)
            house.adapter.start()

            def submit(**more: Any) -> str:
                resources = {"nodes": "1:ppn=8", "walltime": "01:00:00", **more.pop("resources", {})}
                return str(house.server.submit(resources=resources, runtime=600.0, **more))

            big, second = submit(extra={"x": "PARTITION:big"}), submit(extra={"x": "PARTITION:big:small"})
            small = submit(resources={"partition": "small", "qos": "gold"})
            closed = submit(resources={"partition": "mine"})
            unknown = submit(extra={"x": "QOS:platinum;PARTITION:small"})
            found = [
                await view_of(house, f"/jobs/{job}", lambda one: one["job_state"] == "R")
                for job in (big, second)
            ]
            assert [_nodes(one) for one in found] == [["node2"], ["node1"]]
            running = await view_of(house, f"/jobs/{small}", lambda one: one["job_state"] == "R")
            assert _nodes(running) == ["node3"]
            refused = await view_of(house, f"/jobs/{closed}", lambda one: one["state"] == "never")
            assert "partition mine is not open to the job: name big or small" in str(refused)

            assert (found[0]["labels"]["qos"], running["labels"]["qos"]) == ("normal", "gold")
            refused = await view_of(house, f"/jobs/{unknown}", lambda one: one["state"] == "never")
            assert (
                "QOS platinum, which does not exist here: qalter -W x=QOS:NAME with one of normal, gold"
                in str(refused)
            )

            view = await view_of(house, "/partitions", lambda one: one["partitions"])
            rows = {one["name"]: one for one in view["partitions"]}
            assert (rows["big"]["nodes"], rows["big"]["cpus"], rows["big"]["running"]) == (2, 16, 2)
            assert (rows["big"]["free_cpus"], rows["small"]["free_cpus"], rows["big"]["charge"]) == (0, 0, 2)
            question = {"request": "nodes=1:ppn=8,walltime=600,partition=big"}
            answer = await house.request("/what-if", "POST", question)
            assert {share["node"] for share in answer["planned_nodes"]} <= {"node1", "node2"}
            assert json.dumps(answer["planned_start"]) != "null"

            metrics = await asyncio.to_thread(_read, f"{house.urls[0]}/metrics")
            assert 'schedd_partition_free_cpus{cluster="main",partition="small"} 0.0' in metrics
            assert 'schedd_partition_jobs{cluster="main",partition="big",state="running"} 2.0' in metrics
            page = await asyncio.to_thread(_read_page, house.urls[0], "partitions")
            assert "outside all partitions" not in page, "each node is in one"
            assert "0 of 16" in page
            page = await asyncio.to_thread(_read_page, house.urls[0], f"jobs/{small}")
            assert "<dt>QOS</dt><dd>gold</dd>" in page
            labels = 'cluster="main",qos="gold",queue="batch"'
            assert f"schedd_job_wait_seconds_count{{{labels}}} 1.0" in metrics
            monkeypatch.setenv("SCHEDD_TOKEN", ADMIN)
            assert await asyncio.to_thread(main, ["partitions", "--url", house.urls[0]]) == 0
            asked = ["showstart", "1@8@0:10:00", "--partition", "small:big", "--url", house.urls[0], "--json"]
            table = [line.split() for line in capsys.readouterr().out.splitlines()]
            assert ["big", "2", "2", "16", "0", "0", "0", "2", "0", "2"] in table
            assert await asyncio.to_thread(main, asked) == 0
            assert json.loads(capsys.readouterr().out)["planned_nodes"][0]["node"] in (
                "node1",
                "node2",
                "node3",
            )
            kept = submit(extra={"x": "DEADLINE:24:00:00"})
            late = submit(extra={"x": "DEADLINE:1:10:00"})
            likely = submit(extra={"x": "DEADLINE:24:00:00@90%"})
            accepted = await view_of(house, f"/jobs/{kept}", lambda one: one["deadline_state"] == "accepted")
            assert accepted["deadline"] == accepted["submitted"] + 86_400
            offered = await view_of(house, f"/jobs/{late}", lambda one: one["earliest_deadline"])
            assert offered["deadline_state"] == "wished"
            async with asyncio.timeout(WAIT_S):
                for job, words in (
                    (kept, "deadline accepted"),
                    (late, "deadline refused"),
                    (likely, "deadline accepted at 90 % (9"),
                ):
                    while words not in house.server.job(job).attributes.get("comment", ""):
                        await asyncio.sleep(0.2)
            metrics = await asyncio.to_thread(_read, f"{house.urls[0]}/metrics")
            assert 'schedd_deadlines_total{cluster="main",outcome="accepted"} 1.0' in metrics
            assert 'schedd_deadline_forecasts_total{cluster="main",outcome="accepted"} 1.0' in metrics
            forecast = await house.request(f"/jobs/{likely}")
            assert (forecast["deadline_state"], forecast["deadline_required"]) == ("accepted", 0.9)
            assert 0.9 <= forecast["deadline_probability"] < 1
            page = await asyncio.to_thread(_read_page, house.urls[0], f"jobs/{likely}")
            assert "accepted at 90 % (9" in page
            page = await asyncio.to_thread(_read_page, house.urls[0], f"jobs/{kept}")
            assert re.search(r'<p id="deadline">Deadline .*: accepted\.</p>', page)
            for command, said in (
                (["showq", "--qos", "gold"], "batch/gold"),
                (["checkjob", small], "QOS gold"),
                (["checkjob", likely], "is accepted at 90 % (9"),
                (["checkjob", kept], "is accepted: only causes that may break a promise delay it"),
                (["showstart", late], "is refused; the earliest that can be kept is"),
                (["showq"], "DEADLINE"),
                (
                    ["showstart", "1@8@0:10:00", "--qos", "platinum"],
                    "QOS platinum, which does not exist here",
                ),
            ):
                await asyncio.to_thread(main, [*command, "--url", house.urls[0]])
                shown = capsys.readouterr().out
                assert said in " ".join(shown.split()), shown
        finally:
            house.adapter.kill()
            house.daemon.kill()
