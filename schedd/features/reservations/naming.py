"""Jobs that name a reservation (``advres``): they run only on its nodes and in its times.

Such a job may use only the nodes of the reservation, and needs a unit of its *pool*: a row of the plan that
is full outside the times of the reservation. So each search, repair and move of the plan keeps it inside.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final

import numpy as np

from schedd.dialect.advres import read_advres
from schedd.dialect.units import format_walltime
from schedd.engine.component.hook_values import Restriction
from schedd.engine.component.placement_hooks import is_own_reservation
from schedd.engine.facts.job_requests import ParsedRequest, open_gates
from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import Cause, JobRecord, Phase, submission_key
from schedd.engine.facts.reevaluation_queue import WAITING_PHASES, are_many, queue_reevaluation
from schedd.engine.facts.state import HORIZON, EngineState
from schedd.engine.place.placement import plan_job, replan_displaced
from schedd.engine.place.slot_requests import refresh_request
from schedd.engine.rank.promises import end_promise, record_moves
from schedd.engine.rank.quarantine import mark_for_update
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.reservations.state import (
    NamedReservation,
    PublishedReservations,
    ReservationRecord,
    ReservationState,
    base_name,
    known_reservations,
    reservation_access,
)
from schedd.model import FOREVER, Chunk, Never, Place, Request, WaitingFor
from schedd.plan.views import find_unmet_requirement
from schedd.wire import JobFacts

_NOTHING: Final = Request((Chunk(cpus=0),), Place.FREE)
_ROOM: Final = 1 << 40  # capacity of a reservation's pool: more than jobs can need
_GONE_KEPT_S: Final = 30 * 86_400
"""Time for which jobs that name a removed reservation are told so; afterwards the name is unknown."""


# ---- which reservation a job means ----------------------------------------------------------------


def _named_by(known: EngineState | PlanSnapshot, facts: JobFacts) -> str:
    """The name of the reservation that a job names, unless it is a booking of its owner; empty: none."""
    name = read_advres(facts.resources)
    return "" if not name or is_own_reservation(known, facts, name) else name


def _admits(one: NamedReservation, facts: JobFacts) -> bool:
    return bool(open_gates({one.name: one.access}, facts))


def restriction(known: EngineState | PlanSnapshot, facts: JobFacts) -> Restriction | None:
    """Return the nodes and times of the reservation that a job names; None: it names no existing one."""
    named = _all_named(known)
    name = _named_by(known, facts) if named else ""
    found = named.get(name)
    if found is None:
        return None
    return Restriction(f"reservation {name}", (found.nodes,), found.pool, "remove advres from it")


def _all_named(known: EngineState | PlanSnapshot) -> Mapping[str, NamedReservation]:
    if isinstance(known, EngineState):
        return known.part(ReservationState).named
    return known.part(PublishedReservations).named


def knows_reservation(known: EngineState | PlanSnapshot, name: str) -> bool:
    """Whether there is, or was, a reservation of this name."""
    reservations = known_reservations(known)
    return name in reservations.named or name in reservations.maintenance or name in reservations.gone


def _refusal(
    known: EngineState | PlanSnapshot, facts: JobFacts, understood: ParsedRequest
) -> WaitingFor | Never | None:
    """Return why a job may not use the reservation that it names, whatever else runs there."""
    name = _named_by(known, facts)
    if not name:
        return None
    one = _all_named(known).get(name)
    other = "remove advres from the job, or name another reservation (qalter)"
    if one is None:
        reservations = known_reservations(known)
        if name in reservations.maintenance:
            return WaitingFor("reservation", f"reservation {name}, which admits no jobs: {other}")
        if name in reservations.gone:
            return WaitingFor("reservation", f"reservation {name}, which is over or was removed: {other}")
        return None
    if not _admits(one, facts):
        words = (
            f"reservation {name}, whose access list does not admit the job: ask an administrator, or {other}"
        )
        return WaitingFor("reservation", words)
    if understood.walltime > one.longest:
        whose = "the walltime that is assumed for it" if understood.assumed else "its walltime"
        return Never(
            f"{whose}, {format_walltime(understood.walltime)}, is longer than reservation {name}, which "
            f"lasts at most {format_walltime(one.longest)}: request "
            f"{'one' if understood.assumed else 'less'}, or {other}"
        )
    return None


def wait_for_reservation(state: EngineState, record: JobRecord) -> WaitingFor | Never | None:
    """Return why a job that names a reservation must wait, or can never run; None: it may be planned."""
    facts = record.facts
    if not read_advres(facts.resources):
        return None
    refusal = _refusal(state, facts, record.understood)
    if refusal is not None or record.understood.request is None or not _named_by(state, facts):
        return refusal
    if not _is_too_large(state, state.planned_request(facts, record.understood.request)):
        return None
    name = read_advres(facts.resources)
    return Never(
        f"the nodes of reservation {name} cannot hold it: request less, or remove advres from it (qalter)"
    )


def _is_too_large(state: EngineState, request: Request) -> bool:
    """Whether a request for the nodes of a reservation does not even fit on these nodes if nothing runs."""
    return find_unmet_requirement(state.empty_plan(), request, state.limits.types.units) is not None


def reason_to_replan(state: EngineState, record: JobRecord) -> tuple[Cause, str] | None:
    """Return why a due job may not start at its place: its reservation was changed.

    The place may date from before the change, if the server refused the start and it is repeated.
    """
    named = state.part(ReservationState).named
    name = _named_by(state, record.facts) if named else ""
    one = named.get(name)
    if one is None:
        refused = _refusal(state, record.facts, record.understood) is not None
    else:
        nodes = {state.plan.node_names[take.row] for take in state.plan.takes(record.slot)}
        is_open = any(start <= state.now < _end(end) for start, end in one.windows)
        refused = not (_admits(one, record.facts) and nodes <= one.nodes and is_open)
    if not refused:
        return None
    return Cause.RESERVATION, f"reservation {read_advres(record.facts.resources)} was changed"


def check_what_if_reservation(
    published: PlanSnapshot, facts: JobFacts, understood: ParsedRequest
) -> WaitingFor | Never | None:
    """Return why the job of a what-if question would wait or never run; its size is not examined."""
    return _refusal(published, facts, understood)


# ---- what jobs may name ---------------------------------------------------------------------------


def closed_slots(state: EngineState) -> list[int]:
    """The slots that fill the pools of reservations outside their times."""
    return [slot for one in state.part(ReservationState).named.values() for slot in one.closed]


def forget_gone(state: EngineState) -> None:
    """Forget reservations that ended long ago."""
    part = state.part(ReservationState)
    part.gone = {name: at for name, at in part.gone.items() if at + _GONE_KEPT_S > state.now}


class _Change(Enum):
    """Kind of change of a reservation that jobs may name."""

    NONE = "not at all"
    WIDER = "it has more or longer windows"
    OTHER = "otherwise"


def update_named(state: EngineState, names: Iterable[str], event: str, words: str) -> None:
    """Follow changes of the reservations of these names: plan the jobs that name them again.

    If a reservation only got more or longer windows, as a standing one does every day, planned jobs keep
    their places.
    """
    part = state.part(ReservationState)
    changes = {name: _update(state, part, name) for name in dict.fromkeys(map(base_name, names))}
    if all(change is _Change.NONE for change in changes.values()):
        return
    waiting = []
    for record in state.records.values():
        change = changes.get(read_advres(record.facts.resources), _Change.NONE)
        if change is _Change.NONE or record.slot < 0:
            continue
        if record.phase is Phase.DISPATCHED:  # if the server refuses it, it is planned with this request
            refresh_request(state, record)
            state.refit(record)
        elif record.phase in WAITING_PHASES and (
            change is _Change.OTHER or state.plan.start(record.slot) < 0
        ):
            waiting.append(record)
    _plan_again(state, waiting, event, words)


def _plan_again(state: EngineState, records: Sequence[JobRecord], event: str, words: str) -> None:
    """Plan jobs again under their present restriction: first the jobs with a start, by start.

    Many jobs lose their places at once, and get others in the slices of the re-evaluation.
    """
    starts = {one.id: start for one in records if (start := state.plan.start(one.slot)) >= 0}
    placed = [one for one in records if one.id in starts]
    slots = np.array([one.slot for one in placed], np.int64)
    old = np.array(list(starts.values()), np.int64)
    for slot in slots.tolist():
        state.plan.remove(slot, state.now)
    too_large: dict[Request, bool] = {}
    for record in records:
        refresh_request(state, record)
        state.refit(record)
        if not _admits_still(state, record, too_large):
            state.store_record(end_promise(state, record, event, words))
    order = sorted(records, key=lambda one: (starts.get(one.id, FOREVER), submission_key(one)))
    if are_many(records) and state.policy is None:
        for record in placed:
            _await_place(state, state.records[record.id])
        record_moves(state, event, Cause.RESERVATION, words, slots, old, np.full_like(old, -1))
        queue_reevaluation(state, [state.records[one.id] for one in order], event, words, Cause.RESERVATION)
        return
    replan_displaced(state, slots, old, event, Cause.RESERVATION, words)
    for record in order:
        if state.plan.start(record.slot) < 0:
            plan_job(state, state.records[record.id], event, Cause.RESERVATION, words)


def _admits_still(state: EngineState, record: JobRecord, too_large: dict[Request, bool]) -> bool:
    """Return whether a job may use the reservation that it names. ``too_large`` caches examined requests."""
    if _refusal(state, record.facts, record.understood) is not None:
        return False
    if record.understood.request is None or not _named_by(state, record.facts):
        return True
    request = state.planned_request(record.facts, record.understood.request)
    if request not in too_large:
        too_large[request] = _is_too_large(state, request)
    return not too_large[request]


def _await_place(state: EngineState, record: JobRecord) -> None:
    """Note that a job lost its place, and gets another one soon."""
    name = read_advres(record.facts.resources)
    wait = WaitingFor("reservation", f"a new place in reservation {name}, which was just changed")
    mark_for_update(state, record, wait)
    state.without_place[record.id] = None
    state.store_record(apply_step(record, Step.NO_PLACE, answer=wait))


def _update(state: EngineState, part: ReservationState, name: str) -> _Change:
    """Recompute the reservation that jobs may use by this name; return how it changed."""
    before = part.named.get(name)
    records = [
        one
        for one in part.records.values()
        if base_name(one.event.name) == name and reservation_access(one.event)
    ]
    now = _describe(name, records) if records else None
    if before is not None and now is not None:
        over = before.windows[: len(before.windows) - len(now.windows)]
        if before == replace(now, closed=before.closed, windows=(*over, *now.windows)):
            part.named[name] = replace(before, windows=now.windows)
            return _Change.NONE  # nothing changed, except that some of its times may be over
    if before is None and now is None:
        return _Change.NONE
    for slot in before.closed if before is not None else ():
        state.drop_slot(slot)
    if now is None:
        del part.named[name]
        part.gone[name] = state.now
        return _Change.OTHER
    part.gone.pop(name, None)
    part.named[name] = now = replace(now, closed=tuple(_close(state, now)))
    return _Change.WIDER if before is not None and _includes(now, before, state.now) else _Change.OTHER


def _includes(now: NamedReservation, before: NamedReservation, moment: int) -> bool:
    """Whether a reservation offers all that it offered before, from a moment on."""
    if (now.nodes, now.access, now.pool) != (before.nodes, before.access, before.pool):
        return False
    left = [(start, _end(end)) for start, end in before.windows if _end(end) > moment]
    return all(
        any(begin <= start and end <= _end(until) for begin, until in now.windows) for start, end in left
    )


def _end(end: int | None) -> int:
    return FOREVER if end is None else end


def _describe(name: str, records: Sequence[ReservationRecord]) -> NamedReservation:
    nodes = frozenset(node for one in records for node in one.nodes)
    windows: list[tuple[int, int | None]] = []
    for one in sorted(records, key=lambda one: one.event.start):
        start, end = one.event.start, one.event.end
        last = windows[-1][1] if windows else -1
        if windows and (last is None or start <= last):
            joined = None if last is None or end is None else max(last, end)
            windows[-1] = (windows[-1][0], joined)
        else:
            windows.append((start, end))
    return NamedReservation(name, nodes, reservation_access(records[0].event), tuple(windows))


def _close(state: EngineState, one: NamedReservation) -> Iterable[int]:
    """Fill the pool of a reservation outside its times; returns the slots that do so."""
    pool = f"reservation {one.name}"
    at, gaps = state.now, []
    for start, end in one.windows:
        if start > at:
            gaps.append((at, start))
        at = state.now + 2 * HORIZON if end is None else max(at, end)
    if at < state.now + 2 * HORIZON:
        gaps.append((at, state.now + 2 * HORIZON))
    if gaps and pool not in state.plan.pools:
        state.plan.set_pool(pool, _ROOM, state.now)
    for begin, end in gaps:
        slot = state.new_slot(_NOTHING, end - begin, {pool: _ROOM})
        state.plan.fix(slot, begin, [])
        yield slot
