"""Attempts at clusters that were removed from a federation's settings: these clusters are no
longer queried.
"""

from collections.abc import Container
from typing import Any, Final

from schedd.federation.events import AttemptEnded, AttemptRefused, AttemptWithdrawn, FederationEvent
from schedd.federation.items import Attempt, FederationItem, Items

_HELD: Final = ("submitting", "held")  # phases of a component that runs only once it is released


def close_attempts(items: Items[Any], clusters: Container[str], now: int) -> list[FederationEvent]:
    """Return the events that close the attempts at clusters that are no longer in the settings.

    An attempt that cannot run is refused or withdrawn, so its item goes elsewhere. One that may run, or ran,
    is lost: it must not run twice.
    """
    return [
        _closing_event(item, attempt, now)
        for item in (items.by_id[name] for name in items.open)
        for attempt in item.attempts
        if not attempt.final and attempt.cluster not in clusters
    ]


def _closing_event(item: FederationItem[Any], attempt: Attempt, now: int) -> FederationEvent:
    about: dict[str, Any] = {"job": item.id, "attempt": attempt.number, "time": now}
    words = f"{attempt.cluster} is no longer a cluster of the federation"
    released = getattr(attempt, "release_requested", False) or getattr(item, "release_requested_at", 0)
    if attempt.phase in _HELD and not released:
        if attempt.phase in item.transitions[AttemptRefused][0]:
            return AttemptRefused(**about, text=words)
    elif attempt.phase == "withdrawing" and not released:
        return AttemptWithdrawn(**about)
    return AttemptEnded(**about, how="lost", text=f"{words}: check there whether it runs")
