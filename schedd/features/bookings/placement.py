"""Jobs that run in a booking: their booking, whether they may start, and the booking's remaining capacity.

The plan holds the unused part of a booking in *booking slots*: fixed slots, each over one interval, which
hold what no job of the booking uses. A job takes its placement from them at its start.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from schedd.dialect.advres import read_advres
from schedd.engine.component.placement_hooks import is_known_reservation
from schedd.engine.facts.explanations import format_moment
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.records import Cause, JobRecord
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.bookings.state import (
    LIVE,
    Booking,
    Piece,
    PublishedBookings,
    Share,
    booking_table,
    lookup_key,
    published_bookings,
)
from schedd.features.transfers.state import job_transfer, transfer_state
from schedd.model import FOREVER, Chunk, Place, Request, WaitingFor
from schedd.plan.columns import CPUS, GPUS, SHARE, UNPLACED
from schedd.plan.records import Take
from schedd.wire import JobFacts

_PIECE = Request((Chunk(cpus=0),), Place.FREE)


def find_booking(state: EngineState, record: JobRecord) -> Booking | None:
    """Return the booking that a job must use; None: it may run anywhere.

    After the end of its booking a job runs like any other job. For a job that names a booking which its owner
    does not have, see ``missing_booking``.
    """
    bookings = booking_table(state)
    if not bookings:
        return None
    transfers = transfer_state(state)
    transfer = transfers.by_job.get(record.id)
    transferred = transfers.transfers.get(transfer) if transfer is not None else None
    if transfer is not None:
        its = find_transfer_booking(state, transfer)
        if its is not None or transferred is None or transferred.booked:
            return its
    named = transferred.booking if transferred is not None else ""
    name = named or read_advres(record.facts.resources)
    if not name:
        return None
    owner = record.facts.owner.partition("@")[0]
    found = bookings.get(lookup_key(bookings, name, owner))
    if found is None or found.phase not in LIVE or found.event.transfer:
        return None
    return found if owner == found.event.owner else None


def missing_booking(name: str, owner: str, bookings: Mapping[str, Booking]) -> WaitingFor | None:
    """Return the reason why a job that names no booking of its owner waits; None: it names one.

    The text is the same whether another user has a booking of that name or not.
    """
    found = bookings.get(lookup_key(bookings, name, owner.partition("@")[0]))
    if found is not None and _is_owners(found, owner):
        return None
    words = (
        f"reservation {name}, which its owner does not have: book it (schedd book) or remove advres from the "
        "job (qalter)"
    )
    return WaitingFor("reservation", words)


def _is_owners(booking: Booking, owner: str) -> bool:
    """Return whether a job of this owner may name the booking: it is its owner's, and was not refused."""
    owns = not booking.event.transfer and booking.event.owner == owner.partition("@")[0]
    return owns and booking.phase != "refused"


def owns_booking(known: EngineState | PlanSnapshot, facts: JobFacts, name: str) -> bool:
    bookings = booking_table(known) if isinstance(known, EngineState) else published_bookings(known)
    found = bookings.get(lookup_key(bookings, name, facts.owner.partition("@")[0]))
    return found is not None and _is_owners(found, facts.owner)


def names_booking(state: EngineState, booking: Booking) -> bool:
    """Whether a known job of its owner names this booking."""
    return any(
        read_advres(record.facts.resources) == booking.shown and _is_owners(booking, record.facts.owner)
        for record in state.records.values()
    )


def find_transfer_booking(state: EngineState, transfer: str) -> Booking | None:
    """Return the booking for the start of a transferred job: the newest confirmed one.

    While a co-allocation moves it has two: the present one and the new one.
    """
    found = [
        one for one in booking_table(state).values() if one.event.transfer == transfer and one.phase in LIVE
    ]
    return max(found, key=lambda one: (one.confirmed, one.event.time), default=None)


def idle_hooks(state: EngineState) -> tuple[str, ...]:
    """Without transferred jobs, only a job that names a reservation has to do with one."""
    return () if transfer_state(state).by_job else ("must_wait", "reason_to_replan", "confinement")


def wait_for_booking(state: EngineState, record: JobRecord) -> WaitingFor | None:
    """Return why a job with a booking must wait; None: it may be planned."""
    return _waits_for_booking(state, record, find_booking(state, record))


