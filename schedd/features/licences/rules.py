"""Licence counts as limits on running jobs, and alerts for counts that are out of date."""

from collections.abc import Iterable

from schedd.engine.facts.pools import make_claim
from schedd.engine.facts.records import Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.run.reevaluation import limits_changed
from schedd.features.licences.settings import LicenceSettings
from schedd.features.licences.state import licence_counts
from schedd.policy.limits import Limit
from schedd.wire import ResourceCounted


def read_site(state: EngineState) -> None:
    """Set the polled licences from the site's policy."""
    licences = state.site.named_entries(LicenceSettings)
    counted = {name: one.stale for name, one in licences.items() if one.command or one.lent}
    licence_counts(state).set_polled(counted)


def counted_limits(state: EngineState) -> Iterable[tuple[Limit, ...]]:
    return (licence_counts(state).limits(),)


def note_count(state: EngineState, event: ResourceCounted) -> None:
    """Store a count or lease and update the plan.

    A lease older than the latest one is ignored. A count of free copies excludes copies held by running jobs;
    they are added.
    """
    counts = licence_counts(state)
    if event.number:
        if event.number <= counts.lent.get(event.name, 0):
            return
        counts.lent[event.name] = event.number
    held = 0
    if event.free:
        for record in state.records.values():
            if record.phase is Phase.RUNNING:
                claim = make_claim(record.facts, record.understood, {event.name}, state.limits.types)
                held += claim.amounts.get(event.name, 0)
    amount = event.amount + held
    before = counts.counted.get(event.name)
    counts.counted[event.name] = (amount, event.time)
    if before is None or before[0] != amount:
        state.gather_limits()
        limits_changed(state, event.id, f"there are {amount} of {event.name} now")


def alert_outdated(state: EngineState) -> None:
    """Raise an alert for each newly outdated count."""
    for licence, text in licence_counts(state).outdated(state.now):
        state.alert(state.at_event, "licence", text, licence)


def is_outdated(state: EngineState, licence: str) -> bool:
    """Return whether the count of a licence is still outdated."""
    return licence in licence_counts(state).old
