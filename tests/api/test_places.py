"""Places for connections: who makes room for whom."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from schedd.api.places import Places
from schedd.service.settings.file import LimitSettings

LIMITS = LimitSettings(connections=40, connections_one=10)


@dataclass(eq=False)
class Held:
    whose: str
    idleness: int = 2
    local: bool = False
    trusted: bool = False
    privileged: bool = False
    closed: bool = field(default=False)

    def make_room(self) -> None:
        self.closed = True


def test_a_newcomer_takes_the_place_of_the_oldest_that_said_nothing() -> None:
    places = Places()
    held = [Held("a", idleness=1), *(Held("a") for _ in range(9))]
    assert all(places.take(one, LIMITS) for one in held)
    assert places.take(Held("a"), LIMITS)
    assert [one.closed for one in held] == [False, True] + [False] * 8


def test_who_waits_for_an_answer_makes_no_room() -> None:
    places = Places()
    assert all(places.take(Held("a", idleness=0), LIMITS) for _ in range(10))
    assert not places.take(Held("a"), LIMITS)
    assert places.take(Held("b"), LIMITS)


def test_a_quarter_is_kept_for_the_socket_and_for_those_who_are_known() -> None:
    places = Places()
    adapter = Held("known")
    assert places.take(adapter, LIMITS)
    places.trust(adapter)
    assert all(places.take(Held(f"a{i // 10}", idleness=0), LIMITS) for i in range(29))
    assert not places.take(Held("stranger"), LIMITS)
    assert all(places.take(Held("known", idleness=0), LIMITS) for _ in range(5))
    assert all(places.take(Held("uid 7", idleness=0, local=True), LIMITS) for _ in range(5))
    assert not places.take(Held("known", idleness=0), LIMITS)
    assert not adapter.closed


def test_the_last_descriptors_are_kept_for_those_who_are_known_and_for_files() -> None:
    now, files = [0.0], [30]
    places = Places(64, lambda: files[0] + len(places._open), lambda: now[0])
    adapter = Held("known", idleness=0)
    assert places.take(adapter, LIMITS)
    places.trust(adapter)
    strangers = [Held(f"a{i // 9}", idleness=0) for i in range(9)]
    assert all(places.take(one, LIMITS) for one in strangers)  # 30 files, 10 connections, 24 are kept
    assert not places.take(Held("b", idleness=0), LIMITS)
    assert places.take(Held("known", idleness=0), LIMITS)
    assert places.take(Held("uid 0", idleness=0, local=True, privileged=True), LIMITS)
    assert all(places.take(Held("known"), LIMITS) for _ in range(30))  # they make room for each other
    assert 40 < 30 + len(places._open) <= 64 - 12
    files[0], now[0] = 20, 1.0  # files were closed
    assert places.take(Held("c", idleness=0), LIMITS)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 2), st.integers(0, 9)), max_size=200))
def test_there_are_never_more_than_allowed_and_all_are_given_back(
    steps: list[tuple[str, int, int]],
) -> None:
    limits = LimitSettings(connections=8, connections_one=3)
    places = Places()
    held: list[Held] = []
    for whose, idleness, act in steps:
        one = Held(whose, idleness, local=whose == "f")
        if places.take(one, limits):
            held.append(one)
        if act == 0 and held:
            places.trust(held[-1])
        if act == 1 and held:
            places.give_back(held.pop(0))
        held = [one for one in held if not one.closed]
        assert len(held) <= 8
        assert all(sum(other.whose == one.whose for other in held) <= 3 for one in held)
        assert not any(one.trusted and one.closed for one in held)
    for one in held:
        places.give_back(one)
    assert all(places.take(Held(f"n{i}", 0), limits) for i in range(6))
