"""Calls in a forked process: their results, their failures, and what the process holds of the daemon's."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedd.store import forked_call
from schedd.store.forked_call import ForkedCallFailed, call_in_fork


def test_results_come_in_order_with_the_processor_time() -> None:
    large = os.urandom(3_000_000)

    def pieces() -> Iterator[bytes]:
        until = time.process_time() + 0.05
        while time.process_time() < until:
            yield b""
        yield b"first "
        yield large

    found, took = call_in_fork((pieces, lambda: [str(os.getpid()).encode()], list))
    assert found[0] == b"first " + large
    assert int(found[1]) != os.getpid()
    assert found[2] == b""
    assert took >= 0.05


def test_an_error_ends_only_the_process() -> None:
    def fails() -> Iterator[bytes]:
        yield b"some"
        raise ValueError("an error")

    with pytest.raises(ForkedCallFailed, match="its process failed"):
        call_in_fork((fails,))


def test_a_cancelled_process_is_killed() -> None:
    with pytest.raises(ForkedCallFailed, match="it was cancelled"):
        call_in_fork((_endless,), lambda: True)


def test_a_process_that_waits_for_a_lock_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_call, "_SILENCE_S", 0.4)
    lock = threading.Lock()
    lock.acquire()
    with pytest.raises(ForkedCallFailed, match="sent nothing"):
        call_in_fork((lambda: [bytes(lock.acquire())],))


def test_the_process_holds_no_port_of_the_daemon() -> None:
    """After a kill of the daemon the next one must be able to listen, while the process still works."""
    begun, go_on = os.pipe(), os.pipe()  # the process has its own copies, which it must have closed
    with socket.create_server(("127.0.0.1", 0)) as server:

        def open_files() -> Iterator[bytes]:
            yield " ".join(path.name for path in Path("/proc/self/fd").iterdir()).encode()

        (found,), _ = call_in_fork((open_files,))
        numbers = {int(name) for name in found.split()}
        assert not numbers & {server.fileno(), *begun, *go_on}
    for number in (*begun, *go_on):
        os.close(number)


def _endless() -> Iterator[bytes]:
    while True:
        yield b"x"