def _waits_for_booking(state: EngineState, record: JobRecord, booking: Booking | None) -> WaitingFor | None:
    """Return why a job that is confined to a booking cannot start now; None: it can."""
    if booking is None:
        transferred = job_transfer(state, record)
        if transferred is not None and transferred.booked:
            return WaitingFor("reservation", "the other components of its co-allocation")
        if transferred is not None and transferred.booking:
            return None
        facts = record.facts
        name = read_advres(facts.resources)
        if not name or is_known_reservation(state, name):
            return None
        return missing_booking(name, facts.owner, booking_table(state))
    if booking.phase != "open":
        words = f"reservation {booking.shown}, which begins at {format_moment(booking.start)}"
        return WaitingFor("reservation", words)
    if booking.event.until is not None and not booking.confirmed:
        return WaitingFor("reservation", f"reservation {booking.shown}, which is not confirmed yet")
    if booking.event.arming and not booking.armed:
        return WaitingFor(
            "reservation", "the confirmation that all components of its co-allocation may start"
        )
    begin = max(state.now, record.back_off.until)
    if begin + record.understood.walltime > booking.end and not booking.event.transfer:
        words = f"reservation {booking.shown}, which ends before its walltime is over"
        return WaitingFor("reservation", f"{words}: at {format_moment(booking.end)}")
    return None


def _place_in_booking(state: EngineState, record: JobRecord, booking: Booking) -> bool:
    """Place an unplaced job in its booking, to start now. Return False if the booking has no room now."""
    plan, now = state.plan, state.now
    free_booking_slots(state, booking)
    nodes = {node for node, _ in booking.held}
    begin = max(now, record.back_off.until)
    plan.set_ready(record.slot, begin)
    others = _block_others(state, booking, begin)
    with plan.excluding([row for row, name in plan.node_names.items() if name not in nodes]):
        placed = plan.place(record.slot, now, begin + 1) >= 0
    state.drop_slot(others)
    if placed and not _respects_booking(state, record, booking):
        plan.undo_place(record.slot)
        placed = False
    jobs = (*booking.jobs, record.id) if placed and record.id not in booking.jobs else booking.jobs
    booking_table(state)[booking.name] = replace(booking, slots=(), pieces=(), jobs=jobs)
    update_booking_slots(state, booking.name)
    return placed


def _block_others(state: EngineState, booking: Booking, begin: int) -> int:
    """Hold the free cores outside of a booking on its nodes for one second: a job that starts then finds only
    cores of the booking. Return the slot.
    """
    plan, used, takes = state.plan, _used_by_jobs(state, booking.jobs), []
    for node, has in booking.held:
        if node not in plan.node_rows:
            continue
        row = plan.node_rows[node]
        amounts = [0] * len(plan.resource_columns)
        taken = _sum([], used.get(node, []), len(amounts))
        for column in (CPUS, GPUS):
            own = max(0, has[column] - taken[column])
            amounts[column] = max(0, int(plan.timeline(row).at(begin)[column]) - own)
        takes.append(Take(row, 0, 1, tuple(amounts)))
    slot = state.new_slot(_PIECE, 1)
    plan.fix(slot, begin, takes)
    return slot


def _is_outside_booking(state: EngineState, record: JobRecord, booking: Booking) -> bool:
    """Return whether a job that had a placement in the booking was moved out of it."""
    if record.id not in booking.jobs:
        return False
    has = dict(booking.held)
    return any(
        node not in has or any(amounts[column] > has[node][column] for column in (CPUS, GPUS))
        for node, amounts in merge_takes(state, state.plan.takes(record.slot))
    )


def _respects_booking(state: EngineState, record: JobRecord, booking: Booking) -> bool:
    """Return whether the cores and gpus of a placed job and earlier ones are the booking's."""
    has = dict(booking.held)
    jobs = [*booking.jobs, *([] if record.id in booking.jobs else [record.id])]
    return all(
        node in has and amounts[column] <= has[node][column]
        for node, amounts in _used_by_jobs(state, jobs).items()
        for column in (CPUS, GPUS)
    )


