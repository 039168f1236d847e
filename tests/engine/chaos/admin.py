"""Random actions of admins and booking users: reservations, planning holds, policies."""

from typing import Any, Literal

from hypothesis import strategies as st
from hypothesis.stateful import rule

from schedd.wire import (
    Act,
    Book,
    BookingStep,
    Event,
    PlanningHeld,
    PlanningReleased,
    PolicyChanged,
    Reserve,
    Unreserve,
)
from tests.engine.chaos.shell import Shell
from tests.engine.chaos.values import BOOKING_ACTS, MORE, POLICIES, names, queues

Kind = Literal["node", "queue"]


class ByAdmin(Shell):
    """Reservations, bookings, holds of planning, pauses, and other policies."""

    policies = 0
    """How many there were."""

    @rule(
        name=st.sampled_from(["r1", "r2"]),
        nodes=st.lists(names | st.just("n9"), min_size=1, max_size=3, unique=True),
        start=st.integers(-100, 2000),
        length=st.none() | st.integers(1, 2000),
        more=st.sampled_from(MORE),
    )
    def reserve(
        self, name: str, nodes: list[str], start: int, length: int | None, more: dict[str, Any]
    ) -> None:
        begin = self.server.now + start
        end = begin + length if length else None
        event = Reserve(
            id=self.server.event_id(),
            time=self.server.now,
            name=name,
            nodes=tuple(nodes),
            start=begin,
            end=end,
            **more,
        )
        self.line.append(event)
        self._deliver()

    @rule(name=st.sampled_from(["r1", "r2"]))
    def unreserve(self, name: str) -> None:
        self.line.append(Unreserve(id=self.server.event_id(), time=self.server.now, name=name))
        self._deliver()

    @rule(
        name=st.sampled_from(["b1", "b2", "b3"]),
        nodes=st.sampled_from(["1:ppn=2", "2:ppn=1", "1:ppn=4"]),
        start=st.integers(0, 2000),
        spare=st.integers(0, 2000),
        length=st.integers(1, 1000),
        until=st.none() | st.integers(1, 500),
    )
    def book(self, name: str, nodes: str, start: int, spare: int, length: int, until: int | None) -> None:
        ready = self.server.now + start
        event = Book(
            id=self.server.event_id(),
            time=self.server.now,
            name=name,
            owner="ann",
            resources={"nodes": nodes},
            duration=length,
            ready=ready,
            deadline=ready + length + spare,
            freeze=spare % 101,
            until=self.server.now + until if until is not None else None,
        )
        self.line.append(event)
        self._deliver()

    @rule(name=st.sampled_from(["b1", "b2", "b3"]), act=st.sampled_from(BOOKING_ACTS))
    def do_with_booking(self, name: str, act: Act) -> None:
        self.line.append(
            BookingStep(id=self.server.event_id(), time=self.server.now, name=name, act=act, option=1)
        )
        self._deliver()

    @rule(why=st.sampled_from(["", "upgrade"]))
    def pause(self, why: str) -> None:
        if why:
            self.engine.pause(why)
        else:
            self.engine.resume()

    @rule(
        nodes=st.lists(names | st.just("n9"), max_size=4, unique=True),
        some=st.lists(queues, max_size=2, unique=True),
        held=st.booleans(),
    )
    def hold_planning(self, nodes: list[str], some: list[str], held: bool) -> None:
        """Nodes and queues are held or released by one batch."""
        tell = self._held if held else self._released
        self.line += [tell("node", name) for name in nodes]
        self.line += [tell("queue", name) for name in some]
        self._deliver()

    def _held(self, kind: Kind, name: str) -> Event:
        server = self.server
        return PlanningHeld(
            id=server.event_id(), time=server.now, kind=kind, name=name, reason="repair", by="root"
        )

    def _released(self, kind: Kind, name: str) -> Event:
        return PlanningReleased(id=self.server.event_id(), time=self.server.now, kind=kind, name=name)

    @rule(which=st.lists(st.sampled_from(POLICIES), min_size=1, max_size=3))
    def change_policy(self, which: list[dict[str, Any] | None]) -> None:
        """The policy becomes another, perhaps several times within one batch, or is withdrawn."""
        for site in which:
            self.policies += 1
            version = self.policies if site is not None else 0
            self.line.append(
                PolicyChanged(
                    id=self.server.event_id(),
                    time=self.server.now,
                    version=version,
                    site=site or {},
                    by="root",
                )
            )
        self._deliver()
