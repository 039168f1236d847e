"""Texts about preemptions for users."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from schedd.engine.facts.explanations import format_moment
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.preemption.candidates import may_be_preempted
from schedd.features.preemption.ended_runs import has_victim, is_present_run
from schedd.features.preemption.risks import delay_risk
from schedd.features.preemption.settings import PreemptionSettings
from schedd.features.preemption.state import PlannedPreemption, PublishedPreemptions, preemption_state
from schedd.name_list import shorten_list
from schedd.wire import PreemptionMethod

_NAMED: Final = 5
_VERBS: Final[Mapping[PreemptionMethod, tuple[str, str, str]]] = {
    "suspend": ("suspend", "suspends", "suspended"),
    "checkpoint": ("checkpoint", "checkpoints", "checkpointed"),
    "requeue": ("preempt", "preempts", "preempted"),
}
"""By method its verb: the infinitive, the third person, and the participle."""


def name_victims(auxiliary: str, victims: Iterable[tuple[str, PreemptionMethod]]) -> str:
    """Return what happens to these jobs: *will preempt job 1, and will suspend job 2*; without an auxiliary
    *preempts job 1, and suspends job 2*.
    """
    by_method: dict[PreemptionMethod, list[str]] = {}
    for job, method in victims:
        by_method.setdefault(method, []).append(job)
    found = []
    for method, jobs in by_method.items():
        infinitive, present, _ = _VERBS[method]
        found.append(f"{auxiliary + ' ' + infinitive if auxiliary else present} {name_jobs(jobs)}")
    return ", and ".join(found)


def victim_methods(one: PlannedPreemption) -> list[tuple[str, PreemptionMethod]]:
    return [(victim.job, victim.method) for victim in one.victims]


def name_jobs(names: Sequence[str]) -> str:
    """Return the first of these jobs, and the number of the others."""
    return f"job{'s' if len(names) > 1 else ''} {shorten_list(names, _NAMED)}"


def describe_freed_nodes(one: PlannedPreemption) -> str:
    """Return why the preemptor starts now: its victims were preempted, or have ended before."""
    victims = [victim.job for victim in one.victims]
    if one.asked < 0:
        return f"{name_jobs(victims)} ended before the preemption"
    return f"{name_jobs(victims)} left its nodes for it"


def block_names(state: EngineState) -> dict[int, str]:
    """Return names for these slots."""
    part = preemption_state(state)
    names = {
        block: f"preemption for {one.preemptor}" for one in part.planned.values() for block in one.blocks
    }
    return names | {one.kept: f"suspended job {one.job}" for one in part.suspended.values() if one.kept >= 0}


def describe_preemption(published: PlanSnapshot, record: JobRecord) -> list[str]:
    """Return sentences for the job's readers: its victims, or its preemptor and the time."""
    known = published.part(PublishedPreemptions)
    found = []
    one = known.by_preemptor.get(record.id)
    if one is not None:
        victims = name_victims("will" if one.asked < 0 else "", victim_methods(one))
        found.append(f"{victims}: {one.lost:,} core-seconds of work lost")
    one = known.by_victim.get(record.id)
    if one is not None and record.phase is Phase.RUNNING and has_victim(one, record):
        when = format_moment(one.start)
        method = next(victim.method for victim in one.victims if is_present_run(victim, record))
        after = "goes on afterwards" if method == "suspend" else "returns to its queue"
        found.append(f"it will be {_VERBS[method][2]} for job {one.preemptor} by {when}, and {after}")
    elif record.id in known.suspended:
        paused = known.suspended[record.id]
        words = f"it is suspended for job {paused.preemptor} since {format_moment(paused.since)}"
        if paused.returns >= 0:
            words += f", and is planned to go on at {format_moment(paused.returns)}"
        found.append(words)
    elif record.phase is Phase.RUNNING and known.rate > 0:
        settings = published.settings.site.part(PreemptionSettings)
        run = record.run
        left = run.started + record.understood.walltime + run.suspended_s - published.as_of
        if (
            may_be_preempted(published, settings, record.facts)
            and (percent := round(100 * known.risk(left))) > 0
        ):
            found.append(f"a risk of {percent} % of being preempted before its end, by the past week's rate")
    elif record.id in known.ended and record.phase is not Phase.RUNNING:
        method, when = known.ended[record.id], format_moment(known.preempted[record.id])
        after = "its work is lost" if method == "requeue" else "goes on from its checkpoint"
        found.append(f"it was {_VERBS[method][2]} at {when}, and {after}")
    elif record.phase is Phase.WAITING and (risk := delay_risk(published, record.facts, False)) is not None:
        wait = max(0, int(published.starts[record.slot]) - published.as_of) if record.slot >= 0 else 0
        percent = round(100 * risk.chance(wait))
        if percent > 0:
            found.append(
                f"a risk of {percent} % of being displaced by jobs that may preempt it, by "
                f"{max(1, round(risk.delay / 60))} min each: part of its expected start"
            )
    return found
