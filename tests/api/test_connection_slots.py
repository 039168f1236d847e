"""Connection slots: choice of connections that are closed in favour of new ones."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from schedd.api.connection_slots import ConnectionSlots
from schedd.service.settings.daemon import LimitSettings

LIMITS = LimitSettings(connections=40, connections_per_address=10)


@dataclass(eq=False)
class FakeConnection:
    owner: str
    idleness: int = 2
    local: bool = False
    trusted: bool = False
    privileged: bool = False
    closed: bool = field(default=False)

    def evict(self) -> None:
        self.closed = True


def test_a_new_connection_replaces_the_oldest_silent_connection() -> None:
    slots = ConnectionSlots()
    held = [FakeConnection("a", idleness=1), *(FakeConnection("a") for _ in range(9))]
    assert all(slots.acquire(one, LIMITS) for one in held)
    assert slots.acquire(FakeConnection("a"), LIMITS)
    assert [one.closed for one in held] == [False, True] + [False] * 8


def test_connections_with_pending_responses_stay_open() -> None:
    slots = ConnectionSlots()
    assert all(slots.acquire(FakeConnection("a", idleness=0), LIMITS) for _ in range(10))
    assert not slots.acquire(FakeConnection("a"), LIMITS)
    assert slots.acquire(FakeConnection("b"), LIMITS)


def test_some_slots_are_reserved_for_known_clients() -> None:
    slots = ConnectionSlots()
    adapter = FakeConnection("known")
    assert slots.acquire(adapter, LIMITS)
    slots.trust(adapter)
    assert all(slots.acquire(FakeConnection(f"a{i // 10}", idleness=0), LIMITS) for i in range(29))
    assert not slots.acquire(FakeConnection("stranger"), LIMITS)
    assert all(slots.acquire(FakeConnection("known", idleness=0), LIMITS) for _ in range(5))
    assert all(slots.acquire(FakeConnection("uid 7", idleness=0, local=True), LIMITS) for _ in range(5))
    assert not slots.acquire(FakeConnection("known", idleness=0), LIMITS)
    assert not adapter.closed


def test_the_last_descriptors_are_reserved_for_known_clients_and_files() -> None:
    now, files = [0.0], [30]
    slots = ConnectionSlots(64, lambda: files[0] + len(slots._open), lambda: now[0])
    adapter = FakeConnection("known", idleness=0)
    assert slots.acquire(adapter, LIMITS)
    slots.trust(adapter)
    strangers = [FakeConnection(f"a{i // 9}", idleness=0) for i in range(9)]
    assert all(slots.acquire(one, LIMITS) for one in strangers)  # 30 files, 10 connections, 24 are kept
    assert not slots.acquire(FakeConnection("b", idleness=0), LIMITS)
    assert slots.acquire(FakeConnection("known", idleness=0), LIMITS)
    assert slots.acquire(FakeConnection("uid 0", idleness=0, local=True, privileged=True), LIMITS)
    assert all(
        slots.acquire(FakeConnection("known"), LIMITS) for _ in range(30)
    )  # they make room for each other
    assert 40 < 30 + len(slots._open) <= 64 - 12
    files[0], now[0] = 20, 1.0  # files were closed
    assert slots.acquire(FakeConnection("c", idleness=0), LIMITS)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 2), st.integers(0, 9)), max_size=200))
def test_slots_are_limited_and_all_are_released(
    steps: list[tuple[str, int, int]],
) -> None:
    limits = LimitSettings(connections=8, connections_per_address=3)
    slots = ConnectionSlots()
    held: list[FakeConnection] = []
    for owner, idleness, act in steps:
        one = FakeConnection(owner, idleness, local=owner == "f")
        if slots.acquire(one, limits):
            held.append(one)
        if act == 0 and held:
            slots.trust(held[-1])
        if act == 1 and held:
            slots.release(held.pop(0))
        held = [one for one in held if not one.closed]
        assert len(held) <= 8
        assert all(sum(other.owner == one.owner for other in held) <= 3 for one in held)
        assert not any(one.trusted and one.closed for one in held)
    for one in held:
        slots.release(one)
    assert all(slots.acquire(FakeConnection(f"n{i}", 0), limits) for i in range(6))
