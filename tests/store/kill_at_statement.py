"""Processes that kill themselves at a given database statement, or before or after a commit.

Run as a program with the URL of a database, it reads lines of JSON, ``[what, at]``, and for each forks a
child that performs the action and is killed at that place, counted from 1; it answers with the child's
result, or `killed`.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.engine.default import DefaultDialect

from tests.store.next_version import next_version_in_this_process

__all__ = ["die_at", "perform_action"]


def die_at(number: int) -> Callable[[], int]:
    """Kill this process at its place ``number``; return a function for the current number of places."""
    count = [0]

    def here(*_: Any) -> None:
        count[0] += 1
        if count[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", here)
    commit = DefaultDialect.do_commit

    def do_commit(dialect: DefaultDialect, connection: Any) -> None:
        here()
        commit(dialect, connection)  # type: ignore[no-untyped-call]
        here()

    DefaultDialect.do_commit = do_commit  # type: ignore[method-assign]
    return lambda: count[0]


def perform_action(url: str, what: str, number: int) -> str:
    """Perform the action in this process, which is killed at place ``number``."""
    from schedd.store import Store  # noqa: PLC0415
    from schedd.store.database import Database  # noqa: PLC0415

    counted = die_at(number)
    if what == "make":
        Store.open(url).close()
    else:
        database = Database(url)
        try:
            database.migrate(what.partition(" ")[2] or "head", back=what.startswith("back"))
        finally:
            database.close()
    return f"done {counted()}"


def _run_child(url: str, what: str, number: int) -> str:
    ears, mouth = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ears)
        said = b"failed"
        try:
            said = perform_action(url, what, number).encode()
        except Exception as error:
            said = repr(error).encode()
        finally:
            os.write(mouth, said)
            os._exit(0)
    os.close(mouth)
    with os.fdopen(ears, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return "killed" if os.WIFSIGNALED(status) else said.decode()


def main() -> None:
    """Fork until the input ends."""
    with next_version_in_this_process():
        for line in sys.stdin:
            what, number = json.loads(line)
            sys.stdout.write(_run_child(sys.argv[1], what, number) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
