"""Usage for fair share: each run is charged at its end; running jobs count up to now."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from schedd.engine.facts.records import JobRecord, Phase
from schedd.policy.fair_share import Held, ShareRow, share_rows

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState

__all__ = ["charge_run", "fair_shares", "running_usage"]


def charge_run(state: "EngineState", record: JobRecord, end: int) -> None:
    """Charge a run until ``end`` to its owner, and record its use of the requested walltime."""
    if record.phase is not Phase.RUNNING:
        return
    if not record.understood.assumed:  # an assumed walltime was not requested
        cpus = sum(share.cpus for share in record.facts.shares)
        run = max(0, end - record.run.started)
        state.walltime_use = state.walltime_use.after(cpus, record.understood.walltime, run)
    if state.usage is not None and state.site.fair_share is not None:
        state.usage.book(_held(state, record, max(end, record.run.started)))


def running_usage(state: "EngineState") -> Iterator[Held]:
    """What runs, as far as it counts for fair share."""
    for record in state.records.values():
        if record.phase is Phase.RUNNING:
            yield _held(state, record, max(state.now, record.run.started))


def fair_shares(state: "EngineState") -> list[ShareRow]:
    """Return the present tree of shares, with waiting, running and past usage; empty without fair share."""
    tree = state.site.fair_share
    if tree is None or state.usage is None:
        return []
    used = state.usage.decayed(tree, state.now, running_usage(state))
    return share_rows(tree, used, {tree.path(record.facts) for record in state.records.values()})


def _held(state: "EngineState", record: JobRecord, end: int) -> Held:
    assert state.site.fair_share is not None
    facts = record.facts
    since = facts.eligible if facts.eligible is not None else facts.submitted
    return Held(
        path=state.site.fair_share.path(facts),
        cpus=round(sum(share.cpus * _speed(state, share.node) for share in facts.shares)),
        start=record.run.started,
        end=end,
        waited=max(0, record.run.started - since),
    )


def _speed(state: "EngineState", name: str) -> float:
    node = state.plan.nodes.get(name)
    return node.speed if node is not None else 1.0