def _used_by_jobs(state: EngineState, jobs: Iterable[str]) -> dict[str, list[int]]:
    """Return what these jobs hold together, by node."""
    used: dict[str, list[int]] = {}
    for _, _, shares in _held_by_jobs(state, jobs):
        for node, amounts in shares:
            used[node] = _sum(used.get(node, []), amounts)
    return used


def _is_too_late(state: EngineState, record: JobRecord, booking: Booking) -> bool:
    """Return whether a job that starts now would hold cores of its booking beyond the booking's end, when
    others may use them. Components of a co-allocation may start late.
    """
    end = max(state.plan.end(record.slot), state.now + record.understood.walltime)
    return end > booking.end and not booking.event.transfer


def reason_to_replan(state: EngineState, record: JobRecord) -> tuple[Cause, str] | None:
    """Return why a due job must be planned again instead of started; None: it may start."""
    booking = find_booking(state, record)
    if booking is None:
        if _waits_for_booking(state, record, booking) is not None:
            return Cause.RESERVATION, "its co-allocation does not start here"
        return None
    if _is_outside_booking(state, record, booking):
        return Cause.RESERVATION, f"it runs only in reservation {booking.shown}"
    if _is_too_late(state, record, booking):
        return Cause.OUTAGE, f"its reservation {booking.shown} would end before its walltime is over"
    return None


@dataclass(frozen=True, slots=True)
class BookingConfinement:
    """A job that runs only in its booking; see ``Confinement``."""

    booking: Booking

    @property
    def missing_room(self) -> str:
        """What the job waits for when ``place`` found no room."""
        return f"room in reservation {self.booking.shown}"

    @property
    def keeps_place(self) -> bool:
        """Components of a co-allocation start however late they are."""
        return bool(self.booking.event.transfer)

    @property
    def start_by(self) -> int:
        """The latest start of a component of a co-allocation; FOREVER: any time."""
        event = self.booking.event
        return self.booking.start + event.late if event.transfer and event.late else FOREVER

    def place(self, state: EngineState, record: JobRecord) -> bool:
        """Place an unplaced job in its booking, to start now. Return False if there is no room now."""
        return _place_in_booking(state, record, self.booking)

    def start_late(self, state: EngineState) -> None:
        """Note that a job of the booking was moved to a later start: it holds its part longer."""
        update_booking_slots(state, self.booking.name)


def booking_confinement(state: EngineState, record: JobRecord) -> BookingConfinement | None:
    """Return the booking that confines a job; None: it may run anywhere."""
    booking = find_booking(state, record)
    return BookingConfinement(booking) if booking is not None else None


def wait_in_what_if(published: PlanSnapshot, facts: JobFacts, _: ParsedRequest) -> WaitingFor | None:
    """Return why a hypothetical job that names a booking has no planned start; None for any other job."""
    named = read_advres(facts.resources)
    if not named:
        return None
    bookings = published_bookings(published)
    if is_known_reservation(published, named) and not owns_booking(published, facts, named):
        return None
    missing = missing_booking(named, facts.owner, bookings)
    booking = bookings.get(lookup_key(bookings, named, facts.owner.partition("@")[0]))
    if missing is not None or booking is None or booking.phase in LIVE:
        return missing or WaitingFor("reservation", f"room in reservation {named}")
    return None


def booked_slots(state: EngineState) -> list[int]:
    """The slots that hold the unused parts of bookings."""
    return [slot for one in booking_table(state).values() for slot in one.slots]


def slot_names(state: EngineState) -> dict[int, str]:
    return {slot: one.shown for one in booking_table(state).values() for slot in one.slots}


def slots_named(published: PlanSnapshot, name: str, caller: str) -> tuple[int, ...] | None:
    """The slots of a booking that the caller has or made; None: there is none of this name."""
    bookings = published_bookings(published)
    booking = bookings.get(lookup_key(bookings, name, caller.partition("@")[0]))
    if booking is None or not {caller, caller.partition("@")[0]} & {booking.event.owner, booking.event.by}:
        return None
    return booking.slots


def booked_jobs(known: EngineState | PlanSnapshot) -> list[str]:
    """The jobs that have a place in a booking."""
    if isinstance(known, EngineState):
        table: Mapping[str, Booking] = booking_table(known)
    else:
        table = known.part(PublishedBookings).bookings
    return [job for booking in table.values() for job in booking.jobs]


