"""Reservations that wait for nodes: one after the other, with the plan's nodes or a refusal."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from schedd.wire import ShareFacts
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.bridge.daemon_client import (
    AnotherAdapterError,
    DaemonAwayError,
    DaemonRefusedError,
    PossibleStart,
    QuestionTooHardError,
)
from server_adapter.bridge.delivery import ANOTHER_ADAPTER
from server_adapter.bridge.reservations import ReservationConfirmer
from server_adapter.bridge.server import OccurrencePlacement
from server_adapter.bridge.state import PendingReservation, ReservationOccurrence, ServerState

pytestmark = pytest.mark.anyio
NOW = 1_000
SHARES = (ShareFacts("n1", 4, 8),)


@dataclass
class Plan:
    """Answers what-if."""

    answer: PossibleStart | Exception | Callable[[int], PossibleStart]
    asked: list[int] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)

    async def earliest_start(
        self, resources: dict[str, str], *, not_before: int, queue: str
    ) -> PossibleStart:
        assert resources
        self.asked.append(not_before)
        self.queues.append(queue)
        answer = self.answer(not_before) if callable(self.answer) else self.answer
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class RecordingServer:
    """Records confirmations."""

    told: list[tuple[str, list[OccurrencePlacement]]] = field(default_factory=list)
    refusals: int = 0

    async def settle_reservation(
        self, name: str, wish: PendingReservation, places: list[OccurrencePlacement]
    ) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ServerRefusedError(15999, "not now", "confirm it")
        assert not places or len(places) == len(wish.slots)
        self.told.append((name, places))


def slot(start: int) -> ReservationOccurrence:
    return ReservationOccurrence(start, {"select": "1:ncpus=4"}, "1:ncpus=4")


def pending_reservations(**starts: int) -> ServerState:
    return ServerState(
        pending_reservations={
            name: PendingReservation((slot(start),), begin=start) for name, start in starts.items()
        }
    )


def house(
    answer: PossibleStart | Exception | Callable[[int], PossibleStart],
) -> tuple[ReservationConfirmer, RecordingServer, Plan]:
    server, plan = RecordingServer(), Plan(answer)
    return ReservationConfirmer(server, plan, lambda: NOW), server, plan  # type: ignore[arg-type]


async def test_a_reservation_gets_the_nodes_that_the_plan_has_free_from_its_start_on() -> None:
    reservations, server, plan = house(PossibleStart(2_000, SHARES, ""))
    state = pending_reservations(R1=2_000)
    assert await reservations.settle(state)
    assert (server.told, plan.asked) == ([("R1", [OccurrencePlacement(2_000, SHARES)])], [2_000])
    assert not await reservations.settle(state), "each is settled once"


async def test_a_reservation_that_waits_again_after_it_had_nodes_is_settled_again() -> None:
    """As one does that lost its nodes twice, or whose server was killed before it stored the nodes."""
    reservations, server, _ = house(PossibleStart(2_000, SHARES, ""))
    waiting = pending_reservations(R1=2_000)
    assert await reservations.settle(waiting)
    assert not reservations.has_open(ServerState())  # it has nodes
    assert reservations.has_open(waiting)
    assert await reservations.settle(waiting)
    assert [name for name, _ in server.told] == ["R1", "R1"]


async def test_nodes_that_are_free_only_later_are_a_refusal() -> None:
    reservations, server, _ = house(PossibleStart(2_500, SHARES, ""))
    await reservations.settle(pending_reservations(R1=2_000))
    assert server.told == [("R1", [])]


async def test_a_request_that_nobody_understands_is_a_refusal() -> None:
    reservations, server, _ = house(DaemonRefusedError(422, "body: no such placing"))
    await reservations.settle(pending_reservations(R1=2_000))
    assert server.told == [("R1", [])]


async def test_a_reservation_past_its_start_begins_now() -> None:
    reservations, server, plan = house(PossibleStart(NOW, SHARES, ""))
    await reservations.settle(pending_reservations(R1=NOW - 20))
    assert (server.told, plan.asked) == ([("R1", [OccurrencePlacement(NOW - 20, SHARES)])], [NOW])


async def test_two_reservations_are_settled_in_sequence_on_different_nodes() -> None:
    reservations, server, _ = house(PossibleStart(2_000, SHARES, ""))
    state = pending_reservations(R1=2_000, R2=2_000)
    await reservations.settle(state)
    assert [name for name, _ in server.told] == ["R1"]
    await reservations.settle(state)
    assert [name for name, _ in server.told] == ["R1", "R2"]


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = float(NOW)

    def __call__(self) -> float:
        return self.now


def house_with_clock(
    answer: PossibleStart | Exception,
) -> tuple[ReservationConfirmer, RecordingServer, Plan, Clock]:
    server, plan, clock = RecordingServer(), Plan(answer), Clock()
    return ReservationConfirmer(server, plan, clock), server, plan, clock  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [
        DaemonAwayError("no answer"),
        DaemonRefusedError(401, "no valid token"),
        DaemonRefusedError(403, "the token is of another role"),
        DaemonRefusedError(404, "no such cluster"),
        AnotherAdapterError(409, ANOTHER_ADAPTER),
    ],
)
async def test_a_fault_that_is_not_the_users_never_refuses_a_reservation(error: Exception) -> None:
    reservations, server, plan, clock = house_with_clock(error)
    state = pending_reservations(R1=20_000)
    for _ in range(12):
        assert await reservations.settle(state)
        assert not reservations.has_open(state)
        clock.now += 60
        assert reservations.has_open(state)
    assert server.told == []
    plan.answer = PossibleStart(20_000, SHARES, "")
    await reservations.settle(state)
    assert server.told == [("R1", [OccurrencePlacement(20_000, SHARES)])]


async def test_a_reservation_that_is_too_hard_lets_others_go_first_and_is_refused_after_five_attempts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reservations, server, plan, clock = house_with_clock(QuestionTooHardError("more work than allowed"))
    state = pending_reservations(R1=20_000, R2=20_000)
    assert await reservations.settle(state)
    plan.answer = PossibleStart(20_000, SHARES, "")
    assert await reservations.settle(state)
    assert [name for name, _ in server.told] == ["R2"]
    plan.answer = QuestionTooHardError("more work than allowed")
    waited = []
    while not any(name == "R1" for name, _ in server.told):
        begin = clock.now
        while not reservations.has_open(state):
            clock.now += 1
        waited.append(clock.now - begin)
        assert await reservations.settle(state)
    assert waited == [5, 10, 20, 40]
    assert server.told[-1] == ("R1", [])
    assert "R1 was refused: more work than allowed (after 5 attempts)" in caplog.text
    assert not reservations.has_open(state)
    assert reservations.has_open(pending_reservations(R1=30_000)), "altered, it is another question"


async def test_a_confirmation_that_the_server_refuses_is_tried_again_and_given_up_in_the_end() -> None:
    reservations, server, _, clock = house_with_clock(PossibleStart(20_000, SHARES, ""))
    state = pending_reservations(R1=20_000)
    server.refusals = 2
    for _ in range(3):
        assert await reservations.settle(state)
        clock.now += 60
    assert server.told == [("R1", [OccurrencePlacement(20_000, SHARES)])]
    server.refusals = 100
    altered = pending_reservations(R1=30_000)
    for _ in range(5):
        assert await reservations.settle(altered)
        clock.now += 60
    assert not reservations.has_open(altered)


async def test_a_clock_that_is_set_back_does_not_delay_the_next_attempt() -> None:
    reservations, _, _, clock = house_with_clock(DaemonAwayError("no answer"))
    state = pending_reservations(R1=20_000)
    await reservations.settle(state)
    assert not reservations.has_open(state)
    clock.now -= 900
    assert reservations.has_open(state)


async def test_a_standing_reservation_gets_all_occurrences_or_none() -> None:
    standing = ServerState(
        pending_reservations={
            "R1": PendingReservation((slot(2_000), slot(9_000)), standing=True, begin=2_000)
        }
    )
    reservations, server, plan = house(lambda begin: PossibleStart(begin, SHARES, ""))
    await reservations.settle(standing)
    assert server.told == [("R1", [OccurrencePlacement(2_000, SHARES), OccurrencePlacement(9_000, SHARES)])]
    assert plan.asked == [2_000, 9_000]
    reservations, server, _ = house(
        lambda begin: PossibleStart(2_000 if begin == 2_000 else begin + 60, SHARES, "")
    )
    await reservations.settle(standing)
    assert server.told == [("R1", [])]


async def test_a_time_that_keeps_its_nodes_is_no_question() -> None:
    reservations, server, plan = house(PossibleStart(9_000, SHARES, ""))
    wish = PendingReservation(
        (ReservationOccurrence(2_000, where="(n1:ncpus=4)"), slot(9_000)), standing=True
    )
    await reservations.settle(ServerState(pending_reservations={"R1": wish}))
    assert plan.asked == [9_000]
    assert server.told == [("R1", [OccurrencePlacement(2_000, ()), OccurrencePlacement(9_000, SHARES)])]


async def test_vnodes_of_an_altered_reservation_count_as_free_for_it() -> None:
    reservations, _, plan = house(PossibleStart(2_000, SHARES, ""))
    await reservations.settle(
        ServerState(pending_reservations={"R1": PendingReservation((slot(2_000),), queue="R1")})
    )
    assert plan.queues == ["R1"]


async def test_a_reservation_without_a_start_begins_at_the_earliest_fit() -> None:
    reservations, server, plan = house(PossibleStart(7_777, SHARES, ""))
    await reservations.settle(
        ServerState(pending_reservations={"R1": PendingReservation((slot(0),), begin=None)})
    )
    assert (plan.asked, server.told) == ([NOW], [("R1", [OccurrencePlacement(7_777, SHARES)])])


async def test_a_reservation_altered_again_is_settled_again_and_a_premature_one_waits() -> None:
    reservations, server, _ = house(lambda begin: PossibleStart(begin, SHARES, ""))
    await reservations.settle(pending_reservations(R1=2_000))
    assert not await reservations.settle(pending_reservations(R1=2_000))
    assert await reservations.settle(pending_reservations(R1=3_000))
    later = ServerState(pending_reservations={"R1": PendingReservation((slot(4_000),), since=NOW + 1)})
    assert not reservations.has_open(later)
    assert not await reservations.settle(later)
    assert [places[0].start for _, places in server.told] == [2_000, 3_000]


async def test_an_impossible_reservation_is_refused_once_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reservations, server, _ = house(PossibleStart(2_000, SHARES, ""))
    state = ServerState(pending_reservations={"R1": PendingReservation((), problem="500 times are too many")})
    await reservations.settle(state)
    assert not await reservations.settle(state)
    assert server.told == [("R1", [])]
    assert caplog.text.count("500 times") == 1
