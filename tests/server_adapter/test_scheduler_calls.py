"""A server that does not call its scheduler is found out."""

import socket

import pytest

from server_adapter.torque.scheduler_calls import CallWatch, explain, scheduler_address


class ManualClock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_jobs_that_arrive_without_a_call_are_noticed_after_fifteen_seconds(clock: ManualClock) -> None:
    watch = CallWatch(clock)
    clock.now = 5
    watch.note_reading(arrivals=True)
    found = []
    for clock.now in (20, 21):
        found.append(watch.missing)
    watch.note_reading(arrivals=True)
    found.append(watch.missing)
    watch.note_call()
    found.append(watch.missing)
    assert found == [False, True, True, False]


def test_a_call_before_the_reading_that_shows_the_job_counts(clock: ManualClock) -> None:
    watch = CallWatch(clock)
    clock.now = 4
    watch.note_call()
    clock.now = 5
    watch.note_reading(arrivals=True)
    clock.now = 100
    assert not watch.missing


def test_without_arrivals_no_call_is_missing(clock: ManualClock) -> None:
    watch = CallWatch(clock)
    for clock.now in range(0, 1000, 5):
        watch.note_reading(arrivals=False)
    assert not watch.missing


def test_a_server_that_calls_nobody_at_present_misses_no_call(clock: ManualClock) -> None:
    watch = CallWatch(clock)
    watch.note_reading(arrivals=True)
    watch.note_pause()
    clock.now = 100
    assert not watch.missing


def test_the_scheduler_address_of_a_local_server_is_that_of_the_host_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "head")
    monkeypatch.setattr(socket, "gethostbyname", {"head": "192.0.2.7", "far.example": "192.0.2.9"}.get)
    assert scheduler_address("127.0.0.1") == ("head", "192.0.2.7")
    assert scheduler_address("far.example") == ("far.example", "192.0.2.9")


def test_the_explanation_names_the_address_to_listen_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "head")
    monkeypatch.setattr(socket, "gethostbyname", lambda _: "192.0.2.7")
    assert explain("127.0.0.1", "127.0.0.1", 15004, 0).endswith(
        "it calls the address of its host name, head = 192.0.2.7, and the adapter listens on 127.0.0.1: "
        'set listen.host = "192.0.2.7" and add that address to listen.peers'
    )
    assert "3 calls were refused, since their sender is not in listen.peers" in explain("h", "h", 1, 3)
    assert "is that the server's scheduler port?" in explain("127.0.0.1", "192.0.2.7", 15005, 0)
