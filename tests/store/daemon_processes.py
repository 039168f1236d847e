"""Real daemons in processes: start, requests, and kills."""

import contextlib
import copy
import hashlib
import http.client
import json
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import urlencode

from tests.ports import free_port
from tests.store.forked_processes import DaemonLauncher
from tests.waits import WAIT_S, wait_until

TOKEN = "a-token-for-tests-alone"


class UnavailableError(Exception):
    """The daemon does not answer, or answers 429 or 503."""


class RequestSender(Protocol):
    """A daemon, or several daemons behind one interface."""

    def get(self, path: str, **query: object) -> Any: ...

    def post(self, path: str, body: object) -> Any: ...

    def request(self, method: str, path: str, body: bytes | None = None) -> Any: ...


class DaemonProcess:
    """One daemon with its settings; it can be started and killed repeatedly."""

    def __init__(
        self, launcher: DaemonLauncher, folder: Path, url: str, name: str = "one", **store: object
    ) -> None:
        self._launcher = launcher
        self.name = name
        self.log = folder / f"{name}.log"
        self.port = free_port()
        self.pid = 0
        self.patience = WAIT_S
        self.skew = ""
        self.environment: dict[str, str] = {}
        self.headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        self._connection: http.client.HTTPConnection | None = None
        self.config = folder / f"{name}.toml"
        digest = hashlib.sha256(TOKEN.encode()).hexdigest()
        chosen: Mapping[str, object] = {"url": url, "holder": name, **store}
        self.config.write_text(
            f"[server]\nport = {self.port}\n"
            f"[store]\n{''.join(f'{key} = {json.dumps(value)}{chr(10)}' for key, value in chosen.items())}"
            f'[[auth.tokens]]\nname = "tests"\nrole = "admin"\nsha256 = "{digest}"\n'
            "[clusters.main]\nslack = 5\nend_allowance = 5\nrefusal_wait = 1\nrefusal_most = 2\n"
            "node_grace = 2\ndecision_expiry = 5\npublish_threshold = 0\nserver_grace = 1\n"
        )

    def add_cluster(self, name: str) -> None:
        """Add a cluster with the settings of the first."""
        text = self.config.read_text()
        _, _, first = text.partition("[clusters.main]\n")
        self.config.write_text(f"{text}[clusters.{name}]\n{first}")

    def reload(self, slack: int) -> None:
        """Change its settings and let it reload them."""
        text = self.config.read_text()
        self.config.write_text(re.sub(r"(?m)^slack = .*$", f"slack = {slack}", text))
        self.signal(signal.SIGHUP)

    def start(self) -> Self:
        """Start the process and return at once. ``skew`` names a file with seconds to add to its clock."""
        self.pid = self._launcher.fork(["--config", str(self.config)], self.log, self.skew, self.environment)
        return self

    @staticmethod
    def beside(daemon: "DaemonProcess") -> "DaemonProcess":
        """Return the same daemon with a connection of its own, for another thread."""
        other = copy.copy(daemon)
        other._connection = None
        return other

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Kill the process and wait until it is gone."""
        if self.pid:
            self.signal(how)
            wait_until(lambda: not alive(self.pid), f"{how.name} did not end the daemon", 0.002)
            self.pid = 0
        self.hang_up()

    def signal(self, how: signal.Signals) -> None:
        """Send a signal; a process that is gone already gets none."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, how)

    @property
    def alive(self) -> bool:
        return bool(self.pid) and alive(self.pid)

    def await_ready(self, *, leads: bool = True) -> None:
        """Wait until it answers, and with ``leads`` until it leads (`/readyz` needs a valid snapshot)."""
        until = time.monotonic() + WAIT_S
        while True:
            try:
                self.get("/v1/clusters/main")
                if leads:
                    self.get("/v1/clusters/main/decisions?after=~")
                return
            except UnavailableError as error:
                assert self.alive, f"the daemon ended:\n{self.log.read_text()[-3000:]}"
                assert time.monotonic() < until, f"{error}:\n{self.log.read_text()[-3000:]}"
                time.sleep(0.05)

    @staticmethod
    def insist(act: Callable[[], object]) -> None:
        """Repeat the call until it succeeds, like an adapter. Raises UnavailableError in the end."""
        until = time.monotonic() + WAIT_S
        while True:
            try:
                act()
                return
            except UnavailableError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def get(self, path: str, **query: object) -> Any:
        """Return the answer's JSON. Raises UnavailableError."""
        return self.request("GET", path + (f"?{urlencode(query)}" if query else ""))

    def post(self, path: str, body: object) -> Any:
        """Post JSON and return the answer's JSON. Raises UnavailableError."""
        return self.request("POST", path, json.dumps(body).encode())

    def request(self, method: str, path: str, body: bytes | None = None) -> Any:
        """Return the answer's JSON. Raises UnavailableError, and AssertionError for other error statuses."""
        reused = self._connection is not None
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.patience)
            self._connection.request(method, path, body, self.headers)
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.hang_up()
            if reused and isinstance(error, http.client.RemoteDisconnected | BrokenPipeError):
                return self.request(method, path, body)  # the server closes idle connections
            raise UnavailableError(repr(error)) from None
        if answer.status in (429, 503):
            raise UnavailableError(text.decode())
        assert answer.status == 200, f"{method} {path}: {answer.status} {text.decode()}"
        return json.loads(text)

    def hang_up(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def unavailability(daemon: RequestSender, path: str) -> str:
    """Return why the daemon does not answer this request; empty if it does."""
    try:
        daemon.get(path)
    except UnavailableError as error:
        return str(error)
    return ""


def alive(pid: int) -> bool:
    """Wait for the process, including its threads: until then it holds its files."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
