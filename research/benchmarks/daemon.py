"""A real daemon to be measured: a process of its own, asked over HTTP."""

import contextlib
import hashlib
import http.client
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PATIENCE_S = 300.0  # it may have to compile its kernels first
_PAGE, _TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


class DaemonFailed(Exception):
    """The daemon ended, or does not answer; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Size:
    """MiB: memory of the daemon in RAM, its database file, and that file's log of changes (WAL)."""

    rss: float
    database: float
    wal: float


class DaemonConnection:
    """One connection to a daemon, kept open; for one thread."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Prefer": "respond-async",  # as an adapter does
        }

    def ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        """The answer's JSON. Raises DaemonFailed for any answer but 200."""
        status, text = self.raw(method, path, body)
        if status != 200:
            raise DaemonFailed(f"{method} {path}: {status} {text.decode(errors='replace')[:500]}")
        return json.loads(text)

    def raw(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body. Raises DaemonFailed when there is no answer."""
        reused = self._connection.sock is not None
        try:
            self._connection.request(method, path, body, self._headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            if reused and isinstance(error, http.client.RemoteDisconnected | ConnectionError):
                return self.raw(method, path, body)  # a server closes idle connections
            raise DaemonFailed(f"{method} {path}: {error!r}") from error

    def close(self) -> None:
        self._connection.close()


class BenchDaemon:
    """One daemon, which may live several times. ``cluster`` is the path of its one cluster."""

    cluster = "/v1/clusters/main"

    def __init__(self, folder: Path, database: str, keep: float = 0) -> None:
        """``keep``: days for which all is kept; 0: for as long as usual."""
        self.token = secrets.token_hex(32)
        self.user_token = secrets.token_hex(32)  # of a plain user with permission to book
        self.port = _free_port()
        self._url = database or f"sqlite:///{folder / 'bench.sqlite'}"
        scheme, _, path = self._url.partition(":///")
        self._file = Path(path) if scheme == "sqlite" else None
        kinds = ("events", "decisions", "history", "plan", "audit") if keep else ()
        self._keep = "".join(f"keep_{kind} = {keep}\n" for kind in kinds)
        self._log = folder / "daemon.log"
        self._config = folder / "schedd.toml"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, cache: Path | None = None, **engine: int | bool) -> float:
        """Begin a life with these settings of the engine; returns after how many seconds it leads.

        ``cache``: a folder for its kernels; None: the usual one. Raises DaemonFailed.
        """
        self._config.touch(mode=0o600)
        self._config.write_text(
            f"[server]\nport = {self.port}\n[store]\nurl = {json.dumps(self._url)}\n{self._keep}"
            f'[[auth.tokens]]\nname = "bench"\nrole = "admin"\n'
            f'sha256 = "{hashlib.sha256(self.token.encode()).hexdigest()}"\n'
            f'[[auth.tokens]]\nname = "u1"\nrole = "user"\n'
            f'sha256 = "{hashlib.sha256(self.user_token.encode()).hexdigest()}"\n'
            "[clusters.main]\n"
            + "".join(f"{name} = {json.dumps(value)}\n" for name, value in engine.items())
            + "[clusters.main.site.bookings]\nmost = 10\nahead = 2592000\n",
            encoding="utf-8",
        )
        begun = time.monotonic()
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "schedd.cli.main", "serve", "--config", str(self._config)],
                stdout=log,
                stderr=log,
                env={**os.environ, **({"SCHEDD_KERNEL_CACHE": str(cache)} if cache is not None else {})},
            )
        self._await_ready(self.process)
        return time.monotonic() - begun

    def client(self) -> DaemonConnection:
        return DaemonConnection(self.port, self.token)

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + _PATIENCE_S
        while True:
            with contextlib.suppress(DaemonFailed), contextlib.closing(self.client()) as client:
                client.ask("GET", "/readyz")
                client.ask("GET", self.cluster + "/decisions")
                return
            if process.poll() is not None or time.monotonic() > until:
                raise DaemonFailed(f"the daemon did not get ready:\n{self.last_words()}")
            time.sleep(0.1)

    def size(self) -> Size:
        """How large it is now."""
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1])
        return Size(pages * _PAGE / (1 << 20), _mib(self._file), _mib(self._file, "-wal"))

    @property
    def processor_s(self) -> float:
        """Seconds of processor time that this life of it has taken."""
        assert self.process is not None
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / _TICKS

    def last_words(self) -> str:
        """The end of its log."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-2000:]

    def troubles(self) -> list[str]:
        """What its log has of warnings and errors."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in lines if '"info"' not in line]

    def stop(self, *, kill: bool = False) -> None:
        """End its life, cleanly or not."""
        process, self.process = self.process, None
        if process is None:
            return
        if kill:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def bench_daemon(database: str, keep: float = 0) -> Iterator[BenchDaemon]:
    """A daemon to be started over ``database`` (empty: a new SQLite file, removed in the end).

    ``keep``: days for which all is kept; 0: for as long as usual.
    """
    with tempfile.TemporaryDirectory(prefix="schedd-bench-") as folder:
        daemon = BenchDaemon(Path(folder), database, keep)
        try:
            yield daemon
        finally:
            daemon.stop()


def _mib(path: Path | None, suffix: str = "") -> float:
    if path is None:
        return 0.0
    found = path.with_name(path.name + suffix)
    return found.stat().st_size / (1 << 20) if found.exists() else 0.0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
