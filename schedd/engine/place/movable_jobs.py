"""Waiting jobs that a component may plan again."""

from collections.abc import Iterable

from schedd.engine.component.placement_hooks import unmovable_jobs
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.plan.columns import PLANNED


def movable_jobs(state: EngineState, jobs: Iterable[str], earliest: int) -> list[JobRecord]:
    """Return the jobs that wait, are planned for ``earliest`` (s since the epoch) or later, and that
    no component or dependency keeps in place, by planned start.
    """
    kept = set(unmovable_jobs(state))
    found = []
    for job in jobs:
        record = state.records.get(job)
        if record is None or job in kept or record.phase is not Phase.WAITING:
            continue
        if record.slot < 0 or record.behind or state.plan.state(record.slot) != PLANNED:
            continue
        if state.plan.start(record.slot) >= earliest:
            found.append(record)
    return sorted(found, key=lambda record: state.plan.start(record.slot))
