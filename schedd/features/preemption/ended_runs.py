"""Runs that preemptions end: which they are, who is charged for them, and the work that is lost."""

from collections.abc import Sequence

from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.state import EngineState
from schedd.features.preemption.candidates import lost_work, may_be_preempted
from schedd.features.preemption.risks import note_run_end
from schedd.features.preemption.settings import PreemptionSettings
from schedd.features.preemption.state import PlannedPreemption, PreemptionState, Victim, preemption_state
from schedd.wire import JobFacts


def is_being_preempted(state: EngineState, record: JobRecord) -> bool:
    """Return whether the run of a job was ordered to end, even if its preemption was undone since."""
    return preemption_state(state).ordered.get(record.id) == record.run.started


def charged_jobs(state: EngineState, record: JobRecord) -> Sequence[JobFacts] | None:
    """Return the jobs whose owners are charged with a preempted run; None: its own, as for every run."""
    charged = state.site.part(PreemptionSettings).charged
    if charged == "owner" or record.id not in state.records or not is_being_preempted(state, record):
        return None
    if _is_checkpointed(preemption_state(state), record):
        return None  # its work is not lost
    for one in preemption_state(state).planned.values() if charged == "preemptor" else ():
        preemptor = state.records.get(one.preemptor)
        if preemptor is not None and has_victim(one, record):
            return (preemptor.facts,)
    return ()


def has_victim(one: PlannedPreemption, record: JobRecord) -> bool:
    """Return whether the preemption ends the job's present run."""
    return any(is_present_run(victim, record) for victim in one.victims)


def is_present_run(victim: Victim, record: JobRecord) -> bool:
    """Return whether the victim is the job's present run."""
    return victim.job == record.id and victim.started == record.run.started


def count_run(state: EngineState, record: JobRecord, at: int) -> None:
    """Count a run that ended: the work lost by a preemption, and the rate of preemptions."""
    part, settings = preemption_state(state), state.site.part(PreemptionSettings)
    part.counted.pop(record.id, None)
    part.ended.pop(record.id, None)
    if not may_be_preempted(state, settings, record.facts):
        return
    preempted = record.id in state.records and is_being_preempted(state, record)  # else it has ended
    note_run_end(state, record, at, preempted=preempted)
    if preempted:
        part.count += 1
        seconds = record.run.computed_s(at)
        part.ended[record.id] = "checkpoint" if _is_checkpointed(part, record) else "requeue"
        cpus = sum(share.cpus for share in record.facts.shares)
        part.lost += lost_work(part.ended[record.id], cpus, seconds)


def _is_checkpointed(part: PreemptionState, record: JobRecord) -> bool:
    return record.id in part.checkpoints or any(
        is_present_run(victim, record) and victim.method == "checkpoint"
        for one in part.planned.values()
        for victim in one.victims
    )
