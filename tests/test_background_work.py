"""Threads and tasks: only the supervisor creates them, and exceptions do not end them."""

import ast
import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from schedd.error_text import describe_error
from schedd.supervision import Supervisor, run_in_thread
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent
SUPERVISORS = {"schedd/supervision.py", "server_adapter/batch/supervision.py"}
NO_DAEMONS = (
    "schedd/bench/",
    "schedd/replay/",
    "schedd/cli/demo/",
    "schedd/cli/federations/",
    "server_adapter/emulator/",
)
CREATES = {
    "Thread",
    "Timer",
    "start_new_thread",
    "create_task",
    "ensure_future",
    "start_soon",
    "run_in_executor",
}
_WORDS = (*CREATES, "Thread", "Timer", "TaskGroup")
"""One of these is in the text of each module that has something to find."""
LOCAL = {
    # Awaited where it is created: nothing goes on alone.
    ("server_adapter/bridge/daemon_client.py", "create_task"),
    # Cancelled at the end of the function that creates it.
    ("schedd/api/question_runner.py", "create_task"),
    # The adapter's own main work, awaited by its main function.
    ("server_adapter/main.py", "ensure_future"),
}


def unsupervised() -> Iterator[str]:
    """Places that create threads or tasks, or executors that outlive a block."""
    for top in ("schedd", "server_adapter"):
        for path in sorted((ROOT / top).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name in SUPERVISORS or name.startswith(NO_DAEMONS):
                continue
            text = path.read_text()
            if not any(word in text for word in _WORDS):
                continue
            tree = ast.parse(text)
            scoped = {
                id(item.context_expr)
                for node in ast.walk(tree)
                if isinstance(node, ast.With | ast.AsyncWith)
                for item in node.items
            }
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                    if bases & {"Thread", "Timer"}:
                        yield f"{name}:{node.lineno}: class {node.name} is a thread"
                if not isinstance(node, ast.Call):
                    continue
                called = ast.unparse(node.func).rpartition(".")[2]
                if called in CREATES and (name, called) not in LOCAL:
                    yield f"{name}:{node.lineno}: {called}"
                if called in ("ThreadPoolExecutor", "TaskGroup") and id(node) not in scoped:
                    yield f"{name}:{node.lineno}: {called} outside of a with block"


def test_only_the_supervisor_creates_threads_and_tasks() -> None:
    assert list(unsupervised()) == []


def wait_until(condition: object, seconds: float = WAIT_S) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("error", [ValueError("no"), MemoryError(), SystemExit(1), KeyboardInterrupt()])
def test_failed_thread_restarts_and_is_reported(error: BaseException) -> None:
    supervisor, went_on = Supervisor(), threading.Event()
    errors = [error]

    def work() -> None:
        if errors:
            raise errors.pop()
        went_on.wait(WAIT_S)

    with structlog.testing.capture_logs() as said:
        thread = supervisor.thread("counting", work, cluster="main", needed=True)
        thread.start()
        wait_until(lambda: thread.record.failures == 1 and not thread.record.down)
    assert thread.is_alive()
    assert supervisor.trouble("main").startswith(f"counting: {describe_error(error)}; it was started again")
    assert supervisor.trouble("other") == ""
    assert supervisor.unready("main") == ""  # it works again
    (line,) = said
    assert (line["event"], line["work"], line["cluster"]) == ("background work failed", "counting", "main")
    assert line["log_level"] == "error"
    went_on.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_repeated_failures_wait_longer_and_make_the_daemon_not_ready() -> None:
    now = [0.0]
    record = Supervisor(lambda: now[0]).record("counting", needed=True)
    waits = []
    for _ in range(12):
        record.begin()
        waits.append(record.fail(ValueError("no")))
        assert record.failing
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30]
    record.begin()
    assert record.failing  # until it worked for a while
    now[0] += 61
    assert (record.failing, record.text) == (False, "")
    assert record.fail(ValueError("no")) == 0.1  # it had worked for long


def test_error_in_the_error_handling_does_not_end_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor, runs, end = Supervisor(), [], threading.Event()

    def work() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise MemoryError
        end.wait(WAIT_S)

    thread = supervisor.thread("counting", work)

    def no_memory(_: BaseException) -> float:
        raise MemoryError

    monkeypatch.setattr(thread.record, "fail", no_memory)
    thread.start()
    wait_until(lambda: len(runs) == 3)
    end.set()
    thread.join(WAIT_S)


def test_thread_can_end_during_its_restart_pause() -> None:
    def work() -> None:
        raise ValueError

    thread = Supervisor().thread("counting", work)
    thread.start()
    wait_until(lambda: thread.record.failures >= 4)
    begun = time.monotonic()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert time.monotonic() - begun < WAIT_S / 2


def test_failed_task_restarts_and_cancelled_task_ends() -> None:
    async def main() -> None:
        supervisor, runs = Supervisor(), 0
        errors = [ValueError("no"), MemoryError(), asyncio.CancelledError()]  # the last: of something else
        working = asyncio.Event()

        async def work() -> None:
            nonlocal runs
            runs += 1
            if errors:
                raise errors.pop()
            working.set()
            await asyncio.sleep(WAIT_S)

        task = supervisor.task("counting", work)
        await asyncio.wait_for(working.wait(), WAIT_S)
        assert (runs, task.record.failures) == (4, 3)
        task.cancel()
        await asyncio.wait_for(task.ended(), WAIT_S)
        assert task.task.cancelled()

    asyncio.run(main())


async def test_error_in_the_error_handling_does_not_end_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor, runs, working = Supervisor(), [], asyncio.Event()

    async def work() -> None:
        runs.append(1)
        if len(runs) < 2:
            raise MemoryError
        working.set()

    task = supervisor.task("counting", work)

    def no_memory(_: BaseException) -> float:
        raise MemoryError

    monkeypatch.setattr(task.record, "fail", no_memory)
    await asyncio.wait_for(working.wait(), WAIT_S)


def test_errors_in_callbacks_and_foreign_threads_are_recorded() -> None:
    supervisor = Supervisor()
    before = threading.excepthook
    supervisor.watch_threads()
    try:
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join(WAIT_S)
    finally:
        threading.excepthook = before
    assert "ZeroDivisionError" in supervisor.trouble("main")

    async def main() -> None:
        supervisor.watch_loop(asyncio.get_running_loop())
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert supervisor.record("event loop").failures == 1


def test_call_in_a_thread_passes_its_error_to_the_caller() -> None:
    assert run_in_thread("sum", lambda: 2).result(WAIT_S) == 2
    with pytest.raises(ZeroDivisionError):
        run_in_thread("sum", lambda: 1 / 0).result(WAIT_S)
