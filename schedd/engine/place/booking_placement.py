"""Jobs that run in a booking: which it is, whether they may start, and what is left of it for others.

What a booking holds stands in the plan as *pieces*: slots that hold, each for a time, all that no job of the
booking has. A job takes its place from them in the moment in which it may start.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from schedd.dialect.advres import read_advres
from schedd.engine.facts.booking import LIVE, Booking, Piece, Share, key_of
from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.state import EngineState
from schedd.engine.facts.words import moment_in_words
from schedd.model import Chunk, Place, Request, WaitingFor
from schedd.plan.columns import CPUS, GPUS, SHARE, UNPLACED
from schedd.plan.plan import Take

__all__ = [
    "find_booking",
    "find_transfer_booking",
    "free_booking_slots",
    "is_outside_booking",
    "merge_takes",
    "missing_booking",
    "names_booking",
    "place_in_booking",
    "update_booking_slots",
    "waits_for_booking",
]

_PIECE = Request((Chunk(cpus=0),), Place.FREE)


def find_booking(state: EngineState, record: JobRecord) -> Booking | None:
    """The booking in which a job is to run; None: it runs anywhere.

    A job whose booking is over runs like any other. For one that names no booking of its owner's see
    ``missing_booking``.
    """
    if not state.bookings:
        return None
    transfer = state.transfer_by_job.get(record.id)
    transferred = state.transfers.get(transfer) if transfer is not None else None
    if transfer is not None:
        its = find_transfer_booking(state, transfer)
        if its is not None or transferred is None or transferred.booked:
            return its
    named = transferred.booking if transferred is not None else ""
    name, owner = named or read_advres(record.facts.resources), record.facts.owner.partition("@")[0]
    found = state.bookings.get(key_of(state.bookings, name, owner))
    if found is None or found.phase not in LIVE or found.event.transfer:
        return None
    return found if record.facts.owner.partition("@")[0] == found.event.owner else None


def missing_booking(
    name: str, owner: str, bookings: Mapping[str, Booking], reservations: Collection[str]
) -> WaitingFor | None:
    """What a job waits for that names a reservation in which it cannot run; None: it names none, or its own.

    The words are the same whether somebody else has a booking of that name or nobody has.
    """
    if not name:
        return None
    found = bookings.get(key_of(bookings, name, owner.partition("@")[0]))
    its = found is not None and not found.event.transfer and found.event.owner == owner.partition("@")[0]
    if its and found is not None and found.phase != "refused":
        return None
    if name in reservations:
        words = (
            f"reservation {name}, which is an administrator's: jobs with access use its nodes without naming "
            "it; take advres out of the job (qalter)"
        )
    else:
        words = (
            f"reservation {name}, which its owner does not have: book it (schedd book) or take advres out of "
            "the job (qalter)"
        )
    return WaitingFor("reservation", words)


def names_booking(state: EngineState, name: str) -> bool:
    """Whether a known job names this booking."""
    return any(read_advres(record.facts.resources) == name for record in state.records.values())


def find_transfer_booking(state: EngineState, transfer: str) -> Booking | None:
    """The booking in which a transfer's job is to start: of several, the newest that is confirmed.

    While a group moves there are two: the one that it has, and the one that it is to have.
    """
    found = [one for one in state.bookings.values() if one.event.transfer == transfer and one.phase in LIVE]
    return max(found, key=lambda one: (one.confirmed, one.event.time), default=None)


def waits_for_booking(state: EngineState, record: JobRecord, booking: Booking | None) -> WaitingFor | None:
    """What keeps a job from starting now that runs in a booking alone; None: nothing does."""
    if booking is None:
        transferred = state.transfers.get(state.transfer_by_job.get(record.id, ""))
        if transferred is not None and transferred.booked:
            return WaitingFor("reservation", "the other parts of its group")
        if transferred is not None and transferred.booking:
            return None
        facts = record.facts
        name = read_advres(facts.resources)
        return missing_booking(name, facts.owner, state.bookings, state.reservations)
    if booking.phase != "open":
        words = f"reservation {booking.shown}, which begins at {moment_in_words(booking.start)}"
        return WaitingFor("reservation", words)
    if booking.event.until is not None and not booking.confirmed:
        return WaitingFor("reservation", f"reservation {booking.shown}, which is not confirmed yet")
    if booking.event.arming and not booking.armed:
        return WaitingFor("reservation", "the word that all parts of its group may start")
    begin = max(state.now, record.back_off.until)
    if begin + record.understood.walltime > booking.end and not booking.event.transfer:
        words = f"reservation {booking.shown}, which ends before its walltime is over"
        return WaitingFor("reservation", f"{words}: at {moment_in_words(booking.end)}")
    return None


def place_in_booking(state: EngineState, record: JobRecord, booking: Booking) -> bool:
    """Give an unplaced job a place in its booking that begins now; False: there is no room in it now."""
    plan, now = state.plan, state.now
    free_booking_slots(state, booking)
    nodes = {node for node, _ in booking.held}
    begin = max(now, record.back_off.until)
    plan.set_ready(record.slot, begin)
    with plan.excluding([row for row, name in plan.node_names.items() if name not in nodes]):
        placed = plan.place(record.slot, now, begin + 1) >= 0
    if placed and not _respects_booking(state, record, booking):
        plan.undo_place(record.slot)
        placed = False
    jobs = (*booking.jobs, record.id) if placed and record.id not in booking.jobs else booking.jobs
    state.bookings[booking.name] = replace(booking, slots=(), pieces=(), jobs=jobs)
    update_booking_slots(state, booking.name)
    return placed


def is_outside_booking(state: EngineState, record: JobRecord, booking: Booking) -> bool:
    """Whether a job that has a place in the booking was moved to one that is not the booking's."""
    if record.id not in booking.jobs:
        return False
    has = dict(booking.held)
    return any(
        node not in has or any(amounts[column] > has[node][column] for column in (CPUS, GPUS))
        for node, amounts in merge_takes(state, state.plan.takes(record.slot))
    )


