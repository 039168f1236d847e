"""Reservations of the server: reserved vnodes, and requests to its scheduler.

A standing reservation is one object of the server: its rule (`reserve_rrule`) has the times, and one text
(`reserve_execvnodes`) has the vnodes of all occurrences.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

from dateutil.rrule import rrulestr

from schedd.wire.resources import OF_QUEUE
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.facts import Values, parse_number, parse_or
from server_adapter.bridge.state import PendingReservation, ReservationOccurrence, ServerReservation
from server_adapter.openpbs.codes import ReservationCode
from server_adapter.openpbs.notation import VnodePiece, exec_vnode, seconds, select, unrolled
from server_adapter.servers.openpbs.facts import shares

SOONEST: Final = 1_893_488_460
"""`reserve_start` of a reservation made from a job, which begins as soon as possible."""

_MOST_TIMES: Final = 400  # occurrences of a standing reservation: each is a what-if request to the daemon
_KEPT: Final = frozenset(
    {
        ReservationCode.CONFIRMED,
        ReservationCode.WAITING,
        ReservationCode.TIME_TO_RUN,
        ReservationCode.RUNNING,
        ReservationCode.DELETING_JOBS,
        ReservationCode.DEGRADED,
        ReservationCode.BEING_ALTERED,
        ReservationCode.IN_CONFLICT,
    }
)
_BROKEN: Final = frozenset({ReservationCode.DEGRADED, ReservationCode.IN_CONFLICT})
_OPEN: Final = _KEPT - {ReservationCode.DELETING_JOBS}
_RESOURCE: Final = "Resource_List."
_REVERT: Final = "reserve_alter_revert."
_FIRST: Final = "reserve_standing_revert."
_ALONE: Final = frozenset({"excl", "exclhost"})
_GATED: Final = frozenset({"ncpus", "ngpus", "mem"})
_ANYWHERE: Final = frozenset({"", "free", "excl", "exclhost", "shared"})
_NO_CHUNKS: Final[list[list[VnodePiece]]] = []
_NO_REQUEST: Final[list[tuple[int, dict[str, str]]]] = []


@dataclass(frozen=True, slots=True)
class _Occurrence:
    start: int
    end: int
    where: str


def server_reservations(
    found: Iterable[DescribedObject], divisible: Collection[str] = ()
) -> dict[str, ServerReservation]:
    """Return the reserved nodes by name; later occurrences of a standing reservation have names of their own.

    Of the `divisible` nodes only the reserved part is kept, unless the reservation is exclusive or contains
    resources that have no gate.

    Each entry admits the jobs of all reservations, since the properties of the vnodes (`resv=`) already
    restrict them, except those of another one with a part of the same node at the same time. While a
    reservation may be placed again, `placement_queue` admits only the reservation itself.
    """
    kept = {one.name: one.values for one in found if _state(one.values) in _KEPT}
    named: dict[str, ServerReservation] = {}
    queue_of: dict[str, str] = {}
    for name, values in kept.items():
        queue = reservation_queue(name)
        moving = (placement_queue(queue),) if _may_move(values) else ()
        for index, time in enumerate(_times(values)):
            held = shares(time.where)
            nodes = tuple(share.node for share in held)
            if nodes:
                label = f"{name}#{index + 1}" if index else name
                parts = held if _is_divisible(values, time, nodes, divisible) else ()
                named[label] = ServerReservation(time.start, time.end, nodes, (queue, *moving), parts)
                queue_of[label] = queue
    queues = {reservation_queue(name) for name in kept}
    rivals = _rivals(named)
    return {
        name: replace(
            one,
            queues=(
                *sorted(queues - {queue_of[other] for other in rivals[name]} | {queue_of[name]}),
                *one.queues[1:],
            ),
        )
        for name, one in named.items()
    }


def _may_move(values: Values) -> bool:
    """Return whether a reservation is altered or degraded: the scheduler may be asked for its place."""
    states = {_state(values), parse_number(values.get("reserve_substate"))}
    return bool(states & {*_BROKEN, ReservationCode.BEING_ALTERED})


def _is_divisible(
    values: Values, time: _Occurrence, nodes: Collection[str], divisible: Collection[str]
) -> bool:
    """Return whether other jobs may use the rest of the nodes of an occurrence."""
    if _ALONE & set(_place(values).split(":")) or not all(node in divisible for node in nodes):
        return False
    brackets = parse_or(exec_vnode, time.where, default=_NO_CHUNKS)
    return all(piece.resources.keys() <= _GATED for bracket in brackets for piece in bracket)


def _rivals(named: Mapping[str, ServerReservation]) -> dict[str, set[str]]:
    """Return for each reservation the others that overlap it in time and on a node."""
    found: dict[str, set[str]] = {name: set() for name in named}
    by_node: dict[str, list[str]] = {}
    for name, one in sorted(named.items(), key=lambda item: item[1].start):
        for share in one.shares:
            by_node.setdefault(share.node, []).append(name)
    for sharing in by_node.values():
        for at, first in enumerate(sharing):
            for other in islice(sharing, at + 1, None):
                if named[other].start >= named[first].end:
                    break
                found[first].add(other)
                found[other].add(first)
    return found


def reservation_queue(name: str) -> str:
    """Return the queue of a reservation's jobs: `R12` for `R12.server`."""
    return name.partition(".")[0]


