"""Standing reservations of the site's settings: each of their windows is a reservation of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from schedd.engine.facts.state import EngineState
from schedd.features.reservations.naming import update_named
from schedd.features.reservations.rules import (
    follow_edges,
    follow_nodes,
    next_edge,
    place_reservation,
    remove_reservation,
)
from schedd.features.reservations.settings import SiteReservationSettings
from schedd.features.reservations.state import ReservationState, reservation_records
from schedd.policy.recurrence import occurrences
from schedd.policy.site_tables import WindowSettings
from schedd.wire import NodeChanged, Reserve, Unreserve

_AHEAD_S: Final = 60 * 86_400  # windows that begin within this time are reserved
_EVERY_S: Final = 6 * 3600
_ID_PREFIX: Final = "site:"  # prefix of the ids of these reservations; reservations by people have other ids


def follow_time(state: EngineState, event: str) -> None:
    """Renew the windows of standing reservations, and follow the edges of all reservations."""
    if state.now >= state.part(ReservationState).standing_due:
        _renew(state)
    if reservation_records(state):
        follow_edges(state, event)


def follow_reported_nodes(state: EngineState, events: Sequence[NodeChanged], other: frozenset[str]) -> None:
    """Renew the windows if they are due, and then all reservations that match other nodes now.

    The first report of nodes precedes the jobs of the same snapshot: windows that were reserved after these
    would break the promises that the jobs had just got.
    """
    if state.now >= state.part(ReservationState).standing_due:
        _renew(state)
    follow_nodes(state, [event.node.name for event in events], other)


def next_change(state: EngineState) -> int:
    """When reservations change next without an event; FOREVER: never."""
    moment = next_edge(state)
    if _standing(state) and state.node_facts:
        moment = min(moment, state.part(ReservationState).standing_due)
    return moment


def follow_settings(state: EngineState) -> None:
    """Note whether the site has standing reservations."""
    state.part(ReservationState).stands = bool(_standing(state))


def schedule_standing_renewal(state: EngineState) -> None:
    """Examine the standing reservations in the next batch: the site's policy was changed."""
    follow_settings(state)
    state.part(ReservationState).standing_due = state.now


def _renew(state: EngineState) -> None:
    """Reserve the windows that begin soon, and remove windows that the settings no longer have.

    Before the first nodes are known there is nothing to reserve.
    """
    if not state.node_facts:
        return
    state.part(ReservationState).standing_due = state.now + _EVERY_S
    wanted = {event.name: event for event in _windows(state)}
    records = reservation_records(state)
    have = {name: one.event for name, one in records.items() if one.event.id.startswith(_ID_PREFIX)}
    for name, event in have.items():
        if name not in wanted:
            remove_reservation(state, Unreserve(id=event.id, time=state.now, name=name))
    for name, event in wanted.items():
        if name not in have or replace(have[name], time=event.time) != event:
            place_reservation(state, event)
    update_named(
        state, (*have, *wanted), f"{_ID_PREFIX}windows", "the windows of its reservation were changed"
    )


def _windows(state: EngineState) -> list[Reserve]:
    now = state.now
    found = []
    for name, one in _standing(state).items():
        window = one.window(state.site.zone)
        assert window is not None, "first and last are required"
        terms = one.model_dump(exclude=set(WindowSettings.model_fields))
        event = f"{_ID_PREFIX}{name}"
        for start, end in occurrences(window, now, now + _AHEAD_S):
            title = f"{name}@{datetime.fromtimestamp(start, UTC):%Y-%m-%dT%H:%MZ}"
            found.append(Reserve(id=event, time=now, name=title, start=start, end=end, **terms))
    return found


def _standing(state: EngineState) -> Mapping[str, SiteReservationSettings]:
    return state.site.named_entries(SiteReservationSettings)
