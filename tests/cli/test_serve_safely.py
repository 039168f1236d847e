"""``schedd serve``: reloads, the UNIX socket, database tokens, and malicious clients."""

import contextlib
import http.client
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedd.store import Store
from tests.cli.test_serve import (
    MAIN,
    TOKEN,
    ServedDaemon,
    _wait_until,
    is_ready,
    job,
    node,
    run,
    start_daemon,
)
from tests.property_examples import examples
from tests.waits import WAIT_S

NO_ADAPTER = "adapter_silence = 3600"  # no adapter calls, however long the tests take
SLACK = "slack = 0"


def write_settings(folder: Path, **sections: str) -> Path:
    """Write a settings file with these lines and all other required settings."""
    (folder / "tokens").write_text(f"admin tester {TOKEN}\n")
    (folder / "tokens").chmod(0o600)
    lines = {
        "server": f'port = 0\nsocket = "{folder}/socket"',
        "auth": f'token_file = "{folder}/tokens"',
        "store": f'url = "sqlite:///{folder}/s.sqlite"',
        "clusters.main": f"{SLACK}\n{NO_ADAPTER}",
    }
    for name, more in sections.items():
        key = name.replace("main", "clusters.main")
        lines[key] = lines.get(key, "") + f"\n{more}"
    path = folder / "schedd.toml"
    path.write_text("".join(f"[{name}]\n{text}\n" for name, text in lines.items()))
    return path


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that other users may enter, for the socket."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[ServedDaemon]:
    found = start_daemon(folder, write_settings(folder, limits="io_timeout = 0.5"))
    try:
        _wait_until(found.process, lambda: found.client.get("/leadz").status_code == 200)
        yield found
    finally:
        found.client.close()
        found.process.kill()
        found.process.wait()


