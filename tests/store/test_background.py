"""When checkpoints are due: seldom where they are dear, soon where a restart would have much to do again."""

from collections.abc import Iterator

import pytest

from schedd.store import checkpoint_writer
from schedd.store.checkpoint_writer import CheckpointWriter
from tests.store.build import AState


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Clock time, and processor time of the engine's thread."""
    told = {"clock": 1000.0, "worked": 50.0}

    class Told:
        @staticmethod
        def monotonic() -> float:
            return told["clock"]

        @staticmethod
        def thread_time() -> float:
            return told["worked"]

    monkeypatch.setattr(checkpoint_writer, "time", Told)
    return told


def is_due_after_wait(one: CheckpointWriter) -> bool:
    return one.is_due


def write_checkpoint(one: CheckpointWriter, took: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write one checkpoint with this processor time."""
    monkeypatch.setattr(one, "_make", lambda *_: took)
    one.start(AState(), lambda *_: None)
    assert one.finished(wait=True)


def test_expensive_checkpoints_of_an_idle_engine_are_rare(
    clocks: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = CheckpointWriter(5.0)
    assert is_due_after_wait(one) is False
    clocks["clock"] += 5
    assert is_due_after_wait(one)
    write_checkpoint(one, 2.0, monkeypatch)
    clocks["clock"] += 39
    assert is_due_after_wait(one) is False
    clocks["clock"] += 1
    assert is_due_after_wait(one)
    one.close()


def test_after_much_work_it_is_made_sooner(clocks: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    one = CheckpointWriter(5.0)
    clocks["clock"] += 5
    assert is_due_after_wait(one)
    write_checkpoint(one, 4.0, monkeypatch)
    clocks["clock"] += 12
    clocks["worked"] += 11.9  # less than three times the cost of a checkpoint
    assert is_due_after_wait(one) is False
    clocks["worked"] += 0.1
    assert is_due_after_wait(one)
    write_checkpoint(one, 0.1, monkeypatch)
    clocks["worked"] += 6
    assert is_due_after_wait(one) is False  # however busy: not before ``every`` seconds
    clocks["clock"] += 5
    assert is_due_after_wait(one)
    one.close()


@pytest.mark.parametrize(("worked", "rests"), [(0.0, 9.0), (60.0, 3.0)])
def test_the_thread_rests_less_while_the_engine_works(
    clocks: dict[str, float], monkeypatch: pytest.MonkeyPatch, worked: float, rests: float
) -> None:
    one = CheckpointWriter(0.0)
    assert is_due_after_wait(one)
    clocks["worked"] += worked
    waited: list[float] = []
    monkeypatch.setattr(one._caller_waits, "wait", waited.append)

    def parts() -> Iterator[bytes]:
        for _ in range(10):
            clocks["worked"] += 0.004
            yield b"x"

    bodies: list[bytes] = []
    one.start(AState(parts()), lambda body, _: bodies.append(body))
    assert one.finished(wait=True)
    assert bodies
    assert waited == pytest.approx([0.004 * rests] * 10)
    one.close()
