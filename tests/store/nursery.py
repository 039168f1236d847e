"""Daemons that start at once: a process that has loaded and compiled everything, and forks.

Each line of its input is JSON: the arguments of `schedd serve`, a file for its log, a file that skews its
clock, what more its environment has. It answers with the child's process id. The child runs the very program
that `schedd serve` runs.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from schedd.cli import serve as command
from schedd.service.warmup import warm_up
from tests.store.faults import fail_at_random
from tests.store.killing import die_at


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def _skew(file: str) -> None:
    """Let the clock of this process be set while it runs."""
    real = time.time
    time.time = lambda: real() + float(Path(file).read_text() or 0)


def main() -> None:
    """Fork until the input ends."""
    import schedd.cli.serving  # noqa: F401, PLC0415

    warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the children
    _say("ready")
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            null = os.open(os.devnull, os.O_RDONLY)
            for to, number in ((null, 0), (log, 1), (log, 2)):
                os.dup2(to, number)
            os.environ |= order["environment"]
            if order["skew"]:
                _skew(order["skew"])
            if at := os.environ.get("SCHEDD_TEST_DIE_AT"):
                die_at(int(at))
            if faults := os.environ.get("SCHEDD_TEST_FAULTS"):
                switch, *how = json.loads(faults)
                fail_at_random(Path(switch), *how)
            os._exit(command.run(order["args"]))
        _say(child)


if __name__ == "__main__":
    main()
