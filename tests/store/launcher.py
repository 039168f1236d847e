"""Launcher of programs: a process that has imported and compiled everything, and forks.

It reads requests from the socket at file descriptor 0: JSON with the program, its arguments, its environment,
its working directory and the numbers of the descriptors that come with the request. It answers with the
request's number and the child's process id, and writes the child's wait status to the descriptor -1 of the
request, if there is one.
It has a single thread and no event loop, so that a fork copies no lock that another thread holds.
"""

import asyncio
import atexit
import contextlib
import gc
import importlib
import inspect
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NoReturn

import numpy as np

import server_adapter.main
from schedd.api.app import create_app
from schedd.cli import serve
from schedd.dashboard import add_dashboard
from schedd.federation import federate_command
from schedd.federation.api.app import create_app as create_federation_app
from schedd.federation.api.daemon import FEDERATION_ROUTES
from schedd.service import clusters
from schedd.service.access.tokens import Tokens
from schedd.service.warmup import warm_up
from schedd.store.database import Database
from tests.service.planner_harness import StillClock
from tests.store.kill_at_statement import die_at
from tests.store.random_failures import fail_at_random
from tests.store.table_creation_cache import forget_table_statements, reuse_table_statements
from tests.waits import widen_product_limits

WAIT_STATUS: Final = -1
"""Number, in a request, of the descriptor that gets the wait status; others are those of the child."""
MAX_REQUEST: Final = 200_000

_LOADED_LATE: Final = (
    *("schedd.federation.api.daemon", "schedd.cli.serving", "schedd.cli.main", "schedd.cli.demo.run"),
    *("uvicorn.lifespan.on", "uvicorn.loops.uvloop"),
)
"""Modules that programs import when they run."""
_PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "serve": serve.run,
    "federate": federate_command.run,
    "adapter": server_adapter.main.main,
}


def _skew_clock(file: str) -> None:
    """Add the seconds in the file to the clock of this process."""
    real = time.time
    time.time = lambda: real() + float(Path(file).read_text() or 0)


def _run_module(name: str, args: list[str]) -> None:
    """Do what ``python -m NAME ARGS`` does."""
    sys.argv = [name, *args]
    if (name, args[:1]) == ("schedd.cli.main", ["demo"]):
        setattr(subprocess, "Popen", _ForkedPart)  # noqa: B010  (the type checker refuses an assignment)
    sys.modules.pop(name, None)  # it becomes ``__main__``; an imported copy would be warned of
    runpy.run_module(name, run_name="__main__", alter_sys=True)


class _ForkedPart(subprocess.Popen[str]):
    """A Python module that a forked program runs as a process of its own: a fork, too."""

    def _execute_child(self, *given: Any) -> None:
        """Called by Popen's constructor once it has made the pipes."""
        start: Callable[..., None] = super()._execute_child  # type: ignore[misc]
        options = inspect.signature(start).bind(*given).arguments
        executable, option, *words = options["args"]
        if (executable, option) != (sys.executable, "-m") or options["env"] or options["cwd"]:
            start(*given)
            return
        pipes = {0: options["p2cread"], 1: options["c2pwrite"], 2: options["errwrite"]}
        with warnings.catch_warnings():
            # The demo has no other thread yet that could hold a lock.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            gc.freeze()  # a collected object of the parent would close a descriptor of this process
            getattr(weakref.finalize, "_registry").clear()  # noqa: B009  (the parent's folders stay)
            if options["start_new_session"]:
                os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            asyncio._set_running_loop(None)
            for number, given_end in pipes.items():
                if given_end != -1:
                    os.dup2(given_end, number)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            _run({"program": words[0], "args": words[1:]})
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(options[end] for end in ends))  # type: ignore[attr-defined]
        self._child_created = True


def _become(order: dict[str, Any], descriptors: dict[int, int]) -> None:
    """Give this process the descriptors, environment and directory of the request."""
    for number, given in descriptors.items():
        os.dup2(given, number)
        os.close(given)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ |= order["environment"]
    time.tzset()
    np.random.seed()  # noqa: NPY002  (its state would be the same in each fork; that of `random` is not)
    if order["skew"]:
        _skew_clock(order["skew"])
    if at := os.environ.get("SCHEDD_TEST_DIE_AT"):
        forget_table_statements()
        die_at(int(at))
    if faults := os.environ.get("SCHEDD_TEST_FAULTS"):
        switch, *how = json.loads(faults)
        fail_at_random(Path(switch), *how)


def _run(order: dict[str, Any]) -> NoReturn:
    """Run the program and end the process as the interpreter does, except that nothing is torn down."""
    status: object = 0
    try:
        if order["program"] in _PROGRAMS:
            status = _PROGRAMS[order["program"]](order["args"])
            if order["status"]:
                Path(order["status"]).write_text(str(status))
        else:
            _run_module(order["program"], order["args"])
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        status = 1
        traceback.print_exc()
    if not isinstance(status, int):
        print(status, file=sys.stderr)  # noqa: T201
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


class _Launcher:
    """Reads requests, forks, and reports the ends of its children."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._wait_statuses: dict[int, int] = {}
        self._wakes, wake = socket.socketpair()
        self._wake = wake
        for one in (self._wakes, wake):
            one.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve until the input ends."""
        while True:
            ready, _, _ = select.select([self._requests, self._wakes], [], [])
            if self._wakes in ready:
                with contextlib.suppress(BlockingIOError):
                    self._wakes.recv(4096)
                self._reap()
            if self._requests in ready:
                request, given, _, _ = socket.recv_fds(self._requests, MAX_REQUEST, 8)
                if not request:
                    return
                self._fork(json.loads(request), given)

    def _fork(self, order: dict[str, Any], given: list[int]) -> None:
        descriptors = dict(zip(order["descriptors"], given, strict=True))
        wait_status = descriptors.pop(WAIT_STATUS, None)
        child = os.fork()
        if child == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (self._requests, self._wakes, self._wake):
                end.close()
            for number in (*self._wait_statuses.values(), *([] if wait_status is None else [wait_status])):
                os.close(number)
            _become(order, descriptors)
            _run(order)
        for number in descriptors.values():
            os.close(number)
        if wait_status is not None:
            self._wait_statuses[child] = wait_status
        self._requests.sendall(f"{order['number']} {child}".encode())

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                child, status = os.waitpid(-1, os.WNOHANG)
                if not child:
                    return
                if (number := self._wait_statuses.pop(child, None)) is not None:
                    with contextlib.suppress(BrokenPipeError):
                        os.write(number, str(status).encode())
                    os.close(number)


def _prepare() -> None:
    """Do once what each program does before it serves: imports, kernels, models of the API, tables."""
    for name in _LOADED_LATE:
        importlib.import_module(name)
    widen_product_limits()
    warm_up()
    clusters.warm_up = lambda: None  # type: ignore[attr-defined]
    add_dashboard(create_app(clusters.Clusters({}, StillClock()), Tokens(())))
    federation = create_federation_app(Tokens(()))
    for add_routes in FEDERATION_ROUTES:
        add_routes(federation)
    reuse_table_statements()
    with TemporaryDirectory() as folder:
        Database.open(f"sqlite:///{folder}/tables.sqlite").close()
    gc.collect()
    gc.freeze()  # a collection in a child need not look at what all have in common


def main() -> None:
    """Fork until the input ends."""
    # Whoever started this process may ignore it; forked programs would ignore it, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    requests = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    _prepare()
    _Launcher(requests).serve()


if __name__ == "__main__":
    main()
