"""Flexible bookings on one machine: the set-up of Netto's thesis (2009), 3.6, over the engine's own bookings.

Every job of a log asks for its cores as a booking with a window; it is accepted, or refused with
counter-offers.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from schedd.engine import Engine, EngineSettings
from schedd.features.bookings.state import Booking, booking_table
from schedd.policy.site import site_policy
from schedd.replay.machine_state import ReplayDefectError
from schedd.replay.workload import TraceError, TraceJob
from schedd.wire import Act, Book, BookingStep, Event, NodeChanged, NodeFacts

PROCS: Final = 128
DAYS: Final = 15
_DAY: Final = 86_400
_YEAR: Final = 366 * _DAY  # the most that the settings allow
_SHORTEST: Final = 60  # shorter jobs are left out, as there
_DEADLINE: Final = 5  # mean time from submission to deadline, in run times (Poisson)
_PRECISION: Final = 80
"""Mean run time in percent of the estimate, where estimates are too long (Poisson)."""
_BEGIN: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: ``length`` seconds on ``cpus`` between ``ready`` and ``deadline``; the job uses ``run``
    seconds. Seconds from the beginning of the window on.
    """

    submit: int
    length: int
    run: int
    cpus: int
    ready: int
    deadline: int


@dataclass(frozen=True, slots=True)
class Booked:
    """Outcome of the bookings. ``used``: share of the machine that jobs ran on until the window's end.
    ``moved``: bookings that were moved at least once, ``moves`` of all. ``offered``: bookings that took a
    counter-offer, off their window by ``stretch`` lengths in the mean (None: no booking did). ``breaches``:
    bookings that began outside of their accepted window, or elsewhere than they were frozen; always 0.
    """

    asked: int
    taken: int
    used: float
    moved: int
    moves: int
    offered: int
    stretch: float | None
    breaches: int


