"""Launcher of programs: a process that has imported and compiled everything, and forks.

Each line of its input is JSON: the program, its arguments, a file for its log, a file that skews its clock,
its environment, and a file for the exit status. It answers with the child's process id. The child runs the
same program as `schedd serve`, `schedd federate` or `pbs-adapter`.
"""

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import server_adapter.main
from schedd.cli import federate, serve
from schedd.service.warmup import warm_up
from tests.store.kill_at_statement import die_at
from tests.store.random_failures import fail_at_random

_PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "serve": serve.run,
    "federate": federate.run,
    "adapter": server_adapter.main.main,
}


def _reply(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def _skew_clock(file: str) -> None:
    """Add the seconds in the file to the clock of this process."""
    real = time.time
    time.time = lambda: real() + float(Path(file).read_text() or 0)


def main() -> None:
    """Fork until the input ends."""
    for name in ("schedd.api.federation_daemon", "schedd.cli.serving"):  # what those load when they run
        importlib.import_module(name)
    warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the children
    _reply("ready")
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            null = os.open(os.devnull, os.O_RDONLY)
            for to, number in ((null, 0), (log, 1), (log, 2)):
                os.dup2(to, number)
            os.environ.clear()
            os.environ |= order["environment"]
            if order["skew"]:
                _skew_clock(order["skew"])
            if at := os.environ.get("SCHEDD_TEST_DIE_AT"):
                die_at(int(at))
            if faults := os.environ.get("SCHEDD_TEST_FAULTS"):
                switch, *how = json.loads(faults)
                fail_at_random(Path(switch), *how)
            status = _PROGRAMS[order["program"]](order["args"])
            if order["status"]:
                Path(order["status"]).write_text(str(status))
            os._exit(status)
        _reply(child)


if __name__ == "__main__":
    main()
