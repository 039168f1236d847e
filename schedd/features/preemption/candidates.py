"""Which jobs may preempt, and which running jobs may be preempted for them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from schedd.engine.component.job_hooks import selects_job
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.preemption.settings import PreemptionSettings
from schedd.features.preemption.state import PlannedPreemption
from schedd.plan.plan import Plan
from schedd.policy.recurrence import Recurrence, occurrences
from schedd.wire import JobFacts, PreemptionMethod

NO_RETRY_S: Final = 3_600  # after a refused preemption a job is not tried again within this time
_AHEAD_S: Final = 14 * 86_400  # windows are searched this far ahead
_NORMAL_FIRST: Final = 1 << 40
"""Factor of the costs of jobs that are not scavengers: scavengers are preempted first."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running job that may be preempted so that its cores are free from ``free_from`` on.

    ``methods``: permitted methods in order of preference; ``method``: the one that is used. The cost grows
    with the core-seconds that are lost, with the ``weight`` of its class.
    """

    record: JobRecord
    free_from: int
    cpus: int
    weight: int
    methods: tuple[PreemptionMethod, ...]
    round: int = 0

    @property
    def method(self) -> PreemptionMethod:
        """The method of this round; of a later round than there are methods, the last one."""
        return self.methods[min(self.round, len(self.methods) - 1)]

    @property
    def lost(self) -> int:
        """Core-seconds of work that are lost if the run ends at ``free_from``."""
        return lost_work(self.method, self.cpus, self.free_from - self.record.run.started)

    @property
    def cost(self) -> int:
        """The cost of the preemption; of runs that lose nothing it grows with their cores."""
        return (self.lost + self.cpus) * self.weight


def lost_work(method: PreemptionMethod, cpus: int, seconds: int) -> int:
    """Return the core-seconds that a run of this length loses: all of them, or none if it goes on later."""
    return cpus * max(0, seconds) if method == "requeue" else 0


def permitted_methods(settings: PreemptionSettings, facts: JobFacts) -> tuple[PreemptionMethod, ...]:
    """Return the permitted methods to preempt a job, in order of preference.

    A checkpoint is made by a system hold, which is lifted afterwards: a job with such a hold of an
    administrator would lose it.
    """
    permits = {
        "suspend": True,
        "checkpoint": declares_checkpoint(facts.checkpoint) and "s" not in facts.holds,
        "requeue": facts.rerunnable,
    }
    return tuple(one for one in settings.methods if permits[one])


def declares_checkpoint(text: str) -> bool:
    """Return whether the attribute ``Checkpoint`` of a job (``qsub -c``) declares support for it.

    OpenPBS has ``n`` for no and ``u`` without a declaration, TORQUE ``none`` and ``u``.
    """
    first = text.split(",", maxsplit=1)[0].strip().lower()
    return first not in ("", "n", "none", "u", "unset", "unspecified", "disabled")


def is_preemptor(known: EngineState | PlanSnapshot, settings: PreemptionSettings, facts: JobFacts) -> bool:
    """Return whether other jobs may be preempted for this one."""
    return selects_job(settings.preemptors, known, facts) and _preempt_targets(facts) is not None


def is_scavenger(known: EngineState | PlanSnapshot, settings: PreemptionSettings, facts: JobFacts) -> bool:
    """Return whether the job only fills gaps."""
    return selects_job(settings.scavengers, known, facts) and not selects_job(
        settings.preemptors, known, facts
    )


def is_selected(known: EngineState | PlanSnapshot, settings: PreemptionSettings, facts: JobFacts) -> bool:
    """Return whether the settings let a job be preempted, if it permits a method."""
    if settings.preemptors.is_empty or selects_job(settings.preemptors, known, facts):
        return False
    return selects_job(settings.targets, known, facts) or selects_job(settings.scavengers, known, facts)


def may_be_preempted(
    known: EngineState | PlanSnapshot, settings: PreemptionSettings, facts: JobFacts
) -> bool:
    """Return whether a job may be preempted while it runs."""
    return bool(permitted_methods(settings, facts)) and is_selected(known, settings, facts)


def _preempt_targets(facts: JobFacts) -> tuple[str, ...] | None:
    """Return the conditions of a preemptor's ``preempt_targets`` (OpenPBS). A target meets at least one.

    Empty: no conditions. None: it preempts no job (``NONE``).
    """
    text = facts.resources.get("preempt_targets", "")
    parts = tuple(part.strip().strip("\"'") for part in text.split(",") if part.strip())
    return None if any(part.lower() == "none" for part in parts) else parts


def is_preempt_target(preemptor: JobFacts, facts: JobFacts) -> bool:
    """Return whether a job meets the ``preempt_targets`` of the preemptor: ``queue=NAME`` or
    ``Resource_List.NAME=VALUE``.
    """
    targets = _preempt_targets(preemptor)
    if targets is None:
        return False
    return not targets or any(_meets(one, facts) for one in targets)


def _meets(target: str, facts: JobFacts) -> bool:
    name, _, value = target.partition("=")
    if name.strip().lower() == "queue":
        return facts.queue == value.strip()
    head, _, resource = name.strip().partition(".")
    return head.lower() == "resource_list" and facts.resources.get(resource, "") == value.strip()


def next_opening(settings: PreemptionSettings, moment: int) -> int | None:
    """Return when a preemption may begin, at ``moment`` or later; None: not soon."""
    if not settings.windows:
        return moment
    found = [
        max(begin, moment)
        for text in settings.windows
        for begin, end in occurrences(Recurrence.parse(text), moment, moment + _AHEAD_S)
        if end > moment
    ]
    return min(found, default=None)


def may_begin(settings: PreemptionSettings, moment: int) -> bool:
    """Return whether a preemption may begin at this time."""
    return next_opening(settings, moment) == moment


def earliest_preemption(settings: PreemptionSettings, started: int, preempted: int | None) -> int:
    """Return when a run has lasted for long enough, and its job has rested since it was ``preempted``."""
    ran = started + settings.min_run
    return ran if preempted is None else max(ran, preempted + settings.rest)


def find_candidates(
    known: EngineState | PlanSnapshot,
    records: Iterable[JobRecord],
    plan: Plan,
    now: int,
    settings: PreemptionSettings,
    planned: Iterable[PlannedPreemption],
    preempted: Mapping[str, int],
    refused: Mapping[str, int],
) -> Iterator[Candidate]:
    """Yield the running jobs that may be preempted, now or when they have run and rested for long enough.

    ``preempted`` and ``refused``: by job, when it was last preempted, and when that was refused.
    """
    busy = {victim.job for one in planned for victim in one.victims}
    for record in records:
        facts = record.facts
        if record.phase is not Phase.RUNNING or facts.state != "R" or facts.run_lost or record.slot < 0:
            continue
        if record.id in busy or not may_be_preempted(known, settings, facts):
            continue
        scavenger = is_scavenger(known, settings, facts)
        if now < refused.get(record.id, -NO_RETRY_S) + NO_RETRY_S:
            continue
        earliest = earliest_preemption(settings, record.run.started, preempted.get(record.id))
        opens = next_opening(settings, max(now, earliest))
        if opens is None:
            continue
        free_from = opens + settings.lead
        if free_from >= plan.end(record.slot):
            continue
        cpus = sum(share.cpus for share in facts.shares)
        weight = 1 if scavenger else _NORMAL_FIRST
        yield Candidate(record, free_from, cpus, weight, permitted_methods(settings, facts))
