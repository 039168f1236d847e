"""``schedd serve`` as a process: real sockets, real signals."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from schedd.store.database import Database
from tests.conftest import ROOT
from tests.store.forked_processes import run_program, start_program
from tests.waits import WAIT_S

TOKEN = "a-token-for-the-tests-0123456789"
MAIN = "/v1/clusters/main"


@dataclass
class ServedDaemon:
    """A daemon, and a client with the token of an admin."""

    process: subprocess.Popen[str]
    url: str
    client: httpx2.Client
    log: Path

    def events(self, *events: dict[str, Any]) -> dict[str, Any]:
        answer = self.client.post(f"{MAIN}/events", json={"events": list(events)})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        answer = self.client.get(f"{MAIN}{path}", params=query)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)


def write_configuration(folder: Path, more: str = "") -> Path:
    tokens = folder / "tokens"
    tokens.write_text(f"admin tester {TOKEN}\n")
    tokens.chmod(0o600)
    path = folder / "schedd.toml"
    path.write_text(
        f'[server]\nport = 0\n[store]\nurl = "memory"\n[auth]\ntoken_file = "{tokens}"\n'
        f"[clusters.main]\n{more}"
    )
    return path


def start_daemon(folder: Path, path: Path | None = None, **environment: str) -> ServedDaemon:
    log = folder / "log"
    path = path or write_configuration(folder)
    with log.open("w") as file:
        process = start_program(
            *("schedd.cli.main", "serve", "--config", str(path)),
            stderr=file,
            env={**os.environ, **environment},
        )
    url = _wait_until(process, lambda: _read_url(log))
    client = httpx2.Client(
        base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=WAIT_S, trust_env=False
    )
    return ServedDaemon(process, url, client, log)


def _read_url(log: Path) -> str:
    found = re.search(r'"url": "(https?://[^"]+)"', log.read_text())
    return found[1] if found else ""


def _wait_until(process: subprocess.Popen[str], ready: Any) -> Any:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        found = ready()
        if found:
            return found
        assert process.poll() is None, "the daemon ended"
        time.sleep(0.05)
    raise AssertionError("it took too long")


def is_ready(served: ServedDaemon) -> bool:
    return served.client.get("/readyz").status_code == 200


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedDaemon]:
    found = start_daemon(tmp_path)
    try:
        _wait_until(found.process, lambda: is_ready(found))
        yield found
    finally:
        found.client.close()
        found.process.kill()
        found.process.wait()


def node(number: int, now: int) -> dict[str, Any]:
    facts = {"name": f"n{number}", "cpus": 4, "mem": 8 << 20}
    return {"type": "node_changed", "id": f"n:{number}", "time": now, "node": facts}


def job(number: int, now: int) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "id": f"{number}.s",
        "owner": "ann@x",
        "queue": "batch",
        "submitted": now,
        "version": "1",
    }
    facts["resources"] = {"nodes": "1:ppn=4", "walltime": "600"}
    return {"type": "job_queued", "id": f"j:{number}", "time": now, "job": facts}


def test_events_lead_to_decisions_and_sigterm_stops_cleanly(served: ServedDaemon) -> None:
    now = int(time.time())
    taken = served.events(node(1, now), job(1, now), job(2, now))
    assert taken["accepted"] == 3
    assert served.events(job(1, now))["duplicates"] == ["j:1"]

    decisions = served.get("/decisions", wait=10)["decisions"]
    run = next(item for item in decisions if item["type"] == "run")
    assert (run["job_id"], run["shares"][0]["node"]) == ("1.s", "n1")
    served.events(
        {"type": "run_accepted", "id": "o:1", "time": now, "decision_id": run["id"], "job_id": "1.s"},
        {"type": "job_started", "id": "o:2", "time": now, "job_id": "1.s", "shares": run["shares"]},
    )
    assert served.get("/jobs/1.s")["state"] == "running"
    second = served.get("/jobs/2.s")
    assert second["planned_start"] >= now + 600
    asked = served.client.post(f"{MAIN}/what-if", json={"request": "nodes=1:ppn=4,walltime=60"})
    assert asked.json()["planned_start"] >= second["planned_end"]

    served.events({"type": "job_ended", "id": "o:3", "time": now, "job_id": "1.s"})
    after = [
        item["job_id"] for item in served.get("/decisions", wait=10)["decisions"] if item["type"] == "run"
    ]
    assert after == ["2.s"]

    assert served.stop() == 0
    lines = [json.loads(line) for line in served.log.read_text().splitlines()]
    said = [line["event"] for line in lines if "stimulus" not in line]
    assert said == ["listening", "ready", "stopping", "stopped"]
    runs = [(line["job"], line["stimulus"]) for line in lines if line["event"] == "a job is to be started"]
    assert runs == [("1.s", "n:1"), ("2.s", "o:3")]  # the first of their batches
    assert TOKEN not in served.log.read_text()


def test_long_poll_ends_with_a_decision_or_at_shutdown(served: ServedDaemon) -> None:
    now = int(time.time())
    found: list[dict[str, Any]] = []

    def poll(after: str) -> None:
        with httpx2.Client(
            base_url=served.url, headers=dict(served.client.headers), timeout=WAIT_S, trust_env=False
        ) as client:
            found.append(client.get(f"{MAIN}/decisions", params={"wait": 60, "after": after}).json())

    waiting = threading.Thread(target=poll, args=("",))
    waiting.start()
    served.events(node(1, now), job(1, now))
    waiting.join(WAIT_S)
    assert found[0]["decisions"][0]["type"] == "run"

    waiting = threading.Thread(target=poll, args=(found[0]["last"],))
    time.sleep(0.1)  # so that the first poll is not taken for the second
    begun = time.monotonic()
    waiting.start()

    def received() -> bool:
        elapsed = time.monotonic() - begun  # first: a busy machine may take seconds for the answer
        return _seconds_since_contact(served) < elapsed

    # The request is pending once the daemon has received it; then the end does not wait for it.
    _wait_until(served.process, received)
    assert served.stop(signal.SIGINT) == 0
    waiting.join(WAIT_S)
    assert found[1]["decisions"] == []


def _seconds_since_contact(served: ServedDaemon) -> float:
    """Return the seconds since the daemon's last contact with an adapter."""
    numbers = served.client.get("/metrics").text
    found = re.search(r"^schedd_adapter_age_seconds\{.*\} (\S+)$", numbers, re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_the_service_manager_is_notified_about_ready_alive_and_stopping(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(WAIT_S)
        served = start_daemon(tmp_path, NOTIFY_SOCKET=str(path), WATCHDOG_USEC="300000")
        try:
            assert manager.recv(4096).decode().splitlines()[0] == "READY=1"
            assert is_ready(served)
            assert manager.recv(4096) == b"WATCHDOG=1"
            assert manager.recv(4096) == b"WATCHDOG=1"
            served.process.send_signal(signal.SIGHUP)
            told = _next_notification(manager)
            assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", told)
            assert _next_notification(manager) == "READY=1\nSTATUS=settings read anew, 0 changed"
            assert served.stop() == 0
            assert _next_notification(manager) == "STOPPING=1"
        finally:
            served.client.close()
            served.process.kill()
            served.process.wait()


def _next_notification(manager: socket.socket) -> str:
    """The next notification other than signs of life."""
    while (told := manager.recv(4096).decode()) == "WATCHDOG=1":
        pass
    return told


def run(*arguments: str, program: str = "schedd.cli.main") -> subprocess.CompletedProcess[str]:
    return run_program(program, "serve", *arguments, cwd=ROOT, timeout=WAIT_S)


def test_invalid_settings_are_listed_and_nothing_is_served(tmp_path: Path) -> None:
    path = write_configuration(tmp_path, "slak = 1\npolicy = 'best'\n")
    done = run("--config", str(path))
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("schedd serve: ") for line in lines)
    assert "did you mean slack?" in done.stderr
    assert "'conservative', 'fcfs'" in done.stderr


def test_without_tokens_the_start_fails_with_instructions(tmp_path: Path) -> None:
    path = tmp_path / "empty.toml"
    path.write_text('[store]\nurl = "memory"\n')
    done = run("--config", str(path))
    assert done.returncode == 2
    assert "token_file" in done.stderr


def test_file_at_the_socket_path_is_named_and_left_unchanged(tmp_path: Path) -> None:
    path = write_configuration(tmp_path)
    path.write_text(path.read_text().replace("port = 0", f'port = 0\nsocket = "{tmp_path}/notes"'))
    (tmp_path / "notes").write_text("of some use")
    done = run("--config", str(path))
    assert done.returncode == 1
    assert f"cannot listen on {tmp_path}/notes: what is there is no socket" in done.stderr
    assert (tmp_path / "notes").read_text() == "of some use"


def test_tables_from_another_version_stop_the_daemon_with_instructions(tmp_path: Path) -> None:
    file = tmp_path / "old.sqlite"
    with closing(Database(str(file))) as database:
        database.migrate()
    path = write_configuration(tmp_path)
    path.write_text(path.read_text().replace('"memory"', f'"{file}"'))
    done = run("--config", str(path), program="tests.store.next_version")
    assert done.returncode == 1
    (said,) = [one for one in map(json.loads, done.stderr.splitlines()) if one["event"] == "cannot get ready"]
    assert said["why"].startswith("the tables are of version 0001")
    assert said["why"].endswith("run `schedd migrate`")
    assert "exception" not in said


def test_busy_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run("--config", str(write_configuration(tmp_path)), "--port", str(port))
    assert done.returncode == 1
    assert done.stderr.startswith(f"schedd serve: cannot listen on 127.0.0.1 port {port}: ")


def test_a_long_question_does_not_delay_shutdown(served: ServedDaemon) -> None:
    now, count = int(time.time()), 400
    nodes = [
        {
            "type": "node_changed",
            "id": f"many:{i}",
            "time": now,
            "node": {"name": f"many{i}", "cpus": 64, "mem": 1 << 28},
        }
        for i in range(count)
    ]
    running = [
        {
            "type": "job_queued",
            "id": f"long:{i}",
            "time": now,
            "job": {
                "id": f"{i}.srv",
                "owner": "ann@login",
                "queue": "batch",
                "submitted": now,
                "started": now,
                "state": "R",
                "resources": {"nodes": f"many{i}:ppn=64", "walltime": str(1000 + 37 * i)},
                "shares": [{"node": f"many{i}", "cpus": 64}],
                "version": "v",
            },
        }
        for i in range(count)
    ]
    served.events(*nodes)
    served.events(*running)

    def select(first: int) -> dict[str, Any]:
        kinds = "+".join(f"1:ncpus=64:mem={first + i}mb" for i in range(240))
        return {"resources": {"select": kinds, "place": "scatter", "walltime": "600"}}

    question = {**select(100), "family": "openpbs", "variants": [select(1000 + i) for i in range(20)]}
    answers: list[str] = []

    def ask_repeatedly() -> None:
        """Ask repeatedly, as each question is aborted after a fraction of a second."""
        with contextlib.suppress(httpx2.HTTPError):
            while not any("the question was cancelled" in one for one in answers):
                answers.append(served.client.post(f"{MAIN}/what-if", json=question).text)

    asking = [threading.Thread(target=ask_repeatedly) for _ in range(3)]
    before = _processor_ticks(served.process.pid)
    for one in asking:
        one.start()
    # It works on the questions: nothing else needs that much, however busy the machine is.
    _wait_until(served.process, lambda: _processor_ticks(served.process.pid) - before > 30)
    assert served.stop() == 0
    for one in asking:
        one.join(WAIT_S)
        assert not one.is_alive()
    assert any("the question was cancelled" in one for one in answers), [one[:300] for one in answers[-3:]]


def _processor_ticks(pid: int) -> int:
    """Processor time that the daemon has used, in hundredths of a second."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
