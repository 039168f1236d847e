"""Reservations that wait for nodes: one after the other, with the plan's nodes or a refusal."""

from dataclasses import dataclass, field

import pytest

from schedd.wire import ShareFacts
from server_adapter.bridge.daemon_client import DaemonAwayError, DaemonRefusedError, Place
from server_adapter.bridge.reservations import Reservations
from server_adapter.bridge.state import State, Wish

pytestmark = pytest.mark.anyio
NOW = 1_000
SHARES = (ShareFacts("n1", 4, 8),)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Plan:
    """Answers what-if."""

    answer: Place | Exception
    asked: list[int] = field(default_factory=list)

    async def what_if(self, resources: dict[str, str], *, not_before: int) -> Place:
        assert resources
        self.asked.append(not_before)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass
class Server:
    """Takes what is confirmed."""

    told: list[tuple[str, tuple[ShareFacts, ...]]] = field(default_factory=list)

    async def confirm(self, name: str, wish: Wish, shares: tuple[ShareFacts, ...]) -> None:
        assert wish.resources
        self.told.append((name, shares))


def wishes(**starts: int) -> State:
    return State(
        wishes={name: Wish(start, {"select": "1:ncpus=4"}, "1:ncpus=4") for name, start in starts.items()}
    )


def house(answer: Place | Exception) -> tuple[Reservations, Server, Plan]:
    server, plan = Server(), Plan(answer)
    return Reservations(server, plan, lambda: NOW), server, plan  # type: ignore[arg-type]


async def test_a_reservation_gets_the_nodes_that_the_plan_has_free_from_its_start_on() -> None:
    reservations, server, plan = house(Place(2_000, SHARES, ""))
    state = wishes(R1=2_000)
    assert await reservations.settle(state)
    assert (server.told, plan.asked) == ([("R1", SHARES)], [2_000])
    assert not await reservations.settle(state), "each is settled once"


async def test_nodes_that_are_free_only_later_are_a_refusal() -> None:
    reservations, server, _ = house(Place(2_500, SHARES, ""))
    await reservations.settle(wishes(R1=2_000))
    assert server.told == [("R1", ())]


async def test_a_request_that_nobody_understands_is_a_refusal() -> None:
    reservations, server, _ = house(DaemonRefusedError(422, "body: no such placing"))
    await reservations.settle(wishes(R1=2_000))
    assert server.told == [("R1", ())]


async def test_one_that_has_begun_already_begins_now() -> None:
    reservations, server, plan = house(Place(NOW, SHARES, ""))
    await reservations.settle(wishes(R1=NOW - 20))
    assert (server.told, plan.asked) == ([("R1", SHARES)], [NOW])


async def test_two_are_settled_one_after_the_other_so_that_they_do_not_get_the_same_nodes() -> None:
    reservations, server, _ = house(Place(2_000, SHARES, ""))
    state = wishes(R1=2_000, R2=2_000)
    await reservations.settle(state)
    assert [name for name, _ in server.told] == ["R1"]
    await reservations.settle(state)
    assert [name for name, _ in server.told] == ["R1", "R2"]


async def test_while_the_daemon_is_away_a_reservation_waits() -> None:
    reservations, server, plan = house(DaemonAwayError("no answer"))
    with pytest.raises(DaemonAwayError):
        await reservations.settle(wishes(R1=2_000))
    plan.answer = Place(2_000, SHARES, "")
    await reservations.settle(wishes(R1=2_000))
    assert server.told == [("R1", SHARES)]


async def test_a_standing_one_is_left_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    reservations, server, _ = house(Place(2_000, SHARES, ""))
    state = State(wishes={"R1": Wish(2_000, {"select": "1"}, "1", "standing ones are not confirmed")})
    await reservations.settle(state)
    assert not await reservations.settle(state)
    assert server.told == []
    assert caplog.text.count("standing ones") == 1
