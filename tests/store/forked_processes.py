"""Start of programs by forking a process that has imported everything: milliseconds instead of seconds.

A forked process differs from a started one only in what happens before ``main``: the interpreter's start, the
imports and the loading of compiled kernels. So these are started as they are at a site:

- tests of that start: tests/cli/test_loaded_libraries.py, test_main.py, test_install.py, test_login_nodes.py,
  tests/store/test_migrations.py, tests/service/test_warmup.py, tests/plan/test_compiler.py;
- programs with a limit of resources, another user, another interpreter, or a library that is loaded first;
- programs with other values of the variables that are read at import: `start_program` compares them.
"""

import atexit
import fcntl
import functools
import inspect
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Literal

from tests.conftest import ROOT
from tests.store.launcher import WAIT_STATUS

__all__ = ["DaemonLauncher", "ForkedProcess", "run_program", "shared_launcher", "start_program"]

_READ_AT_IMPORT = (
    *("PYTHON", "NUMBA_", "LD_", "MALLOC_", "OMP_", "OPENBLAS_", "LANG", "LC_"),
    *("SCHEDD_KERNEL_CACHE", "CACHE_DIRECTORY", "XDG_CACHE_HOME", "HOME"),
)
"""Prefixes of environment variables that the interpreter, a library or a module reads before ``main``."""
_ENVIRONMENT = dict(os.environ)
"""Environment of the launcher: that of the test run, not that of the test that starts it."""


def _read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_IMPORT)}


class DaemonLauncher:
    """Starts programs by forking a prepared process (tests/store/launcher.py).

    Thread-safe; the workers of a test run share the launcher of the process that they are forks of.
    """

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._process_lock = TemporaryFile()  # noqa: SIM115  (open as long as the launcher is used)
        self._number = 0
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.store.launcher"],
                cwd=ROOT,
                stdin=theirs.fileno(),
                env={**_ENVIRONMENT, "PYTHONPATH": str(ROOT)},
            )

    def fork(
        self,
        args: list[str],
        log: Path,
        skew: str = "",
        environment: Mapping[str, str] | None = None,
        *,
        program: Literal["serve", "federate", "adapter"] = "serve",
        status: Path | None = None,
    ) -> int:
        """Start a process with these additional environment variables; return its id. ``status``: file for
        its exit status.
        """
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        try:
            return self.request(
                program,
                args,
                {**os.environ, **(environment or {})},
                str(ROOT),
                {0: null, 1: output, 2: output},
                skew=skew,
                status=str(status or ""),
            )
        finally:
            os.close(output)
            os.close(null)

    def request(
        self,
        program: str,
        args: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        descriptors: Mapping[int, int],
        *,
        skew: str = "",
        status: str = "",
    ) -> int:
        """Start a program, or a module, with these descriptors by number; return its process id."""
        order = {
            "number": "",
            "program": program,
            "args": list(args),
            "environment": dict(environment),
            "cwd": cwd,
            "descriptors": list(descriptors),
            "skew": skew,
            "status": status,
        }
        with self._lock:
            fcntl.lockf(self._process_lock, fcntl.LOCK_EX)
            try:
                return self._order_start(order, list(descriptors.values()))
            finally:
                fcntl.lockf(self._process_lock, fcntl.LOCK_UN)

    def _order_start(self, order: dict[str, Any], descriptors: list[int]) -> int:
        self._number += 1
        order["number"] = f"{os.getpid()}.{self._number}"
        socket.send_fds(self._requests, [json.dumps(order).encode()], descriptors)
        while answer := self._requests.recv(60):
            number, pid = answer.decode().split()
            if number == order["number"]:  # else its test was interrupted while it waited
                return int(pid)
        raise AssertionError("the launcher ended")

    def close(self) -> None:
        """End the launcher."""
        self._process_lock.close()
        self._requests.close()
        self._process.wait()


@functools.cache
def shared_launcher() -> DaemonLauncher:
    """The launcher of this process, or of the one it is a fork of; it ends with that process."""
    opened = DaemonLauncher()
    atexit.register(opened.close)
    return opened


class ForkedProcess(subprocess.Popen[str]):
    """A ``Popen`` of ``python -m MODULE ARGUMENTS`` whose process is forked by the launcher.

    Signals go to the process itself; its wait status comes through a pipe, as it is a child of the launcher.
    """

    def _execute_child(self, *given: Any) -> None:
        """Called by Popen's constructor once it has made the pipes."""
        options = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        module, *args = options["args"]
        self._status, theirs = os.pipe()
        descriptors = {
            0: options["p2cread"] if options["p2cread"] != -1 else 0,
            1: options["c2pwrite"] if options["c2pwrite"] != -1 else 1,
            2: options["errwrite"] if options["errwrite"] != -1 else 2,
            WAIT_STATUS: theirs,
        }
        environment = os.environ if options["env"] is None else options["env"]
        try:
            self.pid = shared_launcher().request(
                module, args, environment, str(options["cwd"] or Path.cwd()), descriptors
            )
        finally:
            os.close(theirs)
            ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(options[end] for end in ends))  # type: ignore[attr-defined]
        self._child_created = True

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self._await_status(0)

    def _wait(self, timeout: float | None) -> int:
        found = self._await_status(timeout)
        if found is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return found

    def _await_status(self, timeout: float | None) -> int | None:
        while self.returncode is None:
            poll = select.poll()
            poll.register(self._status, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1000):
                return None
            self._read_status()
        return self.returncode

    def _read_status(self) -> None:
        with self._waitpid_lock:  # type: ignore[attr-defined]
            if self.returncode is None:
                status = os.read(self._status, 20)
                os.close(self._status)
                self.returncode = os.waitstatus_to_exitcode(int(status)) if status else -signal.SIGKILL


def start_program(
    module: str,
    *args: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int | IO[Any] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
) -> subprocess.Popen[str]:
    """Start ``python -m MODULE ARGS``: forked if nothing differs that is read before its ``main``."""
    alike = _read_at_import(os.environ if env is None else env) == _read_at_import(_ENVIRONMENT)
    if alike:
        return ForkedProcess(
            [module, *args], env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, text=True
        )
    command = [sys.executable, "-m", module, *args]
    return subprocess.Popen(command, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, text=True)


def run_program(
    module: str,
    *args: str,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m MODULE ARGS`` to its end; return its exit status and outputs."""
    with start_program(
        module, *args, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess([module, *args], process.returncode, out, err)
