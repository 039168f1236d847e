"""Texts about preemptions for users."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from schedd.engine.component.hook_values import StartBarrier
from schedd.engine.component.job_hooks import selects_job
from schedd.engine.facts.explanations import format_length, format_moment
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.preemption.candidates import (
    NO_RETRY_S,
    is_preempt_target,
    is_preemptor,
    is_selected,
    may_be_preempted,
    next_opening,
    permitted_methods,
)
from schedd.features.preemption.ended_runs import has_victim, is_present_run
from schedd.features.preemption.risks import delay_risk
from schedd.features.preemption.settings import PreemptionSettings
from schedd.features.preemption.state import PlannedPreemption, PublishedPreemptions, preemption_state
from schedd.name_list import shorten_list
from schedd.plan.columns import FIXED
from schedd.wire import JobFacts, PreemptionMethod

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


def preemption_barrier(published: PlanSnapshot, record: JobRecord) -> StartBarrier | None:
    """Return why a preemptor starts no earlier: its victims may not be preempted sooner."""
    known = published.part(PublishedPreemptions)
    one = known.by_preemptor.get(record.id)
    if one is None:
        return None
    settings = published.settings.site.part(PreemptionSettings)
    before = one.start - settings.lead
    jobs = name_jobs([victim.job for victim in one.victims])
    words = f"{jobs} {'are' if len(one.victims) > 1 else 'is'} not preempted for it"
    rests = settings.rest
    if settings.min_run and any(victim.started + settings.min_run >= before for victim in one.victims):
        words += f" (a run is preempted after {format_length(settings.min_run)} at the earliest)"
    elif any(known.preempted.get(victim.job, -rests) + rests >= before for victim in one.victims):
        words += f" (a job is preempted once in {format_length(rests)})"
    return StartBarrier(f"the preemption of {jobs}", words)


def _why_no_victims(published: PlanSnapshot, record: JobRecord) -> str:
    """Return why a planned job that may preempt others waits without victims: how many of the running jobs
    each rule protects. Empty: it may not, or it does not wait.
    """
    settings = published.settings.site.part(PreemptionSettings)
    start, facts = int(published.starts[record.slot]) if record.slot >= 0 else -1, record.facts
    if start <= published.as_of + settings.wait or not selects_job(settings.preemptors, published, facts):
        return ""
    if not is_preemptor(published, settings, facts):
        return "preempts nothing, as it requests (preempt_targets=NONE)"
    opens = next_opening(settings, published.as_of)
    if opens != published.as_of:
        until = f" until {format_moment(opens)}" if opens is not None else ""
        return f"preempts nothing: preemptions are not permitted at this time{until}"
    counts = Counter(_protection(published, settings, facts, other) for other in _running_targets(published))
    if not counts:
        return "preempts nothing: no running job may be preempted"
    named = ", ".join(f"{count} {words}" for words, count in sorted(counts.items()))
    return f"preempts nothing; of the running jobs that may be preempted: {named}"


def _running_targets(published: PlanSnapshot) -> Sequence[JobRecord]:
    """Return the running targets and scavengers. They are remembered with the snapshot."""
    remembered = published.part(PublishedPreemptions).targets
    if published.generation not in remembered:
        settings = published.settings.site.part(PreemptionSettings)
        found = []
        for slot in np.flatnonzero(published.plan.states == FIXED).tolist():
            other = published.records[slot] if slot < len(published.records) else None
            if other is None or other.phase is not Phase.RUNNING:
                continue
            if is_selected(published, settings, other.facts):
                found.append(other)
        remembered[published.generation] = found
    return remembered[published.generation]


def _protection(
    published: PlanSnapshot, settings: PreemptionSettings, preemptor: JobFacts, other: JobRecord
) -> str:
    """Return the first rule by which a running job is not preempted now."""
    known, now = published.part(PublishedPreemptions), published.as_of
    if other.id in known.suspended:
        return "suspended already"
    if other.id in known.by_victim:
        return "to be preempted for another job"
    if not permitted_methods(settings, other.facts):
        return f"that permits none of the methods ({', '.join(settings.methods)})"
    if not is_preempt_target(preemptor, other.facts):
        return "outside its preempt_targets"
    if now < known.refused.get(other.id, -NO_RETRY_S) + NO_RETRY_S:
        return "whose preemption failed within the last hour"
    if now < other.run.started + settings.min_run:
        return f"with a run of less than {format_length(settings.min_run)}"
    if now < known.preempted.get(other.id, -settings.rest) + settings.rest:
        return f"preempted within the last {format_length(settings.rest)}"
    return f"that would not let it start {format_length(settings.gain)} earlier without a broken promise"


def words_of_moves(job: str) -> str:
    """Return why other jobs move when a preemptor is planned before them without a preemption."""
    return f"job {job}, which may preempt others, is planned before them"


def describe_arrival(state: EngineState, record: JobRecord) -> str:
    """Return what an arrived hypothetical job does to others; empty: nothing."""
    one = preemption_state(state).planned.get(record.id)
    if one is not None:
        victims = name_victims("would", victim_methods(one))
        return f"{victims}: {one.lost:,} core-seconds of work lost"
    words = words_of_moves(record.id)
    if any(changes.words == words and (changes.slots != record.slot).any() for changes in state.moves):
        return "jobs planned before it would move, and keep their promises"
    return ""


def describe_preemption(published: PlanSnapshot, record: JobRecord) -> list[str]:
    """Return sentences for the job's readers: its victims, or its preemptor and the time."""
    known = published.part(PublishedPreemptions)
    settings = published.settings.site.part(PreemptionSettings)
    found = []
    one = known.by_preemptor.get(record.id)
    if one is not None:
        victims = name_victims("will" if one.asked < 0 else "", victim_methods(one))
        found.append(f"{victims}: {one.lost:,} core-seconds of work lost")
    elif record.phase is Phase.WAITING and not settings.preemptors.is_empty:
        found += filter(None, [_why_no_victims(published, record)])
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
        run = record.run
        left = run.started + record.understood.walltime + run.suspended_s - published.as_of
        if (
            may_be_preempted(published, settings, record.facts)
            and (percent := round(100 * known.risk(left))) > 0
        ):
            found.append(
                f"its risk of being preempted before its end is {percent} %, by the rate of the past week"
            )
    elif record.id in known.ended and record.phase is not Phase.RUNNING:
        method, when = known.ended[record.id], format_moment(known.preempted[record.id])
        after = "its work is lost" if method == "requeue" else "goes on from its checkpoint"
        found.append(f"it was {_VERBS[method][2]} at {when}, and {after}")
    elif record.phase is Phase.WAITING and (risk := delay_risk(published, record.facts, False)) is not None:
        wait = max(0, int(published.starts[record.slot]) - published.as_of) if record.slot >= 0 else 0
        percent = round(100 * risk.chance(wait))
        if percent > 0:
            found.append(
                f"its risk of being displaced by preemptors is {percent} %, by "
                f"{max(1, round(risk.delay / 60))} min each time; its expected start includes that"
            )
    return found