def placement_queue(queue: str) -> str:
    """Return the queue for placing again: the reservation's own vnodes count as free."""
    return f"{queue}:anew"


def begins(found: Iterable[DescribedObject]) -> dict[str, int]:
    """Return the earliest planned start of jobs in the queue of each reservation that has vnodes.

    For a reservation under alteration this is its end: otherwise its own jobs would block it.
    """
    moments: dict[str, int] = {}
    for one in found:
        state = _state(one.values)
        name = "reserve_end" if state == ReservationCode.BEING_ALTERED else "reserve_start"
        moment = parse_number(one.values.get(name))
        if state in _OPEN and moment is not None:
            moments[reservation_queue(one.name)] = moment
    return moments


def pending_reservation(values: Values, usable: Collection[str]) -> PendingReservation | None:
    """Return the request of a reservation to its scheduler; None without one.

    A new reservation needs vnodes; an altered one needs other vnodes, or the same at another time. A degraded
    one needs, for each occurrence, new vnodes for the units on vnodes outside `usable`, or for all units if
    its place does not allow to move single ones.
    """
    found = _pending_of_state(values, frozenset(usable))
    return found if found is None else replace(found, standing="reserve_rrule" in values)


def outside_queues(pending: PendingReservation) -> PendingReservation:
    """Restrict a reservation to vnodes without a queue; assigned vnodes are unchanged."""
    slots = []
    for slot in pending.slots:
        chunks = slot.resources.get("select", "")
        if chunks and "resv=" not in chunks:
            chunks = "+".join(f"{chunk}:{OF_QUEUE}=False" for chunk in chunks.split("+"))
            slot = replace(slot, resources={**slot.resources, "select": chunks})
        slots.append(slot)
    return replace(pending, slots=tuple(slots))


