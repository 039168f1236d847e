"""Test processes: forks of one process that has collected all tests.

Each worker takes one file after the other from a common queue. Imports and collection take their time only
once; a worker starts in milliseconds. Reports go through pipes to the first process, which prints them.
"""

import atexit
import faulthandler
import os
import signal
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, groupby
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

COMMON_FOLDER = pytest.StashKey[Path]()
"""Temporary folder of all workers; only set in a worker."""
_NUMBER = 2
"""Bytes of the number of a file in the queue."""
_LAST_TEARDOWN_S = 600


@dataclass(frozen=True)
class _Worker:
    """A worker as the first process sees it."""

    name: str
    pid: int
    process: int
    """File descriptor that can be read once the process has ended."""
    reports: "Connection[Any, Any]"


@dataclass(frozen=True)
class _Place:
    """A test, by the number of its file and its number in the file."""

    file: int
    test: int


class ForkedWorkers:
    """Plugin of the first process: forks workers, and reports what these have run."""

    def __init__(self, config: pytest.Config, workers: int) -> None:
        self._config = config
        self._workers = workers
        self._last: dict[str, _Place] = {}
        """By worker: its last test, until it has ended as it should."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or self._config.option.collectonly or self._config.option.usepdb:
            return None
        by_file = groupby(session.items, lambda item: item.nodeid.partition("::")[0])
        files = [list(items) for _, items in by_file]
        queue, fill = os.pipe()
        os.write(fill, b"".join(number.to_bytes(_NUMBER, "big") for number in range(len(files))))
        os.close(fill)
        numbers = count()
        running: list[_Worker] = []

        def fork(first: _Place | None = None) -> None:
            running.append(_fork(session, f"w{next(numbers)}", files, queue, first))

        try:
            for _ in range(min(self._workers, len(files))):
                fork()
            while running:
                wait([end for one in running for end in (one.reports, one.process)])
                for one in list(running):
                    if self._receive(session, one):
                        continue
                    running.remove(one)
                    status = _reap(one)
                    if place := self._last.pop(one.name, None):
                        self._report_crash(files[place.file][place.test], one.name, status)
                        fork(_Place(place.file, place.test + 1))
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        finally:
            for one in running:
                with suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGINT)
            for one in running:
                _reap(one)
            os.close(queue)
        return True

    def _receive(self, session: pytest.Session, worker: _Worker) -> bool:
        """Handle what a worker has sent; return whether it still runs."""
        ended = wait([worker.process], 0)
        with suppress(EOFError):
            while worker.reports.poll():
                content = worker.reports.recv()
                if isinstance(content, _Place):
                    self._last[worker.name] = content
                elif isinstance(content, str):
                    session.shouldstop = content
                elif content is None:
                    self._last.pop(worker.name, None)
                else:
                    hooks = self._config.hook
                    self._log(
                        worker.name, hooks.pytest_report_from_serializable(config=self._config, data=content)
                    )
        return not ended

    def _log(self, worker: str, report: Any) -> None:
        # What pytest prints of a worker.
        report.node = SimpleNamespace(gateway=SimpleNamespace(id=worker), _workerinfocache=f"[{worker}]")
        self._config.hook.pytest_runtest_logreport(report=report)

    def _report_crash(self, item: pytest.Item, worker: str, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        self._log(worker, _failed(item, f"its process {ended}"))


def _failed(item: pytest.Item, text: str) -> pytest.TestReport:
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "teardown")


def _fork(
    session: pytest.Session, name: str, files: list[list[pytest.Item]], queue: int, first: _Place | None
) -> _Worker:
    folder: Path = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    ours, theirs = Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # no thread of this process holds a lock
        pid = os.fork()
    if pid == 0:
        ours.close()
        _become_worker(session.config, folder, name, theirs.send)
        _work(session, files, queue, first, theirs.send)
    theirs.close()
    return _Worker(name, pid, os.pidfd_open(pid), ours)


def _reap(worker: _Worker) -> int:
    _, status = os.waitpid(worker.pid, 0)
    os.close(worker.process)
    worker.reports.close()
    return status


class _Reporter:
    """Plugin of a worker: sends the reports to the first process."""

    def __init__(self, config: pytest.Config, send: Callable[[Any], None]) -> None:
        self._config = config
        self._send = send

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def _become_worker(config: pytest.Config, folder: Path, name: str, send: Callable[[Any], None]) -> None:
    """Give this process its own temporary folder, captured output and reporter."""
    atexit._clear()
    config.stash[COMMON_FOLDER] = folder
    own = folder / name
    own.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = own  # type: ignore[attr-defined]
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    plugins.register(_Reporter(config, send))
    # The files that captured output goes to, and their positions, are those of the first process.
    capture: Any = plugins.get_plugin("capturemanager")
    if capture.is_globally_capturing():
        capture.read_global_capture()
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()


def _work(
    session: pytest.Session,
    files: list[list[pytest.Item]],
    queue: int,
    first: _Place | None,
    send: Callable[[Any], None],
) -> NoReturn:
    """Run the tests from ``first`` to the end of its file, then files of the queue, and end the process."""
    try:
        _run_files(session, files, queue, first, send)
        send(None)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    finally:
        atexit._run_exitfuncs()
    os._exit(0)


def _run_files(
    session: pytest.Session,
    files: list[list[pytest.Item]],
    queue: int,
    first: _Place | None,
    send: Callable[[Any], None],
) -> None:
    place = first or _next_file(queue)
    item: pytest.Item | None = None
    try:
        while place is not None:
            items = files[place.file]
            for i in range(place.test, len(items)):
                item = items[i]
                send(_Place(place.file, i))
                # The session as the next: what belongs to the file is torn down.
                following = items[i + 1] if i + 1 < len(items) else session
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.shouldfail or session.shouldstop:
                    return
            place = _next_file(queue)
    except pytest.exit.Exception as stop:
        send(str(stop))
    except KeyboardInterrupt:
        send("a worker was interrupted: the rest of its tests did not run")
    finally:
        faulthandler.dump_traceback_later(_LAST_TEARDOWN_S, exit=True)
        try:
            session._setupstate.teardown_exact(None)
        except Exception:
            assert item is not None
            failed = _failed(item, f"in the teardown of the session's fixtures\n{traceback.format_exc()}")
            session.config.hook.pytest_runtest_logreport(report=failed)


def _next_file(queue: int) -> _Place | None:
    taken = os.read(queue, _NUMBER)
    return _Place(int.from_bytes(taken, "big"), 0) if taken else None
