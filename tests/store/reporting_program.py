"""Program for tests of forked processes: reports what it finds, or ends as its argument says."""

import json
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any


def report() -> dict[str, Any]:
    """Return what a program can see of its start."""
    return {
        "arguments": sys.argv[1:],
        "cwd": str(Path.cwd()),
        "environment": {name: value for name, value in os.environ.items() if name != "_"},
        "input": sys.stdin.read(),
        "signals": [
            str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
        ],
        "wakes": signal.set_wakeup_fd(-1),
        "threads": threading.active_count(),
        "children": Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text(),
        "streams": [
            (stream.encoding, stream.errors, stream.isatty())
            for stream in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "handlers": [str(one) for one in logging.getLogger().handlers],
        "time zone": time.tzname,
    }


def own_values() -> list[Any]:
    """Return values that no two processes share."""
    import numpy as np  # noqa: PLC0415  (loaded only where it is looked at)

    numbers = np.random.random()  # noqa: NPY002
    return [os.getpid(), random.random(), numbers, next(tempfile._get_candidate_names())]  # type: ignore[attr-defined]


def main() -> None:
    """Do what the first argument says."""
    match sys.argv[1:]:
        case ["values"]:
            json.dump(own_values(), sys.stdout)
        case ["raise"]:
            raise ValueError("no reason")
        case ["exit", text]:
            sys.exit(int(text) if text.isdigit() else text)
        case ["sleep"]:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            time.sleep(600)
        case _:
            json.dump(report(), sys.stdout)


if __name__ == "__main__":
    main()