def translate_requests(
    pending: PendingReservation, plan: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> PendingReservation:
    """Return the reservation with occurrences converted by `plan`; the text is kept."""
    slots = [
        replace(slot, resources=plan(slot.resources)) if slot.resources else slot for slot in pending.slots
    ]
    return replace(pending, slots=tuple(slots))


def _pending_of_state(values: Values, usable: frozenset[str]) -> PendingReservation | None:
    state = _state(values)
    if state == ReservationCode.UNCONFIRMED:
        return _new(values)
    if state == ReservationCode.BEING_ALTERED:
        return _altered(values)
    broken = state in _BROKEN or parse_number(values.get("reserve_substate")) in _BROKEN
    since = parse_number(values.get("reserve_retry"))
    if not broken or since is None:
        return None
    return _degraded(values, usable, since)


def _new(values: Values) -> PendingReservation | None:
    start = parse_number(values.get("reserve_start"))
    if start is None:
        return None
    if start == SOONEST:
        return PendingReservation(
            (ReservationOccurrence(0, _requested_resources(values), values.get("schedselect", "")),),
            begin=None,
        )
    try:
        starts = _starts(values, start)
    except ValueError as error:
        return PendingReservation((), problem=str(error))
    resources, text = _requested_resources(values), values.get("schedselect", "")
    return PendingReservation(
        tuple([ReservationOccurrence(one, resources, text) for one in starts]), begin=starts[0]
    )


def _altered(values: Values) -> PendingReservation | None:
    """Return the request of an altered reservation; for a standing one, of its next occurrence.

    A running reservation keeps its vnodes: only their availability for the longer time is checked. A standing
    reservation that was altered before it had vnodes is refused: the server would use the vnodes of one
    occurrence for all, and fail at its end (seen with 23.06.06). After the refusal it is restored, and gets
    vnodes for all occurrences.
    """
    start, end = parse_number(values.get("reserve_start")), parse_number(values.get("reserve_end"))
    if start is None or end is None:
        return None
    queue = values.get("queue", "")
    anew = placement_queue(queue)
    text, where = values.get("schedselect", ""), values.get("resv_nodes", "")
    before = parse_number(values.get(_REVERT + "start_time")) or start
    until = before + parse_or(seconds, values.get(_REVERT + "walltime"), default=end - start)
    reshaped = values.get(_REVERT + "select", "") not in ("", values.get(_RESOURCE + "select", ""))
    if "reserve_rrule" in values and not values.get("reserve_execvnodes"):
        return PendingReservation((), queue=anew, problem="it was altered before it had vnodes")
    if parse_number(values.get("reserve_substate")) != ReservationCode.RUNNING:
        return PendingReservation(
            (ReservationOccurrence(start, _requested_resources(values), text),), queue=anew, begin=start
        )
    if reshaped:
        return PendingReservation((), queue=anew, problem="its select cannot be altered while it runs")
    if end <= until:
        return PendingReservation((ReservationOccurrence(start, where=where),), queue=anew)
    inside = "+".join(f"{chunk}:resv={queue}" for chunk in text.split("+"))
    longer = {"select": inside, "place": _place(values), "walltime": str(end - until)}
    return PendingReservation((ReservationOccurrence(until, longer, where=where),), queue=anew)


def _degraded(values: Values, usable: frozenset[str], since: int) -> PendingReservation | None:
    """Return the request of a degraded reservation: to move the units on lost vnodes if its place allows any
    vnodes, else whole occurrences.
    """
    times = _times(values)
    if not times:
        return None
    free = _place(values).partition(":")[0] in _ANYWHERE and "group=" not in _place(values)
    slots = []
    for time in times:
        runs = time is times[0] and _state(values) == ReservationCode.RUNNING
        if free:
            slot = _mended(values, time, usable)
        elif not _is_broken(time, usable):
            slot = ReservationOccurrence(time.start, where=time.where)
        else:
            slot = None if runs else _placed_anew(values, time)
        if slot is None:
            words = f"with place={_place(values)} a part of it cannot be moved by itself"
            return PendingReservation((), since=since, problem=words)
        slots.append(slot)
    if not any(slot.resources for slot in slots):
        return None  # its vnodes are usable again, which the server notices itself
    # A whole occurrence may stay on its vnodes; a single unit must move.
    return PendingReservation(
        tuple(slots), queue="" if free else placement_queue(values.get("queue", "")), since=since
    )


def _is_broken(time: _Occurrence, usable: frozenset[str]) -> bool:
    brackets = parse_or(exec_vnode, time.where, default=_NO_CHUNKS)
    return any(piece.vnode not in usable for bracket in brackets for piece in bracket)


def _placed_anew(values: Values, time: _Occurrence) -> ReservationOccurrence:
    text = values.get("schedselect", "")
    length = str(time.end - time.start)
    return ReservationOccurrence(
        time.start, {"select": text, "place": _place(values), "walltime": length}, text
    )


def _mended(values: Values, time: _Occurrence, usable: frozenset[str]) -> ReservationOccurrence | None:
    """Return the occurrence with the units that must be moved; None if they cannot be identified."""
    if not _is_broken(time, usable):
        return ReservationOccurrence(time.start, where=time.where)
    brackets = parse_or(exec_vnode, time.where, default=_NO_CHUNKS)
    lost = [i for i, bracket in enumerate(brackets) if any(piece.vnode not in usable for piece in bracket)]
    chunks = parse_or(lambda text: [*select(text)], values.get("schedselect"), default=_NO_REQUEST)
    units = [one for count, one in chunks for _ in range(count)]
    if len(units) != len(brackets):
        return None
    moved = ["1" + "".join(f":{name}={value}" for name, value in units[i].items()) for i in lost]
    resources = {"select": "+".join(moved), "place": _place(values), "walltime": str(time.end - time.start)}
    staying = "+".join("" if i in lost else text for i, text in enumerate(_brackets(time.where)))
    return ReservationOccurrence(time.start, resources, resources["select"], staying)


# ---- occurrences ------------------------------------------------------------------------------------


def _times(values: Values) -> list[_Occurrence]:
    """Return the remaining occurrences of a reservation with vnodes."""
    start, end = parse_number(values.get("reserve_start")), parse_number(values.get("reserve_end"))
    if start is None or end is None:
        return []
    first = _Occurrence(start, end, values.get("resv_nodes", ""))
    if "reserve_rrule" not in values:
        return [first]
    usual = parse_or(seconds, values.get(_FIRST + "walltime"), default=end - start)
    try:
        starts = _starts(values, parse_number(values.get(_FIRST + "start_time")) or start)
        places = unrolled(values.get("reserve_execvnodes", ""))
    except ValueError:
        return [first]
    places = places[max(0, len(places) - len(starts)) :]
    later = [_Occurrence(at, at + usual, where) for at, where in zip(starts[1:], places[1:], strict=False)]
    return [first, *later]


def _starts(values: Values, start: int) -> list[int]:
    """Return the starts of the remaining occurrences. Raises ValueError."""
    rule = values.get("reserve_rrule")
    if rule is None:
        return [start]
    left = (
        (parse_number(values.get("reserve_count")) or 1)
        - (parse_number(values.get("reserve_index")) or 1)
        + 1
    )
    if left > _MOST_TIMES:
        raise ValueError(f"{left} times are too many: {_MOST_TIMES} are looked for at most")
    found = list(islice(recurring(rule, start, values.get("reserve_timezone", "UTC")), left))
    if len(found) != left:
        raise ValueError(f"its rule {rule} has {len(found)} times, the server counts {left}")
    return found


def recurring(rule: str, start: int, zone: str) -> Iterator[int]:
    """Yield the times of an iCalendar rule from `start` on, in its time zone. Raises ValueError."""
    try:
        clock = ZoneInfo(zone)
    except (KeyError, OSError, ValueError) as error:
        raise ValueError(f"its time zone {zone!r} is not known") from error
    parts = []
    for part in rule.split(";"):
        name, _, value = part.partition("=")
        if name.strip().upper() == "UNTIL" and value.endswith("Z"):
            until = datetime.strptime(value, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
            part = f"UNTIL={until.astimezone(clock):%Y%m%dT%H%M%S}"
        parts.append(part)
    begin = datetime.fromtimestamp(start, clock).replace(tzinfo=None)
    try:
        times = rrulestr(";".join(parts), dtstart=begin)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"its rule {rule!r} is not understood: {error}") from error
    return (int(time.replace(tzinfo=clock).timestamp()) for time in times)


# ---- requested resources ----------------------------------------------------------------------------


def _requested_resources(values: Values) -> Mapping[str, str]:
    length = values.get("reserve_duration", "")
    return {"select": values.get("schedselect", ""), "place": _place(values), "walltime": length}


def _place(values: Values) -> str:
    return values.get(_RESOURCE + "place", "free")


def _state(values: Values) -> int | None:
    return parse_number(values.get("reserve_state"))


def compose_placement(slot: ReservationOccurrence, moved: str) -> str:
    """Return the server's text for an occurrence: its kept units, with the moved units in the gaps."""
    if not slot.where:
        return moved
    fresh = iter(_brackets(moved))
    return "+".join(text or next(fresh) for text in _brackets(slot.where))


def _brackets(text: str) -> list[str]:
    """Split `(a+b)++(c)` into its parts: `(a+b)`, an empty one, `(c)`."""
    found, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "+" and not depth:
            found.append(text[start:i])
            start = i + 1
    return [*found, text[start:]]