def merge_takes(state: EngineState, takes: Iterable[Take]) -> tuple[Share, ...]:
    """Return the held amounts of each node, all takes of a node together."""
    found: dict[str, list[int]] = {}
    for take in takes:
        name = state.plan.node_names[take.row]
        found[name] = _sum(found.get(name, []), take.amounts)
    return tuple((name, tuple(amounts)) for name, amounts in sorted(found.items()))


def free_booking_slots(state: EngineState, booking: Booking) -> None:
    """Remove the slots that hold the unused part of a booking."""
    for slot in booking.slots:
        state.drop_slot(slot)


def update_booking_slots(state: EngineState, name: str) -> bool:
    """Hold in the plan what the jobs of a booking do not use. Return whether that changed."""
    booking = booking_table(state)[name]
    jobs = tuple(job for job in booking.jobs if _is_placed(state, job))
    uses = _held_by_jobs(state, jobs)
    other = booking_table(state).get(booking.event.instead)
    if other is not None and other.phase in LIVE:
        uses.append((other.start, other.end, other.held))
    pieces = _remaining_shares(booking, uses)
    there = bool(booking.slots) or not pieces
    if pieces == booking.pieces and there:
        if jobs != booking.jobs:
            booking_table(state)[name] = replace(booking, jobs=jobs)
        return False
    free_booking_slots(state, booking)
    slots = tuple(slot for piece in pieces if (slot := _fix_remaining(state, piece)) >= 0)
    booking_table(state)[name] = replace(booking, jobs=jobs, pieces=pieces, slots=slots)
    return True


def _is_placed(state: EngineState, job: str) -> bool:
    record = state.records.get(job)
    return record is not None and record.slot >= 0 and state.plan.state(record.slot) != UNPLACED


def _held_by_jobs(state: EngineState, jobs: Iterable[str]) -> list[Piece]:
    """Return what these jobs hold, each over the time from its start to its end."""
    plan = state.plan
    slots = [state.records[job].slot for job in jobs if _is_placed(state, job)]
    return [(plan.start(slot), plan.end(slot), merge_takes(state, plan.takes(slot))) for slot in slots]


def _remaining_shares(booking: Booking, uses: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return the unused part of a booking, by interval."""
    edges = {booking.start, booking.end}
    edges |= {edge for first, last, _ in uses for edge in (first, last) if booking.start < edge < booking.end}
    found: list[Piece] = []
    for first, last in pairwise(sorted(edges)):
        left = {node: list(amounts) for node, amounts in booking.held}
        for began, ends, shares in uses:
            if began <= first < ends:
                for node, amounts in shares:
                    if node in left:
                        taken = _sum([], amounts, len(left[node]))
                        left[node] = [max(0, a - b) for a, b in zip(left[node], taken, strict=True)]
        rest = tuple((node, _shared(amounts)) for node, amounts in left.items() if any(amounts))
        if rest and found and found[-1][1:] == (first, rest):
            found[-1] = (found[-1][0], last, rest)
        elif rest:
            found.append((first, last, rest))
    return tuple(found)


def _shared(amounts: Sequence[int]) -> tuple[int, ...]:
    """Return the amounts with at least one share: the unused part of a node is never a whole node."""
    found = list(amounts)
    found[SHARE] = max(1, found[SHARE])
    return tuple(found)


def _fix_remaining(state: EngineState, piece: Piece) -> int:
    """Return a slot that holds the shares on nodes known to the plan; -1: no node is known."""
    begin, end, shares = piece
    plan = state.plan
    columns = len(plan.resource_columns)
    known = [(plan.node_rows[node], amounts) for node, amounts in shares if node in plan.node_rows]
    if not known:
        return -1
    slot = state.new_slot(_PIECE, end - begin)
    plan.fix(slot, begin, [Take(row, 0, 1, tuple(_sum([], amounts, columns))) for row, amounts in known])
    return slot


def _sum(one: Sequence[int], other: Sequence[int], columns: int = 0) -> list[int]:
    """Add two amounts over this many columns; the number of columns may have grown in between."""
    n = columns or max(len(one), len(other))
    a, b = ([*amounts[:n], *[0] * (n - len(amounts))] for amounts in (one, other))
    return [x + y for x, y in zip(a, b, strict=True)]
