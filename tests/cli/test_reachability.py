"""A daemon stays reachable: errors while connections are accepted, no memory, no descriptors, and a watchdog
that is fed only while requests are answered.
"""

import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2

from tests.cli.test_serve import MAIN, TOKEN, ServedDaemon, _read_url, _wait_until, job, node
from tests.cli.test_serve_safely import log_entries, request_over_socket, write_settings
from tests.store.forked_processes import start_program
from tests.waits import WAIT_S

USER = "a-token-for-a-user-0123456789"


@contextlib.contextmanager
def altered_daemon(
    folder: Path, what: str, limits: Callable[[], None] | None = None, **environment: str
) -> Iterator[ServedDaemon]:
    """Run a daemon with the injected error ``what``, or without one."""
    log, path = folder / "log", write_settings(folder)
    program = ["tests.cli.altered_daemon", what] if what else ["schedd.cli.main"]
    words = [*program, "serve", "--config", str(path)]
    variables = {**os.environ, **environment}
    with log.open("w") as file:
        if limits is None:
            process = start_program(*words, stderr=file, env=variables)
        else:
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                stderr=file,
                text=True,
                env=variables,
                preexec_fn=limits,  # noqa: PLW1509  (this process has no other thread at that moment)
            )
    try:
        url = _wait_until(process, lambda: _read_url(log))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx2.Client(base_url=url, headers=headers, timeout=WAIT_S, trust_env=False) as client:
            found = ServedDaemon(process, url, client, log)
            _wait_until(process, lambda: client.get("/leadz").status_code == 200)
            yield found
    finally:
        process.kill()
        process.wait()


def status_over_new_connection(served: ServedDaemon) -> int:
    """The status of a request over a new connection; 0: the connection was broken off."""
    try:
        with httpx2.Client(trust_env=False, timeout=WAIT_S) as client:
            return client.get(f"{served.url}/healthz").status_code
    except httpx2.TransportError:
        return 0


def test_accept_errors_end_only_their_connections(tmp_path: Path) -> None:
    with altered_daemon(tmp_path, "accept") as served:
        served.process.send_signal(signal.SIGUSR1)
        _wait_until(served.process, lambda: status_over_new_connection(served) == 0)
        answers = [status_over_new_connection(served) for _ in range(24)]
        failed = answers.count(0)
        assert answers == [0] * failed + [200] * (24 - failed)
        assert 10 <= failed <= 19  # the daemon's own probe gets some of the errors on a slow machine
        metrics = served.client.get("/metrics").text
        assert 'schedd_background_failures_total{cluster="",work="connections"} 20.0' in metrics

        def alerted() -> bool:
            alerts = served.client.get(f"{MAIN}/alerts").json()["alerts"]
            return any(one["kind"] == "background" and "no memory is left" in one["text"] for one in alerts)

        _wait_until(served.process, alerted)
        assert len(log_entries(served, "background work failed")) == 20


def test_daemon_without_memory_recovers_or_ends_with_an_error(tmp_path: Path) -> None:
    """It never stays alive without responses. Libraries may end a process without memory; systemd starts it
    again.
    """
    with altered_daemon(tmp_path, "") as served:
        now = int(time.time())
        served.events(node(1, now))
        pid = served.process.pid
        status = Path(f"/proc/{pid}/status").read_text()
        size = int(re.search(r"VmSize:\s+(\d+)", status)[1]) << 10  # type: ignore[index]
        resource.prlimit(pid, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
        body = b'{"events": [' + b'{"type": "node_changed"},' * 400_000

        def flood() -> None:
            end = time.monotonic() + WAIT_S
            while served.process.poll() is None and time.monotonic() < end:
                if "MemoryError" in served.log.read_text():
                    return
                with contextlib.suppress(OSError), _connect(served) as channel:
                    channel.settimeout(2)
                    head = f"POST {MAIN}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
                    channel.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                    channel.recv(100)

        floods = [threading.Thread(target=flood) for _ in range(8)]
        for one in floods:
            one.start()
        for one in floods:
            one.join()
        assert "MemoryError" in served.log.read_text(), "there was memory enough"
        ends = time.monotonic() + WAIT_S
        while time.monotonic() < ends:
            if served.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(
                        pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
                    )
            if served.process.poll() is not None:
                assert served.process.returncode != 0
                return
            if (
                status_over_new_connection(served) == 200
                and _accepts_event(served, now)
                and _job_ids(served) == {"7.s"}
            ):
                return
            time.sleep(0.1)
        raise AssertionError("it lives and answers nobody")


def _accepts_event(served: ServedDaemon, now: int) -> bool:
    return served.client.post(f"{MAIN}/events", json={"events": [job(7, now)]}).status_code == 200


def _job_ids(served: ServedDaemon) -> set[str]:
    return {one["id"] for one in served.get("/jobs")["jobs"]}


def _connect(served: ServedDaemon) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(served.url.rpartition(":")[2])), timeout=WAIT_S)


def test_half_open_connections_leave_descriptors_for_adapter_and_admin(tmp_path: Path) -> None:
    """400 of them, of a process that may have 64 descriptors open; some silent, some in their headers."""

    def limit_descriptors() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    tmp_path.chmod(0o711)
    with altered_daemon(tmp_path, "", limit_descriptors) as served, contextlib.ExitStack() as open_ones:
        now = int(time.time())
        for number in range(400):
            one = open_ones.enter_context(_connect(served))
            if number % 2:
                one.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            if number % 40 == 0:
                served.events(node(number, now), job(number, now))  # on the adapter's open connection
                with httpx2.Client(
                    base_url=served.url,
                    headers={"Authorization": f"Bearer {TOKEN}"},
                    timeout=WAIT_S,
                    trust_env=False,
                ) as again:  # and on a new one
                    assert again.get(f"{MAIN}/decisions").status_code == 200
                assert (
                    request_over_socket(tmp_path, "GET", f"{MAIN}/jobs")[0] == 200
                )  # root, on the UNIX socket
        assert len(_job_ids(served)) == 10
        assert "Too many open files" not in served.log.read_text()
        used = len(list(Path(f"/proc/{served.process.pid}/fd").iterdir()))
        assert used <= 64 - 8, "some are left for the database"


class ServiceManager:
    """Counts the notifications of a daemon, like systemd."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "notify"
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._channel.bind(str(self.path))
        self.fed = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            self.fed += b"WATCHDOG=1" in self._channel.recv(1_000)


def test_watchdog_is_notified_only_while_requests_are_answered(tmp_path: Path) -> None:
    manager = ServiceManager(tmp_path)
    environment = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "2000000"}
    with altered_daemon(tmp_path, "deaf", None, **environment) as served:
        _wait_until(served.process, lambda: manager.fed >= 3)
        served.process.send_signal(signal.SIGUSR1)
        _wait_until(served.process, lambda: log_entries(served, "background work failed"))
        before = manager.fed
        served.events(node(1, int(time.time())))  # the planner works, on a connection that was there before
        time.sleep(6)  # three times what the service manager waits
        assert manager.fed <= before + 1
        failed = log_entries(served, "background work failed")[0]
        assert (failed["work"], "ProbeFailed" in str(failed["exception"])) == ("watchdog", True)