def asked_of(
    jobs: Sequence[TraceJob], window: int, windows: int, more: int, flex: int, seed: int, *, exact: bool
) -> list[Asked]:
    """Return the requests of the jobs of one stretch of a log, which is divided into ``windows`` equal
    stretches, from number 0.

    Submissions are ``more`` percent denser than the log's. ``flex``: half of all windows are longer than the
    booking, in the mean by this percentage of it (Poisson); 0: none. Not ``exact``: jobs end early. The same
    seed draws the same deadlines, whatever the other arguments. Raises TraceError.
    """
    fit = sorted((one for one in jobs if one.run >= _SHORTEST and one.procs <= PROCS), key=_submitted)
    span = int(DAYS * _DAY * (1 + more / 100))
    first, last = fit[0].submit, fit[-1].submit
    if windows * span > last - first:
        most = (last - first) // span
        raise TraceError(f"{windows} windows of {span // _DAY} days are needed, and the log has {most}")
    begin = first + (last - first - span) * window // max(1, windows - 1)
    chosen = [one for one in fit if begin <= one.submit < begin + span]
    random = np.random.default_rng(seed)
    lengths = np.maximum(1, random.poisson(_DEADLINE, len(chosen)))
    flexed = random.random(len(chosen)) < 0.5
    shares = random.poisson(_PRECISION, len(chosen))
    longer = random.poisson(flex, len(chosen))
    found: list[Asked] = []
    for i, one in enumerate(chosen):
        submit = int((one.submit - begin) / (1 + more / 100))
        ready = submit + one.run * int(lengths[i] - 1)
        spare = one.run * int(longer[i]) // 100 if flexed[i] else 0
        run = one.run if exact else max(1, one.run * min(100, int(shares[i])) // 100)
        found.append(Asked(submit, one.run, run, one.procs, ready, ready + one.run + spare))
    return found


def _submitted(job: TraceJob) -> int:
    return job.submit


def book_all(wishes: Sequence[Asked], order: str, freeze: int, accept: float | None = None) -> Booked:
    """Book them one after the other on one machine under the ``order`` of a site. Each stays where it is from
    ``freeze`` percent of its wait on. ``accept``: a refused job takes the nearest counter-offer that is off
    by at most this number of its lengths. Raises Defect when a promise was broken.
    """
    return _BookingRequests(wishes, order, freeze, accept).run()


class _BookingRequests:
    """One machine, its bookings, and the next requests."""

    def __init__(self, wishes: Sequence[Asked], order: str, freeze: int, accept: float | None) -> None:
        rules = {"most": len(wishes) + 1, "longest": _YEAR, "ahead": _YEAR, "order": order}
        settings = EngineSettings(
            site=site_policy({"bookings": rules}), end_allowance=0, publish_starts=False, search_every=0
        )
        self._engine = Engine(settings, _BEGIN)
        self._wishes, self._freeze, self._accept = wishes, freeze, accept
        self._ends: list[tuple[int, int]] = []  # times of ends before the end of the booking
        self._began: dict[int, int] = {}
        self._frozen: dict[int, int] = {}
        self._window: dict[int, tuple[int, int]] = {}
        self._moves: dict[int, int] = {}
        self._stretches: list[float] = []
        self._breaches = 0

    def run(self) -> Booked:
        node = NodeFacts(name="machine", cpus=PROCS)
        self._handle([NodeChanged(id="n", time=_BEGIN, node=node)], _BEGIN)
        for i, wish in enumerate(self._wishes):
            now = _BEGIN + wish.submit
            self._until(now)
            self._ask(i, wish, now)
        self._until(1 << 40)
        return self._figures()

    def _until(self, now: int) -> None:
        """Let time pass: ends of jobs that are early, and what the engine wants to be called for."""
        while True:
            wake = self._engine.next_wake
            due = min(self._ends[0][0] if self._ends else now, wake if wake is not None else now)
            if due >= now:
                return
            events: list[Event] = []
            while self._ends and self._ends[0][0] <= due:
                events.append(self._step(heapq.heappop(self._ends)[1], "cancel", due))
            self._handle(events, due)

    def _step(self, i: int, act: Act, now: int, option: int = 0) -> BookingStep:
        return BookingStep(id=f"{act}{i}", time=now, name=str(i), act=act, option=option, by="user")

    def _ask(self, i: int, wish: Asked, now: int) -> None:
        event = Book(
            id=f"b{i}",
            time=now,
            name=str(i),
            owner="user",
            resources={"procs": str(wish.cpus), "walltime": str(wish.length)},
            duration=wish.length,
            ready=_BEGIN + wish.ready,
            deadline=_BEGIN + wish.deadline,
            freeze=self._freeze,
        )
        self._window[i] = event.ready, event.deadline
        self._handle([event], now)
        booking = booking_table(self._engine.state)[str(i)]
        if booking.phase != "refused":
            return
        del self._window[i]
        best = min(booking.options, key=lambda one: abs(one.stretch), default=None)
        if self._accept is None or best is None or abs(best.stretch) > self._accept:
            return
        self._window[i] = best.start, best.end
        self._handle([self._step(i, "accept", now, booking.options.index(best) + 1)], now)
        if booking_table(self._engine.state)[str(i)].phase == "refused":
            del self._window[i]
        else:
            self._stretches.append(abs(best.stretch))

    def _handle(self, events: list[Event], now: int) -> None:
        self._engine.handle(events, now)
        for name, booking in booking_table(self._engine.state).items():
            self._see(int(name), booking)

    def _see(self, i: int, booking: Booking) -> None:
        """Record the start, and check it against the accepted window."""
        if booking.phase == "frozen":
            self._breaches += self._frozen.setdefault(i, booking.start) != booking.start
        elif booking.phase == "open" and i not in self._began:
            self._began[i] = booking.start
            ready, deadline = self._window[i]
            late = booking.start < ready or booking.end > deadline
            if self._wishes[i].run < self._wishes[i].length:
                heapq.heappush(self._ends, (booking.start + self._wishes[i].run, i))
            self._breaches += late or self._frozen.get(i, booking.start) != booking.start
        self._moves[i] = max(self._moves.get(i, 0), sum(before >= 0 for _, before, _ in booking.moves))

    def _figures(self) -> Booked:
        if len(self._began) != len(self._window):
            raise ReplayDefectError(f"{len(self._window)} bookings were taken, and {len(self._began)} began")
        end = _BEGIN + DAYS * _DAY
        used = sum(
            max(0, min(end, start + self._wishes[i].run) - start) * self._wishes[i].cpus
            for i, start in self._began.items()
        )
        return Booked(
            asked=len(self._wishes),
            taken=len(self._began),
            used=used / (PROCS * DAYS * _DAY),
            moved=sum(count > 0 for count in self._moves.values()),
            moves=sum(self._moves.values()),
            offered=len(self._stretches),
            stretch=float(np.mean(self._stretches)) if self._stretches else None,
            breaches=self._breaches,
        )
