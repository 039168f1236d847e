"""Due times of checkpoints: rarer if they are expensive, sooner if a restart would repeat much work."""

import os
import threading
import zlib
from collections.abc import Iterator

import pytest

from schedd.store import checkpoint_writer
from schedd.store.checkpoint_writer import FORKED_SIZE, CheckpointWriter
from schedd.store.forked_call import ForkedCallFailed
from tests.store.event_builders import StoredState


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Clock time, and processor time of the engine's thread."""
    times = {"clock": 1000.0, "worked": 50.0}

    class FakeTime:
        @staticmethod
        def monotonic() -> float:
            return times["clock"]

        @staticmethod
        def thread_time() -> float:
            return times["worked"]

    monkeypatch.setattr(checkpoint_writer, "time", FakeTime)
    return times


def is_due(one: CheckpointWriter) -> bool:
    return one.is_due


def write_checkpoint(one: CheckpointWriter, took: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write one checkpoint with this processor time."""
    monkeypatch.setattr(one, "_make", lambda *_: took)
    one.start(StoredState(), lambda *_: None)
    assert one.finished(wait=True)


def test_idle_engine_rarely_writes_expensive_checkpoints(
    clocks: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = CheckpointWriter(5.0)
    assert is_due(one) is False
    clocks["clock"] += 5
    assert is_due(one)
    write_checkpoint(one, 2.0, monkeypatch)
    clocks["clock"] += 39
    assert is_due(one) is False
    clocks["clock"] += 1
    assert is_due(one)
    one.close()


def test_much_work_makes_checkpoints_more_frequent(
    clocks: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = CheckpointWriter(5.0)
    clocks["clock"] += 5
    assert is_due(one)
    write_checkpoint(one, 4.0, monkeypatch)
    clocks["clock"] += 12
    clocks["worked"] += 11.9  # less than three times the cost of a checkpoint
    assert is_due(one) is False
    clocks["worked"] += 0.1
    assert is_due(one)
    write_checkpoint(one, 0.1, monkeypatch)
    clocks["worked"] += 6
    assert is_due(one) is False  # however busy: not before ``every`` seconds
    clocks["clock"] += 5
    assert is_due(one)
    one.close()


@pytest.mark.parametrize(("worked", "rests"), [(0.0, 9.0), (60.0, 3.0)])
def test_checkpoint_thread_pauses_less_while_the_engine_works(
    clocks: dict[str, float], monkeypatch: pytest.MonkeyPatch, worked: float, rests: float
) -> None:
    one = CheckpointWriter(0.0)
    assert is_due(one)
    clocks["worked"] += worked
    waited: list[float] = []
    monkeypatch.setattr(one._caller_waits, "wait", waited.append)

    def parts() -> Iterator[bytes]:
        for _ in range(10):
            clocks["worked"] += 0.004
            clocks["clock"] += 0.004
            yield b"x"

    bodies: list[bytes] = []
    one.start(StoredState(parts()), lambda body, _: bodies.append(body))
    assert one.finished(wait=True)
    assert bodies
    assert waited == pytest.approx([0.004 * rests] * 10)
    one.close()


def test_a_checkpoint_under_way_is_abandoned_for_a_later_one() -> None:
    one = CheckpointWriter(0.0)
    assert is_due(one)
    begun = threading.Event()

    def endless() -> Iterator[bytes]:
        while True:
            begun.set()
            yield b"x"

    bodies: list[bytes] = []
    one.start(StoredState(endless()), lambda body, _: bodies.append(body))
    begun.wait()
    one.abandon()
    assert not one.finished()
    assert not bodies
    one.start(StoredState(iter([b"later"])), lambda body, _: bodies.append(body))
    assert one.finished(wait=True)
    assert [zlib.decompress(body) for body in bodies] == [b"later"]
    one.close()


@pytest.mark.parametrize("large", [0, 1, 1 << 14, 1 << 17])
def test_pieces_of_any_size_are_compressed_in_their_order(large: int) -> None:
    pieces: list[bytes | memoryview] = [b"", *(bytes([i]) * 700 for i in range(100)), b""]
    pieces[50:50] = [memoryview(b"m" * large), b"after"]
    bodies: list[bytes] = []
    one = CheckpointWriter(0.0)
    assert is_due(one)
    one.start(StoredState(iter(pieces)), lambda body, _: bodies.append(body))
    assert one.finished(wait=True)
    assert [zlib.decompress(body) for body in bodies] == [b"".join(pieces)]
    one.close()


def test_a_large_checkpoint_is_encoded_in_another_process() -> None:
    pieces = [b"", *(bytes([i]) * 7000 for i in range(100)), b"x" * (1 << 17)]
    bodies: list[bytes] = []

    def parts() -> Iterator[bytes]:
        yield str(os.getpid()).encode()
        yield from pieces

    one = CheckpointWriter(0.0)
    assert is_due(one)
    one.start(StoredState(parts(), FORKED_SIZE), lambda body, _: bodies.append(body))
    assert one.finished(wait=True)
    (body,) = map(zlib.decompress, bodies)
    assert body.endswith(b"".join(pieces))
    assert not body.startswith(str(os.getpid()).encode())
    one.close()


def test_a_large_checkpoint_is_encoded_here_if_no_process_can_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ForkedCallFailed("no process can be created")

    monkeypatch.setattr(checkpoint_writer, "call_in_fork", fail)
    bodies: list[bytes] = []
    one = CheckpointWriter(0.0)
    assert is_due(one)
    one.start(StoredState(iter([b"here"]), FORKED_SIZE), lambda body, _: bodies.append(body))
    assert one.finished(wait=True)
    assert [zlib.decompress(body) for body in bodies] == [b"here"]
    one.close()


def test_a_large_checkpoint_is_abandoned_with_its_process() -> None:
    one = CheckpointWriter(0.0)
    assert is_due(one)

    def endless() -> Iterator[bytes]:
        while True:
            yield os.urandom(1 << 15)

    bodies: list[bytes] = []
    one.start(StoredState(endless(), FORKED_SIZE), lambda body, _: bodies.append(body))
    one.abandon()
    assert not bodies
    one.close()


def test_checkpoints_of_another_process_are_more_frequent(
    clocks: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = CheckpointWriter(0.0)
    assert is_due(one)
    monkeypatch.setattr(checkpoint_writer, "call_in_fork", lambda *_: ((b"body", b"facts"), 4.0))
    one.start(StoredState(size=FORKED_SIZE), lambda *_: None)
    assert one.finished(wait=True)
    clocks["clock"] += 5
    clocks["worked"] += 5.9  # less than 1.5 times the cost of a checkpoint
    assert is_due(one) is False
    clocks["worked"] += 0.1
    assert is_due(one)
    one.close()


@pytest.mark.parametrize(
    ("worked", "size", "urgent"), [(60, FORKED_SIZE, True), (60, 0, False), (0, FORKED_SIZE, False)]
)
def test_only_large_checkpoints_of_a_busy_engine_are_urgent(
    clocks: dict[str, float], monkeypatch: pytest.MonkeyPatch, worked: float, size: int, urgent: bool
) -> None:
    monkeypatch.setattr(checkpoint_writer, "call_in_fork", lambda *_: ((b"body", b"facts"), 4.0))
    one = CheckpointWriter(0.0)
    assert is_due(one)
    clocks["worked"] += worked
    one.start(StoredState(size=size), lambda *_: None)
    assert one.finished(wait=True)
    assert one.is_urgent is urgent
    one.close()