def _respects_booking(state: EngineState, record: JobRecord, booking: Booking) -> bool:
    """Whether the cores and gpus of a job that has a place, and of those before it, are the booking's."""
    has = dict(booking.held)
    jobs = [*booking.jobs, *([] if record.id in booking.jobs else [record.id])]
    used: dict[str, list[int]] = {}
    for _, _, shares in _held_by_jobs(state, jobs):
        for node, amounts in shares:
            used[node] = _sum(used.get(node, []), amounts)
    return all(
        node in has and amounts[column] <= has[node][column]
        for node, amounts in used.items()
        for column in (CPUS, GPUS)
    )


def merge_takes(state: EngineState, takes: Iterable[Take]) -> tuple[Share, ...]:
    """What is held of each node, all takes of it together."""
    found: dict[str, list[int]] = {}
    for take in takes:
        name = state.plan.node_names[take.row]
        found[name] = _sum(found.get(name, []), take.amounts)
    return tuple((name, tuple(amounts)) for name, amounts in sorted(found.items()))


def free_booking_slots(state: EngineState, booking: Booking) -> None:
    """Take what the booking holds out of the plan."""
    for slot in booking.slots:
        state.drop_slot(slot)


def update_booking_slots(state: EngineState, name: str) -> bool:
    """Let a booking hold what its jobs do not; returns whether it holds other things than before."""
    booking = state.bookings[name]
    jobs = tuple(job for job in booking.jobs if _is_placed(state, job))
    uses = _held_by_jobs(state, jobs)
    other = state.bookings.get(booking.event.instead)
    if other is not None and other.phase in LIVE:
        uses.append((other.start, other.end, other.held))
    pieces = _remaining_shares(booking, uses)
    there = bool(booking.slots) or not pieces
    if pieces == booking.pieces and there:
        if jobs != booking.jobs:
            state.bookings[name] = replace(booking, jobs=jobs)
        return False
    free_booking_slots(state, booking)
    slots = tuple(slot for piece in pieces if (slot := _fix_remaining(state, piece)) >= 0)
    state.bookings[name] = replace(booking, jobs=jobs, pieces=pieces, slots=slots)
    return True


def _is_placed(state: EngineState, job: str) -> bool:
    record = state.records.get(job)
    return record is not None and record.slot >= 0 and state.plan.state(record.slot) != UNPLACED


def _held_by_jobs(state: EngineState, jobs: Iterable[str]) -> list[Piece]:
    """What these jobs hold, each from its start to its end."""
    plan = state.plan
    slots = [state.records[job].slot for job in jobs if _is_placed(state, job)]
    return [(plan.start(slot), plan.end(slot), merge_takes(state, plan.takes(slot))) for slot in slots]


def _remaining_shares(booking: Booking, uses: Sequence[Piece]) -> tuple[Piece, ...]:
    """What is left of the booking over time."""
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
    """What is held of a node is a part of it: no job may have the node as a whole, whatever is left."""
    found = list(amounts)
    found[SHARE] = max(1, found[SHARE])
    return tuple(found)


def _fix_remaining(state: EngineState, piece: Piece) -> int:
    """A slot that holds the piece as far as its nodes are known; -1: none is."""
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
    """Both added up, in so many columns: there may be more of them than there were."""
    n = columns or max(len(one), len(other))
    a, b = ([*amounts[:n], *[0] * (n - len(amounts))] for amounts in (one, other))
    return [x + y for x, y in zip(a, b, strict=True)]
