"""Notices of a real ``schedd serve`` that is killed while the relay keeps it waiting: each at most once."""

import socket
import threading
import time
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from schedd.store import Store
from tests.cli.test_serve import MAIN, ServedDaemon, _wait_until, is_ready, job, node, start_daemon
from tests.cli.test_serve_safely import write_settings
from tests.waits import WAIT_S

SENT = 'schedd_notices_total{cluster="main",outcome="sent"} 1.0'


class MailLog:
    """Stores the subjects of received mail."""

    def __init__(self) -> None:
        self.subjects: list[str] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        self.subjects.append(message_from_bytes(envelope.content)["Subject"])
        return "250 taken"


@pytest.fixture
def silent_relay() -> Iterator[tuple[int, threading.Event, socket.socket]]:
    """A relay that accepts a connection and sends nothing; its port, and whether there was a connection."""
    came = threading.Event()
    server = socket.create_server(("127.0.0.1", 0))

    def accept_connection() -> None:
        try:
            kept = server.accept()[0]
        except OSError:
            return
        with kept:
            came.set()
            kept.recv(1)  # until the other side ends

    thread = threading.Thread(target=accept_connection, daemon=True)
    thread.start()
    yield server.getsockname()[1], came, server
    server.close()
    thread.join(WAIT_S)


def subscribe(served: ServedDaemon, name: str) -> None:
    wish = {"job": name, "ahead": 86_400, "to": "ann@example.org"}
    answer = served.client.post(f"{MAIN}/notices", json=wish)
    assert answer.status_code == 200, answer.text


def test_notices_are_neither_repeated_nor_lost_after_a_crash(
    tmp_path: Path, silent_relay: tuple[int, threading.Event, socket.socket]
) -> None:
    port, came, server = silent_relay
    notify = f'relay = "127.0.0.1:{port}"\nsender = "schedd@example.org"\ndomains = ["example.org"]'
    path = write_settings(tmp_path, notify=notify)
    served = start_daemon(tmp_path, path)
    try:
        _wait_until(served.process, lambda: is_ready(served))
        now = int(time.time())
        served.events(node(1, now), job(1, now), job(2, now), job(3, now))
        subscribe(served, "2.s")
        assert came.wait(WAIT_S)  # it is marked, and being sent
        subscribe(served, "3.s")
    finally:
        served.process.kill()
        served.process.wait()
        served.client.close()
    server.close()
    office = MailLog()
    controller = Controller(office, hostname="127.0.0.1", port=port)
    controller.start()
    served = start_daemon(tmp_path, path)
    try:
        _wait_until(served.process, lambda: is_ready(served))
        served.events(node(1, int(time.time())))
        _wait_until(served.process, lambda: office.subjects)
        _wait_until(served.process, lambda: SENT in served.client.get("/metrics").text)
        (subject,) = office.subjects
        assert subject.startswith("[main] job 3.s: starts soon: ")
        assert {one["job"] for one in served.get("/notices")["notices"]} == {"2.s", "3.s"}
        store = Store.open(f"sqlite:///{tmp_path}/s.sqlite")
        acts = [(one.who, one.act, one.detail) for one in store.audit_entries() if "notify" in one.act]
        store.close()
        assert sorted(acts) == [("tester", "notify", "1: 2.s, mail"), ("tester", "notify", "2: 3.s, mail")]
    finally:
        served.process.kill()
        served.process.wait()
        served.client.close()
        controller.stop()
