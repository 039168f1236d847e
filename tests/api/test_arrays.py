"""Job arrays over HTTP: states of their jobs, first and last ends, and ended jobs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.cli.main import main
from schedd.engine import EngineSettings
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.clusters import Clusters
from schedd.service.settings.daemon import StoreSettings
from tests.api.conftest import EVENTS, token
from tests.api.served_app import serving
from tests.api.test_responses import MAIN, get
from tests.service.planner_harness import StillClock, T
from tests.waits import wait_until


def task(index: int, walltime: int = 3_600, **more: Any) -> dict[str, Any]:
    job = {
        "id": f"7[{index}].server",
        "owner": "ann@login",
        "queue": "batch",
        "submitted": T,
        "version": "1",
        "resources": {"nodes": "1:ppn=4", "walltime": str(walltime)},
        "array": "7[].server",
    }
    return {"type": "job_queued", "id": f"a:{index}", "time": T, "job": {**job, **more}}


TASKS = [*EVENTS[:2], *(task(index) for index in range(4))]


def send(client: TestClient, events: list[dict[str, Any]]) -> None:
    answer = client.post(f"{MAIN}/events", json={"events": events})
    assert answer.status_code == 200, answer.text


def test_an_array_is_summarised_from_the_plan(client: TestClient) -> None:
    send(client, TASKS)
    found = get(client, "/arrays/7")
    assert (found["array"], found["owner"], found["submitted"]) == ("7[].server", "ann@login", T)
    assert found["planned"] + found["running"] == 4
    assert found["next_job"] in {f"7[{index}].server" for index in range(4)}
    assert (found["first_end"], found["last_end"]) == (T + 3_600, T + 7_200)
    assert (found["stretch_s"], found["stretch"]) == (3_600, 0.5)
    for name in ("7[]", "7[].server", "7.server"):
        assert get(client, f"/arrays/{name}") == found
    send(client, [task(9, holds="u", job_state="H")])
    held = get(client, "/arrays/7")
    assert (held["waiting"], held["last_end"], held["stretch"]) == (1, None, None)
    assert held["first_end"] == T + 3_600


def test_unknown_and_hidden_arrays_do_not_exist(client: TestClient) -> None:
    send(client, [*TASKS, task(0, id="8.server", array="")])
    for name in ("8", "9[]", "7[].elsewhere"):
        answer = client.get(f"{MAIN}/arrays/{name}")
        assert (answer.status_code, f"no job array {name}" in answer.text) == (404, True)
    assert client.get(f"{MAIN}/arrays/7", headers={"Authorization": "Bearer no"}).status_code == 401


def test_ended_jobs_count_as_recorded_in_the_database(the_app: FastAPI, tmp_path: Path) -> None:
    kept = DaemonStore(StoreSettings(url=f"sqlite:///{tmp_path}/schedd.sqlite"))
    clusters = Clusters({"main": EngineSettings()}, StillClock(), durable=kept)
    clusters.start(warm=False)
    the_app.state.clusters = clusters
    with TestClient(the_app, headers={"Authorization": f"Bearer {token('admin')}"}) as client:
        wait_until(lambda: client.get("/leadz").status_code == 200)
        send(client, [*TASKS, task(0, id="71[0].server", array="71[].server")])
        share = {"node": "n1", "cpus": 4}
        for number, (name, status) in enumerate(
            (("7[0].server", 0), ("7[1].server", 1), ("71[0].server", 0))
        ):
            common: dict[str, Any] = {"job_id": name, "time": T + 100 * number}
            send(client, [{"type": "job_started", "id": f"s:{name}", "shares": [share], **common}])
            common["time"] += 50
            send(client, [{"type": "job_ended", "id": f"e:{name}", "exit_status": status, **common}])
        send(client, [{"type": "job_deleted", "id": "d", "time": T + 300, "job_id": "7[3].server"}])
        _record_history(kept)
        found = get(client, "/arrays/7")
        assert (found["ended"], found["failed"], found["deleted"]) == (2, 1, 1)
        assert found["first_end"] == T + 50
        assert found["planned"] + found["running"] == 1
        send(client, [{"type": "job_deleted", "id": "d2", "time": T + 400, "job_id": "7[2].server"}])
        _record_history(kept)
        over = get(client, "/arrays/7[]")
        assert (over["first_end"], over["last_end"], over["stretch_s"]) == (T + 50, T + 150, 100)
        assert over["stretch"] == pytest.approx(100 / 150)
    clusters.stop()


def _record_history(kept: DaemonStore) -> None:
    """Record the history, as the daemon does every few minutes."""
    cluster = kept.store.find_cluster("main")
    assert cluster is not None
    for _ in kept.store.record_history(cluster):
        pass


@pytest.fixture
def shell(the_app: FastAPI, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    clusters = Clusters({"main": EngineSettings(publish_starts=False)}, StillClock())
    clusters.start(warm=False)
    the_app.state.clusters = clusters
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("SCHEDD_TOKEN", token("admin"))
    with serving(the_app, clusters) as url:
        monkeypatch.setenv("SCHEDD_URL", url)
        send(TestClient(the_app, headers={"Authorization": f"Bearer {token('admin')}"}), TASKS)
        yield
    clusters.stop()


@pytest.mark.usefixtures("shell")
def test_checkjob_shows_an_array(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkjob", "7[]"]) == 0
    shown = capsys.readouterr().out
    assert "array 7[].server: ann@login" in shown
    assert "01:00:00 from the first end to the last, 50.0 % of its time in the system" in " ".join(
        shown.split()
    )
    for named in (["showstart", "7[]"], ["showstart", "7"], ["checkjob", "7.server"]):
        assert main(named) == 0
        assert capsys.readouterr().out == shown
    assert main(["showstart", "8"]) == 3
    assert "has no job 8" in capsys.readouterr().err
    assert main(["showstart", "8[]"]) == 3
    assert "no job array 8[]" in capsys.readouterr().err
    start = next(line for line in shown.splitlines() if line.startswith("next start"))
    assert "lanned" in start
    assert re.search(r": 7\[\d\]\.server$", start)
    assert re.search(r"^all done +by .*, at full walltimes$", shown, re.MULTILINE)
    assert main(["showq"]) == 0
    queue = capsys.readouterr().out
    assert len(re.findall(r"^7\[\]\.server x2 ", queue, re.MULTILINE)) == 2, (
        "running or starting, and planned"
    )
    assert "4 jobs: " in queue
    assert main(["showq", "--subjobs"]) == 0
    assert len(re.findall(r"^7\[\d\]\.server ", capsys.readouterr().out, re.MULTILINE)) == 4
    assert main(["checkjob", "9[]"]) == 3
    assert "knows no job array 9[]" in capsys.readouterr().err
