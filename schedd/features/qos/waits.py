"""Histograms of the waiting times of started jobs, by queue and QOS."""

from schedd.engine.component.job_hooks import job_labels
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.features.qos.settings import QosSettings
from schedd.features.qos.state import QosState, WaitHistogram


def note_start(state: EngineState, record: JobRecord) -> None:
    """Count the wait of a job that began to run, once for each run: the server may correct its start."""
    part, started = state.part(QosState), record.run.started
    if record.phase is not Phase.RUNNING or record.id in part.counted:
        return
    part.counted[record.id] = started
    if started < state.first_snapshot:
        return  # it started before there was a plan
    facts = record.facts
    levels = state.site.part(QosSettings).levels
    name = job_labels(state, facts).get("qos", "") if levels else ""
    known = name if name in levels else ""
    key = facts.queue, known
    part.waits[key] = part.waits.get(key, WaitHistogram()).including(
        max(0, started - record.run_waited_since)
    )


def forget_run(state: EngineState, record: JobRecord, _: int) -> None:
    """A run ended: the next one counts again."""
    state.part(QosState).counted.pop(record.id, None)