def log_entries(served: ServedDaemon, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in served.log.read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


def reload_settings(served: ServedDaemon, event: str) -> dict[str, Any]:
    """Let the daemon read its settings again; returns its log entry."""
    before = len(log_entries(served, event))
    served.process.send_signal(signal.SIGHUP)
    found: list[dict[str, Any]] = _wait_until(served.process, lambda: log_entries(served, event)[before:])
    return found[-1]


def request_over_socket(
    folder: Path, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any]:
    """Send a request over the UNIX socket."""
    headers = {"Content-Type": "application/json", **headers}
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.connect(str(folder / "socket"))
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_a_reload_applies_changeable_settings_and_names_others(served: ServedDaemon, folder: Path) -> None:
    now = int(time.time())
    served.events(node(1, now), job(1, now), job(2, now))
    before = served.get("/jobs/2.s")
    assert before["promised_start"] == before["planned_start"]
    generation = served.get("")["generation"]
    # A bad file changes nothing, though other lines of it are good.
    write_settings(folder, limits="io_timeout = 0.5", main="start_rate = 40", log='level = "loud"')
    assert "log.level" in reload_settings(served, "the settings stay unchanged")["why"]
    served.events(job(3, now))
    assert served.get("/jobs/3.s")["promised_start"] == served.get("/jobs/3.s")["planned_start"]
    for more in (
        f'tls_certificate = "{folder}/none.pem"',
        f'[[webhooks]]\nurl = "https://x/"\nsecret_file = "{folder}/none"',
    ):
        write_settings(folder, limits="io_timeout = 0.5", main="start_rate = 40", server=more)
        assert f"{folder}/none" in reload_settings(served, "the settings stay unchanged")["why"]
    write_settings(folder)
    (folder / "tokens").chmod(0o644)
    assert "chmod 0600" in reload_settings(served, "the settings stay unchanged")["why"]

    def rejected() -> list[str]:
        return [one["text"] for one in served.get("/alerts")["alerts"] if one["kind"] == "settings"]

    # Before this one the alert is about the file before.
    (text,) = _wait_until(served.process, lambda: [one for one in rejected() if "chmod 0600" in one])
    assert rejected() == [text]
    write_settings(folder, main="start_rte = 40", log='level = "loud"')
    reload_settings(served, "the settings stay unchanged")
    (text,) = _wait_until(served.process, lambda: [one for one in rejected() if "(and 1 more)" in one])
    assert "\n" not in text

    path = write_settings(folder, limits="io_timeout = 0.5\nuser_rate = 7", auth='operators = ["bob"]')
    text = path.read_text().replace(SLACK, 'slack = 900\npolicy = "easy"')
    path.write_text(text.replace("port = 0", "port = 1"))
    said = reload_settings(served, "settings were read again")
    assert said["changed"] == ["auth.operators", "limits.user_rate", "clusters.main.slack 0 -> 15m"]
    assert said["need_a_restart"] == ["server.port", "clusters.main.policy"]
    _wait_until(served.process, lambda: not rejected())
    assert served.get("")["generation"] > generation
    served.events(job(4, now))
    new, old = served.get("/jobs/4.s"), served.get("/jobs/2.s")
    assert new["promised_start"] == new["planned_start"] + 900
    assert old["promised_start"] == before["promised_start"]
    store = Store.open(f"sqlite:///{folder}/s.sqlite")
    noted = [entry.detail for entry in store.audit_entries() if entry.act == "reload"]
    assert "clusters.main.slack 0 -> 15m" in noted[0]
    assert len(noted) == 6
    assert all(detail.startswith("refused: ") for detail in noted[1:])
    store.close()


def test_a_reload_that_puts_promises_at_risk_names_their_owners(served: ServedDaemon, folder: Path) -> None:
    now = int(time.time())
    served.events(
        *(node(number, now) for number in (11, 12)), *(job(number, now) for number in range(11, 17))
    )

    def alerts() -> list[str]:
        return [one["text"] for one in served.get("/alerts")["alerts"] if one["kind"] == "promises"]

    path = write_settings(folder)
    limit = '[[clusters.main.site.limits]]\nwhat = "jobs"\namount = 1\n'
    path.write_text(path.read_text() + limit)
    before = len(log_entries(served, "settings were read again"))
    reload_settings(served, "settings were read again")
    (text,) = _wait_until(served.process, alerts)
    assert re.fullmatch(r"settings changed by a reload: \d promises of ann \(\d\) are at risk", text)
    lines = served.log.read_text().splitlines()
    named = [n for n, line in enumerate(lines) if "changed settings: " in line and "of ann" in line]
    applied = [n for n, line in enumerate(lines) if "settings were read again" in line]
    assert named, "the log names the owners"
    assert named[0] < applied[before], "before the settings take effect"
    store = Store.open(f"sqlite:///{folder}/s.sqlite")
    noted = [entry.detail for entry in store.audit_entries() if entry.act == "reload"]
    assert any(re.search(r"promises of ann \(\d\) are at risk", detail) for detail in noted)
    store.close()
    write_settings(folder)
    reload_settings(served, "settings were read again")
    _wait_until(served.process, lambda: not alerts())


def test_database_tokens_are_valid_until_revoked(served: ServedDaemon, folder: Path) -> None:
    store = Store.open(f"sqlite:///{folder}/s.sqlite")
    token = store.add_token("portal", "reader", int(time.time()))

    def status() -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.get(f"{served.url}/v1/clusters", headers=headers, trust_env=False).status_code

    _wait_until(served.process, lambda: status() == 200)
    store.revoke_token(store.tokens()[-1].id, int(time.time()))
    _wait_until(served.process, lambda: status() in (401, 429))
    store.close()
    assert token not in served.log.read_text()


def test_on_the_socket_the_peers_user_is_known(served: ServedDaemon, folder: Path) -> None:
    status, found = request_over_socket(folder, "POST", f"{MAIN}/pause", {"reason": "dinner"})
    assert (status, found["paused"]) == (200, "dinner")
    assert request_over_socket(folder, "POST", f"{MAIN}/resume")[0] == 200
    assert (folder / "socket").stat().st_mode & 0o777 == 0o666
    # A token goes before the peer's user.
    assert request_over_socket(folder, "GET", MAIN, Authorization="Bearer wrong")[0] in (401, 429)
    store = Store.open(f"sqlite:///{folder}/s.sqlite")
    acts = [(entry.act, entry.cluster) for entry in store.audit_entries() if entry.act in ("pause", "resume")]
    store.close()
    assert acts == [("resume", "main"), ("pause", "main")]
    done = run("--config", str(write_settings(folder)))
    assert (done.returncode, "another daemon does" in done.stderr) == (1, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be others")
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_others_on_the_socket_are_users(served: ServedDaemon, folder: Path) -> None:
    nobody = pwd.getpwnam("nobody")

    def request_as_other_user(path: str, *more: str) -> Any:
        asked = ["curl", "-s", "--unix-socket", str(folder / "socket"), f"http://localhost{path}", *more]
        done = subprocess.run(asked, capture_output=True, check=True, user=nobody.pw_uid, cwd="/")
        return json.loads(done.stdout)

    assert request_as_other_user(MAIN)["name"] == "main"
    refused = request_as_other_user(f"{MAIN}/resume", "-X", "POST")
    assert refused["status"] == 403
    assert refused["detail"].startswith("nobody has the role user")
    # A header does not change their identity.
    assert request_as_other_user(f"{MAIN}/resume", "-X", "POST", "-H", "X-Remote-User: root")["status"] == 403


def run_command(folder: Path, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "schedd.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
        env={**os.environ, "SCHEDD_URL": f"unix:{folder}/socket", "HOME": str(folder)},
    )
    return done.returncode, done.stdout, done.stderr


def test_root_pauses_and_resumes_from_the_shell_with_audit_entries(
    served: ServedDaemon, folder: Path
) -> None:
    assert run_command(folder, "pause", "the cooling failed") == (
        *(0, "main: no jobs are started: the cooling failed\n", ""),
    )
    assert served.get("")["paused"] == "the cooling failed"
    code, _, refused = run_command(folder, "pause", "maintenance")
    assert code == 3
    assert refused.endswith("; if it is the reason: schedd pause --reason maintenance\n")
    code, out, _ = run_command(folder, "resume", "--json")
    assert (code, json.loads(out)["paused"]) == (0, "")
    assert served.get("")["paused"] == ""
    config = str(folder / "schedd.toml")
    code, out, _ = run_command(folder, "audit", "--config", config)
    assert code == 0
    me = pwd.getpwuid(os.geteuid()).pw_name
    assert re.search(
        rf"^\S+ \S+  {me} +resume +main\n\S+ \S+  {me} +pause +main  the cooling failed$", out, re.MULTILINE
    )
    assert (
        json.loads(run_command(folder, "audit", "--config", config, "--most", "1", "--json")[1])[0]["act"]
        == "resume"
    )


def open_connection(served: ServedDaemon) -> socket.socket:
    address = served.url.removeprefix("http://").split(":")
    found = socket.create_connection((address[0], int(address[1])), WAIT_S)
    found.settimeout(WAIT_S)
    return found


def read_until_closed(channel: socket.socket) -> bytes:
    """Read until the other side closes."""
    found = b""
    try:
        while more := channel.recv(1 << 16):
            found += more
    except ConnectionResetError:
        pass
    return found


POST = f"POST {MAIN}/events HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 100\r\n\r\n["
GET = "GET / HTTP/1.1\r\nHost: x\r\nX: y"
BEGUN = {"nothing": "", "a word": "GE", "half a header": GET, "half a body": POST}


@pytest.mark.parametrize("said", BEGUN.values(), ids=BEGUN)
def test_unfinished_requests_are_disconnected(served: ServedDaemon, said: str) -> None:
    with open_connection(served) as channel:
        channel.sendall(said.encode())
        assert read_until_closed(channel).startswith(b"HTTP/1.1 408 ")


def send_slowly(channel: socket.socket, head: bytes, more: bytes, pause: float, most: int) -> None:
    """Send bytes with pauses until the other side closes. Raises OSError."""
    channel.sendall(head)
    for _ in range(most):
        channel.sendall(more)
        time.sleep(pause)


def test_slow_requests_are_disconnected(served: ServedDaemon) -> None:
    with open_connection(served) as channel, pytest.raises(OSError, match=r"reset|pipe"):
        send_slowly(channel, b"GET / HTTP/1.1\r\n", b"X: y\r\n", 0.05, 1_000)


def test_endless_headers_are_refused(served: ServedDaemon) -> None:
    with open_connection(served) as channel, pytest.raises(OSError, match=r"reset|pipe"):
        send_slowly(channel, b"GET / HTTP/1.1\r\nX: ", b"y" * 10_000, 0.001, 400)
    _wait_until(served.process, lambda: is_ready(served))


def test_a_large_fast_body_is_accepted(served: ServedDaemon) -> None:
    events = [job(number, 1_000) for number in range(1_000, 3_000)]
    taken = served.client.post(f"{MAIN}/events", json={"events": events})
    assert (taken.status_code, len(taken.request.content) > 300_000) == (200, True), taken.text


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(st.binary(max_size=200) | st.text(max_size=60).map(lambda path: f"GET /{path} HTTP/1.1".encode()))
def test_daemon_survives_any_bytes_on_the_wire(served: ServedDaemon, said: bytes) -> None:
    with open_connection(served) as channel:
        channel.sendall(said + b"\r\n\r\n")
        channel.shutdown(socket.SHUT_WR)
        found = read_until_closed(channel)
    assert not found or re.match(rb"HTTP/1\.1 [234]\d\d ", found), found
    assert served.process.poll() is None


def test_a_connection_serves_many_requests(served: ServedDaemon) -> None:
    with httpx2.Client(trust_env=False) as client:
        for _ in range(4):
            answer = client.get(f"{served.url}/healthz")
            assert (answer.status_code, "connection" in answer.headers) == (200, False)
            time.sleep(0.3)


def test_clients_that_read_no_response_are_disconnected(served: ServedDaemon) -> None:
    now = int(time.time())
    served.events(*(job(i, now) for i in range(100, 400)))
    head = f"GET {MAIN}/jobs?limit=1000 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    with open_connection(served) as channel:
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asking = threading.Thread(target=_send_until_blocked, args=(channel, head.encode() * 30), daemon=True)
        asking.start()
        port = channel.getsockname()[1]
        _wait_until(served.process, lambda: not _established(port))
    _wait_until(served.process, lambda: is_ready(served))


def test_connections_per_address_are_limited(served: ServedDaemon, folder: Path) -> None:
    write_settings(folder, limits="io_timeout = 30\nconnections_per_address = 20", auth='operators = ["bob"]')
    reload_settings(served, "settings were read again")
    poll = (
        f"GET {MAIN}/decisions?after=~&wait=30 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    )
    with contextlib.ExitStack() as open_ones:
        for _ in range(20):
            open_ones.enter_context(open_connection(served)).sendall(poll.encode())
        _wait_until(served.process, lambda: is_refused(served))
        assert request_over_socket(folder, "GET", "/readyz")[0] == 200  # others are served
    write_settings(folder, limits="io_timeout = 0.5", auth='operators = ["bob"]')
    _wait_until(served.process, lambda: is_ready(served))
    reload_settings(served, "settings were read again")


def is_refused(served: ServedDaemon) -> bool:
    """Return whether one more connection is refused."""
    with open_connection(served) as last:
        last.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return read_until_closed(last).startswith(b"HTTP/1.1 503 ")


def test_idle_foreign_connections_do_not_block_the_adapter(served: ServedDaemon, folder: Path) -> None:
    write_settings(folder, limits="io_timeout = 30\nconnections = 40\nconnections_per_address = 10")
    reload_settings(served, "settings were read again")
    port = int(served.url.rsplit(":", 1)[1])
    with contextlib.ExitStack() as open_ones:
        for number in range(60):
            stranger = open_ones.enter_context(socket.socket())
            stranger.bind((f"127.0.0.{2 + number // 10}", 0))
            stranger.connect(("127.0.0.1", port))
        for _ in range(5):
            with httpx2.Client(base_url=served.url, trust_env=False, timeout=WAIT_S) as adapter:
                headers = {"Authorization": f"Bearer {TOKEN}"}
                assert adapter.post(f"{MAIN}/events", json={"events": []}, headers=headers).status_code == 200
        assert request_over_socket(folder, "GET", "/readyz")[0] == 200
    write_settings(folder, limits="io_timeout = 0.5", auth='operators = ["bob"]')
    _wait_until(served.process, lambda: is_ready(served))
    reload_settings(served, "settings were read again")


def test_every_change_is_audited_with_its_author(served: ServedDaemon, folder: Path) -> None:
    now = int(time.time())
    served.events(node(1, now))
    soon = {"start": now + 1_000, "end": now + 2_000}
    reserve = {"type": "reserve", "id": "r:1", "time": now, "name": "y", "nodes": ["n1"], "start": now}
    # Jobs of earlier tests fill the node for days: bookings use only gaps.
    far = 300 * 86_400
    booked = {"duration": 600, "deadline": now + far}
    site = {"licences": {"x": {"lent": True}}, "bookings": {"most": 1, "ahead": far}}
    acts: list[tuple[str, str, dict[str, Any] | None, str, str]] = [
        ("POST", "/pause", {"reason": "a test"}, "pause", "a test"),
        ("POST", "/resume", None, "resume", ""),
        ("PUT", "/reservations/x", {"nodes": ["n1"], **soon}, "reserve", "x: n1 from "),
        ("DELETE", "/reservations/x", None, "unreserve", "x"),
        ("POST", "/events", {"events": [reserve]}, "reserve", "y: n1 from "),
        ("DELETE", "/reservations/y", None, "unreserve", "y"),
        ("PUT", "/holds/node/n1", {"reason": "a fan"}, "hold", "node n1: a fan"),
        ("DELETE", "/holds/node/n1", None, "release", "node n1"),
        ("PUT", "/power/n1", {"wish": "hold", "reason": "a fan"}, "power", "n1 hold: a fan"),
        ("PUT", "/power/n1", {"wish": "auto"}, "power", "n1 auto"),
        ("PUT", "/accounts/phys", {"amount": 5}, "account", "phys 5 core_hours"),
        (
            "POST",
            "/accounts/transfers",
            {"target": "phys", "amount": 2},
            "account",
            "2 core_hours from outside to phys",
        ),
        ("PUT", "/policy", site, "policy", ""),
        ("PUT", "/licences/x", {"copies": 3, "number": 1}, "lend", "x: 3 copies, lease 1"),
        ("PUT", "/bookings/x", {"request": "nodes=1", **booked}, "book", "x: 600 s for tester"),
        ("POST", "/bookings/x/freeze", None, "booking freeze", "x"),
        ("POST", "/bookings/x/confirm", None, "booking confirm", "x"),
        ("POST", "/bookings/x/keep", None, "booking keep", "x"),
        ("DELETE", "/bookings/x", None, "booking cancel", "x"),
        ("DELETE", "/policy", None, "policy", ""),
        ("POST", "/searches", None, "search", ""),
        ("DELETE", "/alternatives", None, "alternatives", "refused: no search is under way"),
        ("PUT", "/transfers/x", {"user": "ann", "script": "date"}, "transfer jobs", "x: a job of ann"),
        ("DELETE", "/transfers/x", None, "withdraw", "x"),
    ]
    # What these change must be there first: tests/api has them.
    staged = {
        ("POST", "/bookings/{name}/accept"),
        ("POST", "/transfers/{name}/release"),
        ("POST", "/notices"),
        ("DELETE", "/notices/{number}"),
        ("POST", "/alternatives"),
        ("POST", "/alternatives/{number}/plans/{plan}/apply"),
    }
    asking = {("POST", path) for path in ("/what-if", "/policy/preview")}
    # Programs send these again and again: no user decided anything.
    asking |= {("POST", "/power/readings"), ("POST", "/transfers/{name}/bag-end")}
    asking |= {("POST", f"/{kind}/preview") for kind in ("reservations/{name}", "holds/{kind}/{name}")}
    described = served.client.get("/openapi.json").json()["paths"]
    writing = {
        (method.upper(), path.removeprefix("/v1/clusters/{cluster}"))
        for path, item in described.items()
        for method in item
        if method != "get"
    }
    named = {
        (
            one[0],
            re.sub("/[xy]$", "/{name}", re.sub("/x/(freeze|confirm|keep)$", "/{name}/{act}", one[1]))
            .replace("/node/n1", "/{kind}/{name}")
            .replace("/n1", "/{node}")
            .replace("/accounts/phys", "/accounts/{account}"),
        )
        for one in acts
    }
    assert writing == named | asking | staged
    with contextlib.closing(Store.open(f"sqlite:///{folder}/s.sqlite")) as store:
        for method, path, body, act, detail in acts:
            before = store.audit_entries()
            answer = served.client.request(method, MAIN + path, json=body)
            assert answer.status_code == 200, (path, answer.text)
            noted, *others = store.audit_entries()
            assert (noted.who, noted.act, noted.cluster) == ("tester", act, "main"), path
            assert noted.detail.startswith(detail)
            assert others == before
        before = store.audit_entries()
        assert served.events(reserve)["duplicates"] == ["r:1"]
        assert store.audit_entries() == before


def _send_until_blocked(channel: socket.socket, said: bytes) -> None:
    with contextlib.suppress(OSError):
        channel.sendall(said)


def _established(port: int) -> bool:
    """Return whether the kernel's table has an open connection from this port to the daemon."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(f":{port:04X}" in line.split()[2] and line.split()[3] == "01" for line in lines)
