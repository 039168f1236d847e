"""Standing reservations of the site: each of their windows is a reservation, known for a while ahead."""

from dataclasses import replace
from datetime import UTC, datetime

from schedd.engine.facts.state import EngineState
from schedd.engine.machine.reservations import reserve, unreserve
from schedd.policy.recurrence import occurrences
from schedd.wire import Reserve, Unreserve

__all__ = ["renew"]

_AHEAD = 60 * 86_400
"""Windows that begin within so many seconds are known."""
_STEP = 6 * 3600
"""That horizon moves on in such steps."""
_BY = "site:"
"""How the ids begin by which these reservations are told from those that people make."""


def renew(state: EngineState) -> None:
    """Make the reservations whose windows come near, and lift those that the site no longer wants.

    Nothing happens before there are nodes, since a reservation is about those that are known.
    """
    if not state.node_facts:
        return
    state.standing_due = state.now + _STEP
    wanted = {event.name: event for event in _windows(state)}
    have = {name: r.event for name, r in state.reservations.items() if r.event.id.startswith(_BY)}
    for name, event in have.items():
        if name not in wanted:
            unreserve(state, Unreserve(id=event.id, time=state.now, name=name))
    for name, event in wanted.items():
        if name not in have or replace(have[name], time=event.time) != event:
            reserve(state, event)


def _windows(state: EngineState) -> list[Reserve]:
    now = state.now
    return [
        Reserve(
            id=f"{_BY}{one.name}",
            time=now,
            name=f"{one.name}@{datetime.fromtimestamp(start, UTC):%Y-%m-%dT%H:%MZ}",
            start=start,
            end=end,
            nodes=one.nodes,
            features=one.features,
            everywhere=one.everywhere,
            users=one.users,
            groups=one.groups,
            accounts=one.accounts,
            queues=one.queues,
            shorter=one.shorter,
            reason=one.reason,
        )
        for one in state.site.reservations
        for start, end in occurrences(one.window, now, now + _AHEAD)
    ]
