"""Which facts about the jobs of a state are kept while the plan is rebuilt."""

from schedd.dialect.shared import shared_amounts
from schedd.engine.facts.carried_jobs import CarriedJob, request_size
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.model import FOREVER


def carry_job(state: EngineState, record: JobRecord) -> CarriedJob | None:
    """Return the facts of a job to carry over a rebuild; None: nothing."""
    slot, facts, understood = record.slot, record.facts, record.understood
    there, runs = slot >= 0, record.phase is Phase.RUNNING
    promised = int(state.promise[slot]) if there else FOREVER
    published = int(state.published_start[slot]) if there else -1
    out = record.phase is Phase.DISPATCHED
    counts = record.eligible_since >= 0 or promised < FOREVER or published >= 0 or out
    paused = record.run.seconds_suspended(state.now) > 0 or record.run.suspended_since >= 0
    if not (counts or paused or record.quarantine or record.breaches or record.back_off.returns):
        return None
    names = state.limits.shared
    shared = shared_amounts(facts.resources, names, state.limits.types) if names else {}
    return CarriedJob(
        promised=promised,
        eligible_since=record.eligible_since,
        weak=record.weak,
        planned=state.plan.start(slot) if there and not runs else -1,
        open_until=record.attempt.expires if out else -1,
        published_start=published,
        published_at=int(state.published_at[slot]) if there else 0,
        started=record.run.started,
        suspended_since=record.run.suspended_since,
        suspended_s=record.run.suspended_s,
        quarantine=record.quarantine,
        returns=record.back_off.returns,
        refusal=record.back_off.refusal,
        breaches=record.breaches,
        risk=record.risk,
        owner=facts.owner,
        submitted=facts.submitted,
        queue=facts.queue,
        size=request_size(understood.request, understood.walltime),
        shared=tuple((name, shared.get(name, 0)) for name in sorted(names)),
    )


def carry_jobs(state: EngineState) -> dict[str, CarriedJob]:
    """Return the facts to carry over a rebuild, by job id, including facts of an earlier rebuild."""
    found = dict(state.carried_jobs)
    for record in state.records.values():
        kept = carry_job(state, record)
        if kept is not None:
            found[record.id] = kept
    return found
